/* Compares a GPU with the emulator bit by bit: attention, and products on tensor cores in every weight format and with every
 * kernel; the number of rows selects the kernel. tests/emu/mma.cc models the sums of a Hopper tensor core, which Blackwell
 * shares. */
#include "tests/emu/kernels.h"
#include "tests/kernel/support.h"

static const int ROWS[] = {1, 2, 3, 7, 8, 9, 16, 17, 64};

static struct queue emulator(void) { return (struct queue){.state = emu_queue(2)}; }

/* Runs `op` on both from the same `before` and compares what is in `out`. */
#define SAME_ON_BOTH(op, arena, args, before, what, ...)                                \
    do {                                                                                \
        copy_into((args).out, before);                                                  \
        struct queue twin_queue = emulator(), device_queue = queue_of(1);               \
        cuda_ops.op(&twin_queue, &(args));                                              \
        struct buffer twin = arena_copy(arena, (args).out);                             \
        copy_into((args).out, before);                                                  \
        mirror_ops()->op(&device_queue, &(args));                                       \
        for (size_t twin_i = 0; twin_i < twin.bytes / sizeof(float); twin_i++)          \
            if (memcmp((float *)at(twin) + twin_i, (float *)at((args).out) + twin_i, sizeof(float)))             \
                fail_msg(what ": [%zu] is %a on the device, %a on the emulator", __VA_ARGS__, twin_i,            \
                         (double)((float *)at((args).out))[twin_i], (double)((float *)at(twin))[twin_i]);        \
    } while (0)

static void linear_is_the_emulators(void **state)
{
    (void)state;
    for (int f = 0; f < GPU_FORMATS; f++)
        for (int i = 0; i < LENGTH(ROWS); i++) {
            enum weight_format format = (enum weight_format)f;
            uint64_t seed = (uint64_t)(f * 100 + i);
            struct linear_args args = {.format = format, .rows = ROWS[i], .inputs = i % 2 ? 417 : 256, .outputs = 70,
                                       .in_stride = 417, .out_stride = 70};
            struct arena arena;
            arena_open(&arena);
            args.in = draw_floats(&arena, (size_t)args.rows * 417, 1, &seed);
            args.weight = draw_matrix(&arena, format, args.outputs, args.inputs, &seed);
            args.out = arena_take(&arena, (size_t)args.rows * 70 * sizeof(float));
            args.operand = take_operand(&arena, format, (size_t)args.rows, args.inputs);
            struct buffer before = arena_copy(&arena, args.out);
            SAME_ON_BOTH(linear, &arena, args, before, "%s, %d rows", format_name(format), args.rows);
            arena_close(&arena);
        }
}

static void experts_are_the_emulators(void **state)
{
    enum { EXPERTS = 6, SLOTS = 3, HIDDEN = 160, INNER = 96 };
    (void)state;
    for (int f = 0; f < GPU_FORMATS; f++)
        for (int i = 0; i < LENGTH(ROWS); i += 1 + f % 2) {
            enum weight_format format = (enum weight_format)f;
            uint64_t seed = (uint64_t)(f * 100 + i + 7);
            size_t rows = (size_t)ROWS[i], pairs = rows * SLOTS;
            struct expert_ffn_args args = {.format = format, .down_format = format, .rows = ROWS[i], .slots = SLOTS,
                                           .experts = EXPERTS, .hidden = HIDDEN, .inner_width = INNER};
            struct arena arena;
            arena_open(&arena);
            args.in = draw_floats(&arena, rows * HIDDEN, 1, &seed);
            args.out = draw_floats(&arena, rows * HIDDEN, 1, &seed);
            args.weight = draw_floats(&arena, pairs, 1, &seed);
            args.expert = arena_take(&arena, pairs * sizeof(int32_t));
            for (size_t p = 0; p < pairs; p++)
                ((int32_t *)at(args.expert))[p] = (int32_t)((p % SLOTS * 2 + p / SLOTS) % EXPERTS);
            args.table = arena_take(&arena, EXPERTS * sizeof(uint64_t));
            for (int e = 0; e < EXPERTS; e++)
                ((uint64_t *)at(args.table))[e] = draw_expert(&arena, format, HIDDEN, INNER, &seed).address;
            args.inner = arena_take(&arena, pairs * INNER * sizeof(float));
            args.partial = arena_take(&arena, pairs * HIDDEN * sizeof(float));
            args.group = arena_take(&arena, expert_group_numbers(EXPERTS, pairs) * sizeof(int32_t));
            args.operand = take_operand(&arena, format, pairs, HIDDEN > INNER ? HIDDEN : INNER);
            struct buffer before = arena_copy(&arena, args.out);
            SAME_ON_BOTH(expert_ffn, &arena, args, before, "%s, %d rows", format_name(format), args.rows);
            arena_close(&arena);
        }
}

static void attention_is_the_emulators(void **state)
{
    enum { HEADS = 6, KV_HEADS = 2, DIM = 64, CAPACITY = 300, STRIDE = HEADS * DIM };
    (void)state;
    for (int format = 0; format < CACHE_Q8; format++)
        for (int i = 0; i < LENGTH(ROWS) && ROWS[i] <= 17; i++) {
            uint64_t seed = (uint64_t)(format * 100 + i + 11);
            int32_t prefix[17], start[18] = {0}, path[17];
            size_t rows = (size_t)ROWS[i], cache = KV_HEADS * CAPACITY * DIM;
            for (int r = 0; r < ROWS[i]; r++) {
                prefix[r] = r % 3 ? 200 : 64;
                path[r] = 200 + r;
                start[r + 1] = r + 1;
            }
            struct attention_args args = {.scale = 0.1f, .format = (enum cache_format)format, .rows = ROWS[i], .heads = HEADS,
                                          .kv_heads = KV_HEADS, .head_dim = DIM, .value_dim = DIM, .capacity = CAPACITY,
                                          .stride = STRIDE};
            struct arena arena;
            arena_open(&arena);
            args.q = draw_floats(&arena, rows * STRIDE, 1, &seed);
            args.prefix = take_integers(&arena, prefix, rows);
            args.path_start = take_integers(&arena, start, rows + 1);
            args.path = take_integers(&arena, path, rows);
            args.out = arena_take(&arena, rows * STRIDE * sizeof(float));
            struct buffer *kept[] = {&args.k, &args.v};
            for (int n = 0; n < 2; n++) {
                *kept[n] = arena_take(&arena, cache * cache_size(args.format));
                for (size_t k = 0; k < cache; k++)
                    if (format == CACHE_F32)
                        ((float *)at(*kept[n]))[k] = draw_float(&seed);
                    else
                        ((uint16_t *)at(*kept[n]))[k] = format == CACHE_F16 ? f32_to_f16(draw_float(&seed))
                                                                            : f32_to_bf16(draw_float(&seed));
            }
            struct buffer before = arena_copy(&arena, args.out);
            SAME_ON_BOTH(attention, &arena, args, before, "cache %d, %d rows", format, args.rows);
            arena_close(&arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_the_emulators),
        cmocka_unit_test(experts_are_the_emulators),
        cmocka_unit_test(attention_is_the_emulators),
    };
    mirror_ops();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
