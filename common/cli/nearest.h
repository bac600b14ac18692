/* Finds the known word nearest to a mistyped one. */
#ifndef MOE_CLI_NEAREST_H
#define MOE_CLI_NEAREST_H

#include <stddef.h>

struct nearest {
    const char *word, *best;        /* best: NULL if no word is near enough */
    size_t distance;
};

/* Offers a known word: start with {.word = ...}, offer every known word, read best. Near enough is a third of the letters
 * wrong, at most: letters missing, added, changed or two neighbours swapped. A known word that begins with the mistyped one
 * counts too. */
void nearest_offer(struct nearest *nearest, const char *known);

#endif
