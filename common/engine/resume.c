/* Early exits, and forwards that resume from them.
 *
 * The residual stream of a stopped node stays on the device. A resuming pass runs each layer with the rows that have joined
 * so far: at first all rows without stopped nodes; where rows join, x is assembled again in the order of the batch. The bits
 * of a row do not depend on the other rows, so results do not depend on resuming. */
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"

int resume_layer(const struct pass *pass, int row)
{
    const int32_t from = pass->resumes ? pass->engine->from[row] : -1;
    return from < 0 ? 0 : pass->sequence->stopped->layers[from];
}

/* Returns whether rows that resume after `layers` layers provide all results that the batch requests. */
static bool serves(const struct pass *pass, int layers)
{
    const struct batch *batch = pass->batch;
    if (batch->part || batch->plan || batch->forced || batch->want_reconstruction || batch->want_scores || batch->want_hidden ||
        batch->want_ahead)
        return false;
    for (int i = 0; batch->features && i < batch->features->count; i++)
        if (batch->features->layer[i] < layers - 1)             /* the output of the last of these layers is stored */
            return false;
    return true;
}

int resume_find(const struct pass *pass, int parent, int32_t token)
{
    const struct stopped *stopped = pass->sequence->stopped;
    int best = -1;
    for (int i = 0; stopped && i < stopped->count; i++)
        if (stopped->token[i] == token && pass->sequence->kv.parent[stopped->node[i]] == parent &&
            serves(pass, stopped->layers[i]) && (best < 0 || stopped->layers[i] > stopped->layers[best]))
            best = i;
    return best;
}

/* Lists the nodes of rows that run layer n, and with `index` the row from which each one's x comes; returns their number. */
static int gather_rows(const struct pass *pass, int n, int32_t *node, int32_t *index)
{
    const struct engine *engine = pass->engine;
    int count = 0, here = 0;
    for (int row = 0; row < pass->rows; row++) {
        int first = resume_layer(pass, row);
        if (first > n)
            continue;
        if (index)
            index[count] = first == n && n ? engine->setup.max_rows + engine->from[row] : here++;
        node[count++] = engine->node[row];
    }
    return count;
}

int resume_begin(const struct pass *pass, struct layer_rows *rows, struct err *err)
{
    struct engine *engine = pass->engine;
    int32_t *list = mem_alloc((size_t)pass->rows, sizeof *list, err);
    int rc = -1;
    if (!list)
        return -1;
    rows->rows = gather_rows(pass, 0, list, NULL);
    if (!rows->rows) {
        rc = 0;
        goto done;
    }
    if (row_table_fill(&engine->row, &pass->sequence->kv, list, rows->rows, err))
        goto done;
    for (int row = 0, count = 0; row < pass->rows; row++)
        if (resume_layer(pass, row) == 0)
            list[count++] = pass->batch->token[row];
    queue_upload(engine->device, engine->token, list, (size_t)rows->rows * sizeof *list);
    rc = 0;
done:
    mem_free(&list);
    return rc;
}

/* Gathers in two steps, because gather is not in place: the present rows of x go to the scratch rows at the beginning of
 * `residual`, then present and joining rows come back in batch order. */
int resume_join(const struct pass *pass, int n, struct layer_rows *rows, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct stopped *stopped = pass->sequence->stopped;
    const int hidden = engine->shape->hidden;
    bool any = false;
    for (int row = 0; row < pass->rows; row++)
        any |= n && resume_layer(pass, row) == n;
    if (!any)
        return 0;
    int32_t *list = mem_alloc(2 * (size_t)pass->rows, sizeof *list, err);
    if (!list)
        return -1;
    if (rows->rows)
        engine->ops->gather(engine->queue, &(struct gather_args){
            .in = engine->space.x, .index = engine->every_row, .out = stopped->residual, .rows = rows->rows,
            .count = rows->rows, .width = hidden});
    rows->rows = gather_rows(pass, n, list, list + pass->rows);
    int rc = row_table_fill(&engine->row, &pass->sequence->kv, list, rows->rows, err);
    queue_upload(engine->device, engine->merge, list + pass->rows, (size_t)rows->rows * sizeof *list);
    engine->ops->gather(engine->queue, &(struct gather_args){
        .in = stopped->residual, .index = engine->merge, .out = engine->space.x, .rows = engine->setup.max_rows + STOPPED_MAX,
        .count = rows->rows, .width = hidden});
    mem_free(&list);
    return rc;
}

static int make_stopped(struct sequence *sequence, struct err *err)
{
    struct engine *engine = sequence->engine;
    const size_t routed = (size_t)engine->moe_layers * (size_t)engine->shape->router.top_k;
    if (sequence->stopped)
        return 0;
    struct stopped *stopped = sequence->stopped = mem_alloc(1, sizeof *stopped, err);
    if (stopped && (stopped->wanted = mem_alloc(STOPPED_MAX * routed, sizeof *stopped->wanted, err)) &&
        (stopped->expert = mem_alloc(STOPPED_MAX * routed, sizeof *stopped->expert, err)) &&
        (stopped->weight = mem_alloc(STOPPED_MAX * routed, sizeof *stopped->weight, err)) &&
        !workspace_alloc(engine->device, &stopped->residual, engine->setup.max_rows + STOPPED_MAX, engine->shape->hidden,
                         sizeof(float), err))
        return 0;
    stopped_free(sequence);
    return -1;
}

/* Stores the nodes of a pass that exits early. Nodes without room are not stored: no row can resume from them. */
int resume_keep(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    struct sequence *sequence = pass->sequence;
    const uint64_t row_bytes = (uint64_t)engine->shape->hidden * sizeof(float);
    if (make_stopped(sequence, err))
        return -1;
    struct stopped *stopped = sequence->stopped;
    int room = STOPPED_MAX - stopped->count, rows = pass->rows < room ? pass->rows : room;
    if (!rows)
        return 0;
    engine->ops->gather(engine->queue, &(struct gather_args){
        .in = engine->space.x, .index = engine->every_row,
        .out = buffer_part(stopped->residual, (uint64_t)(engine->setup.max_rows + stopped->count) * row_bytes,
                           (uint64_t)rows * row_bytes),
        .rows = pass->rows, .count = rows, .width = engine->shape->hidden});
    for (int row = 0; row < rows; row++) {
        stopped->node[stopped->count] = engine->node[row];
        stopped->token[stopped->count] = pass->batch->token[row];
        stopped->layers[stopped->count++] = pass_layers(pass);
    }
    return 0;
}

void stopped_free(struct sequence *sequence)
{
    struct stopped *stopped = sequence->stopped;
    if (!stopped)
        return;
    device_free(sequence->engine->device, &stopped->residual);
    mem_free(&stopped->wanted);
    mem_free(&stopped->expert);
    mem_free(&stopped->weight);
    mem_free(&sequence->stopped);
}
