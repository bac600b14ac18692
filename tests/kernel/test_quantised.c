/* q8 and q4: packed values and their positions, and activations as integers. */
#include "common/base/float.h"
#include "kernels/plain/quantise.h"
#include "kernels/ref/ref_internal.h"
#include "tests/kernel/support.h"

static const enum weight_format FORMATS[] = {FORMAT_Q8, FORMAT_Q4};

/* Packs one block alone: its integers and scale. */
static float pack_block(enum weight_format format, const float *values, int count, int *q)
{
    unsigned char packed[Q8_BLOCK_BYTES] = {0};
    float scale = -1;
    matrix_pack(format, packed, count, 0, 1, values);
    for (int i = 0; i < count; i++) {
        q[i] = matrix_integer(format, packed, count, 0, i, &scale);
        assert_true(matrix_at(format, packed, count, 0, i) == (float)q[i] * scale);
    }
    return scale;
}

static void weights_become_what_the_header_says(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int turn = 0; turn < 4000; turn++) {
        int count = 1 + draw_below(&seed, BLOCK_INPUTS), q[BLOCK_INPUTS], largest = 0;
        float values[BLOCK_INPUTS], size = ldexpf(1, draw_below(&seed, 21) - 3);
        for (int i = 0; i < count; i++) {
            values[i] = draw_float(&seed) * size;
            largest = fabsf(values[i]) > fabsf(values[largest]) ? i : largest;
        }
        float scale = pack_block(FORMAT_Q8, values, count, q);
        assert_true(scale == f16_to_f32(f32_to_f16(fabsf(values[largest]) / 127)));
        if (scale < 0x1p-14f)
            continue;                                               /* subnormal: see the odd values below */
        assert_int_equal(abs(q[largest]), 127);
        for (int i = 0; i < count; i++)
            assert_int_equal(q[i], lrintf(values[i] / scale));
        scale = pack_block(FORMAT_Q4, values, count, q);
        assert_true(scale == f16_to_f32(f32_to_f16(values[largest] / -8)));
        assert_int_equal(q[largest], -8);                           /* 16 times larger: practically never subnormal */
        for (int i = 0; i < count; i++) {
            long exact = lrintf(values[i] / scale);
            assert_int_equal(q[i], exact > 7 ? 7 : exact);
        }
    }
}

static void odd_blocks_of_weights(void **state)
{
    (void)state;
    static const float zeros[3] = {0, -0.0f, 0}, tiny[2] = {3e-9f, -1e-9f};
    static const float ties[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f};
    static const int to_even[] = {127, 0, 2, 2, 0, -2, 126};
    static const float both[] = {1, -1, 0.9f}, small[] = {127 * 0x1p-24f * 1.4f, 127 * 0x1p-24f};
    int q[BLOCK_INPUTS];
    for (int f = 0; f < LENGTH(FORMATS); f++) {
        assert_true(pack_block(FORMATS[f], zeros, 3, q) == 0);
        assert_true(q[0] == 0 && q[1] == 0 && q[2] == 0);
        assert_true(pack_block(FORMATS[f], tiny, 2, q) == 0);       /* the scale is below half the smallest f16 */
        assert_true(q[0] == 0 && q[1] == 0);
    }
    assert_true(pack_block(FORMAT_Q8, ties, LENGTH(ties), q) == 1);
    for (int i = 0; i < LENGTH(ties); i++)
        assert_int_equal(q[i], to_even[i]);
    assert_true(pack_block(FORMAT_Q4, both, 3, q) == -0.125f);      /* the first of two equal ones gets the end */
    assert_true(q[0] == -8 && q[1] == 7 && q[2] == -7);
    assert_true(pack_block(FORMAT_Q8, small, 2, q) == 0x1p-24f);    /* a subnormal scale: codes saturate */
    assert_true(q[0] == 127 && q[1] == 127);
}

