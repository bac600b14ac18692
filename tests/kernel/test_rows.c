/* Operations on single rows: embedding, norm, clamp, gathering. */
#include "tests/kernel/support.h"

/* Memory between rows keeps the pattern of arena_take. */
static void assert_gaps_kept(struct buffer out, int rows, int width, int stride)
{
    const uint32_t *word = at(out);
    for (int r = 0; r < rows - 1; r++)
        for (int i = width; i < stride; i++)
            assert_int_equal(word[r * stride + i], 0xffffffff);
}

static void embedding_gives_the_stored_values(void **state)
{
    (void)state;
    static const struct {
        int rows, vocab, hidden, stride;
    } shapes[] = {{1, 1, 1, 0}, {3, 33, 7, 0}, {5, 40, 33, 70}, {17, 100, 130, 131}, {512, 70, 192, 0}};
    for (int format = 0; format < FORMAT_COUNT; format++)
        for (int i = 0; i < LENGTH(shapes); i++) {
            uint64_t seed = (uint64_t)i + 1;
            struct arena arena;
            arena_open(&arena);
            struct embed_args args = {.format = format, .scale = i % 2 ? 0.7f : 0, .rows = shapes[i].rows,
                                      .vocab = shapes[i].vocab, .hidden = shapes[i].hidden, .out_stride = shapes[i].stride};
            size_t rows = (size_t)args.rows, hidden = (size_t)args.hidden;
            size_t stride = args.out_stride ? (size_t)args.out_stride : hidden;
            args.table = draw_matrix(&arena, format, args.vocab, args.hidden, &seed);
            args.token = arena_take(&arena, rows * sizeof(int32_t));
            args.out = arena_take(&arena, ((rows - 1) * stride + hidden) * sizeof(float));
            for (size_t r = 0; r < rows; r++)
                ((int32_t *)at(args.token))[r] = r ? draw_below(&seed, args.vocab) : args.vocab - 1;
            struct queue queue = queue_of_ref(&arena);
            ref_ops.embed(&queue, &args);
            struct buffer expected = arena_copy(&arena, args.out);
            for (size_t r = 0; r < rows; r++)
                assert_true(((float *)at(expected))[r * stride + hidden / 2] ==
                            matrix_at(format, at(args.table), args.hidden, ((int32_t *)at(args.token))[r],
                                      args.hidden / 2) * (i % 2 ? 0.7f : 1));
            assert_gaps_kept(expected, args.rows, args.hidden, (int)stride);
            FOR_EACH_ISA(isa) {
                queue = queue_of(2);
                poison(args.out);
                isa->ops.embed(&queue, &args);
                assert_true(same_bits(args.out, expected));
            }
            arena_close(&arena);
        }
}

