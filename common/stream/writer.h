/* Writes a stream, to a file that appears whole or not at all, or to standard output or a pipe.
 *
 *     if (writer_open(&out, path, &header, err) || writer_record(out, &rank_kind, &rank, err) || writer_close(&out, err))
 *         goto done;
 *     ...
 *     done: writer_abort(&out, err);
 *
 * A fault inside a record is kept and reported by writer_end (so one check a record is enough); after a fault nothing more
 * is written. Text that is not UTF-8 gets U+FFFD in place of each wrong byte. Numbers are kept exactly; arrays may hold
 * NaN and infinities. */
#ifndef MOE_STREAM_WRITER_H
#define MOE_STREAM_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/stream/array.h"
#include "common/stream/field.h"
#include "common/stream/header.h"
#include "common/stream/record.h"
#include "common/stream/values.h"

struct writer;

/* Opens a writer. "-" is standard output; a terminal is rejected. The header is copied and written at once. */
int writer_open(struct writer **out, const char *path, const struct header *header, struct err *err);

/* The same for a run that takes hours (output_open_kept): what writer_keep has seen survives signals and failures, as PATH.part
 * without an end, for a later run to go on from: it finds it at writer_left (NULL: there is none). */
int writer_open_kept(struct writer **out, const char *path, const struct header *header, struct err *err);
const char *writer_left(const struct writer *writer);
void writer_farewell(struct writer *writer, const char *text);         /* output_farewell */
int writer_keep(struct writer *writer, struct err *err);

/* Writes one record of a kind that the stream's schema has, from its C struct: checked as a reader checks it, and committed. */
int writer_record(struct writer *writer, const struct record_kind *kind, const void *body, struct err *err);

/* The same by hand: begin, keys and values, end. writer_end commits; without it a record leaves no trace. */
void writer_begin(struct writer *writer, const char *type);
void writer_int(struct writer *writer, const char *key, int64_t value);
void writer_real(struct writer *writer, const char *key, double value);
void writer_flag(struct writer *writer, const char *key, bool value);
void writer_text(struct writer *writer, const char *key, const char *value);
void writer_array(struct writer *writer, const char *key, enum dtype dtype, int rank, const uint64_t *shape, const void *data);
void writer_values(struct writer *writer, const char *key, const struct values *values);
void writer_map_begin(struct writer *writer, const char *key);
void writer_map_end(struct writer *writer);
int writer_end(struct writer *writer, struct err *err);

/* Copies a record as it was read; its index is the next one of this stream. */
int writer_copy(struct writer *writer, const struct record *record, struct err *err);

int writer_flush(struct writer *writer, struct err *err);       /* makes committed records visible to the reader now */

/* Writes the end record and gives the file its name. Frees the writer, also on failure (then no file appears). */
int writer_close(struct writer **writer, struct err *err);

/* The same with an abort record in place of the end: for a run that was ended early, and whose records are of use. Sequences
 * may be open. What another run left stays, too: this one may have come less far. */
int writer_close_early(struct writer **writer, const char *message, struct err *err);

/* Gives up: a pipe gets an abort record with err's text, and so does what writer_keep has seen of a file, which stays; any
 * other file disappears. NULL inside is fine, so it may always follow. */
void writer_abort(struct writer **writer, const struct err *err);

#endif
