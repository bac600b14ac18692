#include "common/bench/resume.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/stream/bench.h"
#include "common/stream/decode.h"
#include "common/stream/leftover.h"
#include "common/stream/reader.h"

struct resume {
    char *path;
    int samples;
    bool whole;
    struct text plan;
    struct reader *in;
    const struct record *next;          /* first record of the next sample */
};

int resume_plan_part(struct text *plan, int part, int parts, struct err *err)
{
    return parts ? text_printf(plan, err, "part %d of %d\n", part, parts) : 0;
}

static int take_plan(struct resume *resume, const struct record *record, bool *machine, struct err *err)
{
    if (record->kind == &bench_setting_kind)
        return bench_describe_setting(&resume->plan, record->body, err);
    if (record->kind != &decode_machine_kind || *machine)
        return 0;
    *machine = true;
    return bench_describe_machine(&resume->plan, record->body, err);
}

/* Counters of the first reading of the stream. */
struct counted {
    struct resume *resume;
    int begun;
    bool any, machine;
};

static int count(void *context, const struct reader *in, const struct record *record, struct err *err)
{
    struct counted *counted = context;
    const struct header *header = reader_header(in);
    if (!counted->any && resume_plan_part(&counted->resume->plan, header->part, header->parts, err))
        return -1;
    counted->any = true;
    counted->begun += record->kind == &bench_sample_kind;
    return take_plan(counted->resume, record, &counted->machine, err);
}

/* Counts the complete samples: those followed by another sample, or by the stream's end. */
static int count_samples(struct resume *resume, struct err *err)
{
    struct counted counted = { .resume = resume };
    struct leftover left;
    if (leftover_read(resume->path, STREAM_BENCH, count, &counted, &left, err))
        return -1;
    if (!left.begun && !leftover_is_stump(resume->path)) {
        *err = left.why;
        return -1;
    }
    resume->whole = left.whole;
    resume->samples = counted.begun - (counted.begun > 0 && !left.whole);
    return 0;
}

static int reject_other_run(const struct resume *resume, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: the run was started with other %s; use the same to resume, or run without --resume",
                   resume->path,
                   what);
}

/* Advances to the next sample record, or to the end of the complete samples; copies the records to `writer`. rule: the
 * grading rule that the skipped sample must have. */
static int advance(struct resume *resume, struct writer *writer, const char *rule, struct err *err)
{
    int more;
    while ((more = reader_next(resume->in, &resume->next, err)) > 0) {
        if (resume->next->kind == &bench_sample_kind)
            return 0;
        if (writer && resume->next->kind == &bench_grade_kind &&
            strcmp(((const struct bench_grade *)resume->next->body)->rule, rule))
            return reject_other_run(resume, "grading rules", err);
        if (writer && resume->next->kind != &decode_machine_kind && writer_copy(writer, resume->next, err))
            return -1;
    }
    if (!more && resume->whole && resume->samples == 1)
        return 0;
    return more < 0 ? -1 : err_set(err, ERR_INPUT, "%s: has changed while it was read", resume->path);
}

int resume_open(struct resume **out, const char *path, struct err *err)
{
    struct resume *resume;
    int rc = -1;
    *out = NULL;
    if (!(resume = mem_alloc(1, sizeof *resume, err)) || !(resume->path = mem_string(path, err)) || count_samples(resume, err))
        goto done;
    if (resume->samples && (reader_open(&resume->in, resume->path, STREAM_BENCH, NULL, err) ||
                            advance(resume, NULL, NULL, err)))
        goto done;
    if (resume->samples) {
        *out = resume;
        resume = NULL;
    }
    rc = 0;
done:
    resume_close(&resume);
    return rc;
}

void resume_close(struct resume **address)
{
    struct resume *resume = *address;
    if (!resume)
        return;
    reader_close(&resume->in);
    text_free(&resume->plan);
    mem_free(&resume->path);
    mem_free(address);
}

int resume_samples(const struct resume *resume) { return resume ? resume->samples : 0; }
bool resume_whole(const struct resume *resume) { return resume && resume->whole; }
const char *resume_path(const struct resume *resume) { return resume->path; }

int resume_check(const struct resume *resume, const struct text *plan, struct err *err)
{
    if (plan->length == resume->plan.length && !memcmp(plan->data, resume->plan.data, plan->length))
        return 0;
    return reject_other_run(resume, "settings, models or --shard, or on another machine", err);
}

int resume_sample(struct resume *resume, int setting, int repeat, const struct prompt *prompt, const char *rule,
                  struct writer *writer, struct err *err)
{
    const struct bench_sample *sample = resume->next->body;
    bool same = sample->setting == setting && sample->repeat == repeat;
    if (writer_copy(writer, resume->next, err) || reader_next(resume->in, &resume->next, err) < 0)
        return -1;
    if (resume->next->kind == &decode_begin_kind) {
        const struct decode_begin *begin = resume->next->body;
        same &= begin->id && !strcmp(begin->id, prompt->id) && begin->prompt_tokens == (int)prompt->tokens.n &&
                !strcmp(begin->task ? begin->task : "", prompt->task ? prompt->task : "");
    } else {
        same = false;
    }
    if (!same)
        return reject_other_run(resume, "prompts, or in another order", err);
    if (writer_copy(writer, resume->next, err) || advance(resume, writer, rule, err))
        return -1;
    resume->samples--;
    return 0;
}
