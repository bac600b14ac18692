#include "common/route/merge.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/route/made_alike.h"
#include "common/stream/bench.h"
#include "common/stream/decode.h"
#include "common/stream/reader.h"
#include "common/stream/writer.h"

/* The open sequences of one input, with their old and new numbers. */
struct renumber {
    struct { int64_t from, to; } *open;
    size_t count, room;
    int64_t next;               /* the next number, counted over all inputs */
};

static int renumber_take(struct renumber *map, int64_t from, bool begins, bool ends, int64_t *to, struct err *err)
{
    if (begins) {
        if (mem_grow(&map->open, &map->room, map->count + 1, sizeof *map->open, err))
            return -1;
        map->open[map->count].from = from;
        map->open[map->count++].to = *to = map->next++;
        return 0;
    }
    for (size_t i = map->count; i-- > 0; )
        if (map->open[i].from == from) {
            *to = map->open[i].to;
            if (ends)
                map->open[i] = map->open[--map->count];
            return 0;
        }
    return err_set(err, ERR_INPUT, "sequence %lld has no begin record; the stream is damaged", (long long)from);
}

/* An input. */
struct input {
    struct reader *in;          /* NULL after the input was read */
    const char *path;
    int given;                  /* number of the input in the given order */
    int part, parts;            /* part of the run, as in the input's header */
    struct digest128 digest;
};

/* The settings and the machine of a bench stream's samples. */
struct terms { struct text settings, machine; };

/* One merge. */
struct merging {
    const struct merge *merge;
    struct input *input;
    struct header header;
    struct writer *out;
    struct renumber map;
    struct terms first, now;
    void *body;
    size_t room;
    struct text *note;
};

/* Reports an error, or with force a note. */
static int object(const struct merging *m, struct text *what, const char *remedy, struct err *err)
{
    int rc = !what->length ? -1
           : m->merge->force ? text_printf(m->note, err, "%s; used because of --force\n", what->data)
                             : err_set(err, ERR_INPUT, "%s; %s, or use --force", what->data, remedy);
    text_free(what);
    return rc;
}

/* Names of record types, because kinds of streams have different records for begin and end. A bench stream announces a sequence
 * before it begins, and grades it after its end. */
static bool begins_sequence(const struct merging *m, const char *type)
{
    return !strcmp(type, m->header.kind == STREAM_BENCH ? "sample" : "begin");
}

static bool ends_sequence(const struct merging *m, const char *type)
{
    return m->header.kind != STREAM_BENCH && (!strcmp(type, "end_sequence") || !strcmp(type, "done"));
}

static int copy_record(struct merging *m, const struct record *record, struct err *err)
{
    const struct field *field = record->kind ? record_kind_field(record->kind, "sequence") : NULL;
    if (!field)
        return writer_copy(m->out, record, err);
    int64_t from, to = 0;
    if (mem_grow(&m->body, &m->room, record->kind->size, 1, err))
        return -1;
    memcpy(m->body, record->body, record->kind->size);
    memcpy(&from, (const char *)record->body + field->offset, sizeof from);
    if (renumber_take(&m->map, from, begins_sequence(m, record->type), ends_sequence(m, record->type), &to, err))
        return record_error_at(record, err);
    memcpy((char *)m->body + field->offset, &to, sizeof to);
    return writer_record(m->out, record->kind, m->body, err);
}

/* Compares settings and machine of a bench stream with those of the first one. */
static int check_terms(struct merging *m, int at, struct err *err)
{
    const struct text *a = &m->first.settings, *b = &m->now.settings, *here = &m->first.machine, *there = &m->now.machine;
    struct text what = {0};
    if (!at)
        return 0;
    if (a->length != b->length || (a->length && memcmp(a->data, b->data, a->length)))
        return err_set(err, ERR_INPUT, "%s and %s were run with different settings; merge parts of one suite only",
                       m->input[at].path,
                       m->input[0].path);
    if (!here->length || !there->length || !strcmp(here->data, there->data))
        return 0;
    text_printf(&what, err, "%s was run on another machine than %s (%.*s, not %.*s)", m->input[at].path, m->input[0].path,
                (int)there->length - 1, there->data, (int)here->length - 1, here->data);
    return object(m, &what, "their times are not comparable, so merge streams of one kind of machine", err);
}

