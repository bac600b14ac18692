/* Products of slabs (kernels/linear.h): compared with the reference, within a tolerance of their own; the same bits each
 * time; and equal to products of any rows if the format is computed by tiles. */
#include "tests/kernel/support.h"

struct shape {
    int rows, slots, experts, hidden, inner, down;      /* down: 1 + its format; 0: the format of the others */
};

/* ---- linear ---- */

static void linear_slab(int rows, int inputs, int outputs, enum weight_format format, int odd)
{
    struct arena arena;
    char what[128];
    uint64_t seed = (uint64_t)(rows * 7 + inputs * 3 + outputs) * 16 + format;
    arena_open(&arena);
    struct linear_args a = {.format = format, .add = odd, .slab = true, .rows = rows, .inputs = inputs, .outputs = outputs,
                            .scale = odd ? 0.375f : 0, .in_stride = inputs + odd, .out_stride = outputs + 2 * odd};
    a.in = draw_floats(&arena, (size_t)rows * (size_t)a.in_stride, 1, &seed);
    a.weight = draw_matrix(&arena, format, outputs, inputs, &seed);
    a.bias = odd ? draw_floats(&arena, (size_t)outputs, 1, &seed) : (struct buffer){0, 0};
    struct buffer before = draw_floats(&arena, (size_t)rows * (size_t)a.out_stride, 1, &seed), first = {0, 0};
    a.out = arena_copy(&arena, before);
    a.operand = take_operand(&arena, format, (size_t)rows, inputs);
    struct queue queue = queue_of_ref(&arena);
    ref_ops.linear(&queue, &a);
    struct buffer expected = arena_copy(&arena, a.out);
    FOR_EACH_ISA(isa)
        for (int threads = 1; threads <= POOLS; threads++) {
            snprintf(what, sizeof what, "%s %s rows %d inputs %d outputs %d", isa->name, format_name(format), rows, inputs,
                     outputs);
            copy_into(a.out, before);
            queue = queue_of(threads);
            isa->ops.linear(&queue, &a);
            arena_check(&arena);
            assert_close(what, a.out, expected, format_quantised(format) ? TOLERANCE_EXACT : TOLERANCE_SLAB);
            if (!first.address || !EMULATED)
                first = arena_copy(&arena, a.out);
            assert_true(same_bits(first, a.out));
        }
    arena_close(&arena);
}

static void ragged_shapes_agree_with_the_reference(void **state)
{
    (void)state;
    static const int inputs[] = {1, 7, 33, 130, 256, 300}, outputs[] = {1, 16, 31, 100}, rows[] = {1, 8, 33, 64};
    int turn = 0;
    for (int format = 0; format < PRODUCT_FORMATS; format++) {
        for (int i = 0; i < LENGTH(inputs); i++, turn++)
            linear_slab(rows[turn % LENGTH(rows)], inputs[i], outputs[turn / 2 % LENGTH(outputs)], format, turn % 2);
        linear_slab(5, 1030, 40, format, 0);
    }
}

/* ---- experts ---- */

struct call {
    struct arena arena;
    struct expert_ffn_args args;
    struct buffer before;
};

/* Another expert slot by slot; one pair in eight is dropped. Expert 0 gets a pair of most rows, the last expert none. */
static void draw_routes(const struct call *call, uint64_t *seed)
{
    const struct expert_ffn_args *a = &call->args;
    int32_t *expert = at(a->expert);
    float *weight = at(a->weight);
    for (int i = 0; i < a->rows * a->slots; i++) {
        int slot = i % a->slots, others = (a->experts - 2) / (a->slots - 1);
        expert[i] = slot == 0 ? 0 : 1 + (slot - 1) * others + draw_below(seed, others);
        weight[i] = 0.5f + 0.5f * draw_float(seed);
        if (draw_below(seed, 8) == 0)
            expert[i] = -1;
    }
}

