/* Runs the same suite with two builds of moe-bench interleaved, and decides whether the second is slower
 * (report/interleaved.h).
 *
 * Each run is a process, `moe-bench run -q -`, which reads the suite from standard input and writes its stream to an unnamed
 * file: so old builds without this function can be compared, too. The order of the two builds is drawn at random in each
 * round. "measure-seconds" of the suite is set to 0, because the bandwidth is not used. */
#ifndef MOE_BENCH_AB_H
#define MOE_BENCH_AB_H

#include "common/base/err.h"
#include "common/cli/console.h"
#include "common/report/interleaved.h"

struct ab_setup {
    const char *build[2];               /* before and now: path of the program, or of a folder that contains it or bin/ */
    const char *suite;                  /* path of the suite */
    const char *device, *isa;           /* NULL: the default of each build */
    const char *cache_experts;          /* value of --cache-experts; NULL: the default of each build */
    int threads;                        /* 0: the default of each build */
    double limit;
    int rounds;                         /* maximum rounds; fewer if all is decided earlier */
    const char *folder;                 /* folder for temporary files */
    const char *keep;                   /* folder in which to keep the streams: base-1.moes, now-1.moes and so on; NULL: not
                                         * kept */
    const struct console *console;
};

/* Runs rounds until all settings are decided or the maximum is reached. The caller closes *out. */
int ab_run(struct interleaved **out, const struct ab_setup *setup, struct err *err);

#endif
