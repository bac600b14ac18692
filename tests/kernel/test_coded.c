/* Coded rows: packed weights compared with an independent decoder; their positions; rejected rows; fp8 from floats. */
#include "tests/kernel/support.h"

/* All formats except those of plain values (f32, f16, bf16). */
enum { FIRST_CODED = FORMAT_FP8 };

static float part_at(enum weight_format format, const void *packed, int hidden, int inner, int part, int row, int column)
{
    return part == 0 ? expert_gate_at(format, packed, hidden, inner, row, column)
           : part == 1 ? expert_up_at(format, packed, hidden, inner, row, column)
                       : expert_down_at(format, packed, hidden, inner, row, column);
}

static void weights_are_those_of_the_codes(void **state)
{
    (void)state;
    static const int outputs[] = {1, 31, 33, 70}, inputs[] = {1, 32, 96, 127, 256, 261, 768};
    for (int f = FIRST_CODED; f < FORMAT_COUNT; f++)
        for (int o = 0; o < LENGTH(outputs); o++)
            for (int i = 0; i < LENGTH(inputs); i++) {
                struct arena arena;
                uint64_t seed = (uint64_t)(o * 10 + i);
                size_t bytes, row = format_coded_bytes(f, inputs[i]);
                arena_open(&arena);
                assert_true(matrix_bytes(f, outputs[o], inputs[i], &bytes));
                struct buffer packed = arena_take(&arena, bytes), rows = arena_take(&arena, row * (size_t)outputs[o]);
                memset(at(packed), 0, bytes);
                for (int r = 0; r < outputs[o]; r++) {
                    unsigned char *coded = coded_draw(f, inputs[i], 3, &seed);
                    assert_int_equal(format_coded_check(f, inputs[i], coded), -1);
                    memcpy((unsigned char *)at(rows) + row * (size_t)r, coded, row);
                    free(coded);
                }
                int first = outputs[o] / 3;                     /* in two calls */
                unsigned char *all = at(rows);
                matrix_pack_coded(f, at(packed), inputs[i], first, outputs[o] - first, all + row * (size_t)first);
                matrix_pack_coded(f, at(packed), inputs[i], 0, first, all);
                arena_check(&arena);
                for (int r = 0; r < outputs[o]; r++) {
                    struct buffer values = arena_take(&arena, (size_t)inputs[i] * sizeof(float));
                    format_coded_values(f, inputs[i], all + row * (size_t)r, at(values));
                    for (int k = 0; k < inputs[i]; k++)
                        assert_true(((float *)at(values))[k] == coded_weight(f, all + row * (size_t)r, inputs[i], k));
                    arena_check(&arena);
                    arena_give_back(&arena);
                }
                for (int r = 0; r < outputs[o]; r++)
                    for (int k = 0; k < inputs[i]; k++)
                        if (matrix_at(f, at(packed), inputs[i], r, k) !=
                            coded_weight(f, all + row * (size_t)r, inputs[i], k))
                            fail_msg("%s: [%d][%d] is %a, not %a", format_name(f), r, k,
                                     (double)matrix_at(f, at(packed), inputs[i], r, k),
                                     (double)coded_weight(f, all + row * (size_t)r, inputs[i], k));
                arena_close(&arena);
            }
}

static void experts_have_their_parts(void **state)
{
    (void)state;
    static const int shapes[][2] = {{32, 32}, {256, 96}, {96, 288}, {33, 17}};
    for (int f = FIRST_CODED; f < FORMAT_COUNT; f++)
        for (int i = 0; i < LENGTH(shapes); i++) {
            const int hidden = shapes[i][0], inner = shapes[i][1];
            struct arena arena;
            uint64_t seed = (uint64_t)i + 70;
            size_t bytes;
            arena_open(&arena);
            assert_true(expert_bytes(f, hidden, inner, &bytes));
            struct buffer packed = arena_take(&arena, bytes);
            memset(at(packed), 0, bytes);
            for (int again = 0; again < 2; again++) {
                uint64_t own = seed;
                for (int part = 0; part < 3; part++)
                    for (int r = 0; r < (part < 2 ? inner : hidden); r++) {
                        int inputs = part < 2 ? hidden : inner;
                        unsigned char *coded = coded_draw(f, inputs, 1, &own);
                        if (!again && part < 2)
                            expert_pack_gate_up_coded(f, at(packed), hidden, part, r, 1, coded);
                        else if (!again)
                            expert_pack_down_coded(f, at(packed), hidden, inner, r, 1, coded);
                        for (int k = 0; again && k < inputs; k++)
                            assert_true(part_at(f, at(packed), hidden, inner, part, r, k) ==
                                        coded_weight(f, coded, inputs, k));
                        free(coded);
                    }
            }
            arena_close(&arena);
        }
}

