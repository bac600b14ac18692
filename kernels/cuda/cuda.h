/* The operations of kernels/ops.h on a CUDA device. Contracts are those of kernels/NAME.h; this comment adds what is specific
 * to GPUs.
 *
 * BITS. Products with f32, q8 and q4 weights, norms, rotations, attention, recurrent states, routers and all copies are
 * bit-identical to the host: their contracts specify every rounding, and the kernels follow them. Products with bf16, f16, fp8,
 * mxfp4, q4_k and q6_k run on tensor cores (tile.h) and meet the contract within the tolerances of tests/kernel/tolerance.h.
 * The bits of a row always depend on that row alone, not on the number of rows, the tree, the grid, or the number of
 * multiprocessors; they are promised within one architecture, because the sums of the tensor core instruction differ between
 * architectures. The one exception is a slab of a prompt (kernels/linear.h), whose bits depend on the whole slab (slab.h), and
 * are promised on one kind of GPU with one version of cuBLAS.
 *
 * A queue's state is a struct cuda_context. Launches return no error; dev_wait reports the errors of the device. */
#ifndef MOE_KERNELS_CUDA_CUDA_H
#define MOE_KERNELS_CUDA_CUDA_H

#include "kernels/choose.h"
#include "kernels/cuda/context.h"
#include "kernels/loop.h"
#include "kernels/ops.h"

static inline dev_stream cuda_stream(const struct queue *queue) { return ((const struct cuda_context *)queue->state)->stream; }

static inline const int32_t *cuda_live(const struct queue *queue) { return ((const struct cuda_context *)queue->state)->live; }

static inline bool cuda_enabled(const struct queue *queue, enum cuda_switch what)
{
    return !(((const struct cuda_context *)queue->state)->off & what);
}

/* Return the number of rows to process, and whether to skip this row, given the `live` of context.h (NULL: all rows). */
DEVICE int live_rows(const int32_t *live, int rows) { return live ? *live : rows; }
DEVICE bool not_live(const int32_t *live, int64_t row) { return live && row >= *live; }

template <typename V> static __host__ __device__ __forceinline__ V *device_pointer(struct buffer buffer)
{
    return (V *)(uintptr_t)buffer.address;
}

/* Returns the number of blocks for `count` elements, `width` per block. */
static inline unsigned blocks_for(int64_t count, int width) { return (unsigned)((count + width - 1) / width); }

/* Max bytes to prefetch for later launches: the part of the second-level cache of an H100 that a layer's own data leaves
 * free. */
enum { CUDA_AHEAD_MAX = 24 << 20 };

static inline struct buffer cuda_ahead(const struct queue *queue, struct buffer ahead)
{
    const bool wanted = cuda_enabled(queue, CUDA_AHEAD) && ahead.address && ahead.address % 16 == 0;
    const uint64_t bytes = ahead.bytes < CUDA_AHEAD_MAX ? ahead.bytes / 16 * 16 : (uint64_t)CUDA_AHEAD_MAX;
    return wanted ? buffer{ahead.address, bytes} : buffer{0, 0};
}

/* Prefetches this block's part of memory that a later launch reads, with one thread. A block calls this once it has read its
 * own weights, because memory would otherwise be idle until the next product. `ahead` is the result of cuda_ahead. */
DEVICE void prefetch_part(struct buffer ahead, unsigned part, unsigned parts)
{
    uint64_t pieces = ahead.bytes / 16, each = (pieces + parts - 1) / parts, first = each * part;
    if (threadIdx.x == 0 && first < pieces)
        prefetch(device_pointer<char>(ahead) + first * 16, (size_t)(each < pieces - first ? each : pieces - first) * 16);
}

void cuda_embed(struct queue *, const struct embed_args *);
void cuda_norm(struct queue *, const struct norm_args *);
void cuda_clamp(struct queue *, const struct clamp_args *);
void cuda_gather(struct queue *, const struct gather_args *);
void cuda_linear(struct queue *, const struct linear_args *);
void cuda_norm_linear(struct queue *, const struct norm_linear_args *);
void cuda_rope(struct queue *, const struct rope_args *);
void cuda_kv_write(struct queue *, const struct kv_write_args *);
void cuda_qkv(struct queue *, const struct qkv_args *);
void cuda_kv_move(struct queue *, const struct kv_move_args *);
void cuda_attention(struct queue *, const struct attention_args *);
void cuda_route_score(struct queue *, const struct route_score_args *);
void cuda_route_shortlist(struct queue *, const struct route_shortlist_args *);
void cuda_route_select(struct queue *, const struct route_select_args *);
void cuda_expert_ffn(struct queue *, const struct expert_ffn_args *);
void cuda_routed_ffn(struct queue *, const struct routed_ffn_args *);
void cuda_activate(struct queue *, const struct activate_args *);
void cuda_log_add(struct queue *, const struct log_add_args *);
void cuda_blend(struct queue *, const struct blend_args *);
void cuda_blend_weights(struct queue *, const struct blend_weights_args *);
void cuda_short_conv(struct queue *, const struct short_conv_args *);
void cuda_delta_keys(struct queue *, const struct delta_keys_args *);
void cuda_delta(struct queue *, const struct delta_args *);
void cuda_gated(struct queue *, const struct gated_args *);
void cuda_top(struct queue *, const struct top_args *);
void cuda_choose(struct queue *, const struct choose_args *);
void cuda_loop_draft(struct queue *, const struct loop_args *);
void cuda_loop_facts(struct queue *, const struct loop_args *);
void cuda_loop_accept(struct queue *, const struct loop_args *);

/* Adds the slots of each row: the last step of expert_ffn, as a separate launch. */
void cuda_expert_sum(struct queue *, const struct expert_ffn_args *);

/* Quantises rows of floats to integers for products with q8 and q4 (formats.h); skips rows with expert[row] < 0 (expert none:
 * skips no row). Each row of the forward has `each` of these rows. */
void cuda_quantise(struct queue *, struct buffer in, int stride, int rows, int each, int inputs, struct buffer expert,
                   struct buffer out);

/* Writes at most CUDA_PUT_MAX bytes from the host to the device (put.cu). The host's bytes may change as soon as it returns. */
enum { CUDA_PUT_MAX = 8192 };
void cuda_put(dev_stream stream, void *to, const void *from, size_t bytes);

/* repeat.cu and clock.cu: the loops and the clock of the plug-in (kernels/plugin.h). */
struct cuda_loop;
struct cuda_loop_body;
int cuda_loop_open(struct cuda_context *context, const struct cuda_loop_body *body, struct cuda_loop **out);
int cuda_loop_busy(struct cuda_loop *loop, int *busy);
int cuda_loop_go(struct cuda_loop *loop);
int cuda_loop_close(struct cuda_loop **loop);
void cuda_loop_forget(struct cuda_context *context);     /* frees the graph that was kept for the next loop; for closing the
                                                          * context */
int cuda_time(struct cuda_context *context, void (*put)(void *context), void *put_context, double *seconds);

extern "C" const struct device_ops cuda_ops;

#endif
