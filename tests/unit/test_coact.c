/* Pairs, rankings that use pairs, clusters, budgets that share a total, skew and trees, compared with plain sums. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/report/coact_report.h"
#include "common/report/svg.h"
#include "common/route/cluster.h"
#include "common/route/elimination.h"
#include "common/route/matrix.h"
#include "common/route/skew.h"
#include "common/route/tallied.h"
#include "common/route/trees.h"

enum { LAYERS = 2, EXPERTS = 9, TOP_K = 3, TOKENS = 400 };

static const struct stream_model model = { .name = "tiny", .layers = LAYERS, .moe_layers = LAYERS, .experts = EXPERTS,
                                           .top_k = TOP_K, .vocab = 50, .hidden = 8 };

struct world {
    int16_t expert[TOKENS][LAYERS][TOP_K];
    struct route_counts *counts;
    struct route_spool *spool;
    char *folder;
};

static unsigned draw(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* A token's experts mostly come from one of three groups; some slots are dropped. */
static void draw_experts(int16_t expert[LAYERS][TOP_K], unsigned *state, bool drops)
{
    for (int l = 0; l < LAYERS; l++)
        for (int s = 0, group = (int)draw(state, 3); s < TOP_K; ) {
            int e = draw(state, 3) ? group + 3 * (int)draw(state, 3) : (int)draw(state, EXPERTS);
            bool again = false;
            for (int t = 0; t < s; t++)
                again |= expert[l][t] == e;
            if (!again)
                expert[l][s++] = drops && !draw(state, 40) ? -1 : (int16_t)e;
        }
}

static void world_open(struct world *world, unsigned seed, bool drops)
{
    struct err err = {0};
    *world = (struct world){ .folder = unit_folder() };
    assert_int_equal(route_counts_open(&world->counts, &model, &err), 0);
    assert_int_equal(route_spool_open(&world->spool, &model, SPOOL_MEMORY, world->folder, &err), 0);
    for (int t = 0; t < TOKENS; t++) {
        struct route_tokens record = { .n = 1, .experts = world->expert[t][0] };
        draw_experts(world->expert[t], &seed, drops);
        assert_int_equal(route_counts_add(world->counts, &record, &err), 0);
        assert_int_equal(route_spool_add(world->spool, &record, &err), 0);
    }
}

static void world_close(struct world *world)
{
    route_counts_free(&world->counts);
    route_spool_close(&world->spool);
    unit_remove(world->folder);
}

static bool selects(const int16_t expert[TOP_K], int e)
{
    for (int s = 0; s < TOP_K; s++)
        if (expert[s] == e)
            return true;
    return false;
}

static int both(const struct world *world, int layer, int a, int b)
{
    int count = 0;
    for (int t = 0; t < TOKENS; t++)
        count += selects(world->expert[t][layer], a) && selects(world->expert[t][layer], b);
    return count;
}

/* Counts tokens whose experts are all kept, and pairs within these tokens. */
static void served(const struct world *world, int layer, const bool kept[EXPERTS], int64_t *tokens, int64_t *pairs)
{
    *tokens = *pairs = 0;
    for (int t = 0; t < TOKENS; t++) {
        bool all = true;
        for (int s = 0; s < TOP_K; s++) {
            int e = world->expert[t][layer][s];
            all &= e < 0 || kept[e];
            for (int u = s + 1; u < TOP_K; u++) {
                int f = world->expert[t][layer][u];
                *pairs += e >= 0 && f >= 0 && kept[e] && kept[f];
            }
        }
        *tokens += all;
    }
}

/* Each step removes the expert whose removal loses least, and scores are the losses. */
static void check_elimination(const struct world *world, const struct ranking *ranking, bool by_pairs)
{
    for (int l = 0; l < LAYERS; l++) {
        bool kept[EXPERTS];
        for (int e = 0; e < EXPERTS; e++)
            kept[e] = true;
        for (int rank = EXPERTS - 1; rank >= 0; rank--) {
            int64_t before[2], after[2], min = INT64_MAX;
            int out = ranking->order[l * EXPERTS + rank];
            assert_true(kept[out]);
            served(world, l, kept, &before[0], &before[1]);
            for (int e = 0; e < EXPERTS; e++)
                if (kept[e]) {
                    kept[e] = false;
                    served(world, l, kept, &after[0], &after[1]);
                    min = before[by_pairs] - after[by_pairs] < min ? before[by_pairs] - after[by_pairs] : min;
                    kept[e] = true;
                }
            kept[out] = false;
            served(world, l, kept, &after[0], &after[1]);
            assert_int_equal(before[by_pairs] - after[by_pairs], min);
            assert_true(ranking->score[l * EXPERTS + rank] == (double)min);
        }
    }
}

