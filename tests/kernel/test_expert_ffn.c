/* The experts' feed-forward network: compared with the reference; a row's bits depend on that row alone. */
#include "tests/kernel/support.h"

struct shape {
    int rows, slots, experts, hidden, inner, down;      /* down: 1 + its format; 0: the format of the others */
    bool ungated;
};

/* Routing of rows to experts: all rows to one expert with weight 1, to one with a weight each, or random. */
enum routing { ALIKE, ROUTED, WEIGHED };

/* One call with all its arguments; out starts as `before`. */
struct call {
    struct arena arena;
    struct expert_ffn_args args;
    struct buffer before;
    int kind;
};

/* Draws distinct experts for a row; about one slot in eight is dropped. */
static void draw_route(int32_t *expert, float *weight, const struct shape *s, uint64_t *seed)
{
    for (int i = 0; i < s->slots; i++) {
        int again = 1;
        while (again) {
            expert[i] = draw_below(seed, s->experts);
            again = 0;
            for (int j = 0; j < i; j++)
                again |= expert[j] == expert[i];
        }
        weight[i] = 0.5f + 0.5f * draw_float(seed);
    }
    for (int i = 0; i < s->slots; i++)
        if (draw_below(seed, 8) == 0) {
            expert[i] = -1;
            weight[i] = 0;
        }
}

/* Computes exactly the contract's formula. */
static struct buffer scratch(struct arena *arena, const struct expert_ffn_args *a)
{
    size_t wide = operand_bytes(a->format, a->hidden), deep = operand_bytes(a->down_format, a->inner_width);
    size_t bytes = (size_t)a->rows * (size_t)a->slots * (wide > deep ? wide : deep);
    return bytes ? arena_take(arena, bytes) : (struct buffer){0, 0};
}

/* Returns the block of an expert without a gate. */
static struct buffer draw_ungated_expert(struct arena *arena, const struct expert_ffn_args *a, uint64_t *seed)
{
    const struct buffer up = draw_matrix(arena, a->format, a->inner_width, a->hidden, seed);
    const struct buffer down = draw_matrix(arena, a->down_format, a->hidden, a->inner_width, seed);
    const struct buffer block = arena_take(arena, up.bytes + down.bytes);
    memcpy(at(block), at(up), up.bytes);
    memcpy((char *)at(block) + ungated_down_offset(a->format, a->hidden, a->inner_width), at(down), down.bytes);
    return block;
}

static void call_open(struct call *call, const struct shape *s, int kind, enum routing routed, uint64_t seed)
{
    const enum weight_format format = kind_format(kind);
    call->kind = kind;
    arena_open(&call->arena);
    size_t rows = (size_t)s->rows, pairs = rows * (size_t)s->slots;
    struct expert_ffn_args *a = &call->args;
    *a = (struct expert_ffn_args){.format = format, .down_format = s->down ? (enum weight_format)(s->down - 1) : format,
                                  .scale = s->inner % 2 ? 0.4f : 0, .rows = s->rows, .slots = s->slots, .experts = s->experts,
                                  .hidden = s->hidden, .inner_width = s->inner};
    a->in = draw_floats(&call->arena, rows * (size_t)s->hidden, 1, &seed);
    call->before = draw_floats(&call->arena, rows * (size_t)s->hidden, 1, &seed);
    a->out = arena_copy(&call->arena, call->before);
    if (routed == WEIGHED)
        a->weight = draw_floats(&call->arena, rows, 1, &seed);
    if (routed == ROUTED) {
        a->expert = arena_take(&call->arena, pairs * sizeof(int32_t));
        a->weight = arena_take(&call->arena, pairs * sizeof(float));
        for (size_t r = 0; r < rows; r++)
            draw_route((int32_t *)at(a->expert) + r * (size_t)s->slots, (float *)at(a->weight) + r * (size_t)s->slots, s,
                       &seed);
    }
    a->table = arena_take(&call->arena, (size_t)s->experts * sizeof(uint64_t));
    for (int e = 0; e < s->experts; e++)
        ((uint64_t *)at(a->table))[e] = s->ungated
            ? draw_ungated_expert(&call->arena, a, &seed).address
            : draw_mixed_expert(&call->arena, format, a->down_format, s->hidden, s->inner, &seed).address;
    if (s->hidden % 3 == 0 && !s->ungated) {
        a->gate_up_bias = draw_floats(&call->arena, (size_t)s->experts * 2 * (size_t)s->inner, 1, &seed);
        a->down_bias = draw_floats(&call->arena, (size_t)s->experts * (size_t)s->hidden, 1, &seed);
    }
    if (s->inner % 4 == 0 && !s->ungated) {
        a->limit = 0.8f;
        a->alpha = s->inner % 8 ? 0 : 1.702f;
    }
    if (s->ungated || s->inner % 4 == 2)
        a->glu = s->ungated ? GLU_NONE_RELU2 : GLU_GELU_TANH;
    a->inner = arena_take(&call->arena, pairs * (size_t)s->inner * sizeof(float));
    a->partial = arena_take(&call->arena, pairs * (size_t)s->hidden * sizeof(float));
    a->group = arena_take(&call->arena, expert_group_numbers((size_t)s->experts, pairs) * sizeof(int32_t));
    a->operand = scratch(&call->arena, a);
}

