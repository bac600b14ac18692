/* Memory layout of weights: the same in a model file, in host memory and on a GPU, before the GPU re-tiles them.
 *
 * MATRIX [outputs][inputs], y = W x. Outputs are divided into UNITS of 32. A unit stores all inputs of its 32 outputs as one
 * contiguous stream, so that a thread that owns a unit reads forward only. In a unit, by input k:
 *
 *     f32    for each k:        32 f32, one per output                                                 128 bytes
 *     f16    for each pair k:   32 f16 of input k, then 32 f16 of input k+1                            128 bytes
 *     bf16   for each pair k:   32 dwords, one per output: low half input k, high half input k+1       128 bytes
 *     q8     for each 32 inputs: 8 groups of 4 inputs [32 outputs][4] bytes, q + 128; then the scales 1024 + 64 bytes
 *     q4     for each 32 inputs: 4 pairs of such groups [32 outputs][4] bytes: low half q + 8 of the
 *                                first group, high half of the second; then the scales                 512 + 64 bytes
 *     fp8    for each 128 inputs: 32 scales f32; then for each pair k [32 outputs][2] codes            128 + 4096 bytes
 *     mxfp4  for each 64 inputs: 2 x [32 outputs] scale codes; then 8 groups of 8 inputs,
 *                                32 dwords, one per output: input i in bits 4i .. 4i+3                 64 + 1024 bytes
 *     q4_k   for each 256 inputs: 32 d f16, 32 dmin f16, 3 x 32 dwords of s; then 32 such groups       512 + 4096 bytes
 *     q6_k   for each 256 inputs: 32 d f16, 16 x 32 sc; then 16 groups of 16 inputs,
 *                                3 x 32 dwords a, b, c, each with one dword per output                 576 + 6144 bytes
 *     q5_k   for each 256 inputs: as q4_k, but 8 groups of 32 inputs, 5 x 32 dwords                    512 + 5120 bytes
 *     iq4_xs for each 256 inputs: 32 d f16, 32 words and 32 dwords of s; then 32 groups as in q4_k     256 + 4096 bytes
 *     iq4_nl for each 32 inputs: 32 d f16; then 4 such groups                                          64 + 512 bytes
 *     q3_k   for each 256 inputs: 32 d f16, 3 x 32 dwords of s; then 8 groups of 32 inputs,
 *                                3 x 32 dwords                                                         448 + 3072 bytes
 *     q2_k   for each 256 inputs: 32 d f16, 32 dmin f16, 16 x 32 s; then 16 groups of 16 inputs,
 *                                32 dwords                                                             640 + 2048 bytes
 *     nvfp4  for each 64 inputs: 4 x 32 scale codes; then 8 groups as in q4_k                          128 + 1024 bytes
 *     nvfp4_s  the same with 32 f32, one for each output, after the scale codes                        256 + 1024 bytes
 *     iq3_s, iq3_xxs, iq2_s, iq2_xs, iq2_xxs
 *            for each 256 inputs: 32 d f16; then for each 4 bytes of GGUF's block 32 dwords
 *
 * The last unit is padded with outputs of zeros; if the number of inputs is odd, the second half of the last pair is zero.
 *
 * Q8 AND Q4 store BLOCKS of 32 inputs of one output: integers q and one scale, [32 outputs] f16 per block. A weight is q *
 * scale, exact in f32. Padding inputs have q = 0; padding outputs have scale 0. Quantisation of weights w:
 *     q8     scale = f16(max|w| / 127), q = round(w / scale), -127 .. 127
 *     q4     scale = f16(m / -8), m the w of largest magnitude (the first of equal ones), q = round(w / scale), -8 .. 7
 * f16 and round go to nearest, ties to even; divisions are in f32; q is clamped to its range; q is 0 if the scale is 0. So a
 * block whose scale is not subnormal is unchanged when its weights are packed again.
 *
 * FP8, MXFP4 AND ALL AFTER THEM store the codes of published files bit by bit. Each weight is the f32 given here
 * (formats_woven.h has the bits of q4_k and those after it):
 *     fp8    code * scale, rounded to f32: the code is E4M3FN (bias 7, largest 448; the NaN codes 0x7f and 0xff do not occur).
 *            One f32 scale for 128 inputs of one output can represent scales of 128x128 blocks, of rows, and of tensors.
 *            From weights w: scale = max|w| / 448 of the 128, code = w / scale, clamped to -448 .. 448; 0 if the scale is 0.
 *     mxfp4  code * 2^(s - 127), exact: the code is E2M1 (sign, then 0 .5 1 1.5 2 3 4 6), s 0 .. 252 for 32 inputs of one
 *            output (OCP Microscaling Formats 1.0)
 *     q4_k   fma(d * sc, q, -(dmin * m)), its only rounding: GGUF's Q4_K; q 0 .. 15; sc and m, 0 .. 63 for 32 inputs, are
 *            packed in the 12 bytes s as in GGUF, bytes 0 .. 3 in the first dword
 *     q6_k   d * sc * (q - 32), exact, +0 where q is 32: GGUF's Q6_K; q 0 .. 63; sc -128 .. 127 for 16 inputs. q of input
 *            i < 15 is bits 6 (i mod 5) .. of dword i / 5; that of input 15 is the upper two bits of a, then of b, then of c.
 *     q5_k   as q4_k with q 0 .. 31: GGUF's Q5_K
 *     iq4_xs d * (s - 32) * level, exact: GGUF's IQ4_XS; 16 levels of -127 .. 113, s 0 .. 63 for 32 inputs
 *     iq4_nl d * level, exact: GGUF's IQ4_NL
 *     q3_k   d * (s - 32) * (q - 4), exact: GGUF's Q3_K; q 0 .. 7; s 0 .. 63 for 16 inputs
 *     q2_k   fma(d * s, q, -(dmin * m)), its only rounding: GGUF's Q2_K; q 0 .. 3; s and m 0 .. 15 for 16 inputs
 *     nvfp4  code * s, exact: GGUF's NVFP4; the code is E2M1, s an E4M3 without sign for 16 inputs (0x7f: 0)
 *     nvfp4_s  code * (s * f), two roundings: NVFP4 as compressed-tensors and ModelOpt publish it; s 0 .. 448, and f the f32
 *            scale of the matrix, the same for all inputs of an output
 *     iq3_s  d * (2 s + 1) * m, exact: GGUF's IQ3_S; m a magnitude of a grid (grids.h) with a sign; s 0 .. 15 for 32 inputs
 *     iq3_xxs, iq2_s, iq2_xs, iq2_xxs
 *            d * (s + 1/2) / 2 * m, of iq2 d * (s + 1/2) / 4 * m, exact: GGUF's; s 0 .. 15 for 32 inputs, of iq2_s and iq2_xs
 *            for 16
 * fp8 is multiplied with f32 activations, the others too unless the queue has integer_activations (below). Codes of padding
 * inputs are 0; up to the next multiple of 32 inputs they are multiplied with activations of 0. Among these
 * formats only fp8 can be made from floats.
 *
 * CODED rows are rows in the layout of published files, one after the other (format_coded_bytes each), which are packed without
 * changing a value:
 *     f32, f16, bf16: the values
 *     q8     GGUF's Q8_0: for each 32 inputs f16 scale, 32 int8                                        34 bytes
 *     q4     GGUF's Q4_0: for each 32 inputs f16 scale, 16 bytes: input i low, i + 16 high half, q + 8 18 bytes
 *     fp8    f32 scales, one for each 128 inputs; then one code per input                              inputs + 4 per 128
 *     mxfp4  for each 32 inputs 16 bytes: input 2i low, 2i + 1 high half; then s                       17 bytes
 *     q4_k   for each 256 inputs GGUF's block: d, dmin, s[12], qs[128]                                 144 bytes
 *     q6_k   for each 256 inputs GGUF's block: ql[128], qh[64], sc[16], d                              210 bytes
 *     nvfp4_s for each 64 inputs 4 scale codes, f32 f, 32 bytes: input 2i low, 2i + 1 high half           40 bytes
 *     q5_k and those after it: GGUF's blocks, of the inputs and bytes in WEIGHT_FORMATS
 *
 * Products with q8 and q4 quantise the activations, too; so do products with mxfp4 and all formats after it if the queue has
 * integer_activations. A row of f32 becomes one struct quantised for each block of 32 inputs (padded with 0): with m = max|x|
 * of the block
 *     scale = m / 127, q = round(x * (127 / m)), -127 .. 127, total = scale * sum of q
 * in f32, rounded to nearest, ties to even. If m < 2^-100, the scale and all q are 0; if m is not finite, the scale is a NaN
 * and all q are 0. Then, per output and row, from 0, over the blocks in ascending order:
 *     y = fma((float)(sum of integer of weight * q of input, exact), scale of weight * scale of input, y)
 * A weight of the formats after q4 is its integer times its scale, less a minimum:
 *     mxfp4, nvfp4, nvfp4_s           integer 2 * code, scale half of that above; nvfp4, nvfp4_s: a step for each 16 inputs
 *     q6_k, q3_k, q2_k, iq2_s, iq2_xs integer code * (scale of 16 inputs), scale d (iq2: d / 8)
 *     the others                      integer code, scale d * (scale of 32 inputs); iq4_nl: d
 *     q4_k, q5_k                      minimum dmin * m: after the step above y = fma(-minimum, total, y)
 *     q2_k                            minimum dmin * m of each 16 inputs: for each of them
 *                                     y = fma(-minimum, scale of input * sum of their q, y)
 * Codes and scales are the last and the middle factors above: q, q - 32, level, or m with its sign; sc, s - 32 or s. In IQ2 and
 * IQ3 the scale is the integer 2 s + 1, and d is divided by 8 (iq2), 4 (iq3_xxs) or 1. All but s * f are exact in f32.
 *
 * EXPERT (a gated feed-forward network: gate [inner][hidden], up [inner][hidden], down [hidden][inner]) is one block: units of
 * gate and up, then the units of down as a matrix [hidden][inner]. A gate/up unit contains inner indices 16u .. 16u+15: outputs
 * 0..15 are their gate rows, 16..31 their up rows, so that act(gate) * up can be computed as soon as the unit has been read.
 * Missing inner indices of the last unit are zeros.
 *
 * UNGATED EXPERT (up [inner][hidden], down [hidden][inner]) is one block, too: the matrix up, then the matrix down.
 *
 * VECTOR: plain f32. */
