/* Activations without a gate, sums of logarithms, weighted sums of experts, and their weights: kernels/mix.h. */
#include "tests/kernel/support.h"

/* Returns the bytes of `rows` rows from the first float to the last. */
static size_t span(int rows, int stride, int width)
{
    return ((size_t)(rows - 1) * (size_t)(stride ? stride : width) + (size_t)width) * sizeof(float);
}

/* Returns row r of rows that are `stride` floats apart. */
static struct buffer row_of(struct buffer rows, int r, int stride, int width)
{
    return rows.address ? buffer_part(rows, (size_t)r * (size_t)(stride ? stride : width) * sizeof(float),
                                      (size_t)width * sizeof(float)) : rows;
}

/* Returns the next row that is computed alone. */
static int next_row(int r, int rows) { return r + (SPARSE > 1 ? 1 + rows / 8 : 1); }

struct activated {
    int rows, width, in_stride, add_stride, out_stride;
    int with_add, in_place;                 /* in_place: out is in, or (2) add */
    float scale;
};

static void check_activate(const struct activated *s, enum activation activation)
{
    uint64_t seed = (uint64_t)(s->width * 8 + s->rows) * 2 + activation;
    struct arena arena;
    arena_open(&arena);
    struct activate_args args = {.activation = activation, .rows = s->rows, .width = s->width, .in_stride = s->in_stride,
                                 .add_stride = s->add_stride, .out_stride = s->out_stride, .scale = s->scale};
    struct buffer in = draw_floats(&arena, span(s->rows, s->in_stride, s->width) / sizeof(float), 4, &seed);
    struct buffer add = draw_floats(&arena, span(s->rows, s->add_stride, s->width) / sizeof(float), 4, &seed), first = {0, 0};
    args.in = arena_copy(&arena, in);
    args.add = s->with_add ? arena_copy(&arena, add) : (struct buffer){0, 0};
    args.out = s->in_place == 1 ? args.in : s->in_place == 2 ? args.add
             : arena_take(&arena, span(s->rows, s->out_stride, s->width));
    struct queue queue = queue_of_ref(&arena);
    ref_ops.activate(&queue, &args);
    struct buffer expected = arena_copy(&arena, args.out);
    FOR_EACH_ISA(isa)
        for (int threads = 1; threads <= POOLS; threads++) {
            queue = queue_of(threads);
            poison(args.out);
            copy_into(args.in, in);
            if (s->with_add)
                copy_into(args.add, add);
            isa->ops.activate(&queue, &args);
            assert_close("activate", args.out, expected, TOLERANCE_ACTIVATION);
            if (EMULATED && !first.address) {
                struct buffer kept = arena_copy(&arena, args.out);
                queue = queue_of_host();
                copy_into(args.in, in);
                if (s->with_add)
                    copy_into(args.add, add);
                host_ops()->activate(&queue, &args);
                assert_true(same_bits(kept, args.out));
            }
            if (!first.address)
                first = arena_copy(&arena, args.out);
            assert_true(same_bits(first, args.out));
        }
    struct activate_args one = args;
    one.rows = 1;
    one.out = arena_take(&arena, (size_t)s->width * sizeof(float));
    for (int r = 0; r < s->rows; r = next_row(r, s->rows)) {
        one.in = row_of(in, r, s->in_stride, s->width);
        one.add = s->with_add ? row_of(add, r, s->add_stride, s->width) : args.add;
        queue = queue_of(1);
        cpu_isas()[0]->ops.activate(&queue, &one);
        assert_true(same_bits(one.out, row_of(first, r, s->out_stride, s->width)));
    }
    arena_close(&arena);
}

