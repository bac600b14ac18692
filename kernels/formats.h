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
 * FP8, MXFP4, Q4_K AND Q6_K store the codes of published files bit by bit. Each weight is the f32 given here and is multiplied
 * with f32 activations:
 *     fp8    code * scale, rounded to f32: the code is E4M3FN (bias 7, largest 448; the NaN codes 0x7f and 0xff do not occur).
 *            One f32 scale for 128 inputs of one output can represent scales of 128x128 blocks, of rows, and of tensors.
 *            From weights w: scale = max|w| / 448 of the 128, code = w / scale, clamped to -448 .. 448; 0 if the scale is 0.
 *     mxfp4  code * 2^(s - 127), exact: the code is E2M1 (sign, then 0 .5 1 1.5 2 3 4 6), s 0 .. 252 for 32 inputs of one
 *            output (OCP Microscaling Formats 1.0)
 *     q4_k   fma(d * sc, q, -(dmin * m)), its only rounding: GGUF's Q4_K; q 0 .. 15; sc and m, 0 .. 63 for 32 inputs, are
 *            packed in the 12 bytes s as in GGUF, bytes 0 .. 3 in the first dword
 *     q6_k   d * sc * (q - 32), exact, +0 where q is 32: GGUF's Q6_K; q 0 .. 63; sc -128 .. 127 for 16 inputs. q of input
 *            i < 15 is bits 6 (i mod 5) .. of dword i / 5; that of input 15 is the upper two bits of a, then of b, then of c.
 * Codes of padding inputs are 0; up to the next multiple of 32 inputs they are multiplied with activations of 0. Among these
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
 *
 * Products with q8 and q4 quantise the activations, too. A row of f32 becomes one struct quantised for each block of 32 inputs
 * (padded with 0): with m = max|x| of the block
 *     scale = m / 127, q = round(x * (127 / m)), -127 .. 127, start = -8 * sum of q
 * in f32, rounded to nearest, ties to even. If m < 2^-100, the scale and all q are 0; if m is not finite, the scale is a NaN
 * and all q are 0. Then, per output and row, from 0, over the blocks in ascending order:
 *     y = fma((float)(sum of q of weight * q of input, an exact integer), scale of weight * scale of input, y)
 *
 * EXPERT (a gated feed-forward network: gate [inner][hidden], up [inner][hidden], down [hidden][inner]) is one block: units of
 * gate and up, then the units of down as a matrix [hidden][inner]. A gate/up unit contains inner indices 16u .. 16u+15: outputs
 * 0..15 are their gate rows, 16..31 their up rows, so that act(gate) * up can be computed as soon as the unit has been read.
 * Missing inner indices of the last unit are zeros.
 *
 * VECTOR: plain f32. */
#ifndef MOE_KERNELS_FORMATS_H
#define MOE_KERNELS_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum weight_format {
    FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_FP8, FORMAT_Q8, FORMAT_Q4, FORMAT_MXFP4, FORMAT_Q4_K, FORMAT_Q6_K, FORMAT_COUNT
};

enum { UNIT_OUTPUTS = 32, UNIT_INNER = 16, UNIT_STEP_BYTES = 128 };
enum { BLOCK_INPUTS = 32, BLOCK_SCALE_BYTES = 64, Q8_BLOCK_BYTES = 1024 + 64, Q4_BLOCK_BYTES = 512 + 64 };
enum { FP8_BLOCK_INPUTS = 128, FP8_BLOCK_BYTES = 128 + 4096, MXFP4_PAIR_BYTES = 64 + 1024 };
enum { SUPERBLOCK_INPUTS = 256, Q4_K_BLOCK_BYTES = 512 + 4096, Q6_K_BLOCK_BYTES = 576 + 6144 };

const char *format_name(enum weight_format format);         /* f32, f16, bf16, fp8, q8, q4, mxfp4, q4_k, q6_k */
bool format_by_name(const char *name, enum weight_format *out);

/* Returns whether weights are integers in blocks of 32 inputs, to be multiplied with quantised activations. */
static inline bool format_quantised(enum weight_format format) { return format == FORMAT_Q8 || format == FORMAT_Q4; }

/* Returns whether weights have fewer than 16 bits, and scales. */
static inline bool format_scaled(enum weight_format format) { return format >= FORMAT_FP8; }

/* Returns whether matrix_pack can make the format from floats. */
static inline bool format_from_floats(enum weight_format format) { return format < FORMAT_MXFP4; }

/* Returns whether a coded row of `inputs` inputs consists of whole blocks: of 256 inputs for q4_k and q6_k, of 32 for the other
 * block formats. fp8 accepts any number. */
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
    float scale;
    int32_t start;          /* correction for the offset of unsigned weights q + 8 in q4; 16 times as much for q + 128 in q8 */
};

/* Returns the bytes of scratch per row of activations, in the form in which products with this format read them: integers for
 * q8 and q4; for bf16 three parts (cpu/parts.h), on devices that use them; 0 for the others. */
size_t operand_bytes(enum weight_format format, int inputs);
enum { PARTS = 3, PARTS_LINE = BLOCK_INPUTS * 2, PARTS_STEP = PARTS * PARTS_LINE };

static inline int quantised_blocks(int inputs) { return inputs / BLOCK_INPUTS + (inputs % BLOCK_INPUTS != 0); }

/* Compute sizes in bytes. Dimensions must be at least 1. They return false if the size overflows. */
bool matrix_bytes(enum weight_format format, int64_t outputs, int64_t inputs, size_t *bytes);
bool expert_bytes(enum weight_format format, int64_t hidden, int64_t inner, size_t *bytes);
size_t unit_bytes(enum weight_format format, int inputs);               /* bytes of one unit of a matrix with `inputs` inputs */
size_t expert_down_offset(enum weight_format format, int hidden, int inner);

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

/* q8 and q4: returns the element's integer, and in *scale the scale of its block. */
int matrix_integer(enum weight_format format, const void *packed, int inputs, int output, int input, float *scale);

float expert_gate_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);
float expert_up_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);
float expert_down_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);

#endif