/* Packing many rows of plain values at once puts them where matrix_pack puts them one by one. */
static void plain_rows_are_packed_alike(void **state)
{
    (void)state;
    static const int outputs[] = {1, 3, 32, 70}, inputs[] = {1, 2, 3, 7, 32, 131};
    for (int f = 0; f < FORMAT_FP8; f++)
        for (int o = 0; o < LENGTH(outputs); o++)
            for (int i = 0; i < LENGTH(inputs); i++)
                for (int part = 0; part < 3; part++) {
                    const int rows = outputs[o], columns = inputs[i];
                    struct arena arena;
                    uint64_t seed = (uint64_t)(o * 10 + i);
                    size_t bytes, row = format_coded_bytes(f, columns), count = (size_t)rows * (size_t)columns;
                    arena_open(&arena);
                    assert_true((part == 2 ? matrix_bytes(f, rows, columns, &bytes) : expert_bytes(f, columns, rows, &bytes)));
                    struct buffer one = arena_take(&arena, bytes), other = arena_take(&arena, bytes);
                    struct buffer coded = arena_take(&arena, row * (size_t)rows), floats = draw_floats(&arena, count, 3, &seed);
                    float *values = at(floats);
                    for (size_t k = 0; k < count; k++) {
                        uint16_t half = f == FORMAT_F16 ? f32_to_f16(values[k]) : f32_to_bf16(values[k]);
                        memcpy((char *)at(coded) + k * (f == FORMAT_F32 ? 4 : 2), f == FORMAT_F32 ? (void *)&values[k] : &half,
                               f == FORMAT_F32 ? 4 : 2);
                    }
                    memset(at(one), 0, bytes);
                    memset(at(other), 0, bytes);
                    for (int first = 0, some; first < rows; first += some) {
                        some = rows - first < 13 ? rows - first : 13 + first % 30;
                        some = rows - first < some ? rows - first : some;
                        const unsigned char *from = (unsigned char *)at(coded) + row * (size_t)first;
                        if (part == 2)
                            matrix_pack_coded(f, at(one), columns, first, some, from);
                        else
                            expert_pack_gate_up_coded(f, at(one), columns, part, first, some, from);
                    }
                    if (part == 2)
                        matrix_pack(f, at(other), columns, 0, rows, values);
                    else
                        expert_pack_gate_up(f, at(other), columns, part, 0, rows, values);
                    assert_memory_equal(at(one), at(other), bytes);
                    arena_close(&arena);
                }
}

/* Activations with a single 1 return each weight exactly, on every instruction set and number of rows; rows of an embedding
 * table do, too. */
