#include "common/route/merge.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/route/made_alike.h"
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
    return err_set(err, ERR_INPUT, "sequence %lld was not begun", (long long)from);
}

/* Names of record types, because kinds of streams have different records for begin and end. */
static bool begins_sequence(const char *type) { return !strcmp(type, "begin"); }
static bool ends_sequence(const char *type) { return !strcmp(type, "end_sequence") || !strcmp(type, "done"); }

static int copy_record(struct writer *out, const struct record *record, struct renumber *map, void **body, size_t *room,
                       struct err *err)
{
    const struct field *field = record->kind ? record_kind_field(record->kind, "sequence") : NULL;
    if (!field)
        return writer_copy(out, record, err);
    bool begins = begins_sequence(record->type), ends = ends_sequence(record->type);
    int64_t from, to = 0;
    if (mem_grow(body, room, record->kind->size, 1, err))
        return -1;
    memcpy(*body, record->body, record->kind->size);
    memcpy(&from, (const char *)record->body + field->offset, sizeof from);
    if (renumber_take(map, from, begins, ends, &to, err))
        return record_error_at(record, err);
    memcpy((char *)*body + field->offset, &to, sizeof to);
    return writer_record(out, record->kind, *body, err);
}

/* Refuses a stream that was read before: merging it twice would double its weight. */
static int check_twice(const struct merge *merge, struct reader *const *inputs, struct digest128 *digest, int at,
                       struct text *note, struct err *err)
{
    digest[at] = reader_digest(inputs[at]);
    for (int i = 0; i < at; i++) {
        if (digest[i].low != digest[at].low || digest[i].high != digest[at].high)
            continue;
        return merge->force ? text_printf(note, err, "%s is the same stream as %s, and counts twice because of --force\n",
                                          merge->paths[at], merge->paths[i])
                            : err_set(err, ERR_INPUT, "%s is the same stream as %s; give it once, or use --force",
                                      merge->paths[at], merge->paths[i]);
    }
    return 0;
}

static int copy_all(struct writer *out, struct reader **inputs, const struct merge *merge, struct text *note, struct err *err)
{
    struct digest128 *digest = mem_alloc((size_t)merge->count, sizeof *digest, err);
    struct renumber map = {0};
    const struct record *record;
    void *body = NULL;
    size_t room = 0;
    int rc = -1, more = 0;
    if (!digest)
        return -1;
    for (int i = 0; i < merge->count; i++) {
        while ((more = reader_next(inputs[i], &record, err)) > 0)
            if (copy_record(out, record, &map, &body, &room, err))
                goto done;
        if (more < 0 || check_twice(merge, inputs, digest, i, note, err))
            goto done;
        map.count = 0;
        reader_close(&inputs[i]);
    }
    rc = 0;
done:
    mem_free(&digest);
    mem_free(&map.open);
    mem_free(&body);
    return rc;
}

/* Joins, for each key, the distinct values of the streams up to `last`: "8 of 32; 12 of 32". */
static int merge_labels(struct header *header, struct reader *const *inputs, int last, struct err *err)
{
    const struct header *source = reader_header(inputs[last]);
    for (int i = 0; i < source->label_count; i++) {
        const char *key = source->labels[i].key, *value = source->labels[i].value, *before = header_label_of(header, key);
        struct text joint = {0};
        bool known = false;
        for (int other = 0; other < last && !known; other++) {
            const char *its = header_label_of(reader_header(inputs[other]), key);
            known = its && !strcmp(its, value);
        }
        if (known)
            continue;
        int rc = text_printf(&joint, err, "%s%s%s", before ? before : "", before ? "; " : "", value) ||
                 header_label(header, key, joint.data, err);
        text_free(&joint);
        if (rc)
            return -1;
    }
    return 0;
}

/* Tokens that were drawn or recorded with other options are not comparable. */
static int check_alike(const struct merge *merge, const struct header *first, const struct header *source, const char *name,
                       struct text *note, struct err *err)
{
    struct text why = {0};
    int rc = made_alike(source, first, &why, err);
    if (!rc && why.length)
        rc = merge->force ? text_printf(note, err, "%s was made otherwise than %s (%s); taken because of --force\n", name,
                                        merge->paths[0], why.data)
                          : err_set(err, ERR_INPUT, "%s was made otherwise than %s (%s); merge streams made alike, or use "
                                    "--force", name, merge->paths[0], why.data);
    text_free(&why);
    return rc;
}

static int open_inputs(struct reader **inputs, const struct merge *merge, struct header *header, struct text *note,
                       struct err *err)
{
    static const struct reader_options options = { .ancillary = true };
    for (int i = 0; i < merge->count; i++) {
        if (reader_open(&inputs[i], merge->paths[i], STREAM_ANY, &options, err))
            return -1;
        const struct header *source = reader_header(inputs[i]);
        if (i == 0) {
            if (source->kind != STREAM_ROUTE && source->kind != STREAM_DECODE && source->kind != STREAM_FEATURE)
                return err_set(err, ERR_INPUT, "%s: a %s stream cannot be merged, only route, decode and feature streams "
                               "can", reader_name(inputs[i]), source->kind_name);
            if (header_init(header, source->kind, merge->tool, merge->version, merge->argc, merge->argv, err))
                return -1;
        } else if (source->kind != header->kind) {
            return err_set(err, ERR_INPUT, "%s: a %s stream cannot be merged with a %s stream", reader_name(inputs[i]),
                           source->kind_name, header->kind_name);
        } else if (source->has_model != header->has_model) {
            return err_set(err, ERR_INPUT, "%s: one stream names its model and the other does not; merge streams of one model",
                           reader_name(inputs[i]));
        }
        if (i && source->has_model &&
            header_same_model(&source->model, &header->model, reader_name(inputs[i]), merge->force, note, err))
            return -1;
        if (i && check_alike(merge, reader_header(inputs[0]), source, reader_name(inputs[i]), note, err))
            return -1;
        if (header_derive(header, source, err) || (i && merge_labels(header, inputs, i, err)))
            return -1;
    }
    return 0;
}

int streams_merge(const struct merge *merge, struct text *note, struct err *err)
{
    struct reader **inputs = mem_alloc((size_t)merge->count, sizeof *inputs, err);
    struct header header = {0};
    struct writer *out = NULL;
    int rc = -1;
    if (!inputs || open_inputs(inputs, merge, &header, note, err) || writer_open(&out, merge->output, &header, err) ||
        copy_all(out, inputs, merge, note, err) || writer_close(&out, err))
        goto done;
    rc = 0;
done:
    writer_abort(&out, err);
    for (int i = 0; inputs && i < merge->count; i++)
        reader_close(&inputs[i]);
    mem_free(&inputs);
    header_free(&header);
    return rc;
}