static void norm_agrees_with_the_reference(void **state)
{
    (void)state;
    static const struct {
        int rows, parts, width, more, in_place;
    } shapes[] = {{1, 1, 1, 0, 0}, {2, 1, 7, 1, 0}, {3, 4, 16, 0, 1}, {9, 1, 33, 2, 1}, {17, 1, 192, 0, 0}, {8, 16, 128, 5, 1},
                  {512, 1, 2048, 0, 0}, {512, 1, 200, 4, 1}};
    for (int turn = 0; turn < 2 * LENGTH(shapes); turn++) {
        int i = turn / 2;
        uint64_t seed = (uint64_t)i + 1;
        struct arena arena;
        arena_open(&arena);
        int used = shapes[i].parts * shapes[i].width;
        struct norm_args args = {.epsilon = 1e-5f, .center = turn % 2, .rows = shapes[i].rows, .parts = shapes[i].parts,
                                 .width = shapes[i].width, .in_stride = used + shapes[i].more,
                                 .out_stride = used + (shapes[i].in_place ? shapes[i].more : 3)};
        struct buffer in = draw_floats(&arena, (size_t)args.rows * (size_t)args.in_stride, 2, &seed), first = {0};
        args.apart = !args.center && i % 2;
        if (i % 4 != 3)
            args.weight = draw_floats(&arena, (size_t)(args.apart ? used : args.width), 1, &seed);
        args.bias = args.center && i % 3 ? draw_floats(&arena, (size_t)args.width, 1, &seed) : (struct buffer){0, 0};
        args.in = arena_copy(&arena, in);
        size_t out_bytes = (size_t)args.rows * (size_t)args.out_stride * sizeof(float);
        args.out = shapes[i].in_place ? args.in : arena_take(&arena, out_bytes);
        struct queue queue = queue_of_ref(&arena);
        ref_ops.norm(&queue, &args);
        struct buffer expected = arena_copy(&arena, args.out);
        if (EMULATED) {
            queue = queue_of_host();
            copy_into(args.in, in);
            host_ops()->norm(&queue, &args);
            first = arena_copy(&arena, args.out);
        }
        FOR_EACH_ISA(isa)
            for (int threads = 1; threads <= POOLS; threads++) {
                queue = queue_of(threads);
                poison(args.out);
                copy_into(args.in, in);
                isa->ops.norm(&queue, &args);
                assert_close("norm", args.out, expected, args.center ? TOLERANCE_LAYER_NORM : TOLERANCE_NORM);
                if (!first.address)
                    first = arena_copy(&arena, args.out);
                assert_true(same_bits(first, args.out));
            }
        /* Each row alone; on a device each call copies the whole piece there and back. */
        struct norm_args one = args;
        one.rows = 1;
        copy_into(args.in, in);
        for (int r = 0; r < args.rows; r += SPARSE > 1 ? 1 + args.rows / 16 : 1) {
            size_t bytes = (size_t)used * sizeof(float), from = (size_t)r * (size_t)args.in_stride * sizeof(float);
            size_t to = (size_t)r * (size_t)args.out_stride * sizeof(float);
            one.in = buffer_part(args.in, from, bytes);
            one.out = buffer_part(args.out, to, bytes);
            cpu_isas()[0]->ops.norm(&queue, &one);
            assert_memory_equal(at(one.out), (char *)at(first) + to, bytes);
        }
        arena_close(&arena);
    }
}

static void clamp_keeps_what_is_inside(void **state)
{
    (void)state;
    static const struct {
        int rows, width, stride;
    } shapes[] = {{1, 1, 1}, {3, 33, 40}, {512, 300, 301}};
    for (int i = 0; i < LENGTH(shapes); i++) {
        uint64_t seed = 9;
        struct arena arena;
        arena_open(&arena);
        struct clamp_args args = {.limit = 0.5f, .rows = shapes[i].rows, .width = shapes[i].width, .stride = shapes[i].stride};
        struct buffer before = draw_floats(&arena, (size_t)args.rows * (size_t)args.stride, 1, &seed);
        if (args.width > 4) {
            ((float *)at(before))[3] = NAN;
            ((float *)at(before))[4] = -INFINITY;
        }
        args.x = arena_copy(&arena, before);
        struct queue queue = queue_of_ref(&arena);
        ref_ops.clamp(&queue, &args);
        struct buffer expected = arena_copy(&arena, args.x);
        for (int j = 0; j < args.rows * args.stride; j++) {
            float x = ((float *)at(before))[j], y = ((float *)at(expected))[j];
            if (j % args.stride >= args.width || fabsf(x) <= 0.5f || isnan(x))
                assert_memory_equal(&x, &y, sizeof x);
            else
                assert_true(y == (x < 0 ? -0.5f : 0.5f));
        }
        FOR_EACH_ISA(isa) {
            queue = queue_of(2);
            copy_into(args.x, before);
            isa->ops.clamp(&queue, &args);
            assert_true(same_bits(args.x, expected));
        }
        arena_close(&arena);
    }
}

