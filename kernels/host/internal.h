/* Shared helpers of the host's training operations. */
#ifndef MOE_KERNELS_HOST_INTERNAL_H
#define MOE_KERNELS_HOST_INTERNAL_H

#include "common/base/thread_pool.h"
#include "kernels/host/learn.h"

/* Returns the memory of a host buffer; NULL if it is none. */
static inline void *host_at(struct buffer buffer) { return (void *)(uintptr_t)buffer.address; }

static inline struct thread_pool *host_pool(const struct queue *queue) { return queue->state; }

/* Runs job(context, begin, end) on ranges that cover 0 .. count-1, on all threads. cost: floats that an item touches,
 * roughly. */
typedef void host_job(const void *context, size_t begin, size_t end);
void host_spread(struct queue *queue, size_t count, size_t cost, host_job *job, const void *context);
/* The same, item by item as threads become free, with the number of the thread. */
typedef void host_item(const void *context, size_t item, int member);
void host_each(struct queue *queue, size_t count, host_item *job, const void *context);

void host_learn_mix(struct queue *, const struct learn_mix_args *);
void host_learn_mix_back(struct queue *, const struct learn_mix_args *);
void host_learn_rotate(struct queue *, const struct learn_rotate_args *);
void host_learn_rotate_back(struct queue *, const struct learn_rotate_args *);
size_t host_learn_attention_scratch(struct queue *, const struct learn_attention_args *);
void host_learn_attention(struct queue *, const struct learn_attention_args *);
void host_learn_attention_back(struct queue *, const struct learn_attention_args *);
void host_learn_unpack(struct queue *, const struct learn_unpack_args *);
void host_learn_smooth(struct queue *, const struct learn_smooth_args *);
void host_learn_target(struct queue *, const struct learn_target_args *);
void host_learn_judge(struct queue *, const struct learn_judge_args *);
void host_learn_total(struct queue *, const struct learn_total_args *);
void host_learn_measure(struct queue *, const struct learn_measure_args *);
void host_learn_adam(struct queue *, const struct learn_adam_args *);

#endif