/* Runs it from the same start, with poisoned scratch. */
static void run(struct call *call, const struct device_ops *ops, struct queue queue)
{
    copy_into(call->args.out, call->before);
    poison(call->args.inner);
    poison(call->args.partial);
    poison_integers(call->args.group);
    poison(call->args.operand);
    kind_queue(call->kind, &queue);
    ops->expert_ffn(&queue, &call->args);
    arena_check(&call->arena);
}

static void against_reference(const struct shape *s, int kind, enum routing routed)
{
    struct call call;
    char what[128];
    call_open(&call, s, kind, routed, (uint64_t)(s->rows * 7 + s->hidden * 31 + s->inner) * 16 + (uint64_t)kind);
    run(&call, &ref_ops, queue_of_ref(&call.arena));
    struct buffer expected = arena_copy(&call.arena, call.args.out), first[ORDERS] = {{0}};
    if (EMULATED && (kind == FORMAT_F32 || kind_exact(kind))) {
        run(&call, host_ops(), queue_of_host());
        first[0] = arena_copy(&call.arena, call.args.out);
    }
    FOR_EACH_ISA(isa) {
        snprintf(what, sizeof what, "%s %s rows %d slots %d hidden %d inner %d", isa->name, kind_name(kind), s->rows,
                 s->slots, s->hidden, s->inner);
#ifdef MOE_EMU
        const int launches = emu_launches();
        const int exact = format_quantised(call.args.format) + format_quantised(call.args.down_format);
#endif
        run(&call, &isa->ops, queue_of(2));
#ifdef MOE_EMU
        assert_int_equal(emu_launches() - launches, 3 + exact);
#endif
        assert_close(what, call.args.out, expected, kind_exact(kind) ? TOLERANCE_EXACT : TOLERANCE_EXPERT_FFN);
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
    static const int hidden[] = {1, 7, 33, 130, 192, 512}, inner[] = {5, 16, 64, 100, 288}, rows[] = {1, 2, 3, 7, 8, 9, 16, 17};
    int turn = 0;
    for (int kind = 0; kind < PRODUCT_KINDS; kind++)
        for (int h = 0; h < LENGTH(hidden); h++)
            for (int i = 0; i < LENGTH(inner); i++)
                for (int k = 0; k < 2; k++, turn++)
                    if (turn % ((kernel_brief() ? 3 : SPARSE) * (kind > FORMAT_Q6_K && kind != ROUNDED ? 6 : 1)) == 0)
                        against_reference(&(struct shape){rows[turn % LENGTH(rows)], 2, 4, hidden[h], inner[i]}, kind, 1);
}

static void many_rows_agree_with_the_reference(void **state)
{
    (void)state;
    FOR_PRODUCT_KINDS(kind) {
        against_reference(&(struct shape){64, 2, 8, 130, 64}, kind, 1);
        against_reference(&(struct shape){2, 3, 4, 33, 16}, kind, 1);
        against_reference(&(struct shape){SPARSE > 1 || kernel_brief() ? 65 : 512, 2, 8, 64, 33}, kind, 1);
    }
}

static void dense_network_is_one_expert(void **state)
{
    (void)state;
    FOR_PRODUCT_KINDS(kind) {
        against_reference(&(struct shape){1, 1, 1, 192, 64}, kind, 0);
        against_reference(&(struct shape){19, 1, 1, 130, 100}, kind, 0);
        against_reference(&(struct shape){9, 1, 1, 33, 40}, kind, WEIGHED);
    }
}

/* Kernels for GPUs do not support networks without gates. */
static void networks_without_gates_agree_with_the_reference(void **state)
{
    (void)state;
    if (EMULATED)
        return;
    static const struct shape shapes[] = {{7, 2, 4, 33, 100, 0, true}, {17, 3, 8, 130, 37, 0, true},
                                          {3, 2, 4, 300, 64, FORMAT_Q8 + 1, true}};
    FOR_PRODUCT_KINDS(kind) {
        for (int i = 0; i < LENGTH(shapes) - (kind_exact(kind) ? 0 : 1); i++)
            against_reference(&shapes[i], kind, ROUTED);
        against_reference(&(struct shape){1, 1, 1, 192, 64, 0, true}, kind, ALIKE);
    }
}

/* Runs rows index[0 .. rows-1] as a call of their own; `other` replaces the slots of all rows but the first, if not NULL. */
static void run_rows(struct call *all, const int *index, int rows, const int32_t *other, const struct cpu_isa *isa, int threads)
{
    struct expert_ffn_args *a = &all->args, part = *a;
    size_t hidden = (size_t)a->hidden, slots = (size_t)a->slots, pairs = (size_t)rows * slots;
    struct arena arena;
    arena_open(&arena);
    part.rows = rows;
    part.in = arena_take(&arena, (size_t)rows * hidden * sizeof(float));
    part.out = arena_take(&arena, (size_t)rows * hidden * sizeof(float));
    part.expert = arena_take(&arena, pairs * sizeof(int32_t));
    part.weight = arena_take(&arena, pairs * sizeof(float));
    part.inner = arena_take(&arena, pairs * (size_t)a->inner_width * sizeof(float));
    part.partial = arena_take(&arena, pairs * hidden * sizeof(float));
    part.group = arena_take(&arena, expert_group_numbers((size_t)a->experts, pairs) * sizeof(int32_t));
    part.operand = scratch(&arena, &part);
    for (size_t r = 0; r < (size_t)rows; r++) {
        size_t from = (size_t)index[r];
        memcpy((float *)at(part.in) + r * hidden, (float *)at(a->in) + from * hidden, hidden * sizeof(float));
        memcpy((float *)at(part.out) + r * hidden, (float *)at(all->before) + from * hidden, hidden * sizeof(float));
        memcpy((int32_t *)at(part.expert) + r * slots, r && other ? other + r * slots : (int32_t *)at(a->expert) + from * slots,
               slots * sizeof(int32_t));
        memcpy((float *)at(part.weight) + r * slots, (float *)at(a->weight) + from * slots, slots * sizeof(float));
    }
    struct queue queue = queue_of(threads);
    kind_queue(all->kind, &queue);
    isa->ops.expert_ffn(&queue, &part);
    for (size_t r = 0; r < (size_t)(other ? 1 : rows); r++)
        if (memcmp((float *)at(part.out) + r * hidden, (float *)at(a->out) + (size_t)index[r] * hidden, hidden * sizeof(float)))
            fail_msg("%s, %d threads: row %zu of %d differs from itself in the whole batch", isa->name, threads, r, rows);
    arena_close(&arena);
}

static void bits_depend_on_one_row(const struct shape s)
{
    FOR_PRODUCT_KINDS(kind) {
        struct call call;
        uint64_t seed = 5;
        int index[72], order = 0;
        int32_t other[72 * 3];
        float weight[3];
        call_open(&call, &s, kind, 1, 99);
        for (int i = 0; i < s.rows; i++) {
            index[i] = i;
            draw_route(other + i * s.slots, weight, &s, &seed);
        }
        FOR_EACH_ISA(isa) {
            if (isa == cpu_isas()[0] || kind_order(isa, kind) != order)
                run(&call, &isa->ops, queue_of(1));
            order = kind_order(isa, kind);
            for (int threads = 1; threads <= POOLS; threads += SPARSE > 1 || kernel_brief() ? 2 : 1) {
                for (int i = s.rows - 1; i > 0; i--) {
                    int j = draw_below(&seed, i + 1), kept = index[i];
                    index[i] = index[j];
                    index[j] = kept;
                }
                static const int rows[] = {1, 2, 3, 7, 8, 9, 16, 17, 64, 72};
                for (int i = 0; i < LENGTH(rows); i += kernel_sample() ? 4 : SPARSE > 1 || kernel_brief() ? 2 : 1)
                    run_rows(&call, index + (rows[i] < 64 ? i : 0), rows[i], NULL, isa, threads);
                run_rows(&call, index, 33, other, isa, threads);
            }
        }
        arena_close(&call.arena);
    }
}

static void bits_of_a_row_depend_on_that_row_alone(void **state)
{
    (void)state;
    bits_depend_on_one_row((struct shape){72, 3, 8, 192, 64, 0, false});
}

static void without_gates_bits_depend_on_one_row(void **state)
{
    (void)state;
    if (!EMULATED)
        bits_depend_on_one_row((struct shape){72, 3, 8, 64, 45, 0, true});
}

/* Down in a format of its own. If only down is q8 or q4, a rounding of `inner` may change an integer by one step. */
static void down_has_a_format_of_its_own(void **state)
{
    (void)state;
    static const enum weight_format pairs[][2] = {{FORMAT_Q4_K, FORMAT_Q6_K}, {FORMAT_Q4, FORMAT_Q6_K},
                                                  {FORMAT_Q8, FORMAT_BF16},
                                                  {FORMAT_Q4, FORMAT_Q8}, {FORMAT_F16, FORMAT_MXFP4}, {FORMAT_FP8, FORMAT_Q8},
                                                  {FORMAT_IQ4_XS, FORMAT_Q5_K}, {FORMAT_IQ2_XXS, FORMAT_Q3_K}};
    for (int i = 0; i < LENGTH(pairs) && (int)pairs[i][0] < PRODUCT_FORMATS; i++) {
        const bool exact = format_quantised(pairs[i][0]), step = !exact && format_quantised(pairs[i][1]);
        struct call call;
        call_open(&call, &(struct shape){9, 2, 4, 300, 100, (int)pairs[i][1] + 1}, (int)pairs[i][0], ROUTED, (uint64_t)i);
        run(&call, &ref_ops, queue_of_ref(&call.arena));
        struct buffer expected = arena_copy(&call.arena, call.args.out), first[ORDERS] = {{0}};
        FOR_EACH_ISA(isa)
            for (int threads = 1; threads <= 2; threads++) {
                run(&call, &isa->ops, queue_of(threads));
                assert_close("mixed", call.args.out, expected, exact && format_quantised(pairs[i][1]) ? TOLERANCE_EXACT
                             : step ? (struct tolerance){0.02f, 0.02f} : TOLERANCE_EXPERT_FFN);
                struct buffer *same = &first[order_of(isa, pairs[i][0]) | order_of(isa, pairs[i][1])];
                if (!same->address)
                    *same = arena_copy(&call.arena, call.args.out);
                assert_true(same_bits(*same, call.args.out));
            }
        arena_close(&call.arena);
    }
}

/* Compared with the reference; one call and two calls give the same bits. */
static void experts_apart_are_what_is_added(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{9, 2, 2, 33, 16, 0}, {17, 2, 4, 192, 37, 0}, {3, 3, 8, 130, 100, FORMAT_Q8 + 1}};
    FOR_KINDS_OF_FORMAT(format)
        for (int i = 0; i <= LENGTH(shapes); i++) {
            struct call call;
            const struct shape dense = {5, 1, 1, 66, 45, 0}, *s = i < LENGTH(shapes) ? &shapes[i] : &dense;
            call_open(&call, s, format, i < LENGTH(shapes) ? ROUTED : ALIKE, 20 + (uint64_t)i);
            const bool exact = format_quantised((enum weight_format)format), down = format_quantised(call.args.down_format);
            const struct tolerance far = exact && down ? TOLERANCE_EXACT : down ? (struct tolerance){0.02f, 0.02f}
                                                                           : TOLERANCE_EXPERT_FFN;
            call.args.apart = true;
            run(&call, &ref_ops, queue_of_ref(&call.arena));
            struct buffer expected = arena_copy(&call.arena, call.args.partial);
            FOR_EACH_ISA(isa)
                for (int threads = 1; threads <= 2; threads++) {
                    call.args.apart = true;
                    run(&call, &isa->ops, queue_of(threads));
                    assert_true(same_bits(call.args.out, call.before));
                    assert_close("apart", call.args.partial, expected, far);
                    call.args.apart = false;
                    call.args.ahead = threads == 1 ? expected : (struct buffer){0, 0};
#ifdef MOE_EMU
                    emu_prefetch_watch(at(expected), expected.bytes);
#endif
                    run(&call, &isa->ops, queue_of(threads));
#ifdef MOE_EMU
                    assert_int_equal(emu_prefetched(), call.args.ahead.bytes / 16 * 16);
#endif
                    assert_apart_sums_up(&isa->ops, queue_of(threads), &call.args, call.before, call.args.out);
                }
            arena_close(&call.arena);
        }
}

