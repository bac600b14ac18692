/* The router: scores compared with the reference, choices exactly with the reference and with cases calculated by hand. */
#include "tests/kernel/support.h"

struct call {
    struct arena arena;
    struct route_select_args args;
};

static void call_open(struct call *call, int rows, int experts, int top_k, uint64_t seed)
{
    size_t slots = (size_t)rows * (size_t)top_k;
    arena_open(&call->arena);
    call->args = (struct route_select_args){.scale = 1, .rows = rows, .experts = experts, .top_k = top_k};
    call->args.score = draw_floats(&call->arena, (size_t)rows * (size_t)experts, 1, &seed);
    call->args.wanted = arena_take(&call->arena, slots * sizeof(int32_t));
    call->args.expert = arena_take(&call->arena, slots * sizeof(int32_t));
    call->args.weight = arena_take(&call->arena, slots * sizeof(float));
}

static void run(struct call *call, const struct device_ops *ops, struct queue queue)
{
    poison_integers(call->args.wanted);
    poison_integers(call->args.expert);
    poison(call->args.weight);
    if (call->args.zero)
        poison(call->args.zero_weight);
    ops->route_select(&queue, &call->args);
    arena_check(&call->arena);
}

static void all_agree(struct call *call)
{
    run(call, &ref_ops, queue_of_ref(&call->arena));
    struct buffer wanted = arena_copy(&call->arena, call->args.wanted), expert = arena_copy(&call->arena, call->args.expert);
    struct buffer weight = arena_copy(&call->arena, call->args.weight), zero = {0};
    if (call->args.zero)
        zero = arena_copy(&call->arena, call->args.zero_weight);
    FOR_EACH_ISA(isa) {
        run(call, &isa->ops, queue_of(2));
        assert_true(same_bits(call->args.wanted, wanted));
        assert_true(same_bits(call->args.expert, expert));
        assert_true(same_bits(call->args.weight, weight));
        assert_true(!call->args.zero || same_bits(call->args.zero_weight, zero));
    }
}

static void choices_agree_with_the_reference(void **state)
{
    (void)state;
    static const struct {
        int rows, experts, top_k, groups, kept;
    } shapes[] = {{1, 1, 1, 1, 1}, {3, 8, 2, 4, 2}, {9, 33, 8, 3, 1}, {17, 64, 8, 8, 4}, {8, 7, 7, 0, 0}, {300, 130, 4, 2, 1}};
    for (int i = 0; i < LENGTH(shapes) - kernel_brief(); i++)
        for (int kind = 0; kind < 12; kind++) {
            struct call call;
            uint64_t seed = 77;
            call_open(&call, shapes[i].rows, shapes[i].experts, shapes[i].top_k, (uint64_t)i * 12 + (uint64_t)kind);
            call.args.renormalise = kind % 2;
            call.args.mode = kind / 2 % 2 ? BUDGET_SUBSTITUTE : BUDGET_TRUNCATE;
            call.args.scale = kind % 3 ? 1 : 2.5f;
            float *score = at(call.args.score);
            for (int j = 0; j < shapes[i].rows * shapes[i].experts; j++)
                score[j] = kind % 4 == 3 ? (float)draw_below(&seed, 3) : score[j] + 1;     /* many ties, or none */
            if (kind >= 4) {
                call.args.mask = arena_take(&call.arena, (size_t)shapes[i].experts);
                for (int e = 0; e < shapes[i].experts; e++)
                    ((uint8_t *)at(call.args.mask))[e] = kind < 8 ? draw_below(&seed, 2) == 0 : draw_below(&seed, 6) == 0;
            }
            if (kind % 5 > 2) {
                call.args.bias = draw_floats(&call.arena, (size_t)shapes[i].experts, 1, &seed);
                call.args.groups = shapes[i].groups;
                call.args.groups_kept = shapes[i].kept;
                call.args.group_rank = 1 + kind % 2;
            }
            if (kind == 2 && shapes[i].experts > 2) {
                call.args.zero = shapes[i].experts / 3;
                call.args.zero_weight = arena_take(&call.arena, (size_t)shapes[i].rows * sizeof(float));
            }
            if (kind % 6 == 4)
                call.args.expert_scale = draw_floats(&call.arena, (size_t)shapes[i].experts, 1, &seed);
            all_agree(&call);
            arena_close(&call.arena);
        }
}

