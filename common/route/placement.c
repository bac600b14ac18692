#include "common/route/placement.h"

#include "common/base/mem.h"

struct load {
    double layer, all;                  /* sums of scores: of this layer, of this and the earlier layers */
    int experts;                        /* of this layer */
};

/* Returns the process with the least load that has room. */
static int choose(const struct load *load, int ranks, int room)
{
    int best = -1;
    for (int r = 0; r < ranks; r++)
        if (load[r].experts < room && (best < 0 || load[r].layer < load[best].layer ||
                                       (load[r].layer <= load[best].layer && load[r].all < load[best].all)))
            best = r;
    return best;
}

/* Assigns the experts in descending order of their scores, each to the process with the smallest sum so far. */
int placement_make(int32_t *owner, const struct ranking *ranking, int ranks, struct err *err)
{
    const int experts = ranking->experts, room = (experts + ranks - 1) / ranks;
    struct load *load = mem_alloc((size_t)ranks, sizeof *load, err);
    if (!load)
        return -1;
    for (int layer = 0; layer < ranking->moe_layers; layer++) {
        const size_t first = (size_t)layer * (size_t)experts;
        for (int r = 0; r < ranks; r++)
            load[r].layer = load[r].experts = 0;
        for (int i = 0; i < experts; i++) {
            const int to = choose(load, ranks, room);
            const double score = ranking->score[first + (size_t)i] > 0 ? ranking->score[first + (size_t)i] : 0;
            owner[first + (size_t)ranking->order[first + (size_t)i]] = to;
            load[to].layer += score;
            load[to].all += score;
            load[to].experts++;
        }
    }
    mem_free(&load);
    return 0;
}
