/* Products of a SLAB (kernels/linear.h) as a library's matrix products (gemm.h), and the code that linear and expert_ffn share
 * for slabs.
 *
 *     weights      unpacked to bf16 [outputs][inputs], matrix by matrix, because the library cannot read the units of
 *                  kernels/formats.h. bf16 and mxfp4 are exact; f16, fp8, q4_k and q6_k become two bf16, each rounded to
 *                  nearest: one product for the first, and one more for the second, added to the same sums
 *     activations  as two bf16, each rounded to nearest, in separate rows: 2i and 2i + 1
 *     sums         of rows 2i and 2i + 1 are added at the end, then bias, scale and out are applied as the contract specifies
 *
 * So weights in bf16, f16 and mxfp4 are exact, and other numbers lose at most 2^-18 of their value: no more than a tensor core
 * truncates in a long chain of sums. q8, q4 and f32 are computed by tiles (tile.h), as their contracts promise the host's bits.
 *
 * Bits: all sizes that a product of gemm.h depends on follow from the slab's own rows: their number, the shapes, and their
 * routing. This is why a slab is never divided.
 *
 * Its memory is allocated when the first slab is computed, and kept: up to `room` bytes each for the unpacked weights and the
 * sums of experts, but at least enough for one expert and one item. */
#ifndef MOE_KERNELS_CUDA_SLAB_H
#define MOE_KERNELS_CUDA_SLAB_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"

/* JOIN_THREADS: threads of a block that joins the parts of sums. */
enum { SLAB_PARTS = 2, SLAB_ALIGN = 8, JOIN_THREADS = 128 };

struct slab {
    struct gemm *gemm;
    size_t room;
    struct buffer weights, in, sums, lists;
};

/* Matrices to unpack, one after the other, of `units` units each: 32 * units outputs and `inputs` inputs. */
struct slab_matrices {
    uint64_t address;                /* of the only packed matrix; 0: matrix i is at table[list[i]] + offset */
    const uint64_t *table;
    const int32_t *list;
    size_t offset;
    int count, units, inputs;
};

/* Floats that become rows of a product: row i is row list[i] / each of x, or zeros if list[i] < 0; without a list, row i is row
 * i of x. */
struct slab_rows {
    const float *x;
    int64_t stride;
    const int32_t *list;
    int each, rows, inputs;
};

/* Returns NULL, with the reason, if the device has no library for gemm.h; an operation with a slab is then computed by
 * tiles. */
struct slab *slab_open(dev_stream stream, size_t room, char *why, size_t why_room);
void slab_close(struct slab **slab);

/* Returns whether the library multiplies the rows of a slab: it is open, and the format is not left to tiles. */
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
