/* The balancer is compared with a plain search over tau and with the paper's own example. */
#include <math.h>

#include "common/cache/balance.h"
#include "tests/unit/distribution.h"
#include "tests/unit/unit.h"

/* Appendix C.1: two tokens request {0, 3} and {2, 3}, only 3 is fetched: r_c = 1 - 2/4, r_g = 1/3. */
static void shares_are_those_of_the_papers_example(void **state)
{
    (void)state;
    struct balance_shares shares = {0};
    int32_t level[4] = {0, 0, 0, 2}, fetches[3] = {0};
    balance_learn(&shares, 2, (int32_t[]){0, 2, 3}, (int32_t[]){1, 1, 2}, 3, level, sizeof *level);
    struct balance b = {.K = 2, .draft_length = 2, .top_k = 2, .distinct = 3, .cpu_unit = 10, .gpu_unit = 1, .layers = 1,
                        .shares = &shares, .fetches = fetches};
    for (int tau = 1; tau <= 2; tau++) {
        assert_true(fabs(balance_cpu(&b, tau) - 0.5 * 4 * 10) < 1e-12);
        assert_true(fabs(balance_gpu(&b, tau) - 1.0 / 3 * 3 * 1) < 1e-12);
    }
}

static double difference(const struct balance *b, int tau) { return fabs(balance_cpu(b, tau) - balance_gpu(b, tau)); }

/* Returns tau by the formula as printed, eq. 39: the best of the two ends of the feasible range and of the two tau between
 * which cpu and gpu cross. The result equals balance_tau if cpu rises and gpu falls with tau and the feasible tau are
 * contiguous, as the paper assumes. */
static int tau_printed(const struct balance *b)
{
    int min = 0, max = 0, cross = 1, best = 0;
    for (int tau = 1; tau <= b->K; tau++)
        if (balance_feasible(b, tau)) {
            min = min ? min : tau;
            max = tau;
        }
    while (cross < b->K && balance_cpu(b, cross) < balance_gpu(b, cross))
        cross++;
    const int candidate[4] = {min, max, cross > 1 ? cross - 1 : 1, cross};
    for (int i = 0; i < 4 && min; i++) {
        int tau = candidate[i];
        if (balance_feasible(b, tau) && (!best || difference(b, tau) < difference(b, best) ||
                                         (difference(b, tau) == difference(b, best) && tau < best)))
            best = tau;
    }
    return best ? best : b->K;
}

/* Generates a random layer and computes its shares by summing over experts for each tau. */
struct layer {
    struct balance_shares shares;
    struct balance balance;
    double cpu[9], gpu[9];
    int32_t fetches[9];
};

static void make_layer(struct layer *l, struct random *random, bool monotone)
{
    int K = 1 + random_word(random) % 8, experts = 24, steps = 1 + random_word(random) % 4;
    double cold[9] = {0}, hot[9] = {0}, pairs = 0, distinct = 0;
    memset(l, 0, sizeof *l);
    for (int step = 0; step < steps; step++) {
        int32_t expert[24], tokens[24], level[24][3];
        int count = 0;
        for (int e = 0; e < experts; e++) {
            level[e][1] = random_word(random) % (K + 1);
            if (random_word(random) % 3)
                continue;
            expert[count] = e;
            tokens[count++] = 1 + random_word(random) % 9;
        }
        balance_learn(&l->shares, K, expert, tokens, count, &level[0][1], sizeof level[0]);
        for (int i = 0; i < count; i++) {
            pairs += tokens[i];
            distinct++;
            for (int tau = 1; tau <= K; tau++)
                *(level[expert[i]][1] < tau ? &cold[tau] : &hot[tau]) += level[expert[i]][1] < tau ? tokens[i] : 1;
        }
    }
    l->balance = (struct balance){
        .K = K, .draft_length = 8, .top_k = 4, .distinct = 1 + random_word(random) % 20, .cpu_unit = random_uniform(random),
        .gpu_unit = random_uniform(random), .io_unit = 3 * random_uniform(random), .draft_unit = 10 * random_uniform(random),
        .layers = 12, .expert_bytes = 3, .bytes_left = random_word(random) % 70, .shares = &l->shares, .fetches = l->fetches};
    for (int tau = K; tau >= 1; tau--) {
        l->cpu[tau] = (pairs ? cold[tau] / pairs : 1) * 8 * 4 * l->balance.cpu_unit;
        l->gpu[tau] = (pairs ? hot[tau] / distinct : 0) * l->balance.distinct * l->balance.gpu_unit;
        l->fetches[tau] = (int)(random_word(random) % (monotone ? 6 : 20)) + (monotone && tau < K ? l->fetches[tau + 1] : 0);
    }
    if (monotone)                                   /* feasible thresholds form one interval */
        l->balance.draft_unit = 1e6;
}

static int searched(const struct layer *l)
{
    const struct balance *b = &l->balance;
    int best = -1;
    for (int tau = 1; tau <= b->K; tau++) {
        double total = l->cpu[tau] > l->gpu[tau] ? l->cpu[tau] : l->gpu[tau];
        if (b->io_unit * l->fetches[tau] > total + 8 * b->draft_unit / 12 || 3.0 * l->fetches[tau] > b->bytes_left)
            continue;
        if (best < 0 || fabs(l->cpu[tau] - l->gpu[tau]) < fabs(l->cpu[best] - l->gpu[best]))
            best = tau;
    }
    return best < 0 ? b->K : best;
}

static void tau_is_the_best_of_all(void **state)
{
    (void)state;
    int chosen[9] = {0}, infeasible = 0, printed_misses = 0;
    for (uint64_t seed = 0; seed < 5000; seed++) {
        struct random random = {seed};
        struct layer l;
        make_layer(&l, &random, false);
        int tau = balance_tau(&l.balance);
        assert_int_equal(tau, searched(&l));
        chosen[tau]++;
        infeasible += !balance_feasible(&l.balance, tau);
        if (!balance_feasible(&l.balance, tau))
            assert_int_equal(tau, l.balance.K);
        printed_misses += tau_printed(&l.balance) != tau;
    }
    assert_true(chosen[1] && chosen[3] && chosen[8] && infeasible);
    assert_true(printed_misses > 0);                /* feasible thresholds need not form one interval */
}

static void the_printed_solution_is_that_where_its_assumptions_hold(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 5000; seed++) {
        struct random random = {seed};
        struct layer l;
        make_layer(&l, &random, true);
        int tau = balance_tau(&l.balance);
        assert_int_equal(tau, searched(&l));
        int printed = tau_printed(&l.balance);      /* a tie may give another threshold */
        assert_true(fabs(l.cpu[printed] - l.gpu[printed]) == fabs(l.cpu[tau] - l.gpu[tau]));
        assert_int_equal(balance_feasible(&l.balance, printed), balance_feasible(&l.balance, tau));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_those_of_the_papers_example),
        cmocka_unit_test(tau_is_the_best_of_all),
        cmocka_unit_test(the_printed_solution_is_that_where_its_assumptions_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
