/* A source of texts whose states the target computes on demand: for states that do not fit on a disk, or for few texts. */
#ifndef MOE_TRAIN_SOURCE_TARGET_H
#define MOE_TRAIN_SOURCE_TARGET_H

#include "common/engine/engine.h"
#include "common/train/batch.h"

/* Texts, kept as ids. */
struct train_texts;
int train_texts_new(struct train_texts **out, struct err *err);
void train_texts_free(struct train_texts **texts);
/* mask: [tokens] 1 where a token is of an answer; all are copied. */
int train_texts_add(struct train_texts *texts, const int32_t *token, const uint8_t *mask, int tokens, const char *name,
                    struct err *err);
int64_t train_texts_count(const struct train_texts *texts);
void train_texts_at(const struct train_texts *texts, int64_t index, struct train_text *out);    /* without states */

/* The source of these texts; takes them over, also on failure. The engine stays open. */
int source_target_open(struct train_source *out, struct train_texts **texts, struct engine *engine,
                       const struct head_states *points, struct err *err);

#endif
