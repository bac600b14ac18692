/* The sink for an analysis's records: a stream, or text as JSON or CSV. */
#ifndef MOE_ROUTE_PUT_H
#define MOE_ROUTE_PUT_H

#include "common/base/err.h"
#include "common/stream/field.h"

typedef int record_put(void *context, const struct record_kind *kind, const void *body, struct err *err);

#endif
