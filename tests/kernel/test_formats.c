/* Packed weights: position of every element, rounding, sizes, and invalid sizes; exp and silu. test_quantised.c tests the
 * blocks of q8 and q4. */
#include "common/base/float.h"
#include "kernels/plain/math.h"
#include "tests/kernel/support.h"

static void names_are_found(void **state)
{
    (void)state;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        enum weight_format found = FORMAT_COUNT;
        assert_true(format_by_name(format_name(f), &found));
        assert_int_equal(found, f);
    }
    enum weight_format kept = FORMAT_F16;
    assert_false(format_by_name("f64", &kept));
    assert_false(format_by_name("", &kept));
    assert_int_equal(kept, FORMAT_F16);
}

static void sizes_are_whole_units(void **state)
{
    (void)state;
    size_t bytes = 7;
    assert_true(matrix_bytes(FORMAT_F32, 1, 1, &bytes));
    assert_int_equal(bytes, 128);
    assert_true(matrix_bytes(FORMAT_BF16, 33, 3, &bytes));
    assert_int_equal(bytes, 2 * 2 * 128);
    assert_true(expert_bytes(FORMAT_BF16, 2048, 1024, &bytes));
    assert_int_equal(bytes, 3 * 2048 * 1024 * 2);
    assert_true(expert_bytes(FORMAT_F16, 33, 17, &bytes));
    assert_int_equal(bytes, 2 * (17 * 128) + 2 * (9 * 128));
    assert_int_equal(expert_down_offset(FORMAT_F16, 33, 17), 2 * (17 * 128));
    assert_int_equal(unit_bytes(FORMAT_F32, 5), 5 * 128);
    assert_true(expert_bytes(FORMAT_Q8, 2048, 1024, &bytes));
    assert_int_equal(bytes, 3 * 2048 * 1024 / 32 * 34);
    assert_true(matrix_bytes(FORMAT_Q4, 2048, 1024, &bytes));
    assert_int_equal(bytes, 2048 * 1024 / 32 * 18);
    assert_true(matrix_bytes(FORMAT_Q8, 33, 33, &bytes));
    assert_int_equal(bytes, 2 * 2 * 17 * 64);
    assert_int_equal(unit_bytes(FORMAT_Q4, 32), 9 * 64);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const int64_t bad[][2] = {{0, 1}, {1, 0}, {-1, 4}, {4, -1}, {INT64_MAX, 1}, {1, INT64_MAX}, {INT64_MAX, INT64_MAX},
                                     {INT64_MIN, 1}, {(int64_t)1 << 34, (int64_t)1 << 34}};
    for (int f = 0; f < FORMAT_COUNT; f++)
        for (int i = 0; i < LENGTH(bad); i++) {
            size_t bytes = 7;
            assert_false(matrix_bytes(f, bad[i][0], bad[i][1], &bytes));
            assert_false(expert_bytes(f, bad[i][0], bad[i][1], &bytes));
            assert_int_equal(bytes, 7);
        }
}

static float rounded(enum weight_format format, float value)
{
    if (format == FORMAT_F32)
        return value;
    return format == FORMAT_F16 ? f16_to_f32(f32_to_f16(value)) : bf16_to_f32(f32_to_bf16(value));
}

static void matrix_gives_back_what_was_packed(void **state)
{
    (void)state;
    static const int outputs[] = {1, 31, 32, 33, 100}, inputs[] = {1, 2, 7, 64, 131};
    for (int f = 0; f < FORMAT_FP8; f++)
        for (int o = 0; o < LENGTH(outputs); o++)
            for (int i = 0; i < LENGTH(inputs); i++) {
                uint64_t seed = 3;
                struct arena arena;
                size_t bytes, count = (size_t)outputs[o] * (size_t)inputs[i];
                arena_open(&arena);
                assert_true(matrix_bytes(f, outputs[o], inputs[i], &bytes));
                struct buffer packed = arena_take(&arena, bytes), value = draw_floats(&arena, count, 3, &seed);
                const float *values = at(value);
                memset(at(packed), 0, bytes);
                int first = outputs[o] / 3;                     /* in two calls */
                matrix_pack(f, at(packed), inputs[i], first, outputs[o] - first, values + (size_t)first * (size_t)inputs[i]);
                matrix_pack(f, at(packed), inputs[i], 0, first, values);
                for (size_t j = 0; j < count; j++)
                    assert_true(matrix_at(f, at(packed), inputs[i], (int)j / inputs[i], (int)j % inputs[i]) ==
                                rounded(f, values[j]));
                arena_close(&arena);
            }
}