static void activations_agree_with_the_reference(void **state)
{
    (void)state;
    static const struct activated shapes[] = {
        {1, 1, 0, 0, 0, 0, 0, 0}, {3, 33, 0, 0, 0, 1, 0, -1.5f}, {5, 130, 131, 140, 260, 1, 0, 0}, {2, 7, 9, 0, 9, 0, 1, 0.7f},
        {9, 192, 200, 192, 192, 1, 2, 0}, {60, 767, 0, 0, 0, 1, 1, 0.3f}, {512, 300, 0, 0, 301, 1, 0, 0},
        {4, 1024, 2048, 0, 1024, 0, 0, 0},
    };
    for (int i = 0; i < LENGTH(shapes); i++) {
        if (kernel_brief() && shapes[i].rows > 100)
            continue;
        check_activate(&shapes[i], ACTIVATION_SILU);
        check_activate(&shapes[i], ACTIVATION_GELU);
        check_activate(&shapes[i], ACTIVATION_TANH);
        check_activate(&shapes[i], ACTIVATION_NONE);
    }
}

enum { SPECIAL = 25 };

/* Every pair of `special` is among the numbers; their sums are known. */
static void put_special(struct buffer in, struct buffer add, struct buffer out)
{
    static const float special[] = {-INFINITY, INFINITY, NAN, 3, -1e30f};
    for (int i = 0; i < LENGTH(special); i++)
        for (int j = 0; j < LENGTH(special); j++) {
            const int to = i * LENGTH(special) + j;
            const float x = special[i], y = special[j];
            ((float *)at(in))[to] = x;
            ((float *)at(add))[to] = y;
            ((float *)at(out))[to] = isnan(x) || isnan(y) ? NAN : i != j || isinf(x) ? fmaxf(x, y) : x + logf(2);
        }
}

/* Sums of special numbers are special, and are not compared again. */
static void check_special(struct buffer out, struct buffer known, int width)
{
    for (int i = 0; width >= SPECIAL && i < SPECIAL; i++) {
        float *said = &((float *)at(out))[i];
        const float right = ((float *)at(known))[i];
        if (isnan(right) ? !isnan(*said) : !(*said == right || fabsf(*said - right) < 1e-6f))
            fail_msg("log_add %d: %g, not %g", i, (double)*said, (double)right);
        *said = 0;
    }
}

static void check_log_add(int rows, int width, int stride, int in_place)
{
    uint64_t seed = (uint64_t)(width * 8 + rows);
    struct arena arena;
    arena_open(&arena);
    struct log_add_args args = {.rows = rows, .width = width, .in_stride = stride, .add_stride = stride, .out_stride = stride};
    const size_t floats = span(rows, stride, width) / sizeof(float);
    struct buffer in = draw_floats(&arena, floats, 16, &seed), add = draw_floats(&arena, floats, 16, &seed), first = {0, 0};
    struct buffer known = arena_take(&arena, SPECIAL * sizeof(float));
    if (width >= SPECIAL)
        put_special(in, add, known);
    args.in = arena_copy(&arena, in);
    args.add = arena_copy(&arena, add);
    args.out = in_place == 1 ? args.in : in_place == 2 ? args.add : arena_take(&arena, in.bytes);
    struct queue queue = queue_of_ref(&arena);
    ref_ops.log_add(&queue, &args);
    struct buffer expected = arena_copy(&arena, args.out);
    check_special(expected, known, width);
    FOR_EACH_ISA(isa)
        for (int threads = 1; threads <= POOLS; threads++) {
            queue = queue_of(threads);
            poison(args.out);
            copy_into(args.in, in);
            copy_into(args.add, add);
            isa->ops.log_add(&queue, &args);
            check_special(args.out, known, width);
            if (EMULATED && !first.address) {
                struct buffer kept = arena_copy(&arena, args.out);
                queue = queue_of_host();
                copy_into(args.in, in);
                copy_into(args.add, add);
                host_ops()->log_add(&queue, &args);
                check_special(args.out, known, width);
                assert_true(same_bits(kept, args.out));
            }
            assert_close("log_add", args.out, expected, TOLERANCE_LOG_ADD);
            if (!first.address)
                first = arena_copy(&arena, args.out);
            assert_true(same_bits(first, args.out));
        }
    arena_close(&arena);
}

static void logarithms_are_added(void **state)
{
    (void)state;
    check_log_add(1, 1, 0, 0);
    check_log_add(3, 33, 40, 1);
    check_log_add(5, 2100, 0, 2);
    check_log_add(64, 300, 301, 0);
    check_log_add(512, 26, 0, 1);
}

struct blended {
    int rows, slots, width, in_stride, part_stride, out_stride, in_place;      /* in_place: out is in, or (2) in is none */
    int slot_stride;
};

