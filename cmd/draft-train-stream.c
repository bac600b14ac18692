#include "cmd/draft-train-stream.h"

#include <string.h>
#include <sys/stat.h>

#include "common/stream/leftover.h"

struct copying {
    struct writer *writer;
    const struct train_run *run;
    struct draft_train_past *past;
    bool same;                      /* the records read so far belong to this run */
    int64_t step, evaluated;        /* the last copied step, and that of the last copied evaluation */
};

/* Copies a record of the earlier stream. Steps after the checkpoint are repeated, and therefore not copied. */
static int copy_record(void *context, const struct reader *in, const struct record *record, struct err *err)
{
    struct copying *c = context;
    (void)in;
    if (record->kind == &train_run_kind) {
        const struct train_run *run = record->body;
        c->same = run->options && !strcmp(run->options, c->run->options);
    }
    if (!c->same)
        return 0;
    if (record->kind == &train_step_kind) {
        const struct train_step *step = record->body;
        if (step->step <= c->step || step->step >= c->past->steps)
            return 0;
        c->step = step->step;
        c->past->seconds = step->seconds;
    } else if (record->kind == &train_eval_kind) {
        const struct train_eval *eval = record->body;
        if (eval->step <= c->evaluated || eval->step > c->past->evaluated)
            return 0;
        c->evaluated = eval->step;
    } else {
        return 0;
    }
    return writer_record(c->writer, record->kind, record->body, err);
}

static bool is_file(const char *path)
{
    struct stat status;
    return path && !stat(path, &status) && S_ISREG(status.st_mode);
}

int draft_train_stream_open(struct writer **out, const char *path, const struct header *header, const struct train_run *run,
                            struct draft_train_past *past, struct err *err)
{
    struct writer *writer = NULL;
    struct copying copying = {.run = run, .past = past, .step = -1};
    past->seconds = 0;
    if (writer_open_kept(&writer, path, header, err) || writer_record(writer, &train_run_kind, run, err))
        goto failed;
    copying.writer = writer;
    const char *const left[] = {writer_left(writer), path};
    for (size_t i = 0; past->steps > 0 && i < sizeof left / sizeof *left; i++) {
        struct leftover found;
        copying.same = false;
        if (is_file(left[i]) && leftover_read(left[i], STREAM_TRAIN, copy_record, &copying, &found, err))
            goto failed;
    }
    *out = writer;
    return 0;
failed:
    writer_abort(&writer, err);
    return -1;
}