static void expect(struct call *call, const int32_t *wanted, const int32_t *expert, const float *weight)
{
    size_t slots = (size_t)call->args.top_k;
    all_agree(call);
    assert_memory_equal(at(call->args.wanted), wanted, slots * sizeof *wanted);
    assert_memory_equal(at(call->args.expert), expert, slots * sizeof *expert);
    assert_memory_equal(at(call->args.weight), weight, slots * sizeof *weight);
}

/* Scores that binary fractions represent exactly; experts 1, 3 and 4 are tied. */
static void budgets_work_as_by_hand(void **state)
{
    (void)state;
    static const float scores[] = {0.0625f, 0.25f, 0.0f, 0.25f, 0.25f, 0.125f};
    struct call call;
    call_open(&call, 1, 6, 4, 1);
    memcpy(at(call.args.score), scores, sizeof scores);
    expect(&call, (int32_t[]){1, 3, 4, 5}, (int32_t[]){1, 3, 4, 5}, (float[]){0.25f, 0.25f, 0.25f, 0.125f});
    call.args.mask = arena_take(&call.arena, 6);
    memcpy(at(call.args.mask), (uint8_t[]){1, 0, 1, 1, 0, 1}, 6);
    call.args.mode = BUDGET_TRUNCATE;
    expect(&call, (int32_t[]){1, 3, 4, 5}, (int32_t[]){3, 5, -1, -1}, (float[]){0.25f, 0.125f, 0, 0});
    call.args.renormalise = true;           /* over all experts: the sum is 0.875 */
    expect(&call, (int32_t[]){1, 3, 4, 5}, (int32_t[]){3, 5, -1, -1}, (float[]){0.25f / 0.875f, 0.125f / 0.875f, 0, 0});
    call.args.mode = BUDGET_SUBSTITUTE;     /* over the chosen experts: 0.4375 */
    expect(&call, (int32_t[]){1, 3, 4, 5}, (int32_t[]){3, 5, 0, 2},
           (float[]){0.25f / 0.4375f, 0.125f / 0.4375f, 0.0625f / 0.4375f, 0});
    memcpy(at(call.args.mask), (uint8_t[]){0, 0, 1, 1, 0, 0}, 6);
    call.args.scale = 2;
    expect(&call, (int32_t[]){1, 3, 4, 5}, (int32_t[]){3, 2, -1, -1}, (float[]){2, 0, 0, 0});
    arena_close(&call.arena);
}

/* Eight experts in four groups, of which the best two are kept. Group scores by the sum of the best two: 1.0, 0.9375, 0.75,
 * 1.0625; by the best one: 0.5, 0.875, 0.625, 0.5625. */
static void groups_and_bias_work_as_by_hand(void **state)
{
    (void)state;
    static const float scores[] = {0.5f, 0.5f, 0.875f, 0.0625f, 0.625f, 0.125f, 0.5625f, 0.5f};
    struct call call;
    call_open(&call, 1, 8, 3, 1);
    memcpy(at(call.args.score), scores, sizeof scores);
    call.args.groups = 4;
    call.args.groups_kept = 2;
    call.args.group_rank = 2;
    expect(&call, (int32_t[]){6, 0, 1}, (int32_t[]){6, 0, 1}, (float[]){0.5625f, 0.5f, 0.5f});
    call.args.group_rank = 1;
    expect(&call, (int32_t[]){2, 4, 5}, (int32_t[]){2, 4, 5}, (float[]){0.875f, 0.625f, 0.125f});
    call.args.bias = arena_take(&call.arena, sizeof scores);
    memcpy(at(call.args.bias), (float[]){0, 0, -0.5f, 0, 0, 0, 0, 0.25f}, sizeof scores);
    call.args.group_rank = 2;               /* now 1.0, 0.4375, 0.75, 1.3125; expert 7 is chosen first, with weight 0.5 */
    expect(&call, (int32_t[]){7, 6, 0}, (int32_t[]){7, 6, 0}, (float[]){0.5f, 0.5625f, 0.5f});
    call.args.mask = arena_take(&call.arena, 8);
    memcpy(at(call.args.mask), (uint8_t[]){1, 0, 1, 1, 1, 1, 0, 0}, 8);
    call.args.mode = BUDGET_TRUNCATE;
    expect(&call, (int32_t[]){7, 6, 0}, (int32_t[]){0, -1, -1}, (float[]){0.5f, 0, 0});
    call.args.mode = BUDGET_SUBSTITUTE;     /* groups 0 and 2 keep 0.5 and 0.75, group 1 0.4375 */
    expect(&call, (int32_t[]){7, 6, 0}, (int32_t[]){4, 0, 5}, (float[]){0.625f, 0.5f, 0.125f});
    arena_close(&call.arena);
}

