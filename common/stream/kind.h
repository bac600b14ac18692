/* The kinds of streams, and the record types of each. A new kind is one file and one line in kind.c. */
#ifndef MOE_STREAM_KIND_H
#define MOE_STREAM_KIND_H

enum stream_kind { STREAM_ANY, STREAM_ROUTE, STREAM_RANK, STREAM_COACT, STREAM_DECODE, STREAM_BENCH, STREAM_FEATURE,
                   STREAM_TRAIN, STREAM_KINDS };

struct record_kind;

struct stream_schema {
    enum stream_kind kind;
    const char *name;                           /* name in the header: "route" */
    int version;                                /* version of the kind's records; a reader accepts this version and older
                                                 * ones */
    const char *meaning;
    const struct record_kind *const *records;   /* ends with NULL */
};

const struct stream_schema *stream_schema(enum stream_kind kind);           /* not for STREAM_ANY */
const struct stream_schema *stream_schema_named(const char *name);          /* NULL: unknown kind */
const struct record_kind *stream_schema_record(const struct stream_schema *schema, const char *type);   /* NULL: unknown */

#endif
