/* Products of a SLAB (kernels/linear.h) as a library's matrix products (gemm.h), and what both operations share for that.
 *
 *     weights      unpacked to bf16 [outputs][inputs], a matrix at a time, for the units of kernels/formats.h are not a matrix
 *                  that a library takes. bf16 and mxfp4 as they are; f16, fp8, q4_k and q6_k as two bf16, to nearest each: a
 *                  product for the first, one more for the second into the same sums
 *     activations  as two bf16, to nearest each, in rows of their own: 2i and 2i + 1
 *     sums         of rows 2i and 2i + 1 are added at the end, then what the contract says of bias, scale and out
 *
 * So nothing of a weight in bf16, f16 or mxfp4 is lost, and of other numbers 2^-18 of them at most: no more than a tensor core
 * cuts from a long chain of sums. q8, q4 and f32 keep to tiles (tile.h), as their contracts promise the host's bits.
 *
 * Bits: all numbers that a product of gemm.h depends on follow from the slab's own rows: how many they are, shapes, and how
 * they are routed. That is why a slab is whole or is none.
 *
 * Memory for it is taken when the first slab comes, and kept: the unpacked weights and the sums of experts to `room` bytes
 * each, but of one expert and one item at least. */
#ifndef MOE_KERNELS_CUDA_SLAB_H
#define MOE_KERNELS_CUDA_SLAB_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"

enum { SLAB_PARTS = 2, SLAB_ALIGN = 8 };

struct slab {
    struct gemm *gemm;
    size_t room;
    struct buffer weights, in, sums, lists;
};

/* Matrices to unpack, one after the other, of `units` units each: 32 * units outputs and `width` inputs. */
struct slab_matrices {
    uint64_t address;                /* of the one packed matrix; 0: matrix i is at table[list[i]] + offset */
    const uint64_t *table;
    const int32_t *list;
    size_t offset;
    int count, units, inputs;
};

/* Floats that become rows of a product: row i is row list[i] / each of x, zeros where list[i] < 0; without a list row i. */
struct slab_rows {
    const float *x;
    int64_t stride;
    const int32_t *list;
    int each, rows, inputs;
};

/* Returns NULL, with the reason, if the device has no products of gemm.h; an operation with a slab is then computed by tiles.
 */
struct slab *slab_open(dev_stream stream, size_t room, char *why, size_t why_room);
void slab_close(struct slab **slab);

/* Returns whether rows of a slab are multiplied by the library: it is open, and the format is not left to tiles. */
bool slab_takes(const struct queue *queue, bool slab, enum weight_format format);

/* Grows a buffer of the slab to `bytes` bytes. Returns false on failure, which dev_wait then reports. */
bool slab_need(struct queue *queue, struct buffer *buffer, size_t bytes);

static inline int slab_width(int inputs) { return (inputs + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN; }
static inline int slab_pieces(enum weight_format format) { return format == FORMAT_BF16 || format == FORMAT_MXFP4 ? 1 : 2; }

void slab_unpack(struct queue *queue, enum weight_format format, int piece, const struct slab_matrices *from,
                 struct buffer to);
void slab_split(struct queue *queue, const struct slab_rows *from, struct buffer to);

void slab_linear(struct queue *queue, const struct linear_args *args);
void slab_expert_ffn(struct queue *queue, const struct expert_ffn_args *args);

#endif