static void elements_lie_where_the_header_says(void **state)
{
    (void)state;
    enum { OUTPUTS = 40, INPUTS = 70 };
    for (int f = 0; f < LENGTH(FORMATS); f++) {
        const enum weight_format format = FORMATS[f];
        const size_t unit = unit_bytes(format, INPUTS), block = unit / 3;
        static float values[OUTPUTS * INPUTS];
        static unsigned char packed[2 * 3 * Q8_BLOCK_BYTES + 64];
        uint64_t seed = 9;
        for (int i = 0; i < OUTPUTS * INPUTS; i++)
            values[i] = draw_float(&seed);
        memset(packed, 0, sizeof packed);
        matrix_pack(format, packed, INPUTS, 7, OUTPUTS - 7, values + 7 * INPUTS);          /* in two calls */
        matrix_pack(format, packed, INPUTS, 0, 7, values);
        for (int o = 0; o < OUTPUTS; o++)
            for (int k = 0; k < 96; k++) {
                const unsigned char *start = packed + unit * (size_t)(o / 32) + block * (size_t)(k / 32);
                int group = k % 32 / 4, pair = group / 2;
                int q = format == FORMAT_Q8 ? start[group * 128 + o % 32 * 4 + k % 4] - 128
                      : group % 2 ? (start[pair * 128 + o % 32 * 4 + k % 4] >> 4) - 8
                                  : (start[pair * 128 + o % 32 * 4 + k % 4] & 15) - 8;
                uint16_t half;
                memcpy(&half, start + block - 64 + o % 32 * 2, 2);
                if (k >= INPUTS) {
                    assert_int_equal(q, 0);
                    continue;
                }
                float max = fabsf(f16_to_f32(half)) * (format == FORMAT_Q8 ? 0.51f : 1.01f);
                assert_true(fabsf((float)q * f16_to_f32(half) - values[o * INPUTS + k]) <= max);
                assert_true((float)q * f16_to_f32(half) == matrix_at(format, packed, INPUTS, o, k));
            }
        for (int o = OUTPUTS; o < 64; o++)
            assert_true(matrix_at(format, packed, INPUTS, o, 3) == 0);
        for (size_t i = 2 * unit; i < sizeof packed; i++)
            assert_int_equal(packed[i], 0);
    }
}

/* Unpacked values pack to the same bytes; an expert's parts equal matrices of the same rows. */
static void packing_again_changes_nothing(void **state)
{
    (void)state;
    enum { HIDDEN = 45, INNER = 37 };
    for (int f = 0; f < LENGTH(FORMATS); f++) {
        const enum weight_format format = FORMATS[f];
        struct arena arena;
        uint64_t seed = 21;
        float row[HIDDEN], *values = calloc(INNER * HIDDEN, sizeof *values);
        size_t bytes;
        arena_open(&arena);
        struct buffer expert = draw_expert(&arena, format, HIDDEN, INNER, &seed);
        assert_true(expert_bytes(format, HIDDEN, INNER, &bytes));
        struct buffer again = arena_take(&arena, bytes);
        memset(at(again), 0, bytes);
        for (int part = 0; part < 2; part++)
            for (int r = 0; r < INNER; r++) {
                for (int k = 0; k < HIDDEN; k++)
                    row[k] = part ? expert_up_at(format, at(expert), HIDDEN, INNER, r, k)
                                  : expert_gate_at(format, at(expert), HIDDEN, INNER, r, k);
                memcpy(values + r * HIDDEN, row, sizeof row);
                expert_pack_gate_up(format, at(again), HIDDEN, part, r, 1, row);
            }
        for (int r = 0; r < HIDDEN; r++) {
            for (int k = 0; k < INNER; k++)
                row[k] = expert_down_at(format, at(expert), HIDDEN, INNER, r, k);
            expert_pack_down(format, at(again), HIDDEN, INNER, r, 1, row);
        }
        assert_true(same_bits(expert, again));
        assert_true(matrix_bytes(format, INNER, HIDDEN, &bytes));
        struct buffer up = arena_take(&arena, bytes);
        memset(at(up), 0, bytes);
        matrix_pack(format, at(up), HIDDEN, 0, INNER, values);
        for (int i = 0; i < INNER * HIDDEN; i++)
            assert_true(matrix_at(format, at(up), HIDDEN, i / HIDDEN, i % HIDDEN) == values[i]);
        free(values);
        arena_close(&arena);
    }
}

static void quantise(const float *in, int count, struct quantised *out)
{
    struct quantised reference;
    plain_quantise(in, count, out->q, &out->scale, &out->total, out->sum);
    ref_quantise(in, count, &reference);
    if (isnan(out->scale) && isnan(reference.scale))
        out->scale = reference.scale = out->total = reference.total = 0.0f;
    assert_memory_equal(out, &reference, sizeof reference);
}