/* There are six experts; the last three are zero experts. */
static void zero_experts_work_as_by_hand(void **state)
{
    (void)state;
    static const float scores[] = {0.125f, 0.5f, 0.0625f, 0.25f, 0.03125f, 0.75f};
    struct call call;
    call_open(&call, 1, 6, 4, 1);
    memcpy(at(call.args.score), scores, sizeof scores);
    call.args.scale = 2;
    call.args.zero = 3;
    call.args.zero_weight = arena_take(&call.arena, sizeof(float));
    expect(&call, (int32_t[]){1, 0, -1, -1}, (int32_t[]){1, 0, -1, -1}, (float[]){1, 0.25f, 0, 0});
    assert_true(*(float *)at(call.args.zero_weight) == 2);
    arena_close(&call.arena);
}

static void sparsemixers_agree_with_the_reference(void **state)
{
    (void)state;
    for (int turn = 0; turn < 18; turn++) {
        struct call call;
        uint64_t seed = (uint64_t)turn;
        int rows = turn % 2 ? 33 : 4, experts = turn % 3 ? 16 : 7, top_k = turn % 5 ? 2 : 3;
        call_open(&call, rows, experts, top_k, 5);
        call.args.kind = ROUTER_SPARSEMIXER;
        call.args.logits = draw_floats(&call.arena, (size_t)rows * (size_t)experts, 3, &seed);
        call.args.jitter = turn % 4 ? 0.3f : 0.01f;
        call.args.mode = turn / 6 % 3 == 1 ? BUDGET_SUBSTITUTE : BUDGET_TRUNCATE;
        if (turn >= 6) {
            call.args.mask = arena_take(&call.arena, (size_t)experts);
            for (int e = 0; e < experts; e++)
                ((uint8_t *)at(call.args.mask))[e] = draw_below(&seed, 3) > 0;
        }
        run(&call, &ref_ops, queue_of_ref(&call.arena));
        struct buffer wanted = arena_copy(&call.arena, call.args.wanted), expert = arena_copy(&call.arena, call.args.expert);
        struct buffer weight = arena_copy(&call.arena, call.args.weight), first = {0};
        if (EMULATED) {
            run(&call, host_ops(), queue_of_host());
            first = arena_copy(&call.arena, call.args.weight);
        }
        FOR_EACH_ISA(isa) {
            run(&call, &isa->ops, queue_of(2));
            assert_true(same_bits(call.args.wanted, wanted));
            assert_true(same_bits(call.args.expert, expert));
            assert_close("weight", call.args.weight, weight, TOLERANCE_SCORE);
            if (!first.address)
                first = arena_copy(&call.arena, call.args.weight);
            assert_true(same_bits(first, call.args.weight));
        }
        arena_close(&call.arena);
    }
}

/* Jitter 0.25: scores below the best by more than half of the larger of |x| and the best are masked. From 4, 3, -1, 2 the
 * first choice keeps 4, 3 and 2, the second 3 and 2. */
static void sparsemixer_works_as_by_hand(void **state)
{
    (void)state;
    struct call call;
    call_open(&call, 1, 4, 2, 1);
    call.args.kind = ROUTER_SPARSEMIXER;
    call.args.jitter = 0.25f;
    call.args.logits = arena_take(&call.arena, 4 * sizeof(float));
    memcpy(at(call.args.logits), (float[]){3, -1, 4, 2}, 4 * sizeof(float));
    run(&call, &cpu_isas()[0]->ops, queue_of(1));
    const float *weight = at(call.args.weight);
    assert_memory_equal(at(call.args.expert), ((int32_t[]){2, 0}), 8);
    assert_float_equal(weight[0], 1 / (1 + exp(-1) + exp(-2)), 1e-6);
    assert_float_equal(weight[1], 1 / (1 + exp(-1)), 1e-6);
    arena_close(&call.arena);
}