static void elements_lie_where_the_header_says(void **state)
{
    (void)state;
    enum { OUTPUTS = 40, INPUTS = 5 };
    float values[OUTPUTS * INPUTS];
    unsigned char packed[2 * INPUTS * 128];
    for (int i = 0; i < OUTPUTS * INPUTS; i++)
        values[i] = (float)(i + 1);                             /* exact in all formats up to 200 */
    for (int f = 0; f < FORMAT_FP8; f++) {
        size_t unit = unit_bytes(f, INPUTS);
        memset(packed, 0, sizeof packed);
        matrix_pack(f, packed, INPUTS, 0, OUTPUTS, values);
        for (int o = 0; o < OUTPUTS; o++)
            for (int k = 0; k < INPUTS; k++) {
                const unsigned char *start = packed + unit * (size_t)(o / 32);
                float found;
                uint16_t half;
                if (f == FORMAT_F32) {
                    memcpy(&found, start + k * 128 + o % 32 * 4, 4);
                } else if (f == FORMAT_F16) {
                    memcpy(&half, start + k / 2 * 128 + k % 2 * 64 + o % 32 * 2, 2);
                    found = f16_to_f32(half);
                } else {
                    uint32_t both;
                    memcpy(&both, start + k / 2 * 128 + o % 32 * 4, 4);
                    found = bf16_to_f32((uint16_t)(k % 2 ? both >> 16 : both));
                }
                assert_true(found == values[o * INPUTS + k]);
            }
        size_t used = 0;
        for (size_t i = 0; i < 2 * unit; i++)
            used += packed[i] != 0;
        for (size_t i = 2 * unit; i < sizeof packed; i++)
            assert_int_equal(packed[i], 0);
        assert_true(used > 0 && used <= OUTPUTS * INPUTS * (f == FORMAT_F32 ? 4 : 2));
    }
}

static void expert_gives_back_what_was_packed(void **state)
{
    (void)state;
    static const int shapes[][2] = {{1, 1}, {33, 17}, {64, 16}, {7, 100}};
    for (int f = 0; f < FORMAT_FP8; f++)
        for (int i = 0; i < LENGTH(shapes); i++) {
            uint64_t seed = 3;
            struct arena arena;
            int hidden = shapes[i][0], inner = shapes[i][1];
            size_t bytes, count = (size_t)hidden * (size_t)inner;
            arena_open(&arena);
            assert_true(expert_bytes(f, hidden, inner, &bytes));
            struct buffer packed = arena_take(&arena, bytes);
            const float *gate = at(draw_floats(&arena, count, 1, &seed)), *up = at(draw_floats(&arena, count, 1, &seed));
            const float *down = at(draw_floats(&arena, count, 1, &seed));
            memset(at(packed), 0, bytes);
            expert_pack_gate_up(f, at(packed), hidden, 0, 0, inner, gate);
            expert_pack_gate_up(f, at(packed), hidden, 1, 0, inner, up);
            expert_pack_down(f, at(packed), hidden, inner, 0, hidden, down);
            for (int r = 0; r < inner; r++)
                for (int c = 0; c < hidden; c++) {
                    assert_true(expert_gate_at(f, at(packed), hidden, inner, r, c) == rounded(f, gate[r * hidden + c]));
                    assert_true(expert_up_at(f, at(packed), hidden, inner, r, c) == rounded(f, up[r * hidden + c]));
                    assert_true(expert_down_at(f, at(packed), hidden, inner, c, r) == rounded(f, down[c * inner + r]));
                }
            /* Outputs 0..15 of a gate/up unit are its gate rows, 16..31 the up rows of the same inner indices. */
            assert_true(matrix_at(f, at(packed), hidden, 0, hidden - 1) == rounded(f, gate[hidden - 1]));
            assert_true(matrix_at(f, at(packed), hidden, 16, hidden - 1) == rounded(f, up[hidden - 1]));
            arena_close(&arena);
        }
}

/* plain_exp over a grid of all exponents and signs, in a loop that compilers vectorise and one value at a time. */
static void exp_is_close_everywhere(void **state)
{
    (void)state;
    enum { BLOCK = 4096 };
    static float x[BLOCK], y[BLOCK];
    for (uint64_t block = 0; block < (uint64_t)1 << 32; block += (uint64_t)1 << 22) {
        for (int i = 0; i < BLOCK; i++)
            x[i] = plain_from_bits((uint32_t)(block + (uint64_t)i * 1021));
        for (int i = 0; i < BLOCK; i++)
            y[i] = plain_exp(x[i]);
        for (int i = 0; i < BLOCK; i++) {
            double exact = exp((double)x[i]);
            volatile float alone = x[i];
            float again = plain_exp(alone);
            assert_true(plain_to_bits(again) == plain_to_bits(y[i]));
            if (isnan(x[i]))
                assert_true(isnan(y[i]));
            else if (exact >= 0x1.ffffffp127)
                assert_true(y[i] == INFINITY);
            else
                assert_true(fabs((double)y[i] - exact) <= 1.1 * (exact < 0x1p-126 ? 0x1p-149 : ldexp(1, ilogb(exact) - 23)));
        }
    }
}

