/* Cascade is compared with an independent reference that steps through a text with its whole history at hand: utility by
 * equation 3 of the paper, test and set phases, back-off and hill climbing, written from the paper and the man page. In
 * random worlds the policy must draft as the reference does at every iteration and report the same utilities; in worlds made
 * for one rule each, the expected lengths are given by hand. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/policy/shape.h"

enum { MAX_TEXT = 700, K_MAX = 9, CHANGES = 5 };

/* ---- worlds: tokens and seconds of a draft of K tokens, constant for some iterations ---- */

struct weather {
    int until;                          /* iteration at which the next one begins */
    double plain, cost[K_MAX + 1];      /* seconds without a draft; seconds with K tokens, as a multiple of that */
    double keep;                        /* acceptance probability of a token */
};

struct world {
    struct weather weather[CHANGES];
    double noise;                       /* of seconds */
    uint64_t chance;
};

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 40) + 0.5) * 0x1p-24;
}

static void live(struct world *world, int iteration, int K, int *accepted, double *seconds)
{
    const struct weather *now = world->weather;
    while (iteration >= now->until)
        now++;
    *accepted = 0;
    while (*accepted < K && uniform(&world->chance) < now->keep)
        ++*accepted;
    *seconds = now->plain * (K ? now->cost[K] : 1) * (1 + world->noise * (uniform(&world->chance) - 0.5));
}

/* ---- the reference ---- */

struct settings { int max, first, trial, trials, falls, set, backoff, longest, baseline, refresh, memory; double close; };

static const struct settings defaults = {7, 3, 4, 4, 2, 16, 2, 256, 4, 100, 256, 0.1};

struct past { int K, accepted; double seconds, plain, last; };      /* plain, last: NaN if unknown */

struct reference {
    struct settings s;
    struct world world;
    struct past past[MAX_TEXT];
    int length, wanted;
    double utility[K_MAX + 1], last;   /* utility of each K when last seen; utility of the previous trial */
    int seen[K_MAX + 1];               /* iteration of that; 0: never */
};

static bool over(const struct reference *t) { return t->length == t->wanted; }

/* Returns the seconds of an iteration without a draft: the mean of the latest ones. */
static double plain_seconds(const struct reference *t)
{
    double sum = 0;
    int count = 0;
    for (int at = t->length; at-- > 0 && count < t->s.baseline;)
        if (t->past[at].K == 0) {
            sum += t->past[at].seconds;
            count++;
        }
    return sum / count;
}

static int since_plain(const struct reference *t)
{
    int at = t->length;
    while (at > 0 && t->past[at - 1].K)
        at--;
    return t->length - at;
}

static void go(struct reference *t, int K)
{
    if (over(t))
        return;
    struct past *now = &t->past[t->length];
    *now = (struct past){.K = K, .plain = plain_seconds(t), .last = t->last};
    live(&t->world, t->length, K, &now->accepted, &now->seconds);
    t->length++;
}

/* Equation 3: tokens per iteration, divided by the mean time of these iterations in units of one without a draft. A refresh
 * among them does not count. */
static double utility(const struct reference *t, int from, int K)
{
    double tokens = 0, seconds = 0;
    int count = 0;
    for (int at = from; at < t->length; at++)
        if (t->past[at].K == K) {
            tokens += 1 + t->past[at].accepted;
            seconds += t->past[at].seconds;
            count++;
        }
    return tokens / count / (seconds / count / plain_seconds(t));
}

static void remember(struct reference *t, int K, double value)
{
    t->utility[K] = value;
    t->seen[K] = t->length;
}

static int recall(const struct reference *t)
{
    int best = 0;
    for (int K = t->s.max; K >= 1; K--)
        if (t->seen[K] && t->length - t->seen[K] < t->s.memory && (!best || t->utility[K] >= t->utility[best]))
            best = K;
    return best ? best : t->s.first;
}

