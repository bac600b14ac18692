#include "common/stream/writer.h"

#include <math.h>
#include <msgpack.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/stream/frame.h"

enum { MAP_DEPTH = 8, MAP_KEYS = 1024, MAP_HEAD = 3 };

struct writer {
    struct output *out;
    struct header header;
    const struct stream_schema *schema;
    struct xxh3_stream *digest;
    struct frame_counts counts;
    struct sequences sequences;
    uint64_t bytes;                     /* bytes written so far */
    int64_t index;                      /* index of the next record */
    struct wire_sink body;              /* the record under construction */
    msgpack_packer packer;
    char type[FRAME_TYPE];
    struct { size_t at; int keys; } maps[MAP_DEPTH];    /* open maps: offset of each map's count */
    int depth;
    struct text *held;                  /* writer_hold's */
    struct err fault;                   /* the first error; all later calls return it */
};

static void writer_free(struct writer **address)
{
    struct writer *writer = *address;
    if (!writer)
        return;
    output_discard(&writer->out);
    header_free(&writer->header);
    xxh3_stream_free(&writer->digest);
    frame_counts_free(&writer->counts);
    sequences_free(&writer->sequences);
    text_free(&writer->body.text);
    mem_free(address);
}

static int emit(struct writer *writer, const void *data, size_t bytes, struct err *err)
{
    if (output_write(writer->out, data, bytes, &writer->fault)) {
        if (err && err->code == ERR_NONE)
            *err = writer->fault;
        return -1;
    }
    xxh3_stream_put(writer->digest, data, bytes);
    writer->bytes += bytes;
    return 0;
}

/* Ends the record that is being made: its map is complete. */
static int put_record(struct writer *writer, struct err *err)
{
    const struct text *made = &writer->body.text;
    if (writer->held) {
        const size_t at = writer->maps[0].at;
        const uint32_t bytes = (uint32_t)(made->length - at);
        return text_put(writer->held, writer->type, sizeof writer->type, err) ||
               text_put(writer->held, (const char *)&bytes, sizeof bytes, err) ||
               text_put(writer->held, made->data + at, bytes, err) ? -1 : 0;
    }
    if (emit(writer, made->data, made->length, err) || frame_counts_add(&writer->counts, writer->type, err))
        return -1;
    writer->index++;
    return 0;
}

void writer_hold(struct writer *writer, struct text *held) { writer->held = held; }

int writer_release(struct writer *writer, const struct text *held, struct err *err)
{
    char type[FRAME_TYPE];
    uint32_t bytes;
    writer->held = NULL;
    for (size_t at = 0; at < held->length; at += bytes) {
        memcpy(type, held->data + at, sizeof type);
        memcpy(&bytes, held->data + at + sizeof type, sizeof bytes);
        at += sizeof type + sizeof bytes;
        writer_begin(writer, type);
        writer->body.text.length = writer->maps[0].at;
        wire_sink_put(&writer->body, held->data + at, bytes);
        if (writer->body.failed)
            return err_memory(err);
        if (writer->fault.code) {
            *err = writer->fault;
            return -1;
        }
        if (put_record(writer, err))
            return -1;
    }
    return 0;
}

static int write_start(struct writer *writer, struct err *err)
{
    static const uint8_t version[4] = {FRAME_MAJOR, 0, FRAME_MINOR, 0};
    static const struct wire_limits limits = {FRAME_HEADER_BYTES, FRAME_HEADER_VALUES};
    struct text header = {0};
    struct scan scan = {0};
    int rc = -1;
    if (header_encode(&writer->header, &header, err))
        goto done;
    if (scan_object(&scan, (const uint8_t *)header.data, header.length, &limits, NULL) != SCAN_WHOLE) {
        err_set(err, ERR_INPUT, "%s: the header, which contains those of all sources, is too large; merge fewer streams",
                output_path(writer->out));
        goto done;
    }
    if (emit(writer, FRAME_GUARD, FRAME_GUARD_BYTES, err) || emit(writer, version, sizeof version, err) ||
        emit(writer, header.data, header.length, err))
        goto done;
    rc = 0;
done:
    text_free(&header);
    return rc;
}

static int open_writer(struct writer **out, const char *path, bool kept, const struct header *header, struct err *err)
{
    struct writer *writer = mem_alloc(1, sizeof *writer, err);
    if (!writer)
        return -1;
    msgpack_packer_init(&writer->packer, &writer->body, wire_sink_put);
    if (header_copy(&writer->header, header, err) || xxh3_stream_new(&writer->digest, err) ||
        (kept ? output_open_kept(&writer->out, path, err) : output_open(&writer->out, path, err)))
        goto failed;
    writer->schema = stream_schema(header->kind);
    if (output_is_terminal(writer->out)) {
        err_set(err, ERR_INPUT, "%s: a stream is binary and is not written to a terminal; pipe or redirect it, or name a file",
                strcmp(path, "-") ? path : "standard output");
        goto failed;
    }
    if (write_start(writer, err))
        goto failed;
    *out = writer;
    return 0;
failed:
    writer_free(&writer);
    return -1;
}

