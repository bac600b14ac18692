#include "common/stream/reader.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/stream/frame.h"
#include "common/stream/kind.h"

enum { FIRST_ROOM = 64 * 1024 };
enum reader_state { READING, ENDED, BROKEN };

struct reader {
    int fd;
    off_t begin;                        /* offset of the stream in its file; -1: the input cannot be rewound */
    char *name;
    struct reader_options options;
    enum reader_state state;
    uint8_t *buffer;
    size_t room, length;                /* room: size of buffer; length: number of bytes in it */
    size_t start;                       /* offset in buffer of the current object */
    size_t object;                      /* size of the object in bytes, once the object is complete */
    uint64_t offset;                    /* offset of buffer[start] in the stream */
    struct xxh3_stream *digest;
    struct frame_counts counts;
    struct sequences sequences;
    struct header header;
    const struct stream_schema *schema;
    int64_t index;                      /* index of the next record */
    char type[FRAME_TYPE];
    struct record record;
    struct record_memory memory;
    void *body;
    const char *abort_message;          /* NULL: no abort record */
};

/* Reads more bytes from the input, as many as are available. Returns 1, or 0 at its end. The buffer is doubled only when it
 * is full of data, so a false size in the stream cannot make it large. */
static int fill(struct reader *reader, struct err *err)
{
    if (reader->length == reader->room) {
        if (reader->start) {
            memmove(reader->buffer, reader->buffer + reader->start, reader->length - reader->start);
            reader->length -= reader->start;
            reader->start = 0;
        } else if (mem_grow(&reader->buffer, &reader->room, reader->room ? reader->room + 1 : FIRST_ROOM, 1, err)) {
            return err_at(err, "%s", reader->name);
        }
    }
    size_t got;
    if (file_read_some(reader->fd, reader->name, reader->buffer + reader->length, reader->room - reader->length, &got, err))
        return -1;
    reader->length += got;
    return got > 0;
}

static int truncated(const struct reader *reader, struct err *err)
{
    if (!reader->offset && !reader->length)
        return err_set(err, ERR_INPUT, "%s: is empty, so its producer wrote nothing%s", reader->name,
                       !strcmp(reader->name, "standard input") ? ", or no file was named" : "");
    return err_set(err, ERR_INPUT, "%s: is truncated at byte %llu, without an end record, because its producer was "
                   "interrupted; run it again",
                   reader->name, (unsigned long long)(reader->offset + (reader->length - reader->start)));
}

/* Skips the current object and reads the next one completely. */
static int next_object(struct reader *reader, const struct wire_limits *limits, struct err *err)
{
    struct scan scan = {0};
    reader->start += reader->object;
    reader->offset += reader->object;
    reader->object = 0;
    for (;;) {
        size_t have = reader->length - reader->start;
        enum scan_result found = scan_object(&scan, reader->buffer + reader->start, have, limits, err);
        if (found == SCAN_BAD)
            return err_at(err, "%s: byte %llu", reader->name, (unsigned long long)(reader->offset + scan.at));
        if (found == SCAN_WHOLE) {
            reader->object = scan.at;
            return 0;
        }
        int more = fill(reader, err);
        if (more < 0)
            return -1;
        if (!more)
            return truncated(reader, err);
    }
}

bool reader_sniff(const void *bytes, size_t count)
{
    return count >= FRAME_GUARD_BYTES && !memcmp(bytes, FRAME_GUARD, FRAME_GUARD_BYTES);
}

static int read_guard(struct reader *reader, struct err *err)
{
    const uint8_t *at;
    while (reader->length < FRAME_BYTES) {
        int more = fill(reader, err);
        if (more < 0)
            return -1;
        if (!more)
            break;
    }
    at = reader->buffer;
    if (!reader_sniff(at, reader->length)) {
        if (reader->length < FRAME_BYTES && !memcmp(at, FRAME_GUARD, reader->length < FRAME_GUARD_BYTES ? reader->length
                                                                                                       : FRAME_GUARD_BYTES))
            return truncated(reader, err);
        if (reader->length >= 7 && !memcmp(at, FRAME_GUARD, 7))
            return err_set(err, ERR_INPUT, "%s: a conversion of line ends damaged the stream; copy it as a binary file",
                           reader->name);
        if (reader->length > 4 && !memcmp(at, "\x89MOEW", 5))         /* magic number of moe-model(5) */
            return err_set(err, ERR_INPUT, "%s: is a model file, not a stream; moe-view shows it", reader->name);
        return err_set(err, ERR_INPUT, "%s: is not a moekit stream; give the output of a moekit command", reader->name);
    }
    if (reader->length < FRAME_BYTES)
        return truncated(reader, err);
    int major = at[11] | at[12] << 8, minor = at[13] | at[14] << 8;
    if (major != FRAME_MAJOR)
        return err_set(err, ERR_INPUT, "%s: has framing version %d.%d, but this program reads version %d; use a matching "
                       "version of moekit",
                       reader->name, major, minor, FRAME_MAJOR);
    xxh3_stream_put(reader->digest, at, FRAME_BYTES);
    reader->object = FRAME_BYTES;
    return 0;
}