/* Runs a test phase; returns its best K, 0 if drafts do not pay. */
static int test_phase(struct reference *t, int K)
{
    bool tried[K_MAX + 2] = {true};
    int best = 0, direction = 0, falls = 0;
    double max = -INFINITY, before = NAN;
    tried[t->s.max + 1] = true;
    for (int trial = 1; !over(t); trial++) {
        int from = t->length;
        for (int i = 0; i < t->s.trial; i++)
            go(t, K);
        if (t->length < from + t->s.trial)
            return 0;
        double now = utility(t, from, K);
        remember(t, K, now);
        tried[K] = true;
        if (now > max) {
            max = now;
            best = K;
        }
        falls = now < before ? falls + 1 : 0;
        if (trial == 1)
            direction = now < 1 || K == t->s.max ? -1 : 1;
        int next = K + direction;
        if (trial > 1 && !(now > before)) {
            direction = -direction;
            next = best + direction;
        }
        bool alike = fabs(now - before) <= t->s.close * fmax(now, before);
        before = t->last = now;
        if (alike || (K == 1 && now < 1) || falls == t->s.falls || trial == t->s.trials || tried[next])
            break;
        K = next;
    }
    t->last = NAN;
    return max < 1 ? 0 : best;
}

static void set_phase(struct reference *t, int K, int length)
{
    int from = t->length;
    for (int i = 0; i < length; i++) {
        if (K && since_plain(t) >= t->s.refresh)
            go(t, 0);
        go(t, K);
    }
    if (K && !over(t))
        remember(t, K, utility(t, from, K));
}

static void report(struct reference *t)
{
    int set = t->s.set, K = -1;
    t->length = 0;
    t->last = NAN;
    memset(t->seen, 0, sizeof t->seen);
    for (int i = 0; i < t->s.baseline; i++)
        go(t, 0);
    while (!over(t)) {
        K = test_phase(t, K == 0 ? 1 : recall(t));
        set_phase(t, K, set);
        set = K ? t->s.set : set * t->s.backoff < t->s.longest ? set * t->s.backoff : t->s.longest;
    }
}

/* ---- the policy ---- */

static struct policy *open_policy(const struct settings *s, struct shape **shape)
{
    char text[300];
    struct policy *policy = NULL;
    struct err err = {0};
    snprintf(text, sizeof text, "cascade:most=%d,first=%d,trial=%d,trials=%d,falls=%d,set=%d,backoff=%d,longest=%d,baseline=%d,"
             "refresh=%d,memory=%d,close=%.17g", s->max, s->first, s->trial, s->trials, s->falls, s->set, s->backoff,
             s->longest, s->baseline, s->refresh, s->memory, s->close);
    if (shape_open(shape, NULL, &err))
        fail_msg("%s", err.text);
    const struct policy_setup setup = {.drafters = 1, .draft_length = DRAFT_LENGTH_NONE, .max_length = 64, .shape = *shape};
    if (policy_open(&policy, text, &setup, &err))
        fail_msg("%s: %s", text, err.text);
    return policy;
}

static void near(double got, double want, const char *what, int iteration)
{
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("iteration %d: %s %.12g, not %.12g", iteration, what, got, want);
}

static void compare_text(const struct reference *t, struct policy *policy)
{
    policy->class->begin(policy, &(struct policy_text){0});
    for (int at = 0; at < t->length; at++) {
        const struct past *past = &t->past[at];
        struct values state = {0};
        policy->class->state(policy, &state);
        if (policy->class->length(policy) != past->K)
            fail_msg("iteration %d: K = %d, not %d", at, policy->class->length(policy), past->K);
        near(values_number(&state, "baseline_us", NAN), 1e6 * past->plain, "baseline", at);
        near(values_number(&state, "last_utility", NAN), past->last, "last utility", at);
        policy->class->observe(policy, &(struct outcome){.drafted = past->K, .accepted = past->accepted,
                                                         .emitted = past->accepted + 1, .iteration_s = past->seconds});
    }
}

/* The policy, given the reference's outcomes, drafts as the reference did; in a second text as in the first. */
static void compare(const struct reference *t, int texts)
{
    struct shape *shape = NULL;
    struct policy *policy = open_policy(&t->s, &shape);
    while (texts--)
        compare_text(t, policy);
    policy_close(&policy);
    shape_close(&shape);
}

static int between(uint64_t *chance, int low, int high) { return low + (int)(uniform(chance) * (high - low + 1)); }

static void make_world(struct world *world, uint64_t seed)
{
    uint64_t chance = seed * 7919 + 1;
    uniform(&chance);
    *world = (struct world){.noise = between(&chance, 0, 3) * 0.1, .chance = seed};
    for (int i = 0, until = 0; i < CHANGES; i++) {
        struct weather *w = &world->weather[i];
        const double slope = 0.6 * uniform(&chance), first = 0.3 * uniform(&chance);
        until += between(&chance, 20, 250);
        *w = (struct weather){i == CHANGES - 1 ? 1 << 30 : until, 0.001 + 0.01 * uniform(&chance), {0}, uniform(&chance)};
        for (int K = 1; K <= K_MAX; K++)
            w->cost[K] = 1 + first + slope * K;
    }
}