/* Even experts first, then odd ones, then the sum of all: the bits of one call. */
static void experts_in_pieces_give_the_same_bits(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{9, 2, 4, 33, 16, 0}, {1, 4, 8, 130, 100, FORMAT_Q8 + 1}, {17, 3, 6, 70, 37, 0}};
    FOR_KINDS_OF_FORMAT(format)
        for (int i = 0; i < LENGTH(shapes); i++) {
            struct call call;
            call_open(&call, &shapes[i], (enum weight_format)format, ROUTED, 40 + (uint64_t)i);
            const int pairs = shapes[i].rows * shapes[i].slots;
            const struct buffer expert = call.args.expert, piece = arena_copy(&call.arena, expert);
            call.args.scale = i % 2 ? 0.37f : 0;
            FOR_EACH_ISA(isa) {
                run(&call, &isa->ops, queue_of(1));
                const struct buffer whole = arena_copy(&call.arena, call.args.out);
                memcpy(at(call.args.out), at(call.before), call.args.out.bytes);
                poison(call.args.partial);
                call.args.apart = true;
                for (int odd = 0; odd < 2; odd++) {
                    struct queue queue = queue_of(2);
                    for (int p = 0; p < pairs; p++) {
                        int32_t own = ((int32_t *)at(expert))[p];
                        ((int32_t *)at(piece))[p] = own >= 0 && own % 2 == odd ? own : -1;
                    }
                    call.args.expert = piece;
                    isa->ops.expert_ffn(&queue, &call.args);
                }
                call.args.expert = expert;
                struct queue queue = queue_of(2);
                isa->ops.expert_sum(&queue, &call.args);
                call.args.apart = false;
                assert_true(same_bits(whole, call.args.out));
            }
            arena_close(&call.arena);
        }
}

