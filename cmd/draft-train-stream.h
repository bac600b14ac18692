/* The train stream of a run that may be ended at any moment and go on: it has the whole training, each step once. */
#ifndef MOE_CMD_DRAFT_TRAIN_STREAM_H
#define MOE_CMD_DRAFT_TRAIN_STREAM_H

#include "common/stream/train.h"
#include "common/stream/writer.h"

struct draft_train_past {
    int64_t steps, evaluated;       /* made before, and the step after which the head was judged last; 0 and less: none */
    double seconds;                 /* out: how long they took, by what was left of the stream; 0: nothing was */
};

/* Opens the stream with its header and `run`. Of a training that goes on, what an earlier process left of the same run comes
 * first, as far as its checkpoint had come: of the file that it was writing, or of one that a signal ended. */
int draft_train_stream_open(struct writer **out, const char *path, const struct header *header, const struct train_run *run,
                            struct draft_train_past *past, struct err *err);

#endif
