/* Policies when texts share forwards: a world of N texts with random experts per token, whose times follow from the union of
 * experts. Policies see outcomes only; brute force over fixed draft lengths finds the best of these. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/policy/shape.h"
#include "common/policy/shared.h"

enum { LAYERS = 2, EXPERTS = 64, TOP_K = 4, N_MAX = 16, K_MAX = 8, ITERATIONS = 300, WARM_UP = 150, LEVEL_US = 1000 };

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

struct world {
    int texts;
    double acceptance[2];                       /* of even and odd texts */
    double draft, steepness;                    /* draft: seconds of a drafted token, in forwards over one token */
    double row;                                 /* growth by a row */
    bool silent;                                /* the drafter states no probabilities */
};

/* Returns whether the token at this place of a text is drafted correctly, and its experts, which are always the same. */
static bool is_right(const struct world *w, int text, int place)
{
    return (double)(mix((uint64_t)text << 32 | (uint64_t)place) >> 11) * 0x1p-53 < w->acceptance[text % 2];
}

static void experts_of(int text, int place, int layer, int32_t out[TOP_K])
{
    uint64_t state = mix((uint64_t)(text + 1) << 40 | (uint64_t)(place + 1) << 8 | (uint64_t)layer);
    for (int i = 0; i < TOP_K; ) {
        bool known = false;
        state = mix(state + 1);
        out[i] = (int32_t)(state % EXPERTS);
        for (int j = 0; j < i; j++)
            known |= out[j] == out[i];
        i += !known;
    }
}

struct text { struct policy *policy; struct shape *shape; struct draft_tree tree; int place, made; };

/* Drafts a chain of the length that the policy chooses; without a policy `fixed` tokens. */
static void draft(struct text *t, double acceptance, bool silent, int fixed)
{
    struct draft_view view = {.tree = &t->tree, .room = 100};
    const float stated = silent ? NAN : (float)log(acceptance);
    draft_tree_clear(&t->tree);
    t->made = 0;
    for (; !t->policy && t->made < fixed; t->made++)
        draft_tree_add(&t->tree, t->tree.nodes - 1, 1, stated, 0);
    for (; t->policy; view.steps++) {
        struct step step = t->policy->class->next(t->policy, &view);
        view.added = 0;
        if (step.kind == STEP_STOP)
            return;
        if (step.kind == STEP_KEEP) {
            assert_int_equal(draft_tree_keep(&t->tree, step.keep, step.kept), 0);
            continue;
        }
        for (int k = 0; k < step.tokens; k++)
            draft_tree_add(&t->tree, t->tree.nodes - 1, 1, stated, 0);
        view.added = step.tokens;
        t->made += step.tokens;
    }
}

/* The texts whose rows use each expert, as bits. */
struct uses { uint32_t by[LAYERS][EXPERTS]; };

static int count(const struct uses *uses, uint32_t by, bool only)
{
    int pairs = 0;
    for (int layer = 0; layer < LAYERS; layer++)
        for (int e = 0; e < EXPERTS; e++)
            pairs += only ? uses->by[layer][e] == by : (uses->by[layer][e] & by) != 0;
    return pairs;
}

static void learn(const struct world *w, struct text *t, int number, const struct uses *uses, double seconds, int rows)
{
    int32_t expert[(K_MAX + 1) * LAYERS * TOP_K], token[K_MAX + 1];
    int kept = 0;
    const uint32_t own = 1u << number;
    while (kept < t->tree.nodes && is_right(w, number, t->place + kept))
        kept++;
    for (int k = 0; k <= kept; k++) {
        token[k] = k < kept || is_right(w, number, t->place + k) ? 1 : 2;
        for (int layer = 0; layer < LAYERS; layer++)
            experts_of(number, t->place + k, layer, expert + (k * LAYERS + layer) * TOP_K);
    }
    const double drafting = 1e-6 * LEVEL_US * w->draft * t->made, part = (1.0 + t->tree.nodes) / rows;
    const struct outcome outcome = {
        .drafted = t->tree.nodes, .accepted = kept, .emitted = kept + 1, .token = token, .expert = expert,
        .moe_layers = LAYERS, .top_k = TOP_K, .draft_s = drafting, .verify_s = seconds * part,
        .iteration_s = drafting + seconds * part, .experts_loaded = count(uses, own, false), .tree = &t->tree,
        .shared_texts = w->texts > 1 ? w->texts : 0, .shared_rows = w->texts > 1 ? rows : 0,
        .shared_s = w->texts > 1 ? seconds * (1 - part) : 0, .shared_experts = count(uses, ~0u, false),
        .shared_only = count(uses, own, true)};
    if (t->policy)
        t->policy->class->observe(t->policy, &outcome);
    t->place += kept + 1;
}

