/* Rotary positions, the KV cache and attention: compared with the reference; a node of a tree gets the bits of its path laid
 * out as a sequence. */
#include <float.h>

#include "kernels/plain/quantise.h"
#include "tests/kernel/paths.h"

struct shape {
    int rows, heads, kv_heads, head_dim, value_dim, committed, window, sink;
    bool aligned;
};

struct call {
    struct arena arena;
    struct attention_args args;
};

/* The formats that the tested device can keep. */
enum { FORMATS = EMULATED ? CACHE_Q8 : CACHE_FORMATS };

/* A cache of `rows` rows. */
struct cache {
    enum cache_format format;
    char *data;
    size_t rows, width;
};

static float *cache_scale_of(const struct cache *c, size_t row)
{
    return (float *)(void *)(c->data + cache_scales(c->format, c->rows, c->width)) + row;
}

static void put_row(const struct cache *c, size_t row, const float *value)
{
    if (c->format == CACHE_Q8)
        *cache_scale_of(c, row) = plain_quantise_row(value, (int)c->width, (int8_t *)c->data + row * c->width);
    for (size_t i = 0; i < c->width && c->format != CACHE_Q8; i++)
        put(c->format, c->data, row * c->width + i, value[i]);
}

static void copy_row(const struct cache *to, size_t row, const struct cache *from, size_t its)
{
    const size_t bytes = to->width * cache_size(to->format);
    memcpy(to->data + row * bytes, from->data + its * bytes, bytes);
    if (to->format == CACHE_Q8)
        *cache_scale_of(to, row) = *cache_scale_of(from, its);
}

/* Slots that no query sees hold NaN; with q8 their scale is NaN. */
static struct buffer draw_cache(struct call *call, const struct shape *s, int width, uint64_t *seed)
{
    const struct attention_args *a = &call->args;
    const size_t rows = (size_t)(s->kv_heads * a->capacity);
    struct buffer buffer = arena_take(&call->arena, cache_rows_bytes(a->format, rows, (size_t)width));
    const struct cache cache = {a->format, at(buffer), rows, (size_t)width};
    float value[ATTENTION_HEAD_DIM_MAX];
    poison(buffer);
    for (int h = 0; h < s->kv_heads; h++)
        for (int slot = 0; slot < s->committed + s->rows; slot++) {
            for (int i = 0; i < width; i++)
                value[i] = draw_float(seed);
            put_row(&cache, (size_t)(h * a->capacity + slot), value);
        }
    return buffer;
}

static void call_open(struct call *call, const struct shape *s, enum cache_format format, uint64_t seed)
{
    struct attention_args *a = &call->args;
    size_t used = (size_t)s->heads * (size_t)s->head_dim;
    arena_open(&call->arena);
    *a = (struct attention_args){.scale = 3 / sqrtf((float)s->head_dim), .rows = s->rows, .heads = s->heads,
                                 .format = format, .kv_heads = s->kv_heads, .head_dim = s->head_dim, .value_dim = s->value_dim,
                                 .capacity = s->committed + s->rows + 3, .stride = (int)used + 5, .window = s->window,
                                 .aligned = s->aligned,
                                 .longest = seed % 2 ? s->committed + s->rows : 0};
    a->q = draw_floats(&call->arena, (size_t)s->rows * (size_t)a->stride, 1, &seed);
    a->k = draw_cache(call, s, s->head_dim, &seed);
    a->v = draw_cache(call, s, s->value_dim, &seed);
    if (s->sink)
        a->sink = draw_floats(&call->arena, (size_t)s->heads, (float)s->sink, &seed);
    a->out = arena_take(&call->arena, (size_t)(s->rows * s->heads * s->value_dim) * sizeof(float));
    const struct paths paths = draw_paths(&call->arena, s->rows, s->committed, &seed);
    call->args.prefix = paths.prefix;
    call->args.path_start = paths.start;
    call->args.path = paths.path;
}

static void run(struct call *call, const struct device_ops *ops, struct queue queue)
{
    poison(call->args.out);
    ops->attention(&queue, &call->args);
    arena_check(&call->arena);
}