static void check_blend(const struct blended *s)
{
    uint64_t seed = (uint64_t)(s->width * 8 + s->rows);
    struct arena arena;
    arena_open(&arena);
    struct blend_args args = {.rows = s->rows, .slots = s->slots, .width = s->width, .in_stride = s->in_stride,
                              .part_stride = s->part_stride, .out_stride = s->out_stride, .slot_stride = s->slot_stride};
    const int apart = s->slot_stride ? s->slot_stride : s->slots;
    struct buffer in = draw_floats(&arena, span(s->rows, s->in_stride, s->width) / sizeof(float), 1, &seed), first = {0, 0};
    args.in = s->in_place == 2 ? (struct buffer){0, 0} : arena_copy(&arena, in);
    args.part = draw_floats(&arena, span(s->rows * apart, s->part_stride, s->width) / sizeof(float), 1, &seed);
    args.weight = draw_floats(&arena, (size_t)(s->rows * apart), 1, &seed);
    args.out = s->in_place == 1 ? args.in : arena_take(&arena, span(s->rows, s->out_stride, s->width));
    struct queue queue = queue_of_ref(&arena);
    ref_ops.blend(&queue, &args);
    struct buffer expected = arena_copy(&arena, args.out);
    FOR_EACH_ISA(isa)
        for (int threads = 1; threads <= POOLS; threads++) {
            queue = queue_of(threads);
            poison(args.out);
            if (args.in.address)
                copy_into(args.in, in);
            isa->ops.blend(&queue, &args);
            assert_close("blend", args.out, expected, TOLERANCE_BLEND);
            if (!first.address)
                first = arena_copy(&arena, args.out);
            assert_true(same_bits(first, args.out));
        }
    /* The contract's order, on every device. */
    for (int r = 0; r < s->rows; r++)
        for (int i = 0; i < s->width; i++) {
            float sum = args.in.address ? ((float *)at(row_of(in, r, s->in_stride, s->width)))[i] : 0;
            for (int slot = r * apart; slot < r * apart + s->slots; slot++)
                sum = fmaf(((float *)at(args.weight))[slot],
                           ((float *)at(row_of(args.part, slot, s->part_stride, s->width)))[i], sum);
            assert_memory_equal(&sum, (float *)at(row_of(first, r, s->out_stride, s->width)) + i, sizeof sum);
        }
    arena_close(&arena);
}

static void sums_of_slots_have_the_order_of_the_contract(void **state)
{
    (void)state;
    static const struct blended shapes[] = {
        {1, 1, 1, 0, 0, 0, 0, 0}, {3, 2, 33, 0, 0, 0, 1, 0}, {7, 2, 130, 140, 131, 390, 0, 0}, {60, 2, 192, 0, 0, 0, 0, 0},
        {5, 3, 2100, 0, 0, 0, 1, 0}, {4, 5, 1025, 1025, 2048, 1030, 0, 0}, {512, 2, 100, 0, 0, 0, 0, 0},
        {9, 1, 65, 0, 0, 0, 0, 2}, {6, 2, 192, 0, 192, 0, 2, 5}, {3, 2, 1100, 0, 0, 0, 2, 0}, {7, 0, 33, 0, 0, 40, 2, 0},
    };
    for (int i = 0; i < LENGTH(shapes); i++)
        check_blend(&shapes[i]);
}

struct weighed {
    int rows, slots, stride, weight_stride, column_stride;      /* column_stride: floats between lists of columns; -1: no gap */
};