#ifndef MOE_KERNELS_FORMATS_H
#define MOE_KERNELS_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every format: its constant and name; its kind; inputs of a step of a unit, a whole number of blocks; inputs and bytes of a
 * block of a coded row. Kinds: PLAIN values; INTEGER, always multiplied with quantised activations; CODED, with decoders of its
 * own; WOVEN, decoded by formats_woven.h; GRID, woven and slow to decode, so each weight is decoded once for several rows.
 *
 * A new woven format also needs a row of WOVEN_FIELDS, NAME_parts (formats_woven.h), NAME_weave (formats_coded.c), and two
 * decoders of vectors, span_NAME (cpu/spans.h) and codes_NAME (cpu/codes.h; cpu/codes_grids.h for a grid). */
#define WEIGHT_FORMATS(row) \
    row(F32, f32, PLAIN, 1, 1, 4) \
    row(F16, f16, PLAIN, 2, 1, 2) \
    row(BF16, bf16, PLAIN, 2, 1, 2) \
    row(FP8, fp8, CODED, 128, 128, 132) \
    row(Q8, q8, INTEGER, 32, 32, 34) \
    row(Q4, q4, INTEGER, 32, 32, 18) \
    row(MXFP4, mxfp4, CODED, 64, 32, 17) \
    row(Q4_K, q4_k, WOVEN, 256, 256, 144) \
    row(Q6_K, q6_k, WOVEN, 256, 256, 210) \
    row(Q5_K, q5_k, WOVEN, 256, 256, 176) \
    row(IQ4_XS, iq4_xs, WOVEN, 256, 256, 136) \
    row(IQ4_NL, iq4_nl, WOVEN, 32, 32, 18) \
    row(Q3_K, q3_k, WOVEN, 256, 256, 110) \
    row(Q2_K, q2_k, WOVEN, 256, 256, 84) \
    row(NVFP4, nvfp4, WOVEN, 64, 64, 36) \
    row(NVFP4_S, nvfp4_s, WOVEN, 64, 64, 40) \
    row(IQ3_S, iq3_s, GRID, 256, 256, 110) \
    row(IQ3_XXS, iq3_xxs, GRID, 256, 256, 98) \
    row(IQ2_S, iq2_s, GRID, 256, 256, 82) \
    row(IQ2_XS, iq2_xs, GRID, 256, 256, 74) \
    row(IQ2_XXS, iq2_xxs, GRID, 256, 256, 66)

