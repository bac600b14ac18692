/* How a host kernel's tasks are shared out. Tasks are numbered 0 .. count-1 and lie in memory in that order. Every member of
 * the pool owns a contiguous part and takes from its front, so that it reads one long stream; a member that is done takes
 * from the END of the others' parts. Which member does a task never shows in its result. */
#ifndef MOE_KERNELS_CPU_WORK_H
#define MOE_KERNELS_CPU_WORK_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/base/thread_pool.h"
#include "kernels/buffer.h"
#include "kernels/ops.h"

enum {
    WORK_MEMBERS = 256,                     /* the largest pool */
    WORK_TASK_BYTES = 192 * 1024,           /* weights that a task is meant to read */
    WORK_SHARED_BYTES = 384 * 1024          /* less than this, read from cache, takes about as long as waking a pool */
};

/* Low half: the next task; high half: the end. */
struct work_part {
    _Alignas(64) _Atomic uint64_t range;
};

struct work {
    struct work_part part[WORK_MEMBERS];
};

static inline uint64_t work_range(uint32_t next, uint32_t end) { return (uint64_t)end << 32 | next; }

static inline void work_give(struct work *work, int member, uint32_t first, uint32_t end)
{
    atomic_store_explicit(&work->part[member].range, work_range(first, end), memory_order_relaxed);
}

/* Tasks of equal size. */
static inline void work_give_evenly(struct work *work, int members, uint32_t count)
{
    for (int m = 0; m < members; m++) {
        size_t begin, end;
        thread_pool_part(count, m, members, &begin, &end);
        work_give(work, m, (uint32_t)begin, (uint32_t)end);
    }
}

/* The next task for a member, or -1 when none is left anywhere. */
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

/* Runs a job on the queue's pool, or in place when there is too little to do. `bytes` is what it reads, again counted for
 * every pass over it. */
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
