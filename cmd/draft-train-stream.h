/* The train stream of a run that can be interrupted at any moment and resumed: it contains the whole training, each step
 * once. */
#ifndef MOE_CMD_DRAFT_TRAIN_STREAM_H
#define MOE_CMD_DRAFT_TRAIN_STREAM_H

#include "common/stream/train.h"
#include "common/stream/writer.h"

struct draft_train_past {
    int64_t steps, evaluated;       /* steps made before; step of the last evaluation; 0 or less: none */
    double seconds;                 /* out: their duration, from the earlier stream; 0: no stream was left */
};

/* Opens the stream and writes its header and `run`. A resumed training first copies the records of an earlier process of the
 * same run, up to its checkpoint: from the file that the process was writing, or from one that a signal ended. */
int draft_train_stream_open(struct writer **out, const char *path, const struct header *header, const struct train_run *run,
                            struct draft_train_past *past, struct err *err);

#endif
