/* Forecasts of experts compared with counts over the whole history, made anew for each question, and their scores compared
 * with sets. */
#include <limits.h>
#include <math.h>

#include "common/predict/forecast.h"
#include "tests/unit/distribution.h"
#include "tests/unit/unit.h"

enum { LAYERS = 3, EXPERTS = 12, CHOSEN = 2, VOCAB = 7, FORWARDS = 60, WIDTH = 4, SLOTS = LAYERS * CHOSEN };

struct history {
    int32_t token[FORWARDS][WIDTH];
    uint8_t kept[FORWARDS][WIDTH];
    int16_t expert[FORWARDS][WIDTH][LAYERS][CHOSEN];
    int text[FORWARDS];
};

static void make(struct history *h, uint64_t seed)
{
    struct random random = {seed};
    for (int f = 0; f < FORWARDS; f++) {
        int kept = 1 + (int)(random_word(&random) % WIDTH);
        h->text[f] = f / 20;
        for (int t = 0; t < WIDTH; t++) {
            h->token[f][t] = (int32_t)(random_word(&random) % VOCAB);
            h->kept[f][t] = t < kept;
            for (int i = 0; i < SLOTS; i++) {
                int16_t *expert = &h->expert[f][t][0][0];
                do {                                /* experts mostly depend on the token */
                    int own = random_word(&random) % 3 ? h->token[f][t] + i : (int)(random_word(&random) % 64);
                    expert[i] = (int16_t)(own % EXPERTS);
                } while (i % CHOSEN && expert[i] == expert[i - 1]);
            }
        }
    }
}

/* Computes what a source must predict for the next forward, from all previous ones. */
static void expected(const char *name, const struct history *h, int now, int layer, float *score)
{
    memset(score, 0, EXPERTS * sizeof *score);
    for (int of = 0; of < (strcmp(name, "table") ? 1 : WIDTH); of++) {
        float count[EXPERTS] = {0}, all = 0;
        for (int f = 0; f < now; f++)
            for (int t = 0; t < WIDTH; t++) {
                bool last = f == now - 1 && h->text[f] == h->text[now] && (t == WIDTH - 1 || !h->kept[f][t + 1]);
                if (!h->kept[f][t] || (!strcmp(name, "last") && !last) ||
                    (!strcmp(name, "table") && h->token[f][t] != h->token[now][of]))
                    continue;
                for (int k = 0; k < CHOSEN; k++, all++)
                    count[h->expert[f][t][layer][k]]++;
            }
        for (int e = 0; e < EXPERTS && all > 0; e++)
            score[e] += strcmp(name, "table") ? count[e] : count[e] / all;
    }
}

/* Computes shares of the experts that followed each expert of the last token, over all pairs of neighbouring kept tokens of
 * a text. */
static void expected_pairs(const struct history *h, int now, int layer, float *score)
{
    int last = -1, token[FORWARDS * WIDTH], tokens = 0;
    memset(score, 0, EXPERTS * sizeof *score);
    for (int f = 0; f < now; f++)
        for (int t = 0; t < WIDTH; t++)
            if (h->kept[f][t])
                token[tokens++] = f * WIDTH + t;
    last = tokens && h->text[token[tokens - 1] / WIDTH] == h->text[now] ? token[tokens - 1] : -1;
    for (int k = 0; last >= 0 && k < CHOSEN; k++) {
        const int16_t of = h->expert[last / WIDTH][last % WIDTH][layer][k];
        float count[EXPERTS] = {0}, times = 0;
        for (int i = 1; i < tokens; i++) {
            const int a = token[i - 1], b = token[i];
            bool had = false;
            for (int j = 0; j < CHOSEN; j++)
                had |= h->expert[a / WIDTH][a % WIDTH][layer][j] == of;
            if (!had || h->text[a / WIDTH] != h->text[b / WIDTH])
                continue;
            times++;
            for (int j = 0; j < CHOSEN; j++)
                count[h->expert[b / WIDTH][b % WIDTH][layer][j]]++;
        }
        for (int e = 0; e < EXPERTS && times > 0; e++)
            score[e] += count[e] / times;
    }
}

static struct forecast *open_source(const char *name)
{
    const struct forecast_setup setup = {LAYERS, EXPERTS, CHOSEN, VOCAB, WIDTH - 1};
    struct forecast *forecast = NULL;
    struct err err = {0};
    if (forecast_open(&forecast, name, &setup, &err))
        fail_msg("%s", err.text);
    return forecast;
}

