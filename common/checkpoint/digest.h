/* SHA-256 of the files of a checkpoint, one file a thread.
 *
 * It takes about as long as converting does, so that it can begin beside it, on a thread of its own; the pool takes what is
 * left when it is asked for the end. Start with NULL: it is ended or given up by address. */
#ifndef MOE_CHECKPOINT_DIGEST_H
#define MOE_CHECKPOINT_DIGEST_H

#include "common/base/thread_pool.h"
#include "common/checkpoint/checkpoint.h"

struct digester;

/* The checkpoint is borrowed until the end; its files' digests are not to be looked at before. */
int digester_start(struct digester **out, struct checkpoint *checkpoint, bool beside, struct err *err);

/* All files not digested before have their digests. Frees, also on failure. */
int digester_end(struct digester **digester, struct thread_pool *pool, struct err *err);
void digester_stop(struct digester **digester);         /* gives up soon, and frees */

#endif
