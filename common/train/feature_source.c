#include "common/train/feature_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/float.h"
#include "common/base/mem.h"
#include "common/stream/feature.h"
#include "common/stream/reader.h"
#include "common/stream/route.h"

struct feature_source {
    struct feature_source_setup setup;
    struct reader *in;
    struct xxh3_stream *digest;
    int hidden;
    int64_t ordinal;                    /* number of the next text */
    bool wanted;                        /* the current text belongs to the selected part */
    bool again;                         /* the current text was read before, so the digest already includes it */
    bool bare_of_states;                /* skip the states of the current text */
    int all;                            /* all: tokens of the current text before truncation; came: tokens read of them so
                                         * far */
    int came;
    struct feature_text text;
    char *id, *task;
    int32_t *token;
    uint8_t *mask;
    float *states;                      /* [states][stride][hidden] */
    size_t token_room, mask_room;
    size_t stride, stride_room;         /* rows per state in use, and allocated */
    struct position {
        struct reader_mark mark;        /* position of the record with which the text begins */
        int64_t ordinal;
        bool validation;
    } at, *positions;                      /* at: the current text; positions: all texts of the part, set by
                                            * feature_source_index */
    size_t position_count, position_room;
    size_t validation;                  /* number of validation texts, the last of `positions` */
    bool rounded;                       /* some states read so far were bf16 */
    int64_t bare;                       /* texts that were truncated before their first answer */
};

/* Copies all input into an unnamed file in `folder` and replaces *fd by it. */
static int copy_in(int *fd, const char *name, const char *folder, struct err *err)
{
    enum { CHUNK = 1 << 16 };
    int copy = -1, rc = -1;
    size_t got = 1;
    uint8_t *chunk = mem_alloc(CHUNK, 1, err);
    if (!chunk || file_nameless(&copy, folder, err))
        goto done;
    while (got) {
        if (file_read_some(*fd, name, chunk, CHUNK, &got, err))
            goto done;
        for (size_t at = 0; at < got;) {
            ssize_t put = write(copy, chunk + at, got - at);
            if (put < 0 && errno == EINTR)
                continue;
            if (put < 0) {
                err_errno(err, "%s: its temporary copy in %s cannot be written", name, folder);
                goto done;
            }
            at += (size_t)put;
        }
    }
    if (lseek(copy, 0, SEEK_SET) < 0) {
        err_errno(err, "%s: its temporary copy in %s cannot be read", name, folder);
        goto done;
    }
    rc = 0;
done:
    mem_free(&chunk);
    if (rc && copy >= 0)
        close(copy);
    if (rc)
        return -1;
    if (*fd != STDIN_FILENO)
        close(*fd);
    *fd = copy;
    return 0;
}

static int open_stream(struct feature_source *source, struct err *err)
{
    const char *path = source->setup.path, *name = strcmp(path, "-") ? path : "standard input";
    struct stat status;
    int fd = name == path ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (fd < 0)
        return err_errno(err, "%s", path);
    bool file = !fstat(fd, &status) && S_ISREG(status.st_mode);
    if (source->setup.folder && !file && !isatty(fd) && copy_in(&fd, name, source->setup.folder, err)) {
        if (fd != STDIN_FILENO)
            close(fd);
        return -1;
    }
    return reader_open_fd(&source->in, fd, name, NULL, 0, STREAM_FEATURE, NULL, err);
}

int feature_source_open(struct feature_source **out, const struct feature_source_setup *setup, struct text *note,
                        struct err *err)
{
    struct feature_source *source;
    if (setup->states < 1)
        return err_set(err, ERR_INPUT, "%s: no layers were requested whose states could be read", setup->path);
    if (!(source = mem_alloc(1, sizeof *source, err)))
        return -1;
    source->setup = *setup;
    source->hidden = setup->target->hidden;
    if (xxh3_stream_new(&source->digest, err) || open_stream(source, err))
        goto failed;
    const struct header *header = reader_header(source->in);
    if (!header->has_model) {
        err_set(err, ERR_INPUT, "%s: does not name its model; make it with moe-profile features",
                reader_name(source->in));
        goto failed;
    }
    if (header_same_model(&header->model, setup->target, reader_name(source->in), setup->force, note, err))
        goto failed;
    *out = source;
    return 0;
failed:
    feature_source_close(&source);
    return -1;
}