static const struct shape SHAPES[] = {
    {1, 1, 1, 1, 1, 0, 0, 0}, {1, 2, 1, 7, 7, 1, 0, 0}, {2, 2, 2, 16, 16, 63, 0, 0}, {3, 4, 2, 33, 33, 64, 0, 0},
    {7, 4, 1, 64, 64, 65, 0, 0}, {9, 12, 4, 16, 16, 127, 0, 0}, {17, 3, 3, 128, 128, 130, 0, 0}, {64, 2, 2, 24, 24, 200, 0, 0},
    {1, SPARSE > 1 ? 2 : 16, SPARSE > 1 ? 2 : 16, 128, 128, 700, 0, 0}, {5, 16, 1, 80, 80, 10, 0, 0},
    {9, 4, 2, 32, 32, 200, 1, 0}, {9, 4, 2, 32, 32, 200, 2, 0},
    {9, 4, 2, 32, 32, 200, 64, 0}, {9, 4, 2, 32, 32, 200, 100, 0}, {9, 4, 2, 32, 32, 20, 4096, 0},
    {SPARSE > 1 ? 70 : 130, 2, 1, 64, 64, 3, 33, 0},
    {9, 4, 2, 32, 32, 198, 7, 0, true}, {9, 4, 2, 32, 32, 189, 64, 0, true}, {9, 4, 2, 32, 32, 195, 100, 2, true},
    {9, 4, 4, 24, 17, 130, 0, 0}, {5, 3, 1, 17, 40, 70, 9, 0}, {17, 4, 4, 192, 128, 90, 0, 0}, {9, 4, 2, 32, 32, 130, 0, 1},
    {3, 6, 3, 20, 33, 64, 30, 6}, {1, 2, 1, 8, 8, 0, 0, 30},
    {3, 5, 1, 320, 304, 70, 0, 1}, {1, 3, 1, 1024, 300, 64, 0, 0},      /* more than a GPU takes at once */
};

static void trees_agree_with_the_reference(void **state)
{
    (void)state;
    for (int n = 0; n < FORMATS * LENGTH(SHAPES); n += kernel_sample() ? 4 : SPARSE > 1 ? 2 : 1) {
        int i = n / FORMATS, format = n % FORMATS;
        const struct shape *s = &SHAPES[i];
        struct call call;
        char what[128];
        call_open(&call, s, (enum cache_format)format, (uint64_t)i + 1);
        run(&call, &ref_ops, queue_of_ref(&call.arena));
        struct buffer expected = arena_copy(&call.arena, call.args.out), first = {0};
        if (EMULATED) {
            run(&call, host_ops(), queue_of_host());
            first = arena_copy(&call.arena, call.args.out);
        }
        FOR_EACH_ISA(isa)
            for (int threads = 1; threads <= POOLS; threads++) {
                snprintf(what, sizeof what, "%s %d threads, shape %d, format %d", isa->name, threads, i, format);
                run(&call, &isa->ops, queue_of(threads));
                assert_close(what, call.args.out, expected, TOLERANCE_ATTENTION);
                if (!first.address)
                    first = arena_copy(&call.arena, call.args.out);
                assert_true(same_bits(first, call.args.out));
            }
        arena_close(&call.arena);
    }
}

