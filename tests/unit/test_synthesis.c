/* Synthetic routes have the requested popularity, sharing and correlation of layers, counted here from the routes alone,
 * without ranks. */
#include <math.h>

#include "common/route/synthesis.h"
#include "tests/unit/unit.h"

enum { LAYERS = 6, TOKENS = 4000 };

static int falling(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

struct found { double first, sharing[9], layers, alone; };

/* `first`: share of the most popular experts; `layers`: how often the likeliest successor in the next layer follows. */
static struct found count(const struct synthesis_setup *setup, double share)
{
    struct synthesis *s = NULL;
    struct err err = {0};
    struct found found = {0};
    int k = setup->top_k, E = setup->experts;
    int16_t *expert = calloc((size_t)TOKENS * LAYERS * k, sizeof *expert);
    if (synthesis_open(&s, setup, &err))
        fail_msg("%s", err.text);
    for (int t = 0; t < TOKENS; t++)
        synthesis_draw(s, expert + t * LAYERS * k, t ? expert + (t - 1) * LAYERS * k : NULL);
    synthesis_close(&s);
    for (int layer = 0; layer < LAYERS; layer++) {
        int64_t *often = calloc(E, sizeof *often), total = 0, taken = 0;
        for (int t = 0; t < TOKENS; t++)
            for (int i = 0; i < k; i++) {
                int e = expert[(t * LAYERS + layer) * k + i];
                assert_true(e >= 0 && e < E);
                often[e]++;
                total++;
                for (int j = 0; j < i; j++)
                    assert_int_not_equal(e, expert[(t * LAYERS + layer) * k + j]);
                for (int distance = 1; distance <= 8 && distance <= t; distance++)
                    for (int j = 0; j < k; j++)
                        found.sharing[distance] += e == expert[((t - distance) * LAYERS + layer) * k + j];
            }
        qsort(often, E, sizeof *often, falling);
        for (int e = 0; e < (int)lround(share * E); e++)
            taken += often[e];
        found.first += (double)taken / total / LAYERS;
        free(often);
    }
    for (int distance = 1; distance <= 8; distance++)
        found.sharing[distance] /= (double)(TOKENS - distance) * LAYERS * k;
    int64_t *pairs = calloc((size_t)E * E, sizeof *pairs), best = 0, all = 0, *next = calloc(E, sizeof *next), max = 0;
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++)
                pairs[expert[(t * LAYERS + 2) * k + i] * E + expert[(t * LAYERS + 3) * k + j]]++;
    for (int e = 0; e < E; e++) {
        int64_t likeliest = 0;
        for (int f = 0; f < E; f++) {
            likeliest = pairs[e * E + f] > likeliest ? pairs[e * E + f] : likeliest;
            all += pairs[e * E + f];
            next[f] += pairs[e * E + f];
        }
        best += likeliest;
    }
    for (int f = 0; f < E; f++)
        max = next[f] > max ? next[f] : max;
    found.layers = (double)best * k / all;
    found.alone = (double)max * k / all;
    free(next);
    free(pairs);
    free(expert);
    return found;
}

static void near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.4f, not %.4f", value, expected);
}

static void routes_are_what_they_are_said_to_be(void **state)
{
    (void)state;
    static const struct { int experts, top_k; } shape[] = {{128, 8}, {64, 8}, {32, 4}};
    for (int i = 0; i < (unit_brief() ? 1 : 3); i++) {
        struct synthesis_setup setup = {.layers = LAYERS, .experts = shape[i].experts, .top_k = shape[i].top_k, .seed = 3};
        double even = (double)setup.top_k / setup.experts;
        struct found flat = count(&setup, 0.1);
        near(flat.first, 0.1, 0.02);
        near(flat.sharing[1], 0.37, 0.01);
        assert_true(flat.sharing[2] < 0.30 && flat.sharing[2] > flat.sharing[4]);
        near(flat.sharing[8], even, 0.02);
        assert_true(flat.layers > flat.alone + 0.08);
        setup.skew = SYNTHESIS_MILD;
        struct found mild = count(&setup, 0.1);
        near(mild.sharing[1], 0.37, 0.015);
        near(mild.sharing[8], 1.888 * even, 0.02);
        setup.skew = SYNTHESIS_STEEP;
        int first = (int)lround(0.1 * setup.experts);
        struct found steep = count(&setup, 0.1);
        near(steep.first, 0.8 * (first < setup.top_k ? (double)first / setup.top_k : 1), 0.02);
        assert_true(steep.sharing[1] > 0.36);
    }
}

