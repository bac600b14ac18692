#include "common/cli/number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/nearest.h"

/* strtoX alone takes leading space, signs, "inf", "0x1p3": only these bytes may be in the text. */
static int only(const char *text, const char *allowed) { return *text && text[strspn(text, allowed)] == '\0'; }

int number_int(const char *text, int min, int max, int *out, struct err *err)
{
    char *end;
    if (!only(text[0] == '-' ? text + 1 : text, "0123456789"))
        return err_set(err, ERR_INPUT, "'%s' is not a whole number", text);
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || value < min || value > max)
        return err_set(err, ERR_INPUT, "%s is not between %d and %d", text, min, max);
    *out = (int)value;
    return 0;
}

int number_uint64(const char *text, uint64_t *out, struct err *err)
{
    if (!only(text, "0123456789"))
        return err_set(err, ERR_INPUT, "'%s' is not a whole number from 0", text);
    errno = 0;
    uint64_t value = strtoull(text, NULL, 10);
    if (errno)
        return err_set(err, ERR_INPUT, "%s exceeds the maximum of %" PRIu64, text, UINT64_MAX);
    *out = value;
    return 0;
}

int number_size(const char *text, uint64_t min, uint64_t max, uint64_t *out, struct err *err)
{
    size_t digits = strspn(text, "0123456789");
    const char *suffix = text + digits;
    unsigned shift = *suffix == 'K' ? 10 : *suffix == 'M' ? 20 : *suffix == 'G' ? 30 : 0;
    if (!digits || suffix[shift != 0] != '\0')
        return err_set(err, ERR_INPUT, "'%s' is not a size; give digits, optionally followed by K, M or G", text);
    errno = 0;
    uint64_t value = strtoull(text, NULL, 10);
    if (errno || value > UINT64_MAX >> shift || value << shift < min || value << shift > max)
        return err_set(err, ERR_INPUT, "%s is not between %" PRIu64 " and %" PRIu64 " bytes", text, min, max);
    *out = value << shift;
    return 0;
}

int number_float(const char *text, double min, double max, double *out, struct err *err)
{
    char *end;
    double value = only(text, "+-.0123456789eE") ? strtod(text, &end) : 0;
    if (!only(text, "+-.0123456789eE") || *end || end == text)
        return err_set(err, ERR_INPUT, "'%s' is not a number", text);
    if (!(value >= min && value <= max) || value - value != 0)
        return err_set(err, ERR_INPUT, "%s is not between %.9g and %.9g", text, min, max);
    *out = value;
    return 0;
}

int number_share(const char *text, double *out, struct err *err)
{
    char digits[64];
    size_t length = strlen(text);
    bool percent = length > 0 && text[length - 1] == '%';
    double value;
    length -= percent;
    if (!length || length >= sizeof digits)
        return err_set(err, ERR_INPUT, "'%.80s' is not a share; give one such as 2%% or 0.02", text);
    memcpy(digits, text, length);
    digits[length] = '\0';
    if (number_float(digits, 0, percent ? 100 : 1, &value, err))
        return -1;
    value = percent ? value / 100 : value;
    if (value >= 1)
        return err_set(err, ERR_INPUT, "'%s' is not below 100 %%; give a smaller share", text);
    *out = value;
    return 0;
}

int number_choice(const char *text, const char *const *choices, int *out, struct err *err)
{
    struct nearest nearest = {.word = text};
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) == 0) {
            *out = i;
            return 0;
        }
        nearest_offer(&nearest, choices[i]);
    }
    if (nearest.best)
        err_set(err, ERR_INPUT, "unknown value '%s'; did you mean %s? Choose one of", text, nearest.best);
    else
        err_set(err, ERR_INPUT, "unknown value '%s'; choose one of", text);
    for (int i = 0; err && choices[i]; i++) {
        size_t used = strlen(err->text);
        if (used + strlen(choices[i]) + 3 > sizeof err->text)
            break;
        strcat(err->text, i ? ", " : " ");
        strcat(err->text, choices[i]);
    }
    return -1;
}