static void kernels_see_these_weights(void **state)
{
    (void)state;
    enum { INPUTS = 300, OUTPUTS = 37 };
    for (int f = FIRST_CODED; f < FORMAT_COUNT; f++) {
        const enum weight_format format = (enum weight_format)f;
        struct arena arena;
        if (format_quantised(format))
            continue;
        uint64_t seed = 90;
        unsigned char *coded[OUTPUTS];
        size_t bytes;
        arena_open(&arena);
        assert_true(matrix_bytes(format, OUTPUTS, INPUTS, &bytes));
        struct linear_args args = {.weight = arena_take(&arena, bytes),
                                   .in = arena_take(&arena, INPUTS * INPUTS * sizeof(float)),
                                   .out = arena_take(&arena, INPUTS * OUTPUTS * sizeof(float)), .format = format,
                                   .inputs = INPUTS, .outputs = OUTPUTS, .in_stride = INPUTS, .out_stride = OUTPUTS};
        memset(at(args.weight), 0, bytes);
        for (int o = 0; o < OUTPUTS; o++) {
            coded[o] = coded_draw(format, INPUTS, 5, &seed);
            if (format == FORMAT_MXFP4)                             /* the extremes of the scales */
                coded[o][16] = (unsigned char)(o % 3 == 0 ? 0 : o % 3 == 1 ? 252 : 1);
            matrix_pack_coded(format, at(args.weight), INPUTS, o, 1, coded[o]);
        }
        memset(at(args.in), 0, INPUTS * INPUTS * sizeof(float));
        for (int k = 0; k < INPUTS; k++)
            ((float *)at(args.in))[k * INPUTS + k] = 1;
        FOR_EACH_ISA(isa)
            for (int rows = f < PRODUCT_FORMATS ? 1 : 9; rows <= 8; rows += SPARSE > 1 || format > FORMAT_Q6_K ? 7 : 1)
                for (int k = 0; k < INPUTS; k += rows == 1 ? SPARSE : rows) {
                    struct linear_args some = args;
                    some.rows = INPUTS - k < rows ? INPUTS - k : rows;
                    some.in = buffer_part(args.in, (size_t)(k * INPUTS) * sizeof(float),
                                          (size_t)(some.rows * INPUTS) * sizeof(float));
                    struct queue queue = queue_of(1);
                    isa->ops.linear(&queue, &some);
                    for (int i = 0; i < some.rows * OUTPUTS; i++) {
                        float want = coded_weight(format, coded[i % OUTPUTS], INPUTS, k + i / OUTPUTS);
                        if (((float *)at(args.out))[i] != want)
                            fail_msg("%s %s, %d rows: [%d][%d] is %a, not %a", isa->name, format_name(format), rows,
                                     i % OUTPUTS, k + i / OUTPUTS, (double)((float *)at(args.out))[i], (double)want);
                    }
                }
        int32_t token[OUTPUTS];
        for (int o = 0; o < OUTPUTS; o++)
            token[o] = OUTPUTS - 1 - o;
        struct embed_args embed = {.table = args.weight, .token = take_integers(&arena, token, OUTPUTS), .out = args.out,
                                   .format = format, .rows = OUTPUTS, .vocab = OUTPUTS, .hidden = INPUTS};
        FOR_EACH_ISA(isa) {
            struct queue queue = queue_of(1);
            poison(args.out);
            isa->ops.embed(&queue, &embed);
            for (int i = 0; i < OUTPUTS * INPUTS; i++)
                assert_true(((float *)at(args.out))[i] == coded_weight(format, coded[token[i / INPUTS]], INPUTS, i % INPUTS));
        }
        for (int o = 0; o < OUTPUTS; o++)
            free(coded[o]);
        arena_close(&arena);
    }
}

