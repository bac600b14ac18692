/* Resumes an interrupted run from its stream, which has no end record if the run was interrupted (writer_open_kept).
 * Complete samples are copied in the order of the run; without an end record the last sample is incomplete and is run again.
 *
 * The stream is accepted only if the new run is the same: settings, models and options, part of the prompts, device, threads
 * and cache (resume_check); and for each sample setting, repetition, the prompt's id, task and number of tokens, and the
 * grading rule (resume_sample). */
#ifndef MOE_BENCH_RESUME_H
#define MOE_BENCH_RESUME_H

#include "common/base/err.h"
#include "common/prompts/prompts.h"
#include "common/stream/bench.h"
#include "common/stream/decode.h"
#include "common/stream/writer.h"

struct resume;

/* Opens the stream `path`, perhaps truncated. *out is NULL if it contains no complete sample: then the run starts from the
 * beginning. */
int resume_open(struct resume **out, const char *path, struct err *err);

int resume_samples(const struct resume *resume);            /* complete samples not copied yet; 0 for NULL */
bool resume_whole(const struct resume *resume);             /* returns whether the earlier run was completed; false for NULL */
const char *resume_path(const struct resume *resume);

/* Compares the stream's settings and machine with this run's. plan: resume_plan_part, then bench_describe_setting of
 * each setting and bench_describe_machine (stream/bench.h). */
int resume_check(const struct resume *resume, const struct text *plan, struct err *err);
int resume_plan_part(struct text *plan, int part, int parts, struct err *err);         /* first; parts 0: all prompts */

/* Copies the next sample, which must be the given one. rule: as in its grade record, "none" included. */
int resume_sample(struct resume *resume, int setting, int repeat, const struct prompt *prompt, const char *rule,
                  struct writer *writer, struct err *err);

void resume_close(struct resume **resume);

#endif
