/* The selected experts of all tokens, kept aside until they are needed a second time: a stream cannot be read twice, and
 * a profile may be larger than memory.
 *
 * Held in a file without a name in `folder`, one or two bytes a selection; memory is one block. */
#ifndef MOE_ROUTE_SPOOL_H
#define MOE_ROUTE_SPOOL_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/stream/route.h"

struct route_spool;

int route_spool_open(struct route_spool **out, const struct stream_model *model, const char *folder, struct err *err);
void route_spool_close(struct route_spool **spool);

/* The tokens of the record that are part of the text; experts must be in range (route_counts_add has checked them). */
int route_spool_add(struct route_spool *spool, const struct route_tokens *record, struct err *err);

/* Hands out all tokens again, block by block: experts is [tokens][moe_layers][top_k], -1 for a dropped slot. */
typedef void route_spool_function(void *context, const int16_t *experts, int tokens);
int route_spool_replay(struct route_spool *spool, route_spool_function *each, void *context, struct err *err);

#endif