/* Returns the seconds of a forward over the drafts of all texts, from the union of their experts. */
static double forward(const struct world *w, const struct text *text, struct uses *uses, int *rows)
{
    *uses = (struct uses){0};
    *rows = 0;
    for (int i = 0; i < w->texts; i++) {
        *rows += 1 + text[i].tree.nodes;
        for (int k = 0; k <= text[i].tree.nodes; k++)
            for (int layer = 0; layer < LAYERS; layer++) {
                int32_t expert[TOP_K];
                experts_of(i, text[i].place + k, layer, expert);
                for (int slot = 0; slot < TOP_K; slot++)
                    uses->by[layer][expert[slot]] |= 1u << i;
            }
    }
    const double growth = (double)count(uses, ~0u, false) / (LAYERS * TOP_K) - 1 + w->row * (*rows - 1);
    return 1e-6 * LEVEL_US * (1 + w->steepness * growth);
}

/* A policy for each text, or fixed lengths for even and odd texts. The first `warm_up` iterations do not count. */
struct plan { const char *policy; bool together; int even, odd, warm_up, iterations; };

/* Returns the tokens per second of all texts. */
static double run(const struct world *w, const struct plan *plan)
{
    struct text text[N_MAX] = {{0}};
    double tokens = 0, seconds = 0;
    for (int i = 0; i < w->texts; i++) {
        assert_int_equal(shape_open(&text[i].shape, NULL, NULL), 0);
        const struct policy_setup setup = {.drafters = 1, .draft_length = DRAFT_LENGTH_NONE, .max_length = K_MAX,
                                           .shape = text[i].shape, .experts = EXPERTS, .top_k = TOP_K,
                                           .like = plan->together && i ? text[0].policy : NULL};
        if (plan->policy)
            assert_int_equal(policy_open(&text[i].policy, plan->policy, &setup, NULL), 0);
        assert_int_equal(draft_tree_init(&text[i].tree, text[i].shape->room, NULL), 0);
    }
    for (int at = 0; at < plan->iterations; at++) {
        struct uses uses;
        int rows, before = 0;
        double spent = 0;
        for (int i = 0; i < w->texts; i++) {
            draft(&text[i], w->acceptance[i % 2], w->silent, i % 2 ? plan->odd : plan->even);
            spent += 1e-6 * LEVEL_US * w->draft * text[i].made;
            before += text[i].place;
        }
        const double verified = forward(w, text, &uses, &rows);
        for (int i = 0; i < w->texts; i++)
            learn(w, &text[i], i, &uses, verified, rows);
        for (int i = 0; i < w->texts && at >= plan->warm_up; i++)
            tokens += text[i].place;
        tokens -= at >= plan->warm_up ? before : 0;
        seconds += at >= plan->warm_up ? spent + verified : 0;
    }
    for (int i = 0; i < w->texts; i++) {
        policy_close(&text[i].policy);
        draft_tree_free(&text[i].tree);
        shape_close(&text[i].shape);
    }
    return tokens / seconds;
}

static double throughput(const struct world *w, const char *policy, int even, int odd)
{
    const struct plan plan = {policy, true, even, odd, WARM_UP, ITERATIONS};
    return run(w, &plan);
}

/* The shares of the best throughput that each policy must reach: on average over all batches, and for two kinds of texts.
 * Cascade and dytc-verify keep trying lengths and drafters. */
static const struct { const char *name; double mean, two_kinds; } policies[] = {
    {"cascade-cost", 0.98, 0.98}, {"evict", 0.96, 0.97}, {"evict-experts", 0.96, 0.97}, {"bastion", 0.96, 0.97},
    {"dytc-verify", 0.96, 0.97}, {"cascade", 0.92, 0.87}};
