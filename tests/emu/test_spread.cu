/* Products of narrow matrices, whose inputs are spread over several blocks (kernels/cuda/linear.cu): the bits equal those of
 * one block, for every number of live rows and in every schedule; slices are added in order, and the scratch is not
 * exceeded. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include "kernels/cuda/cuda.h"
#include "tests/emu/kernels.h"

/* 18 slices of 64 inputs, the last one of 12; three units, the last one of 6 outputs. */
enum { INPUTS = 1100, SLICE = 64, SLICES = 18, OUTPUTS = 70, UNITS = 3, ROWS = 17, TILE = 16 };

static uint64_t seed;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static float draw_float(void) { return (float)((double)draw() / 0x1p30 - 1); }

template <typename T> static T *at(struct buffer buffer) { return (T *)(uintptr_t)buffer.address; }

static struct buffer take(size_t bytes)
{
    void *memory = nullptr;
    assert_int_equal(dev_alloc(&memory, bytes), 0);
    return buffer{(uint64_t)(uintptr_t)memory, bytes};
}

static void give(struct buffer *buffer) { dev_free(at<void>(*buffer)); }

/* Makes a context with `bytes` of scratch and the tickets it needs. */
static struct cuda_context context_of(size_t bytes)
{
    struct cuda_context made = {};
    if (bytes) {
        struct buffer tickets = take(CONTEXT_TICKETS * sizeof(unsigned));
        memset(at<void>(tickets), 0, tickets.bytes);
        made.tickets = at<unsigned>(tickets);
        made.scratch = take(bytes);
    }
    return made;
}

static void context_end(struct cuda_context *context)
{
    for (int i = 0; context->tickets && i < CONTEXT_TICKETS; i++)
        assert_int_equal(context->tickets[i], 0);
    dev_free(context->tickets);
    give(&context->scratch);
}

/* Returns the scratch of `tiles` tiles of `rows` rows, as in kernels/cuda/tile.h. */
static size_t parts_of(int tiles, int rows) { return (size_t)(UNITS * tiles * SLICES * rows * UNIT_OUTPUTS) * sizeof(float); }

/* Returns the address of the packed bf16 weight of an output and an input. */
static uint16_t *weight_at(struct buffer weight, int o, int k)
{
    uint16_t *unit = at<uint16_t>(weight) + (size_t)(o / UNIT_OUTPUTS) * (INPUTS / 2) * 2 * UNIT_OUTPUTS;
    return unit + ((size_t)(k / 2) * UNIT_OUTPUTS + (size_t)(o % UNIT_OUTPUTS)) * 2 + k % 2;
}

static struct linear_args product(void)
{
    struct linear_args a = {};
    a.format = FORMAT_BF16;
    a.weight = take((size_t)UNITS * INPUTS * UNIT_OUTPUTS * sizeof(uint16_t));
    memset(at<void>(a.weight), 0, a.weight.bytes);
    a.in = take(ROWS * INPUTS * sizeof(float));
    a.out = take(ROWS * OUTPUTS * sizeof(float));
    a.rows = ROWS;
    a.inputs = a.in_stride = INPUTS;
    a.outputs = a.out_stride = OUTPUTS;
    for (int i = 0; i < ROWS * INPUTS; i++)
        at<float>(a.in)[i] = draw_float();
    return a;
}

static void product_end(struct linear_args *a)
{
    struct buffer *const all[] = {&a->weight, &a->in, &a->out};
    for (struct buffer *one : all)
        give(one);
}

static void run(struct cuda_context *context, struct linear_args *a, int rows, int turn)
{
    struct queue queue = {context};
    emu_options.schedule = turn % 3 == 0 ? EMU_FORWARD : turn % 3 == 1 ? EMU_REVERSE : EMU_RANDOM;
    emu_options.seed = (uint64_t)turn;
    a->rows = rows;
    memset(at<void>(a->out), 0xff, a->out.bytes);
    cuda_linear(&queue, a);
}

static void spread_inputs_change_no_bit(void **state)
{
    (void)state;
    seed = 3;
    struct linear_args a = product();
    for (int o = 0; o < OUTPUTS; o++)
        for (int k = 0; k < INPUTS; k++)
            *weight_at(a.weight, o, k) = f32_to_bf16(draw_float());
    struct buffer live = take(sizeof(int32_t)), want = take(a.out.bytes);
    static const int max[] = {ROWS, 8, 2}, counts[] = {1, 2, 3, 7, 8, 9, 16, 17};
    int turn = 0;
    for (int rows : max)
        for (int count : counts) {
            if (count > rows)
                continue;
            struct cuda_context alone = context_of(0), spread = context_of((size_t)1 << 20);
            run(&alone, &a, count, 0);
            memcpy(at<void>(want), at<void>(a.out), want.bytes);
            *at<int32_t>(live) = count;
            spread.live = at<int32_t>(live);
            for (int way = 0; way < 3; way++) {
                run(&spread, &a, rows, turn++);
                assert_memory_equal(at<char>(a.out), at<char>(want), want.bytes);
            }
            assert_int_not_equal(*at<uint32_t>(spread.scratch), 0xffffffffu);
            context_end(&alone);
            context_end(&spread);
        }
    give(&live);
    give(&want);
    product_end(&a);
}

