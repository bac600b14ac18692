/* What is left of a stream whose producer may have been killed: records up to its end, to an abort record, or to where it was
 * cut or, when a machine went down, damaged. For a run that goes on from it: no one else may take such a stream for whole. */
#ifndef MOE_STREAM_LEFTOVER_H
#define MOE_STREAM_LEFTOVER_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/stream/reader.h"

typedef int leftover_see(void *context, const struct reader *in, const struct record *record, struct err *err);

/* Hands each record to `see`, whose failure is an error. *begun: the stream was there as far as its header; if not, *why has
 * the reason. why may be NULL. */
int leftover_read(const char *path, enum stream_kind kind, leftover_see *see, void *context, bool *begun, struct err *why,
                  struct err *err);

#endif
