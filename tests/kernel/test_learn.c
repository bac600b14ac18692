/* kernels/learn.h: products, rows, norms, functions, experts, rotations and the optimiser's step, each compared with the
 * reference. */
#include "tests/kernel/learn.h"

RUN(product)
RUN(unpack)
RUN(clear)
RUN(add)
RUN(copy)
RUN(accumulate)
RUN(add_row)
RUN(sum_rows)
RUN(select)
RUN(scatter)
RUN(norm)
RUN(norm_back)
RUN(norm_weight_back)
RUN(function)
RUN(function_back)
RUN(gated)
RUN(gated_back)
RUN(mix)
RUN(mix_back)
RUN(rotate)
RUN(rotate_back)
RUN(measure)
RUN(adam)

/* ---- products ---- */

struct multiplied {
    int rows, columns, depth, wider;            /* wider: floats of padding after a row of a; rows of
                                                 * b have twice as many, rows of c three times */
};

/* Takes the rows of a factor; the last row ends the memory. */
static struct buffer draw_rows(struct arena *arena, int rows, int stride, int width, float scale, uint64_t *seed)
{
    return draw_floats(arena, rows ? (size_t)(rows - 1) * (size_t)stride + (size_t)width : 0, scale, seed);
}

static void check_product(const struct multiplied *s, enum learn_product kind, bool add)
{
    uint64_t seed = (uint64_t)(s->rows * 64 + s->columns * 8 + s->depth) * 8 + kind * 2 + add;
    const bool outer = kind == LEARN_OUTER, by_rows = kind == LEARN_ROWS;
    const float scale = 1.7f / sqrtf((float)(s->depth ? s->depth : 1));
    struct arena arena;
    arena_open(&arena);
    struct learn_product_args args = {.kind = kind, .rows = s->rows, .columns = s->columns, .depth = s->depth, .add = add,
                                      .a_stride = (outer ? s->rows : s->depth) + s->wider,
                                      .b_stride = (by_rows ? s->depth : s->columns) + 2 * s->wider,
                                      .c_stride = s->columns + 3 * s->wider};
    args.a = draw_rows(&arena, outer ? s->depth : s->rows, args.a_stride, outer ? s->rows : s->depth, 1, &seed);
    args.b = draw_rows(&arena, by_rows ? s->columns : s->depth, args.b_stride, by_rows ? s->depth : s->columns, scale, &seed);
    args.c = draw_rows(&arena, s->rows, args.c_stride, s->columns, 1, &seed);
    struct written written[] = {{.name = "product", .buffer = args.c, .tolerance = TOLERANCE_LINEAR}, {0}};
    /* On the emulator variants from 4 on are those without a library. */
    agree(&arena, run_product, &args, written);
#ifdef MOE_EMU
    agree_in(&arena, run_product, &args, written, POOLS + 1, 2 * POOLS);
#endif
    arena_close(&arena);
}

static void products_agree_with_the_reference(void **state)
{
    (void)state;
    static const struct multiplied shapes[] = {
        {1, 1, 1, 0}, {3, 5, 7, 2}, {65, 4, 18, 0}, {2, 70, 33, 1}, {4, 3, 0, 0}, {0, 3, 4, 0}, {3, 0, 4, 0}, {66, 68, 35, 3},
    };
    for (int i = 0; i < LENGTH(shapes); i++)
        for (int kind = LEARN_ROWS; kind <= LEARN_OUTER; kind++)
            check_product(&shapes[i], (enum learn_product)kind, (i + kind) % 2);
    check_product(&(struct multiplied){5, 6, 0, 1}, LEARN_PLAIN, true);
}

static void weights_are_unpacked_as_they_are(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int format = 0; format < FORMAT_COUNT; format++) {
        const int whole = format_fits((enum weight_format)format, 96) ? 96 : 256, outputs = 70;
        const int inputs = format_scaled((enum weight_format)format) ? whole : 41;
        struct arena arena;
        arena_open(&arena);
        struct learn_unpack_args args = {.matrix = draw_matrix(&arena, (enum weight_format)format, outputs, inputs, &seed),
                                         .format = (enum weight_format)format, .outputs = outputs, .inputs = inputs};
        for (args.first = 0; args.first < outputs; args.first += 64) {
            args.rows = args.first ? 6 : 64;
            args.out = arena_take(&arena, (size_t)args.rows * (size_t)inputs * sizeof(float));
            struct written written[] = {{.name = "unpack", .buffer = args.out, .number = LEARN_BYTES}, {0}};
            agree(&arena, run_unpack, &args, written);
        }
        arena_close(&arena);
    }
}

