/* Runs the same suite with two builds of moe-bench by turns, and says whether the second is slower (report/interleaved.h).
 *
 * Each run is a process of its own, `moe-bench run -q -`, which reads the suite from standard input and writes its stream to
 * a nameless file: builds from before this function can be compared, too. Which build is first is drawn anew in each round.
 * The suite's "measure-seconds" is taken for 0, since nothing is made of the bandwidth. */
#ifndef MOE_BENCH_AB_H
#define MOE_BENCH_AB_H

#include "common/base/err.h"
#include "common/cli/console.h"
#include "common/report/interleaved.h"

struct ab_setup {
    const char *build[2];               /* before and now: a program, or a folder with it or with bin/ */
    const char *suite;                  /* a file */
    const char *device, *isa;           /* NULL: what each build takes by itself */
    int threads;                        /* 0: the same */
    double limit;
    int rounds;                         /* at most; it ends when all is decided */
    const char *folder;                 /* for temporary files */
    const char *keep;                   /* a folder for the streams: base-1.moes, now-1.moes and so on; NULL: not kept */
    const struct console *console;
};

int ab_run(struct interleaved **out, const struct ab_setup *setup, struct err *err);

#endif