void feature_source_close(struct feature_source **source)
{
    struct feature_source *s = *source;
    if (!s)
        return;
    reader_close(&s->in);
    xxh3_stream_free(&s->digest);
    mem_free(&s->id);
    mem_free(&s->task);
    mem_free(&s->token);
    mem_free(&s->mask);
    mem_free(&s->states);
    mem_free(&s->positions);
    mem_free(source);
}

const struct feature_source_setup *feature_source_setup_of(const struct feature_source *source) { return &source->setup; }

struct digest128 feature_source_digest(const struct feature_source *source) { return xxh3_stream_digest(source->digest); }

/* Prefixes an error with the stream's name and the text. */
static int at_text(const struct feature_source *source, struct err *err)
{
    if (source->id)
        err_at(err, "text %lld (%.80s)", (long long)source->text.ordinal, source->id);
    else
        err_at(err, "text %lld", (long long)source->text.ordinal);
    return err_at(err, "%s", reader_name(source->in));
}

static int keep_label(char **kept, const char *label, struct err *err)
{
    mem_free(kept);
    return label && !(*kept = mem_string(label, err)) ? -1 : 0;
}

static int begin(struct feature_source *source, const struct feature_begin *begin, struct err *err)
{
    const struct feature_source_setup *setup = &source->setup;
    struct feature_text *text = &source->text;
    const size_t hidden = (size_t)source->hidden;
    *text = (struct feature_text){.ordinal = source->ordinal++, .prompt_tokens = begin->prompt_tokens,
                                  .n = begin->text_tokens, .validation = begin->validation};
    source->stride = 0;
    source->at = (struct position){reader_mark(source->in), text->ordinal, begin->validation};
    source->all = begin->text_tokens;
    source->came = 0;
    source->wanted = setup->part == FEATURES_ALL || (setup->part == FEATURES_VALIDATION) == begin->validation;
    if (setup->cut && text->n > setup->cut)
        text->n = setup->cut;
    if (keep_label(&source->id, begin->id, err) || keep_label(&source->task, begin->task, err))
        return -1;
    text->id = source->id;
    text->task = source->task;
    return hidden ? 0 : err_set(err, ERR_INPUT, "%s: the hidden width of its model is 0; the stream is damaged",
                                reader_name(source->in));
}

/* Returns the index of state number `state` in the record; -1: the record lacks it. */
static int find_state(const struct feature_states *record, int state)
{
    for (int i = 0; i < record->points; i++)
        if (record->point[i] == state)
            return i;
    return -1;
}

static int lacks_state(const struct feature_source *source, const struct feature_states *record, int state, struct err *err)
{
    struct text has = {0};
    const int layers = source->setup.target->layers;
    for (int i = 0; i < record->points; i++)
        if (record->point[i] == layers ? text_printf(&has, err, "%sfinal", i ? "," : "")
                                       : text_printf(&has, err, "%s%d", i ? "," : "", record->point[i])) {
            text_free(&has);
            return -1;
        }
    if (state == layers)
        err_set(err, ERR_INPUT, "it lacks the states after the final norm, which the head needs; it was made with --layers "
                "%s, so make it with these layers, too", has.data);
    else
        err_set(err, ERR_INPUT, "it lacks the states after layer %d, which the head needs; it was made with --layers %s, so "
                "make it with these layers, too", state, has.data);
    text_free(&has);
    return at_text(source, err);
}

