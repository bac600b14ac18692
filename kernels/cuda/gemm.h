/* Matrix products over many rows, by a library: all that a slab (kernels/linear.h) and training (kernels/learn.h) need of one.
 *
 *     out[r][o] = [out[r][o] +] sum over k of in[r][k] * weight[o][k]      bf16 times bf16, summed in f32
 *
 * in      [rows][inputs] bf16, weight [outputs][inputs] bf16, out [rows][outputs] f32: without gaps, on the device, 16-byte
 *         aligned; inputs and outputs are multiples of 8
 *
 * Bits:   a function of the arguments' numbers and of what the matrices hold, from run to run, on one kind of GPU with one
 *         version of the library: sums have an order that the library chooses by the numbers, and nothing else. So two calls
 *         have the same bits only if all of rows, count, inputs and outputs are the same. To hold it there: one stream with a
 *         workspace of its own, f32 sums without narrower steps between, no atomics.
 *
 * On a GPU that is cuBLAS: its library is opened with the device, and starts with the first product (gemm.cu). On the emulator
 * it is one chain of fused multiply-adds an output (tests/emu/gemm.cc). */
#ifndef MOE_KERNELS_CUDA_GEMM_H
#define MOE_KERNELS_CUDA_GEMM_H

#include "kernels/cuda/dev.h"

struct gemm;

struct gemm_args {
    const void *in, *weight;             /* matrices; with `count` > 0 lists of `count` pointers to them, on the device: each */
    void *out;                           /* product is one of these three */
    int count, rows, inputs, outputs;
    bool add;
};

/* Returns NULL, with the reason in one line, if there is no library. */
struct gemm *gemm_open(dev_stream stream, char *why, size_t room);
void gemm_close(struct gemm **gemm);     /* when the stream is idle */

/* Queues the products on the stream. dev_wait reports failures, like those of a launch. */
void gemm_run(struct gemm *gemm, const struct gemm_args *args);

/* The same of f32, rounded nowhere between:
 *
 *     c[r][o] = [c[r][o] +] sum over k < depth of a(r, k) * b(k, o)       r < rows, o < columns
 *
 * a(r, k) is a[r][k], or a[k][r] where a_turned says so; b(k, o) is b[k][o], or b[o][k]. Strides are the floats between
 * rows. `turned` on both sides is not used. rows, columns and depth are at least 1. */
struct gemm_floats {
    const float *a, *b;
    float *c;
    int a_stride, b_stride, c_stride;
    int rows, columns, depth;
    bool a_turned, b_turned, add;
};
void gemm_run_floats(struct gemm *gemm, const struct gemm_floats *args);

#endif
