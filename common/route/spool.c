#include "common/route/spool.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/thread_pool.h"

enum { BLOCK_BYTES = 1 << 18, REPLAY_THREADS = 4 };

struct route_spool {
    int fd;                     /* -1: all blocks are in memory */
    const char *folder;
    bool narrow;                /* one byte per selection, 255 for a dropped slot */
    size_t layers, top_k;
    size_t row_bytes;           /* bytes of one token's selections in one layer */
    size_t block_bytes;         /* at most BLOCK_BYTES, but at least one token */
    int block_tokens, used;     /* tokens per block; tokens in the block being filled */
    size_t full;                /* complete blocks */
    size_t keep;                /* blocks, [layers][block_tokens][top_k], that fit into memory; the others are in the file */
    uint8_t *memory;            /* [keep] blocks; mapped, so that pages are allocated when first written */
    uint8_t *passing;           /* a block to be written to the file */
    struct thread_pool *pool;   /* thread pool of replays; NULL before the first replay */
};

int route_spool_open(struct route_spool **out, const struct stream_model *model, size_t memory, const char *folder,
                     struct err *err)
{
    struct route_spool *spool = mem_alloc(1, sizeof *spool, err);
    if (!spool)
        return -1;
    spool->fd = -1;
    spool->folder = folder;
    spool->narrow = model->experts < UINT8_MAX;
    spool->layers = (size_t)model->moe_layers;
    spool->top_k = (size_t)model->top_k;
    spool->row_bytes = spool->top_k * (spool->narrow ? 1 : sizeof(int16_t));
    size_t token_bytes = spool->row_bytes * spool->layers;
    spool->block_tokens = token_bytes < BLOCK_BYTES ? (int)(BLOCK_BYTES / token_bytes) : 1;
    spool->block_bytes = (size_t)spool->block_tokens * token_bytes;
    spool->keep = memory / spool->block_bytes;
    spool->memory = spool->keep ? mmap(NULL, spool->keep * spool->block_bytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : MAP_FAILED;
    if (spool->memory == MAP_FAILED) {          /* all blocks are then written to the file */
        spool->memory = NULL;
        spool->keep = 0;
    }
    *out = spool;
    return 0;
}

void route_spool_close(struct route_spool **address)
{
    struct route_spool *spool = *address;
    if (!spool)
        return;
    if (spool->fd >= 0)
        close(spool->fd);
    if (spool->memory)
        munmap(spool->memory, spool->keep * spool->block_bytes);
    mem_free(&spool->passing);
    thread_pool_free(&spool->pool);
    mem_free(address);
}

static int write_passing(struct route_spool *spool, struct err *err)
{
    for (size_t at = 0; at < spool->block_bytes; ) {
        ssize_t n = write(spool->fd, spool->passing + at, spool->block_bytes - at);
        if (n < 0 && errno != EINTR)
            return err_errno(err, "routes cannot be written to the temporary folder (TMPDIR)");
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Returns the address of the block being filled. */
static uint8_t *filling(const struct route_spool *spool)
{
    return spool->full < spool->keep ? spool->memory + spool->full * spool->block_bytes : spool->passing;
}

/* Makes room for one more token. */
static int make_room(struct route_spool *spool, struct err *err)
{
    if (spool->used < spool->block_tokens && filling(spool))
        return 0;
    if (spool->used == spool->block_tokens) {
        if (spool->full >= spool->keep && write_passing(spool, err))
            return -1;
        spool->full++;
        spool->used = 0;
    }
    if (spool->full < spool->keep || spool->passing)
        return 0;
    if (!(spool->passing = mem_alloc(spool->block_bytes, 1, err)) || file_nameless(&spool->fd, spool->folder, err))
        return err_at(err, "routes cannot be written to the temporary folder (TMPDIR)");
    return 0;
}

/* Converts selections in groups of constant length, which the compiler turns into vector instructions. */
static void narrow(uint8_t *restrict to, const int16_t *restrict from, size_t count)
{
    for (; count >= 8; count -= 8, to += 8, from += 8)
        for (int i = 0; i < 8; i++)
            to[i] = (uint8_t)from[i];
    for (size_t i = 0; i < count; i++)
        to[i] = (uint8_t)from[i];
}

static void widen(int16_t *restrict to, const uint8_t *restrict from, size_t count)
{
    for (; count >= 16; count -= 16, to += 16, from += 16)
        for (int i = 0; i < 16; i++)
            to[i] = (int16_t)((uint8_t)(from[i] + 1) - 1);
    for (size_t i = 0; i < count; i++)
        to[i] = (int16_t)((uint8_t)(from[i] + 1) - 1);
}

static void put_token(struct route_spool *spool, const int16_t *expert)
{
    size_t step = (size_t)spool->block_tokens * spool->row_bytes;
    uint8_t *to = filling(spool) + (size_t)spool->used * spool->row_bytes;
    for (size_t layer = 0; layer < spool->layers; layer++, to += step, expert += spool->top_k)
        if (spool->narrow)
            narrow(to, expert, spool->top_k);
        else
            memcpy(to, expert, spool->row_bytes);
}

int route_spool_add(struct route_spool *spool, const struct route_tokens *record, struct err *err)
{
    const int16_t *expert = record->experts;
    for (int i = 0; i < record->n; i++, expert += spool->layers * spool->top_k) {
        if (record->accepted && !record->accepted[i])
            continue;
        if (make_room(spool, err))
            return -1;
        put_token(spool, expert);
        spool->used++;
    }
    return 0;
}

static int read_block(const struct route_spool *spool, uint8_t *back, size_t number, struct err *err)
{
    size_t at = 0;
    while (at < spool->block_bytes) {
        ssize_t n = pread(spool->fd, back + at, spool->block_bytes - at, (off_t)(number * spool->block_bytes + at));
        if (n == 0)
            errno = EIO;
        if (n == 0 || (n < 0 && errno != EINTR))
            return err_errno(err, "routes cannot be read back from the temporary folder (TMPDIR)");
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

struct replay {
    const struct route_spool *spool;
    int from, to;
    route_spool_function *each;
    void *context;
    struct { struct err err; int rc; } member[REPLAY_THREADS];
};

/* Replays layers from .. to - 1 of all blocks. */
static int replay_layers(const struct replay *replay, int from, int to, struct err *err)
{
    const struct route_spool *spool = replay->spool;
    size_t step = (size_t)spool->block_tokens * spool->row_bytes;
    int16_t *wide = mem_alloc((size_t)spool->block_tokens * spool->top_k, sizeof *wide, err);
    uint8_t *back = mem_alloc(spool->block_bytes, 1, err);
    int rc = wide && back ? 0 : -1;
    for (size_t i = 0; !rc && i <= spool->full; i++) {
        const uint8_t *block = i < spool->keep ? spool->memory + i * spool->block_bytes
                                               : i < spool->full ? back : spool->passing;
        int tokens = i < spool->full ? spool->block_tokens : spool->used;
        if (block == back && (rc = read_block(spool, back, i - spool->keep, err)))
            break;
        for (int layer = from; layer < to && tokens; layer++) {
            const uint8_t *rows = block + (size_t)layer * step;
            if (spool->narrow)
                widen(wide, rows, (size_t)tokens * spool->top_k);
            else
                memcpy(wide, rows, (size_t)tokens * spool->row_bytes);
            replay->each(replay->context, layer, wide, tokens);
        }
    }
    mem_free(&wide);
    mem_free(&back);
    return rc;
}

static void replay_part(void *argument, int member, int members)
{
    struct replay *replay = argument;
    size_t begin, end;
    thread_pool_part((size_t)(replay->to - replay->from), member, members, &begin, &end);
    replay->member[member].rc = replay_layers(replay, replay->from + (int)begin, replay->from + (int)end,
                                              &replay->member[member].err);
}

int route_spool_replay(struct route_spool *spool, int from, int to, route_spool_function *each, void *context, struct err *err)
{
    struct replay replay = { .spool = spool, .from = from, .to = to, .each = each, .context = context };
    int cores = thread_pool_cores(), max = (int)spool->layers < REPLAY_THREADS ? (int)spool->layers : REPLAY_THREADS;
    if (!spool->pool && thread_pool_new(&spool->pool, cores < max ? cores : max, err))
        return -1;
    thread_pool_run(spool->pool, replay_part, &replay);
    for (int i = 0; i < thread_pool_size(spool->pool); i++)
        if (replay.member[i].rc) {
            *err = replay.member[i].err;
            return -1;
        }
    return 0;
}
