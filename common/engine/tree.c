/* From a batch of tokens and parents to what the kernels need: positions, slots, and for each row the slots it sees.
 *
 * Node i of the pending ones has slot length + i and position length + depth. As long as index and depth agree along a path,
 * slot and logical position agree too, and that part of the path is simply a longer prefix: a chain needs no path at all. */
#include "common/base/mem.h"
#include "common/engine/internal.h"

/* Adds a node; `run` counts the nodes from the path's beginning whose index equals their depth. */
static void node_append(struct sequence *sequence, int node, int parent)
{
    int depth = parent < 0 ? 0 : sequence->depth[parent] + 1;
    int run = parent < 0 ? 0 : sequence->run[parent];
    sequence->parent[node] = parent;
    sequence->depth[node] = depth;
    sequence->run[node] = run == depth && node == depth ? depth + 1 : run;
}

static int check(const struct engine *engine, const struct sequence *sequence, const struct batch *batch, struct err *err)
{
    if (batch->rows < 1 || batch->rows > engine->setup.max_rows)
        return err_set(err, ERR_INPUT, "a forward of %d rows: this engine takes 1 to %d", batch->rows, engine->setup.max_rows);
    if (batch->rows > sequence->capacity - sequence->length - sequence->pending)
        return err_set(err, ERR_INPUT, "the sequence is full: %d tokens and %d nodes of %d, and %d more", sequence->length,
                       sequence->pending, sequence->capacity, batch->rows);
    for (int row = 0; row < batch->rows; row++) {
        int newest = sequence->pending + row - 1;
        if (batch->token[row] < 0 || batch->token[row] >= engine->shape->vocab)
            return err_set(err, ERR_INPUT, "token %d is not in the vocabulary of %d", (int)batch->token[row],
                           engine->shape->vocab);
        if (batch->parent && (batch->parent[row] < -1 || batch->parent[row] > newest))
            return err_set(err, ERR_INPUT, "row %d: parent %d is not an earlier node", row, (int)batch->parent[row]);
    }
    if (batch->logit_rows < 0 || batch->logit_rows > batch->rows || batch->logit_rows > engine->setup.max_logit_rows)
        return err_set(err, ERR_INPUT, "logits of %d rows: this forward has %d rows, this engine answers %d", batch->logit_rows,
                       batch->rows, engine->setup.max_logit_rows);
    for (int i = 0; batch->logit_row && i < batch->logit_rows; i++)
        if (batch->logit_row[i] < 0 || batch->logit_row[i] >= batch->rows)
            return err_set(err, ERR_INPUT, "logits of row %d: this forward has %d rows", (int)batch->logit_row[i], batch->rows);
    return 0;
}

static void upload(struct engine *engine, struct buffer to, const int32_t *values, int count)
{
    queue_upload(engine->device, to, values, (size_t)count * sizeof *values);
}

/* Paths of all rows behind one another; indices[row] is where row's begins. */
static int upload_paths(struct engine *engine, const struct sequence *sequence, int first, int rows, struct err *err)
{
    size_t used = 0;
    int32_t *start = engine->indices;
    for (int row = 0; row < rows; row++) {
        int node = first + row, steps = sequence->depth[node] + 1 - sequence->run[node];
        start[row] = (int32_t)used;
        if (mem_grow(&engine->path_list, &engine->path_room, used + (size_t)steps + 1, sizeof *engine->path_list, err))
            return -1;
        for (int i = steps - 1, at = node; i >= 0; i--, at = sequence->parent[at])
            engine->path_list[used + (size_t)i] = sequence->length + at;
        used += (size_t)steps;
    }
    start[rows] = (int32_t)used;
    size_t bytes = (used ? used : 1) * sizeof *engine->path_list;
    if (engine->path.bytes < bytes) {
        struct buffer larger;
        if (device_alloc(engine->device, 2 * bytes, &larger, err))
            return -1;
        device_free(engine->device, &engine->path);
        engine->path = larger;
    }
    upload(engine, engine->path_start, start, rows + 1);
    upload(engine, engine->path, engine->path_list, (int)used);
    return 0;
}

int tree_append(struct engine *engine, struct sequence *sequence, const struct batch *batch, struct err *err)
{
    int first = sequence->pending, rows = batch->rows;
    int32_t *value = engine->indices;
    if (check(engine, sequence, batch, err))
        return -1;
    for (int row = 0; row < rows; row++) {
        int node = first + row;
        node_append(sequence, node, batch->parent ? (int)batch->parent[row] : node - 1);
        if (sequence->length + sequence->depth[node] >= engine->max_positions)
            return err_set(err, ERR_INPUT, "position %d: the model ends at %d", sequence->length + sequence->depth[node],
                           engine->max_positions);
    }
    if (upload_paths(engine, sequence, first, rows, err))
        return -1;
    for (int row = 0; row < rows; row++)
        value[row] = sequence->length + sequence->depth[first + row];
    upload(engine, engine->position, value, rows);
    for (int row = 0; row < rows; row++)
        value[row] = sequence->length + first + row;
    upload(engine, engine->slot, value, rows);
    for (int row = 0; row < rows; row++)
        value[row] = sequence->length + sequence->run[first + row];
    upload(engine, engine->prefix, value, rows);
    for (int i = 0; i < batch->logit_rows; i++)
        value[i] = batch->logit_row ? batch->logit_row[i] : i;
    upload(engine, engine->logit_row, value, batch->logit_rows);
    upload(engine, engine->token, batch->token, rows);
    sequence->pending += rows;
    return 0;
}
