/* A second engine beside the target's, on its device: of another model with the same tokens, each under the same id (one that
 * drafts, one to compare with), or of the target's own model, whose weights and experts are then shared. */
#ifndef MOE_ENGINE_COMPANION_H
#define MOE_ENGINE_COMPANION_H

#include "common/engine/engine.h"

struct companion;

/* file NULL: the target's model. The target stays open longer. Vocabularies may be padded differently. */
int companion_open(struct companion **out, const char *file, const struct engine *target, int max_rows, int max_logit_rows,
                   struct err *err);
void companion_close(struct companion **companion);

/* Fails unless both models have the same tokens, each under the same id. */
int companion_check_tokens(const struct model *own, const struct model *target, struct err *err);

struct engine *companion_engine(const struct companion *companion);

#endif
