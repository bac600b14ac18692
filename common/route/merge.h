/* Merges streams of one kind and one model: all records in the order of the files, sequences renumbered in the order in which
 * they begin, the headers of all inputs as sources. The labels of all inputs are kept; a label with several values lists them.
 *
 * Streams that are all parts of a run (--shard I/N) are put into the order of the parts, so that the merged stream has the
 * records of the whole run in its order. A missing part, or one that is given twice, is an error, and with force a note.
 *
 * Route, decode, feature and bench streams can be merged. Rankings and analyses cannot, because there is one per model. Streams
 * made with different options (made_alike.h), or the same stream twice, are an error, and with force a note. Bench streams must
 * have the same settings, which are kept once, and should be of equal machines. Memory: one record, and a table of the open
 * sequences, of a bench stream of all its sequences. The output is completed only after every input was read to its end. */
#ifndef MOE_ROUTE_MERGE_H
#define MOE_ROUTE_MERGE_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/cli/opt.h"
#include "common/stream/header.h"

/* tool to argv describe the merging command, for the header. Notes, one per line, are appended to *note. */
struct merge {
    const char *const *paths;
    int count;
    const char *output;
    bool force;
    const struct opt *settings;         /* options that made_alike compares */
    const char *tool, *version;
    int argc;
    char *const *argv;
};
int streams_merge(const struct merge *merge, struct text *note, struct err *err);

#endif