/* ---- elements and rows ---- */

static void elements_agree_with_the_reference(void **state)
{
    (void)state;
    static const int counts[] = {0, 1, 255, 515};
    uint64_t seed = 7;
    for (int i = 0; i < LENGTH(counts); i++) {
        const size_t count = (size_t)counts[i];
        struct arena arena;
        arena_open(&arena);
        const struct buffer a = draw_ones(&arena, count, &seed), b = draw_ones(&arena, count, &seed);
        const struct buffer out = arena_take(&arena, count * sizeof(float));
        struct written written[] = {{.name = "add", .buffer = out, .number = LEARN_BYTES}, {0}};
        agree(&arena, run_add, &(struct learn_add_args){a, b, written->buffer, count}, written);
        agree(&arena, run_add, &(struct learn_add_args){a, a, written->buffer, count}, written);
        written->name = "clear";
        agree(&arena, run_clear, &(struct learn_clear_args){written->buffer, count}, written);
        for (int f = LEARN_SILU; f <= LEARN_GELU; f++) {
            struct learn_function_args args = {.function = (enum learn_function)f, .x = draw_floats(&arena, count, 6, &seed),
                                               .out = written->buffer, .gradient = a};
            args.count = count;
            struct written value[] = {{.name = "function", .buffer = args.out, .tolerance = TOLERANCE_ACTIVATION}, {0}};
            agree(&arena, run_function, &args, value);
            args.gradient_to = draw_ones(&arena, count, &seed);
            struct written slope[] = {{.name = "function_back", .buffer = args.gradient_to, .tolerance = TOLERANCE_LEARN}, {0}};
            agree(&arena, run_function_back, &args, slope);
        }
        arena_close(&arena);
    }
}

static void check_copies(int rows, int width, uint64_t *seed)
{
    struct arena arena;
    arena_open(&arena);
    struct learn_copy_args c = {.rows = rows, .width = width, .in_stride = width + 3, .out_stride = width + 5};
    c.in = draw_rows(&arena, rows, c.in_stride, width, 1, seed);
    c.out = draw_rows(&arena, rows, c.out_stride, width, 1, seed);
    struct written copied[] = {{.name = "copy", .buffer = c.out, .number = LEARN_BYTES}, {0}};
    agree(&arena, run_copy, &c, copied);
    agree(&arena, run_accumulate, &c, copied);
    const struct buffer row = draw_ones(&arena, (size_t)width, seed);
    struct learn_row_args bias = {row, draw_ones(&arena, (size_t)(rows * width), seed), rows, width};
    struct written added[] = {{.name = "add_row", .buffer = bias.out, .number = LEARN_BYTES}, {0}};
    agree(&arena, run_add_row, &bias, added);
    struct learn_row_args sum = {bias.out, bias.in, rows, width};
    struct written summed[] = {{.name = "sum_rows", .buffer = sum.out, .tolerance = TOLERANCE_LEARN_ROWS}, {0}};
    agree(&arena, run_sum_rows, &sum, summed);
    arena_close(&arena);
}

static void check_gated(int rows, int width, uint64_t *seed)
{
    const size_t count = (size_t)(rows * width);
    struct arena arena;
    arena_open(&arena);
    struct learn_gated_args g = {.x = draw_floats(&arena, 2 * count, 3, seed), .out = arena_take(&arena, count * sizeof(float)),
                                 .gradient = draw_ones(&arena, count, seed), .gradient_to = draw_ones(&arena, 2 * count, seed),
                                 .rows = rows, .width = width};
    struct written value[] = {{.name = "gated", .buffer = g.out, .tolerance = TOLERANCE_LEARN}, {0}};
    agree(&arena, run_gated, &g, value);
    struct written slope[] = {{.name = "gated_back", .buffer = g.gradient_to, .tolerance = TOLERANCE_LEARN}, {0}};
    agree(&arena, run_gated_back, &g, slope);
    arena_close(&arena);
}

static void rows_agree_with_the_reference(void **state)
{
    (void)state;
    static const int shapes[][2] = {{0, 4}, {1, 1}, {3, 33}, {70, 5}, {2, 300}};
    uint64_t seed = 11;
    for (int i = 0; i < LENGTH(shapes); i++) {
        check_copies(shapes[i][0], shapes[i][1], &seed);
        check_gated(shapes[i][0], shapes[i][1], &seed);
    }
}

