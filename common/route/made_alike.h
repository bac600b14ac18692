/* Were two streams made in the same way? By the options that their producers were started with, as their headers have them:
 * those that decide what is recorded, not those that say where from, where to, or on how many processors. */
#ifndef MOE_ROUTE_MADE_ALIKE_H
#define MOE_ROUTE_MADE_ALIKE_H

#include "common/base/text.h"
#include "common/stream/header.h"

/* Appends to *why each option that differs, as "--temperature 0.7, not 1"; nothing where all are alike. A stream that was
 * merged from others was made as the first of them was. */
int made_alike(const struct header *header, const struct header *other, struct text *why, struct err *err);

#endif