/* Converts `count` elements from element `from` on to f32; returns false if one of them is not finite. */
static bool take_states(float *to, const struct elements *values, size_t from, size_t count)
{
    uint32_t wrong = 0;
    if (values->dtype == DTYPE_BF16) {
        const uint16_t *at = (const uint16_t *)values->data + from;
        for (size_t i = 0; i < count; i++) {
            to[i] = bf16_to_f32(at[i]);
            wrong |= (at[i] & 0x7f80u) == 0x7f80u;
        }
        return !wrong;
    }
    memcpy(to, (const float *)values->data + from, count * sizeof *to);
    for (size_t i = 0; i < count; i++)
        wrong |= (float_to_bits(to[i]) & 0x7f800000u) == 0x7f800000u;
    return !wrong;
}

/* Allocates memory for `rows` tokens. A text may claim any length, so memory grows with the tokens that arrive; it doubles each
 * time, so that states are seldom moved. The system provides pages only when they are written. */
static int make_room(struct feature_source *source, size_t rows, struct err *err)
{
    const size_t n = (size_t)source->text.n, hidden = (size_t)source->hidden, states = (size_t)source->setup.states;
    size_t stride = rows > 2 * source->stride ? rows : 2 * source->stride, count;
    if (mem_grow(&source->token, &source->token_room, rows, sizeof *source->token, err) ||
        mem_grow(&source->mask, &source->mask_room, rows, 1, err))
        return -1;
    if (rows <= source->stride)
        return 0;
    stride = stride < source->stride_room ? source->stride_room : stride;
    stride = stride < n ? stride : n;
    if (stride > source->stride_room) {
        if (!size_mul(stride, states * hidden, &count))
            return err_memory(err);
        if (mem_resize(&source->states, count, sizeof *source->states, err))
            return -1;
        source->stride_room = stride;
    }
    for (size_t i = states; i-- > 1;)
        memmove(source->states + i * stride * hidden, source->states + i * source->stride * hidden,
                (size_t)source->came * hidden * sizeof *source->states);
    source->stride = stride;
    return 0;
}

/* Appends the first `take` tokens of a record to the current text. */
static int put_rows(struct feature_source *source, const struct feature_states *record, int take, struct err *err)
{
    const struct feature_source_setup *setup = &source->setup;
    struct feature_text *text = &source->text;
    const size_t hidden = (size_t)source->hidden, came = (size_t)source->came, rows = (size_t)take;
    if (make_room(source, came + rows, err))
        return -1;
    memcpy(source->token + came, record->tokens, rows * sizeof *source->token);
    memcpy(source->mask + came, record->mask, rows);
    for (int i = 0; i < take; i++) {
        text->learnt += record->mask[i];
        if (record->tokens[i] >= setup->target->vocab) {
            err_set(err, ERR_INPUT, "token %d is outside the vocabulary of %d tokens; the stream is of another model",
                    record->tokens[i], setup->target->vocab);
            return at_text(source, err);
        }
    }
    for (int i = 0; i < setup->states && !source->bare_of_states; i++) {
        int at = find_state(record, setup->state[i]);
        if (at < 0)
            return lacks_state(source, record, setup->state[i], err);
        source->rounded |= record->values.dtype == DTYPE_BF16;
        if (!take_states(source->states + ((size_t)i * source->stride + came) * hidden, &record->values,
                         (size_t)at * (size_t)record->n * hidden, rows * hidden)) {
            err_set(err, ERR_INPUT, "the states of tokens %d to %d are not finite numbers; make the stream again",
                    record->pos, record->pos + take - 1);
            return at_text(source, err);
        }
    }
    return 0;
}

static int take_piece(struct feature_source *source, const struct feature_states *record, struct err *err)
{
    const int left = source->text.n - source->came;
    if (record->pos != source->came || record->n > source->all - source->came) {
        err_set(err, ERR_INPUT, "a record has %d tokens from position %d on, but %d of %d tokens precede it; the stream is "
                "damaged", record->n, record->pos,
                source->came, source->all);
        return at_text(source, err);
    }
    if (source->wanted && left > 0 && put_rows(source, record, left < record->n ? left : record->n, err))
        return -1;
    source->came += record->n;
    return 0;
}

