/* The likeliest tokens and their log-probabilities: kernels/top.h. */
#include "tests/kernel/support.h"

/* Distributions of logits. */
enum kind { SPREAD, TIES, RISING, FALLING, FEW, SPOILT, KINDS };

struct shape {
    int rows, vocab, k, stride;
};

static int stride_of(const struct shape *s) { return s->stride ? s->stride : s->vocab; }

static void draw_row(float *logit, const struct shape *s, enum kind kind, int r, uint64_t *seed)
{
    for (int v = 0; v < s->vocab; v++) {
        float x = draw_float(seed);
        switch (kind) {
        case TIES: logit[v] = (float)draw_below(seed, 3) * (draw(seed) % 2 ? 1.0f : -1.0f); break;
        case RISING: logit[v] = (float)v * 0.01f; break;
        case FALLING: logit[v] = (float)-v * 0.01f; break;
        case FEW: logit[v] = draw_below(seed, s->vocab) < 3 ? x : -INFINITY; break;
        default: logit[v] = 12 * x; break;
        }
    }
    if (kind == FEW)
        logit[draw_below(seed, s->vocab)] = 1;
    if (kind == SPOILT && r % 4 != 3)
        logit[draw_below(seed, s->vocab)] = r % 4 == 0 ? NAN : INFINITY;
    for (int v = 0; kind == SPOILT && r % 4 == 2 && v < s->vocab; v++)
        logit[v] = -INFINITY;
}

struct call {
    struct arena arena;
    struct top_args args;
};

static void call_open(struct call *call, const struct shape *s, enum kind kind)
{
    uint64_t seed = (uint64_t)(s->vocab * 64 + s->k) * KINDS + (uint64_t)kind;
    struct top_args *a = &call->args;
    arena_open(&call->arena);
    *a = (struct top_args){.rows = s->rows, .vocab = s->vocab, .k = s->k, .stride = s->stride};
    a->logits = arena_take(&call->arena, ((size_t)(s->rows - 1) * (size_t)stride_of(s) + (size_t)s->vocab) * sizeof(float));
    for (int r = 0; r < s->rows; r++)
        draw_row((float *)at(a->logits) + (size_t)r * (size_t)stride_of(s), s, kind, r, &seed);
    a->token = arena_take(&call->arena, (size_t)s->rows * (size_t)s->k * sizeof(int32_t));
    a->logp = arena_take(&call->arena, (size_t)s->rows * (size_t)s->k * sizeof(float));
    a->scratch = arena_take(&call->arena, top_scratch_bytes(s->rows, s->vocab, s->k));
    if (s->k % 2)
        a->log_sum = arena_take(&call->arena, (size_t)s->rows * sizeof(float));
    if (s->k % 3 == 0) {
        a->map = arena_take(&call->arena, (size_t)s->vocab * sizeof(int32_t));
        for (int v = 0; v < s->vocab; v++)
            ((int32_t *)at(a->map))[v] = 7 + 3 * v;
    }
}

static void run(struct call *call, const struct device_ops *ops, struct queue queue)
{
    poison_integers(call->args.token);
    poison(call->args.logp);
    poison(call->args.log_sum);
    poison(call->args.scratch);
    ops->top(&queue, &call->args);
    arena_check(&call->arena);
}

/* The output of an operation, for comparison with others. */
struct result {
    struct buffer token, logp, log_sum;
};

static struct result keep(struct call *call)
{
    struct result kept = {arena_copy(&call->arena, call->args.token), arena_copy(&call->arena, call->args.logp), {0, 0}};
    if (call->args.log_sum.address)
        kept.log_sum = arena_copy(&call->arena, call->args.log_sum);
    return kept;
}

static void assert_same(const struct call *call, const struct result *first)
{
    assert_true(same_bits(first->token, call->args.token) && same_bits(first->logp, call->args.logp));
    if (first->log_sum.address)
        assert_true(same_bits(first->log_sum, call->args.log_sum));
}