/* Every code of every format once, by hand. */
static void codes_by_hand(void **state)
{
    (void)state;
    unsigned char packed[Q6_K_BLOCK_BYTES], fp8[4 + 128], mxfp4[17], q4_k[144] = {0}, q6_k[210] = {0};
    static const float e2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const float two = 2;
    memcpy(fp8, &two, 4);
    for (int i = 0; i < 128; i++)
        fp8[4 + i] = (unsigned char)(i == 127 ? 0x80 : i);
    memset(packed, 0, sizeof packed);
    matrix_pack_coded(FORMAT_FP8, packed, 128, 0, 1, fp8);
    assert_true(matrix_at(FORMAT_FP8, packed, 128, 0, 1) == 2 * 0x1p-9f);
    assert_true(matrix_at(FORMAT_FP8, packed, 128, 0, 7) == 2 * 7 * 0x1p-9f);
    assert_true(matrix_at(FORMAT_FP8, packed, 128, 0, 8) == 2 * 0x1p-6f);
    assert_true(matrix_at(FORMAT_FP8, packed, 128, 0, 0x38) == 2);
    assert_true(matrix_at(FORMAT_FP8, packed, 128, 0, 0x7e) == 2 * 448);
    assert_true(matrix_at(FORMAT_FP8, packed, 128, 0, 127) == 0 && signbit(matrix_at(FORMAT_FP8, packed, 128, 0, 127)));
    for (int i = 0; i < 16; i++)
        mxfp4[i] = (unsigned char)((2 * i & 15) | ((2 * i + 1) & 15) << 4);
    for (int scale = 0; scale <= 252; scale += 42) {
        mxfp4[16] = (unsigned char)scale;
        memset(packed, 0, sizeof packed);
        matrix_pack_coded(FORMAT_MXFP4, packed, 32, 0, 1, mxfp4);
        for (int i = 0; i < 32; i++)
            assert_true(matrix_at(FORMAT_MXFP4, packed, 32, 0, i) == ldexpf(e2m1[i % 16], scale - 127));
    }
    coded_half(q4_k, 0.5f);
    coded_half(q4_k + 2, 0.25f);
    q4_k[4 + 2] = 3 | 2 << 6;                       /* sc of sub-block 2: 3; upper bits of sc of 6: 2 */
    q4_k[4 + 4 + 2] = 5 | 1 << 6;                   /* the same of m */
    q4_k[4 + 8 + 2] = 9 | 7 << 4;                   /* lower bits of sc and m of 6 */
    q4_k[16 + 32 + 4] = 11;                         /* input 68 */
    q4_k[16 + 96 + 30] = 13;                        /* input 222 */
    memset(packed, 0, sizeof packed);
    matrix_pack_coded(FORMAT_Q4_K, packed, 256, 0, 1, q4_k);
    assert_true(matrix_at(FORMAT_Q4_K, packed, 256, 0, 68) == 0.5f * 3 * 11 - 0.25f * 5);
    assert_true(matrix_at(FORMAT_Q4_K, packed, 256, 0, 222) == 0.5f * (9 + 32) * 13 - 0.25f * (7 + 16));
    assert_true(matrix_at(FORMAT_Q4_K, packed, 256, 0, 0) == 0);
    coded_half(q6_k + 208, -0.125f);
    q6_k[192 + 8 + 1 + 4] = (unsigned char)-3;      /* inputs 128 + 64 + 16 .. */
    q6_k[64 + 20] = 14 << 4;                        /* half 1, t 2, l 20: input 212 */
    q6_k[128 + 32 + 20] = 2 << 4;
    memset(packed, 0, sizeof packed);
    matrix_pack_coded(FORMAT_Q6_K, packed, 256, 0, 1, q6_k);
    assert_true(matrix_at(FORMAT_Q6_K, packed, 256, 0, 212) == -0.125f * -3 * (14 + 32 - 32));
    assert_true(matrix_at(FORMAT_Q6_K, packed, 256, 0, 213) == -0.125f * -3 * -32);
}

