/* Windows of texts, drift, and MoE-SpAc's formulas on experts under speculation, counted one by one. */
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#include "common/route/drift.h"
#include "common/route/speculation.h"
#include "common/route/windows.h"
#include "common/stream/coact.h"

enum { LAYERS = 2, EXPERTS = 7, TOP_K = 2, TEXTS = 3, LONG = 41, WIDEST = 5 };

static const int length[TEXTS] = {LONG, 3, 20};
static int16_t expert[TEXTS][LONG][LAYERS][TOP_K];
static int begun;                       /* text of the first record */

static void near(double got, double want) { assert_true(fabs(got - want) <= 1e-9 * (1 + fabs(want))); }

/* Interleaved texts, whose records each have a row that was not accepted. */
static void read_texts(struct analysis *windows)
{
    int at[TEXTS] = {0}, left = LONG + 3 + 20;
    begun = -1;
    unsigned state = 9;
    struct err err = {0};
    for (int t = 0; t < TEXTS; t++)
        for (int i = 0; i < length[t]; i++)
            for (int l = 0; l < LAYERS; l++) {
                state = state * 1664525u + 1013904223u;
                expert[t][i][l][0] = (int16_t)(i / 6 % 3);
                expert[t][i][l][1] = (int16_t)(3 + (state >> 20) % 4);
            }
    expert[2][4][1][0] = -1;            /* dropped by a budget */
    while (left) {
        state = state * 1664525u + 1013904223u;
        int t = (int)((state >> 16) % TEXTS), rows = 1 + (int)((state >> 24) % 3);
        int16_t row[4][LAYERS][TOP_K] = {{{6, 5}, {6, 5}}};
        const uint8_t accepted[4] = {0, 1, 1, 1};
        rows = at[t] + rows > length[t] ? length[t] - at[t] : rows;
        if (!rows)
            continue;
        begun = begun < 0 ? t : begun;
        memcpy(row[1], expert[t][at[t]], (size_t)rows * sizeof row[1]);
        const struct route_tokens record = {.sequence = 10 + t, .n = rows + 1, .experts = &row[0][0][0], .accepted = accepted};
        assert_int_equal(windows->class->tokens(windows, &record, &err), 0);
        at[t] += rows;
        left -= rows;
        if (at[t] == length[t])
            windows->class->end(windows, 10 + t);
    }
}

static int often(int t, int window, int width, int layer, int e)
{
    int f = 0;
    for (int i = window * width; i < (window + 1) * width; i++)
        for (int k = 0; k < TOP_K; k++)
            f += expert[t][i][layer][k] == e;
    return f;
}

/* Computes all values of a layer and width by reading the texts again. */
static void check_width(const struct analysis *windows, int l, int w)
{
    double distinct = 0, pairs = 0, entropy = 0, snr = 0, sums[6] = {0}, bad[5] = {0}, threshold = 2;
    int count = 0, moving = 0;
    struct window_facts of;
    struct window_faults faults;
    windows_layer(windows, l, w, &of);
    windows_faults(windows, l, w, threshold, &faults);
    for (int e = 0; e < EXPERTS; e++) {
        double mean = 0, variance = 0, share[WIDEST + 1] = {0};
        count = 0;
        for (int t = 0; t < TEXTS; t++)
            for (int i = 0; (i + 1) * w <= length[t]; i++, count++) {
                double f = often(t, i, w, l, e), g = i ? often(t, i - 1, w, l, e) : 0;
                distinct += f > 0;
                mean += f;
                share[(int)f]++;
                if (!i)
                    continue;
                pairs += 1.0 / EXPERTS;
                sums[0] += g, sums[1] += f, sums[2] += g * g, sums[3] += f * f, sums[4] += f * g, sums[5] += fabs(f - g);
                bool fault = (f >= threshold) != (g >= threshold), within = f != g && fabs(f - g) <= fabs(f - threshold);
                bad[0] += f != g, bad[1] += fabs(f - threshold), bad[2] += within, bad[3] += fault, bad[4] += fault && within;
            }
        mean /= count;
        for (int f = 0; f <= w; f++) {
            variance += share[f] / count * (f - mean) * (f - mean);
            entropy -= share[f] > 0 ? share[f] / count * log(share[f] / count) / log(2) / EXPERTS : 0;
        }
        moving += variance > 1e-12;
        snr += variance > 1e-12 ? mean / sqrt(variance) : 0;
    }
    assert_int_equal(of.windows, count);
    near((double)of.pairs, pairs);
    near(of.distinct, distinct / count);
    near(of.entropy, entropy);
    near(of.snr, snr / moving);
    double n = pairs * EXPERTS, covariance = sums[4] / n - sums[0] / n * sums[1] / n;
    near(of.correlation, covariance / sqrt((sums[2] / n - pow(sums[0] / n, 2)) * (sums[3] / n - pow(sums[1] / n, 2))));
    near(of.change, 2 * sums[5] / (sums[0] + sums[1]));
    near(faults.wrong, bad[0] / n);
    near(faults.margin, bad[1] / n);
    near(faults.within, bad[2] / n);
    near(faults.faults, bad[3] / n);
    near(faults.contradicted, bad[4] / n);
}

