#include "common/model/model_write.h"

#include <pthread.h>
#include <stdbool.h>

#include "common/base/file.h"
#include "common/base/mem.h"

/* Maximum total bytes of the blocks in flight; a single larger block is allowed alone. */
enum { ROOM_BYTES = 192 << 20 };

struct model_writer {
    struct output *output;
    struct layout layout;
    uint64_t data_end;
    int tensor, block;          /* next block to be written */
    uint64_t end;               /* end of the bytes written so far */
    struct xxh3_stream *digest; /* digest of the tensor that is being written */
};

int model_writer_open(struct model_writer **out, const char *path, struct layout *layout, struct err *err)
{
    struct model_writer *writer = mem_alloc(1, sizeof *writer, err);
    if (!writer)
        return -1;
    if (layout_arrange(layout, MODEL_PAGE, &writer->data_end, err) || output_open(&writer->output, path, err) ||
        output_write_at(writer->output, 0, "", 0, err) ||       /* rejects an output that cannot seek, before the work */
        output_expect(writer->output, writer->data_end, err)) {
        model_writer_discard(&writer);
        return -1;
    }
    writer->layout = *layout;
    writer->end = MODEL_PAGE;
    *layout = (struct layout){0};
    *out = writer;
    return 0;
}

void model_writer_discard(struct model_writer **address)
{
    struct model_writer *writer = *address;
    if (writer) {
        output_discard(&writer->output);
        layout_free(&writer->layout);
        xxh3_stream_free(&writer->digest);
    }
    mem_free(address);
}

uint64_t model_writer_bytes(const struct model_writer *writer)
{
    uint64_t sum = 0;
    for (int i = 0; i < writer->layout.count; i++)
        sum += writer->layout.tensors[i].bytes;
    return sum;
}

static int write_block(struct model_writer *writer, const struct block_job *job, struct err *err)
{
    struct tensor *t = &writer->layout.tensors[writer->tensor];
    if (!writer->digest && xxh3_stream_new(&writer->digest, err))
        return -1;
    static const uint8_t zeros[MODEL_PAGE];
    const uint64_t offset = t->offset + t->stride * (uint64_t)job->block;
    xxh3_stream_put(writer->digest, job->packed, t->stride);
    if (output_write_at(writer->output, writer->end, zeros, (size_t)(offset - writer->end), err) ||
        output_write_at(writer->output, offset, job->packed, t->stride, err))
        return -1;
    writer->end = offset + t->stride;
    if (++writer->block < t->count)
        return 0;
    t->digest = xxh3_stream_digest(writer->digest);
    xxh3_stream_free(&writer->digest);
    writer->block = 0;
    writer->tensor++;
    return 0;
}

/* A block in flight: one member makes it; once it is the next in order, any member writes it. */
struct slot {
    enum { SLOT_FREE, SLOT_MAKING, SLOT_MADE } state;
    uint64_t turn;              /* number of the block in the file */
    size_t room;                /* bytes allocated at job.packed; a free slot keeps them for a block of that size */
    struct block_job job;
    struct err err;
    bool failed;
};

/* Members make blocks in canonical order and write them in that order, one at a time, while other members make the next
 * ones. Everything except making and writing a block happens under the lock. */
struct block_writing {
    struct model_writer *writer;
    const struct block_maker *maker;
    struct progress *bar;
    struct sha256_stream *source;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot *slots;
    int slot_count;
    uint64_t blocks, held;      /* blocks: number of blocks of the file; held: bytes of all slots */
    uint64_t making, writing;   /* numbers of the next block to be made, and of the next to be written */
    int tensor, block;          /* next block to be made */
    bool busy, failed;          /* busy: a member is writing; failed: all members stop */
    struct err err;
};

static void slot_empty(struct block_writing *f, struct slot *slot)
{
    mem_free(&slot->job.packed);
    f->held -= slot->room;
    slot->room = 0;
}

/* Returns a free slot with capacity for `bytes`, or one that can grow to it within the memory limit; NULL: none at present. */
static struct slot *slot_find(struct block_writing *f, size_t bytes)
{
    struct slot *any = NULL;
    for (int i = 0; i < f->slot_count; i++) {
        struct slot *slot = &f->slots[i];
        if (slot->state != SLOT_FREE)
            continue;
        if (slot->room >= bytes && slot->room / 2 <= bytes)
            return slot;
        any = slot;
    }
    if (!any)
        return NULL;
    slot_empty(f, any);
    for (int i = 0; i < f->slot_count && f->held + bytes > ROOM_BYTES; i++)
        if (f->slots[i].state == SLOT_FREE)
            slot_empty(f, &f->slots[i]);
    return f->held && f->held + bytes > ROOM_BYTES ? NULL : any;
}

