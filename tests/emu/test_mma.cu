/* The emulated tensor core: the sums of mmasim's models of Ampere and Hopper (tests/emu/golden), the positions of a lane's
 * registers in the tiles, and that a column does not depend on the others. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include "tests/emu/inside.h"
#include "kernels/cuda/dev.h"

struct golden {
    uint16_t a[16], b[16];
    float c, ampere, hopper;
};

static void test_golden(void **state)
{
    (void)state;
    FILE *file = fopen("tests/emu/golden/mma.bin", "rb");
    assert_non_null(file);
    static golden all[4096];
    size_t count = fread(all, sizeof *all, 4096, file);
    fclose(file);
    assert_in_range(count, 2000, 4095);
    for (size_t i = 0; i < count; i++) {
        float ampere = emu::tensor_core_sum(all[i].a, all[i].b, all[i].c, 80);
        float hopper = emu::tensor_core_sum(all[i].a, all[i].b, all[i].c, 90);
        if (float_to_bits(ampere) != float_to_bits(all[i].ampere) || float_to_bits(hopper) != float_to_bits(all[i].hopper))
            fail_msg("case %zu: Ampere %a, not %a; Hopper %a, not %a", i, (double)ampere, (double)all[i].ampere, (double)hopper,
                     (double)all[i].hopper);
    }
}

/* Computes one product from the fragments that mma16816 documents. */
__global__ void product(const uint16_t *a, const uint16_t *b, float *d)
{
    int g = lane_id() / 4, t = lane_id() % 4;
    uint32_t fa[4], fb[2];
    for (int i = 0; i < 4; i++) {
        int row = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
        fa[i] = pair_bf16(a[row * 16 + k], a[row * 16 + k + 1]);
    }
    for (int i = 0; i < 2; i++)
        fb[i] = pair_bf16(b[g * 16 + 2 * t + i * 8], b[g * 16 + 2 * t + i * 8 + 1]);
    float acc[4];
    for (int i = 0; i < 4; i++)
        acc[i] = d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    mma16816(acc, fa, fb);
    for (int i = 0; i < 4; i++)
        d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = acc[i];
}

struct tiles {
    uint16_t *a, *b;
    float *d;
};

static tiles tiles_new(void)
{
    tiles t;
    assert_int_equal(dev_alloc((void **)&t.a, 16 * 16 * 2) | dev_alloc((void **)&t.b, 8 * 16 * 2) |
                     dev_alloc((void **)&t.d, 16 * 8 * 4), 0);
    for (int i = 0; i < 256; i++)
        t.a[i] = f32_to_bf16((float)(i * 37 % 101) - 50);
    for (int i = 0; i < 128; i++)
        t.b[i] = f32_to_bf16((float)(i * 53 % 89) / 8 - 5), t.d[i] = (float)i / 3;
    return t;
}

static void tiles_free(tiles t)
{
    dev_free(t.a);
    dev_free(t.b);
    dev_free(t.d);
}

static void test_fragments(void **state)
{
    (void)state;
    tiles t = tiles_new();
    LAUNCH(product, 1, 32, 0, nullptr, t.a, t.b, t.d);
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++)
            assert_float_equal(t.d[row * 8 + column],
                               emu::tensor_core_sum(t.a + row * 16, t.b + column * 16, (float)(row * 8 + column) / 3, 90), 0);
    tiles_free(t);
}

static void test_columns_are_their_own(void **state)
{
    (void)state;
    tiles all = tiles_new(), one = tiles_new();
    for (int i = 16; i < 128; i++)
        one.b[i] = 0;
    LAUNCH(product, 1, 32, 0, nullptr, all.a, all.b, all.d);
    LAUNCH(product, 1, 32, 0, nullptr, one.a, one.b, one.d);
    for (int row = 0; row < 16; row++)
        assert_int_equal(float_to_bits(all.d[row * 8]), float_to_bits(one.d[row * 8]));
    tiles_free(all);
    tiles_free(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_columns_are_their_own),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
