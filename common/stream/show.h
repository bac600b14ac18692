/* Prints objects (records, headers, tensors) as text, JSON lines or CSV through one interface.
 *
 *     show_begin(show, "rank", 3);
 *     show_int(show, "layer", 0);
 *     ...
 *     if (show_end(show, err))
 *
 * JSON   one object per line, "type" first; absent values are left out; NaN and infinities are null.
 * CSV    scalars, and maps as JSON; arrays are left out, an absent value is an empty cell. The first object determines the
 * columns, so all objects of a table must have the same keys.
 * TEXT   type, number, scalars, then one line per array; long arrays are shortened.
 *
 * Numbers have the shortest form that is read back exactly, or in TEXT six digits; integers beyond INT64_MAX become strings.
 * An error (out of memory) is stored until show_end. */
#ifndef MOE_STREAM_SHOW_H
#define MOE_STREAM_SHOW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/stream/array.h"
#include "common/stream/header.h"
#include "common/stream/record.h"

enum show_form { SHOW_TEXT, SHOW_JSON, SHOW_CSV };

struct show;

/* Opens the output; "-" is standard output. On failure no file appears. */
int show_open(struct show **out, const char *path, enum show_form form, struct err *err);
int show_close(struct show **show, struct err *err);
void show_discard(struct show **show);
enum show_form show_form(const struct show *show);

void show_begin(struct show *show, const char *type, int64_t index);       /* index -1: not numbered */
void show_int(struct show *show, const char *key, int64_t value);
void show_uint(struct show *show, const char *key, uint64_t value);
void show_real(struct show *show, const char *key, double value);
void show_flag(struct show *show, const char *key, bool value);
void show_text(struct show *show, const char *key, const char *value, size_t bytes);
void show_absent(struct show *show, const char *key);
void show_array(struct show *show, const char *key, const struct array *array);            /* data may be unaligned */
void show_element(struct show *show, const char *key, const struct array *array, size_t i);
void show_map_begin(struct show *show, const char *key);                    /* within a list the key is NULL */
void show_map_end(struct show *show);
void show_list_begin(struct show *show, const char *key);
void show_list_end(struct show *show);
int show_end(struct show *show, struct err *err);

/* Prints a line, in TEXT only; errors are reported by the next show_end or show_close. */
void show_line(struct show *show, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes all complete objects to the output now. */
int show_flush(struct show *show, struct err *err);

/* Selects records, and one layer of them; NULL or -1: all. A record without a sequence (or without data by layer) does not
 * pass a filter by sequence (or layer). */
struct origins;
struct show_filter {
    const char *type;
    int64_t sequence;
    int layer;
    const struct origins *origins;      /* for a table of iterations (show_origin.h); NULL: without columns from earlier
                                         * records */
};

int show_header(struct show *show, const struct header *header, struct err *err);

/* Prints a record that passes the filter. Returns 1; 0 if it does not pass; -1. */
int show_record(struct show *show, const struct record *record, const struct show_filter *filter, struct err *err);

#endif
