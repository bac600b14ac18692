/* Stores the selected experts of all tokens for a second pass: a stream cannot be read twice, and a profile may be larger than
 * memory.
 *
 * A selection takes one or two bytes. Up to `memory` bytes are kept in memory, the rest in an unnamed file in `folder`. Within
 * a block tokens are stored layer by layer, the order in which they are counted. */
#ifndef MOE_ROUTE_SPOOL_H
#define MOE_ROUTE_SPOOL_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/stream/route.h"

enum { SPOOL_MEMORY = 1 << 27 };            /* bytes: the memory that commands pass to route_spool_open */

struct route_spool;

int route_spool_open(struct route_spool **out, const struct stream_model *model, size_t memory, const char *folder,
                     struct err *err);
void route_spool_close(struct route_spool **spool);

/* Adds the tokens of the record that are part of the text. Experts must be in range (checked by route_counts_add). */
int route_spool_add(struct route_spool *spool, const struct route_tokens *record, struct err *err);

/* Passes the tokens of layers from .. to - 1 to the function, block by block, and within a block layer by layer. experts:
 * [tokens][top_k], -1 for a dropped slot. A layer's blocks come in order; calls for different layers may run concurrently, on
 * up to four threads. */
typedef void route_spool_function(void *context, int layer, const int16_t *experts, int tokens);
int route_spool_replay(struct route_spool *spool, int from, int to, route_spool_function *each, void *context, struct err *err);

#endif