static void sources_say_what_whole_histories_say(void **state)
{
    (void)state;
    static const char *const names[] = {"popular", "last", "table", "pairs"};
    static struct history h;
    make(&h, 5);
    for (int n = 0; n < 4; n++) {
        struct forecast *forecast = open_source(names[n]);
        for (int f = 0; f < FORWARDS; f++) {
            const struct forecast_facts facts = {.token = h.token[f], .tokens = WIDTH};
            if (forecast->class->begin && (!f || h.text[f] != h.text[f - 1]))
                forecast->class->begin(forecast);
            for (int layer = 0; layer < LAYERS; layer++) {
                float score[EXPERTS], wanted[EXPERTS];
                forecast->class->expect(forecast, layer, &facts, score);
                if (strcmp(names[n], "pairs"))
                    expected(names[n], &h, f, layer, wanted);
                else
                    expected_pairs(&h, f, layer, wanted);
                for (int e = 0; e < EXPERTS; e++)
                    assert_true(fabsf(score[e] - wanted[e]) < 1e-5f);
            }
            const struct forecast_outcome outcome = {h.token[f], h.kept[f], &h.expert[f][0][0][0], WIDTH};
            forecast->class->learn(forecast, &outcome);
        }
        forecast_close(&forecast);
    }
}

/* An expert that all tokens begin to request has a level from then on; the rule has a test of its own. */
static void utility_and_what_is_given_are_counts(void **state)
{
    (void)state;
    int16_t wanted[WIDTH][LAYERS][CHOSEN], ahead[WIDTH][CHOSEN] = {{3, 4}, {3, -1}, {5, 3}, {-1, -1}};
    struct forecast *forecast = open_source("utility");
    float score[EXPERTS];
    for (int t = 0; t < WIDTH; t++)
        for (int layer = 0; layer < LAYERS; layer++)
            for (int k = 0; k < CHOSEN; k++)
                wanted[t][layer][k] = (int16_t)(k ? 7 : layer);
    forecast->class->learn(forecast, &(struct forecast_outcome){(int32_t[WIDTH]){0}, NULL, &wanted[0][0][0], WIDTH});
    forecast->class->expect(forecast, 2, &(struct forecast_facts){0}, score);
    for (int e = 0; e < EXPERTS; e++)
        assert_true(score[e] == (e == 2 || e == 7));
    forecast_close(&forecast);
    forecast = open_source("draft");
    forecast->class->expect(forecast, 1, &(struct forecast_facts){.tokens = WIDTH, .drafted = &wanted[0][0][0]}, score);
    for (int e = 0; e < EXPERTS; e++)
        assert_true(score[e] == (e == 1 || e == 7 ? WIDTH : 0));
    forecast_close(&forecast);
    forecast = open_source("next-layer");
    forecast->class->expect(forecast, 1, &(struct forecast_facts){.tokens = WIDTH, .ahead = &ahead[0][0]}, score);
    for (int e = 0; e < EXPERTS; e++)
        assert_true(score[e] == (e == 3 ? 3 : e == 4 || e == 5 ? 1 : 0));
    forecast_close(&forecast);
}

static void names_are_the_best_and_scores_count_sets(void **state)
{
    (void)state;
    struct random random = {11};
    for (int round = 0; round < 500; round++) {
        float score[EXPERTS];
        int32_t named[EXPERTS], wanted[EXPERTS];
        int max = (int)(random_word(&random) % (EXPERTS + 1)), wants = 0, right = 0;
        bool is_named[EXPERTS] = {0};
        for (int e = 0; e < EXPERTS; e++) {
            score[e] = (float)(random_word(&random) % 5);
            if (random_word(&random) % 2)
                wanted[wants++] = e;
        }
        int count = forecast_name(named, score, EXPERTS, max), at = 0;
        for (; at < max; at++) {                   /* the best of the rest, repeatedly */
            int best = -1;
            for (int e = 0; e < EXPERTS; e++)
                if (!is_named[e] && score[e] > 0 && (best < 0 || score[e] > score[best]))
                    best = e;
            if (best < 0)
                break;
            is_named[best] = true;
            assert_true(at < count);
            assert_int_equal(named[at], best);
        }
        assert_int_equal(count, at);
        struct forecast_score sum = {.wanted = 3, .named = 2, .right = 1};
        forecast_score_add(&sum, named, count, wanted, wants);
        for (int i = 0; i < wants; i++)
            right += is_named[wanted[i]];
        assert_true(fabs(forecast_recall(&sum) - (1.0 + right) / (3 + wants)) < 1e-12);
        assert_true(forecast_wasted_bytes(&sum, 10) == 10.0 * (2 + count - 1 - right));
    }
    assert_true(isnan(forecast_recall(&(struct forecast_score){0})));
    struct forecast *forecast = NULL;
    struct err err = {0};
    assert_int_equal(forecast_open(&forecast, "stars", &(struct forecast_setup){1, 2, 1, 1, 1}, &err), -1);
}

static void more_counts_than_memory_has_are_an_error(void **state)
{
    (void)state;
    const struct forecast_setup huge = {INT_MAX, INT_MAX, 1, 1, 1};
    for (int i = 0; forecast_classes[i]; i++) {
        struct forecast *forecast = NULL;
        struct err err = {0};
        assert_int_equal(forecast_open(&forecast, forecast_classes[i]->name, &huge, &err), -1);
        assert_int_equal(err.code, ERR_MEMORY);
        assert_null(forecast);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_say_what_whole_histories_say),
        cmocka_unit_test(utility_and_what_is_given_are_counts),
        cmocka_unit_test(names_are_the_best_and_scores_count_sets),
        cmocka_unit_test(more_counts_than_memory_has_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
