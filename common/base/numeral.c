#include "common/base/numeral.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void numeral_real(char out[NUMERAL_ROOM], double value, bool single)
{
    for (int precision = single ? 6 : 15; ; precision++) {
        snprintf(out, NUMERAL_ROOM, "%.*g", precision, value);
        if (precision == 17 || (single ? strtof(out, NULL) == (float)value : strtod(out, NULL) == value))
            return;
    }
}

/* Formats a value of at least 1000 in the unit in which it is below 1000 after rounding: 999.96 M is 1.0 B. */
static void put_scaled(char out[NUMERAL_ROOM], double value, const char *const *units, int decimals)
{
    const double half = decimals == 1 ? 0.05 : 0.005;
    int unit = 0;
    for (value /= 1e3; value >= 1e3 - half && units[unit + 1]; value /= 1e3)
        unit++;
    snprintf(out, NUMERAL_ROOM, "%.*f %s", decimals, value, units[unit]);
}

void numeral_size(char out[NUMERAL_ROOM], uint64_t bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", NULL};
    if (bytes < 1000)
        snprintf(out, NUMERAL_ROOM, "%" PRIu64 " byte%s", bytes, numeral_plural((int64_t)bytes));
    else
        put_scaled(out, (double)bytes, units, 1);
}

void numeral_count(char out[NUMERAL_ROOM], double count)
{
    static const char *const units[] = {"K", "M", "B", "T", NULL};
    if (count < 1000)
        snprintf(out, NUMERAL_ROOM, "%.0f", count);
    else
        put_scaled(out, count, units, 1);
}

const char *numeral_plural(int64_t count) { return count == 1 ? "" : "s"; }
