/* Writes a stream, to a file that appears only when it is complete, to standard output or to a pipe.
 *
 *     if (writer_open(&out, path, &header, err) || writer_record(out, &rank_kind, &rank, err) || writer_close(&out, err))
 *         goto done;
 *     ...
 *     done: writer_abort(&out, err);
 *
 * An error inside a record is stored and reported by writer_end (so one check per record is enough); after an error nothing
 * more is written. In text that is not UTF-8 each wrong byte is replaced by U+FFFD. Numbers are stored exactly; arrays may
 * contain NaN and infinities. */
#ifndef MOE_STREAM_WRITER_H
#define MOE_STREAM_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/stream/array.h"
#include "common/stream/field.h"
#include "common/stream/header.h"
#include "common/stream/record.h"
#include "common/stream/values.h"

struct writer;

/* Opens a writer. "-" is standard output; a terminal is rejected. The header is copied and written at once. */
int writer_open(struct writer **out, const char *path, const struct header *header, struct err *err);

/* Opens a writer for a run that takes hours (output_open_kept): records written before writer_keep survive signals and
 * failures, as PATH.part without an end record, from which a later run can continue. writer_left returns the path of such a
 * file left by an earlier run (NULL: none). */
int writer_open_kept(struct writer **out, const char *path, const struct header *header, struct err *err);
bool writer_is_kept(const struct writer *writer);       /* returns whether records survive a failure */
const char *writer_left(const struct writer *writer);
void writer_set_signal_text(struct writer *writer, const char *text);  /* output_set_signal_text */
int writer_keep(struct writer *writer, struct err *err);

/* Writes one record of a kind in the stream's schema from its C struct: checks it as a reader does, and commits it. */
int writer_record(struct writer *writer, const struct record_kind *kind, const void *body, struct err *err);

/* Writes a record piece by piece: begin, keys and values, end. writer_end commits it; without writer_end nothing of it is
 * written. */
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

/* Copies a record that was read from another stream; its index is the next one of this stream. */
int writer_copy(struct writer *writer, const struct record *record, struct err *err);

/* For texts that are made concurrently and written one after another: from now on records are appended to *held (NULL: to
 * the stream), checked as usual, until _release writes those of `held`. */
void writer_hold(struct writer *writer, struct text *held);
int writer_release(struct writer *writer, const struct text *held, struct err *err);

int writer_flush(struct writer *writer, struct err *err);       /* makes committed records visible to a reader immediately */

/* Writes the end record and gives the file its name. Frees the writer, also on failure (then no file appears). */
int writer_close(struct writer **writer, struct err *err);

/* Like writer_close, but writes an abort record in place of the end record: for an interrupted run whose records are useful.
 * Sequences may be open. The file left by an earlier run stays, too, because this run may have got less far. */
int writer_close_early(struct writer **writer, const char *message, struct err *err);

/* Abandons the stream. A pipe receives an abort record with err's text, and so does the part of a file that writer_keep has
 * kept, which stays; any other file disappears. *writer may be NULL, so writer_abort may always be called. */
void writer_abort(struct writer **writer, const struct err *err);

#endif
