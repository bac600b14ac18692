/* What kind of machine this is, as far as the system tells: processor, caches, memory, graphics cards. From /proc and /sys
 * below `root`; what is not there stays empty or 0, and is no error. Nothing is measured here (roofline.h does that). */
#ifndef MOE_BENCH_MACHINE_H
#define MOE_BENCH_MACHINE_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/roofline.h"

enum { MACHINE_CACHES = 8, MACHINE_GPUS = 16, MACHINE_NAME = 96 };

struct machine_cache {
    int level, shared;          /* shared: processors that share one of them */
    char type[16];              /* Data, Instruction, Unified */
    int64_t bytes;              /* of one */
};

struct machine {
    char cpu[MACHINE_NAME], kernel[MACHINE_NAME];
    int processors, cores, sockets, nodes;      /* processors: as the system counts, hardware threads included */
    int64_t memory, available;                  /* bytes */
    struct machine_cache caches[MACHINE_CACHES];
    int cache_count;
    char gpus[MACHINE_GPUS][MACHINE_NAME];      /* of NVIDIA's driver */
    int gpu_count;
};

/* root: "" for this machine. */
int machine_find(struct machine *out, const char *root, struct err *err);

/* measured: NULL: nothing was. */
int machine_text(struct text *out, const struct machine *machine, const struct roofline *measured, struct err *err);
int machine_json(struct text *out, const struct machine *machine, const struct roofline *measured, struct err *err);

#endif
