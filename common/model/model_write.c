#include "common/model/model_write.h"

#include <string.h>

#include "common/base/file.h"
#include "common/base/mem.h"

/* Blocks in the making at once may take this much beyond the first of them. */
enum { BATCH_BYTES = 192 << 20 };

struct model_writer {
    struct output *output;
    struct layout layout;
    uint64_t data_end;
    int tensor, block;          /* the next one to be written */
    struct xxh3_stream *digest; /* of the tensor that is being written */
};

int model_writer_open(struct model_writer **out, const char *path, struct layout *layout, struct err *err)
{
    struct model_writer *writer = mem_alloc(1, sizeof *writer, err);
    if (!writer)
        return -1;
    if (layout_place(layout, MODEL_PAGE, &writer->data_end, err) || output_open(&writer->output, path, err) ||
        output_write_at(writer->output, 0, "", 0, err)) {       /* an output that cannot seek is refused before the work */
        model_writer_discard(&writer);
        return -1;
    }
    writer->layout = *layout;
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
    xxh3_stream_put(writer->digest, job->packed, t->stride);
    if (output_write_at(writer->output, t->offset + t->stride * (uint64_t)job->block, job->packed, t->stride, err))
        return -1;
    if (++writer->block < t->count)
        return 0;
    t->digest = xxh3_stream_digest(writer->digest);
    xxh3_stream_free(&writer->digest);
    writer->block = 0;
    writer->tensor++;
    return 0;
}

struct batch {
    const struct block_maker *maker;
    struct block_job jobs[TEAM_MAX];
    struct err errs[TEAM_MAX];
    size_t rooms[TEAM_MAX];
    int failed[TEAM_MAX], count;
};

/* The next blocks in canonical order: as many as there are members, as long as they are small. */
static int batch_take(struct batch *batch, const struct model_writer *writer, int members, struct err *err)
{
    int tensor = writer->tensor, block = writer->block;
    uint64_t bytes = 0;
    batch->count = 0;
    while (tensor < writer->layout.count && batch->count < members) {
        const struct tensor *t = &writer->layout.tensors[tensor];
        int i = batch->count;
        if (i && bytes + t->stride > BATCH_BYTES)
            break;
        void *packed = batch->jobs[i].packed;
        if (batch->rooms[i] < t->stride || batch->rooms[i] > t->stride + BATCH_BYTES / TEAM_MAX) {
            mem_free(&packed);
            batch->rooms[i] = 0;
            batch->jobs[i].packed = packed = mem_alloc_aligned(t->stride, 1, err);
            if (!packed)
                return -1;
            batch->rooms[i] = t->stride;
        } else {
            memset(packed, 0, t->stride);
        }
        batch->jobs[i] = (struct block_job){.tensor = t, .block = block, .packed = packed};
        batch->count++;
        bytes += t->stride;
        if (++block == t->count) {
            block = 0;
            tensor++;
        }
    }
    return 0;
}

static void batch_make(void *argument, int member, int members)
{
    struct batch *batch = argument;
    (void)members;
    if (member >= batch->count)
        return;
    batch->failed[member] = batch->maker->make(batch->maker->context, member, &batch->jobs[member], &batch->errs[member]);
}

static int batch_write(struct batch *batch, struct model_writer *writer, struct progress *bar, struct sha256_stream *source,
                       struct err *err)
{
    for (int i = 0; i < batch->count; i++) {
        const struct block_job *job = &batch->jobs[i];
        if (batch->failed[i])
            return err_set(err, batch->errs[i].code, "%s", batch->errs[i].text);
        if (write_block(writer, job, err) || sha256_stream_put(source, &job->digest, sizeof job->digest, err))
            return -1;
        if (bar)
            progress_step(bar, job->tensor->stride);
    }
    return 0;
}

int model_writer_fill(struct model_writer *writer, const struct block_maker *maker, struct team *team, struct progress *bar,
                      struct sha256 *source, struct err *err)
{
    struct sha256_stream *stream = NULL;
    struct batch *batch = mem_alloc(1, sizeof *batch, err);
    int rc = -1;
    if (!batch || sha256_stream_new(&stream, err))
        goto done;
    batch->maker = maker;
    while (writer->tensor < writer->layout.count) {
        if (batch_take(batch, writer, team_size(team), err))
            goto done;
        team_run(team, batch_make, batch);
        if (batch_write(batch, writer, bar, stream, err))
            goto done;
    }
    rc = sha256_stream_end(&stream, source, err);
done:
    sha256_stream_free(&stream);
    for (int i = 0; batch && i < TEAM_MAX; i++)
        mem_free(&batch->jobs[i].packed);
    mem_free(&batch);
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
        err_set(err, ERR_INPUT, "%s: %d of %d tensors were written", output_path(writer->output), writer->tensor,
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
