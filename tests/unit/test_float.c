/* 16-bit floats compared with their definition: all 65,536 values, and values between neighbours. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/base/float.h"

/* Returns the value of an f16 by its definition. */
static double f16_value(uint16_t half)
{
    int exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half & 0x8000 ? -magnitude : magnitude;
}

static void widening_f16_is_exact(void **state)
{
    (void)state;
    for (unsigned half = 0; half < 0x10000; half++) {
        float wide = f16_to_f32((uint16_t)half);
        if ((half & 0x7c00) == 0x7c00) {
            assert_true(half & 0x3ff ? isnan(wide) : isinf(wide));
            assert_int_equal(signbit(wide) != 0, half >> 15);
        } else if (wide != f16_value((uint16_t)half) || (signbit(wide) != 0) != (half >> 15)) {
            fail_msg("f16 %04x widens to %.9g", half, wide);
        }
    }
}

static void f16_goes_there_and_back(void **state)
{
    (void)state;
    for (unsigned half = 0; half < 0x10000; half++) {
        float wide = f16_to_f32((uint16_t)half);
        uint16_t back = f32_to_f16(wide);
        if (isnan(wide))
            assert_true((back & 0x7c00) == 0x7c00 && (back & 0x3ff));
        else
            assert_int_equal(back, half);
    }
}

/* Between two neighbours: below the middle rounds down, above rounds up, the middle rounds to even. */
static void narrowing_to_f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned half = 0; half < 0x7bff; half++) {
        double low = f16_value((uint16_t)half), high = f16_value((uint16_t)(half + 1));
        float middle = (float)((low + high) / 2);               /* exact in f32 */
        assert_int_equal(f32_to_f16(middle), half & 1 ? half + 1 : half);
        assert_int_equal(f32_to_f16(nextafterf(middle, 0)), half);
        assert_int_equal(f32_to_f16(nextafterf(middle, INFINITY)), half + 1);
        assert_int_equal(f32_to_f16(-nextafterf(middle, INFINITY)), 0x8000 | (half + 1));
    }
    assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(f32_to_f16(1e-30f), 0);
    assert_int_equal(f32_to_f16(-1e-30f), 0x8000);
}

static void bf16_goes_there_and_back(void **state)
{
    (void)state;
    for (unsigned half = 0; half < 0x10000; half++) {
        float wide = bf16_to_f32((uint16_t)half);
        assert_int_equal(float_to_bits(wide), half << 16);
        uint16_t back = f32_to_bf16(wide);
        if (isnan(wide))
            assert_true((back & 0x7f80) == 0x7f80 && (back & 0x7f));
        else
            assert_int_equal(back, half);
    }
}

static void narrowing_to_bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned half = 0; half < 0x7f80; half++) {
        uint32_t middle = half << 16 | 0x8000;
        assert_int_equal(f32_to_bf16(float_from_bits(middle)), half & 1 ? half + 1 : half);
        assert_int_equal(f32_to_bf16(float_from_bits(middle - 1)), half);
        assert_int_equal(f32_to_bf16(float_from_bits(middle + 1)), half + 1);
    }
    /* A NaN whose upper half alone would be infinity. */
    assert_true(isnan(bf16_to_f32(f32_to_bf16(float_from_bits(0x7f800001)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_f16_is_exact),
        cmocka_unit_test(f16_goes_there_and_back),
        cmocka_unit_test(narrowing_to_f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_goes_there_and_back),
        cmocka_unit_test(narrowing_to_bf16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