enum { POLICIES = sizeof policies / sizeof *policies };

/* For similar texts each policy comes close to the speed of the best common length: no draft for few texts, long drafts for
 * many, and one of the two in between. */
static void batches_are_nearly_as_fast_as_with_the_best_length(void **state)
{
    static const double acceptances[] = {0.4, 0.6, 0.8, 0.95}, rows[] = {0.02, 0.3};
    double sum[POLICIES] = {0};
    int worlds = 0;
    (void)state;
    for (int at = 0; at < 8; at += unit_brief() ? 5 : 1)
        for (int texts = 2; texts <= N_MAX; texts *= unit_brief() ? 8 : 2, worlds++) {
            const double acceptance = acceptances[at % 4];
            const struct world w = {texts, {acceptance, acceptance}, 0.02, 0.8, rows[at / 4], false};
            double best = 0;
            for (int K = 0; K <= K_MAX; K += unit_brief() ? 4 : K < 4 ? 1 : 2)
                best = fmax(best, throughput(&w, NULL, K, K));
            for (int p = 0; p < POLICIES; p++) {
                const double share = throughput(&w, policies[p].name, 0, 0) / best;
                if (share < 0.83 && !unit_brief())
                    fail_msg("%s: %.3f of the best with %d texts, acceptance %g", policies[p].name, share, texts,
                             acceptance);
                sum[p] += share;
            }
        }
    for (int p = 0; p < POLICIES; p++)
        if (sum[p] / worlds < policies[p].mean && !unit_brief())
            fail_msg("%s: %.3f of the best in the mean", policies[p].name, sum[p] / worlds);
}

/* If half of the texts have correct drafts and the others do not, only the former draft. */
static void texts_of_a_batch_differ(void **state)
{
    const struct world w = {8, {0.95, 0.2}, 0.02, 0.8, 0.02, false};
    double best = 0;
    (void)state;
    for (int even = 0; even <= K_MAX; even += 2)
        for (int odd = 0; odd <= K_MAX; odd += 4)
            best = fmax(best, throughput(&w, NULL, even, odd));
    for (int p = 0; p < POLICIES; p++) {
        const double share = throughput(&w, policies[p].name, 0, 0) / best;
        if (share < policies[p].two_kinds)
            fail_msg("%s: %.3f of the best", policies[p].name, share);
    }
}

/* With policies that share what they learn, the first iterations of concurrent texts are faster than with policies that learn
 * alone, and not much slower than with the best length. */
static void texts_learn_together(void **state)
{
    enum { FIRST = 30 };
    static const struct { const char *name; double together, more; } sharing[] = {
        {"cascade-cost", 0.965, 0.005}, {"evict", 0.98, 0.005}, {"dytc-verify", 0.96, 0.005}};
    enum { SHARING = sizeof sharing / sizeof *sharing };
    double together[SHARING] = {0}, apart[SHARING] = {0};
    int worlds = 0;
    (void)state;
    for (int texts = 4; texts <= N_MAX; texts *= 2)
        for (double acceptance = 0.4; acceptance < 0.9; acceptance += 0.2, worlds++) {
            const struct world w = {texts, {acceptance, acceptance}, 0.001, 0.8, 0.2, true};
            double best = 0;
            for (int K = 0; K <= K_MAX; K += K < 2 ? 1 : 2)
                best = fmax(best, run(&w, &(struct plan){NULL, false, K, K, 0, FIRST}));
            for (int p = 0; p < SHARING; p++) {
                together[p] += log(run(&w, &(struct plan){sharing[p].name, true, 0, 0, 0, FIRST}) / best);
                apart[p] += log(run(&w, &(struct plan){sharing[p].name, false, 0, 0, 0, FIRST}) / best);
            }
        }
    for (int p = 0; p < SHARING; p++) {
        together[p] = exp(together[p] / worlds);
        apart[p] = exp(apart[p] / worlds);
        if (together[p] < sharing[p].together || together[p] < apart[p] + sharing[p].more)
            fail_msg("%s: %.3f of the best, and %.3f with policies that learn alone", sharing[p].name, together[p], apart[p]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_nearly_as_fast_as_with_the_best_length),
        cmocka_unit_test(texts_of_a_batch_differ),
        cmocka_unit_test(texts_learn_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
