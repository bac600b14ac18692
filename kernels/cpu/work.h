/* Distribution of a kernel's tasks over the thread pool. Tasks are numbered 0 .. count-1 in the order of their memory. Every
 * member of the pool owns a contiguous part and removes tasks from its front, so that it reads one long stream; a member
 * without tasks removes tasks from the END of other members' parts. Results do not depend on which member runs a task. */
#ifndef MOE_KERNELS_CPU_WORK_H
#define MOE_KERNELS_CPU_WORK_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/base/thread_pool.h"
#include "kernels/buffer.h"
#include "kernels/ops.h"

enum {
    WORK_MEMBERS = 256,                     /* max members of a pool */
    WORK_TASK_BYTES = 192 * 1024,           /* weights per task that the division into tasks aims at */
    WORK_SHARED_BYTES = 384 * 1024          /* reading fewer bytes from cache takes less time than waking a pool */
};

/* Low half: the next task; high half: the end of the part. */
struct work_part {
    _Alignas(64) _Atomic uint64_t range;
};

struct work {
    struct work_part part[WORK_MEMBERS];
};

static inline uint64_t work_range(uint32_t next, uint32_t end) { return (uint64_t)end << 32 | next; }

static inline void work_assign(struct work *work, int member, uint32_t first, uint32_t end)
{
    atomic_store_explicit(&work->part[member].range, work_range(first, end), memory_order_relaxed);
}

/* Divides tasks of equal size evenly. */
static inline void work_assign_evenly(struct work *work, int members, uint32_t count)
{
    for (int m = 0; m < members; m++) {
        size_t begin, end;
        thread_pool_part(count, m, members, &begin, &end);
        work_assign(work, m, (uint32_t)begin, (uint32_t)end);
    }
}

/* Returns the next task for a member, or -1 if none is left. */
static inline int64_t work_take(struct work *work, int member, int members)
{
    for (int i = 0; i < members; i++) {
        _Atomic uint64_t *range = &work->part[(member + i) % members].range;
        uint64_t seen = atomic_load_explicit(range, memory_order_relaxed);
        for (;;) {
            uint32_t next = (uint32_t)seen, end = (uint32_t)(seen >> 32);
            if (next >= end)
                break;
            uint64_t rest = i == 0 ? work_range(next + 1, end) : work_range(next, end - 1);
            if (atomic_compare_exchange_weak_explicit(range, &seen, rest, memory_order_relaxed, memory_order_relaxed))
                return i == 0 ? next : end - 1;
        }
    }
    return -1;
}

/* Runs a job on the queue's pool, or in the calling thread if there is too little work. bytes: bytes that the job reads,
 * counted once per pass. */
static inline void work_run(struct queue *queue, size_t bytes, void (*job)(void *argument, int member, int members),
                            void *argument)
{
    if (bytes < WORK_SHARED_BYTES)
        job(argument, 0, 1);
    else
        thread_pool_run(queue->state, job, argument);
}

static inline int work_members(const struct queue *queue, size_t bytes)
{
    return bytes < WORK_SHARED_BYTES ? 1 : thread_pool_size(queue->state);
}

static inline void *work_pointer(struct buffer buffer) { return (void *)(uintptr_t)buffer.address; }

#endif
