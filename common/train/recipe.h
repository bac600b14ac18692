/* The recipe of a training: what it was started with, as a line of JSON, {"rate":0.004,...}. A checkpoint has it, and who goes
 * on must have the same. */
#ifndef MOE_TRAIN_RECIPE_H
#define MOE_TRAIN_RECIPE_H

#include "common/base/err.h"
#include "common/base/text.h"

/* Appends what `was` has otherwise than `is`, for people: "rate 0.004, not 0.1; other texts". Nothing: they differ in spelling
 * alone, or `was` is no such line. */
int recipe_difference(struct text *out, const char *was, size_t was_bytes, const char *is, struct err *err);

#endif
