/* Bench streams: decode streams under several settings, and grades.
 *
 * A `setting` record describes a compared setting; a `sample` record announces a sequence that runs under a setting, and the
 * decode records (decode.h) of that sequence follow. Written by moe-bench run, read by its other subcommands. A `timing`
 * record is independent of these: the time of an operation or a forward on a device (tests/gpu/bench). */
#ifndef MOE_STREAM_BENCH_H
#define MOE_STREAM_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/stream/field.h"

enum { BENCH_SETTINGS_MAX = 1024 };         /* maximum of one stream, or of all streams read together */

struct bench_setting {
    int setting;
    const char *name, *model, *options;
    const char *label;              /* remark on the model; NULL: none */
    int moe_layers, experts;        /* of its model */
    int reference;                  /* index of the reference setting; -1: none */
    const char *loop;               /* NULL: unknown */
    const char *index_sha256;       /* digest of the model file, in hex; NULL: unknown */
    int max_tokens, context;        /* limits in effect; -1: none, or unknown */
    const char *draws;              /* NULL: unknown */
};

struct bench_sample {
    int64_t sequence;
    int setting, repeat;
};

struct bench_grade {
    int64_t sequence;
    bool correct;
    const char *rule;               /* word of report/grade.h, or "command" */
    const char *expected;           /* the prompt's answer */
    const char *answer;             /* the part of the text that was compared; NULL: none found */
    double score;                   /* 0 to 1; NaN: not recorded */
};

struct bench_timing {
    const char *what, *shape, *format;
    int rows;
    int64_t calls;
    double seconds, bytes;
    double copy;                    /* NaN: not measured */
    int layers;                     /* -1: the timing is not of a whole model */
};

/* Appends a line that is equal for settings, or machines, whose samples are comparable. The location of a model file does
 * not matter if its index is known. */
struct decode_machine;
int bench_describe_setting(struct text *out, const struct bench_setting *setting, struct err *err);
int bench_describe_machine(struct text *out, const struct decode_machine *machine, struct err *err);

extern const struct record_kind bench_setting_kind, bench_sample_kind, bench_grade_kind, bench_timing_kind;

#endif