/* Products of 1 and 2 rows have a kernel of their own, unless it is switched off; the bits are the same. */
static void few_rows_have_a_kernel_of_their_own(void **state)
{
    (void)state;
    dev_stream stream = nullptr;
    seed = 9;
    struct linear_args a = product();
    for (int o = 0; o < OUTPUTS; o++)
        for (int k = 0; k < INPUTS; k++)
            *weight_at(a.weight, o, k) = f32_to_bf16(draw_float());
    struct buffer want = take(a.out.bytes);
    assert_int_equal(dev_stream_new(&stream), 0);
    for (int rows = 1; rows <= 3; rows++)
        for (int off = 1; off >= 0; off--) {
            struct cuda_context context = context_of((size_t)1 << 20);
            context.stream = stream;
            context.off = off ? CUDA_FEW : 0;
            run(&context, &a, rows, rows);
            assert_int_equal(!strstr(dev_launches_of(stream)->kernel, "tile_has_few"), off || rows > 2);
            if (off)
                memcpy(at<void>(want), at<void>(a.out), want.bytes);
            assert_memory_equal(at<char>(a.out), at<char>(want), want.bytes);
            context_end(&context);
        }
    dev_stream_free(stream);
    give(&want);
    product_end(&a);
}

/* Memory that a later launch reads is prefetched once and completely, whichever blocks have live rows; no bit changes. */
static void later_weights_are_prefetched_once(void **state)
{
    (void)state;
    static const size_t bytes[] = {0, 16, 4999, 100000};
    seed = 11;
    struct linear_args a = product();
    struct buffer live = take(sizeof(int32_t)), want = take(a.out.bytes);
    for (int o = 0; o < OUTPUTS; o++)
        *weight_at(a.weight, o, o) = f32_to_bf16(draw_float());
    *at<int32_t>(live) = 1;
    for (size_t ahead : bytes)
        for (int rows = 1; rows <= ROWS; rows += ROWS - 1)
            for (int way = 0; way < 3; way++) {
                struct cuda_context context = context_of(way ? (size_t)1 << 20 : 0);
                context.live = rows > 1 ? at<int32_t>(live) : nullptr;
                context.off = way == 2 ? CUDA_AHEAD : 0;
                a.ahead = take(ahead ? ahead : 1);
                a.ahead.bytes = ahead;
                emu_prefetch_watch(at<void>(a.ahead), ahead ? ahead : 1);
                run(&context, &a, rows, way);
                assert_int_equal(emu_prefetched(), way == 2 ? 0 : ahead / 16 * 16);
                if (way == 0)
                    memcpy(at<void>(want), at<void>(a.out), want.bytes);
                assert_memory_equal(at<char>(a.out), at<char>(want), want.bytes);
                give(&a.ahead);
                context_end(&context);
            }
    emu_prefetch_watch(nullptr, 0);
    give(&live);
    give(&want);
    product_end(&a);
}

/* One weight in each slice, a power of two: a slice's sum is an exact product, and a row's result the sum of these products
 * in f32, one after the other. Their magnitudes differ enough that another order gives other bits. */
static void slices_are_added_in_their_order(void **state)
{
    (void)state;
    seed = 5;
    struct linear_args a = product();
    int weighty[OUTPUTS][SLICES], other_ways = 0;
    float power[OUTPUTS][SLICES];
    for (int o = 0; o < OUTPUTS; o++)
        for (int slice = 0; slice < SLICES; slice++) {
            int width = slice < SLICES - 1 ? SLICE : INPUTS - (SLICES - 1) * SLICE;
            weighty[o][slice] = slice * SLICE + (int)(draw() % (uint32_t)width);
            power[o][slice] = ldexpf(1, (int)(draw() % 12));
            *weight_at(a.weight, o, weighty[o][slice]) = f32_to_bf16(power[o][slice]);
        }
    for (int turn = 0; turn < 4; turn++) {
        struct cuda_context context = context_of(turn < 3 ? (size_t)1 << 20 : 0);
        run(&context, &a, turn == 1 ? 1 : ROWS, turn);
        for (int r = 0; r < a.rows; r++)
            for (int o = 0; o < OUTPUTS; o++) {
                const float *x = at<float>(a.in) + r * INPUTS;
                volatile float sum = 0, back = 0;
                for (int slice = 0; slice < SLICES; slice++) {
                    sum = sum + x[weighty[o][slice]] * power[o][slice];
                    back = back + x[weighty[o][SLICES - 1 - slice]] * power[o][SLICES - 1 - slice];
                }
                other_ways += sum != back;
                if (at<float>(a.out)[r * OUTPUTS + o] != sum)
                    fail_msg("row %d, output %d: %a, not %a", r, o, (double)at<float>(a.out)[r * OUTPUTS + o], (double)sum);
            }
        context_end(&context);
    }
    assert_true(other_ways > 1000);
    product_end(&a);
}

/* Exact to the byte: with less scratch one block computes all slices, and the scratch is not written. */
static void scratch_is_what_parts_take(void **state)
{
    (void)state;
    static const struct { int rows, tiles, tile; } shapes[] = {{1, 1, 2}, {8, 1, 8}, {9, 1, TILE}, {ROWS, 2, TILE}};
    seed = 7;
    struct linear_args a = product();
    for (const auto &s : shapes)
        for (int less = 0; less < 2; less++) {
            struct cuda_context context = context_of(parts_of(s.tiles, s.tile) - (size_t)less * sizeof(float));
            run(&context, &a, s.rows, s.rows);
            bool taken = *at<uint32_t>(context.scratch) != 0xffffffffu;
            assert_int_equal(taken, !less);
            context_end(&context);
        }
    product_end(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread_inputs_change_no_bit),
        cmocka_unit_test(few_rows_have_a_kernel_of_their_own),
        cmocka_unit_test(later_weights_are_prefetched_once),
        cmocka_unit_test(slices_are_added_in_their_order),
        cmocka_unit_test(scratch_is_what_parts_take),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