int writer_open(struct writer **out, const char *path, const struct header *header, struct err *err)
{
    return open_writer(out, path, false, header, err);
}

int writer_open_kept(struct writer **out, const char *path, const struct header *header, struct err *err)
{
    return open_writer(out, path, true, header, err);
}

const char *writer_left(const struct writer *writer) { return output_left(writer->out); }

void writer_set_signal_text(struct writer *writer, const char *text) { output_set_signal_text(writer->out, text); }

bool writer_is_kept(const struct writer *writer) { return writer->out && output_is_kept(writer->out); }

int writer_keep(struct writer *writer, struct err *err)
{
    if (output_flush(writer->out, err))
        return -1;
    output_keep(writer->out);
    return 0;
}

static void pack_text(struct writer *writer, const char *text, size_t bytes)
{
    msgpack_pack_str(&writer->packer, bytes);
    msgpack_pack_str_body(&writer->packer, text, bytes);
}

static void fault(struct writer *writer, const char *key, const char *what)
{
    err_set(&writer->fault, ERR_INPUT, "%s: record %lld (%s): key '%s' %s", output_path(writer->out),
            (long long)writer->index, writer->type, key, what);
}

/* Opens a map whose count is filled in when it is closed; this encoding has the same length for every count. */
static void open_map(struct writer *writer)
{
    static const char head[MAP_HEAD] = {(char)0xde, 0, 0};
    writer->maps[writer->depth].at = writer->body.text.length;
    writer->maps[writer->depth].keys = 0;
    writer->depth++;
    wire_sink_put(&writer->body, head, sizeof head);
}

static void close_map(struct writer *writer)
{
    writer->depth--;
    char *count = writer->body.text.data + writer->maps[writer->depth].at + 1;
    count[0] = (char)(writer->maps[writer->depth].keys >> 8);
    count[1] = (char)writer->maps[writer->depth].keys;
}

/* Writes the key; false if the value must not be written. */
static bool put_key(struct writer *writer, const char *key)
{
    if (!writer->depth)
        fault(writer, key, "is written outside a record");
    else if (writer->maps[writer->depth - 1].keys == MAP_KEYS)
        fault(writer, key, "exceeds the declared number of keys of its map");
    if (writer->body.failed)
        err_memory(&writer->fault);
    if (writer->fault.code)
        return false;
    writer->maps[writer->depth - 1].keys++;
    pack_text(writer, key, strlen(key));
    return !writer->body.failed;
}

void writer_begin(struct writer *writer, const char *type)
{
    text_clear(&writer->body.text);
    writer->depth = 0;
    if (strlen(type) >= sizeof writer->type || (!frame_is_ancillary(type) && !stream_schema_record(writer->schema, type)))
        err_set(&writer->fault, ERR_INPUT, "%s: '%.40s' is not a record type of %s streams", output_path(writer->out), type,
                writer->schema->name);
    if (writer->fault.code)
        return;
    memset(writer->type, 0, sizeof writer->type);
    memcpy(writer->type, type, strlen(type));
    msgpack_pack_array(&writer->packer, 3);
    pack_text(writer, type, strlen(type));
    msgpack_pack_int64(&writer->packer, writer->index);
    open_map(writer);
}

void writer_int(struct writer *writer, const char *key, int64_t value)
{
    if (put_key(writer, key))
        msgpack_pack_int64(&writer->packer, value);
}

void writer_real(struct writer *writer, const char *key, double value)
{
    if (put_key(writer, key))
        msgpack_pack_double(&writer->packer, value);
}

void writer_flag(struct writer *writer, const char *key, bool value)
{
    if (put_key(writer, key))
        value ? msgpack_pack_true(&writer->packer) : msgpack_pack_false(&writer->packer);
}

void writer_text(struct writer *writer, const char *key, const char *value)
{
    const size_t bytes = strlen(value);
    char *repaired = NULL;
    if (!put_key(writer, key))
        return;
    if (utf8_fault(value, bytes) == bytes)
        pack_text(writer, value, bytes);
    else if ((repaired = utf8_string(value, &writer->fault)))
        pack_text(writer, repaired, strlen(repaired));
    mem_free(&repaired);
}

void writer_array(struct writer *writer, const char *key, enum dtype dtype, int rank, const uint64_t *shape, const void *data)
{
    uint8_t head[8 + 8 * ARRAY_RANK];
    size_t count, bytes;
    if (array_measure(dtype, rank, shape, &count, &bytes, NULL) || bytes > FRAME_RECORD_BYTES) {
        fault(writer, key, "is larger than a record may be; use fewer tokens per record");
        return;
    }
    if (!put_key(writer, key))
        return;
    size_t length = array_encode_head(head, dtype, rank, shape);
    msgpack_pack_ext(&writer->packer, length + bytes, ARRAY_EXT);
    msgpack_pack_ext_body(&writer->packer, head, length);
    if (bytes)
        msgpack_pack_ext_body(&writer->packer, data, bytes);
}

void writer_map_begin(struct writer *writer, const char *key)
{
    if (writer->depth == MAP_DEPTH)
        fault(writer, key, "is nested too deep");
    if (put_key(writer, key))
        open_map(writer);
}

