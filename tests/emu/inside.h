/* Interfaces between the emulator's parts: fibers (fiber.cc), blocks and meetings (block.cc), collectives (warp.cc), memory
 * (memory.cc), streams (stream.cc), graphs (graph.cc), the race detector (race.cc), and findings (findings.cc). */
#ifndef MOE_EMU_INSIDE_H
#define MOE_EMU_INSIDE_H

#include <vector>

#include "tests/emu/emu.h"
#include "tests/emu/tensor_core.h"

namespace emu {

/* -- fiber.cc: stacks, and switching between them. The host's own stack is fiber -1. -- */

const int HOST = -1;
void fibers_begin(void (*start)(void));                      /* fibers will begin in start, which never returns */
int fiber_new(void);                                         /* one that will begin when it is switched to */
void fiber_switch(int from, int to, bool from_is_done);
void fibers_forget(void);                                    /* discards fibers that have not ended */
const size_t FIBER_STACK = 256 * 1024;
extern const char *running_stack;                            /* of the running fiber; NULL: of the host */
/* Returns whether the address is on the stack of the running fiber. */
static inline bool fiber_owns(const void *address) { return (uintptr_t)address - (uintptr_t)running_stack < FIBER_STACK; }

/* -- block.cc -- */

enum state { READY, AT_BARRIER, AT_MEETING, ENDED };

struct copy_16 {
    void *to;
    const void *from;                    /* NULL: zeros */
    int line;
};

struct thread {
    location where;
    int fiber;                           /* HOST: it has not begun */
    state at;
    int line;                            /* where it waits */
    /* a collective of its warp: */
    kind what;
    unsigned mask;
    int argument;
    unsigned char in[40], out[40];
    size_t bytes;
    int count_value;                     /* argument of a counting barrier; 0 or 1 */
    bool early_waited;
    std::vector<copy_16> copies;
    std::vector<size_t> groups;          /* ends of the committed groups in copies */
    size_t copied;                       /* copies that have arrived */
    long yields;
};

struct running {
    const char *kernel;
    dim3 grid, block;
    int threads, block_index, self;
    size_t smem;
    thread *thread_of;
    bool given_up;                       /* a finding ended the launch */
    bool early;                          /* it may begin before the previous launch has ended */
    const unsigned char *arguments;
    size_t argument_bytes;
};
extern running now;

static inline struct thread *self(void) { return &now.thread_of[now.self]; }
void thread_ready(int index);
int launches(void);                              /* so far */
void prefetch_watch(const void *memory, size_t bytes);   /* memory.cc; kernels.h describes these two */
size_t prefetched(void);
size_t copied(void);
bool launch(const call &call);                   /* false: a finding ended it */
void warp_finish(int first, unsigned mask);      /* warp.cc: computes `out` of the waiting lanes */

/* -- findings.cc -- */

/* Adds one line about this launch: "kernel, block B, thread T, line L: what". Ends the launch unless the finding is a race. */
__attribute__((format(printf, 2, 3))) void found(int line, const char *format, ...);
__attribute__((format(printf, 1, 2))) void finding_add(const char *format, ...);
void give_up(void);                              /* leaves the launch; does not return inside a fiber */

/* -- memory.cc -- */

const size_t TAIL = 64;                          /* guard bytes after each array */
void shared_begin(void);                         /* a block begins: no arrays */
void shared_free(void);                          /* frees the arrays of earlier blocks if they are large */
void shared_end(void);                           /* checks the guards */
void device_check(void);                         /* after a launch: checks the guards of device memory */
int device_in_use(void);
bool is_pinned(const void *memory, size_t bytes);

/* -- race.cc; all empty unless kernels are compiled for it -- */

void race_region(const void *base, size_t bytes, bool shared);
void race_region_end(const void *base);
void race_region_rest(const void *base);         /* a block ended: no access is allowed until race_region */
void race_launch(void);
void race_block(void);
void race_barrier(void);                         /* all threads of the block have reached it */
void race_sync_warp(int first, unsigned mask);
void race_access(const void *address, size_t bytes, bool write, const void *site, int line);
void race_no_cache(const void *address, int line);
void race_prefetch(const void *address, size_t bytes, int line);
void race_atomic(const void *address);
void race_stream_waits(void);                    /* later launches begin when all earlier ones have ended */

/* -- mma.cc: the tensor core's sum of 16 products and c; besides tensor_core.h -- */

struct row_parts {                               /* 16 bf16, decomposed: whole * 2^(exponent - 7) */
    int32_t whole[16], exponent[16];
    uint16_t half[16];
    bool special;                                /* contains an infinity or a NaN */
};
void row_of(const uint16_t *half, row_parts *row);
float row_sum(const row_parts &a, const row_parts &b, float c, int tensor_core);

}

#endif
