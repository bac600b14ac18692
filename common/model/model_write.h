/* Writes a model file, block by block in canonical order.
 *
 * A maker fills the packed blocks, several at once on a thread pool; the writer puts them to disk, digests them and ends
 * with the index. The bytes depend on the blocks and the facts alone, not on threads or time. Nothing shows under the output's
 * name before the commit. */
#ifndef MOE_MODEL_MODEL_WRITE_H
#define MOE_MODEL_MODEL_WRITE_H

#include "common/base/progress.h"
#include "common/base/thread_pool.h"
#include "common/model/model_index.h"

struct model_writer;

/* Takes the layout over (formats chosen; offsets are set here). `path` must be the name of a file. */
int model_writer_open(struct model_writer **out, const char *path, struct layout *layout, struct err *err);
void model_writer_discard(struct model_writer **writer);
uint64_t model_writer_bytes(const struct model_writer *writer);     /* of all tensors */

/* One block to make. */
struct block_job {
    const struct tensor *tensor;
    int block;
    void *packed;               /* [tensor->stride] bytes, all of them to be set: an earlier block may be in them */
    struct digest128 digest;    /* of what the block was made from; the maker's own affair */
};

struct block_maker {
    /* Called from any member, by one at a time with its number. */
    int (*make)(void *context, int member, struct block_job *job, struct err *err);
    void *context;
};

/* Makes and writes all blocks. *source is the SHA-256 over the jobs' digests in canonical order; bar may be NULL. */
int model_writer_fill(struct model_writer *writer, const struct block_maker *maker, struct thread_pool *pool,
                      struct progress *bar,
                      struct sha256 *source, struct err *err);

/* Writes the index, syncs and renames. Frees, also on failure. */
int model_writer_commit(struct model_writer **writer, const struct model_facts *facts, struct err *err);

/* Opens, fills and commits a model file; discards it on failure. `source` receives the digest of the source and may be a member
 * of `facts`. bar may be NULL; its total is set here. */
int model_write_all(const char *path, struct layout *layout, const struct model_facts *facts, const struct block_maker *maker,
                    struct sha256 *source, struct thread_pool *pool, struct progress *bar, struct err *err);

#endif
