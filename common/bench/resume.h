/* What a run left behind that was killed: the stream it was writing, under its temporary name beside the output and without
 * an end. Whole samples are taken over from it, in the order of the run; the last one that was begun is not.
 *
 * It is taken only if it was to be the same: settings, models and options, device and threads (resume_check), and for each
 * sample setting, repetition, and the prompt's id, task and number of tokens (resume_sample). */
#ifndef MOE_BENCH_RESUME_H
#define MOE_BENCH_RESUME_H

#include "common/base/err.h"
#include "common/decode/prompts.h"
#include "common/stream/writer.h"

struct resume;

/* *out is NULL when nothing was left behind of `output`, or nothing whole: then the run begins anew. */
int resume_open(struct resume **out, const char *output, struct err *err);

int resume_samples(const struct resume *resume);            /* whole ones that are left; 0 for NULL */

/* plan: what resume_plan_put made of the settings and the machine of this run. */
int resume_check(const struct resume *resume, const struct text *plan, struct err *err);
int resume_plan_setting(struct text *plan, const char *name, const char *model, const char *options, const char *label,
                        struct err *err);
int resume_plan_machine(struct text *plan, const char *device, const char *isa, int threads, struct err *err);

/* Copies the next sample, which must be this one. */
int resume_sample(struct resume *resume, int setting, int repeat, const struct prompt *prompt, struct writer *writer,
                  struct err *err);

void resume_close(struct resume **resume);

/* The run is whole: removes what killed ones left behind of it, however often. */
void resume_clean(const char *output);

#endif