static void call_open(struct call *call, const struct shape *s, enum weight_format format)
{
    uint64_t seed = (uint64_t)(s->rows * 7 + s->hidden * 31 + s->inner) * 16 + format;
    size_t rows = (size_t)s->rows, pairs = rows * (size_t)s->slots;
    struct expert_ffn_args *a = &call->args;
    arena_open(&call->arena);
    *a = (struct expert_ffn_args){.format = format, .down_format = s->down ? (enum weight_format)(s->down - 1) : format,
                                  .scale = s->inner % 2 ? 0.4f : 0, .slab = true, .rows = s->rows, .slots = s->slots,
                                  .experts = s->experts, .hidden = s->hidden, .inner_width = s->inner};
    a->in = draw_floats(&call->arena, rows * (size_t)s->hidden, 1, &seed);
    call->before = draw_floats(&call->arena, rows * (size_t)s->hidden, 1, &seed);
    a->out = arena_copy(&call->arena, call->before);
    if (s->experts > 1) {
        a->expert = arena_take(&call->arena, pairs * sizeof(int32_t));
        a->weight = arena_take(&call->arena, pairs * sizeof(float));
        draw_routes(call, &seed);
    }
    a->table = arena_take(&call->arena, (size_t)s->experts * sizeof(uint64_t));
    for (int e = 0; e < s->experts; e++)
        ((uint64_t *)at(a->table))[e] = draw_mixed_expert(&call->arena, format, a->down_format, s->hidden, s->inner,
                                                          &seed).address;
    if (s->hidden % 3 == 0) {
        a->gate_up_bias = draw_floats(&call->arena, (size_t)s->experts * 2 * (size_t)s->inner, 1, &seed);
        a->down_bias = draw_floats(&call->arena, (size_t)s->experts * (size_t)s->hidden, 1, &seed);
        a->limit = 0.8f;
        a->alpha = 1.702f;
    }
    a->inner = arena_take(&call->arena, pairs * (size_t)s->inner * sizeof(float));
    a->partial = arena_take(&call->arena, pairs * (size_t)s->hidden * sizeof(float));
    a->group = arena_take(&call->arena, expert_group_numbers((size_t)s->experts, pairs) * sizeof(int32_t));
    size_t wide = operand_bytes(format, s->hidden), deep = operand_bytes(a->down_format, s->inner);
    a->operand = wide + deep ? arena_take(&call->arena, pairs * (wide > deep ? wide : deep)) : (struct buffer){0, 0};
}

static void run(struct call *call, const struct device_ops *ops, struct queue queue)
{
    copy_into(call->args.out, call->before);
    poison(call->args.inner);
    poison(call->args.partial);
    poison_integers(call->args.group);
    poison(call->args.operand);
    ops->expert_ffn(&queue, &call->args);
    arena_check(&call->arena);
}

static void expert_slab(const struct shape *s, enum weight_format format)
{
    struct call call;
    char what[128];
    call_open(&call, s, format);
    run(&call, &ref_ops, queue_of_ref(&call.arena));
    struct buffer expected = arena_copy(&call.arena, call.args.out), first = {0, 0};
    bool exact = format_quantised(format) && format_quantised(call.args.down_format);
    FOR_EACH_ISA(isa)
        for (int threads = 1; threads <= POOLS; threads++) {
            snprintf(what, sizeof what, "%s %s rows %d experts %d hidden %d inner %d", isa->name, format_name(format), s->rows,
                     s->experts, s->hidden, s->inner);
            run(&call, &isa->ops, queue_of(threads));
            assert_close(what, call.args.out, expected, exact ? TOLERANCE_EXACT : TOLERANCE_SLAB_EXPERT_FFN);
            if (!first.address || !EMULATED)
                first = arena_copy(&call.arena, call.args.out);
            assert_true(same_bits(first, call.args.out));
            assert_apart_sums_up(&isa->ops, queue_of(threads), &call.args, call.before, call.args.out);
        }
    arena_close(&call.arena);
}

static void experts_agree_with_the_reference(void **state)
{
    (void)state;
    for (int format = 0; format < PRODUCT_FORMATS; format++) {
        if (!kernel_sample() || format % 2 == 0)
            expert_slab(&(struct shape){150, 3, 8, 66, 40, 0}, format);  /* an expert of three items, and one without items */
        expert_slab(&(struct shape){9, 2, 5, 130, 33, 0}, format);
        expert_slab(&(struct shape){70, 1, 1, 40, 100, 0}, format);      /* a dense network */
    }
    expert_slab(&(struct shape){40, 2, 6, 256, 100, FORMAT_Q6_K + 1}, FORMAT_Q4_K);
    expert_slab(&(struct shape){40, 2, 6, 100, 64, FORMAT_BF16 + 1}, FORMAT_F16);
}

static void rows_without_experts_stay(void **state)
{
    (void)state;
    struct call call;
    call_open(&call, &(struct shape){9, 2, 5, 40, 16, 0}, FORMAT_BF16);
    memset(at(call.args.expert), 0xff, call.args.expert.bytes);
    FOR_EACH_ISA(isa) {
        run(&call, &isa->ops, queue_of(1));
        assert_true(same_bits(call.before, call.args.out));
    }
    arena_close(&call.arena);
}

#ifdef MOE_EMU

/* The emulator's two variants sum in different orders, so equal bits would mean that the slab's kernel did not run. */
static void slabs_do_not_go_by_tiles(void **state)
{
    (void)state;
    for (int format = 0; format < PRODUCT_FORMATS; format++) {
        struct call call;
        call_open(&call, &(struct shape){40, 2, 5, 256, 64, 0}, format);
        run(&call, other_ops(), queue_of(1));
        struct buffer slab = arena_copy(&call.arena, call.args.out);
        call.args.slab = false;
        run(&call, other_ops(), queue_of(1));
        assert_int_equal(same_bits(slab, call.args.out), format == FORMAT_F32 || format_quantised(format));
        arena_close(&call.arena);
    }
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ragged_shapes_agree_with_the_reference),
        cmocka_unit_test(experts_agree_with_the_reference),
        cmocka_unit_test(rows_without_experts_stay),
#ifdef MOE_EMU
        cmocka_unit_test(slabs_do_not_go_by_tiles),
#endif
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