static void test_elimination(void **unused)
{
    (void)unused;
    for (unsigned seed = 1; seed < 6; seed++) {
        struct world world;
        struct ranking *ranking = NULL;
        struct err err = {0};
        world_open(&world, seed, seed > 3);
        assert_int_equal(ranking_by_coverage(&ranking, world.counts, world.spool, NULL, &err), 0);
        assert_string_equal(ranking->method, "coverage");
        check_elimination(&world, ranking, false);
        ranking_free(&ranking);
        assert_int_equal(ranking_by_pairs(&ranking, world.counts, world.spool, &err), 0);
        assert_string_equal(ranking->method, "pairs");
        check_elimination(&world, ranking, true);
        ranking_free(&ranking);
        world_close(&world);
    }
}

static void test_matrix(void **unused)
{
    (void)unused;
    struct world world;
    struct matrix *matrix = NULL;
    struct skew *skew = NULL;
    struct err err = {0};
    world_open(&world, 7, true);
    assert_int_equal(matrix_make(&matrix, world.counts, world.spool, -1, &err), 0);
    assert_int_equal(skew_make(&skew, world.counts, world.spool, &err), 0);
    for (int l = 0; l < LAYERS; l++) {
        const struct matrix_layer *of = &matrix->layers[l];
        int max = 0;
        for (int a = 0; a < EXPERTS; a++)
            for (int b = 0; b < EXPERTS; b++) {
                double count = both(&world, l, a, b), one = both(&world, l, a, a), two = both(&world, l, b, b);
                assert_int_equal(of->count[a * EXPERTS + b], count);
                assert_true(fabs(matrix_lift(matrix, of, a, b) - count / TOKENS / (one / TOKENS) / (two / TOKENS)) < 1e-9);
                max = a != b && count > max ? (int)count : max;
            }
        assert_int_equal(of->stats.pair_tokens, max);
        assert_int_equal(both(&world, l, of->stats.pair_first, of->stats.pair_second), max);
        /* eq. 9: 3 of 9 experts, so a pair is expected in 3 x 2 / (9 x 8) of the tokens */
        assert_true(fabs(of->stats.concentration - max / (TOKENS / 12.0)) < 1e-9);
        assert_memory_equal(&of->stats, &skew->layers[l], sizeof of->stats);
        double entropy = 0, all = 0;
        for (int e = 0; e < EXPERTS; e++)
            all += both(&world, l, e, e);
        for (int e = 0; e < EXPERTS; e++)
            entropy -= both(&world, l, e, e) / all * log(both(&world, l, e, e) / all);
        assert_true(fabs(of->stats.effective - exp(entropy)) < 1e-9);
        assert_true(fabs(of->stats.dropped - (1 - all / (TOKENS * TOP_K))) < 1e-12 && of->stats.dropped > 0);
    }
    matrix_free(&matrix);
    skew_free(&skew);
    world_close(&world);
}

/* Experts of one group, scattered over the numbers, are adjacent in the order, which is a permutation. */
static void test_cluster(void **unused)
{
    (void)unused;
    enum { N = 12, GROUPS = 3 };
    int64_t count[N][N];
    int32_t order[N];
    bool seen[N] = {false};
    struct err err = {0};
    for (int a = 0; a < N; a++)
        for (int b = 0; b < N; b++)
            count[a][b] = a == b ? 100 : a * 5 % N % GROUPS == b * 5 % N % GROUPS ? 60 + (a + b) % 7 : (a * b) % 5;
    assert_int_equal(cluster_order(order, count[0], N, &err), 0);
    int changes = 0;
    for (int i = 0; i < N; i++) {
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
        changes += i && order[i] * 5 % N % GROUPS != order[i - 1] * 5 % N % GROUPS;
    }
    assert_int_equal(changes, GROUPS - 1);
    assert_int_equal(cluster_order(order, count[0], 1, &err), 0);
    assert_int_equal(order[0], 0);
}