static void not_a_number_still_names_experts(void **state)
{
    (void)state;
    struct call call;
    call_open(&call, 2, 9, 4, 1);
    float *score = at(call.args.score);
    for (int e = 0; e < 9; e++)
        score[e] = e == 7 ? -INFINITY : NAN;
    score[9 + 3] = NAN;
    all_agree(&call);
    static const int32_t wanted[] = {7, 0, 1, 2};
    assert_memory_equal(at(call.args.wanted), wanted, sizeof wanted);
    assert_true(isnan(((float *)at(call.args.weight))[1]));
    arena_close(&call.arena);
}

static void scores_agree_with_the_reference(void **state)
{
    (void)state;
    static const struct {
        int rows, experts;
        float scale;
    } shapes[] = {{1, 1, 1}, {3, 7, 8}, {17, 33, 8}, {9, 64, 0.1f}, {512, 128, 8}, {2, 1024, 8}};
    for (int i = 0; i < 2 * LENGTH(shapes); i++) {
        uint64_t seed = (uint64_t)i + 3;
        if (kernel_brief() && shapes[i % LENGTH(shapes)].rows > 100)
            continue;
        enum router_kind kind = i < LENGTH(shapes) ? ROUTER_SOFTMAX_TOPK : ROUTER_SIGMOID;
        struct arena arena;
        arena_open(&arena);
        size_t count = (size_t)shapes[i % LENGTH(shapes)].rows * (size_t)shapes[i % LENGTH(shapes)].experts;
        struct buffer logits = draw_floats(&arena, count, shapes[i % LENGTH(shapes)].scale, &seed), first = {0};
        struct route_score_args args = {.logits = arena_copy(&arena, logits), .kind = kind,
                                        .rows = shapes[i % LENGTH(shapes)].rows,
                                        .score = arena_take(&arena, count * sizeof(float)),
                                        .experts = shapes[i % LENGTH(shapes)].experts};
        struct queue queue = queue_of_ref(&arena);
        ref_ops.route_score(&queue, &args);
        struct buffer expected = arena_copy(&arena, args.score);
        if (EMULATED) {
            queue = queue_of_host();
            host_ops()->route_score(&queue, &args);
            first = arena_copy(&arena, args.score);
        }
        FOR_EACH_ISA(isa) {
            queue = queue_of(3);
            poison(args.score);
            isa->ops.route_score(&queue, &args);
            assert_close("score", args.score, expected, TOLERANCE_SCORE);
            if (!first.address)
                first = arena_copy(&arena, args.score);
            assert_true(same_bits(first, args.score));
        }
        struct buffer score = args.score;               /* in place, one row at a time: the same bits */
        args.rows = 1;
        for (size_t r = 0; r < (size_t)shapes[i % LENGTH(shapes)].rows; r++) {
            size_t bytes = (size_t)shapes[i % LENGTH(shapes)].experts * sizeof(float);
            args.score = args.logits = buffer_part(logits, r * bytes, bytes);
            cpu_isas()[0]->ops.route_score(&queue, &args);
        }
        assert_true(same_bits(logits, score));
        arena_close(&arena);
    }
}

static void shortlist_agrees_with_the_reference(void **state)
{
    (void)state;
    static const struct {
        int rows, experts, budget;
    } shapes[] = {{1, 1, 1}, {1, 8, 3}, {9, 33, 33}, {17, 64, 16}, {512, 128, 1}, {3, 1024, 40}};
    for (int i = 0; i < LENGTH(shapes); i++)
        for (int ties = 0; ties < 4; ties++) {
            uint64_t seed = (uint64_t)i + 21;
            struct arena arena;
            arena_open(&arena);
            size_t count = (size_t)shapes[i].rows * (size_t)shapes[i].experts;
            struct route_shortlist_args args = {.score = draw_floats(&arena, count, i == 4 ? 1e-9f : 1, &seed),
                                                .mask = arena_take(&arena, (size_t)shapes[i].experts), .rows = shapes[i].rows,
                                                .experts = shapes[i].experts, .budget = shapes[i].budget};
            if (i % 2)
                args.bias = draw_floats(&arena, (size_t)args.experts, 0.5f, &seed);
            if (ties / 2)
                args.weight = draw_floats(&arena, (size_t)args.rows, 0.5f, &seed);
            for (size_t j = 0; j < count && ties % 2; j++)
                ((float *)at(args.score))[j] = (float)draw_below(&seed, 2);
            struct queue queue = queue_of_ref(&arena);
            ref_ops.route_shortlist(&queue, &args);
            struct buffer expected = arena_copy(&arena, args.mask);
            int allowed = 0;
            for (int e = 0; e < args.experts; e++)
                allowed += ((uint8_t *)at(expected))[e] == 1;
            assert_int_equal(allowed, args.budget);
            FOR_EACH_ISA(isa) {
                queue = queue_of(2);
                poison(args.mask);
                isa->ops.route_shortlist(&queue, &args);
                assert_true(same_bits(args.mask, expected));
            }
            arena_close(&arena);
        }
}