void writer_map_end(struct writer *writer)
{
    if (!writer->fault.code && writer->depth > 1)
        close_map(writer);
}

void writer_values(struct writer *writer, const char *key, const struct values *values)
{
    if (values->overflow)
        fault(writer, key, "has too many or too long values for a list");
    writer_map_begin(writer, key);
    for (int i = 0; i < values->count; i++) {
        const struct value *value = &values->items[i];
        if (value->type == VALUE_INT)
            writer_int(writer, value->key, value->integer);
        else if (value->type == VALUE_REAL)
            writer_real(writer, value->key, value->real);
        else
            writer_text(writer, value->key, value->text);
    }
    writer_map_end(writer);
}

int writer_end(struct writer *writer, struct err *err)
{
    if (!writer->fault.code && writer->body.failed)
        err_memory(&writer->fault);
    if (!writer->fault.code && writer->depth != 1)
        err_set(&writer->fault, ERR_INPUT, "%s: record %lld has unfinished maps", output_path(writer->out),
                (long long)writer->index);
    if (!writer->fault.code && writer->body.text.length > FRAME_RECORD_BYTES)
        err_set(&writer->fault, ERR_INPUT, "%s: record %lld (%s) is larger than %zu bytes; use fewer tokens per record",
                output_path(writer->out), (long long)writer->index, writer->type, FRAME_RECORD_BYTES);
    if (writer->fault.code) {
        if (err && err->code == ERR_NONE)
            *err = writer->fault;
        return -1;
    }
    close_map(writer);
    return put_record(writer, err);
}

static int check(struct writer *writer, const struct record_kind *kind, const void *body, struct err *err)
{
    if (!kind->check || !kind->check(body, &writer->header, &writer->sequences, err))
        return 0;
    return err_at(err, "%s: record %lld (%s)", output_path(writer->out), (long long)writer->index, kind->type);
}

int writer_record(struct writer *writer, const struct record_kind *kind, const void *body, struct err *err)
{
    writer_begin(writer, kind->type);
    if (record_kind_put(kind, body, &writer->header, writer, err))
        return err_at(err, "%s: record %lld", output_path(writer->out), (long long)writer->index);
    if (!writer->fault.code && check(writer, kind, body, err))
        return -1;
    return writer_end(writer, err);
}

int writer_copy(struct writer *writer, const struct record *record, struct err *err)
{
    if (record->kind && check(writer, record->kind, record->body, err))
        return -1;
    writer_begin(writer, record->type);
    if (!writer->fault.code) {          /* replaces the map opened last by an encoded one */
        writer->body.text.length = writer->maps[0].at;
        wire_sink_put(&writer->body, (const char *)record->payload, (size_t)(record->payload_end - record->payload));
        if (!writer->body.failed)
            return put_record(writer, err);
    }
    return writer_end(writer, err);
}

int writer_flush(struct writer *writer, struct err *err)
{
    return output_flush(writer->out, err);
}

static int finish(struct writer *writer, struct err *err)
{
    struct text end = {0};
    uint8_t digest[FRAME_DIGEST];
    int rc = -1;
    if (writer->fault.code) {
        if (err && err->code == ERR_NONE)
            *err = writer->fault;
        return -1;
    }
    if (writer->sequences.count)
        return err_set(err, ERR_INPUT, "%s: sequence %lld has a beginning, but no end", output_path(writer->out),
                       (long long)writer->sequences.open[0]);
    if (frame_end_encode(&writer->counts, writer->index, writer->bytes, &end, err) ||
        emit(writer, end.data, end.length, err))
        goto done;
    frame_digest(xxh3_stream_digest(writer->digest), digest);
    if (emit(writer, digest, sizeof digest, err))
        goto done;
    rc = output_commit(&writer->out, err);
done:
    text_free(&end);
    return rc;
}

int writer_close(struct writer **writer, struct err *err)
{
    int rc = finish(*writer, err);
    if (rc)
        writer_abort(writer, err);
    writer_free(writer);
    return rc;
}

static int put_abort(struct writer *writer, const char *why, struct err *err)
{
    struct text abort = {0};
    char *message = utf8_string(why, err);
    int rc = !message || frame_abort_encode(writer->index, message, &abort, err) ||
             output_write(writer->out, abort.data, abort.length, err) || output_flush(writer->out, err) ? -1 : 0;
    text_free(&abort);
    mem_free(&message);
    return rc;
}

int writer_close_early(struct writer **writer, const char *message, struct err *err)
{
    output_spare_left((*writer)->out);
    int rc = put_abort(*writer, message, err) || output_commit(&(*writer)->out, err) ? -1 : 0;
    writer_free(writer);
    return rc;
}

void writer_abort(struct writer **address, const struct err *err)
{
    struct writer *writer = *address;
    if (!writer)
        return;
    if (writer->out && (output_in_place(writer->out) || output_is_kept(writer->out)) && writer->fault.code != ERR_IO &&
        writer->fault.code != ERR_PIPE)
        put_abort(writer, err && err->code ? err->text : "stopped", NULL);
    writer_free(address);
}