static void test_windows(void **unused)
{
    const struct stream_model model = {.layers = LAYERS, .moe_layers = LAYERS, .experts = EXPERTS, .top_k = TOP_K};
    const struct analysis_setup setup = {.draft_length = WIDEST - 1};
    struct analysis *windows = NULL;
    struct err err = {0};
    int count;
    (void)unused;
    assert_int_equal(analysis_open(&windows, &reuse_analysis, &setup, &model, &err), 0);
    read_texts(windows);
    assert_int_equal(windows->counted, LONG + 3 + 20);
    for (int l = 0; l < LAYERS; l++)
        for (int w = 1; w <= WIDEST; w++)
            check_width(windows, l, w);
    for (int w = 1; w <= WIDEST; w += WIDEST - 1) {
        const uint8_t *map = windows_map(windows, 1, w, &count);
        assert_int_equal(count, length[begun] / w < EXPERTS ? length[begun] / w : EXPERTS);
        for (int i = 0; i < count; i++)
            for (int e = 0; e < EXPERTS; e++)
                assert_int_equal(map[e * EXPERTS + i], often(begun, i, w, 1, e));
    }
    analysis_free(&windows);
}

/* Computes a layer's record of reuse from means of windows: with one more token, and a drafter that costs a tenth. */
static int check_reuse(void *context, const struct record_kind *kind, const void *body, struct err *err)
{
    const struct analysis *windows = context;
    const struct coact_reuse *of = body;
    struct window_facts one, three, four;
    (void)kind;
    (void)err;
    windows_layer(windows, of->layer, 1, &one);
    windows_layer(windows, of->layer, 3, &three);
    windows_layer(windows, of->layer, 4, &four);
    double emitted = 1 + 0.5 + 0.25 + 0.125;
    assert_int_equal(of->points, 4);
    assert_int_equal(of->drafts[2], 3);
    near(of->emitted[2], emitted);
    near(of->ratio[2], three.distinct / one.distinct);
    near(of->gain[2], emitted / (three.distinct / one.distinct + 0.3));
    near(of->verified[2], four.distinct / one.distinct);
    near(of->gain_verified[2], emitted / (four.distinct / one.distinct + 0.3));
    return 0;
}

static void test_reuse(void **unused)
{
    const struct stream_model model = {.layers = LAYERS, .moe_layers = LAYERS, .experts = EXPERTS, .top_k = TOP_K};
    const struct analysis_setup setup = {.draft_length = WIDEST - 1, .acceptance = 0.5, .draft_cost = 0.1};
    struct analysis *windows = NULL;
    struct err err = {0};
    (void)unused;
    assert_int_equal(analysis_open(&windows, &reuse_analysis, &setup, &model, &err), 0);
    read_texts(windows);
    assert_int_equal(windows->class->put(windows, check_reuse, windows, &err), 0);
    analysis_free(&windows);
}