/* Takes a record of a bench stream that describes its samples. Returns 1 if it is complete, 0 if it must be copied. */
static int take_terms(struct merging *m, int at, const struct record *record, bool *known, struct err *err)
{
    struct terms *terms = at ? &m->now : &m->first;
    if (record->kind == &bench_setting_kind)
        return bench_describe_setting(&terms->settings, record->body, err) ? -1 : at > 0;
    if (*known)
        return 0;
    if (record->kind == &decode_machine_kind && bench_describe_machine(&terms->machine, record->body, err))
        return -1;
    *known = true;
    return check_terms(m, at, err);
}

/* Refuses a stream that was read before: merging it twice would double its weight. */
static int check_twice(struct merging *m, int at, struct err *err)
{
    const struct input *now = &m->input[at];
    for (int i = 0; i < at; i++) {
        const struct input *before = &m->input[i];
        if (before->digest.low != now->digest.low || before->digest.high != now->digest.high)
            continue;
        return m->merge->force ? text_printf(m->note, err, "%s is the same stream as %s, and counts twice because of --force\n",
                                             now->path, before->path)
                               : err_set(err, ERR_INPUT, "%s is the same stream as %s; give it once, or use --force", now->path,
                                         before->path);
    }
    return 0;
}

static int copy_input(struct merging *m, int at, struct err *err)
{
    struct input *input = &m->input[at];
    const struct record *record;
    bool known = m->header.kind != STREAM_BENCH;
    int more, taken = 0;
    text_clear(&m->now.settings);
    text_clear(&m->now.machine);
    while ((more = reader_next(input->in, &record, err)) > 0) {
        if (!known || record->kind == &bench_setting_kind)
            taken = take_terms(m, at, record, &known, err);
        if (taken < 0 || (!taken && copy_record(m, record, err)))
            return -1;
        taken = 0;
    }
    input->digest = reader_digest(input->in);
    if (more < 0 || (!known && check_terms(m, at, err)) || check_twice(m, at, err))
        return -1;
    m->map.count = 0;
    reader_close(&input->in);
    return 0;
}

/* Joins, for each key, the distinct values of the streams up to `last`: "8 of 32; 12 of 32". */
static int merge_labels(struct merging *m, int last, struct err *err)
{
    const struct header *source = reader_header(m->input[last].in);
    for (int i = 0; i < source->label_count; i++) {
        const char *key = source->labels[i].key, *value = source->labels[i].value, *before = header_label_of(&m->header, key);
        struct text joint = {0};
        bool known = false;
        for (int other = 0; other < last && !known; other++) {
            const char *its = header_label_of(reader_header(m->input[other].in), key);
            known = its && !strcmp(its, value);
        }
        if (known)
            continue;
        int rc = text_printf(&joint, err, "%s%s%s", before ? before : "", before ? "; " : "", value) ||
                 header_label(&m->header, key, joint.data, err);
        text_free(&joint);
        if (rc)
            return -1;
    }
    return 0;
}

/* Tokens that were drawn or recorded with other options are not comparable. */
static int check_alike(struct merging *m, int at, struct err *err)
{
    struct text why = {0}, what = {0};
    int rc = made_alike(m->merge->settings, reader_header(m->input[at].in), reader_header(m->input[0].in), &why, err);
    if (!rc && why.length) {
        text_printf(&what, err, "%s was made otherwise than %s (%s)", m->input[at].path, m->input[0].path, why.data);
        rc = object(m, &what, "merge streams made alike", err);
    }
    text_free(&why);
    return rc;
}

static int open_input(struct merging *m, int at, struct err *err)
{
    static const struct reader_options options = { .ancillary = true };
    struct input *input = &m->input[at];
    const char *path = m->merge->paths[at];
    if (reader_open(&input->in, path, STREAM_ANY, &options, err))
        return -1;
    const struct header *header = reader_header(input->in);
    input->path = strcmp(path, "-") ? path : "standard input";
    input->given = at;
    input->part = header->part;
    input->parts = header->parts;
    return 0;
}

