/* How weights lie in memory: the same in a model file, in host memory and, before it re-tiles, on a GPU.
 *
 * MATRIX [outputs][inputs], y = W x. Outputs are cut into UNITS of 32; a unit holds all inputs of its 32 outputs as one
 * contiguous stream, so that a thread that owns a unit reads forward only. In a unit, by input k:
 *
 *     f32    for each k:        32 f32, one an output                                                  128 bytes
 *     f16    for each pair k:   32 f16 of input k, then 32 f16 of input k+1                            128 bytes
 *     bf16   for each pair k:   32 dwords, one an output: low half input k, high half input k+1        128 bytes
 *
 * The last unit is filled up with outputs of zeros; with an odd number of inputs the last pair has a zero second half.
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

enum weight_format { FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_COUNT };

enum { UNIT_OUTPUTS = 32, UNIT_INNER = 16, UNIT_STEP_BYTES = 128 };

const char *format_name(enum weight_format format);                     /* "f32", "f16", "bf16" */
bool format_by_name(const char *name, enum weight_format *out);

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
float expert_gate_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);
float expert_up_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);
float expert_down_at(enum weight_format format, const void *packed, int hidden, int inner, int row, int column);

#endif