/* Rows with an index that occurs once, several times, far apart, and never; there are `of` rows. */
static void check_selection(int rows, int width, int of, uint64_t *seed)
{
    struct arena arena;
    int32_t row[600];
    arena_open(&arena);
    for (int i = 0; i < rows; i++)
        row[i] = draw_below(seed, of + 1) - 1;
    struct learn_select_args s = {draw_ones(&arena, (size_t)(of * width), seed), take_integers(&arena, row, (size_t)rows),
                                  arena_take(&arena, (size_t)(rows * width) * sizeof(float)), rows, width};
    struct written selected[] = {{.name = "select", .buffer = s.out, .number = LEARN_BYTES}, {0}};
    agree(&arena, run_select, &s, selected);
    struct learn_select_args back = {draw_ones(&arena, (size_t)(rows * width), seed), s.row, s.in, rows, width};
    struct written scattered[] = {{.name = "scatter", .buffer = back.out, .number = LEARN_BYTES}, {0}};
    agree(&arena, run_scatter, &back, scattered);
    arena_close(&arena);
}

static void rows_are_selected_and_go_back_in_order(void **state)
{
    (void)state;
    uint64_t seed = 13;
    check_selection(0, 4, 1, &seed);
    check_selection(1, 1, 1, &seed);
    check_selection(7, 3, 20, &seed);
    check_selection(40, 5, 6, &seed);
    check_selection(600, 2, 250, &seed);
    check_selection(5, 300, 2, &seed);
}

static void norms_agree_with_the_reference(void **state)
{
    (void)state;
    static const int shapes[][2] = {{0, 8}, {1, 1}, {2, 33}, {70, 6}, {3, 600}};
    uint64_t seed = 17;
    for (int i = 0; i < LENGTH(shapes); i++) {
        const int rows = shapes[i][0], width = shapes[i][1];
        const size_t count = (size_t)(rows * width);
        struct arena arena;
        arena_open(&arena);
        struct learn_norm_args n = {.x = draw_ones(&arena, count, &seed), .weight = draw_ones(&arena, (size_t)width, &seed),
                                    .inverse = arena_take(&arena, (size_t)rows * sizeof(float)),
                                    .out = arena_take(&arena, count * sizeof(float)),
                                    .gradient = draw_ones(&arena, count, &seed),
                                    .gradient_to = draw_ones(&arena, count, &seed),
                                    .epsilon = 1e-5f, .rows = rows, .width = width};
        struct written value[] = {{.name = "norm", .buffer = n.out, .tolerance = TOLERANCE_NORM},
                                  {.name = "inverse", .buffer = n.inverse, .tolerance = TOLERANCE_NORM}, {0}};
        agree(&arena, run_norm, &n, value);
        learn_by_ref(&arena, run_norm, &n);
        struct written slope[] = {{.name = "norm_back", .buffer = n.gradient_to, .tolerance = TOLERANCE_LEARN}, {0}};
        agree(&arena, run_norm_back, &n, slope);
        n.gradient_to = draw_ones(&arena, (size_t)width, &seed);
        struct written weight[] = {
            {.name = "norm_weight_back", .buffer = n.gradient_to, .tolerance = TOLERANCE_LEARN_ROWS}, {0}};
        agree(&arena, run_norm_weight_back, &n, weight);
        arena_close(&arena);
    }
}

/* ---- experts ---- */

struct mixed {
    enum learn_mix kind;
    int rows, width, experts, slots, used, first;
};

/* Different experts per row, and for each expert its rows in random order, with gaps. Expert 1 may have none. */
static void draw_choice(const struct mixed *s, int32_t *choice, int32_t *place, uint64_t *seed)
{
    int next[LEARN_EXPERTS_MAX] = {0};
    for (int r = 0; r < s->rows; r++)
        for (int slot = 0; slot < s->slots; slot++) {
            int32_t *own = choice + r * s->slots, expert;
            bool taken;
            do {
                expert = draw_below(seed, s->experts);
                taken = expert == 1 && s->experts > s->slots;
                for (int i = 0; i < slot; i++)
                    taken |= own[i] == expert;
            } while (taken);
            own[slot] = expert;
            place[r * s->slots + slot] = next[expert]++;
        }
}

