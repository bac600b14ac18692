/* The matrix product: compared with the reference; a row's bits depend on that row alone. */
#include "tests/kernel/support.h"

struct shape {
    int rows, inputs, outputs, bias, add, in_more, out_more;     /* *_more: unused floats between rows */
};

struct call {
    struct arena arena;
    struct linear_args args;
    struct buffer before;
    int kind;
};

static void call_open(struct call *call, const struct shape *s, int kind, uint64_t seed)
{
    struct linear_args *a = &call->args;
    const enum weight_format format = kind_format(kind);
    call->kind = kind;
    arena_open(&call->arena);
    *a = (struct linear_args){.format = format, .add = s->add, .rows = s->rows, .inputs = s->inputs, .outputs = s->outputs,
                              .scale = s->outputs % 3 == 1 ? 0.375f : 0, .in_stride = s->inputs + s->in_more,
                              .out_stride = s->outputs + s->out_more};
    a->in = draw_floats(&call->arena, (size_t)s->rows * (size_t)a->in_stride, 1, &seed);
    for (int r = 0; r < s->rows; r++)
        memset((float *)at(a->in) + (size_t)r * (size_t)a->in_stride + s->inputs, 0xff, (size_t)s->in_more * sizeof(float));
    a->weight = draw_matrix(&call->arena, format, s->outputs, s->inputs, &seed);
    if (s->bias)
        a->bias = draw_floats(&call->arena, (size_t)s->outputs, 1, &seed);
    call->before = draw_floats(&call->arena, (size_t)s->rows * (size_t)a->out_stride, 1, &seed);
    if (!s->add)
        for (int r = 0; r < s->rows; r++)
            memset((float *)at(call->before) + (size_t)r * (size_t)a->out_stride, 0xff, (size_t)s->outputs * sizeof(float));
    a->out = arena_copy(&call->arena, call->before);
    a->operand = take_operand(&call->arena, format, (size_t)s->rows, s->inputs);
}

static void run(struct call *call, const struct device_ops *ops, struct queue queue)
{
    copy_into(call->args.out, call->before);
    poison(call->args.operand);
    kind_queue(call->kind, &queue);
    ops->linear(&queue, &call->args);
    arena_check(&call->arena);
}

/* Memory between the rows of out must not change: it is compared exactly. */
static void assert_gaps_untouched(const struct call *call, const struct shape *s)
{
    const float *out = at(call->args.out), *before = at(call->before);
    for (int r = 0; r < s->rows; r++) {
        size_t gap = (size_t)r * (size_t)call->args.out_stride + (size_t)s->outputs;
        if (s->out_more)
            assert_memory_equal(out + gap, before + gap, (size_t)s->out_more * sizeof(float));
    }
}

static void against_reference(const struct shape *s, int kind)
{
    struct call call;
    char what[128];
    call_open(&call, s, kind, (uint64_t)(s->rows * 13 + s->inputs * 3 + s->outputs) * 16 + (uint64_t)kind);
    run(&call, &ref_ops, queue_of_ref(&call.arena));
    struct buffer expected = arena_copy(&call.arena, call.args.out), first[ORDERS] = {{0}};
    if (EMULATED && (kind == FORMAT_F32 || kind_exact(kind))) {
        run(&call, host_ops(), queue_of_host());
        first[0] = arena_copy(&call.arena, call.args.out);
    }
    FOR_EACH_ISA(isa)
        for (int threads = 1; threads <= POOLS; threads++) {
            snprintf(what, sizeof what, "%s %s %d threads rows %d inputs %d outputs %d", isa->name, kind_name(kind),
                     threads, s->rows, s->inputs, s->outputs);
            run(&call, &isa->ops, queue_of(threads));
            assert_close(what, call.args.out, expected, kind_exact(kind) ? TOLERANCE_EXACT : TOLERANCE_LINEAR);
            assert_gaps_untouched(&call, s);
            struct buffer *same = &first[kind_order(isa, kind)];
            if (!same->address)
                *same = arena_copy(&call.arena, call.args.out);
            assert_true(same_bits(*same, call.args.out));
        }
    arena_close(&call.arena);
}

