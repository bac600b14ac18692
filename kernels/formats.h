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
 *
 * The last unit is filled up with outputs of zeros; with an odd number of inputs the last pair has a zero second half.
 *
 * q8 AND q4 store BLOCKS of 32 inputs of one output: integers q and one scale, [32 outputs] f16 a block; a weight is
 * q * scale, exact in f32. Inputs behind the last one are q = 0; outputs that fill up have scale 0. From weights w:
 *     q8     scale = f16(max|w| / 127), q = round(w / scale), -127 .. 127
 *     q4     scale = f16(m / -8), m the w of largest magnitude (the first of equal ones), q = round(w / scale), -8 .. 7
 * f16 and round go to nearest, ties to even; divisions are in f32; q outside its range is cut to it; q is 0 where the scale
 * is 0. So a block whose scale is not subnormal comes back as it was when its weights are packed again.
 *
 * Products of q8 and q4 take activations as integers too. A row of f32 becomes, for each block of 32 inputs (missing ones
 * are 0), a struct quantised: with m = max|x| of the block
 *     scale = m / 127, q = round(x * (127 / m)), -127 .. 127, sum = sum of q
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

enum weight_format { FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8, FORMAT_Q4, FORMAT_COUNT };

enum { UNIT_OUTPUTS = 32, UNIT_INNER = 16, UNIT_STEP_BYTES = 128 };
enum { BLOCK_INPUTS = 32, BLOCK_SCALE_BYTES = 64, Q8_BLOCK_BYTES = 1024 + 64, Q4_BLOCK_BYTES = 512 + 64 };

const char *format_name(enum weight_format format);                     /* "f32", "f16", "bf16", "q8", "q4" */
bool format_by_name(const char *name, enum weight_format *out);

/* Weights in blocks of 32 inputs, which meet quantised activations. */
static inline bool format_quantised(enum weight_format format) { return format >= FORMAT_Q8; }

/* Weights must be of smaller magnitude than this (f32 and bf16: finite), lest they become infinite. */
float format_limit(enum weight_format format);

/* A block of activations. */
struct quantised {
    int8_t q[BLOCK_INPUTS];
    float scale;
    int32_t sum;
};

static inline int quantised_blocks(int inputs) { return inputs / BLOCK_INPUTS + (inputs % BLOCK_INPUTS != 0); }

/* Sizes in bytes. Dimensions are at least 1; false when the size does not fit. */
bool matrix_bytes(enum weight_format format, int64_t outputs, int64_t inputs, size_t *bytes);
bool expert_bytes(enum weight_format format, int64_t hidden, int64_t inner, size_t *bytes);
size_t unit_bytes(enum weight_format format, int inputs);               /* one unit of a matrix with so many inputs */
size_t expert_down_offset(enum weight_format format, int hidden, int inner);

/* Puts rows `first` .. `first + rows` of a matrix (values [rows][inputs] f32, rounded to the format, to nearest even) into
 * `packed`, which holds the whole matrix and starts out as zeros. Exact when the values came from the same format. */
void matrix_pack(enum weight_format format, void *packed, int inputs, int first, int rows, const float *values);

/* The same for rows of gate (part 0) or up (part 1), values [rows][hidden], and of down, values [rows][inner], of one
 * expert. */
void expert_pack_gate_up(enum weight_format format, void *packed, int hidden, int part, int first, int rows,
                         const float *values);
void expert_pack_down(enum weight_format format, void *packed, int hidden, int inner, int first, int rows, const float *values);

/* Element [output][input] of a packed matrix, exactly as stored: for tests, viewers and references. */
float matrix_at(enum weight_format format, const void *packed, int inputs, int output, int input);

/* q8 and q4: its integer, and the scale of its block. */
int matrix_integer(enum weight_format format, const void *packed, int inputs, int output, int input, float *scale);

float expert_gate_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);
float expert_up_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);
float expert_down_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);

#endif