static void test_formulas(void **unused)
{
    const double even[] = {0.25, 0.5, 0.25}, growth[] = {1.5, 2, 0.5};
    double sum = 0;
    (void)unused;
    near(speculation_tokens(8, 0.8), 4.32891136);        /* 1 + .8 + .64 + ... + .16777216 */
    near(speculation_tokens(8, 1), 9);
    near(speculation_limit(0.8), 5);
    near(speculation_drafted(10, 0.5, 0.25, 4, 0), 6);  /* no token is accepted: 5 for the forward, 1 for drafts, per token */
    near(speculation_undrafted(10, 0.125), 1.25);
    near(speculation_entropy(even, 3), 1.5);
    near(speculation_binomial(9, 2, 0.25), 36 * 0.0625 * pow(0.75, 7));
    for (int k = 0; k <= 9; k++)
        sum += speculation_binomial(9, k, 0.3);
    near(sum, 1);
    near(speculation_snr(1, 0.2), 0.5);
    near(speculation_snr(9, 0.2), 1.5);                 /* three times as much for nine tokens */
    assert_true(!speculation_fault(5, 3, 2) && !speculation_fault(5, 2, 2) && speculation_fault(5, 1, 2));  /* section A.3 */
    near(speculation_margin(5, 2), 3);
    assert_true(speculation_fault(1, 2, 2) && fabs(2.0 - 1) <= speculation_margin(1, 2));       /* against eq. 22 */
    near(speculation_drift(3, 0.5, growth, 3), 2.25);
}

static int take_drift(void *context, const struct record_kind *kind, const void *body, struct err *err)
{
    struct coact_drift *layers = context;
    const struct coact_drift *of = body;
    (void)kind;
    (void)err;
    layers[of->layer] = *of;
    return 0;
}

/* Three tokens: the state of one layer is twice as far from the last one's as in the layer before; scores by logarithms. */
static void test_drift(void **unused)
{
    const struct stream_model model = {.layers = 3, .moe_layers = 3, .experts = 2, .top_k = 1, .hidden = 2};
    struct stream_model mixed = model;
    const float hidden[3][3][2] = {{{0, 0}, {0, 0}, {0, 0}}, {{3, 4}, {0, 10}, {5, 0}}, {{3, 4}, {0, 10}, {5, 0}}};
    const float e = 2.718281828459045f, probs[3][3][2] = {{{1, 1}, {1, 1}, {1, 1}}, {{1, e}, {1, e}, {e, 1}},
                                                          {{1, 1}, {1, 1}, {1, 1}}};
    const int16_t experts[3][3] = {{0}};
    const uint8_t accepted[3] = {1, 1, 0};
    struct route_tokens record = {.sequence = 4, .n = 3, .experts = &experts[0][0], .accepted = accepted,
                                  .hidden = &hidden[0][0][0], .probs = &probs[0][0][0]};
    const struct analysis_setup setup = {0};
    struct analysis *drift = NULL;
    struct coact_drift of[3];
    struct err err = {0};
    (void)unused;
    mixed.moe_layers = 2;
    assert_int_equal(analysis_open(&drift, &drift_analysis, &setup, &mixed, &err), -1);
    assert_int_equal(analysis_open(&drift, &drift_analysis, &setup, &model, &err), 0);
    assert_int_equal(drift->class->tokens(drift, &record, &err), 0);
    assert_int_equal(drift->counted, 1);
    assert_int_equal(drift->class->put(drift, take_drift, of, &err), 0);
    near(of[0].state, 5);
    assert_true(isnan(of[0].growth_max) && isnan(of[0].bound) && fabs(of[0].score_mean - sqrt(0.5)) < 1e-6);
    near(of[2].growth_max, 0.5);
    assert_true(fabs(of[2].norm_max - sqrt(0.5) / 10) < 1e-6);
    assert_true(fabs(of[2].bound - sqrt(0.5) / 10 * 5 * 2) < 1e-6);     /* distance 5 after the first layer, twice that next */
    record.hidden = NULL;
    assert_int_equal(drift->class->tokens(drift, &record, &err), -1);
    drift->class->end(drift, 4);
    analysis_free(&drift);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_windows), cmocka_unit_test(test_reuse),
                                       cmocka_unit_test(test_formulas), cmocka_unit_test(test_drift)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
