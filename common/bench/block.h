/* Runs prompts of a suite under one setting, as many at once as the setting has decoders, and writes their samples in the order
 * of the prompts. The samples of texts that share forwards wait in memory until it is their turn. */
#ifndef MOE_BENCH_BLOCK_H
#define MOE_BENCH_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/progress.h"
#include "common/bench/ready.h"
#include "common/bench/resume.h"
#include "common/bench/suite.h"
#include "common/stream/writer.h"

struct block {
    const struct suite *suite;
    int setting, repeat;
    const struct ready_setting *ready;
    const struct prompt *prompts;       /* [count] */
    size_t count;
    struct resume *resume;              /* the first samples are copied from this stream, as far as it has samples; NULL:
                                         * none */
    bool in_place;                      /* the stream of this run replaces the resumed one */
    struct writer *writer;
    struct progress *bar;
    int64_t sequence;                   /* number of the first sample in the stream */
};

/* Decodes and writes `count` samples; bar->step is called for each. */
int block_run(const struct block *block, struct err *err);

#endif