#define FORMAT_CONSTANT(NAME, name, kind, step, block, bytes) FORMAT_##NAME,
enum weight_format { WEIGHT_FORMATS(FORMAT_CONSTANT) FORMAT_COUNT };
#undef FORMAT_CONSTANT

enum { UNIT_OUTPUTS = 32, UNIT_INNER = 16, UNIT_STEP_BYTES = 128 };
enum { BLOCK_INPUTS = 32, BLOCK_SCALE_BYTES = 64, Q8_BLOCK_BYTES = 1024 + 64, Q4_BLOCK_BYTES = 512 + 64 };
enum { FP8_BLOCK_INPUTS = 128, FP8_BLOCK_BYTES = 128 + 4096, MXFP4_PAIR_BYTES = 64 + 1024 };
enum { SUPERBLOCK_INPUTS = 256, Q4_K_BLOCK_BYTES = 512 + 4096, Q6_K_BLOCK_BYTES = 576 + 6144 };

const char *format_name(enum weight_format format);         /* as in WEIGHT_FORMATS */
bool format_by_name(const char *name, enum weight_format *out);

/* Return the inputs of a step of a unit, and its bytes: those of 32 coded rows. */
#define FORMAT_STEP(NAME, name, kind, step, block, bytes) case FORMAT_##NAME: return step;
static inline int format_step_inputs(enum weight_format format)
{
    switch (format) {
        WEIGHT_FORMATS(FORMAT_STEP)
    default: return 0;
    }
}
#undef FORMAT_STEP