/* Compared with every division of the total. */
static void test_spread(void **unused)
{
    (void)unused;
    enum { L = 3, E = 5 };
    struct ranking *ranking = NULL;
    struct err err = {0};
    unsigned state = 5;
    assert_int_equal(ranking_open(&ranking, "mass", L, E, &err), 0);
    for (int round = 0; round < 30; round++) {
        double share[L][E + 1] = {{0}}, best;
        for (int l = 0; l < L; l++) {
            double all = 0;
            for (int i = 0; i < E; i++)
                all += ranking->score[l * E + i] = draw(&state, 3) ? draw(&state, 100) + 1 : 0;
            for (int i = 0; i < E; i++)
                share[l][i + 1] = share[l][i] + ranking->score[l * E + i] / all;
        }
        for (int total = L; total <= L * E; total++) {
            best = -1;
            for (int a = 1; a <= E; a++)
                for (int b = 1; b <= E; b++)
                    if (total - a - b >= 1 && total - a - b <= E)
                        best = fmax(best, fmax(share[0][a], 1e-6) * fmax(share[1][b], 1e-6) *
                                          fmax(share[2][total - a - b], 1e-6));
            assert_int_equal(ranking_spread(ranking, total, &err), 0);
            const int32_t *of = ranking->budget;
            assert_int_equal(of[0] + of[1] + of[2], total);
            double is = fmax(share[0][of[0]], 1e-6) * fmax(share[1][of[1]], 1e-6) * fmax(share[2][of[2]], 1e-6);
            assert_true(is > best * (1 - 1e-9));
        }
    }
    assert_int_equal(ranking_spread(ranking, L - 1, &err), -1);
    err_clear(&err);
    assert_int_equal(ranking_spread(ranking, L * E + 1, &err), -1);
    ranking_free(&ranking);
}

/* Simulates one forward of `n` nodes from token `from` on, with the results that are expected. */
static void add_tree(struct analysis *trees, const struct world *world, int from, int n, int phase)
{
    uint8_t accepted[8] = {1};
    struct err err = {0};
    struct route_tokens record = { .n = n, .phase = phase, .accepted = accepted, .experts = world->expert[from][0] };
    assert_int_equal(trees->class->tokens(trees, &record, &err), 0);
}

static void test_trees(void **unused)
{
    (void)unused;
    static const int sizes[] = { 5, 1, 8, 5, 5, 1 };
    struct world world;
    const struct analysis_setup setup = {0};
    struct analysis *trees = NULL;
    struct tree_size of[3];
    struct err err = {0};
    double distinct[9][LAYERS] = {{0}};
    world_open(&world, 3, false);
    assert_int_equal(analysis_open(&trees, &trees_analysis, &setup, &model, &err), 0);
    add_tree(trees, &world, 0, 4, PHASE_PROMPT);
    for (int t = 0, from = 0; t < 6; from += sizes[t++]) {
        add_tree(trees, &world, from, sizes[t], sizes[t] > 1 ? PHASE_VERIFY : PHASE_DECODE);
        for (int l = 0; l < LAYERS; l++) {
            bool seen[EXPERTS] = {0};
            for (int i = from; i < from + sizes[t]; i++)
                for (int s = 0; s < TOP_K; s++)
                    seen[world.expert[i][l][s]] = true;
            for (int e = 0; e < EXPERTS; e++)
                distinct[sizes[t]][l] += seen[e];
        }
    }
    assert_int_equal(trees->counted, 6);
    assert_int_equal(trees_sizes(trees), 3);
    for (int l = 0; l < LAYERS; l++) {
        trees_layer(trees, l, of);
        assert_true(of[0].nodes == 1 && of[0].trees == 2 && of[1].nodes == 5 && of[1].trees == 3 && of[2].nodes == 8);
        assert_true(fabs(of[0].distinct - TOP_K) < 1e-12 && fabs(of[1].distinct - distinct[5][l] / 3) < 1e-12);
        assert_true(fabs(of[2].distinct - distinct[8][l]) < 1e-12);
        assert_true(fabs(of[0].independent - TOP_K) < 1e-9 && fabs(of[0].alike - TOP_K) < 1e-9);
    }

    const int32_t loaded[LAYERS] = { 4, 6 }, bad[LAYERS] = { 4, EXPERTS + 1 };
    struct decode_iter iter = { .nodes = 5, .experts_loaded_layer = loaded };
    assert_int_equal(trees->class->iteration(trees, &iter, &err), 0);
    trees_layer(trees, 1, of);
    assert_true(of[1].trees == 4 && fabs(of[1].distinct - (distinct[5][1] + 6) / 4) < 1e-12 && isnan(of[1].independent));
    iter.experts_loaded_layer = bad;
    assert_int_equal(trees->class->iteration(trees, &iter, &err), -1);
    err_clear(&err);
    iter.experts_loaded_layer = NULL;
    assert_int_equal(trees->class->iteration(trees, &iter, &err), -1);
    analysis_free(&trees);
    world_close(&world);
}

