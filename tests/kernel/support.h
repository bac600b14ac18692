/* Shared by kernel tests: memory with guards that also serves the reference as checked memory, random numbers, packing, and
 * the comparison. A failure ends the running test (cmocka). */
#ifndef MOE_TESTS_KERNEL_SUPPORT_H
#define MOE_TESTS_KERNEL_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "kernels/plugin.h"
#include "kernels/ref/ref.h"
#include "tests/kernel/coded.h"
#include "tests/kernel/tolerance.h"

/* Registers memory that operations use: with the device's mirror, the emulator's race detector, or not at all. */
#if defined(MOE_DEVICE)
#include "tests/device/mirror.h"
#define memory_comes(piece, bytes) mirror_add(piece, bytes)
#define memory_goes(piece) mirror_remove(piece)
#elif defined(MOE_EMU)
#include "tests/emu/kernels.h"
#define memory_comes(piece, bytes) emu_region(piece, bytes)
#define memory_goes(piece) emu_region_end(piece)
#else
#define memory_comes(piece, bytes) ((void)0)
#define memory_goes(piece) ((void)0)
#endif

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))
#define UNUSED __attribute__((unused))

/* ---- memory: every piece is filled with 0xff (a NaN in f32) and lies between guards of the same ---- */

enum { ARENA_PIECES = 64, ARENA_GUARD = 256 };

struct arena {
    struct ref_memory memory;               /* first, so that a pointer to it can be cast back */
    unsigned char *piece[ARENA_PIECES];     /* its first byte after the guard */
    size_t bytes[ARENA_PIECES];
    int count;
};

static void *arena_resolve(struct ref_memory *memory, struct buffer buffer, uint64_t bytes)
{
    struct arena *arena = (struct arena *)memory;
    assert_true(bytes <= buffer.bytes);
    for (int i = 0; i < arena->count; i++) {
        uint64_t base = (uint64_t)(uintptr_t)arena->piece[i];
        if (buffer.address >= base && buffer.address + buffer.bytes <= base + arena->bytes[i])
            return (void *)(uintptr_t)buffer.address;
    }
    fail_msg("the reference reads memory that is not its own");
    return NULL;
}

static UNUSED void arena_open(struct arena *arena)
{
    *arena = (struct arena){.memory = {arena_resolve}};
}

static UNUSED struct buffer arena_take(struct arena *arena, size_t bytes)
{
    size_t room = (bytes + 2 * ARENA_GUARD + 63) & ~(size_t)63;
    unsigned char *base = aligned_alloc(64, room);
    assert_non_null(base);
    assert_true(arena->count < ARENA_PIECES);
    memset(base, 0xff, room);
    arena->piece[arena->count] = base + ARENA_GUARD;
    arena->bytes[arena->count++] = bytes;
    memory_comes(base + ARENA_GUARD, bytes);
    return (struct buffer){(uint64_t)(uintptr_t)(base + ARENA_GUARD), bytes};
}

/* Checks that nothing was written outside the pieces. */
static UNUSED void arena_check(const struct arena *arena)
{
    for (int i = 0; i < arena->count; i++)
        for (size_t g = 0; g < ARENA_GUARD; g++) {
            assert_int_equal(arena->piece[i][g - ARENA_GUARD], 0xff);
            assert_int_equal(arena->piece[i][arena->bytes[i] + g], 0xff);
        }
}

/* Returns the piece that was taken last. */
static UNUSED void arena_give_back(struct arena *arena)
{
    unsigned char *piece = arena->piece[--arena->count];
    memory_goes(piece);
    free(piece - ARENA_GUARD);
}

static UNUSED void arena_close(struct arena *arena)
{
    arena_check(arena);
    while (arena->count)
        arena_give_back(arena);
}

static inline void *at(struct buffer buffer) { return (void *)(uintptr_t)buffer.address; }

static inline void poison(struct buffer buffer)
{
    if (buffer.bytes)
        memset(at(buffer), 0xff, buffer.bytes);
}

/* The same for integers, which may contain -1. */
static inline void poison_integers(struct buffer buffer)
{
    if (buffer.bytes)
        memset(at(buffer), 0x5a, buffer.bytes);
}

/* Returns a copy in the same arena. */
static UNUSED struct buffer arena_copy(struct arena *arena, struct buffer from)
{
    struct buffer to = arena_take(arena, from.bytes);
    memcpy(at(to), at(from), from.bytes);
    return to;
}

static inline void copy_into(struct buffer to, struct buffer from)
{
    assert_int_equal(to.bytes, from.bytes);
    memcpy(at(to), at(from), from.bytes);
}

static inline int same_bits(struct buffer a, struct buffer b)
{
    return a.bytes == b.bytes && memcmp(at(a), at(b), a.bytes) == 0;
}

