#include "common/route/spool.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"

enum { BLOCK_BYTES = 1 << 18 };

struct route_spool {
    int fd;
    bool narrow;                /* one byte a selection, 255 for a dropped slot */
    size_t selections;          /* of one token */
    size_t token_bytes;
    int block_tokens, used;     /* tokens that a block holds; in the one being filled */
    int64_t written;            /* tokens in the file */
    uint8_t *block;             /* [block_tokens * token_bytes] */
    int16_t *wide;              /* [block_tokens * selections] for replay */
};

int route_spool_open(struct route_spool **out, const struct stream_model *model, const char *folder, struct err *err)
{
    struct route_spool *spool = mem_alloc(1, sizeof *spool, err);
    if (!spool)
        return -1;
    spool->fd = -1;
    spool->narrow = model->experts < UINT8_MAX;
    spool->selections = (size_t)model->moe_layers * (size_t)model->top_k;
    spool->token_bytes = spool->selections * (spool->narrow ? 1 : sizeof(int16_t));
    spool->block_tokens = spool->token_bytes < BLOCK_BYTES ? (int)(BLOCK_BYTES / spool->token_bytes) : 1;
    if (!(spool->block = mem_alloc((size_t)spool->block_tokens, spool->token_bytes, err)) ||
        !(spool->wide = mem_alloc((size_t)spool->block_tokens, spool->selections * sizeof *spool->wide, err)) ||
        file_nameless(&spool->fd, folder, err)) {
        route_spool_close(&spool);
        return err_at(err, "the routes are kept aside in the temporary folder (TMPDIR)");
    }
    *out = spool;
    return 0;
}

void route_spool_close(struct route_spool **spool)
{
    if (!*spool)
        return;
    if ((*spool)->fd >= 0)
        close((*spool)->fd);
    mem_free(&(*spool)->block);
    mem_free(&(*spool)->wide);
    mem_free(spool);
}

static int spool_flush(struct route_spool *spool, struct err *err)
{
    size_t bytes = (size_t)spool->used * spool->token_bytes, at = 0;
    while (at < bytes) {
        ssize_t n = write(spool->fd, spool->block + at, bytes - at);
        if (n < 0 && errno != EINTR)
            return err_errno(err, "keeping the routes aside in the temporary folder (TMPDIR)");
        at += n > 0 ? (size_t)n : 0;
    }
    spool->written += spool->used;
    spool->used = 0;
    return 0;
}

int route_spool_add(struct route_spool *spool, const struct route_tokens *record, struct err *err)
{
    const int16_t *expert = record->experts;
    for (int i = 0; i < record->n; i++, expert += spool->selections) {
        if (record->accepted && !record->accepted[i])
            continue;
        uint8_t *to = spool->block + (size_t)spool->used * spool->token_bytes;
        if (spool->narrow)
            for (size_t s = 0; s < spool->selections; s++)
                to[s] = (uint8_t)expert[s];
        else
            memcpy(to, expert, spool->token_bytes);
        if (++spool->used == spool->block_tokens && spool_flush(spool, err))
            return -1;
    }
    return 0;
}

static int spool_read(struct route_spool *spool, size_t bytes, off_t offset, struct err *err)
{
    size_t at = 0;
    while (at < bytes) {
        ssize_t n = pread(spool->fd, spool->block + at, bytes - at, offset + (off_t)at);
        if (n == 0)
            errno = EIO;
        if (n == 0 || (n < 0 && errno != EINTR))
            return err_errno(err, "reading the routes back from the temporary folder (TMPDIR)");
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int route_spool_replay(struct route_spool *spool, route_spool_function *each, void *context, struct err *err)
{
    if (spool_flush(spool, err))
        return -1;
    for (int64_t done = 0; done < spool->written; ) {
        int64_t left = spool->written - done;
        int tokens = left < spool->block_tokens ? (int)left : spool->block_tokens;
        size_t count = (size_t)tokens * spool->selections;
        if (spool_read(spool, (size_t)tokens * spool->token_bytes, (off_t)done * (off_t)spool->token_bytes, err))
            return -1;
        if (spool->narrow)
            for (size_t s = 0; s < count; s++)
                spool->wide[s] = spool->block[s] == UINT8_MAX ? -1 : spool->block[s];
        else
            memcpy(spool->wide, spool->block, count * sizeof *spool->wide);
        each(context, spool->wide, tokens);
        done += tokens;
    }
    return 0;
}
