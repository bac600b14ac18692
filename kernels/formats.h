/* How weights lie in memory: the same in a model file, in host memory and, before it re-tiles, on a GPU.
 *
 * MATRIX [outputs][inputs], y = W x. Outputs are cut into UNITS of 32; a unit holds all inputs of its 32 outputs as one
 * contiguous stream, so that a thread that owns a unit reads forward only. In a unit, by input k:
 *
 *     f32    for each k:        32 f32, one an output                                                  128 bytes
 *     f16    for each pair k:   32 f16 of input k, then 32 f16 of input k+1                            128 bytes
 *     bf16   for each pair k:   32 dwords, one an output: low half input k, high half input k+1        128 bytes
 *     q8     for each 32 inputs: 8 groups of 4 inputs [32 outputs][4] bytes, q + 128; then the scales 1024 + 64 bytes
 *     q4     for each 32 inputs: 4 pairs of such groups [32 outputs][4] bytes: low half q + 8 of the
 *                                first group, high half of the second; then the scales                 512 + 64 bytes
 *     fp8    for each 128 inputs: 32 scales f32; then for each pair k [32 outputs][2] codes            128 + 4096 bytes
 *     mxfp4  for each 64 inputs: 2 x [32 outputs] scale codes; then 8 groups of 8 inputs,
 *                                32 dwords, one an output: input i in bits 4i .. 4i+3                  64 + 1024 bytes
 *     q4_k   for each 256 inputs: 32 d f16, 32 dmin f16, 3 x 32 dwords of s; then 32 such groups       512 + 4096 bytes
 *     q6_k   for each 256 inputs: 32 d f16, 16 x 32 sc; then 16 groups of 16 inputs,
 *                                3 x 32 dwords a, b, c, one of each an output                          576 + 6144 bytes
 *
 * The last unit is filled up with outputs of zeros; with an odd number of inputs the last pair has a zero second half.
 *
 * q8 AND q4 store BLOCKS of 32 inputs of one output: integers q and one scale, [32 outputs] f16 a block; a weight is
 * q * scale, exact in f32. Inputs after the last one are q = 0; outputs that fill up have scale 0. From weights w:
 *     q8     scale = f16(max|w| / 127), q = round(w / scale), -127 .. 127
 *     q4     scale = f16(m / -8), m the w of largest magnitude (the first of equal ones), q = round(w / scale), -8 .. 7
 * f16 and round go to nearest, ties to even; divisions are in f32; q outside its range is cut to it; q is 0 where the scale
 * is 0. So a block whose scale is not subnormal comes back as it was when its weights are packed again.
 *
 * FP8, MXFP4, Q4_K AND Q6_K are what files of others hold, bit by bit; the weight is the f32 that is named here, and meets f32
 * activations:
 *     fp8    code * scale, rounded to f32: code is E4M3FN (bias 7, largest 448; the NaN codes 0x7f and 0xff do not occur),
 *            scale f32, one for 128 inputs of one output: so it holds scales of 128x128 blocks, of rows, and of tensors.
 *            From weights w: scale = max|w| / 448 of the 128, code = w / scale, cut to -448 .. 448; 0 where the scale is 0.
 *     mxfp4  code * 2^(s - 127), exact: code is E2M1 (sign, then 0 .5 1 1.5 2 3 4 6), s 0 .. 252 for 32 inputs of one output
 *            (OCP Microscaling Formats 1.0)
 *     q4_k   fma(d * sc, q, -(dmin * m)), its only rounding: GGUF's Q4_K; q 0 .. 15; sc and m, 0 .. 63 for 32 inputs, lie in
 *            the 12 bytes s as there, bytes 0 .. 3 in the first dword
 *     q6_k   d * sc * (q - 32), exact, +0 where q is 32: GGUF's Q6_K; q 0 .. 63; sc -128 .. 127 for 16 inputs. q of input
 *            i < 15 is bits 6 (i mod 5) .. of dword i / 5; that of input 15 is the upper two bits of a, then of b, then of c.
 * Codes of inputs after the last one are 0; up to the next multiple of 32 inputs they meet activations of 0. Of these formats
 * only fp8 is made from floats.
 *
 * CODED rows are those of a file of others, row after row (format_coded_bytes each), to be packed as they are:
 *     f32, f16, bf16: the values
 *     q8     GGUF's Q8_0: for each 32 inputs f16 scale, 32 int8                                        34 bytes
 *     q4     GGUF's Q4_0: for each 32 inputs f16 scale, 16 bytes: input i low, i + 16 high half, q + 8 18 bytes
 *     fp8    f32 scales, one for each 128 inputs; then a code an input                                 inputs + 4 an 128
 *     mxfp4  for each 32 inputs 16 bytes: input 2i low, 2i + 1 high half; then s                       17 bytes
 *     q4_k   for each 256 inputs GGUF's block: d, dmin, s[12], qs[128]                                 144 bytes
 *     q6_k   for each 256 inputs GGUF's block: ql[128], qh[64], sc[16], d                              210 bytes
 *
 * Products of q8 and q4 take activations as integers too. A row of f32 becomes, for each block of 32 inputs (missing ones
 * are 0), a struct quantised: with m = max|x| of the block
 *     scale = m / 127, q = round(x * (127 / m)), -127 .. 127, start = -8 * sum of q
 * in f32, round to nearest, ties to even. If m < 2^-100 the scale and all q are 0; if m is not finite the scale is a NaN and
 * all q are 0. Then, per output and row, from 0, over the blocks in ascending order:
 *     y = fma((float)(sum of q of weight * q of input, an exact integer), scale of weight * scale of input, y)
 *
 * EXPERT (a gated feed-forward network: gate [inner][hidden], up [inner][hidden], down [hidden][inner]) is one block:
 * units of gate and up, then the units of down as a matrix [hidden][inner]. A gate/up unit holds inner indices
 * 16u .. 16u+15: outputs 0..15 are their gate rows, 16..31 their up rows, so that act(gate) * up is at hand when the
 * unit has been read. Missing inner indices of the last unit are zeros.
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

/* Weights in blocks of 32 inputs, which meet quantised activations. */
static inline bool format_quantised(enum weight_format format) { return format == FORMAT_Q8 || format == FORMAT_Q4; }

