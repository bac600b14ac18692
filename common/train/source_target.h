/* A source of texts whose states the target computes on demand, for few texts or for states too large for the disk. */
#ifndef MOE_TRAIN_SOURCE_TARGET_H
#define MOE_TRAIN_SOURCE_TARGET_H

#include "common/engine/engine.h"
#include "common/train/batch.h"

/* A list of texts, stored as token ids. */
struct train_texts;
int train_texts_new(struct train_texts **out, struct err *err);
void train_texts_free(struct train_texts **texts);
/* Appends a copy of a text. mask: [tokens] 1 where a token belongs to an answer. */
int train_texts_add(struct train_texts *texts, const int32_t *token, const uint8_t *mask, int tokens, const char *name,
                    struct err *err);
int64_t train_texts_count(const struct train_texts *texts);
/* Returns the text without states; its arrays belong to the list. */
void train_texts_at(const struct train_texts *texts, int64_t index, struct train_text *out);

/* Opens the source of these texts. Takes ownership of *texts, also on failure. The engine must outlive the source. */
int source_target_open(struct train_source *out, struct train_texts **texts, struct engine *engine,
                       const struct head_states *points, struct err *err);

#endif