static void check_mix(const struct mixed *s, bool all)
{
    uint64_t seed = (uint64_t)(s->rows * 64 + s->width) * 4 + s->kind;
    const size_t count = (size_t)(s->rows * s->width), wide = (size_t)(s->first + s->experts + 2);
    int32_t choice[256], place[256];
    struct arena arena;
    arena_open(&arena);
    draw_choice(s, choice, place, &seed);
    struct learn_mix_args m = {.kind = s->kind, .u = draw_ones(&arena, count, &seed),
                               .router = draw_floats(&arena, (size_t)s->rows * wide, 2, &seed),
                               .choice = take_integers(&arena, choice, (size_t)(s->rows * s->slots)),
                               .place = take_integers(&arena, place, (size_t)(s->rows * s->slots)),
                               .out = arena_take(&arena, count * sizeof(float)), .gradient = draw_ones(&arena, count, &seed),
                               .rows = s->rows, .width = s->width, .router_width = (int)wide, .first = s->first,
                               .experts = s->experts, .slots = s->slots, .used = s->used};
    const struct buffer made = draw_ones(&arena, (size_t)s->experts * count, &seed);
    const struct buffer made_to = draw_ones(&arena, (size_t)s->experts * count, &seed);
    const size_t bytes = count * sizeof(float);
    if (s->kind == LEARN_MIX_CONTRAST && s->rows > 1)        /* equal columns: the first is subtracted */
        ((float *)at(m.router))[wide + (size_t)(s->first + choice[s->slots])] =
            ((float *)at(m.router))[wide + (size_t)(s->first + choice[s->slots + 1])];
    for (int e = 0; e < s->experts; e++) {
        m.made[e] = buffer_part(made, (size_t)e * bytes, bytes);
        m.made_to[e] = all || e % 2 ? buffer_part(made_to, (size_t)e * bytes, bytes) : (struct buffer){0, 0};
    }
    struct written value[] = {{.name = "mix", .buffer = m.out, .tolerance = TOLERANCE_LEARN}, {0}};
    agree(&arena, run_mix, &m, value);
    struct written slope[] = {{.name = "made_to", .buffer = made_to, .tolerance = TOLERANCE_LEARN},
                              {.name = "u_to", .buffer = draw_ones(&arena, count, &seed), .tolerance = TOLERANCE_LEARN},
                              {.name = "router_to", .buffer = draw_ones(&arena, (size_t)s->rows * wide, &seed),
                               .tolerance = TOLERANCE_LEARN_ROWS}, {0}};
    if (all) {
        m.u_to = slope[1].buffer;
        m.router_to = slope[2].buffer;
    }
    agree(&arena, run_mix_back, &m, slope);
    arena_close(&arena);
}

static void experts_agree_with_the_reference(void **state)
{
    (void)state;
    static const struct mixed shapes[] = {
        {LEARN_MIX_SUM, 1, 1, 1, 1, 1, 0}, {LEARN_MIX_SUM, 5, 33, 5, 3, 3, 0}, {LEARN_MIX_SUM, 3, 7, 40, 12, 10, 0},
        {LEARN_MIX_PAIR, 4, 300, 3, 2, 2, 3}, {LEARN_MIX_CONTRAST, 9, 5, 4, 3, 2, 4}, {LEARN_MIX_SUM, 0, 5, 4, 2, 2, 0},
    };
    for (int i = 0; i < LENGTH(shapes); i++) {
        check_mix(&shapes[i], true);
        check_mix(&shapes[i], false);
    }
}

/* ---- rotations ---- */

static void check_rotation(int rows, int heads, int kv_heads, int head_dim, uint64_t *seed)
{
    enum { POSITIONS = 50 };
    const size_t count = (size_t)(rows * (heads + 2 * kv_heads) * head_dim);
    int32_t position[32];
    struct arena arena;
    arena_open(&arena);
    for (int r = 0; r < rows; r++)
        position[r] = draw_below(seed, POSITIONS);
    struct learn_rotate_args r = {.x = draw_ones(&arena, count, seed),
                                  .position = take_integers(&arena, position, (size_t)rows),
                                  .rotation = draw_ones(&arena, (size_t)(POSITIONS * head_dim), seed),
                                  .out = arena_take(&arena, count * sizeof(float)), .gradient = draw_ones(&arena, count, seed),
                                  .gradient_to = draw_ones(&arena, count, seed), .rows = rows, .heads = heads,
                                  .kv_heads = kv_heads, .head_dim = head_dim, .positions = POSITIONS};
    struct written value[] = {{.name = "rotate", .buffer = r.out, .tolerance = TOLERANCE_ROPE}, {0}};
    agree(&arena, run_rotate, &r, value);
    struct written slope[] = {{.name = "rotate_back", .buffer = r.gradient_to, .tolerance = TOLERANCE_LEARN}, {0}};
    agree(&arena, run_rotate_back, &r, slope);
    arena_close(&arena);
}