/* ---- random numbers ---- */

static inline uint32_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t mixed = (*seed ^ *seed >> 29) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(mixed >> 32);
}

static inline int draw_below(uint64_t *seed, int end) { return (int)(draw(seed) % (uint32_t)end); }
static inline float draw_float(uint64_t *seed) { return (float)((double)draw(seed) * 0x1p-31 - 1); }       /* -1 .. 1 */

static UNUSED struct buffer draw_floats(struct arena *arena, size_t count, float scale, uint64_t *seed)
{
    struct buffer buffer = arena_take(arena, count * sizeof(float));
    float *value = at(buffer);
    for (size_t i = 0; i < count; i++)
        value[i] = draw_float(seed) * scale;
    return buffer;
}

static UNUSED struct buffer take_integers(struct arena *arena, const int32_t *value, size_t count)
{
    struct buffer buffer = arena_take(arena, count * sizeof *value);
    if (count)
        memcpy(at(buffer), value, count * sizeof *value);
    return buffer;
}

/* Packs row o of a matrix, for formats that are not made from floats. */
static UNUSED void draw_coded_row(enum weight_format format, void *packed, int inputs, int o, float size, uint64_t *seed)
{
    unsigned char *coded = coded_draw(format, inputs, size, seed);
    matrix_pack_coded(format, packed, inputs, o, 1, coded);
    free(coded);
}

/* Returns a packed matrix of random values of the order 1/sqrt(inputs). */
static UNUSED struct buffer draw_matrix(struct arena *arena, enum weight_format format, int outputs, int inputs, uint64_t *seed)
{
    size_t bytes;
    assert_true(matrix_bytes(format, outputs, inputs, &bytes));
    struct buffer packed = arena_take(arena, bytes);
    float *row = calloc((size_t)inputs, sizeof *row);
    memset(at(packed), 0, bytes);
    for (int o = 0; o < outputs; o++) {
        for (int i = 0; i < inputs; i++)
            row[i] = draw_float(seed) * 1.7f / sqrtf((float)inputs);
        if (format_from_floats(format))
            matrix_pack(format, at(packed), inputs, o, 1, row);
        else
            draw_coded_row(format, at(packed), inputs, o, 1.7f / sqrtf((float)inputs), seed);
    }
    free(row);
    return packed;
}

/* The same for an expert's block whose down has a format of its own. */
static UNUSED struct buffer draw_mixed_expert(struct arena *arena, enum weight_format format, enum weight_format last,
                                              int hidden, int inner, uint64_t *seed)
{
    size_t bytes, width = (size_t)(hidden > inner ? hidden : inner), offset = expert_down_offset(format, hidden, inner);
    assert_true(matrix_bytes(last, hidden, inner, &bytes));
    bytes += offset;
    struct buffer packed = arena_take(arena, bytes);
    float *row = calloc(width, sizeof *row);
    memset(at(packed), 0, bytes);
    for (int part = 0; part < 3; part++)
        for (int o = 0; o < (part < 2 ? inner : hidden); o++) {
            int inputs = part < 2 ? hidden : inner;
            for (int i = 0; i < inputs; i++)
                row[i] = draw_float(seed) * 3 / sqrtf((float)inputs);
            enum weight_format own = part < 2 ? format : last;
            if (!format_from_floats(own)) {
                unsigned char *coded = coded_draw(own, inputs, 3 / sqrtf((float)inputs), seed);
                if (part < 2)
                    expert_pack_gate_up_coded(own, at(packed), hidden, part, o, 1, coded);
                else
                    matrix_pack_coded(own, (char *)at(packed) + offset, inner, o, 1, coded);
                free(coded);
            } else if (part < 2)
                expert_pack_gate_up(own, at(packed), hidden, part, o, 1, row);
            else
                matrix_pack(own, (char *)at(packed) + offset, inner, o, 1, row);
        }
    free(row);
    return packed;
}

static UNUSED struct buffer draw_expert(struct arena *arena, enum weight_format format, int hidden, int inner, uint64_t *seed)
{
    return draw_mixed_expert(arena, format, format, hidden, inner, seed);
}

/* Returns scratch for rows of activations as integers. */
static UNUSED struct buffer take_operand(struct arena *arena, enum weight_format format, size_t rows, int inputs)
{
    size_t bytes = rows * operand_bytes(format, inputs);
    return bytes ? arena_take(arena, bytes) : (struct buffer){0, 0};
}

/* ---- comparison ---- */

/* Returns the first of `count` floats that is not within the tolerance (if the reference is finite) or not equal (if it is
 * not); -1: none. */
