#include "common/predict/chance.h"

#include <math.h>

static const double span[CHANCE_SPANS] = {24, 400};     /* observations, at most */
static const double guess_seen = 1.5;
static const double loss_memory = 0.97;

void chance_init(struct chance *chance, double guess)
{
    for (int i = 0; i < CHANCE_SPANS; i++) {
        chance->mean[i] = guess;
        chance->seen[i] = guess_seen;
        chance->loss[i] = 0;
    }
}

void chance_observe(struct chance *chance, bool well)
{
    for (int i = 0; i < CHANCE_SPANS; i++) {
        double predicted = fmin(0.995, fmax(0.005, chance->mean[i]));
        chance->loss[i] = loss_memory * chance->loss[i] - log(well ? predicted : 1 - predicted);
        chance->seen[i] = fmin(chance->seen[i] + 1, span[i]);
        chance->mean[i] += ((well ? 1 : 0) - chance->mean[i]) / chance->seen[i];
    }
}

void chance_fade(struct chance *chance, double weight)
{
    for (int i = 0; i < CHANCE_SPANS; i++)
        chance->seen[i] = fmax(guess_seen, weight * chance->seen[i]);
}

static double weight_of_first(const struct chance *chance)
{
    return 1 / (1 + exp(fmin(50, fmax(-50, chance->loss[0] - chance->loss[1] + 1))));
}

double chance_of(const struct chance *chance)
{
    double first = weight_of_first(chance);
    return first * chance->mean[0] + (1 - first) * chance->mean[1];
}

double chance_doubt(const struct chance *chance)
{
    double first = weight_of_first(chance), p = fmin(0.95, fmax(0.05, chance_of(chance)));
    double seen = first * chance->seen[0] + (1 - first) * chance->seen[1];
    return sqrt(p * (1 - p) / (seen + 1));
}