static void ragged_shapes_agree_with_the_reference(void **state)
{
    (void)state;
    static const int inputs[] = {1, 2, 7, 33, 128, 130, 192, 256, 300, 608}, outputs[] = {1, 5, 16, 31, 32, 64, 100};
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 17};
    int turn = 0, taken = 0;
    for (int kind = 0; kind < PRODUCT_KINDS; kind++)
        for (int i = 0; i < LENGTH(inputs); i++)
            for (int o = 0; o < LENGTH(outputs); o++, turn++)
                if (turn % (kind > FORMAT_Q4_K && kind != ROUNDED ? 4 * SPARSE : SPARSE) == 0)
                    against_reference(&(struct shape){rows[taken++ % LENGTH(rows)], inputs[i], outputs[o], turn % 2,
                                                      turn % 3 == 0, turn % 4, turn % 5}, kind);
}

static void many_rows_and_long_inputs_agree_with_the_reference(void **state)
{
    (void)state;
    FOR_PRODUCT_KINDS(kind) {
        against_reference(&(struct shape){64, 192, 192, 0, 0, 0, 3}, kind);
        against_reference(&(struct shape){SPARSE > 1 || kernel_brief() ? 65 : 512, 65, 100, 1, 1, 1, 0}, kind);
        against_reference(&(struct shape){3, 2051, 100, 1, 0, 0, 0}, kind);
        against_reference(&(struct shape){8, 1030, 70, 0, 0, 2, 0}, kind);
    }
}

/* Every row of a large product equals that row in products of other sizes, also if inputs are divided into several chunks. */
static void bits_of_a_row_depend_on_that_row_alone(void **state)
{
    (void)state;
    static const int rows[] = {70, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
    for (int kind = 0; kind < PRODUCT_KINDS; kind++) {
        const int inputs = kind_exact(kind) ? 545 : 193;
        const struct shape s = {SPARSE > 1 ? 71 : 150, inputs, 70, 1, 1, 0, 0};
        struct call call;
        call_open(&call, &s, kind, 17);
        struct buffer whole[ORDERS] = {{0}};
        struct linear_args part = call.args;
        size_t in_row = (size_t)s.inputs * sizeof(float), out_row = (size_t)s.outputs * sizeof(float);
        FOR_EACH_ISA(isa) {
            struct buffer *same = &whole[kind_order(isa, kind)];
            if (!same->address) {
                run(&call, &isa->ops, queue_of(2));
                *same = arena_copy(&call.arena, call.args.out);
            }
            for (int i = 0; i < LENGTH(rows); i += kernel_brief() ? 2 : 1)
                for (int first = 0; first + rows[i] <= s.rows;
                     first += kernel_brief() ? s.rows - rows[i] : (rows[i] + 20) * (SPARSE > 1 ? 2 : 1)) {
                    struct queue queue = queue_of(1 + i % POOLS);
                    kind_queue(kind, &queue);
                    copy_into(call.args.out, call.before);
                    part.rows = rows[i];
                    part.in = buffer_part(call.args.in, (size_t)first * in_row, (size_t)rows[i] * in_row);
                    part.out = buffer_part(call.args.out, (size_t)first * out_row, (size_t)rows[i] * out_row);
                    isa->ops.linear(&queue, &part);
                    assert_memory_equal(at(part.out), (char *)at(*same) + (size_t)first * out_row, (size_t)rows[i] * out_row);
                }
        }
        arena_close(&call.arena);
    }
}

/* A long prompt in one product, compared with single rows and with pieces. */
static void bits_of_512_rows(void **state)
{
    (void)state;
    const struct shape s = {512, 97, 33, 0, 0, 0, 0};
    static const int parts[][2] = {{0, 1}, {511, 1}, {300, 2}, {121, 8}, {137, 64}};
    FOR_PRODUCT_KINDS(kind) {
        struct call call;
        call_open(&call, &s, kind, 23);
        struct linear_args part = call.args;
        size_t in_row = (size_t)s.inputs * sizeof(float), out_row = (size_t)s.outputs * sizeof(float);
        FOR_EACH_ISA(isa) {
            run(&call, &isa->ops, queue_of(3));
            struct buffer whole = arena_copy(&call.arena, call.args.out);
            for (int i = 0; i < LENGTH(parts); i++) {
                struct queue queue = queue_of(1 + i % POOLS);
                kind_queue(kind, &queue);
                copy_into(call.args.out, call.before);
                part.rows = parts[i][1];
                part.in = buffer_part(call.args.in, (size_t)parts[i][0] * in_row, (size_t)part.rows * in_row);
                part.out = buffer_part(call.args.out, (size_t)parts[i][0] * out_row, (size_t)part.rows * out_row);
                isa->ops.linear(&queue, &part);
                assert_memory_equal(at(part.out), (char *)at(whole) + (size_t)parts[i][0] * out_row,
                                    (size_t)part.rows * out_row);
            }
        }
        arena_close(&call.arena);
    }
}

/* Blocks of activations as integers: zeros, values too small to count and just large enough, halves between two integers,
 * extremes of both signs, and NaN. All devices convert them alike. */
static void odd_activations_give_the_same_everywhere(void **state)
{
    (void)state;
    static const enum weight_format formats[] = {FORMAT_Q8, FORMAT_Q4};
    static const float odd[][6] = {{0, -0.0f, 0, 0, 0, 0}, {0x1.fffffep-101f, -1e-31f, 1e-45f, 0, 0, 0},
                                   {-0x1p-100f, 0x1p-101f, 1e-40f, 0, 0, 0}, {127, 0.5f, -1.5f, 2.5f, 126.5f, -126.5f},
                                   {-3.4e38f, 3e38f, 1.4e36f, 0, 1, 0}, {INFINITY, 1, -2, 3, 0, 1}, {NAN, 1, 2, 3, 4, 5},
                                   {-INFINITY, NAN, 0, 0, 0, 0}};
    const struct shape s = {LENGTH(odd), 70, 33, 0, 0, 0, 0};
    for (int f = 0; f < LENGTH(formats); f++) {
        struct call call;
        call_open(&call, &s, formats[f], 31);
        for (int r = 0; r < s.rows; r++)
            for (int i = 0; i < 32; i++)
                ((float *)at(call.args.in))[r * s.inputs + 32 + i] = i < 6 ? odd[r][i] : 0;
        run(&call, host_ops(), queue_of_host());
        struct buffer first = arena_copy(&call.arena, call.args.out);
        const float *want = at(first), *got = at(call.args.out);
        for (int o = 0; o < s.outputs; o++)
            assert_true(!isnan(want[4 * s.outputs + o]) && isnan(want[5 * s.outputs + o]) && isnan(want[7 * s.outputs + o]));
        FOR_EACH_ISA(isa) {
            run(&call, &isa->ops, queue_of(2));
            for (int i = 0; i < s.rows * s.outputs; i++)
                assert_true(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])));
        }
        arena_close(&call.arena);
    }
}