static void test_heat_maps(void **unused)
{
    (void)unused;
    const double value[] = { NAN, 1, 0, 0.5, 0.5, 1, 2, -1, NAN };
    static double large[200 * 200];
    for (int i = 0; i < 200 * 200; i++)
        large[i] = 1;
    static const int32_t id[200] = { 17, 4, 9 };
    const struct svg_heat maps[] = { { "a <b>", 3, value, id }, { "large", 200, large, id } };
    struct text out = {0};
    struct err err = {0};
    assert_int_equal(svg_heat_maps(&out, "T", NULL, "least", "most", true, maps, 2, &err), 0);
    assert_non_null(strstr(out.data, ">a &lt;b&gt;<"));
    assert_non_null(strstr(out.data, "fill=\"#000000\" d=\"M1 0h1v1h-1zM2 1h1v1h-1zM0 2h1v1h-1z\""));
    assert_non_null(strstr(out.data, "d=\"M0 1h2v1h-2z\""));
    assert_non_null(strstr(out.data, "M0 95h96v1h-96z"));
    int ids = 0;                        /* row and column of the cell; 200 cells a side are not drawn */
    for (const char *at = out.data; (at = strstr(at, "font-size=\"7\"")); at++)
        ids++;
    assert_int_equal(ids, 6);
    assert_non_null(strstr(out.data, ">17</text>"));
    assert_non_null(strstr(out.data, ">25 %</text>"));                     /* half is the 6th of 12 shades, squared */
    assert_null(strstr(out.data, "nan"));
    text_free(&out);
}

/* If a token selects one expert, there are no pairs, and the matrix has no concentration. */
static void test_one_expert_a_token(void **unused)
{
    (void)unused;
    static const struct stream_model single = { .layers = 1, .moe_layers = 1, .experts = 3, .top_k = 1, .vocab = 9 };
    static const int16_t experts[] = { 2, 0, 2 };
    const struct route_tokens record = { .n = 3, .experts = experts };
    char *folder = unit_folder();
    const struct analysis_setup setup = { .layer = -1, .folder = folder };
    struct header header = { .model = single };
    struct analysis *matrix = NULL;
    struct text svg = {0}, table = {0};
    struct err err = {0};
    assert_int_equal(analysis_open(&matrix, &matrix_analysis, &setup, &single, &err), 0);
    assert_int_equal(matrix->class->tokens(matrix, &record, &err), 0);
    assert_int_equal(analysis_finish(matrix, &header, NULL, NULL, &err), 0);
    assert_int_equal(coact_svg(&svg, matrix, &header, -1, &err), 0);
    assert_int_equal(coact_text(&table, matrix, &header, -1, &err), 0);
    assert_null(strstr(svg.data, "nan"));
    assert_null(strstr(table.data, "nan"));
    text_free(&svg);
    text_free(&table);
    analysis_free(&matrix);
    unit_remove(folder);
}

static void test_refusals(void **unused)
{
    (void)unused;
    struct stream_model wide = { .moe_layers = 1, .experts = PAIRS_EXPERTS_MAX + 1, .top_k = 1 };
    struct world world = { .folder = unit_folder() };
    struct ranking *ranking = NULL;
    struct skew *skew = NULL;
    struct err err = {0};
    assert_int_equal(route_counts_open(&world.counts, &wide, &err), 0);
    assert_int_equal(route_spool_open(&world.spool, &wide, SPOOL_MEMORY, world.folder, &err), 0);
    assert_int_equal(ranking_by_coverage(&ranking, world.counts, world.spool, NULL, &err), -1);
    assert_non_null(strstr(err.text, "no tokens"));
    err_clear(&err);
    assert_int_equal(skew_make(&skew, world.counts, world.spool, &err), -1);
    assert_non_null(strstr(err.text, "no tokens"));
    int16_t expert = 5;
    struct route_tokens record = { .n = 1, .experts = &expert };
    err_clear(&err);
    assert_int_equal(route_counts_add(world.counts, &record, &err), 0);
    assert_int_equal(ranking_by_pairs(&ranking, world.counts, world.spool, &err), -1);
    assert_non_null(strstr(err.text, "cannot be counted"));
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elimination), cmocka_unit_test(test_matrix), cmocka_unit_test(test_cluster),
        cmocka_unit_test(test_spread), cmocka_unit_test(test_trees), cmocka_unit_test(test_heat_maps),
        cmocka_unit_test(test_one_expert_a_token), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