/* Every row alone gives its bits. */
static void check_alone(struct call *call, const struct shape *s, const struct result *first)
{
    struct top_args one = call->args;
    struct queue queue = queue_of(1);
    const size_t k = (size_t)s->k;
    one.rows = 1;
    for (int r = 0; r < s->rows; r += SPARSE > 1 ? 1 + s->rows / 2 : 1 + s->rows / 16) {
        one.logits = buffer_part(call->args.logits, (size_t)r * (size_t)stride_of(s) * sizeof(float),
                                 (size_t)s->vocab * sizeof(float));
        one.token = buffer_part(call->args.token, 0, k * sizeof(int32_t));
        one.logp = buffer_part(call->args.logp, 0, k * sizeof(float));
        one.log_sum = (struct buffer){0, 0};
        cpu_isas()[0]->ops.top(&queue, &one);
        assert_memory_equal(at(one.token), (int32_t *)at(first->token) + (size_t)r * k, k * sizeof(int32_t));
        assert_memory_equal(at(one.logp), (float *)at(first->logp) + (size_t)r * k, k * sizeof(float));
    }
}

static void against_reference(const struct shape *s, enum kind kind)
{
    struct call call;
    struct result first = {{0, 0}, {0, 0}, {0, 0}};
    call_open(&call, s, kind);
    run(&call, &ref_ops, queue_of_ref(&call.arena));
    const struct result expected = keep(&call);
    if (EMULATED) {
        run(&call, host_ops(), queue_of_host());
        first = keep(&call);
    }
    FOR_EACH_ISA(isa)
        for (int threads = 1; threads <= POOLS; threads++) {
            char what[96];
            snprintf(what, sizeof what, "%s rows %d vocab %d k %d kind %d", isa->name, s->rows, s->vocab, s->k, (int)kind);
            run(&call, &isa->ops, queue_of(threads));
            if (!same_bits(call.args.token, expected.token))
                fail_msg("%s: other tokens", what);
            assert_close(what, call.args.logp, expected.logp, TOLERANCE_TOP);
            if (expected.log_sum.address)
                assert_close(what, call.args.log_sum, expected.log_sum, TOLERANCE_TOP);
            if (!first.token.address)
                first = keep(&call);
            assert_same(&call, &first);
        }
    check_alone(&call, s, &first);
    arena_close(&call.arena);
}

static void tokens_agree_with_the_reference(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{1, 1, 1, 0}, {3, 5, 5, 7}, {4, 33, 2, 0}, {9, 300, 10, 320}, {2, 2047, 3, 0},
                                          {5, 2048, 64, 0}, {2, 2049, 33, 2100}, {4, 9000, 4, 0}};
    for (int i = 0; i < LENGTH(shapes); i++)
        for (int kind = 0; kind < KINDS; kind++)
            if (SPARSE == 1 || (i + kind) % 3 == 0)
                against_reference(&shapes[i], (enum kind)kind);
}

static void large_vocabularies_agree_with_the_reference(void **state)
{
    (void)state;
    against_reference(&(struct shape){SPARSE > 1 ? 1 : 3, SPARSE > 1 ? 20001 : 150001, 10, 0}, SPREAD);
    against_reference(&(struct shape){1, SPARSE > 1 ? 8000 : 50000, 64, 0}, TIES);
    against_reference(&(struct shape){SPARSE > 1 ? 2 : 60, 3000, 8, 0}, SPREAD);
    if (SPARSE == 1)
        against_reference(&(struct shape){1, 40000, 5, 0}, SPOILT);
}

/* The largest number of chunks: a thread of a GPU has two lists. */
static void the_largest_vocabulary_has_room(void **state)
{
    (void)state;
    struct call call;
    call_open(&call, &(struct shape){1, SPARSE > 1 ? 300 * TOP_CHUNK : TOP_VOCAB_MAX, 2, 0}, FEW);
    float *logit = at(call.args.logits);
    for (int v = 0; v < call.args.vocab; v++)
        logit[v] = -1;
    logit[call.args.vocab - 1] = 3;
    logit[260 * TOP_CHUNK + 5] = 2;
    FOR_EACH_ISA(isa) {
        run(&call, &isa->ops, queue_of(1));
        assert_int_equal(((int32_t *)at(call.args.token))[0], call.args.vocab - 1);
        assert_int_equal(((int32_t *)at(call.args.token))[1], 260 * TOP_CHUNK + 5);
        double sum = (call.args.vocab - 2) * exp(-1) + exp(3) + exp(2);
        assert_true(fabs((double)((float *)at(call.args.logp))[1] - (2 - log(sum))) < 1e-5);
    }
    arena_close(&call.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_agree_with_the_reference),
        cmocka_unit_test(large_vocabularies_agree_with_the_reference),
        cmocka_unit_test(the_largest_vocabulary_has_room),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
