/* The oracle's choice compared with equation 6 computed literally, and by hand where two experts cancel. */
#include "tests/unit/unit.h"

#include "common/engine/oracle.h"
#include "tests/unit/tiny.h"

enum { ROWS_MAX = 7, SLOTS_MAX = 4, HIDDEN_MAX = 9, TRIED_MAX = 12 };

/* Returns the sum over rows of |contribution of the experts outside mask|^2. */
static double missing(const struct oracle *oracle, const uint8_t *mask)
{
    double all = 0;
    for (int row = 0; row < oracle->rows; row++)
        for (int i = 0; i < oracle->hidden; i++) {
            double left = 0;
            for (int s = 0; s < oracle->slots; s++) {
                int pair = row * oracle->slots + s, e = oracle->expert[pair];
                if (e >= 0 && !mask[e])
                    left += (double)oracle->contribution[pair * oracle->hidden + i];
            }
            all += left * left;
        }
    return all;
}

static bool routed(const struct oracle *oracle, int expert)
{
    for (int pair = 0; pair < oracle->rows * oracle->slots; pair++)
        if (oracle->expert[pair] == expert)
            return true;
    return false;
}

static void choose_by_definition(const struct oracle *oracle, uint8_t *mask)
{
    memset(mask, 0, TRIED_MAX);
    for (int taken = 0; taken < oracle->budget; taken++) {
        int best = -1;
        double min = 0;
        for (int e = 0; e < oracle->experts; e++) {
            if (mask[e] || !routed(oracle, e))
                continue;
            mask[e] = 1;
            double left = missing(oracle, mask);
            mask[e] = 0;
            if (best < 0 || left < min - 1e-9) {
                best = e;
                min = left;
            }
        }
        if (best < 0)
            return;
        mask[best] = 1;
    }
}

static void the_choice_is_that_of_equation_6(void **state)
{
    (void)state;
    int unlike_heaviest = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct chance chance = {seed};
        struct err err = {0};
        float contribution[ROWS_MAX * SLOTS_MAX * HIDDEN_MAX];
        int32_t expert[ROWS_MAX * SLOTS_MAX];
        uint8_t got[TRIED_MAX] = {9}, want[TRIED_MAX];
        struct oracle oracle = {contribution, expert, NULL,
                                chance_range(&chance, 1, ROWS_MAX), chance_range(&chance, 1, SLOTS_MAX),
                                chance_range(&chance, 1, HIDDEN_MAX), chance_range(&chance, SLOTS_MAX, TRIED_MAX), 0};
        for (int row = 0; row < oracle.rows; row++)
            for (int s = 0, first = chance_range(&chance, 0, oracle.experts - 1); s < oracle.slots; s++) {
                int pair = row * oracle.slots + s;
                expert[pair] = chance_range(&chance, 0, 9) ? (first + s * (s + 1) / 2) % oracle.experts : -1;
                for (int before = row * oracle.slots; before < pair; before++)
                    expert[pair] = expert[before] == expert[pair] ? -1 : expert[pair];
                for (int i = 0; i < oracle.hidden; i++)
                    contribution[pair * oracle.hidden + i] = chance_signed(&chance) / (float)(1 + s);
            }
        for (oracle.budget = 1; oracle.budget <= oracle.experts; oracle.budget++) {
            memset(want, 0, sizeof want);
            choose_by_definition(&oracle, want);
            assert_int_equal(oracle_choose(&oracle, got, &err), 0);
            assert_memory_equal(got, want, (size_t)oracle.experts);
            unlike_heaviest += oracle.budget == 1 && expert[0] >= 0 && !got[expert[0]];
        }
    }
    assert_true(unlike_heaviest > 50);
}

/* Experts 0 and 1 nearly cancel: each alone increases the error. Expert 2 contributes little, and is the best first choice. */
static void experts_that_cancel_are_not_taken_first(void **state)
{
    (void)state;
    static const float contribution[] = {5, 0, -5, 0.5f, 0, 1};
    static const int32_t expert[] = {0, 1, 2};
    struct oracle oracle = {contribution, expert, NULL, 1, 3, 2, 4, 1};
    struct err err = {0};
    uint8_t mask[4];
    assert_int_equal(oracle_choose(&oracle, mask, &err), 0);
    assert_memory_equal(mask, ((uint8_t[]){0, 0, 1, 0}), 4);
    oracle.budget = 4;                          /* no row routes to the fourth */
    assert_int_equal(oracle_choose(&oracle, mask, &err), 0);
    assert_memory_equal(mask, ((uint8_t[]){1, 1, 1, 0}), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_choice_is_that_of_equation_6),
        cmocka_unit_test(experts_that_cancel_are_not_taken_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
