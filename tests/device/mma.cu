/* A GPU's tensor core compared with its model (tests/emu/mma.cc): the golden sums, and random tiles of every magnitude.
 * Built by nvcc for GPUs; for the emulator, where both agree by construction, by a C++ compiler. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include <stdlib.h>

#include "kernels/cuda/dev.h"
#include "tests/emu/tensor_core.h"

enum { TILES = 800, GOLDEN_MAX = 4096 };

struct tile {
    uint16_t a[16][16], b[8][16];
    float d[16][8];
};

/* One warp per tile: d += a b, from the fragments that mma16816 documents. */
__global__ void products(struct tile *tiles)
{
    struct tile *tile = &tiles[blockIdx.x];
    int g = lane_id() / 4, t = lane_id() % 4;
    uint32_t a[4], b[2];
    float d[4];
    UNROLL for (int i = 0; i < 4; i++) {
        int row = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
        a[i] = pair_bf16(tile->a[row][k], tile->a[row][k + 1]);
        d[i] = tile->d[g + i / 2 * 8][2 * t + i % 2];
    }
    UNROLL for (int i = 0; i < 2; i++)
        b[i] = pair_bf16(tile->b[g][2 * t + i * 8], tile->b[g][2 * t + i * 8 + 1]);
    mma16816(d, a, b);
    UNROLL for (int i = 0; i < 4; i++)
        tile->d[g + i / 2 * 8][2 * t + i % 2] = d[i];
}

static int tensor_core;             /* generation of the device: 80 or 90 */

static void must(int error)
{
    if (error)
        fail_msg("%s (CUDA error %d, %s)", dev_error_text(error), error, dev_error_name(error));
}

static void run(struct tile *tiles, int count)
{
    struct tile *there = nullptr;
    must(dev_alloc((void **)&there, (size_t)count * sizeof *there));
    must(dev_upload(there, tiles, (size_t)count * sizeof *there, nullptr));
    LAUNCH(products, dim3((unsigned)count), dim3(32), 0, nullptr, there);
    must(dev_download(tiles, there, (size_t)count * sizeof *there, nullptr));
    must(dev_wait(nullptr));
    must(dev_free(there));
}

struct golden {
    uint16_t a[16], b[16];
    float c, ampere, hopper;
};

/* Eight cases per tile, on its diagonal. */
static void golden_sums(void **state)
{
    static struct golden all[GOLDEN_MAX];
    static struct tile tiles[GOLDEN_MAX / 8];
    (void)state;
    FILE *file = fopen("tests/emu/golden/mma.bin", "rb");
    assert_non_null(file);
    int count = (int)fread(all, sizeof *all, GOLDEN_MAX, file);
    fclose(file);
    assert_in_range(count, 2000, GOLDEN_MAX - 1);
    for (int i = 0; i < count; i++) {
        memcpy(tiles[i / 8].a[i % 8], all[i].a, sizeof all[i].a);
        memcpy(tiles[i / 8].b[i % 8], all[i].b, sizeof all[i].b);
        tiles[i / 8].d[i % 8][i % 8] = all[i].c;
    }
    run(tiles, (count + 7) / 8);
    for (int i = 0; i < count; i++) {
        float is = tiles[i / 8].d[i % 8][i % 8], want = tensor_core >= 90 ? all[i].hopper : all[i].ampere;
        if (float_to_bits(is) != float_to_bits(want))
            fail_msg("case %d: %a, not %a", i, (double)is, (double)want);
    }
}

static uint32_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*seed ^ *seed >> 29) * 0xbf58476d1ce4e5b9u >> 32);
}

/* Draws a bf16 whose exponent is within `spread` of 1's; one in sixteen is 0, one in sixteen subnormal. */
static uint16_t draw_bf16(uint64_t *seed, int spread)
{
    uint32_t bits = draw(seed);
    int exponent = 127 - spread + (int)(draw(seed) % (uint32_t)(2 * spread + 1));
    exponent = bits >> 16 & 15 ? exponent : 0;
    return bits >> 20 & 15 ? (uint16_t)((bits & 0x807fu) | (uint32_t)exponent << 7) : 0;
}

static void random_sums(void **state)
{
    static struct tile before[TILES], tiles[TILES];
    uint64_t seed = 1;
    (void)state;
    for (int n = 0; n < TILES; n++) {
        int spread = 1 << n % 6;
        for (int i = 0; i < 16 * 16; i++)
            before[n].a[i / 16][i % 16] = draw_bf16(&seed, spread);
        for (int i = 0; i < 8 * 16; i++)
            before[n].b[i / 16][i % 16] = draw_bf16(&seed, spread);
        for (int i = 0; i < 16 * 8; i++)
            before[n].d[i / 8][i % 8] =
                float_from_bits((uint32_t)draw_bf16(&seed, spread) << 16 | (n % 2 ? draw(&seed) & 0xffffu : 0));
    }
    memcpy(tiles, before, sizeof tiles);
    run(tiles, TILES);
    long wrong = 0;
    for (int n = 0; n < TILES; n++)
        for (int i = 0; i < 16 * 8; i++) {
            const struct tile *b = &before[n];
            float want = emu::tensor_core_sum(b->a[i / 8], b->b[i % 8], b->d[i / 8][i % 8], tensor_core);
            float is = tiles[n].d[i / 8][i % 8];
            if (float_to_bits(is) != float_to_bits(want) && !wrong++)
                print_message("tile %d, row %d, column %d: %a, not %a\n", n, i / 8, i % 8, (double)is, (double)want);
        }
    if (wrong)
        fail_msg("%ld of %d sums are not the twin's", wrong, TILES * 16 * 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_sums),
        cmocka_unit_test(random_sums),
    };
    struct dev_properties properties;
    int devices = 0, error = dev_count(&devices);
    if (!error)
        error = dev_properties_of(0, &properties);
    if (error) {
        printf("cannot judge: %s (CUDA error %d)\n", dev_error_text(error), error);
        return 125;
    }
    tensor_core = properties.architecture >= 90 ? 90 : 80;
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