static void shortlist_weighs_rows(void **state)
{
    (void)state;
    static const float scores[] = {0.6f, 0.3f, 0.1f, 0.1f, 0.3f, 0.6f}, even[] = {1, 1}, first[] = {1, 0.25f}, last[] = {0, 1};
    static const float *const weights[] = {even, first, last};
    static const uint8_t best[3][3] = {{1, 0, 0}, {1, 0, 0}, {0, 0, 1}}, two[3][3] = {{1, 0, 1}, {1, 1, 0}, {0, 1, 1}};
    struct arena arena;
    arena_open(&arena);
    struct route_shortlist_args args = {.score = arena_take(&arena, sizeof scores), .mask = arena_take(&arena, 3),
                                        .weight = arena_take(&arena, sizeof even), .rows = 2, .experts = 3};
    memcpy(at(args.score), scores, sizeof scores);
    for (int i = 0; i < 3; i++) {
        memcpy(at(args.weight), weights[i], sizeof even);
        for (args.budget = 1; args.budget <= 2; args.budget++) {
            const uint8_t *expected = args.budget == 1 ? best[i] : two[i];
            struct queue queue = queue_of_ref(&arena);
            ref_ops.route_shortlist(&queue, &args);
            assert_memory_equal(at(args.mask), expected, 3);
            FOR_EACH_ISA(isa) {
                queue = queue_of(1);
                isa->ops.route_shortlist(&queue, &args);
                assert_memory_equal(at(args.mask), expected, 3);
            }
        }
    }
    arena_close(&arena);
}

static void shortlist_breaks_ties_by_number(void **state)
{
    (void)state;
    static const float scores[] = {0.25f, 0.5f, 0.5f, 0.75f, 0.5f, 0.5f, 0.25f, 0.5f};     /* sums 0.75 1 0.75 1.25 */
    static const uint8_t one[] = {0, 0, 0, 1}, two[] = {0, 1, 0, 1}, three[] = {1, 1, 0, 1};
    static const uint8_t *const masks[] = {one, two, three};
    struct arena arena;
    arena_open(&arena);
    struct route_shortlist_args args = {.score = arena_take(&arena, sizeof scores), .mask = arena_take(&arena, 4), .rows = 2,
                                        .experts = 4};
    memcpy(at(args.score), scores, sizeof scores);
    for (args.budget = 1; args.budget <= 3; args.budget++) {
        struct queue queue = queue_of_ref(&arena);
        ref_ops.route_shortlist(&queue, &args);
        assert_memory_equal(at(args.mask), masks[args.budget - 1], 4);
        FOR_EACH_ISA(isa) {
            queue = queue_of(1);
            isa->ops.route_shortlist(&queue, &args);
            assert_memory_equal(at(args.mask), masks[args.budget - 1], 4);
        }
    }
    arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_agree_with_the_reference),
        cmocka_unit_test(budgets_work_as_by_hand),
        cmocka_unit_test(groups_and_bias_work_as_by_hand),
        cmocka_unit_test(zero_experts_work_as_by_hand),
        cmocka_unit_test(sparsemixers_agree_with_the_reference),
        cmocka_unit_test(sparsemixer_works_as_by_hand),
        cmocka_unit_test(not_a_number_still_names_experts),
        cmocka_unit_test(scores_agree_with_the_reference),
        cmocka_unit_test(shortlist_agrees_with_the_reference),
        cmocka_unit_test(shortlist_weighs_rows),
        cmocka_unit_test(shortlist_breaks_ties_by_number),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