/* Runs row r of the tree alone, with its path copied into the slots right after the prefix. */
static void assert_same_when_linear(const struct call *tree, const struct shape *s, int row, const struct cpu_isa *isa)
{
    const struct attention_args *a = &tree->args;
    const int32_t *start = at(a->path_start), *path = at(a->path);
    int depth = start[row + 1] - start[row], length = s->committed + depth, zero[2] = {0, 0};
    const size_t rows = (size_t)s->kv_heads * (size_t)length, its = (size_t)s->kv_heads * (size_t)a->capacity;
    size_t width = (size_t)s->head_dim, wide = (size_t)s->value_dim, used = (size_t)s->heads * wide;
    struct attention_args line = *a;
    struct arena arena;
    arena_open(&arena);
    line.rows = 1;
    line.capacity = length;
    line.q = buffer_part(a->q, (size_t)row * (size_t)a->stride * sizeof(float),
                         (size_t)s->heads * width * sizeof(float));
    line.k = arena_take(&arena, cache_rows_bytes(a->format, rows, width));
    line.v = arena_take(&arena, cache_rows_bytes(a->format, rows, wide));
    const struct cache k = {a->format, at(line.k), rows, width}, v = {a->format, at(line.v), rows, wide};
    const struct cache from_k = {a->format, at(a->k), its, width}, from_v = {a->format, at(a->v), its, wide};
    line.out = arena_take(&arena, used * sizeof(float));
    line.prefix = take_integers(&arena, &length, 1);
    line.path_start = take_integers(&arena, zero, 2);
    line.path = (struct buffer){0};
    for (int h = 0; h < s->kv_heads; h++)
        for (int j = 0; j < length; j++) {
            int slot = j < s->committed ? j : path[start[row] + j - s->committed];
            size_t from = (size_t)h * (size_t)a->capacity + (size_t)slot, to = (size_t)h * (size_t)length + (size_t)j;
            copy_row(&k, to, &from_k, from);
            copy_row(&v, to, &from_v, from);
        }
    struct queue queue = queue_of(2);
    isa->ops.attention(&queue, &line);
    assert_memory_equal(at(line.out), (float *)at(a->out) + (size_t)row * used, used * sizeof(float));
    arena_close(&arena);
}

static void tree_equals_its_sequences_laid_out(void **state)
{
    (void)state;
    for (int n = 0; n < FORMATS * LENGTH(SHAPES); n += kernel_sample() ? 4 : SPARSE > 1 ? 2 : 1) {
        int i = n / FORMATS;
        struct call call;
        call_open(&call, &SHAPES[i], (enum cache_format)(n % FORMATS), (uint64_t)i + 100);
        FOR_EACH_ISA(isa) {
            run(&call, &isa->ops, queue_of(3));
            for (int r = 0; r < SHAPES[i].rows; r += 1 + SHAPES[i].rows / (SPARSE > 1 ? 3 : 9))
                assert_same_when_linear(&call, &SHAPES[i], r, isa);
        }
        arena_close(&call.arena);
    }
}

static void window_of_one_is_the_own_value(void **state)
{
    (void)state;
    const struct shape s = {4, 2, 2, 16, 16, 5, 1, 0};
    struct call call;
    call_open(&call, &s, CACHE_F32, 8);
    const struct attention_args *a = &call.args;
    FOR_EACH_ISA(isa) {
        run(&call, &isa->ops, queue_of(1));
        for (int r = 0; r < s.rows; r++)
            for (int h = 0; h < s.heads; h++)
                assert_memory_equal((float *)at(a->out) + (r * s.heads + h) * s.head_dim,
                                    (float *)at(a->v) + (h * a->capacity + s.committed + r) * s.head_dim,
                                    (size_t)s.head_dim * sizeof(float));
    }
    arena_close(&call.arena);
}

/* In q8, values of zero give zeros, and one value of NaN makes all columns NaN. */
static void q8_keeps_zeros_and_nan(void **state)
{
    (void)state;
    const struct shape s = {5, 2, 1, 16, 20, 70, 0, 0};
    const size_t count = (size_t)(s.rows * s.heads * s.value_dim);
    struct call call;
    if (EMULATED)                       /* keeps no q8 */
        return;
    call_open(&call, &s, CACHE_Q8, 9);
    const struct cache v = {CACHE_Q8, at(call.args.v), (size_t)call.args.capacity, (size_t)s.value_dim};
    const float zero[ATTENTION_HEAD_DIM_MAX] = {0}, nan[ATTENTION_HEAD_DIM_MAX] = {NAN};
    for (int last = 0; last < 2; last++) {
        for (int slot = 0; slot < s.committed + s.rows; slot++)
            put_row(&v, (size_t)slot, last && slot == s.committed / 2 ? nan : zero);
        const struct device_ops *ops = &ref_ops;
        struct queue queue = queue_of_ref(&call.arena);
        for (const struct cpu_isa *const *isa = cpu_isas();; ops = &(*isa++)->ops, queue = queue_of(2)) {
            run(&call, ops, queue);
            for (size_t i = 0; i < count; i++)
                assert_true(last ? isnan(((float *)at(call.args.out))[i]) : ((float *)at(call.args.out))[i] == 0);
            if (!*isa)
                break;
        }
    }
    arena_close(&call.arena);
}

