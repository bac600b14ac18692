/* Filters compared with a plain implementation, draws with the exact distribution, and choices with their promises. */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdbool.h>

#include "common/sample/sampler.h"
#include "kernels/plain/sample.h"

enum { VOCAB_MAX = 257 };

static int below(int n) { return (int)((unsigned)rand() % (unsigned)n); }

/* Few distinct values, so that ties are common; some tokens are masked. */
static void random_logits(float *logit, int vocab)
{
    bool coarse = below(2);
    for (int i = 0; i < vocab; i++)
        logit[i] = below(11) == 0 ? -INFINITY : coarse ? 0.5f * (float)below(12) - 3 : 0.001f * (float)below(4000) - 3;
    logit[below(vocab)] = 1.5f;
}

/* The filters by their definitions: sort all; keep top_k; of these the shortest prefix of mass >= top_p; of these p >= min_p
 * * best. */
static int naive_keep(const float *logit, int vocab, const struct sample_filter *filter, bool *keep, double *probability)
{
    int order[VOCAB_MAX], count = 0;
    double total = 0, mass = 0, sum = 0;
    for (int i = 0; i < vocab; i++) {
        keep[i] = false;
        probability[i] = 0;
        int at = count;
        if (logit[i] == -INFINITY)
            continue;
        for (; at > 0 && logit[order[at - 1]] < logit[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
        count++;
    }
    if (filter->top_k && filter->top_k < count)
        count = filter->top_k;
    for (int at = 0; at < count; at++)
        total += exp(logit[order[at]] / filter->temperature);
    for (int at = 0; at < count; at++) {
        double p = exp(logit[order[at]] / filter->temperature) / total;
        if (at && filter->top_p < 1 && mass >= filter->top_p)
            count = at;
        else
            mass += p;
    }
    double best = exp(logit[order[0]] / filter->temperature);
    int kept = 0;
    for (int at = 0; at < count; at++) {
        double p = exp(logit[order[at]] / filter->temperature);
        if (p >= filter->min_p * best) {
            keep[order[at]] = true;
            probability[order[at]] = p;
            sum += p;
            kept++;
        }
    }
    for (int i = 0; i < vocab; i++)
        probability[i] /= sum;
    return kept;
}

static void filters_keep_what_their_words_say(void **state)
{
    (void)state;
    srand(11);
    for (int round = 0; round < 6000; round++) {
        float logit[VOCAB_MAX];
        int32_t kept[VOCAB_MAX];
        bool keep[VOCAB_MAX];
        double probability[VOCAB_MAX];
        int vocab = 1 + below(VOCAB_MAX);
        struct sample_filter filter = {.temperature = 0.1 + 0.01 * below(200), .top_p = 1};
        if (below(2))
            filter.top_k = 1 + below(vocab + 3);
        if (below(2))
            filter.top_p = below(8) ? 0.013 + 0.0001 * below(9870) : 0;
        if (below(3) == 0)
            filter.min_p = below(8) ? 0.0003 + 0.001 * below(999) : 1;
        random_logits(logit, vocab);
        int expected = naive_keep(logit, vocab, &filter, keep, probability);
        int count = sample_keep(logit, vocab, sample_best(logit, vocab), &filter, kept);
        assert_int_equal(count, expected);
        for (int at = 0; at < count; at++) {
            assert_in_range(kept[at], 0, vocab - 1);
            assert_true(keep[kept[at]]);
            keep[kept[at]] = false;
        }
    }
}

static void top_p_keeps_no_more_than_it_needs(void **state)
{
    static const float logit[4] = {1, 1, 1, 1};
    const struct sample_filter filter = {.temperature = 1, .top_p = 0.5};
    int32_t kept[4];
    (void)state;
    assert_int_equal(sample_keep(logit, 4, 0, &filter, kept), 2);
    assert_int_equal(kept[0] + kept[1], 1);
}

static void the_best_token_is_the_lowest_of_equals(void **state)
{
    float logit[5] = {NAN, 1, 2, 2, -INFINITY};
    (void)state;
    assert_int_equal(sample_best(logit, 5), 2);
    assert_int_equal(sample_best(logit, 2), 1);
    assert_int_equal(sample_best(logit, 1), -1);
    logit[4] = INFINITY;
    assert_int_equal(sample_best(logit, 5), -1);
    logit[1] = logit[2] = logit[3] = logit[4] = -INFINITY;
    assert_int_equal(sample_best(logit, 5), -1);
}

/* Returns Pearson's statistic of `draws` draws at `temperature`, against the distribution of the filter. */
static double chi_square(const float *logit, int vocab, const struct sample_filter *filter, double temperature, int draws,
                         int *freedom)
{
    int32_t kept[VOCAB_MAX];
    int seen[VOCAB_MAX] = {0};
    bool keep[VOCAB_MAX];
    double probability[VOCAB_MAX], sum = 0;
    int count = sample_keep(logit, vocab, sample_best(logit, vocab), filter, kept);
    *freedom = naive_keep(logit, vocab, filter, keep, probability) - 1;
    assert_int_equal(count, *freedom + 1);
    for (int i = 0; i < draws; i++) {
        struct sample_draw draw = {.key = 0x1234567890abcdefu, .position = (uint32_t)i, .sample = 3};
        seen[sample_gumbel(logit, kept, count, temperature, &draw)]++;
    }
    for (int i = 0; i < vocab; i++) {
        double expected = draws * probability[i];
        if (!keep[i])
            assert_int_equal(seen[i], 0);
        else
            sum += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    return sum;
}

static void draws_follow_the_filtered_distribution(void **state)
{
    static const struct sample_filter filters[] = {
        {1, 1, 0, 0}, {0.7, 1, 0, 0}, {1, 1, 0, 7}, {1.3, 0.9, 0, 0}, {1, 1, 0.2, 0}, {0.9, 0.95, 0.05, 12}, {3, 1, 0, 0},
    };
    float logit[16];
    (void)state;
    srand(5);
    for (int i = 0; i < 16; i++)
        logit[i] = 0.02f * (float)below(160);
    logit[6] = -INFINITY;
    for (size_t f = 0; f < sizeof filters / sizeof *filters; f++) {
        int freedom, draws = 60000;
        double right = chi_square(logit, 16, &filters[f], filters[f].temperature, draws, &freedom);
        /* mean n, deviation sqrt(2n): five deviations are not chance, and a temperature 5 % off exceeds them */
        double limit = freedom + 5 * sqrt(2.0 * freedom);
        assert_true(freedom > 0);
        assert_true(right < limit);
        assert_true(chi_square(logit, 16, &filters[f], 1.15 * filters[f].temperature, draws, &freedom) > limit);
    }
}

/* At temperatures as low as doubles allow, the best tokens remain, and ties have equal probabilities. */
static void equal_logits_are_drawn_alike_at_every_temperature(void **state)
{
    const float logit[] = {-3e38f, 8, 7.5f, 8};
    const int32_t kept[] = {3, 2, 1, 0};
    (void)state;
    for (double temperature = 1e-3; temperature > 0; temperature *= 1e-16) {
        int seen[4] = {0};
        for (uint32_t i = 0; i < 1000; i++)
            seen[sample_gumbel(logit, kept, 4, temperature, &(struct sample_draw){.key = 5, .position = i})]++;
        assert_int_equal(seen[1] + seen[3], 1000);
        assert_in_range(seen[1], 400, 600);
    }
}

/* Skipping tokens far below the best never changes a draw. */
static void draws_equal_the_definition(void **state)
{
    (void)state;
    srand(3);
    for (int round = 0; round < 4000; round++) {
        float logit[VOCAB_MAX];
        int32_t kept[VOCAB_MAX], winner = -1;
        int vocab = 2 + below(VOCAB_MAX - 1);
        double max = 0, temperature = 0.2 + 0.01 * below(100);
        struct sample_draw draw = {(uint64_t)rand() << 32 | (uint64_t)rand(), (uint32_t)round, 1, 2};
        random_logits(logit, vocab);
        for (int i = 0; i < vocab; i++) {
            struct philox counter = {{(uint32_t)i / 2, draw.position, draw.ordinal, draw.sample}};
            struct philox b = philox(counter, draw.key);
            double g = -log(-log(i % 2 ? philox_uniform(b.word[2], b.word[3]) : philox_uniform(b.word[0], b.word[1])));
            kept[i] = vocab - 1 - i;
            if (winner < 0 || logit[i] / temperature + g > max) {
                max = logit[i] / temperature + g;
                winner = i;
            }
        }
        assert_int_equal(sample_gumbel(logit, kept, vocab, temperature, &draw), winner);
    }
}

static struct sampler *open_sampler(double temperature, uint64_t seed, int vocab)
{
    const struct sample_filter filter = {.temperature = temperature, .top_p = 1};
    struct sampler *sampler = NULL;
    assert_int_equal(sampler_open(&sampler, &filter, seed, vocab, NULL), 0);
    return sampler;
}

static void draw_text(struct sampler *sampler, const int32_t *prompt, int count, int sample, int32_t *out)
{
    static const float logits[64];
    struct err err = {0};
    int repeats = 0;
    assert_int_equal(sampler_begin(sampler, prompt, count, sample, &err), 0);
    for (int position = 0; position < 32; position++) {
        out[position] = sampler_choose(sampler, logits, position, &err);
        repeats += position && out[position] == out[position - 1];
    }
    assert_true(repeats < 8);           /* each position draws anew */
}

static void a_text_depends_on_seed_prompt_and_repetition_alone(void **state)
{
    static const int32_t a[] = {1, 2, 3}, b[] = {3, 2, 1};
    int32_t first[5][32], other[32];
    struct sampler *sampler = open_sampler(1, 9, 64);
    (void)state;
    draw_text(sampler, a, 3, 0, first[0]);
    draw_text(sampler, a, 3, 0, first[1]);          /* the same prompt again: another text */
    draw_text(sampler, b, 3, 0, first[2]);
    draw_text(sampler, a, 2, 0, first[3]);
    draw_text(sampler, b, 3, 7, first[4]);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(first[i], first[j], sizeof first[i]);
    sampler_close(&sampler);

    sampler = open_sampler(1, 9, 64);               /* the order of different prompts does not matter */
    int32_t prompt[1];
    for (prompt[0] = 0; prompt[0] < 300; prompt[0]++)
        draw_text(sampler, prompt, 1, 0, other);
    draw_text(sampler, b, 3, 0, other);
    assert_memory_equal(other, first[2], sizeof other);
    draw_text(sampler, a, 3, 0, other);
    assert_memory_equal(other, first[0], sizeof other);
    draw_text(sampler, a, 3, 0, other);
    assert_memory_equal(other, first[1], sizeof other);
    sampler_forget(sampler);
    draw_text(sampler, a, 3, 0, other);
    assert_memory_equal(other, first[0], sizeof other);
    sampler_close(&sampler);

    sampler = open_sampler(1, 10, 64);
    draw_text(sampler, a, 3, 0, other);
    assert_memory_not_equal(other, first[0], sizeof other);
    sampler_close(&sampler);
}

static void logits_that_are_no_numbers_are_an_error(void **state)
{
    float logits[4] = {NAN, NAN, NAN, NAN};
    struct sampler *sampler = open_sampler(0, 0, 4);
    struct err err = {0};
    (void)state;
    assert_int_equal(sampler_begin(sampler, NULL, 0, 0, &err), 0);
    assert_int_equal(sampler_choose(sampler, logits, 17, &err), -1);
    assert_non_null(strstr(err.text, "position 17"));
    logits[2] = 0;
    assert_int_equal(sampler_choose(sampler, logits, 17, NULL), 2);
    sampler_close(&sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters_keep_what_their_words_say),
        cmocka_unit_test(top_p_keeps_no_more_than_it_needs),
        cmocka_unit_test(the_best_token_is_the_lowest_of_equals),
        cmocka_unit_test(draws_follow_the_filtered_distribution),
        cmocka_unit_test(draws_equal_the_definition),
        cmocka_unit_test(equal_logits_are_drawn_alike_at_every_temperature),
        cmocka_unit_test(a_text_depends_on_seed_prompt_and_repetition_alone),
        cmocka_unit_test(logits_that_are_no_numbers_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