#define FORMAT_STEP(NAME, name, kind, step, block, bytes) \
    case FORMAT_##NAME: return (size_t)(UNIT_OUTPUTS * ((step) / (block)) * (bytes));
static inline size_t format_step_bytes(enum weight_format format)
{
    switch (format) {
        WEIGHT_FORMATS(FORMAT_STEP)
    default: return 0;
    }
}
#undef FORMAT_STEP

/* Returns whether weights are integers in blocks of 32 inputs, to be multiplied with quantised activations. */
static inline bool format_quantised(enum weight_format format) { return format == FORMAT_Q8 || format == FORMAT_Q4; }

/* Returns whether weights have fewer than 16 bits, and scales. */
static inline bool format_scaled(enum weight_format format) { return format >= FORMAT_FP8; }

/* Returns whether weights can be multiplied with quantised activations. */
static inline bool format_integers(enum weight_format format) { return format >= FORMAT_Q8; }

/* Returns whether the integer of a weight is a code times a scale of 16 inputs. */
static inline bool format_halves(enum weight_format format)
{
    return format == FORMAT_Q6_K || format == FORMAT_Q3_K || format == FORMAT_Q2_K || format == FORMAT_IQ2_S ||
           format == FORMAT_IQ2_XS;
}

/* Returns whether each 16 inputs have a scale that is not an integer. */
static inline bool format_steps(enum weight_format format) { return format == FORMAT_NVFP4 || format == FORMAT_NVFP4_S; }

/* Returns whether matrix_pack can make the format from floats. */
static inline bool format_from_floats(enum weight_format format) { return format < FORMAT_MXFP4; }

