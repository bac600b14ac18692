/* The recipe of a training: its settings as a line of JSON, {"rate":0.004,...}. A checkpoint stores it, and a resumed training
 * must have the same recipe. */
#ifndef MOE_TRAIN_RECIPE_H
#define MOE_TRAIN_RECIPE_H

#include "common/base/err.h"
#include "common/base/text.h"

/* Appends a readable list of the differences between recipe `was` and recipe `is`: "rate 0.004, not 0.1; other texts". Appends
 * nothing if only the spelling differs, or if `was` is not a recipe. */
int recipe_difference(struct text *out, const char *was, size_t was_bytes, const char *is, struct err *err);

#endif