static void check_weights(const struct weighed *s, enum blend_rule rule, int ties)
{
    const int rows = s->rows, slots = s->slots, stride = s->stride, to = s->weight_stride ? s->weight_stride : slots;
    const int named = s->column_stride < 0 ? slots : s->column_stride;
    uint64_t seed = (uint64_t)(rows * 16 + slots) * 8 + rule;
    struct arena arena;
    arena_open(&arena);
    struct blend_weights_args args = {.rule = rule, .rows = rows, .slots = slots, .logits_stride = stride,
                                      .weight_stride = s->weight_stride, .column_stride = named == slots ? 0 : named};
    args.logits = draw_floats(&arena, span(rows, stride, named ? stride : slots) / sizeof(float), 8, &seed);
    if (named)
        args.column = arena_take(&arena, span(rows, named, slots));
    for (int r = 0; r < rows && named; r++)     /* distinct: all columns from a random one on are equal */
        for (int i = 0, first = (int)draw_below(&seed, (uint64_t)stride); i < slots; i++)
            ((int32_t *)at(args.column))[r * named + i] = (first + i) % stride;
    for (size_t i = 0; ties && i < args.logits.bytes / sizeof(float); i++)
        ((float *)at(args.logits))[i] = (float)draw_below(&seed, 3);
    args.weight = arena_take(&arena, span(rows, s->weight_stride, slots));
    poison(args.weight);
    struct queue queue = queue_of_ref(&arena);
    ref_ops.blend_weights(&queue, &args);
    struct buffer expected = arena_copy(&arena, args.weight), first = {0, 0};
    const bool exact = rule == BLEND_LARGEST || rule == BLEND_OTHERS;
    if (EMULATED) {
        queue = queue_of_host();
        poison(args.weight);
        host_ops()->blend_weights(&queue, &args);
        first = arena_copy(&arena, args.weight);
    }
    FOR_EACH_ISA(isa) {
        queue = queue_of(2);
        poison(args.weight);
        isa->ops.blend_weights(&queue, &args);
        assert_close("weights", args.weight, expected, exact ? TOLERANCE_EXACT : TOLERANCE_BLEND_WEIGHTS);
        if (!first.address)
            first = arena_copy(&arena, args.weight);
        assert_true(same_bits(first, args.weight));
    }
    struct blend_weights_args one = args;
    one.rows = 1;
    one.weight = arena_take(&arena, (size_t)slots * sizeof(float));
    one.weight_stride = one.column_stride = 0;
    for (int r = 0; r < rows; r = next_row(r, rows)) {
        one.logits = row_of(args.logits, r, stride, named ? stride : slots);
        one.column = row_of(args.column, r, named, slots);
        cpu_isas()[0]->ops.blend_weights(&queue, &one);
        assert_true(same_bits(one.weight, row_of(first, r, to, slots)));
    }
    arena_close(&arena);
}

static void weights_agree_with_the_reference(void **state)
{
    (void)state;
    static const struct weighed shapes[] = {{1, 1, 0, 0, 0}, {3, 2, 0, 0, 0}, {60, 2, 4, 0, 0}, {33, 7, 9, 0, 0},
                                            {512, 2, 4, 0, 0}, {60, 2, 8, 5, 4}, {7, 3, 10, 0, -1}, {1, 2, 3, 0, 2},
                                            {200, 1, 6, 2, -1}};
    for (int rule = BLEND_SOFTMAX; rule <= BLEND_OTHERS_SHARE; rule++)
        for (int i = 0; i < LENGTH(shapes); i++) {
            check_weights(&shapes[i], (enum blend_rule)rule, 0);
            check_weights(&shapes[i], (enum blend_rule)rule, 1);
        }
}

/* By hand: the weights that each rule computes from logits of two experts. Among equal ones the last is the largest. */
static const struct {
    float logit[2], weight[6][2];           /* by rule */
} by_hand[] = {
    {{1, 0}, {{0.731058579f, 0.268941421f}, {0.731058579f, -0.268941421f}, {1, 0}, {0, 1},
              {0.731058579f, 0}, {0, 0.268941421f}}},
    {{-2, 0}, {{0.119202922f, 0.880797078f}, {-0.119202922f, 0.880797078f}, {0, 1}, {1, 0},
               {0, 0.880797078f}, {0.119202922f, 0}}},
    {{3, 3}, {{0.5f, 0.5f}, {-0.5f, 0.5f}, {0, 1}, {1, 0}, {0, 0.5f}, {0.5f, 0}}},
    {{NAN, 1}, {{NAN, NAN}, {NAN, NAN}, {1, 0}, {0, 1}, {NAN, 0}, {0, NAN}}},
    {{1, NAN}, {{NAN, NAN}, {NAN, NAN}, {1, 0}, {0, 1}, {NAN, 0}, {0, NAN}}},
    {{INFINITY, 1}, {{NAN, NAN}, {NAN, NAN}, {1, 0}, {0, 1}, {NAN, 0}, {0, NAN}}},
    {{-INFINITY, 1}, {{0, 1}, {-0.0f, 1}, {0, 1}, {1, 0}, {0, 1}, {0, 0}}},
};

