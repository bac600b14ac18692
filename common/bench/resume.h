/* What a run left: the stream it was writing, without an end if it was ended before its time (writer_open_kept). Whole samples
 * are taken over from it, in the order of the run; without an end, the last one that was begun is not.
 *
 * It is taken only if it was to be the same: settings, models and options, device, threads and cache (resume_check), and for
 * each sample setting, repetition, the prompt's id, task and number of tokens, and the rule it was graded by (resume_sample).
 * */
#ifndef MOE_BENCH_RESUME_H
#define MOE_BENCH_RESUME_H

#include "common/base/err.h"
#include "common/prompts/prompts.h"
#include "common/stream/bench.h"
#include "common/stream/decode.h"
#include "common/stream/writer.h"

struct resume;

/* path: a bench stream, or what a killed process left of one. *out is NULL if nothing in it is whole: then the run begins
 * anew. */
int resume_open(struct resume **out, const char *path, struct err *err);

int resume_samples(const struct resume *resume);            /* whole ones that are left; 0 for NULL */
bool resume_whole(const struct resume *resume);             /* that run ended by itself; false for NULL */
const char *resume_path(const struct resume *resume);

/* plan: what resume_plan_* made of the settings and the machine of this run. */
int resume_check(const struct resume *resume, const struct text *plan, struct err *err);
int resume_plan_setting(struct text *plan, const struct bench_setting *setting, struct err *err);
int resume_plan_machine(struct text *plan, const struct decode_machine *machine, struct err *err);

/* Copies the next sample, which must be this one. rule: as a grade record of it says, "none" too. */
int resume_sample(struct resume *resume, int setting, int repeat, const struct prompt *prompt, const char *rule,
                  struct writer *writer, struct err *err);

void resume_close(struct resume **resume);

#endif
