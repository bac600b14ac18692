/* The chance that something goes well, learned from how it went, while it may change: an average over much of the past and one
 * over little of it, each weighed by how well it has predicted what came lately. So a chance that stays is known more closely
 * with time, and one that moves is followed.
 *
 * How much of the past is behind an estimate fades with each round, observed or not: what was not looked at for long is in
 * doubt again. */
#ifndef MOE_PREDICT_CHANCE_H
#define MOE_PREDICT_CHANCE_H

#include <stdbool.h>

enum { CHANCE_SPANS = 2 };

struct chance {
    double mean[CHANCE_SPANS], seen[CHANCE_SPANS];      /* observations behind each, at most its span */
    double loss[CHANCE_SPANS];          /* recent sum of -log of the chance predicted for what came */
};

void chance_init(struct chance *chance, double guess);              /* which counts as so many observations: see chance.c */
void chance_observe(struct chance *chance, bool well);
void chance_fade(struct chance *chance, double weight);             /* what was seen counts for so much less, 0 to 1 */

double chance_of(const struct chance *chance);
double chance_doubt(const struct chance *chance);                   /* its standard deviation */

#endif
