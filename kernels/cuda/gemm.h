/* Matrix products over many rows, by a library: everything that a slab (kernels/linear.h) and training (kernels/learn.h) need
 * of such a library.
 *
 *     out[r][o] = [out[r][o] +] sum over k of in[r][k] * weight[o][k]      bf16 times bf16, summed in f32
 *
 * in      [rows][inputs] bf16, weight [outputs][inputs] bf16, out [rows][outputs] f32: contiguous, on the device, 16-byte
 *         aligned; inputs and outputs are multiples of 8
 *
 * Bits:   reproducible from run to run, on one kind of GPU with one version of the library: they depend on the contents of the
 *         matrices and on the integer arguments only, by which the library chooses the order of sums. So two calls are
 *         bit-identical only if rows, count, inputs and outputs are all the same. To ensure this: one stream with a workspace
 *         of its own, f32 sums without narrower intermediate results, no atomics.
 *
 * On a GPU the library is cuBLAS: it is opened with the device, and initialised by the first product (gemm.cu). On the emulator
 * each output is one chain of fused multiply-adds (tests/emu/gemm.cc). */
#ifndef MOE_KERNELS_CUDA_GEMM_H
#define MOE_KERNELS_CUDA_GEMM_H

#include "kernels/cuda/dev.h"

struct gemm;

struct gemm_args {
    const void *in, *weight;             /* matrices; with `count` > 0, arrays of `count` pointers to matrices, */
    void *out;                           /* on the device, one pointer for each product */
    int count, rows, inputs, outputs;
    bool add;
};

/* Returns NULL, with the reason in one line in `why`, if there is no library. */
struct gemm *gemm_open(dev_stream stream, char *why, size_t room);
void gemm_close(struct gemm **gemm);     /* call only while the stream is idle */

/* Queues the products on the stream. dev_wait reports failures, like those of a launch. */
void gemm_run(struct gemm *gemm, const struct gemm_args *args);

/* The same for f32, without narrower rounding in between:
 *
 *     c[r][o] = [c[r][o] +] sum over k < depth of a(r, k) * b(k, o)       r < rows, o < columns
 *
 * a(r, k) is a[r][k], or with a_turned a[k][r]; b(k, o) is b[k][o], or with b_turned b[o][k]. Strides are in floats, from row
 * to row. a_turned and b_turned are never both set. rows, columns and depth are at least 1. */
struct gemm_floats {
    const float *a, *b;
    float *c;
    int a_stride, b_stride, c_stride;
    int rows, columns, depth;
    bool a_turned, b_turned, add;
};
void gemm_run_floats(struct gemm *gemm, const struct gemm_floats *args);

#endif