static void rotations_agree_with_the_reference(void **state)
{
    (void)state;
    uint64_t seed = 19;
    check_rotation(0, 1, 1, 2, &seed);
    check_rotation(1, 1, 1, 2, &seed);
    check_rotation(5, 4, 2, 10, &seed);
    check_rotation(3, 6, 1, 96, &seed);
}

/* ---- the optimiser ---- */

static void check_step(size_t count, const struct learn_adam *step, uint64_t *seed)
{
    const size_t blocks = (count + LEARN_BLOCK - 1) / LEARN_BLOCK;
    struct arena arena;
    arena_open(&arena);
    struct learn_measure_args m = {.gradient = draw_ones(&arena, count, seed),
                                   .squares = arena_take(&arena, blocks * sizeof(double)),
                                   .outside = arena_take(&arena, blocks * sizeof(int64_t)), .count = count, .bound = 0.75f};
    struct written measured[] = {{.name = "squares", .buffer = m.squares, .number = LEARN_DOUBLES, .tolerance = {0, 1e-6f}},
                                 {.name = "outside", .buffer = m.outside, .number = LEARN_BYTES}, {0}};
    agree(&arena, run_measure, &m, measured);
    struct learn_adam_args a = {draw_ones(&arena, count, seed), draw_ones(&arena, count, seed), draw_ones(&arena, count, seed),
                                m.gradient, *step, count};
    for (size_t i = 0; i < count; i++)
        ((float *)at(a.second))[i] = fabsf(((float *)at(a.second))[i]);
    struct written stepped[] = {{.name = "weight", .buffer = a.weight, .tolerance = TOLERANCE_LEARN},
                                {.name = "first", .buffer = a.first, .tolerance = TOLERANCE_LEARN},
                                {.name = "second", .buffer = a.second, .tolerance = TOLERANCE_LEARN}, {0}};
    agree(&arena, run_adam, &a, stepped);
    arena_close(&arena);
}

static void steps_agree_with_the_reference(void **state)
{
    (void)state;
    static const struct learn_adam by_element = {0.999f, 0.9f, 0.95f, 0.01f, 3, 1e-8f, 1, 0.5f};
    static const struct learn_adam by_norm = {1, 0.9f, 0.999f, 0.003f, 1.1f, 1e-8f, 0.3f, INFINITY};
    uint64_t seed = 23;
    check_step(0, &by_element, &seed);
    check_step(1, &by_norm, &seed);
    check_step(300, &by_element, &seed);
    check_step(LEARN_BLOCK + 77, &by_norm, &seed);
}

static void a_gradient_that_is_no_number_is_measured(void **state)
{
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    uint64_t seed = 29;
    for (int i = 0; i < LENGTH(odd); i++) {
        struct arena arena;
        arena_open(&arena);
        struct learn_measure_args m = {.gradient = draw_ones(&arena, 300, &seed), .squares = arena_take(&arena, sizeof(double)),
                                       .outside = arena_take(&arena, sizeof(int64_t)), .count = 300, .bound = INFINITY};
        ((float *)at(m.gradient))[290] = odd[i];
        learn_by_device(run_measure, &m);
        assert_false(isfinite(*(double *)at(m.squares)));
        assert_int_equal(*(int64_t *)at(m.outside), 0);
        arena_close(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_the_reference),
        cmocka_unit_test(weights_are_unpacked_as_they_are),
        cmocka_unit_test(elements_agree_with_the_reference),
        cmocka_unit_test(rows_agree_with_the_reference),
        cmocka_unit_test(rows_are_selected_and_go_back_in_order),
        cmocka_unit_test(norms_agree_with_the_reference),
        cmocka_unit_test(experts_agree_with_the_reference),
        cmocka_unit_test(rotations_agree_with_the_reference),
        cmocka_unit_test(steps_agree_with_the_reference),
        cmocka_unit_test(a_gradient_that_is_no_number_is_measured),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
