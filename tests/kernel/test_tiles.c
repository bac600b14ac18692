/* Products by matrix tiles have the bits that linear.h promises: compared with its order, step by step. */
#include "common/base/float.h"
#include "tests/kernel/support.h"

/* Rounds a subnormal number to zero. */
static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

static float upper(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float chain(float sum, float weight, float x) { return flushed(fmaf(flushed(weight), flushed(x), sum)); }

static float product(const struct linear_args *a, const float *in, int output)
{
    float sum[3] = {0, 0, 0};
    for (int part = 0; part < 3; part++)
        for (int k = 0; k < a->inputs; k += 32) {
            float half[2] = {0, 0};
            for (int i = k; i < a->inputs && i < k + 32; i++) {
                float high = upper(in[i]), middle = upper(in[i] - high), low = in[i] - high - middle;
                half[i % 2] = chain(half[i % 2], matrix_at(FORMAT_BF16, at(a->weight), a->inputs, output, i),
                                    part == 0 ? high : part == 1 ? middle : low);
            }
            sum[part] = flushed(sum[part] + flushed(half[0] + half[1]));
        }
    return sum[0] + (sum[1] + sum[2]);
}

static void order_is_that_of_the_contract(void **state)
{
    (void)state;
    static const struct { int rows, inputs, outputs; float size; } shapes[] = {
        {1, 32, 32, 1}, {3, 1, 5, 1}, {5, 95, 40, 1}, {16, 64, 32, 1e-36f}, {17, 322, 33, 1}, {40, 2051, 64, 1e3f},
        {2, 130, 70, 1e-30f}, {1, 322, 33, 1e-36f}, {1, 95, 40, 1e3f}};
    for (int i = 0; i < LENGTH(shapes); i++) {
        struct arena arena;
        uint64_t seed = 7 + (uint64_t)i;
        const size_t rows = (size_t)shapes[i].rows, inputs = (size_t)shapes[i].inputs, outputs = (size_t)shapes[i].outputs;
        arena_open(&arena);
        struct linear_args args = {.in = draw_floats(&arena, rows * inputs, shapes[i].size, &seed),
                                   .weight = draw_matrix(&arena, FORMAT_BF16, shapes[i].outputs, shapes[i].inputs, &seed),
                                   .out = arena_take(&arena, rows * outputs * sizeof(float)),
                                   .operand = take_operand(&arena, FORMAT_BF16, rows, shapes[i].inputs),
                                   .format = FORMAT_BF16, .rows = shapes[i].rows, .inputs = shapes[i].inputs,
                                   .outputs = shapes[i].outputs, .in_stride = shapes[i].inputs,
                                   .out_stride = shapes[i].outputs};
        FOR_EACH_ISA(isa) {
            if (!isa->tiles)
                continue;
            struct queue queue = queue_of(2);
            poison(args.out);
            isa->ops.linear(&queue, &args);
            arena_check(&arena);
            for (size_t r = 0; r < rows; r++)
                for (size_t o = 0; o < outputs; o++) {
                    float expected = product(&args, (const float *)at(args.in) + r * inputs, (int)o);
                    float got = ((const float *)at(args.out))[r * outputs + o];
                    if (memcmp(&got, &expected, sizeof got))
                        fail_msg("shape %d row %zu output %zu: %a, contract %a", i, r, o, (double)got, (double)expected);
                }
        }
        arena_close(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(order_is_that_of_the_contract)};
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