/* Counts choices of the last `tokens` that the first `tokens` made, too, in two texts or in one; draws 2 * tokens. */
static double taken_again(enum synthesis_skew skew, bool anew)
{
    enum { E = 128, K = 8, SIDE = 256 };
    const struct synthesis_setup setup = {.layers = 4, .experts = E, .top_k = K, .skew = skew, .seed = 5};
    int16_t expert[4 * K];
    int64_t often[2][4][E] = {0}, again = 0;
    struct synthesis *s = NULL;
    struct err err = {0};
    assert_int_equal(synthesis_open(&s, &setup, &err), 0);
    for (int t = 0; t < 2 * SIDE; t++) {
        synthesis_draw(s, expert, t && (t != SIDE || !anew) ? expert : NULL);
        for (int i = 0; i < 4 * K; i++)
            often[t / SIDE][i / K][expert[i]]++;
    }
    synthesis_close(&s);
    for (int layer = 0; layer < 4; layer++)
        for (int e = 0; e < E; e++)
            again += often[0][layer][e] > SIDE * K / E ? often[1][layer][e] : 0;
    return (double)again / (SIDE * K * 4);
}

/* A local text keeps using its preferred experts, the next text mostly others; mild texts are all similar. */
static void local_texts_have_rankings_of_their_own(void **state)
{
    (void)state;
    const struct synthesis_setup setup = {.layers = LAYERS, .experts = 128, .top_k = 8, .skew = SYNTHESIS_LOCAL, .seed = 3};
    const struct found local = count(&setup, 0.4);
    near(local.first, 0.935, 0.02);
    near(local.sharing[1], 0.475, 0.02);
    near(local.sharing[8], local.sharing[1], 0.02);
    const double own = taken_again(SYNTHESIS_LOCAL, false), other = taken_again(SYNTHESIS_LOCAL, true);
    if (!(own > 0.75 && other < own - 0.2 && other > 0.3))
        fail_msg("%.3f of the same text, %.3f of another", own, other);
    near(taken_again(SYNTHESIS_MILD, true), taken_again(SYNTHESIS_MILD, false), 0.03);
}

static void the_seed_says_which(void **state)
{
    (void)state;
    struct synthesis_setup setup = {.layers = 3, .experts = 16, .top_k = 2, .skew = SYNTHESIS_MILD, .seed = 1};
    int16_t expert[3][6];
    for (int i = 0; i < 3; i++) {
        struct synthesis *s = NULL;
        struct err err = {0};
        setup.seed = i == 2 ? 2 : 1;
        assert_int_equal(synthesis_open(&s, &setup, &err), 0);
        synthesis_draw(s, expert[i], NULL);
        synthesis_draw(s, expert[i], expert[i]);
        synthesis_close(&s);
    }
    assert_memory_equal(expert[0], expert[1], sizeof expert[0]);
    assert_memory_not_equal(expert[0], expert[2], sizeof expert[0]);
    struct synthesis *s = NULL;
    struct err err = {0};
    setup.top_k = 9;
    assert_int_equal(synthesis_open(&s, &setup, &err), -1);
    assert_non_null(strstr(err.text, "at most half"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_are_what_they_are_said_to_be),
        cmocka_unit_test(local_texts_have_rankings_of_their_own),
        cmocka_unit_test(the_seed_says_which),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