static int read_header(struct reader *reader, enum stream_kind kind, struct err *err)
{
    static const struct wire_limits limits = {FRAME_HEADER_BYTES, FRAME_HEADER_VALUES};
    if (next_object(reader, &limits, err))
        return -1;
    const uint8_t *at = reader->buffer + reader->start;
    if (header_decode(&reader->header, at, at + reader->object, err))
        return err_at(err, "%s", reader->name);
    xxh3_stream_put(reader->digest, at, reader->object);
    if (kind != STREAM_ANY && reader->header.kind != kind)
        return err_set(err, ERR_INPUT, "%s: is a %s stream; expected a %s stream", reader->name, reader->header.kind_name,
                       stream_schema(kind)->name);
    reader->schema = stream_schema(reader->header.kind);
    size_t largest = 1;
    for (const struct record_kind *const *record = reader->schema->records; *record; record++)
        if ((*record)->size > largest)
            largest = (*record)->size;
    reader->body = mem_alloc(largest, 1, err);
    return reader->body ? 0 : -1;
}

int reader_open_fd(struct reader **out, int fd, const char *name, const void *first, size_t first_bytes,
                   enum stream_kind kind, const struct reader_options *options, struct err *err)
{
    struct reader *reader = mem_alloc(1, sizeof *reader, err);
    struct stat status;
    if (!reader) {
        if (fd != STDIN_FILENO)
            close(fd);
        return -1;
    }
    reader->fd = fd;
    reader->begin = fstat(fd, &status) || !S_ISREG(status.st_mode) ? -1 : lseek(fd, 0, SEEK_CUR) - (off_t)first_bytes;
    if (options)
        reader->options = *options;
    if (!reader->options.record_bytes)
        reader->options.record_bytes = FRAME_RECORD_BYTES;
    if (!reader->options.record_values)
        reader->options.record_values = FRAME_RECORD_VALUES;
    reader->name = mem_string(name, err);
    if (!reader->name || xxh3_stream_new(&reader->digest, err) ||
        mem_grow(&reader->buffer, &reader->room, first_bytes > FIRST_ROOM ? first_bytes : FIRST_ROOM, 1, err))
        goto failed;
    if (first_bytes)
        memcpy(reader->buffer, first, first_bytes);
    reader->length = first_bytes;
    if (isatty(fd)) {
        err_set(err, ERR_INPUT, "%s: is a terminal, from which no stream can be read; name a file, or pipe one in", name);
        goto failed;
    }
    if (read_guard(reader, err) || read_header(reader, kind, err))
        goto failed;
    *out = reader;
    return 0;
failed:
    reader_close(&reader);
    return -1;
}

int reader_open(struct reader **out, const char *path, enum stream_kind kind, const struct reader_options *options,
                struct err *err)
{
    if (!strcmp(path, "-") && isatty(STDIN_FILENO))
        return err_set(err, ERR_INPUT, "standard input is a terminal; name a stream, or pipe one in");
    if (!strcmp(path, "-"))
        return reader_open_fd(out, STDIN_FILENO, "standard input", NULL, 0, kind, options, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, "%s", path);
    return reader_open_fd(out, fd, path, NULL, 0, kind, options, err);
}

const struct header *reader_header(const struct reader *reader) { return &reader->header; }
const char *reader_name(const struct reader *reader) { return reader->name; }

const char *reader_abort_message(const struct reader *reader) { return reader->abort_message; }

const struct frame_counts *reader_counts(const struct reader *reader) { return &reader->counts; }
uint64_t reader_bytes(const struct reader *reader) { return reader->offset + reader->object; }
struct digest128 reader_digest(const struct reader *reader) { return xxh3_stream_digest(reader->digest); }

bool reader_can_return(const struct reader *reader) { return reader->begin >= 0; }

struct reader_mark reader_mark(const struct reader *reader)
{
    return (struct reader_mark){reader->offset, reader->record.index};
}

int reader_return(struct reader *reader, const struct reader_mark *mark, struct err *err)
{
    if (lseek(reader->fd, reader->begin + (off_t)mark->offset, SEEK_SET) < 0)
        return err_errno(err, "%s: cannot be read again", reader->name);
    reader->start = reader->length = reader->object = 0;
    reader->offset = mark->offset;
    reader->index = mark->index;
    reader->sequences.count = 0;
    reader->state = READING;
    return 0;
}

void reader_close(struct reader **address)
{
    struct reader *reader = *address;
    if (!reader)
        return;
    if (reader->fd != STDIN_FILENO)
        close(reader->fd);
    header_free(&reader->header);
    xxh3_stream_free(&reader->digest);
    frame_counts_free(&reader->counts);
    sequences_free(&reader->sequences);
    record_memory_free(&reader->memory);
    mem_free(&reader->body);
    mem_free(&reader->buffer);
    mem_free(&reader->name);
    mem_free(address);
}