/* The two products one after the other, each in parts: the bits of one call. GPUs compute no parts. */
static void parts_give_the_same_bits(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{9, 2, 4, 33, 16, 0}, {1, 4, 8, 130, 100, FORMAT_Q8 + 1}, {5, 3, 6, 70, 77, 0},
                                          {7, 2, 4, 70, 100, 0, true}};
    if (EMULATED)
        return;
    FOR_KINDS_OF_FORMAT(format)
        for (int i = 0; i < LENGTH(shapes); i++) {
            struct call call;
            call_open(&call, &shapes[i], (enum weight_format)format, i ? ROUTED : ALIKE, 60 + (uint64_t)i);
            struct expert_ffn_args *a = &call.args;
            FOR_EACH_ISA(isa) {
                run(&call, &isa->ops, queue_of(1));
                const struct buffer whole = arena_copy(&call.arena, a->out);
                copy_into(a->out, call.before);
                poison(a->partial);
                poison(a->inner);
                struct queue queue = queue_of(2);
                kind_queue(call.kind, &queue);
                for (int step = FFN_INNER; step <= FFN_PARTIAL; step++)
                    for (a->part = 0, a->parts = 3, a->step = step; a->part < a->parts; a->part++)
                        isa->ops.expert_ffn(&queue, a);
                for (a->part = 0; a->part < a->parts; a->part++)
                    isa->ops.expert_sum(&queue, a);
                a->step = FFN_BOTH;
                a->part = a->parts = 0;
                assert_true(same_bits(whole, a->out));
            }
            arena_close(&call.arena);
        }
}