/* Rounded activations: products and sums about 2^-126, where x86 flushes results that are smaller before rounding with an
 * unbounded exponent. The first two rows of weights give 2^-126 - 1.5 * 2^-151 and 2^-126 - 2^-151 with the first row of
 * inputs. */
static void sums_near_the_smallest_normal_number(void **state)
{
    (void)state;
    enum { INPUTS = 7, OUTPUTS = 40, SUM_ROWS = 14 };
    const struct shape s = {SUM_ROWS, INPUTS, OUTPUTS, 0, 0, 0, 0};
    float weight[OUTPUTS * INPUTS] = {-1.5f * 0x1p-75f, 0x1p-63f, 0, 0, 0, 0, 0, -0x1p-75f, 0x1p-63f};
    static const float first[INPUTS] = {0x1p-76f, 0x1p-63f};
    uint64_t seed = 3;
    struct call call;
    if (EMULATED)
        return;
    call_open(&call, &s, ROUNDED, 1);
    for (int i = 2 * INPUTS; i < OUTPUTS * INPUTS; i++)
        weight[i] = ldexpf(draw_float(&seed), -57 - draw_below(&seed, i % 5 ? 18 : 70));
    memset(at(call.args.weight), 0, call.args.weight.bytes);
    matrix_pack(FORMAT_BF16, at(call.args.weight), INPUTS, 0, OUTPUTS, weight);
    for (int i = 0; i < SUM_ROWS * INPUTS; i++)
        ((float *)at(call.args.in))[i] = i < INPUTS ? first[i]
                                                    : ldexpf(draw_float(&seed), -57 - draw_below(&seed, i % 5 ? 18 : 70));
    call.args.scale = 0;
    run(&call, &ref_ops, queue_of_ref(&call.arena));
    struct buffer expected = arena_copy(&call.arena, call.args.out);
    const float *out = at(expected);
    int small = 0;
    for (int i = 0; i < SUM_ROWS * OUTPUTS; i++)
        small += out[i] != 0 && fabsf(out[i]) < 0x1p-122f;
    assert_true(out[0] == 0 && out[1] == 0x1p-126f && small > SUM_ROWS * OUTPUTS / 8);
    FOR_EACH_ISA(isa) {
        run(&call, &isa->ops, queue_of(2));
        assert_true(same_bits(expected, call.args.out));
    }
    arena_close(&call.arena);
}

