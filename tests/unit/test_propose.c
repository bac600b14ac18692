/* Tokens that a drafter proposes from its logits, compared with sorting all tokens by the definition
 * (kernels/plain/propose.h). */
#include "tests/unit/unit.h"

#include <math.h>

#include "kernels/plain/propose.h"

enum { VOCAB = 70, ROUNDS = 6000 };

static int below(int n) { return (int)((unsigned)rand() % (unsigned)n); }

/* Sorts tokens by value, best first, ties to the lower id; -INFINITY: removed by the filter. Returns the number that remain. */
static int sorted_by_definition(const float *logit, int vocab, const struct sample_filter *filter,
                                const struct sample_draw *draw, int32_t *order, double *log_probability)
{
    double p[VOCAB], value[VOCAB], total = 0, largest = -INFINITY;
    int32_t scratch[VOCAB];
    bool warm = filter->temperature > 0;
    int count = 0;
    if (!sample_probabilities(logit, vocab, filter, scratch, p))
        return 0;
    for (int id = 0; id < vocab; id++)
        largest = (double)logit[id] > largest ? (double)logit[id] : largest;
    for (int id = 0; id < vocab; id++) {
        struct philox counter = {{(uint32_t)id / 2, draw ? draw->position : 0, draw ? draw->ordinal : 0,
                                  draw ? draw->sample : 0}};
        struct philox block = philox(counter, draw ? draw->key : 0);
        double u = id % 2 ? philox_uniform(block.word[2], block.word[3]) : philox_uniform(block.word[0], block.word[1]);
        if (warm ? p[id] <= 0 : !(logit[id] > -INFINITY))
            continue;
        value[id] = ((double)logit[id] - largest) / (warm ? filter->temperature : 1) - (draw && warm ? log(-log(u)) : 0);
        int index = count++;
        for (; index > 0 && value[id] > value[order[index - 1]]; index--)
            order[index] = order[index - 1];
        order[index] = id;
    }
    for (int at = count; at-- > 0;)
        total += exp(value[order[at]] - value[order[0]]);
    for (int at = 0; at < count; at++)
        log_probability[at] = value[order[at]] - value[order[0]] - log(total);
    return count;
}

static void proposals_are_the_first_of_all_sorted(void **state)
{
    int ties = 0, few = 0;
    (void)state;
    srand(21);
    for (int round = 0; round < ROUNDS; round++) {
        const struct sample_filter filter = {round % 4 * 0.45, round % 3 ? 1 : 0.8, round % 5 ? 0 : 0.05, round % 7 ? 0 : 3};
        const struct sample_draw draw = {(uint64_t)rand() << 32 | (uint64_t)rand(), (uint32_t)round, 5, 6};
        const struct sample_draw *noise = round / 4 % 2 ? &draw : NULL;
        int vocab = 1 + below(VOCAB), max = 1 + below(12);
        float logit[VOCAB], log_probability[12];
        int32_t kept[VOCAB], token[12], order[VOCAB];
        double value[VOCAB], expected[VOCAB];
        for (int id = 0; id < vocab; id++)
            logit[id] = below(12) ? 0.75f * (float)below(round % 3 ? 6 : 60) : -INFINITY;
        logit[below(vocab)] = round % 3 ? 1 : 17.25f;
        int count = sorted_by_definition(logit, vocab, &filter, noise, order, expected), want = count < max ? count : max;
        for (int told = 0; told < 2; told++) {
            assert_int_equal(propose_tokens(logit, vocab, &filter, noise, max, kept, value, token,
                                            told ? log_probability : NULL), want);
            assert_memory_equal(token, order, (size_t)want * sizeof *token);
        }
        for (int at = 0; at < want; at++)
            assert_true(fabs((double)log_probability[at] - expected[at]) < 1e-6 * (1 - expected[at]));
        few += count < max;
        for (int at = 1; at < want; at++)
            ties += expected[at] == expected[at - 1];
    }
    assert_true(ties > 1000 && few > 300);
}

static void logits_that_are_no_numbers_give_no_proposal(void **state)
{
    const struct sample_filter filter = {1, 1, 0, 0};
    const float none[3] = {NAN, -INFINITY, NAN}, infinite[3] = {1, INFINITY, 2};
    int32_t kept[3], token[3];
    double value[3];
    (void)state;
    assert_int_equal(propose_tokens(none, 3, &filter, NULL, 2, kept, value, token, NULL), 0);
    assert_int_equal(propose_tokens(infinite, 3, &filter, NULL, 2, kept, value, token, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposals_are_the_first_of_all_sorted),
        cmocka_unit_test(logits_that_are_no_numbers_give_no_proposal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