static void check_by_hand(const char *who, const struct device_ops *ops, struct queue queue, struct blend_weights_args *args)
{
    for (int rule = BLEND_SOFTMAX; rule <= BLEND_OTHERS_SHARE; rule++) {
        args->rule = (enum blend_rule)rule;
        poison(args->weight);
        ops->blend_weights(&queue, args);
        for (int i = 0; i < 2 * LENGTH(by_hand); i++) {
            float got = ((float *)at(args->weight))[i], want = by_hand[i / 2].weight[rule][i % 2];
            if (!(fabsf(got - want) <= 2e-7f) && !(isnan(got) && isnan(want)))
                fail_msg("%s, rule %d, case %d: %.9g, not %.9g", who, rule, i / 2, (double)got, (double)want);
        }
    }
}

static void rules_by_hand(void **state)
{
    (void)state;
    struct arena arena;
    arena_open(&arena);
    struct blend_weights_args args = {.rows = LENGTH(by_hand), .slots = 2};
    args.logits = arena_take(&arena, sizeof(float) * 2 * LENGTH(by_hand));
    args.weight = arena_take(&arena, sizeof(float) * 2 * LENGTH(by_hand));
    for (int i = 0; i < LENGTH(by_hand); i++)
        memcpy((float *)at(args.logits) + 2 * i, by_hand[i].logit, sizeof by_hand[i].logit);
    check_by_hand("reference", &ref_ops, queue_of_ref(&arena), &args);
    FOR_EACH_ISA(isa)
        check_by_hand(isa->name, &isa->ops, queue_of(1), &args);
    arena_close(&arena);
}

static void gates_agree_with_the_reference(void **state)
{
    (void)state;
    enum { ROWS = 4, PIECES = 3, WIDTH = 19, APART = 2 * WIDTH, STRIDE = PIECES * APART + 1 };
    for (int each = 0; each < 2 * (GATE_SAME + 1); each++) {
        const int kind = each / 2;
        uint64_t seed = 9;
        struct arena arena;
        arena_open(&arena);
        struct gated_args a = {.kind = kind, .single = each % 2, .rows = ROWS, .parts = PIECES, .width = WIDTH,
                               .in_stride = PIECES * WIDTH, .gate_stride = STRIDE, .out_stride = PIECES * WIDTH,
                               .in_part = WIDTH, .gate_part = APART, .out_part = WIDTH};
        struct buffer in = draw_floats(&arena, ROWS * PIECES * WIDTH, 2, &seed);
        a.gate = draw_floats(&arena, ROWS * STRIDE, 4, &seed);
        a.in = a.out = arena_copy(&arena, in);
        struct queue queue = queue_of_ref(&arena);
        ref_ops.gated(&queue, &a);
        struct buffer expected = arena_copy(&arena, a.out), first = {0, 0};
        if (EMULATED) {
            queue = queue_of_host();
            copy_into(a.in, in);
            host_ops()->gated(&queue, &a);
            first = arena_copy(&arena, a.out);
        }
        FOR_EACH_ISA(isa)
            for (int threads = 1; threads <= POOLS; threads++) {
                queue = queue_of(threads);
                copy_into(a.in, in);
                isa->ops.gated(&queue, &a);
                assert_close("gate", a.out, expected, TOLERANCE_ACTIVATION);
                if (!first.address)
                    first = arena_copy(&arena, a.out);
                assert_true(same_bits(first, a.out));
            }
        arena_close(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_agree_with_the_reference),
        cmocka_unit_test(logarithms_are_added),
        cmocka_unit_test(sums_of_slots_have_the_order_of_the_contract),
        cmocka_unit_test(weights_agree_with_the_reference),
        cmocka_unit_test(rules_by_hand),
        cmocka_unit_test(gates_agree_with_the_reference),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