/* Returns whether a coded row of `inputs` inputs consists of whole blocks. fp8 accepts any number. */
bool format_fits(enum weight_format format, int64_t inputs);

/* Returns the bytes of a coded row. If `inputs` do not fit, the last block counts as a whole one. */
size_t format_coded_bytes(enum weight_format format, int inputs);

/* Converts a coded row to f32 values, for conversion to other formats. */
void format_coded_values(enum weight_format format, int inputs, const void *row, float *values);

/* Returns the first input of a coded row whose weight is not finite, or may not be (then the first of its block); -1: none. */
int format_coded_check(enum weight_format format, int inputs, const void *row);

/* Returns the bound below which the magnitude of weights must be, so that they do not become infinite (f32 and bf16: any finite
 * weight is allowed). */
float format_limit(enum weight_format format);

/* A quantised block of activations. */
struct quantised {
    int8_t q[BLOCK_INPUTS];
    float scale, total;
    int16_t sum[2];         /* of q of the first and the second 16 inputs: corrects for the offset of unsigned weights */
};

/* Returns the bytes of scratch per row of activations, in the form in which products with this format read them: integers for
 * q8, q4 and the formats after them; for bf16 three parts (cpu/parts.h), on devices that use them, or the rounded row
 * (cpu/rounded.h), which is smaller; 0 for the others. */
size_t operand_bytes(enum weight_format format, int inputs);
enum { PARTS = 3, PARTS_LINE = BLOCK_INPUTS * 2, PARTS_STEP = PARTS * PARTS_LINE };

static inline int quantised_blocks(int inputs) { return inputs / BLOCK_INPUTS + (inputs % BLOCK_INPUTS != 0); }

/* Compute sizes in bytes. Dimensions must be at least 1. They return false if the size overflows. */
bool matrix_bytes(enum weight_format format, int64_t outputs, int64_t inputs, size_t *bytes);
bool expert_bytes(enum weight_format format, int64_t hidden, int64_t inner, size_t *bytes);
size_t unit_bytes(enum weight_format format, int inputs);               /* bytes of one unit of a matrix with `inputs` inputs */
size_t expert_down_offset(enum weight_format format, int hidden, int inner);
bool ungated_expert_bytes(enum weight_format format, int64_t hidden, int64_t inner, size_t *bytes);
size_t ungated_down_offset(enum weight_format format, int hidden, int inner);

/* Packs rows `first` .. `first + rows` of a matrix (values [rows][inputs] f32, rounded to the format, to nearest even) into
 * `packed`, the zero-initialised memory of the whole matrix. Exact if the values came from the same format (fp8: nearly,
 * because the scale is recomputed). Only for formats that can be made from floats. */
void matrix_pack(enum weight_format format, void *packed, int inputs, int first, int rows, const float *values);

/* Pack rows of one expert likewise: of gate (part 0) or up (part 1), values [rows][hidden], and of down, values
 * [rows][inner]. */
void expert_pack_gate_up(enum weight_format format, void *packed, int hidden, int part, int first, int rows,
                         const float *values);
void expert_pack_down(enum weight_format format, void *packed, int hidden, int inner, int first, int rows, const float *values);

/* Pack coded rows likewise; always exact. */
void matrix_pack_coded(enum weight_format format, void *packed, int inputs, int first, int rows, const void *coded);
void expert_pack_gate_up_coded(enum weight_format format, void *packed, int hidden, int part, int first, int rows,
                               const void *coded);
void expert_pack_down_coded(enum weight_format format, void *packed, int hidden, int inner, int first, int rows,
                            const void *coded);

/* Returns element [output][input] of a packed matrix, exactly as stored; for tests, viewers and references. */
float matrix_at(enum weight_format format, const void *packed, int inputs, int output, int input);

/* Return an element's integer in a format with integers (format_integers), with its scale in *scale; and the element's minimum,
 * in formats after q4. */
int matrix_integer(enum weight_format format, const void *packed, int inputs, int output, int input, float *scale);
float matrix_less(enum weight_format format, const void *packed, int inputs, int output, int input);

float expert_gate_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);
float expert_up_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);
float expert_down_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);

#endif
