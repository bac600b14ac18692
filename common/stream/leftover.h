/* Reads the remains of a stream whose producer may have been killed: all records up to its end record, an abort record, or
 * the point of truncation or damage. Only for a run that continues the stream: any other code must not accept an incomplete
 * stream. */
#ifndef MOE_STREAM_LEFTOVER_H
#define MOE_STREAM_LEFTOVER_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/stream/reader.h"

/* Finds the file left by the run that wrote `path`: the longer one of PATH.part and PATH.part.old (output_open_kept); `path`
 * itself if neither exists, or if `path` also lacks its end record and is longer, because the run was interrupted twice.
 * *out is empty if none of them exists. Fails if `path` is not a regular file. */
int leftover_find(struct text *out, const char *path, struct err *err);

/* Returns whether the file is empty or ends within a stream's header, which happens if its process was killed early. */
bool leftover_is_stump(const char *path);

struct leftover {
    bool begun, whole;      /* begun: it has a header; whole: it has an end record, too */
    struct err why;         /* why it has no header, if not begun */
};

typedef int leftover_see(void *context, const struct reader *in, const struct record *record, struct err *err);

/* Calls `see` for each record; a failure of `see` fails the call. */
int leftover_read(const char *path, enum stream_kind kind, leftover_see *see, void *context, struct leftover *out,
                  struct err *err);

#endif
