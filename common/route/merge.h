/* Several streams of one kind and one model as one: all records in the order of the files, sequences renumbered in the order
 * in which they begin, the headers of all as sources. Labels are those of all; where values differ, all of them.
 *
 * Route, decode and feature streams can be merged. Of rankings and analyses there is one a model, so two make no third; the
 * settings of one bench are not those of another. Streams made with different options (made_alike.h), and one that comes twice,
 * are an error, or with force a note.
 * Memory is that of one record and of the sequences open at a time. The output is finished only when every input was
 * whole. */
#ifndef MOE_ROUTE_MERGE_H
#define MOE_ROUTE_MERGE_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/stream/header.h"

/* tool .. argv: who merges, for the header. Notes, one a line, go to *note. */
struct merge {
    const char *const *paths;
    int count;
    const char *output;
    bool force;
    const char *tool, *version;
    int argc;
    char *const *argv;
};
int streams_merge(const struct merge *merge, struct text *note, struct err *err);

#endif
