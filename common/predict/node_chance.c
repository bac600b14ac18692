#include "common/predict/node_chance.h"

#include <math.h>

static const double decay = 0.995;      /* weight of an observation when the next one of its kind follows */
static const double first_guess = 0.4;
static const double depth_weight = 12, match_weight = 6;        /* observations that the broader rate counts as */

void node_chance_init(struct node_chance *chance)
{
    *chance = (struct node_chance){.depth = {{0, 0}}};
    calibration_init(&chance->said, decay);
    chance_init(&chance->all, first_guess);
}

static int depth_cell(int depth) { return depth < NODE_CHANCE_DEPTHS ? depth - 1 : NODE_CHANCE_DEPTHS - 1; }

static int match_cell(int match) { return match <= 4 ? match - 1 : match <= 6 ? 4 : match <= 10 ? 5 : match <= 20 ? 6 : 7; }

static void count(struct node_chance_cell *cell, bool kept)
{
    cell->kept = decay * cell->kept + kept;
    cell->tried = decay * cell->tried + 1;
}

void node_chance_observe(struct node_chance *chance, const struct node_signal *signal, bool kept)
{
    if (!isnan(signal->said)) {
        calibration_observe(&chance->said, fmin(1, signal->said), kept);
        return;
    }
    chance_observe(&chance->all, kept);
    count(&chance->depth[depth_cell(signal->depth)], kept);
    if (signal->match > 0)
        count(&chance->match[match_cell(signal->match)], kept);
}

static double lean(const struct node_chance_cell *cell, double weight, double otherwise)
{
    return (cell->kept + weight * otherwise) / (cell->tried + weight);
}

double node_chance_of(const struct node_chance *chance, const struct node_signal *signal)
{
    if (!isnan(signal->said))
        return calibration_of(&chance->said, fmin(1, signal->said));
    double rate = lean(&chance->depth[depth_cell(signal->depth)], depth_weight, chance_of(&chance->all));
    return signal->match > 0 ? lean(&chance->match[match_cell(signal->match)], match_weight, rate) : rate;
}