/* Weights of fewer than 16 bits, with scales. */
static inline bool format_scaled(enum weight_format format) { return format >= FORMAT_FP8; }

/* matrix_pack can make it from floats. */
static inline bool format_from_floats(enum weight_format format) { return format < FORMAT_MXFP4; }

/* Coded rows of so many inputs are whole blocks: of 32 inputs, or 256 for q4_k and q6_k. Any number in fp8. */
bool format_fits(enum weight_format format, int64_t inputs);

/* Bytes of a coded row, of inputs that fit; the last block counts whole if they do not. */
size_t format_coded_bytes(enum weight_format format, int inputs);

/* The weights of a coded row: for those who want another format. */
void format_coded_values(enum weight_format format, int inputs, const void *row, float *values);

/* The first input of a coded row whose weight is not a finite number, or may not be (that of its block); -1: none. */
int format_coded_check(enum weight_format format, int inputs, const void *row);

/* Weights must be of smaller magnitude than this (f32 and bf16: finite), lest they become infinite. */
float format_limit(enum weight_format format);

/* A block of activations. */
struct quantised {
    int8_t q[BLOCK_INPUTS];
    float scale;
    int32_t start;          /* of a sum with unsigned weights q + 8, which q4 has; 16 times as much with q + 128, as of q8 */
};

/* Bytes of scratch that a row of activations takes on its way into products with such weights: integers for q8 and q4; for
 * bf16 its parts (cpu/parts.h), on devices that make them; none for others. */
size_t operand_bytes(enum weight_format format, int inputs);
enum { PARTS = 3, PARTS_LINE = BLOCK_INPUTS * 2, PARTS_STEP = PARTS * PARTS_LINE };

static inline int quantised_blocks(int inputs) { return inputs / BLOCK_INPUTS + (inputs % BLOCK_INPUTS != 0); }

/* Sizes in bytes. Dimensions are at least 1; false when the size does not fit. */
bool matrix_bytes(enum weight_format format, int64_t outputs, int64_t inputs, size_t *bytes);
bool expert_bytes(enum weight_format format, int64_t hidden, int64_t inner, size_t *bytes);
size_t unit_bytes(enum weight_format format, int inputs);               /* one unit of a matrix with so many inputs */
size_t expert_down_offset(enum weight_format format, int hidden, int inner);

/* Puts rows `first` .. `first + rows` of a matrix (values [rows][inputs] f32, rounded to the format, to nearest even) into
 * `packed`, which holds the whole matrix and starts out as zeros. Exact when the values came from the same format (fp8: nearly,
 * the scale is computed anew). For formats that can be made from floats. */
void matrix_pack(enum weight_format format, void *packed, int inputs, int first, int rows, const float *values);

/* The same for rows of gate (part 0) or up (part 1), values [rows][hidden], and of down, values [rows][inner], of one
 * expert. */
void expert_pack_gate_up(enum weight_format format, void *packed, int hidden, int part, int first, int rows,
                         const float *values);
void expert_pack_down(enum weight_format format, void *packed, int hidden, int inner, int first, int rows, const float *values);

/* All three for coded rows: exact. */
void matrix_pack_coded(enum weight_format format, void *packed, int inputs, int first, int rows, const void *coded);
void expert_pack_gate_up_coded(enum weight_format format, void *packed, int hidden, int part, int first, int rows,
                               const void *coded);
void expert_pack_down_coded(enum weight_format format, void *packed, int hidden, int inner, int first, int rows,
                            const void *coded);

/* Element [output][input] of a packed matrix, exactly as stored: for tests, viewers and references. */
float matrix_at(enum weight_format format, const void *packed, int inputs, int output, int input);

/* q8 and q4: its integer, and the scale of its block. */
int matrix_integer(enum weight_format format, const void *packed, int inputs, int output, int input, float *scale);

float expert_gate_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);
float expert_up_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);
float expert_down_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);

#endif
