/* A second engine on the target's device: for another model with the same tokens and ids (to draft with, or to compare
 * with), or for the target's own model, whose weights and experts are then shared. */
#ifndef MOE_ENGINE_COMPANION_H
#define MOE_ENGINE_COMPANION_H

#include "common/engine/engine.h"

struct companion;

/* Opens a companion. file NULL: the target's model. The target must stay open longer. The padding of the vocabularies may
 * differ. cache: format of its keys and values. */
int companion_open(struct companion **out, const char *file, const struct engine *target, enum cache_format cache,
                   int max_rows, int max_logit_rows, struct err *err);
void companion_close(struct companion **companion);

/* Fails unless both models have the same tokens with the same ids. */
int companion_check_tokens(const struct model *own, const struct model *target, struct err *err);

struct engine *companion_engine(const struct companion *companion);

#endif