static void rope_agrees_with_the_reference(void **state)
{
    (void)state;
    static const struct {
        int rows, heads, head_dim, rotary;
    } shapes[] = {{1, 1, 2, 2}, {3, 2, 16, 16}, {9, 4, 33, 10}, {64, 3, 128, 128}, {512, 16, 64, 32}};
    for (int i = 0; i < LENGTH(shapes); i++) {
        uint64_t seed = (uint64_t)i + 1;
        struct arena arena;
        size_t rows = (size_t)shapes[i].rows, half = (size_t)shapes[i].rotary / 2;
        enum { POSITIONS = 40 };
        arena_open(&arena);
        struct rope_args args = {.rows = shapes[i].rows, .heads = shapes[i].heads, .head_dim = shapes[i].head_dim,
                                 .rotary = shapes[i].rotary, .stride = shapes[i].heads * shapes[i].head_dim + 3};
        struct buffer before = draw_floats(&arena, rows * (size_t)args.stride, 1, &seed), expected;
        args.table = arena_take(&arena, POSITIONS * half * 2 * sizeof(float));
        args.position = arena_take(&arena, rows * sizeof(int32_t));
        args.x = arena_copy(&arena, before);
        for (size_t j = 0; j < POSITIONS * half; j++) {
            float angle = 3 * draw_float(&seed);
            ((float *)at(args.table))[2 * j] = cosf(angle);
            ((float *)at(args.table))[2 * j + 1] = sinf(angle);
        }
        for (size_t r = 0; r < rows; r++)
            ((int32_t *)at(args.position))[r] = r ? draw_below(&seed, POSITIONS) : POSITIONS - 1;
        struct queue queue = queue_of_ref(&arena);
        ref_ops.rope(&queue, &args);
        expected = arena_copy(&arena, args.x);
        struct buffer first = {0};
        if (EMULATED) {
            queue = queue_of_host();
            copy_into(args.x, before);
            host_ops()->rope(&queue, &args);
            first = arena_copy(&arena, args.x);
        }
        FOR_EACH_ISA(isa) {
            queue = queue_of(2);
            copy_into(args.x, before);
            isa->ops.rope(&queue, &args);
            assert_close("rope", args.x, expected, TOLERANCE_ROPE);
            if (!first.address)
                first = arena_copy(&arena, args.x);
            assert_true(same_bits(first, args.x));
            for (size_t r = 0; r < rows; r++)
                for (size_t h = 0; h < (size_t)args.heads; h++) {
                    size_t rest = r * (size_t)args.stride + h * (size_t)args.head_dim + 2 * half;
                    assert_memory_equal((float *)at(args.x) + rest, (float *)at(before) + rest,
                                        ((size_t)args.head_dim - 2 * half) * sizeof(float));
                }
        }
        arena_close(&arena);
    }
}

