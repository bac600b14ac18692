/* Concatenates several sources of texts, as of shards of a feature stream. */
#ifndef MOE_TRAIN_SOURCE_JOINED_H
#define MOE_TRAIN_SOURCE_JOINED_H

#include "common/train/batch.h"

/* part[count]: sources that can be read in any order, taken over and empty afterwards, also on failure; the array is borrowed
 * for the call. */
int source_joined_open(struct train_source *out, struct train_source *part, int count, struct err *err);

#endif