static inline long first_far(const float *device, const float *reference, size_t count, struct tolerance tolerance)
{
    for (size_t i = 0; i < count; i++) {
        double limit = (double)tolerance.absolute + (double)tolerance.relative * fabs((double)reference[i]);
        if (device[i] == reference[i] || (isnan(device[i]) && isnan(reference[i])))
            continue;
        if (!isfinite(reference[i]) || !(fabs((double)device[i] - (double)reference[i]) <= limit))
            return (long)i;
    }
    return -1;
}

/* Compares, and proves that the comparison works: one value moved by ten times its tolerance must be found. */
static UNUSED void assert_close(const char *what, struct buffer device, struct buffer reference, struct tolerance tolerance)
{
    float *value = at(device);
    const float *expected = at(reference);
    size_t count = device.bytes / sizeof *value;
    assert_int_equal(device.bytes, reference.bytes);
    long far = first_far(value, expected, count, tolerance);
    if (far >= 0)
        fail_msg("%s: [%ld] is %.9g, reference %.9g", what, far, (double)value[far], (double)expected[far]);
    for (size_t i = count / 2; i < count; i++)
        if (!isnan(expected[i])) {
            float kept = value[i];
            value[i] += 10 * (tolerance.absolute + tolerance.relative * fabsf(expected[i]));
            if (value[i] == kept)
                value[i] = nextafterf(kept, INFINITY);
            assert_int_equal(first_far(value, expected, count, tolerance), (long)i);
            value[i] = kept;
            return;
        }
}

/* Computes by separate operations the sums of the same call of expert_ffn, weighted and added to `before` in the contract's
 * order; they must equal `sums`, computed in one call. */
static UNUSED void assert_apart_sums_up(const struct device_ops *ops, struct queue queue, const struct expert_ffn_args *args,
                                        struct buffer before, struct buffer sums)
{
    struct expert_ffn_args a = *args;
    const int32_t *expert = a.expert.address ? at(a.expert) : NULL;
    const float *weight = a.weight.address ? at(a.weight) : NULL, *partial = at(a.partial);
    a.apart = true;
    a.out = a.weight = (struct buffer){0, 0};
    poison(a.partial);
    poison(a.inner);
    ops->expert_ffn(&queue, &a);
    for (int r = 0; r < a.rows; r++)
        for (int i = 0; i < a.hidden; i++) {
            float sum = ((float *)at(before))[r * a.hidden + i];
            for (int pair = r * a.slots; pair < (r + 1) * a.slots; pair++) {
                float part = partial[pair * a.hidden + i], share = weight ? weight[pair] : 1;
                if (expert && expert[pair] < 0)
                    assert_memory_equal(&part, &(uint32_t){0xffffffff}, sizeof part);
                else
                    sum = fmaf(a.scale != 0 ? share * a.scale : share, part, sum);
            }
            assert_memory_equal(&sum, (float *)at(sums) + r * a.hidden + i, sizeof sum);
        }
}

/* --- devices --- */

/* Under sanitisers memory accesses are tested, and a part of the shapes has them all; the long check runs every shape. */
UNUSED static bool kernel_brief(void) { return getenv("MOE_SANITIZED") && !getenv("MOE_LONG"); }

/* SPARSE: tests run one in that many of their shapes, because the emulator and compute-sanitizer are slow. */
#ifdef MOE_DEVICE
enum { POOLS = 1, SPARSE = MOE_DEVICE };
#elif !defined(MOE_EMU)
enum { POOLS = 3, SPARSE = 1 };
#elif defined(__SANITIZE_ADDRESS__)
enum { POOLS = 1, SPARSE = 53 };
#else
enum { POOLS = 3, SPARSE = 13 };
#endif

/* On the emulator the daily check runs a part of the long check's shapes. */
UNUSED static bool kernel_sample(void) { return SPARSE > 1 && !getenv("MOE_LONG"); }

static inline struct queue queue_of_ref(struct arena *arena) { return (struct queue){.state = &arena->memory}; }

#if defined(MOE_EMU) || defined(MOE_DEVICE)

#ifdef MOE_DEVICE
static UNUSED const char *other_name(void) { return mirror_name(); }
static UNUSED const struct device_ops *other_ops(void) { return mirror_ops(); }
static inline struct queue queue_of(int threads) { return (void)threads, (struct queue){.state = NULL}; }
#else
static UNUSED const char *other_name(void) { return "emulated"; }
static UNUSED const struct device_ops *other_ops(void) { return &cuda_ops; }
static inline struct queue queue_of(int threads) { return (struct queue){.state = emu_queue(threads)}; }
#endif

enum { EMULATED = 1 };

static inline const struct device_ops *host_ops(void) { return &cpu_isas()[0]->ops; }

static UNUSED struct queue queue_of_host(void)
{
    static struct thread_pool *pool;
    if (!pool)
        assert_int_equal(thread_pool_new(&pool, 1, NULL), 0);
    return (struct queue){.state = pool};
}