static void cache_is_written_and_moved(void **state)
{
    (void)state;
    enum { ROWS = 70, HEADS = 3, SHARED = 61, OWN = 452, DIM = SHARED + OWN, WIDE = 129, CAPACITY = 90,
        STRIDE = HEADS * OWN + 2 };
    uint64_t seed = 4;
    struct arena arena;
    int32_t slot[ROWS], from[] = {9, 12, 15, 60}, to[] = {8, 9, 10, 60};
    arena_open(&arena);
    for (int r = 0; r < ROWS; r++)
        slot[r] = (r * 37 + 5) % 89;
    struct buffer keys = draw_floats(&arena, HEADS * CAPACITY * DIM, 1, &seed), first_k = {0}, first_v = {0};
    struct buffer values = draw_floats(&arena, HEADS * CAPACITY * WIDE, 1, &seed);
    struct kv_write_args write = {.rows = ROWS, .kv_heads = HEADS, .head_dim = DIM, .value_dim = WIDE, .capacity = CAPACITY,
                                  .stride = STRIDE, .shared_width = SHARED, .shared_stride = SHARED + 3};
    struct kv_move_args move = {.count = LENGTH(to), .kv_heads = HEADS, .head_dim = DIM, .value_dim = WIDE,
                                .capacity = CAPACITY};
    write.shared = draw_floats(&arena, ROWS * (SHARED + 3), 1, &seed);
    write.in_k = draw_floats(&arena, ROWS * STRIDE, 1, &seed);
    write.in_v = draw_floats(&arena, ROWS * STRIDE, 1, &seed);
    write.slot = take_integers(&arena, slot, ROWS);
    move.from = take_integers(&arena, from, LENGTH(from));
    move.to = take_integers(&arena, to, LENGTH(to));
    struct queue queue = queue_of_ref(&arena);
    const struct device_ops *ops = &ref_ops;
    for (const struct cpu_isa *const *isa = cpu_isas();; ops = &(*isa++)->ops, queue = queue_of(2)) {
        write.k = move.k = arena_copy(&arena, keys);
        write.v = move.v = arena_copy(&arena, values);
        ops->kv_write(&queue, &write);
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < HEADS; h++) {
                float *k = (float *)at(write.k) + (h * CAPACITY + slot[r]) * DIM;
                float *v = (float *)at(write.v) + (h * CAPACITY + slot[r]) * WIDE;
                assert_memory_equal(k, (float *)at(write.shared) + r * (SHARED + 3), SHARED * sizeof(float));
                assert_memory_equal(k + SHARED, (float *)at(write.in_k) + r * STRIDE + h * OWN, OWN * sizeof(float));
                assert_memory_equal(v, (float *)at(write.in_v) + r * STRIDE + h * WIDE, WIDE * sizeof(float));
            }
        struct buffer k = arena_copy(&arena, write.k), v = arena_copy(&arena, write.v);
        ops->kv_move(&queue, &move);
        for (int h = 0; h < HEADS; h++)         /* slot 9 was read before it was overwritten */
            for (int i = 0; i < LENGTH(to); i++) {
                assert_memory_equal((float *)at(move.k) + (h * CAPACITY + to[i]) * DIM,
                                    (float *)at(k) + (h * CAPACITY + from[i]) * DIM, DIM * sizeof(float));
                assert_memory_equal((float *)at(move.v) + (h * CAPACITY + to[i]) * WIDE,
                                    (float *)at(v) + (h * CAPACITY + from[i]) * WIDE, WIDE * sizeof(float));
            }
        if (!first_k.address) {
            first_k = move.k;
            first_v = move.v;
        }
        assert_true(same_bits(first_k, move.k) && same_bits(first_v, move.v));
        if (!*isa)
            break;
    }
    arena_close(&arena);
}

