/* Writes a model file, block by block in canonical order.
 *
 * A maker fills the packed blocks, several at once on a thread pool; the writer writes them to disk, computes their digests
 * and appends the index. The bytes depend on the blocks and the facts alone, not on threads or time. The output's name
 * appears only with the commit. */
#ifndef MOE_MODEL_MODEL_WRITE_H
#define MOE_MODEL_MODEL_WRITE_H

#include "common/base/progress.h"
#include "common/base/thread_pool.h"
#include "common/model/model_index.h"

struct model_writer;

/* Takes ownership of the layout (formats are chosen; offsets are set here). `path` must be the name of a file. */
int model_writer_open(struct model_writer **out, const char *path, struct layout *layout, struct err *err);
void model_writer_discard(struct model_writer **writer);
uint64_t model_writer_bytes(const struct model_writer *writer);     /* of all tensors */

/* One block to make. */
struct block_job {
    const struct tensor *tensor;
    int block;
    void *packed;               /* [tensor->stride] bytes; the maker must set all, because they may contain an earlier block */
    struct digest128 digest;    /* digest of the block's source data; the maker defines it */
};

struct block_maker {
    /* Called by any member of the pool with its number; calls with the same number never overlap. */
    int (*make)(void *context, int member, struct block_job *job, struct err *err);
    void *context;
};

/* Makes and writes all blocks. *source is the SHA-256 over the jobs' digests in canonical order; bar may be NULL. */
int model_writer_fill(struct model_writer *writer, const struct block_maker *maker, struct thread_pool *pool,
                      struct progress *bar,
                      struct sha256 *source, struct err *err);

/* Writes the index, syncs and renames the file. Frees the writer, also on failure. */
int model_writer_commit(struct model_writer **writer, const struct model_facts *facts, struct err *err);

/* Opens, fills and commits a model file; discards it on failure. `source` receives the digest of the source and may be a member
 * of `facts`. bar may be NULL; its total is set here. */
int model_write_all(const char *path, struct layout *layout, const struct model_facts *facts, const struct block_maker *maker,
                    struct sha256 *source, struct thread_pool *pool, struct progress *bar, struct err *err);

#endif
