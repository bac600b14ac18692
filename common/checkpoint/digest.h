/* Computes the SHA-256 of the files of a checkpoint, one file per thread.
 *
 * Digesting takes about as long as converting, so it can run concurrently on a thread of its own; digester_end processes the
 * remaining files in the pool. Initialise the pointer with NULL; digester_end and digester_stop free it and set it to NULL. */
#ifndef MOE_CHECKPOINT_DIGEST_H
#define MOE_CHECKPOINT_DIGEST_H

#include "common/base/thread_pool.h"
#include "common/checkpoint/checkpoint.h"

struct digester;

/* Starts digesting. The checkpoint is borrowed until the end; the digests of its files must not be read before. */
int digester_start(struct digester **out, struct checkpoint *checkpoint, bool beside, struct err *err);

/* Waits until all files have their digests, then frees the digester, also on failure. */
int digester_end(struct digester **digester, struct thread_pool *pool, struct err *err);
void digester_stop(struct digester **digester);         /* stops early, and frees */

#endif