static void hot_expert_and_threads_change_nothing(void **state)
{
    (void)state;
    const struct shape s = {SPARSE > 1 || kernel_brief() ? 64 : 512, 2, 8, 192, 64};
    FOR_KINDS_OF_FORMAT(format) {
        struct call call;
        call_open(&call, &s, format, 1, 7);
        int32_t *expert = at(call.args.expert);
        for (int i = 0; i < s.rows; i += 2) {
            expert[i * s.slots] = 6;
            expert[i * s.slots + 1] = -1;
        }
        struct buffer first[ORDERS] = {{0}};
        FOR_EACH_ISA(isa)
            for (int threads = 1; threads <= POOLS; threads++) {
                struct buffer *same = &first[order_of(isa, (enum weight_format)format)];
                run(&call, &isa->ops, queue_of(threads));
                if (!same->address)
                    *same = arena_copy(&call.arena, call.args.out);
                assert_true(same_bits(*same, call.args.out));
            }
        arena_close(&call.arena);
    }
}

static void rows_without_experts_stay(void **state)
{
    (void)state;
    struct call call;
    call_open(&call, &(struct shape){3, 2, 4, 33, 16}, FORMAT_BF16, 1, 3);
    memset(at(call.args.expert), 0xff, call.args.expert.bytes);
    FOR_EACH_ISA(isa) {
        run(&call, &isa->ops, queue_of(2));
        assert_true(same_bits(call.before, call.args.out));
    }
    arena_close(&call.arena);
}