/* A cache of 16 bits stores the rounded number, on every instruction set, and moves it unchanged. */
static void narrow_caches_round(void **state)
{
    (void)state;
    enum { DIM = 37, WIDE = 21, SHARED = 5, CAPACITY = 9, HEADS = 2, OWN = DIM - SHARED };
    static const float odd[] = {65504, 65519, 65520, 1e9f, -7e4f, 1e-8f, -3e-7f, 1.00390625f, 1.01171875f, 0, -0.0f, INFINITY};
    for (int f = CACHE_F16; f < CACHE_Q8; f++) {
        enum cache_format format = (enum cache_format)f;
        uint64_t seed = 6;
        struct arena arena;
        arena_open(&arena);
        const int32_t slot = 7, to = 3;
        struct kv_write_args write = {.rows = 1, .kv_heads = HEADS, .head_dim = DIM, .value_dim = WIDE, .capacity = CAPACITY,
                                      .stride = HEADS * DIM, .shared_width = SHARED, .shared_stride = SHARED, .format = format};
        struct kv_move_args move = {.count = 1, .kv_heads = HEADS, .head_dim = DIM, .value_dim = WIDE, .capacity = CAPACITY,
                                    .format = format};
        write.shared = draw_floats(&arena, SHARED, 100, &seed);
        write.in_k = draw_floats(&arena, HEADS * DIM, 3, &seed);
        write.in_v = draw_floats(&arena, HEADS * DIM, 70000, &seed);
        write.slot = move.from = take_integers(&arena, &slot, 1);
        move.to = take_integers(&arena, &to, 1);
        memcpy(at(write.in_v), odd, sizeof odd);
        write.k = move.k = arena_take(&arena, HEADS * CAPACITY * DIM * 2);
        write.v = move.v = arena_take(&arena, HEADS * CAPACITY * WIDE * 2);
        struct queue queue = queue_of_ref(&arena);
        const struct device_ops *ops = &ref_ops;
        for (const struct cpu_isa *const *isa = cpu_isas();; ops = &(*isa++)->ops, queue = queue_of(2)) {
            poison(write.k);
            poison(write.v);
            ops->kv_write(&queue, &write);
            ops->kv_move(&queue, &move);
            for (int h = 0; h < HEADS; h++)
                for (int i = 0; i < DIM + WIDE; i++) {
                    float value = i < SHARED ? ((float *)at(write.shared))[i]
                        : i < DIM ? ((float *)at(write.in_k))[h * OWN + i - SHARED]
                        : ((float *)at(write.in_v))[h * WIDE + i - DIM];
                    uint16_t *cache = i < DIM ? (uint16_t *)at(write.k) + (h * CAPACITY) * DIM + i
                        : (uint16_t *)at(write.v) + (h * CAPACITY) * WIDE + i - DIM, wanted;
                    int width = i < DIM ? DIM : WIDE;
                    float cut = format == CACHE_F16 ? fminf(fmaxf(value, -65504), 65504) : value;
                    put(format, &wanted, 0, cut);
                    assert_int_equal(cache[slot * width], wanted);
                    assert_int_equal(cache[to * width], wanted);
                    assert_int_equal(cache[4 * width], 0xffff);
                }
            arena_check(&arena);
            if (!*isa)
                break;
        }
        arena_close(&arena);
    }
}

/* A row of q8 has the codes and the scale that its largest number determines and moves with its scale; nothing else is
 * written. */
