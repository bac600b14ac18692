/* A source of texts and states from a feature stream. */
#ifndef MOE_TRAIN_SOURCE_STREAM_H
#define MOE_TRAIN_SOURCE_STREAM_H

#include "common/train/batch.h"
#include "common/train/feature_source.h"

/* The source of these texts, whose states are setup.state in that order; takes `features` over, also on failure. any_order:
 * reads the stream to its end first, and checks it; else its texts come as they come, once. In any order, those that the stream
 * keeps apart for validation are left to source_stream_validation. */
int source_stream_open(struct train_source *out, struct feature_source **features, bool any_order, struct err *err);

/* Those kept apart, from the source of the others, which stays open as long. */
int source_stream_validation(struct train_source *out, const struct train_source *others, struct err *err);

#endif