/* Runs the operations of a routed network one by one. */
static void run_separately(const struct device_ops *ops, struct queue *queue, const struct routed_ffn_args *a)
{
    struct device_ops single = *ops;
    single.norm_linear = NULL;
    ops_routed_ffn_in_turn(&single, queue, a);
}

/* Sets the router's product of a routed network, and with `norm` the norm before it. */
static void add_product(struct call *call, struct routed_ffn_args *a, bool norm, int experts, uint64_t *seed)
{
    const int rows = call->args.rows, hidden = call->args.hidden;
    struct linear_args *linear = &a->logits.linear;
    struct buffer none = {0, 0};
    *linear = (struct linear_args){
        .in = norm ? arena_copy(&call->arena, call->args.in) : call->args.in, .out = a->score.logits, .format = FORMAT_BF16,
        .weight = draw_matrix(&call->arena, FORMAT_BF16, experts, hidden, seed),
        .bias = experts % 2 ? draw_floats(&call->arena, (size_t)experts, 1, seed) : none,
        .scale = experts % 2 ? 0 : 0.5f, .rows = rows, .inputs = hidden, .outputs = experts, .in_stride = hidden,
        .out_stride = experts};
    if (norm)
        a->logits.norm = (struct norm_args){
            .in = call->args.in, .out = linear->in, .weight = draw_floats(&call->arena, (size_t)hidden, 1, seed),
            .epsilon = 1e-3f, .rows = rows, .parts = 1, .width = hidden, .in_stride = hidden, .out_stride = hidden};
}

/* Scores, choice and experts, and also the router's product (1: without, 2: with a norm before it), as one operation, if the
 * device has it: the bits of the operations one by one. */