static void what_is_no_number_is_refused(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int f = FIRST_CODED; f < FORMAT_COUNT; f++) {
        const enum weight_format format = (enum weight_format)f;
        const int inputs = 512;
        unsigned char *row = coded_draw(format, inputs, 1, &seed);
        const float huge = 0x1p120f, broken = NAN;
        assert_int_equal(format_coded_check(format, inputs, row), -1);
        switch (format) {
        case FORMAT_FP8:
            row[16 + 300] = 0xff;
            assert_int_equal(format_coded_check(format, inputs, row), 300);
            row[16 + 300] = 0x7f;
            assert_int_equal(format_coded_check(format, inputs, row), 300);
            memcpy(row + 4, &huge, 4);
            assert_int_equal(format_coded_check(format, inputs, row), 128);
            memcpy(row, &broken, 4);
            assert_int_equal(format_coded_check(format, inputs, row), 0);
            break;
        case FORMAT_MXFP4:
            row[17 * 5 + 16] = 252;
            assert_int_equal(format_coded_check(format, inputs, row), -1);
            row[17 * 5 + 16] = 253;
            assert_int_equal(format_coded_check(format, inputs, row), 160);
            break;
        case FORMAT_NVFP4:                          /* no code is infinite or NaN */
            memset(row, 0xff, format_coded_bytes(format, inputs));
            assert_int_equal(format_coded_check(format, inputs, row), -1);
            break;
        case FORMAT_NVFP4_S:
            row[40 * 5 + 3] = 0x7e;
            assert_int_equal(format_coded_check(format, inputs, row), -1);
            row[40 * 5 + 3] = 0x7f;
            assert_int_equal(format_coded_check(format, inputs, row), 320);
            row[40 * 4 + 2] = 0x80;
            assert_int_equal(format_coded_check(format, inputs, row), 256);
            memcpy(row + 40 + 4, &(float){0x1p117f}, 4);
            assert_int_equal(format_coded_check(format, inputs, row), 64);
            memcpy(row + 4, &broken, 4);
            assert_int_equal(format_coded_check(format, inputs, row), 0);
            break;
        default: {
            const struct coded_kind kind = coded_kind(format);
            const int later = inputs / kind.inputs - 1;
            if (kind.second >= 0) {
                coded_half(row + later * kind.bytes + kind.second, INFINITY);
                assert_int_equal(format_coded_check(format, inputs, row), later * kind.inputs);
                coded_half(row + later * kind.bytes + kind.second, 1);
            }
            coded_half(row + later * kind.bytes + kind.at, -INFINITY);
            assert_int_equal(format_coded_check(format, inputs, row), later * kind.inputs);
            coded_half(row + kind.at, NAN);
            assert_int_equal(format_coded_check(format, inputs, row), 0);
        }
        }
        free(row);
    }
}

static void plain_values_are_finite(void **state)
{
    (void)state;
    static const uint32_t bad[3][4] = {{0x7f800000, 0xff800000, 0x7fc00001, 0xff800001}, {0x7c00, 0xfc00, 0x7c01, 0xffff},
                                       {0x7f80, 0xff80, 0x7f81, 0xffff}};
    static const uint32_t good[3][4] = {{0x7f7fffff, 0xff7fffff, 0, 0x007fffff}, {0x7bff, 0xfbff, 0x8000, 0x03ff},
                                        {0x7f7f, 0xff7f, 0x8000, 0x007f}};
    for (int f = 0; f < FORMAT_FP8; f++)
        for (int inputs = 1; inputs < 20; inputs++)
            for (int at = 0; at < inputs; at++)
                for (int i = 0; i < 4; i++) {
                    const size_t size = f == FORMAT_F32 ? 4 : 2;
                    unsigned char *row = malloc((size_t)inputs * size);     /* no byte after it may be read */
                    for (int k = 0; k < inputs; k++)
                        memcpy(row + (size_t)k * size, &good[f][k % 4], size);
                    assert_int_equal(format_coded_check(f, inputs, row), -1);
                    memcpy(row + (size_t)at * size, &bad[f][i], size);
                    assert_int_equal(format_coded_check(f, inputs, row), at);
                    free(row);
                }
}

static void whole_blocks_fit(void **state)
{
    (void)state;
    assert_true(format_fits(FORMAT_FP8, 33) && format_fits(FORMAT_BF16, 7));
    assert_true(format_fits(FORMAT_MXFP4, 2880) && !format_fits(FORMAT_MXFP4, 2881) && !format_fits(FORMAT_MXFP4, 16));
    assert_true(format_fits(FORMAT_Q8, 96) && !format_fits(FORMAT_Q4, 100));
    assert_true(format_fits(FORMAT_Q4_K, 2048) && !format_fits(FORMAT_Q4_K, 2880) && !format_fits(FORMAT_Q6_K, 128));
    assert_int_equal(format_coded_bytes(FORMAT_FP8, 129), 8 + 129);
    assert_int_equal(format_coded_bytes(FORMAT_Q6_K, 512), 420);
    assert_int_equal(unit_bytes(FORMAT_Q4_K, 2048), 2048 / 256 * 144 * 32);
    assert_int_equal(unit_bytes(FORMAT_Q6_K, 2048), 2048 / 256 * 210 * 32);
    assert_int_equal(unit_bytes(FORMAT_MXFP4, 2880), 2880 / 32 * 17 * 32);
    for (int f = FIRST_CODED; f < FORMAT_COUNT; f++)        /* packed rows are not larger than coded rows */
        assert_int_equal(unit_bytes(f, 512), 32 * format_coded_bytes(f, 512));
}

