/* What is left of a stream whose producer may have been killed: records up to its end, to an abort record, or to where it was
 * cut or, when a machine went down, damaged. For a run that continues it: no other code may take such a stream for whole. */
#ifndef MOE_STREAM_LEFTOVER_H
#define MOE_STREAM_LEFTOVER_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/stream/reader.h"

/* Puts into *out the name of what the run that wrote `path` left: PATH.part or PATH.part.old (output_open_kept), whichever is
 * longer; or `path` itself if neither exists, or if `path` lacks its end, too, and is longer: then a run was ended twice. *out
 * is empty if none of them exists. Fails if `path` is not a regular file. */
int leftover_find(struct text *out, const char *path, struct err *err);

/* Returns whether the file is empty or ends within a stream's header, as one whose process was killed early. */
bool leftover_is_stump(const char *path);

struct leftover {
    bool begun, whole;      /* the header is there; the end is there, too */
    struct err why;         /* if not begun */
};

typedef int leftover_see(void *context, const struct reader *in, const struct record *record, struct err *err);

/* Calls `see` for each record; a failure of `see` is an error. */
int leftover_read(const char *path, enum stream_kind kind, leftover_see *see, void *context, struct leftover *out,
                  struct err *err);

#endif