/* The same for plain_erf and plain_gelu, compared with the C library's in double. */
static void erf_and_gelu_are_close_everywhere(void **state)
{
    (void)state;
    enum { BLOCK = 2048 };
    static float x[BLOCK], y[BLOCK], z[BLOCK];
    for (uint64_t block = 0; block < (uint64_t)1 << 32; block += (uint64_t)1 << 22) {
        for (int i = 0; i < BLOCK; i++)
            x[i] = plain_from_bits((uint32_t)(block + (uint64_t)i * 2039));
        for (int i = 0; i < BLOCK; i++) {
            y[i] = plain_erf(x[i]);
            z[i] = plain_gelu(x[i]);
        }
        for (int i = 0; i < BLOCK; i++) {
            volatile float alone = x[i];
            float again = plain_erf(alone), opposite = plain_erf(-alone);
            assert_true(plain_to_bits(again) == plain_to_bits(y[i]));
            if (isnan(x[i])) {
                assert_true(isnan(y[i]) && isnan(z[i]));
                continue;
            }
            assert_true(opposite == -y[i] && fabsf(y[i]) <= 1);
            double exact = erf((double)x[i]), far = fabs((double)y[i] - exact);
            assert_true(far <= 7e-8 && (fabs(exact) < 0x1p-126 || far <= 1.8 * ldexp(1, ilogb(exact) - 23)));
            if (fabsf(x[i]) < 1e30f)
                assert_true(fabs((double)z[i] - 0.5 * x[i] * erfc(-(double)x[i] / sqrt(2))) <=
                            1.2e-7 * fabs((double)x[i]) + 0x1p-149);
        }
    }
}

static void log_is_close_everywhere(void **state)
{
    (void)state;
    for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += bits >= 0x3f700000u && bits < 0x3f900000u ? 61 : 4099) {
        float x = plain_from_bits(bits);
        double exact = log((double)x), far = fabs((double)plain_log(x) - exact);
        assert_true(far <= 1.1 * (exact == 0 ? 0 : ldexp(1, ilogb(exact) - 23)));
    }
    assert_true(plain_log(1) == 0 && fabsf(plain_log(10) - 2.30258509f) < 3e-7f);
}

static void erf_and_gelu_at_the_edges(void **state)
{
    (void)state;
    assert_true(plain_erf(0.0f) == 0 && !signbit(plain_erf(0.0f)) && signbit(plain_erf(-0.0f)));
    assert_true(plain_erf(INFINITY) == 1 && plain_erf(-INFINITY) == -1 && plain_erf(4.0f) == 1 && isnan(plain_erf(NAN)));
    assert_true(fabsf(plain_erf(0.5f) - 0.52049988f) < 7e-8f && fabsf(plain_erf(1.0f) - 0.84270079f) < 7e-8f);
    assert_true(plain_gelu(0.0f) == 0 && plain_gelu(10.0f) == 10 && plain_gelu(-10.0f) == 0);
    assert_true(plain_gelu(INFINITY) == INFINITY);
    assert_true(isnan(plain_gelu(-INFINITY)) && isnan(plain_gelu(NAN)));
    /* The form with tanh would give 0.84119199 and -0.15880801. */
    assert_true(fabsf(plain_gelu(1.0f) - 0.84134475f) < 1.2e-7f && fabsf(plain_gelu(-1.0f) + 0.15865525f) < 1.2e-7f);
}

static void exp_and_silu_at_the_edges(void **state)
{
    (void)state;
    assert_true(plain_exp(0.0f) == 1 && plain_exp(-0.0f) == 1);
    assert_true(plain_exp(-INFINITY) == 0 && plain_exp(-1e30f) == 0 && plain_exp(-104.0f) == 0);
    assert_true(plain_exp(-103.0f) == 0x1p-149f);
    assert_true(plain_exp(INFINITY) == INFINITY && plain_exp(88.73f) == INFINITY && plain_exp(88.72f) < INFINITY);
    assert_true(isnan(plain_exp(NAN)));
    assert_true(plain_silu(0.0f) == 0 && plain_silu(100.0f) == 100 && plain_silu(-200.0f) == 0 && isnan(plain_silu(NAN)));
    assert_true(fabsf(plain_silu(1.0f) - 0.73105858f) < 1e-7f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(sizes_are_whole_units),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(matrix_gives_back_what_was_packed),
        cmocka_unit_test(elements_lie_where_the_header_says),
        cmocka_unit_test(expert_gives_back_what_was_packed),
        cmocka_unit_test(exp_is_close_everywhere),
        cmocka_unit_test(exp_and_silu_at_the_edges),
        cmocka_unit_test(erf_and_gelu_are_close_everywhere),
        cmocka_unit_test(erf_and_gelu_at_the_edges),
        cmocka_unit_test(log_is_close_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
