/* A source that concatenates several sources of texts, for example the shards of a feature stream. */
#ifndef MOE_TRAIN_SOURCE_JOINED_H
#define MOE_TRAIN_SOURCE_JOINED_H

#include "common/train/batch.h"

/* Opens the source. part: [count] sources that can be read in any order. The function takes ownership of them and zeroes the
 * array's elements, also on failure; the caller keeps the array. */
int source_joined_open(struct train_source *out, struct train_source *part, int count, struct err *err);

#endif