static void activations_become_what_the_header_says(void **state)
{
    (void)state;
    uint64_t seed = 77;
    struct quantised out;
    for (int turn = 0; turn < 20000; turn++) {
        int count = 1 + draw_below(&seed, BLOCK_INPUTS), sum = 0, half = 0, max = 0;
        float in[BLOCK_INPUTS], size = ldexpf(1, draw_below(&seed, 200) - 80);
        for (int i = 0; i < count; i++)
            in[i] = draw_float(&seed) * size;
        quantise(in, count, &out);
        for (int i = 0; i < BLOCK_INPUTS; i++) {
            float exact = i < count ? in[i] : 0;
            assert_true(fabs((double)out.q[i] * (double)out.scale - (double)exact) <= 0.5001 * (double)out.scale);
            sum += out.q[i];
            half += i < BLOCK_INPUTS / 2 ? out.q[i] : 0;
            max = abs(out.q[i]) > max ? abs(out.q[i]) : max;
        }
        assert_int_equal(out.sum[0], half);
        assert_int_equal(out.sum[1], sum - half);
        assert_true(out.total == out.scale * (float)sum);
        assert_int_equal(max, 127);
    }
}

static void odd_blocks_of_activations(void **state)
{
    (void)state;
    static const float ties[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, -127, -126.5f},
        huge[] = {-3.4e38f, 1, 3e38f, 1.4e36f};
    static const int to_even[] = {127, 0, 2, 2, 0, -2, 126, -127, -126}, far[] = {-127, 0, 112, 1};
    static const float below[] = {0x1.fffffep-101f, -1e-31f, 1e-45f}, edge[] = {-0x1p-100f, 0x1p-101f, 1e-40f};
    const float broken[][2] = {{NAN, 1}, {-INFINITY, 2}, {3, INFINITY}, {-NAN, INFINITY}};
    struct quantised out, zeros = {{0}, 0, 0, {0}};
    quantise(ties, LENGTH(ties), &out);
    assert_true(out.scale == 1);
    for (int i = 0; i < LENGTH(ties); i++)
        assert_int_equal(out.q[i], to_even[i]);
    quantise(huge, LENGTH(huge), &out);
    assert_true(out.scale == 3.4e38f / 127);
    for (int i = 0; i < LENGTH(huge); i++)
        assert_int_equal(out.q[i], far[i]);
    quantise((const float[]){0, -0.0f}, 2, &out);
    assert_memory_equal(&out, &zeros, sizeof out);
    quantise(below, 3, &out);
    assert_memory_equal(&out, &zeros, sizeof out);
    quantise(edge, 3, &out);
    assert_true(out.q[0] == -127 && out.q[1] == 64 && out.q[2] == 0 && out.scale == 0x1p-100f / 127);
    for (int i = 0; i < LENGTH(broken); i++) {
        plain_quantise(broken[i], 2, out.q, &out.scale, &out.total, out.sum);
        assert_true(isnan(out.scale));
        out.scale = out.total = 0;
        assert_memory_equal(&out, &zeros, sizeof out);
        quantise(broken[i], 2, &out);
    }
}

/* A NaN among the inputs is visible in the result. */
static void broken_activations_spread(void **state)
{
    (void)state;
    for (int f = 0; f < LENGTH(FORMATS); f++) {
        struct arena arena;
        uint64_t seed = 3;
        arena_open(&arena);
        struct buffer in = draw_floats(&arena, 2 * 70, 1, &seed);
        ((float *)at(in))[40] = INFINITY;
        struct linear_args args = {.in = in, .weight = draw_matrix(&arena, FORMATS[f], 33, 70, &seed),
                                   .out = arena_take(&arena, 2 * 33 * sizeof(float)),
                                   .operand = take_operand(&arena, FORMATS[f], 2, 70),
                                   .format = FORMATS[f], .rows = 2, .inputs = 70, .outputs = 33, .in_stride = 70,
                                   .out_stride = 33};
        FOR_EACH_ISA(isa) {
            struct queue queue = queue_of(1);
            poison(args.out);
            isa->ops.linear(&queue, &args);
            for (int o = 0; o < 33; o++) {
                assert_true(isnan(((float *)at(args.out))[o]));
                assert_true(isfinite(((float *)at(args.out))[33 + o]));
            }
        }
        arena_close(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_become_what_the_header_says),
        cmocka_unit_test(odd_blocks_of_weights),
        cmocka_unit_test(elements_lie_where_the_header_says),
        cmocka_unit_test(packing_again_changes_nothing),
        cmocka_unit_test(activations_become_what_the_header_says),
        cmocka_unit_test(odd_blocks_of_activations),
        cmocka_unit_test(broken_activations_spread),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