static void q8_rows_have_a_scale_each(void **state)
{
    if (EMULATED)
        skip();
    (void)state;
    enum { DIM = 37, SHARED = 5, OWN = DIM - SHARED, WIDE = 21, CAPACITY = 9, HEADS = 3, ROWS = HEADS * CAPACITY };
    enum { SLOT = 7, TO = 3 };
    uint64_t seed = 16;
    struct arena arena;
    const int32_t slot = SLOT, to = TO;
    arena_open(&arena);
    struct kv_write_args write = {.rows = 1, .kv_heads = HEADS, .head_dim = DIM, .value_dim = WIDE, .capacity = CAPACITY,
                                  .stride = HEADS * DIM, .shared_width = SHARED, .shared_stride = SHARED, .format = CACHE_Q8};
    struct kv_move_args move = {.count = 1, .kv_heads = HEADS, .head_dim = DIM, .value_dim = WIDE, .capacity = CAPACITY,
                                .format = CACHE_Q8};
    write.shared = draw_floats(&arena, SHARED, 5, &seed);
    write.in_k = draw_floats(&arena, HEADS * DIM, 3, &seed);
    write.in_v = draw_floats(&arena, HEADS * DIM, 1, &seed);
    write.slot = move.from = take_integers(&arena, &slot, 1);
    move.to = take_integers(&arena, &to, 1);
    memset((float *)at(write.in_v) + WIDE, 0, WIDE * sizeof(float));    /* the second head's */
    ((float *)at(write.in_v))[2 * WIDE] = INFINITY;
    write.k = move.k = arena_take(&arena, cache_rows_bytes(CACHE_Q8, ROWS, DIM));
    write.v = move.v = arena_take(&arena, cache_rows_bytes(CACHE_Q8, ROWS, WIDE));
    struct queue queue = queue_of_ref(&arena);
    const struct device_ops *ops = &ref_ops;
    for (const struct cpu_isa *const *isa = cpu_isas();; ops = &(*isa++)->ops, queue = queue_of(2)) {
        poison(write.k);
        poison(write.v);
        ops->kv_write(&queue, &write);
        ops->kv_move(&queue, &move);
        for (int n = 0; n < 2 * HEADS; n++) {
            const int h = n / 2, width = n % 2 ? WIDE : DIM;
            const struct cache c = {CACHE_Q8, at(n % 2 ? write.v : write.k), ROWS, (size_t)width};
            float x[DIM], max = 0;
            for (int i = 0; i < width; i++) {
                x[i] = n % 2 ? ((float *)at(write.in_v))[h * WIDE + i]
                    : i < SHARED ? ((float *)at(write.shared))[i] : ((float *)at(write.in_k))[h * OWN + i - SHARED];
                max = fmaxf(max, fabsf(x[i]));
            }
            for (int s = 0; s < CAPACITY; s++) {
                const int8_t *code = (int8_t *)c.data + (h * CAPACITY + s) * width;
                const float scale = *cache_scale_of(&c, (size_t)(h * CAPACITY + s));
                for (int i = 0; i < width; i++)
                    assert_int_equal(code[i], s != SLOT && s != TO ? -1
                                     : max > 0 && max < INFINITY ? lrintf(x[i] * (127 / max)) : 0);
                if ((s != SLOT && s != TO) || max > FLT_MAX)
                    assert_true(isnan(scale));
                else
                    assert_true(scale == max / 127);
            }
        }
        arena_check(&arena);
        if (!*isa)
            break;
    }
    arena_close(&arena);
}

