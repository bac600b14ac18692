#include "common/bench/resume.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/stream/bench.h"
#include "common/stream/decode.h"
#include "common/stream/reader.h"

struct resume {
    char *path;
    int samples;
    struct text plan;
    struct reader *in;
    const struct record *next;          /* the sample record that begins the next one */
};

int resume_plan_setting(struct text *plan, const char *name, const char *model, const char *options, const char *label,
                        struct err *err)
{
    return text_printf(plan, err, "setting %s: %s %s [%s]\n", name, model, options, label ? label : "");
}

int resume_plan_machine(struct text *plan, const char *device, const char *isa, int threads, struct err *err)
{
    return text_printf(plan, err, "machine: %s %s, %d threads\n", device, isa ? isa : "", threads);
}

/* The files "output.tmp.PID"; *found is for globfree, also after a failure. */
static int find_temporary(glob_t *found, const char *output, struct err *err)
{
    struct text pattern = {0};
    int rc = -1;
    *found = (glob_t){0};
    for (const char *at = output; *at; at++)
        if ((strchr("*?[\\", *at) && text_putc(&pattern, '\\', err)) || text_putc(&pattern, *at, err))
            goto done;
    if (text_puts(&pattern, ".tmp.*", err))
        goto done;
    if (glob(pattern.data, 0, NULL, found))
        found->gl_pathc = 0;
    rc = 0;
done:
    text_free(&pattern);
    return rc;
}

/* The bytes of a file whose process is gone; -1: not such a file. */
static off_t left_bytes(const char *path, const char *output)
{
    struct stat status;
    char *end;
    long pid = strtol(path + strlen(output) + strlen(".tmp."), &end, 10);
    bool gone = !*end && pid > 0 && pid <= INT_MAX && kill((pid_t)pid, 0) && errno == ESRCH;
    return gone && !stat(path, &status) && S_ISREG(status.st_mode) ? status.st_size : -1;
}

/* The largest, which has come furthest. */
static int find_left(char **path, const char *output, struct err *err)
{
    glob_t found;
    off_t most = -1;
    int rc = find_temporary(&found, output, err);
    for (size_t i = 0; !rc && i < found.gl_pathc; i++) {
        off_t bytes = left_bytes(found.gl_pathv[i], output);
        if (bytes <= most)
            continue;
        most = bytes;
        mem_free(path);
        if (!(*path = mem_string(found.gl_pathv[i], err)))
            rc = -1;
    }
    globfree(&found);
    return rc;
}

void resume_clean(const char *output)
{
    glob_t found;
    if (!find_temporary(&found, output, NULL))
        for (size_t i = 0; i < found.gl_pathc; i++)
            if (left_bytes(found.gl_pathv[i], output) >= 0)
                unlink(found.gl_pathv[i]);
    globfree(&found);
}

static int take_plan(struct resume *resume, const struct record *record, bool *machine, struct err *err)
{
    if (record->kind == &bench_setting_kind) {
        const struct bench_setting *of = record->body;
        return resume_plan_setting(&resume->plan, of->name, of->model, of->options, of->label, err);
    }
    if (record->kind != &decode_machine_kind || *machine)
        return 0;
    const struct decode_machine *of = record->body;
    *machine = true;
    return resume_plan_machine(&resume->plan, of->device, of->isa, of->threads, err);
}

/* Counts the samples behind which another one begins. The stream has no end, so that reading it fails at last: at the place
 * where it was cut, or, when a machine went down, where it was damaged. */
static int count_samples(struct resume *resume, struct err *err)
{
    struct reader *in = NULL;
    const struct record *record;
    struct err fault = {0};
    bool machine = false;
    int begun = 0, more, rc = -1;
    if (reader_open(&in, resume->path, STREAM_BENCH, NULL, &fault)) {
        reader_close(&in);
        return 0;
    }
    while ((more = reader_next(in, &record, &fault)) > 0) {
        begun += record->kind == &bench_sample_kind;
        if (take_plan(resume, record, &machine, err))
            goto done;
    }
    resume->samples = begun > 0 ? begun - 1 : 0;
    rc = 0;
done:
    reader_close(&in);
    return rc;
}

/* On to the next sample record, or to the end of what is whole. */
static int advance(struct resume *resume, struct writer *writer, struct err *err)
{
    int more;
    while ((more = reader_next(resume->in, &resume->next, err)) > 0) {
        if (resume->next->kind == &bench_sample_kind)
            return 0;
        if (writer && writer_copy(writer, resume->next, err))
            return -1;
    }
    return more < 0 ? -1 : err_set(err, ERR_INPUT, "%s: has changed while it was read", resume->path);
}

int resume_open(struct resume **out, const char *output, struct err *err)
{
    struct resume *resume = mem_alloc(1, sizeof *resume, err);
    int rc = -1;
    *out = NULL;
    if (!resume || find_left(&resume->path, output, err))
        goto done;
    if (!resume->path) {
        rc = 0;
        goto done;
    }
    if (count_samples(resume, err))
        goto done;
    if (resume->samples && (reader_open(&resume->in, resume->path, STREAM_BENCH, NULL, err) || advance(resume, NULL, err)))
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

int resume_check(const struct resume *resume, const struct text *plan, struct err *err)
{
    if (plan->length == resume->plan.length && !memcmp(plan->data, resume->plan.data, plan->length))
        return 0;
    return err_set(err, ERR_INPUT, "%s: was left behind by a run with other settings or on another machine; remove it, or run "
                   "without --resume", resume->path);
}

int resume_sample(struct resume *resume, int setting, int repeat, const struct prompt *prompt, struct writer *writer,
                  struct err *err)
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
        return err_set(err, ERR_INPUT, "%s: was left behind by a run with other prompts or in another order; remove it, or run "
                       "without --resume", resume->path);
    if (writer_copy(writer, resume->next, err) || advance(resume, writer, err))
        return -1;
    resume->samples--;
    return 0;
}