static UNUSED const struct cpu_isa *const *emulated(void)
{
    static struct cpu_isa isa;
    static const struct cpu_isa *const all[] = {&isa, NULL};
    isa.name = other_name();
    isa.ops = *other_ops();
    return all;
}
#define cpu_isas emulated

static UNUSED int pools_open(void **state) { return *state = NULL, 0; }
static UNUSED int pools_close(void **state) { return *state = NULL, 0; }

#else

static struct thread_pool *pools[POOLS + 1];               /* of 1, 2 and 3 threads */

/* Tests that compare devices with each other begin with the host's bits if the emulated GPU promises equal ones. */
enum { EMULATED = 0 };

static inline const struct device_ops *host_ops(void) { return &cpu_isas()[0]->ops; }
static inline struct queue queue_of_host(void) { return (struct queue){.state = pools[1]}; }

static UNUSED int pools_open(void **state)
{
    (void)state;
    for (int i = 1; i <= POOLS; i++)
        if (thread_pool_new(&pools[i], i, NULL))
            return -1;
    return 0;
}

static UNUSED int pools_close(void **state)
{
    (void)state;
    for (int i = 1; i <= POOLS; i++)
        thread_pool_free(&pools[i]);
    return 0;
}

static inline struct queue queue_of(int threads) { return (struct queue){.state = pools[threads]}; }

#endif

/* for every instruction set: const struct cpu_isa *isa */
#define FOR_EACH_ISA(isa) \
    for (const struct cpu_isa *const *isa##_at = cpu_isas(), *isa = *isa##_at; isa; isa = *++isa##_at)

/* Instruction sets whose products with weights of this format have one order, and therefore equal bits (linear.h). */
enum { ORDERS = 2 };
static inline int order_of(const struct cpu_isa *isa, enum weight_format format) { return isa->tiles && format == FORMAT_BF16; }

/* The formats up to q6_k, and one with grids: apart from the products of units, operations treat all woven formats alike,
 * and all formats with grids. */
enum { PRODUCT_FORMATS = EMULATED ? (int)GPU_FORMATS : (int)FORMAT_COUNT };
#define FOR_KINDS_OF_FORMAT(format) \
    for (int format = 0; format < PRODUCT_FORMATS; \
         format = format == FORMAT_Q6_K ? FORMAT_IQ3_S : format < FORMAT_Q6_K ? format + 1 : FORMAT_COUNT)

/* Kinds of products: by format of the weights; bf16 with rounded activations; formats after q4 with quantised activations.
 * No emulated GPU has the last two. */
enum { ROUNDED = FORMAT_COUNT, INTEGERS = FORMAT_COUNT + 1,
       PRODUCT_KINDS = EMULATED ? (int)PRODUCT_FORMATS : INTEGERS + (int)FORMAT_COUNT - (int)FORMAT_MXFP4 };

/* Returns the next kind to test: the formats of FOR_KINDS_OF_FORMAT, bf16 rounded, and q4_k and q6_k with integers. */
static inline int kind_after(int kind)
{
    if (kind >= ROUNDED)
        return kind == ROUNDED ? INTEGERS + 1 : kind < INTEGERS + 2 ? kind + 1 : PRODUCT_KINDS;
    return kind == FORMAT_Q6_K ? (int)FORMAT_IQ3_S : kind < FORMAT_Q6_K ? kind + 1 : FORMAT_COUNT;
}
#define FOR_PRODUCT_KINDS(kind) for (int kind = 0; kind < PRODUCT_KINDS; kind = kind_after(kind))

static inline enum weight_format kind_format(int kind)
{
    return kind >= INTEGERS ? (enum weight_format)((int)FORMAT_MXFP4 + kind - INTEGERS)
                            : kind == ROUNDED ? FORMAT_BF16 : (enum weight_format)kind;
}

static inline const char *kind_name(int kind)
{
    static char name[32];
    if (kind < ROUNDED)
        return format_name(kind_format(kind));
    snprintf(name, sizeof name, "%s, %s", format_name(kind_format(kind)), kind == ROUNDED ? "rounded" : "integers");
    return name;
}

/* Sets how products of the kind convert activations. */
static inline void kind_queue(int kind, struct queue *queue)
{
    queue->bf16_activations = kind == ROUNDED;
    queue->integer_activations = kind >= INTEGERS;
}

/* Returns whether the contract specifies every bit. */
static inline bool kind_exact(int kind) { return kind >= ROUNDED || format_quantised(kind_format(kind)); }
static inline int kind_order(const struct cpu_isa *isa, int kind)
{
    return kind >= ROUNDED ? 0 : order_of(isa, kind_format(kind));
}

#endif