/* The operations between projection and attention, as one call and one by one: equal bits, in caches of every format. */
static void qkv_is_its_parts_in_turn(void **state)
{
    (void)state;
    static const struct qkv_shape {
        int rows, heads, kv_heads, head_dim, rotary;
        int norm, limit;                /* norm 1: of each head, 2: of all, 3: of each, centered */
        int fixed;                      /* of a key's rotary floats; 0: like a query's */
    } shapes[] = {{1, 1, 1, 2, 2, 0, 0, 0}, {3, 4, 2, 16, 16, 1, 0, 0}, {9, 6, 3, 33, 10, 1, 0, 0},
                  {17, 4, 1, 128, 128, 1, 0, 0}, {5, 2, 2, 200, 64, 0, 0, 0}, {4, 4, 2, 24, 24, 2, 0, 0},
                  {4, 4, 2, 24, 24, 1, 1, 0}, {4, 4, 2, 24, 24, 3, 0, 0}, {4, 4, 2, 24, 24, 0, 0, 8},
                  {2, 16, 16, 128, 128, 2, 0, 0}, {3, 5, 2, 40, 10, 2, 0, 0}, {2, 4, 2, 24, 24, 2, 1, 0}};
    for (int i = 0; i < FORMATS * LENGTH(shapes); i++) {
        const struct qkv_shape *shape = &shapes[i / FORMATS];
        const int rows = shape->rows, heads = shape->heads, kv_heads = shape->kv_heads;
        const int width = shape->head_dim, half = shape->rotary / 2, capacity = rows + 4;
        const int stride = (heads + 2 * kv_heads) * width + i % 2, whole = shape->norm == 2;
        const size_t bytes = cache_rows_bytes((enum cache_format)(i % FORMATS), (size_t)(kv_heads * capacity), (size_t)width);
        uint64_t seed = (uint64_t)i + 50;
        struct arena arena;
        int32_t position[32];
        arena_open(&arena);
        for (int r = 0; r < rows; r++)
            position[r] = rows - r;
        struct buffer before = draw_floats(&arena, (size_t)(rows * stride), 1, &seed), x = arena_copy(&arena, before);
        struct buffer k = buffer_part(x, (uint64_t)(heads * width) * 4, x.bytes - (uint64_t)(heads * width) * 4);
        struct buffer v = buffer_part(x, (uint64_t)((heads + kv_heads) * width) * 4,
                                      x.bytes - (uint64_t)((heads + kv_heads) * width) * 4);
        struct buffer table = draw_floats(&arena, (size_t)(rows + 4) * (size_t)half * 2, 1, &seed);
        struct buffer positions = take_integers(&arena, position, (size_t)rows);
        struct buffer q_weight = draw_floats(&arena, (size_t)(heads * width), 1, &seed), none = {0, 0};
        struct buffer k_weight = draw_floats(&arena, (size_t)(kv_heads * width), 1, &seed);
        struct qkv_args args = {
            .q_norm = {.in = x, .out = x, .weight = shape->norm ? q_weight : none, .epsilon = 1e-6f, .rows = rows,
                       .bias = shape->norm == 3 ? k_weight : none, .center = shape->norm == 3,
                       .parts = whole ? 1 : heads, .width = whole ? heads * width : width, .in_stride = stride,
                       .out_stride = stride},
            .clamp = {.x = x, .limit = 0.5f * (float)shape->limit, .rows = rows, .width = stride, .stride = stride},
            .q_rope = {.x = x, .table = table, .position = positions, .rows = rows, .heads = heads, .head_dim = width,
                       .rotary = 2 * half, .stride = stride},
            .write = {.in_k = k, .in_v = v, .slot = positions, .format = (enum cache_format)(i % FORMATS), .rows = rows,
                      .kv_heads = kv_heads, .head_dim = width, .value_dim = width, .capacity = capacity, .stride = stride}};
        args.k_norm = args.q_norm;
        args.k_norm.in = args.k_norm.out = k;
        args.k_norm.weight = shape->norm ? k_weight : none;
        args.k_norm.parts = whole ? 1 : kv_heads;
        args.k_norm.width = whole ? kv_heads * width : width;
        args.k_norm.epsilon = 1e-2f;
        args.k_rope = args.q_rope;
        args.k_rope.x = k;
        args.k_rope.rotary -= shape->fixed;
        args.k_rope.heads = kv_heads;
        args.write.k = arena_take(&arena, bytes);
        args.write.v = arena_take(&arena, bytes);
        struct queue queue = queue_of_host();
        ops_qkv_in_turn(host_ops(), &queue, &args);
        struct buffer q_want = arena_copy(&arena, x), k_want = arena_copy(&arena, args.write.k);
        struct buffer v_want = arena_copy(&arena, args.write.v);
        FOR_EACH_ISA(isa) {
            queue = queue_of(3);
            copy_into(x, before);
            poison(args.write.k);
            poison(args.write.v);
#ifdef MOE_EMU
            const int launches = emu_launches(), one = !shape->limit && shape->norm != 3 && !shape->fixed;
#endif
            ops_qkv(&isa->ops, &queue, &args);
#ifdef MOE_EMU
            assert_int_equal(emu_launches() - launches, one ? 1 : 3 + 2 * (shape->norm > 0) + shape->limit);
#endif
            arena_check(&arena);
            assert_true(same_bits(args.write.k, k_want) && same_bits(args.write.v, v_want));
            for (int r = 0; r < rows; r++)
                assert_memory_equal((float *)at(x) + r * stride, (float *)at(q_want) + r * stride,
                                    (size_t)(heads * width) * sizeof(float));
        }
        arena_close(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_agree_with_the_reference),
        cmocka_unit_test(tree_equals_its_sequences_laid_out),
        cmocka_unit_test(window_of_one_is_the_own_value),
        cmocka_unit_test(q8_keeps_zeros_and_nan),
        cmocka_unit_test(rope_agrees_with_the_reference),
        cmocka_unit_test(qkv_is_its_parts_in_turn),
        cmocka_unit_test(cache_is_written_and_moved),
        cmocka_unit_test(narrow_caches_round),
        cmocka_unit_test(q8_rows_have_a_scale_each),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