/* Takes over the header of an input, which must be compatible with the first one's. */
static int take_header(struct merging *m, int at, struct err *err)
{
    const struct input *input = &m->input[at];
    const struct header *source = reader_header(input->in);
    const enum stream_kind kind = source->kind;
    struct header *header = &m->header;
    if (!at) {
        if (kind != STREAM_ROUTE && kind != STREAM_DECODE && kind != STREAM_FEATURE && kind != STREAM_BENCH)
            return err_set(err, ERR_INPUT, "%s: is a %s stream; only route, decode, feature and bench streams can be merged",
                           input->path, source->kind_name);
        if (header_init(header, kind, m->merge->tool, m->merge->version, m->merge->argc, m->merge->argv, err))
            return -1;
    } else if (kind != header->kind) {
        return err_set(err, ERR_INPUT, "%s: is a %s stream and cannot be merged with a %s stream; merge streams of one kind",
                       input->path, source->kind_name,
                       header->kind_name);
    } else if (source->has_model != header->has_model) {
        return err_set(err, ERR_INPUT, "%s: one stream names its model and the other does not; merge streams of one model",
                       input->path);
    }
    if (at && source->has_model &&
        header_same_model(&source->model, &header->model, input->path, m->merge->force, m->note, err))
        return -1;
    if (at && check_alike(m, at, err))
        return -1;
    return header_derive(header, source, err) || (at && merge_labels(m, at, err)) ? -1 : 0;
}

/* ---- parts of a run ---- */

static int by_part(const void *a, const void *b)
{
    const struct input *x = a, *y = b;
    return x->part != y->part ? (x->part < y->part ? -1 : 1) : x->given - y->given;
}

/* Puts the parts of one run into their order, and checks that each is there once. */
static int order_parts(struct merging *m, struct err *err)
{
    const int count = m->merge->count, parts = m->input[0].parts;
    struct text what = {0};
    for (int i = 0; i < count; i++)
        if (!parts || m->input[i].parts != parts)
            return 0;
    qsort(m->input, (size_t)count, sizeof *m->input, by_part);
    for (int i = 0, part = 1; i < count; part = m->input[i++].part + 1) {
        const struct input *now = &m->input[i];
        if (now->part < part) {
            text_printf(&what, err, "%s and %s are both part %d of %d", m->input[i - 1].path, now->path, now->part, parts);
            if (object(m, &what, "give each part once", err))
                return -1;
        } else if (now->part > part) {
            text_printf(&what, err, "part %d of %d is not among the streams", part, parts);
            if (object(m, &what, "add it", err))
                return -1;
        }
    }
    const int last = m->input[count - 1].part;
    if (last == parts)
        return 0;
    text_printf(&what, err, "part %d of %d is not among the streams", last + 1, parts);
    return object(m, &what, "add it", err);
}

static int merge_all(struct merging *m, struct err *err)
{
    const int count = m->merge->count;
    for (int i = 0; i < count; i++)
        if (open_input(m, i, err))
            return -1;
    if (order_parts(m, err))
        return -1;
    for (int i = 0; i < count; i++)
        if (take_header(m, i, err))
            return -1;
    if (writer_open(&m->out, m->merge->output, &m->header, err))
        return -1;
    for (int i = 0; i < count; i++)
        if (copy_input(m, i, err))
            return -1;
    return writer_close(&m->out, err);
}

int streams_merge(const struct merge *merge, struct text *note, struct err *err)
{
    struct merging m = { .merge = merge, .note = note };
    m.input = mem_alloc((size_t)merge->count, sizeof *m.input, err);
    int rc = m.input ? merge_all(&m, err) : -1;
    writer_abort(&m.out, err);
    for (int i = 0; m.input && i < merge->count; i++)
        reader_close(&m.input[i].in);
    mem_free(&m.input);
    mem_free(&m.map.open);
    mem_free(&m.body);
    text_free(&m.first.settings);
    text_free(&m.first.machine);
    text_free(&m.now.settings);
    text_free(&m.now.machine);
    header_free(&m.header);
    return rc;
}