/* Makes the next block in canonical order; returns false if there is no next block, or no memory for it yet. */
static bool fill_make(struct block_writing *f, int member)
{
    const struct layout *layout = &f->writer->layout;
    const struct tensor *t = &layout->tensors[f->tensor];
    struct slot *slot = f->tensor < layout->count ? slot_find(f, t->stride) : NULL;
    if (!slot)
        return false;
    slot->state = SLOT_MAKING;
    slot->turn = f->making++;
    slot->job = (struct block_job){.tensor = t, .block = f->block, .packed = slot->job.packed};
    if (!slot->room)
        f->held += slot->room = t->stride;
    if (++f->block == t->count) {
        f->block = 0;
        f->tensor++;
    }
    pthread_mutex_unlock(&f->lock);
    slot->failed = (!slot->job.packed && !(slot->job.packed = mem_alloc_aligned(slot->room, 1, &slot->err))) ||
                   f->maker->make(f->maker->context, member, &slot->job, &slot->err);
    pthread_mutex_lock(&f->lock);
    slot->state = SLOT_MADE;
    return true;
}

/* Writes the next block in order; returns false if it is not made yet, or if another member is writing. */
static bool fill_write(struct block_writing *f)
{
    struct slot *slot = NULL;
    for (int i = 0; i < f->slot_count && !f->busy; i++)
        if (f->slots[i].state == SLOT_MADE && f->slots[i].turn == f->writing)
            slot = &f->slots[i];
    if (!slot)
        return false;
    f->busy = true;
    pthread_mutex_unlock(&f->lock);
    const struct block_job *job = &slot->job;
    bool failed = slot->failed;
    if (failed)
        f->err = slot->err;
    else
        failed = write_block(f->writer, job, &f->err) ||
                 sha256_stream_put(f->source, &job->digest, sizeof job->digest, &f->err);
    if (f->bar && !failed)
        progress_step(f->bar, job->tensor->stride);
    pthread_mutex_lock(&f->lock);
    slot->state = SLOT_FREE;
    f->busy = false;
    f->failed = failed;
    f->writing++;
    return true;
}

static void fill_step(void *argument, int member, int members)
{
    struct block_writing *f = argument;
    (void)members;
    pthread_mutex_lock(&f->lock);
    while (!f->failed && f->writing < f->blocks)
        if (fill_write(f) || fill_make(f, member))
            pthread_cond_broadcast(&f->changed);
        else
            pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

int model_writer_fill(struct model_writer *writer, const struct block_maker *maker, struct thread_pool *pool,
                      struct progress *bar,
                      struct sha256 *source, struct err *err)
{
    struct block_writing f = {.writer = writer, .maker = maker, .bar = bar, .slot_count = 2 * thread_pool_size(pool)};
    int rc = -1;
    if (sha256_stream_new(&f.source, err) || !(f.slots = mem_alloc((size_t)f.slot_count, sizeof *f.slots, err)))
        goto done;
    for (int i = 0; i < writer->layout.count; i++)
        f.blocks += (uint64_t)writer->layout.tensors[i].count;
    pthread_mutex_init(&f.lock, NULL);
    pthread_cond_init(&f.changed, NULL);
    thread_pool_run(pool, fill_step, &f);
    pthread_cond_destroy(&f.changed);
    pthread_mutex_destroy(&f.lock);
    rc = f.failed ? err_set(err, f.err.code, "%s", f.err.text) : sha256_stream_end(&f.source, source, err);
done:
    sha256_stream_free(&f.source);
    for (int i = 0; f.slots && i < f.slot_count; i++)
        mem_free(&f.slots[i].job.packed);
    mem_free(&f.slots);
    return rc;
}

int model_writer_commit(struct model_writer **address, const struct model_facts *facts, struct err *err)
{
    struct model_writer *writer = *address;
    struct model_head head = {.index_offset = size_align(writer->data_end, 64)};
    struct text index = {0};
    uint8_t page[MODEL_PAGE];
    int rc = -1;
    if (writer->tensor != writer->layout.count) {
        err_set(err, ERR_INPUT, "%s: only %d of %d tensors were written", output_path(writer->output), writer->tensor,
                writer->layout.count);
        goto done;
    }
    if (model_index_write(&index, facts, &writer->layout, err))
        goto done;
    head.index_bytes = index.length;
    if (hash_sha256(index.data, index.length, &head.index, err))
        goto done;
    model_head_write(page, &head);
    if (output_write_at(writer->output, head.index_offset, index.data, index.length, err) ||
        output_write_at(writer->output, 0, page, sizeof page, err))
        goto done;
    rc = output_commit(&writer->output, err);
done:
    text_free(&index);
    model_writer_discard(address);
    return rc;
}

int model_write_all(const char *path, struct layout *layout, const struct model_facts *facts, const struct block_maker *maker,
                    struct sha256 *source, struct thread_pool *pool, struct progress *bar, struct err *err)
{
    struct model_writer *writer = NULL;
    if (model_writer_open(&writer, path, layout, err))
        return -1;
    if (bar)
        bar->total = model_writer_bytes(writer);
    if (model_writer_fill(writer, maker, pool, bar, source, err)) {
        model_writer_discard(&writer);
        return -1;
    }
    return model_writer_commit(&writer, facts, err);
}