static int end(struct feature_source *source, struct err *err)
{
    struct feature_text *text = &source->text;
    if (source->came != source->all) {
        err_set(err, ERR_INPUT, "the text ends after %d of %d tokens; the stream is damaged", source->came, source->all);
        return at_text(source, err);
    }
    if (source->wanted && !text->learnt && text->n == source->all) {
        err_set(err, ERR_INPUT, "its mask marks no answer to train on; make the stream with answers, or with --mask all");
        return at_text(source, err);
    }
    if (source->wanted && !source->again) {
        xxh3_stream_put(source->digest, source->token, (size_t)text->n * sizeof *source->token);
        xxh3_stream_put(source->digest, source->mask, (size_t)text->n);
        xxh3_stream_put(source->digest, &(uint8_t){text->validation}, 1);
    }
    text->tokens = source->token;
    text->mask = source->mask;
    text->states = source->bare_of_states ? NULL : source->states;
    return 0;
}

int feature_source_next(struct feature_source *source, const struct feature_text **text, struct err *err)
{
    const struct record *record;
    int more;
    while ((more = reader_next(source->in, &record, err)) > 0) {
        if ((record->kind == &feature_begin_kind && begin(source, record->body, err)) ||
            (record->kind == &feature_states_kind && take_piece(source, record->body, err)) ||
            (record->kind == &route_end_kind && end(source, err)))
            return -1;
        if (record->kind == &route_end_kind && source->wanted) {
            *text = &source->text;
            return 1;
        }
    }
    return more;
}

static int put_validation_last(struct feature_source *source, struct err *err)
{
    const size_t count = source->position_count;
    struct position *sorted = mem_alloc(count, sizeof *sorted, err);
    size_t at = 0;
    if (!sorted)
        return -1;
    for (int validation = 0; validation < 2; validation++)
        for (size_t i = 0; i < count; i++)
            if (source->positions[i].validation == validation) {
                sorted[at++] = source->positions[i];
                source->validation += (size_t)validation;
            }
    mem_free(&source->positions);
    source->positions = sorted;
    source->position_room = count;
    return 0;
}

int feature_source_index(struct feature_source *source, int64_t *texts, struct err *err)
{
    const struct feature_text *text;
    int more;
    if (!reader_can_return(source->in))
        return err_set(err, ERR_INPUT, "%s: a pipe can be read only once; write the stream to a file",
                       reader_name(source->in));
    while ((more = feature_source_next(source, &text, err)) > 0) {
        if (!text->learnt) {
            source->bare++;
            continue;
        }
        if (mem_grow(&source->positions, &source->position_room, source->position_count + 1, sizeof *source->positions, err))
            return -1;
        source->positions[source->position_count++] = source->at;
    }
    if (more || put_validation_last(source, err))
        return -1;
    *texts = (int64_t)source->position_count;
    return 0;
}

int64_t feature_source_validation(const struct feature_source *source) { return (int64_t)source->validation; }

bool feature_source_rounded(const struct feature_source *source) { return source->rounded; }

int64_t feature_source_bare(const struct feature_source *source) { return source->bare; }

static int read_again(struct feature_source *source, int64_t text, bool bare_of_states, const struct feature_text **out,
                      struct err *err)
{
    const struct position *position = &source->positions[text];
    source->ordinal = position->ordinal;
    source->again = true;
    source->bare_of_states = bare_of_states;
    if (reader_return(source->in, &position->mark, err))
        return -1;
    return feature_source_next(source, out, err) > 0 ? 0 : -1;
}

int feature_source_read(struct feature_source *source, int64_t text, const struct feature_text **out, struct err *err)
{
    return read_again(source, text, false, out, err);
}

int feature_source_outline(struct feature_source *source, int64_t text, const struct feature_text **out, struct err *err)
{
    return read_again(source, text, true, out, err);
}