static void routed_in_one_operation_or_in_turn(void **state)
{
    (void)state;
    static const struct { int rows, experts, top_k, kind, groups; bool mask; int product, hidden; } cases[] = {
        {1, 8, 2, ROUTER_SOFTMAX_TOPK, 0, false, 0, 40}, {8, 33, 3, ROUTER_SIGMOID, 0, true, 0, 40},
        {9, 16, 4, ROUTER_SIGMOID, 4, false, 2, 40}, {17, 7, 2, ROUTER_SPARSEMIXER, 0, false, 0, 40},
        {65, 40, 8, ROUTER_SOFTMAX_TOPK, 0, true, 0, 40}, {3, 300, 2, ROUTER_SIGMOID, 0, false, 0, 40},
        {1, 8, 2, ROUTER_SOFTMAX_TOPK, 0, false, 2, 40}, {2, 70, 4, ROUTER_SOFTMAX_TOPK, 0, false, 2, 1156},
        {2, 40, 3, ROUTER_SIGMOID, 4, true, 1, 1100}, {1, 33, 2, ROUTER_SPARSEMIXER, 0, false, 2, 604}};
    for (int i = 0; i < LENGTH(cases); i++)
        FOR_EACH_ISA(isa) {
            const size_t rows = (size_t)cases[i].rows, choices = rows * (size_t)cases[i].experts;
            const size_t slots = rows * (size_t)cases[i].top_k;
            const int distinct = cases[i].experts < 9 ? cases[i].experts : 9;
            const struct shape shape = {cases[i].rows, cases[i].top_k, distinct, cases[i].hidden, 20, 0, false};
            struct buffer made[6];
            struct call call;
            uint64_t seed = (uint64_t)i;
            if (!isa->ops.routed_ffn)
                continue;
            call_open(&call, &shape, FORMAT_F32, ALIKE, (uint64_t)i);
            const uint64_t *block = at(call.args.table);
            call.args.experts = cases[i].experts;
            call.args.table = arena_take(&call.arena, (size_t)cases[i].experts * sizeof *block);
            for (int e = 0; e < cases[i].experts; e++)
                ((uint64_t *)at(call.args.table))[e] = block[e % distinct];
            struct buffer logits = draw_floats(&call.arena, choices, 2, &seed);
            struct routed_ffn_args a = {.score = {.logits = logits, .kind = (enum router_kind)cases[i].kind, .rows = shape.rows,
                                                  .experts = cases[i].experts},
                                        .select = {.logits = logits, .kind = (enum router_kind)cases[i].kind,
                                                   .renormalise = i % 2, .scale = 1.5f, .jitter = 0.1f, .rows = shape.rows,
                                                   .experts = cases[i].experts, .top_k = shape.slots, .groups = cases[i].groups,
                                                   .groups_kept = 2, .group_rank = 2}};
            if (cases[i].mask) {
                a.select.mask = arena_take(&call.arena, (size_t)cases[i].experts);
                for (int e = 0; e < cases[i].experts; e++)
                    ((uint8_t *)at(a.select.mask))[e] = e % 3 > 0;
            }
            if (cases[i].product)
                add_product(&call, &a, cases[i].product == 2, cases[i].experts, &seed);
            for (int way = 0; way < 3; way++) {
                if (cases[i].product == 2)
                    poison(a.logits.linear.in);
                a.score.score = a.select.score = arena_take(&call.arena, choices * sizeof(float));
                a.select.wanted = arena_take(&call.arena, slots * sizeof(int32_t));
                call.args.expert = a.select.expert = arena_take(&call.arena, slots * sizeof(int32_t));
                call.args.weight = a.select.weight = arena_take(&call.arena, slots * sizeof(float));
                copy_into(call.args.out, call.before);
                poison(call.args.inner);
                poison(call.args.partial);
                poison_integers(call.args.group);
                a.ffn = call.args;
                struct queue queue = queue_of(way < 2 ? 2 : 1);
#ifdef MOE_EMU
                const int launches = emu_launches();
#endif
                way ? isa->ops.routed_ffn(&queue, &a) : run_separately(&isa->ops, &queue, &a);
#ifdef MOE_EMU
                /* one by one if shared memory does not suffice for 300 experts; queue 1 has no tickets */
                const bool one = way && cases[i].experts < 256 && (way == 1 || cases[i].rows <= 8);
                const int product = !one || cases[i].rows > 2 ? cases[i].product : way == 1 ? 0 : cases[i].product > 0;
                assert_int_equal(emu_launches() - launches, (one ? 3 : 5) + (way == 2) + product);
#endif
                arena_check(&call.arena);
                struct buffer all[] = {a.score.score, a.select.wanted, a.select.expert, a.select.weight,
                                       arena_copy(&call.arena, call.args.out),
                                       cases[i].product ? arena_copy(&call.arena, a.logits.linear.in) : call.args.in};
                for (int n = 0; n < LENGTH(all); n++) {
                    made[n] = way ? made[n] : all[n];
                    assert_true(same_bits(all[n], made[n]));
                }
            }
            arena_close(&call.arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ragged_shapes_agree_with_the_reference),
        cmocka_unit_test(many_rows_agree_with_the_reference),
        cmocka_unit_test(dense_network_is_one_expert),
        cmocka_unit_test(bits_of_a_row_depend_on_that_row_alone),
        cmocka_unit_test(networks_without_gates_agree_with_the_reference),
        cmocka_unit_test(without_gates_bits_depend_on_one_row),
        cmocka_unit_test(down_has_a_format_of_its_own),
        cmocka_unit_test(experts_apart_are_what_is_added),
        cmocka_unit_test(routed_in_one_operation_or_in_turn),
        cmocka_unit_test(experts_in_pieces_give_the_same_bits),
        cmocka_unit_test(parts_give_the_same_bits),
        cmocka_unit_test(hot_expert_and_threads_change_nothing),
        cmocka_unit_test(rows_without_experts_stay),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
