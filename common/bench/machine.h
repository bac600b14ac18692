/* Describes this machine as far as the system knows it: processor, caches, memory, graphics cards, from /proc and /sys below
 * `root`. Missing information is empty or 0, and no error. Nothing is measured here (roofline.h does that). */
#ifndef MOE_BENCH_MACHINE_H
#define MOE_BENCH_MACHINE_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/roofline.h"
#include "common/bench/speeds.h"

enum { MACHINE_CACHES = 8, MACHINE_GPUS = 16, MACHINE_NAME = 96 };

struct machine_cache {
    int level, shared;          /* shared: number of processors that share one such cache */
    char type[16];              /* Data, Instruction, Unified */
    int64_t bytes;              /* size of one cache */
};

struct machine {
    char cpu[MACHINE_NAME], kernel[MACHINE_NAME];
    int processors, cores, sockets, nodes;      /* processors: hardware threads */
    int64_t memory, available;                  /* bytes */
    struct machine_cache caches[MACHINE_CACHES];
    int cache_count;
    char gpus[MACHINE_GPUS][MACHINE_NAME];      /* as named by NVIDIA's driver */
    int gpu_count;
};

/* Fills in the description. root: prefix of /proc and /sys; "" for this machine. */
int machine_find(struct machine *out, const char *root, struct err *err);

/* Write the description. measured: its bandwidth; speeds: those of products and its disk; NULL: not measured. The JSON line
 * with both is a description for speeds_read. */
int machine_text(struct text *out, const struct machine *machine, const struct roofline *measured, const struct speeds *speeds,
                 struct err *err);
int machine_json(struct text *out, const struct machine *machine, const struct roofline *measured, const struct speeds *speeds,
                 struct err *err);

#endif