static void gather_copies_rows(void **state)
{
    (void)state;
    static const struct {
        int rows, count, width, in_stride, out_stride;
    } shapes[] = {{1, 1, 1, 0, 0}, {7, 3, 33, 0, 0}, {7, 9, 33, 40, 0}, {4, 5, 17, 0, 34}, {9, 70, 130, 133, 390},
                  {512, 512, 300, 0, 0}};
    for (int i = 0; i < LENGTH(shapes); i++) {
        uint64_t seed = 11;
        struct arena arena;
        arena_open(&arena);
        struct gather_args args = {.rows = shapes[i].rows, .count = shapes[i].count, .width = shapes[i].width,
                                   .in_stride = shapes[i].in_stride, .out_stride = shapes[i].out_stride};
        const size_t bytes = (size_t)args.width * sizeof(float);
        const size_t from = args.in_stride ? (size_t)args.in_stride * sizeof(float) : bytes;
        const size_t to = args.out_stride ? (size_t)args.out_stride * sizeof(float) : bytes;
        args.in = draw_floats(&arena, ((size_t)(args.rows - 1) * from + bytes) / sizeof(float), 1, &seed);
        args.index = arena_take(&arena, (size_t)args.count * sizeof(int32_t));
        args.out = arena_take(&arena, (size_t)(args.count - 1) * to + bytes);
        for (int j = 0; j < args.count; j++)
            ((int32_t *)at(args.index))[j] = draw_below(&seed, args.rows);
        struct queue queue = queue_of_ref(&arena);
        ref_ops.gather(&queue, &args);
        struct buffer expected = arena_copy(&arena, args.out);
        for (int j = 0; j < args.count; j++)
            assert_memory_equal((char *)at(expected) + (size_t)j * to,
                                (char *)at(args.in) + (size_t)((int32_t *)at(args.index))[j] * from, bytes);
        assert_gaps_kept(expected, args.count, args.width, (int)(to / sizeof(float)));
        FOR_EACH_ISA(isa) {
            queue = queue_of(2);
            poison(args.out);
            isa->ops.gather(&queue, &args);
            assert_true(same_bits(args.out, expected));
        }
        arena_close(&arena);
    }
}

#ifdef MOE_EMU
/* A GPU rejects a launch without blocks. */
static void no_rows_are_nothing_to_do(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        const struct device_ops *ops = &isa->ops;
        struct queue queue = queue_of(2);
        ops->embed(&queue, &(struct embed_args){.format = FORMAT_BF16, .vocab = 5, .hidden = 7});
        ops->norm(&queue, &(struct norm_args){.parts = 1, .width = 7, .in_stride = 7, .out_stride = 7});
        ops->clamp(&queue, &(struct clamp_args){.limit = 1, .width = 7, .stride = 7});
        ops->gather(&queue, &(struct gather_args){.rows = 3, .width = 7});
        ops->rope(&queue, &(struct rope_args){.heads = 2, .head_dim = 8, .rotary = 8, .stride = 16});
        ops->kv_write(&queue, &(struct kv_write_args){.kv_heads = 2, .head_dim = 8, .value_dim = 8, .capacity = 9,
                                                      .stride = 32});
        ops->kv_move(&queue, &(struct kv_move_args){.kv_heads = 2, .head_dim = 8, .value_dim = 8, .capacity = 9});
        ops->attention(&queue, &(struct attention_args){.scale = 1, .heads = 2, .kv_heads = 2, .head_dim = 8, .value_dim = 8,
                                                        .capacity = 9, .stride = 16});
        ops->route_score(&queue, &(struct route_score_args){.experts = 8});
        ops->activate(&queue, &(struct activate_args){.width = 7});
        ops->log_add(&queue, &(struct log_add_args){.width = 7});
        ops->blend(&queue, &(struct blend_args){.slots = 2, .width = 7});
        ops->blend_weights(&queue, &(struct blend_weights_args){.slots = 2});
        ops->top(&queue, &(struct top_args){.vocab = 9, .k = 2});
        ops->route_select(&queue, &(struct route_select_args){.experts = 8, .top_k = 2, .scale = 1});
        for (int format = 0; format < FORMAT_COUNT; format++) {
            ops->linear(&queue, &(struct linear_args){.format = format, .inputs = 7, .outputs = 5, .in_stride = 7,
                                                      .out_stride = 5});
            ops->expert_ffn(&queue, &(struct expert_ffn_args){.format = format, .down_format = format, .slots = 2, .experts = 8,
                                                              .hidden = 7, .inner_width = 5});
        }
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_gives_the_stored_values),
        cmocka_unit_test(norm_agrees_with_the_reference),
        cmocka_unit_test(clamp_keeps_what_is_inside),
        cmocka_unit_test(gather_copies_rows),
#ifdef MOE_EMU
        cmocka_unit_test(no_rows_are_nothing_to_do),
#endif
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
