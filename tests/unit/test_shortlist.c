/* Experts that a budget by router keeps: two forwards calculated by hand, and random ones compared with the engine's own
 * shortlist of the same scores (kernels/ref, the specification). */
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#include "common/route/shortlist.h"
#include "common/stream/coact.h"
#include "kernels/ref/ref.h"

enum { LAYERS = 2, EXPERTS = 12, TOP_K = 3, NODES_MAX = 9, CELLS = LAYERS * EXPERTS };

static unsigned draw(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* Collects the records of an analysis. */
struct cover {
    int64_t tokens;
    bool router;
    double mass[CELLS], served[CELLS];
};

static int take(void *context, const struct record_kind *kind, const void *body, struct err *err)
{
    struct cover *cover = context;
    const struct coact_coverage *of = body;
    (void)kind;
    (void)err;
    cover->tokens = of->tokens;
    cover->router = !strcmp(of->method, "router");
    for (int b = 0; b < of->points; b++) {
        assert_int_equal(of->budget[b], b + 1);
        cover->mass[of->layer * of->points + b] = of->mass[b];
        cover->served[of->layer * of->points + b] = of->served[b];
    }
    return 0;
}

static struct cover cover(const struct analysis *shortlist)
{
    struct cover cover = {0};
    struct err err = {0};
    assert_int_equal(shortlist->class->put(shortlist, take, &cover, &err), 0);
    return cover;
}

static struct analysis *open_shortlist(const struct stream_model *model)
{
    const struct analysis_setup setup = {0};
    struct analysis *shortlist = NULL;
    struct err err = {0};
    assert_int_equal(analysis_open(&shortlist, &shortlist_analysis, &setup, model, &err), 0);
    return shortlist;
}

static int add(struct analysis *shortlist, const struct route_tokens *record, struct err *err)
{
    return shortlist->class->tokens(shortlist, record, err);
}

/* No node selects expert 3, and yet its score exceeds that of 0, which two nodes select sometimes. */
static void test_by_hand(void **unused)
{
    (void)unused;
    static const struct stream_model model = { .layers = 1, .moe_layers = 1, .experts = 4, .top_k = 1, .vocab = 9 };
    static const float probs[] = { 0.125f, 0.5f, 0.0625f, 0.3125f,   0.0625f, 0.125f, 0.5f, 0.3125f };
    static const int16_t experts[] = { 1, 2 };
    static const float alone[] = { 0.25f, 0.25f, 0.25f, 0.25f };
    static const int16_t chosen[] = { 0 };
    struct route_tokens tree = { .n = 2, .phase = PHASE_VERIFY, .experts = experts, .probs = probs };
    struct route_tokens one = { .n = 1, .phase = PHASE_DECODE, .experts = chosen, .probs = alone };
    const struct route_tokens prompt = { .n = 2, .phase = PHASE_PROMPT, .experts = experts };
    struct err err = {0};
    struct analysis *shortlist = open_shortlist(&model);
    struct cover coverage;
    assert_int_equal(add(shortlist, &prompt, &err), 0);
    assert_int_equal(add(shortlist, &tree, &err), 0);
    /* sums .1875 .625 .5625 .625: order 1, 3, 2, 0 */
    coverage = cover(shortlist);
    static const double mass[] = { 0.3125, 0.625, 0.90625, 1 }, served[] = { 0.5, 0.5, 1, 1 };
    for (int b = 0; b < 4; b++)
        assert_true(coverage.mass[b] == mass[b] && coverage.served[b] == served[b]);
    assert_int_equal(shortlist->counted, 2);
    assert_true(coverage.tokens == 2 && coverage.router);
    /* ties go to the lower expert; the mean is over forwards, not over nodes */
    assert_int_equal(add(shortlist, &one, &err), 0);
    coverage = cover(shortlist);
    for (int b = 0; b < 4; b++) {
        assert_true(coverage.mass[b] == (mass[b] + 0.25 * (b + 1)) / 2);
        assert_true(fabs(coverage.served[b] - (2 * served[b] + 1) / 3) < 1e-15);
    }
    analysis_free(&shortlist);

    /* a correction bias changes which experts are kept, not the score of a kept one; the next text has none */
    static const float correction[] = { 1, 0, 0, -1 };
    shortlist = open_shortlist(&model);
    shortlist->class->begin(shortlist, &(struct route_begin){ .correction = correction });
    assert_int_equal(add(shortlist, &tree, &err), 0);
    coverage = cover(shortlist);
    static const double corrected[] = { 0.09375, 0.40625, 0.6875, 1 };
    for (int b = 0; b < 4; b++)
        assert_true(coverage.mass[b] == corrected[b]);
    shortlist->class->begin(shortlist, &(struct route_begin){0});
    assert_int_equal(add(shortlist, &tree, &err), 0);
    coverage = cover(shortlist);
    assert_true(coverage.mass[0] == (0.09375 + 0.3125) / 2);

    tree.probs = NULL;
    assert_int_equal(add(shortlist, &tree, &err), -1);
    assert_non_null(strstr(err.text, "--record route,probs"));
    static const float bad[][4] = { { NAN, 0, 0, 1 }, { -0.5f, 0.5f, 0.5f, 0.5f }, { 2, 0, 0, 0 } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err_clear(&err);
        one.probs = bad[i];
        assert_int_equal(add(shortlist, &one, &err), -1);
        assert_non_null(strstr(err.text, "damaged"));
    }
    analysis_free(&shortlist);
}

struct forward_of {
    int n;
    float probs[NODES_MAX][LAYERS][EXPERTS];
    int16_t expert[NODES_MAX][LAYERS][TOP_K];
};

/* Probabilities in eighths, so that sums are often equal; any experts, some slots dropped. */
static void draw_forward(struct forward_of *f, unsigned *state)
{
    f->n = 1 + (int)draw(state, NODES_MAX);
    for (int i = 0; i < f->n; i++)
        for (int l = 0; l < LAYERS; l++) {
            for (int e = 0; e < EXPERTS; e++)
                f->probs[i][l][e] = (float)draw(state, 3) / 8 + (draw(state, 2) ? (float)draw(state, 1000) / 3000 : 0);
            for (int s = 0; s < TOP_K; s++)
                f->expert[i][l][s] = draw(state, 30) ? (int16_t)((int)draw(state, EXPERTS / TOP_K) * TOP_K + s) : -1;
        }
}

static void *as_pointer(struct ref_memory *memory, struct buffer buffer, uint64_t bytes)
{
    (void)memory;
    assert_true(bytes <= buffer.bytes);
    return (void *)(uintptr_t)buffer.address;
}

static struct buffer buffer_of(const void *data, size_t bytes) { return (struct buffer){ (uint64_t)(uintptr_t)data, bytes }; }

/* Returns the experts that the engine's operation keeps in this layer, by its specification. */
static void engine_mask(const struct forward_of *f, int layer, const float *correction, int budget, uint8_t mask[EXPERTS])
{
    struct ref_memory memory = { as_pointer };
    struct queue queue = { &memory };
    float score[NODES_MAX][EXPERTS];
    for (int i = 0; i < f->n; i++)
        memcpy(score[i], f->probs[i][layer], sizeof score[i]);
    ref_ops.route_shortlist(&queue, &(struct route_shortlist_args){
        .score = buffer_of(score, sizeof score), .mask = buffer_of(mask, EXPERTS), .rows = f->n, .experts = EXPERTS,
        .bias = correction ? buffer_of(correction + layer * EXPERTS, EXPERTS * sizeof *correction) : (struct buffer){0, 0},
        .budget = budget });
}

static void test_as_the_engine(void **unused)
{
    (void)unused;
    enum { FORWARDS = 40 };
    static const struct stream_model model = { .layers = LAYERS, .moe_layers = LAYERS, .experts = EXPERTS, .top_k = TOP_K,
                                               .vocab = 9 };
    for (unsigned seed = 1; seed <= 4; seed++) {
        struct analysis *shortlist = open_shortlist(&model);
        struct err err = {0};
        unsigned state = seed;
        float correction[CELLS];
        double mass[LAYERS][EXPERTS + 1] = {{0}}, served[LAYERS][EXPERTS + 1] = {{0}}, nodes = 0;
        for (int i = 0; i < CELLS; i++)
            correction[i] = (float)((int)draw(&state, 5) - 2) / 8;
        const struct route_begin begin = { .correction = seed % 2 ? correction : NULL };
        shortlist->class->begin(shortlist, &begin);
        for (int t = 0; t < FORWARDS; t++) {
            struct forward_of f;
            draw_forward(&f, &state);
            const struct route_tokens record = { .n = f.n, .phase = PHASE_VERIFY, .experts = f.expert[0][0],
                                                 .probs = f.probs[0][0] };
            assert_int_equal(add(shortlist, &record, &err), 0);
            nodes += f.n;
            for (int l = 0; l < LAYERS; l++)
                for (int b = 1; b <= EXPERTS; b++) {
                    uint8_t mask[EXPERTS];
                    double kept = 0, all = 0;
                    engine_mask(&f, l, begin.correction, b, mask);
                    for (int i = 0; i < f.n; i++) {
                        int missing = 0;
                        for (int e = 0; e < EXPERTS; e++) {
                            kept += mask[e] ? (double)f.probs[i][l][e] : 0;
                            all += (double)f.probs[i][l][e];
                        }
                        for (int s = 0; s < TOP_K; s++)
                            missing += f.expert[i][l][s] >= 0 && !mask[f.expert[i][l][s]];
                        served[l][b] += !missing;
                    }
                    mass[l][b] += kept / all / FORWARDS;
                }
        }
        const struct cover coverage = cover(shortlist);
        for (int l = 0; l < LAYERS; l++)
            for (int b = 1; b <= EXPERTS; b++) {
                assert_true(fabs(coverage.mass[l * EXPERTS + b - 1] - mass[l][b]) < 1e-8);
                assert_true(fabs(coverage.served[l * EXPERTS + b - 1] - served[l][b] / nodes) < 1e-12);
            }
        analysis_free(&shortlist);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_by_hand), cmocka_unit_test(test_as_the_engine) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