static void drafts_are_those_of_the_second_telling(void **state)
{
    static struct reference t;
    long pauses = 0, drafts = 0, refreshed = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        uint64_t chance = seed * 104729;
        uniform(&chance);
        t.wanted = MAX_TEXT;
        t.s = defaults;
        make_world(&t.world, seed);
        if (seed % 4) {
            t.s.max = between(&chance, 1, K_MAX);
            t.s.first = between(&chance, 1, t.s.max);
            t.s.trial = between(&chance, 1, 5);
            t.s.trials = between(&chance, 1, 6);
            t.s.falls = between(&chance, 1, 3);
            t.s.set = between(&chance, 1, 30);
            t.s.backoff = between(&chance, 1, 4);
            t.s.longest = t.s.set + between(&chance, 0, 100);
            t.s.baseline = between(&chance, 1, 8);
            t.s.refresh = between(&chance, 1, 60);
            t.s.memory = between(&chance, 1, 120);
            t.s.close = 0.3 * uniform(&chance);
        }
        report(&t);
        for (int at = 1; at < t.length; at++) {
            pauses += !t.past[at].K && t.past[at - 1].K;
            drafts += t.past[at].K > 0;
            refreshed += at + 1 < t.length && !t.past[at].K && t.past[at - 1].K && t.past[at + 1].K == t.past[at - 1].K;
        }
        compare(&t, 1 + (seed % 8 == 1));
    }
    assert_true(pauses > 2000 && drafts > 60000 && refreshed > 1000);
}

/* Runs the policy with K tokens at utility pays[K] (nothing is accepted, and an iteration takes 1 / pays[K] of one without a
 * draft) and compares the lengths it chooses with `want`. */
static void runs_as(const struct settings *s, const double *pays, double plain, const char *want)
{
    struct shape *shape = NULL;
    struct policy *policy = open_policy(s, &shape);
    char got[400] = "";
    policy->class->begin(policy, &(struct policy_text){0});
    for (size_t at = 0; at < strlen(want); at++) {
        int K = policy->class->length(policy);
        got[at] = (char)('0' + K);
        policy->class->observe(policy, &(struct outcome){.drafted = K, .emitted = 1, .iteration_s = plain / (K ? pays[K] : 1)});
    }
    assert_string_equal(got, want);
    policy_close(&policy);
    shape_close(&shape);
}

/* Utility is in units of an iteration without a draft, however long that takes; drafts pay above 1. */
static void drafts_pay_from_a_utility_of_1_on(void **state)
{
    static const double less[] = {1, 0.97, 0.98}, more[] = {1, 1.01, 1.02};
    struct settings s = {2, 2, 1, 2, 2, 3, 1, 3, 2, 100, 100, 0};
    (void)state;
    for (double plain = 0.001; plain < 5000; plain *= 1000) {
        runs_as(&s, less, plain, "00" "21" "000" "1" "000" "1" "000");
        runs_as(&s, more, plain, "00" "21" "222" "21" "222");
    }
}

/* A utility below 1 at K = 1 ends the test, although another K was not tried. */
static void what_does_not_pay_at_1_is_not_tried_further(void **state)
{
    static const double pays[] = {1, 0.95, 0.98, 1.5}, better[] = {1, 1.01, 0.98, 1.5};
    struct settings s = {3, 2, 1, 4, 2, 3, 1, 3, 2, 100, 100, 0};
    (void)state;
    runs_as(&s, pays, 0.01, "00" "21" "000" "1" "000");
    runs_as(&s, better, 0.01, "00" "21" "111" "12" "111");
}

/* Among lengths with equal utility the earlier one is used, and the smaller one is remembered. */
static void ties_go_to_the_smaller(void **state)
{
    static const double pays[] = {1, 2, 2, 1.5};
    struct settings s = {3, 1, 2, 4, 2, 3, 1, 3, 2, 100, 100, 0};
    (void)state;
    runs_as(&s, pays, 0.5, "00" "1122" "111" "1122" "111");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_are_those_of_the_second_telling),
        cmocka_unit_test(drafts_pay_from_a_utility_of_1_on),
        cmocka_unit_test(what_does_not_pay_at_1_is_not_tried_further),
        cmocka_unit_test(ties_go_to_the_smaller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