/* E4M3 to nearest, ties to even, at every boundary between two codes and the floats beside it. */
static void e4m3_rounds_to_nearest(void **state)
{
    (void)state;
    for (int code = 0; code < 0x7e; code++) {
        double low = coded_e4m3(code), high = coded_e4m3(code + 1);
        float middle = (float)((low + high) / 2);
        assert_true((double)e4m3_to_f32((uint8_t)code) == low && (double)e4m3_to_f32((uint8_t)(code | 0x80)) == -low);
        assert_int_equal(f32_to_e4m3((float)low), code);
        assert_int_equal(f32_to_e4m3(-(float)high), (code + 1) | 0x80);
        assert_int_equal(f32_to_e4m3(middle), code % 2 ? code + 1 : code);
        assert_int_equal(f32_to_e4m3(nextafterf(middle, 0)), code);
        assert_int_equal(f32_to_e4m3(nextafterf(middle, INFINITY)), code + 1);
    }
    assert_int_equal(f32_to_e4m3(1e30f), 0x7e);
    assert_int_equal(f32_to_e4m3(-460), 0xfe);
    assert_int_equal(f32_to_e4m3(-INFINITY), 0xfe);
    assert_true(isnan(e4m3_to_f32(0x7f)) && isnan(e4m3_to_f32(0xff)));
}

static void floats_become_fp8_as_the_header_says(void **state)
{
    (void)state;
    enum { INPUTS = 300, OUTPUTS = 35 };
    static float values[OUTPUTS * INPUTS];
    static unsigned char packed[2 * 3 * FP8_BLOCK_BYTES];
    uint64_t seed = 8;
    for (int i = 0; i < OUTPUTS * INPUTS; i++)
        values[i] = i / INPUTS == 3 ? 0 : draw_float(&seed) * ldexpf(1, i / INPUTS - 20);
    matrix_pack(FORMAT_FP8, packed, INPUTS, 0, OUTPUTS, values);
    for (int o = 0; o < OUTPUTS; o++)
        for (int k = 0; k < INPUTS; k += 128) {
            float max = 0, scale;
            int count = INPUTS - k < 128 ? INPUTS - k : 128;
            for (int i = 0; i < count; i++)
                max = fabsf(values[o * INPUTS + k + i]) > max ? fabsf(values[o * INPUTS + k + i]) : max;
            memcpy(&scale, packed + o / 32 * 3 * FP8_BLOCK_BYTES + k / 128 * FP8_BLOCK_BYTES + o % 32 * 4, 4);
            assert_true(scale == max / 448);
            for (int i = 0; i < count; i++) {
                float value = values[o * INPUTS + k + i], got = matrix_at(FORMAT_FP8, packed, INPUTS, o, k + i);
                assert_true(fabsf(got - value) <= fmaxf(fabsf(value) / 15.99f, scale * 0x1.01p-10f));
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_the_codes),
        cmocka_unit_test(experts_have_their_parts),
        cmocka_unit_test(plain_rows_are_packed_alike),
        cmocka_unit_test(kernels_see_these_weights),
        cmocka_unit_test(codes_by_hand),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(plain_values_are_finite),
        cmocka_unit_test(whole_blocks_fit),
        cmocka_unit_test(e4m3_rounds_to_nearest),
        cmocka_unit_test(floats_become_fp8_as_the_header_says),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
