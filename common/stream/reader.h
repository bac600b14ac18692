/* Reads a stream, from a file or as it arrives through a pipe.
 *
 *     struct reader *in = NULL; const struct record *record; int more;
 *     if (reader_open(&in, path, STREAM_ROUTE, NULL, err))
 *         goto done;
 *     while ((more = reader_next(in, &record, err)) > 0)
 *         if (record->kind == &route_tokens_kind) {
 *             const struct route_tokens *tokens = record->body; ...
 *         }
 *     if (more < 0)
 *         goto done;
 *
 * A result of 0 means that the end record was read and that its counts and digest are correct: only then is the stream
 * complete, and only then may a program finish its own output. A stream that stops without an end record, continues after
 * it, or was aborted by its producer is an error. Memory is bounded by the bytes read, and by the limits.
 *
 * Record types that begin with "x-" are ancillary: they are skipped if unknown. Any other unknown type is an error. */
#ifndef MOE_STREAM_READER_H
#define MOE_STREAM_READER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/stream/frame.h"
#include "common/stream/header.h"
#include "common/stream/record.h"

struct reader;

struct reader_options {
    size_t record_bytes;        /* limit for one record; 0: FRAME_RECORD_BYTES */
    size_t record_values;       /* limit for the msgpack values in one record; 0: FRAME_RECORD_VALUES */
    bool ancillary;             /* also return unknown ancillary records, with kind NULL */
};

/* Opens a stream; "-" is standard input. Reads up to the end of the header; options may be NULL. Messages name the path. */
int reader_open(struct reader **out, const char *path, enum stream_kind kind, const struct reader_options *options,
                struct err *err);

/* Returns the stream's header, owned by the reader. */
const struct header *reader_header(const struct reader *reader);
const char *reader_name(const struct reader *reader);           /* the path, or "standard input" */

/* Returns 1: *record is the next record, valid until the next call; 0: the stream is complete; -1: error, err set. */
int reader_next(struct reader *reader, const struct record **record, struct err *err);

/* Returns the message of the abort record that made reader_next return -1; NULL: that error had another cause. Valid until
 * the reader is closed. */
const char *reader_abort_message(const struct reader *reader);

/* Returns the number of records by type, of bytes, and the digest, of all bytes read so far. */
const struct frame_counts *reader_counts(const struct reader *reader);
uint64_t reader_bytes(const struct reader *reader);
struct digest128 reader_digest(const struct reader *reader);   /* digest of a complete stream, without its last 16 bytes */

/* Return to an earlier record of a file: reader_mark stores the position of the current record; after reader_return,
 * reader_next reads that record again. Counts and digest are invalid afterwards, and the end record is not verified: first
 * read the stream to its end, to check that it is complete. Not possible for input that is not a file, such as a pipe. */
struct reader_mark { uint64_t offset; int64_t index; };
bool reader_can_return(const struct reader *reader);
struct reader_mark reader_mark(const struct reader *reader);
int reader_return(struct reader *reader, const struct reader_mark *mark, struct err *err);

void reader_close(struct reader **reader);

/* Returns true if the first bytes of a file (READER_SNIFF of them, or the whole file) begin a stream. */
enum { READER_SNIFF = FRAME_GUARD_BYTES };
bool reader_sniff(const void *bytes, size_t count);

/* Like reader_open, for input whose first bytes the caller has already read. fd is closed by reader_close, or here on
 * failure, unless it is standard input. */
int reader_open_fd(struct reader **out, int fd, const char *name, const void *first, size_t first_bytes,
                   enum stream_kind kind, const struct reader_options *options, struct err *err);

#endif
