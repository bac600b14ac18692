/* Placement of experts on processes by a ranking: every expert has one process, no process has more experts than its share,
 * and scores are divided far more evenly than round robin. */
#include "tests/unit/unit.h"

#include "common/route/placement.h"

enum { LAYERS = 5, EXPERTS = 64, RANKS_MOST = 7 };

/* The e-th expert of a layer's order has the score 1 / (1 + e), like routers with favourite experts. */
static struct ranking *skewed(uint32_t seed)
{
    struct ranking *ranking;
    assert_int_equal(ranking_open(&ranking, "mass", LAYERS, EXPERTS, NULL), 0);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < EXPERTS; i++) {
            int32_t *order = &ranking->order[layer * EXPERTS];
            seed = seed * 1664525 + 1013904223;
            const int at = (int)((uint64_t)seed * (uint64_t)(i + 1) >> 32);
            order[i] = order[at];
            order[at] = i;
            ranking->score[layer * EXPERTS + i] = 1.0 / (1 + i);
        }
    return ranking;
}

/* Returns the mean over layers of the largest process's share of the scores, times the number of processes: 1 is even. */
static double imbalance(const struct ranking *ranking, const int32_t *owner, int ranks)
{
    double mean = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        double sum[RANKS_MOST] = {0}, all = 0, most = 0;
        for (int i = 0; i < EXPERTS; i++) {
            const int expert = ranking->order[layer * EXPERTS + i];
            const int of = owner ? owner[layer * EXPERTS + expert] : (expert + layer) % ranks;
            assert_true(of >= 0 && of < ranks);
            sum[of] += ranking->score[layer * EXPERTS + i];
            all += ranking->score[layer * EXPERTS + i];
        }
        for (int r = 0; r < ranks; r++)
            most = sum[r] > most ? sum[r] : most;
        mean += most / all * ranks / LAYERS;
    }
    return mean;
}

static void scores_are_divided_evenly(void **state)
{
    int32_t owner[LAYERS * EXPERTS];
    (void)state;
    for (int ranks = 2; ranks <= RANKS_MOST; ranks++) {
        struct ranking *ranking = skewed((uint32_t)ranks);
        assert_int_equal(placement_make(owner, ranking, ranks, NULL), 0);
        for (int layer = 0; layer < LAYERS; layer++) {
            int count[RANKS_MOST] = {0};
            for (int e = 0; e < EXPERTS; e++)
                count[owner[layer * EXPERTS + e]]++;
            for (int r = 0; r < ranks; r++)
                assert_true(count[r] <= (EXPERTS + ranks - 1) / ranks);
        }
        /* The process of the first expert, whose score is 0.211 of all, must have other experts, too. */
        const double least = ranks * 0.211 > 1 ? ranks * 0.211 : 1, placed = imbalance(ranking, owner, ranks);
        if (placed > least * 1.25 || imbalance(ranking, NULL, ranks) < placed * 1.05)
            fail_msg("%d processes: %g, in turn %g", ranks, placed, imbalance(ranking, NULL, ranks));
        ranking_free(&ranking);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores_are_divided_evenly)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
