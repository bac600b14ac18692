#include "common/cli/nearest.h"

#include <string.h>

enum { LONGEST = 40 };          /* longer than any known name */

static size_t min_of(size_t a, size_t b) { return a < b ? a : b; }

/* Returns the optimal string alignment distance: the minimum number of letters to add, drop, change or swap with a
 * neighbour. */
static size_t distance(const char *a, const char *b)
{
    size_t rows[3][LONGEST + 1], width = strlen(b);
    for (size_t j = 0; j <= width; j++)
        rows[0][j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t changed = last[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = min_of(changed, min_of(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = min_of(now[j], before[j - 2] + 1);
        }
    }
    return rows[strlen(a) % 3][width];
}

void nearest_offer(struct nearest *nearest, const char *known)
{
    size_t length = strlen(nearest->word);
    if (length > LONGEST || strlen(known) > LONGEST || length == 0)
        return;
    size_t letters = distance(nearest->word, known);
    int begins = length >= 3 && strncmp(nearest->word, known, length) == 0;
    if (begins)
        letters = 1;
    if (letters > (length + 2) / 3 && !begins)
        return;
    if (!nearest->best || letters < nearest->distance) {
        nearest->best = known;
        nearest->distance = letters;
    }
}