/* Decodes [type, index, payload] into reader->record. */
static int open_record(struct reader *reader, struct err *err)
{
    struct cursor cursor = {reader->buffer + reader->start, reader->buffer + reader->start + reader->object};
    struct wire_value list, type, index;
    int64_t number;
    reader->record = (struct record){.type = reader->type, .file = reader->name, .memory = &reader->memory};
    if (cursor_next(&cursor, &list) || list.type != WIRE_ARRAY || list.count != 3)
        return err_set(err, ERR_INPUT, "%s: byte %llu: there is no record; the stream is damaged", reader->name,
                       (unsigned long long)reader->offset);
    if (cursor_next(&cursor, &type) || type.type != WIRE_TEXT || !type.bytes || type.bytes >= sizeof reader->type ||
        memchr(type.data, 0, type.bytes))
        return err_set(err, ERR_INPUT, "%s: byte %llu: a record has no type; the stream is damaged", reader->name,
                       (unsigned long long)reader->offset);
    memset(reader->type, 0, sizeof reader->type);
    memcpy(reader->type, type.data, type.bytes);
    if (cursor_next(&cursor, &index) || !wire_int64(&index, &number) || number != reader->index)
        return err_set(err, ERR_INPUT, "%s: record %lld (%s) has another number; records are missing or out of order, so make "
                       "the stream again",
                       reader->name, (long long)reader->index, reader->type);
    reader->record.index = number;
    reader->record.payload = cursor.at;
    reader->record.payload_end = cursor.end;
    return 0;
}

static int aborted(struct reader *reader, struct err *err)
{
    const char *message = "no reason given";
    if (record_index(&reader->record, err))
        return record_error_at(&reader->record, err);
    if (record_text_if_any(&reader->record, "message", &message, err))
        return -1;
    reader->abort_message = message;
    return err_set(err, ERR_INPUT, "%s: is incomplete, because its producer, %s, failed: %s", reader->name,
                   reader->header.tool, message);
}

static int ended(struct reader *reader, struct err *err)
{
    const uint8_t *digest;
    uint8_t seen[FRAME_DIGEST];
    if (frame_end_check(reader->record.payload, reader->record.payload_end, &reader->counts, reader->offset, &digest, err))
        return err_at(err, "%s", reader->name);
    xxh3_stream_put(reader->digest, reader->buffer + reader->start, reader->object - FRAME_DIGEST);
    frame_digest(xxh3_stream_digest(reader->digest), seen);
    if (memcmp(seen, digest, FRAME_DIGEST))
        return err_set(err, ERR_INPUT, "%s: its digest is wrong, so the stream was changed or damaged; make it again",
                       reader->name);
    if (reader->sequences.count)
        return err_set(err, ERR_INPUT, "%s: sequence %lld has a beginning, but no end; the stream is damaged", reader->name,
                       (long long)reader->sequences.open[0]);
    reader->start += reader->object;
    reader->offset += reader->object;
    reader->object = 0;
    int more = reader->length > reader->start ? 1 : fill(reader, err);
    if (more > 0)
        return err_set(err, ERR_INPUT, "%s: byte %llu: the end record is followed by more bytes; streams cannot be joined "
                       "with cat, so give them as separate files", reader->name, (unsigned long long)reader->offset);
    return more;
}

static int check_record(struct reader *reader, struct err *err)
{
    struct record *record = &reader->record;
    record->kind = stream_schema_record(reader->schema, reader->type);
    if (!record->kind && !frame_is_ancillary(reader->type))
        return err_set(err, ERR_INPUT, "%s: record %lld has type '%s', which is unknown in %s streams; update moekit",
                       reader->name, (long long)record->index, reader->type, reader->schema->name);
    if (record_index(record, err))
        return record_error_at(record, err);
    if (!record->kind)
        return 0;
    if (record_kind_read(record->kind, record, &reader->header, reader->body, err))
        return -1;
    record->body = reader->body;
    if (record->kind->check && record->kind->check(reader->body, &reader->header, &reader->sequences, err))
        return record_error_at(record, err);
    return 0;
}

static int next(struct reader *reader, struct err *err)
{
    const struct wire_limits limits = {reader->options.record_bytes, reader->options.record_values};
    for (;;) {
        record_memory_clear(&reader->memory);
        if (next_object(reader, &limits, err) || open_record(reader, err))
            return -1;
        if (!strcmp(reader->type, "end")) {
            reader->state = ENDED;
            return ended(reader, err);
        }
        if (!strcmp(reader->type, "abort"))
            return aborted(reader, err);
        if (check_record(reader, err) || frame_counts_add(&reader->counts, reader->type, err))
            return -1;
        xxh3_stream_put(reader->digest, reader->buffer + reader->start, reader->object);
        reader->index++;
        if (reader->record.kind || reader->options.ancillary)
            return 1;
    }
}

int reader_next(struct reader *reader, const struct record **record, struct err *err)
{
    if (reader->state == ENDED)
        return 0;
    if (reader->state == BROKEN)
        return err_set(err, ERR_INPUT, "%s: cannot be read further after an error", reader->name);
    int more = next(reader, err);
    if (more < 0)
        reader->state = BROKEN;
    if (more > 0)
        *record = &reader->record;
    return more;
}
