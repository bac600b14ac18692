/* The indexer of sparse attention chooses exactly the reference's positions, because all numbers are small integers. */
#include "tests/kernel/paths.h"

struct shape {
    int rows, heads, dim, key_stride, committed, top_k;
};

struct call {
    struct arena arena;
    struct index_args args;
};

static struct buffer draw_small(struct call *call, size_t count, uint64_t *seed)
{
    struct buffer buffer = arena_take(&call->arena, count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        ((float *)at(buffer))[i] = (float)(draw_below(seed, 5) - 2);
    return buffer;
}

static void call_open(struct call *call, const struct shape *s, enum cache_format format, uint64_t seed)
{
    struct index_args *a = &call->args;
    arena_open(&call->arena);
    *a = (struct index_args){.scale = 0.5f, .format = format, .rows = s->rows, .heads = s->heads, .dim = s->dim,
                             .q_stride = s->heads * s->dim + 3, .key_stride = s->key_stride,
                             .capacity = s->committed + s->rows + 2, .top_k = s->top_k, .longest = s->committed + s->rows};
    a->q = draw_small(call, (size_t)s->rows * (size_t)a->q_stride, &seed);
    a->weight = draw_small(call, (size_t)s->rows * (size_t)s->heads, &seed);
    a->k = arena_take(&call->arena, (size_t)a->capacity * (size_t)a->key_stride * cache_size(format));
    for (int i = 0; i < a->capacity * a->key_stride; i++)
        put(format, at(a->k), (size_t)i, i % a->key_stride < a->dim ? (float)(draw_below(&seed, 5) - 2) : NAN);
    a->score = arena_take(&call->arena, (size_t)a->rows * (size_t)a->longest * sizeof(float));
    a->chosen = arena_take(&call->arena, (size_t)a->rows * (size_t)a->top_k * sizeof(int32_t));
    a->chosen_start = arena_take(&call->arena, ((size_t)a->rows + 1) * sizeof(int32_t));
    a->chosen_prefix = arena_take(&call->arena, (size_t)a->rows * sizeof(int32_t));
    const struct paths paths = draw_paths(&call->arena, s->rows, s->committed, &seed);
    call->args.prefix = paths.prefix;
    call->args.path_start = paths.start;
    call->args.path = paths.path;
}

static void run(struct call *call, const struct device_ops *ops, struct queue queue)
{
    poison_integers(call->args.chosen);
    poison_integers(call->args.chosen_start);
    poison_integers(call->args.chosen_prefix);
    ops->index(&queue, &call->args);
    arena_check(&call->arena);
}

static const struct shape SHAPES[] = {
    {1, 1, 1, 1, 0, 1}, {1, 1, 4, 4, 9, 3}, {7, 3, 17, 20, 30, 5}, {16, 4, 32, 48, 64, 16}, {5, 2, 128, 192, 300, 64},
    {9, 2, 8, 8, 3, 40}, {33, 1, 3, 3, 0, 4},
};

/* The formats of an indexer's keys: engine_open() rejects q8. */
enum { FORMATS = CACHE_Q8 };

static void choices_are_those_of_the_reference(void **state)
{
    (void)state;
    for (int n = 0; n < FORMATS * LENGTH(SHAPES); n++) {
        struct call call;
        call_open(&call, &SHAPES[n / FORMATS], (enum cache_format)(n % FORMATS), (uint64_t)n + 1);
        run(&call, &ref_ops, queue_of_ref(&call.arena));
        struct buffer start = arena_copy(&call.arena, call.args.chosen_start);
        struct buffer none = arena_copy(&call.arena, call.args.chosen_prefix);
        const size_t bytes = (size_t)((int32_t *)at(start))[call.args.rows] * sizeof(int32_t);
        int32_t *chosen = malloc(bytes + 1);
        memcpy(chosen, at(call.args.chosen), bytes);
        FOR_EACH_ISA(isa)
            for (int threads = 1; threads <= POOLS; threads++) {
                run(&call, &isa->ops, queue_of(threads));
                assert_true(same_bits(call.args.chosen_start, start));
                assert_true(same_bits(call.args.chosen_prefix, none));
                assert_memory_equal(at(call.args.chosen), chosen, bytes);
            }
        free(chosen);
        arena_close(&call.arena);
    }
}

/* Four positions with scores 1, 3, 3 and 0 (its product is negative): with two the second and third are chosen, with three
 * the first, too. */
static void largest_scores_are_chosen(void **state)
{
    (void)state;
    static const float keys[] = {1, 3, 3, -5};
    static const int32_t two[] = {1, 2}, three[] = {0, 1, 2};
    for (int top_k = 2; top_k <= 3; top_k++) {
        struct call call;
        call_open(&call, &(struct shape){1, 1, 1, 1, 3, top_k}, CACHE_F32, 5);
        memcpy(at(call.args.k), keys, sizeof keys);
        *(float *)at(call.args.q) = *(float *)at(call.args.weight) = 1;
        call.args.scale = 1;
        FOR_EACH_ISA(isa) {
            run(&call, &isa->ops, queue_of(1));
            assert_int_equal(((int32_t *)at(call.args.chosen_start))[1], top_k);
            assert_memory_equal(at(call.args.chosen), top_k == 2 ? two : three, (size_t)top_k * sizeof(int32_t));
        }
        arena_close(&call.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_those_of_the_reference),
        cmocka_unit_test(largest_scores_are_chosen),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
