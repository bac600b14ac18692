/* A source of texts and states from a feature stream. */
#ifndef MOE_TRAIN_SOURCE_STREAM_H
#define MOE_TRAIN_SOURCE_STREAM_H

#include "common/train/batch.h"
#include "common/train/feature_source.h"

/* Opens the source of the stream's texts; their states are those of setup.state, in that order. Takes ownership of *features,
 * also on failure. any_order: first reads and checks the whole stream, and leaves its validation texts to
 * source_stream_validation; otherwise the source delivers all texts once, in stream order. */
int source_stream_open(struct train_source *out, struct feature_source **features, bool any_order, struct err *err);

/* Opens the source of the validation texts. others: the source of the remaining texts, opened with any_order; it must outlive
 * this one. */
int source_stream_validation(struct train_source *out, const struct train_source *others, struct err *err);

#endif