/* A norm and the product after it as one operation, if the device has it: the bits of the two one by one. */
static void norm_and_product_as_one_operation_or_one_by_one(void **state)
{
    (void)state;
    static const struct { int rows, inputs, outputs, more, center, weighted; } cases[] = {
        {1, 64, 33, 0, 0, 1}, {2, 1100, 70, 4, 0, 1}, {1, 2052, 100, 0, 0, 1}, {2, 700, 40, 0, 0, 1}, {2, 128, 32, 0, 1, 1},
        {1, 132, 40, 0, 0, 0}, {2, 130, 32, 0, 0, 1}, {3, 128, 32, 0, 0, 1}, {2, 128, 40, 1, 0, 1}};
    FOR_PRODUCT_KINDS(kind)
        for (int i = 0; i < LENGTH(cases); i++) {
            const int rows = cases[i].rows, inputs = cases[i].inputs, stride = inputs + cases[i].more;
            const struct shape s = {rows, inputs, cases[i].outputs, i % 2, i % 3 == 0, 0, i};
            uint64_t seed = (uint64_t)i;
            struct call call;
            call_open(&call, &s, kind, seed);
            struct buffer x = draw_floats(&call.arena, (size_t)(rows * stride), 3, &seed), normed = {0}, out = {0};
            struct buffer weight = draw_floats(&call.arena, (size_t)inputs, 1, &seed), none = {0, 0};
            struct norm_linear_args a = {
                .norm = {.in = x, .out = call.args.in, .weight = cases[i].weighted ? weight : none, .epsilon = 1e-3f,
                         .center = cases[i].center, .rows = rows, .parts = 1, .width = inputs, .in_stride = stride,
                         .out_stride = inputs}};
            FOR_EACH_ISA(isa)
                for (int way = 0; way < 3 && isa->ops.norm_linear; way++) {
                    struct queue queue = queue_of(way < 2 ? 2 : 1);
                    kind_queue(kind, &queue);
                    a.linear = call.args;
                    poison(call.args.in);
                    copy_into(call.args.out, call.before);
#ifdef MOE_EMU
                    const int launches = emu_launches(), exact = format_quantised(a.linear.format);
                    const bool one = way && i < 4 && (a.linear.format == FORMAT_BF16 || a.linear.format == FORMAT_FP8 ||
                                                      a.linear.format == FORMAT_Q4_K);
#endif
                    way ? isa->ops.norm_linear(&queue, &a) : ops_norm_linear_in_turn(&isa->ops, &queue, &a);
#ifdef MOE_EMU
                    assert_int_equal(emu_launches() - launches, one ? 1 : 2 + exact);
#endif
                    arena_check(&call.arena);
                    if (!way) {
                        normed = arena_copy(&call.arena, call.args.in);
                        out = arena_copy(&call.arena, call.args.out);
                    }
                    assert_true(same_bits(normed, call.args.in) && same_bits(out, call.args.out));
                }
            arena_close(&call.arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ragged_shapes_agree_with_the_reference),
        cmocka_unit_test(many_rows_and_long_inputs_agree_with_the_reference),
        cmocka_unit_test(bits_of_a_row_depend_on_that_row_alone),
        cmocka_unit_test(bits_of_512_rows),
        cmocka_unit_test(odd_activations_give_the_same_everywhere),
        cmocka_unit_test(sums_near_the_smallest_normal_number),
        cmocka_unit_test(norm_and_product_as_one_operation_or_one_by_one),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
