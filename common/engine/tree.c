/* From a batch of tokens and parents to what the kernels need: positions, slots, and for each row the slots it sees.
 *
 * Node i of the pending ones has slot length + i and position length + depth. As long as index and depth agree along a path,
 * slot and logical position agree too, and that part of the path is simply a longer prefix: a chain needs no path at all. */
#include "common/base/mem.h"
#include "common/engine/internal.h"

/* Adds a node; `run` counts the nodes from the path's beginning whose index equals their depth. */
static void node_append(struct sequence *sequence, int node, int parent, const struct forward_part *part)
{
    int depth = parent < 0 ? 0 : sequence->depth[parent] + 1;
    int run = parent < 0 ? 0 : sequence->run[parent];
    sequence->parent[node] = parent;
    sequence->part[node] = part;
    sequence->depth[node] = depth;
    sequence->run[node] = run == depth && node == depth ? depth + 1 : run;
}

/* A parent that went through another part of the layers has not all keys and values that its child would look at. */
static int check_parent(const struct sequence *sequence, const struct batch *batch, int row, struct err *err)
{
    const int newest = (batch->resume ? 0 : sequence->pending) + row - 1;
    const int parent = batch->parent ? (int)batch->parent[row] : newest;
    if (parent < -1 || parent > newest)
        return err_set(err, ERR_INPUT, "row %d: parent %d is not an earlier node", row, parent);
    if (!batch->resume && parent >= 0 && parent < sequence->pending && sequence->part[parent] != batch->part)
        return err_set(err, ERR_INPUT, "row %d: its parent, node %d, has gone through other parts of the layers", row, parent);
    return 0;
}

static int check(const struct engine *engine, const struct sequence *sequence, const struct batch *batch, struct err *err)
{
    if (batch->rows < 1 || batch->rows > engine->setup.max_rows)
        return err_set(err, ERR_INPUT, "a forward of %d rows: this engine takes 1 to %d", batch->rows, engine->setup.max_rows);
    for (int row = 0; row < batch->rows; row++) {
        if (batch->token[row] < 0 || batch->token[row] >= engine->shape->vocab)
            return err_set(err, ERR_INPUT, "token %d is not in the vocabulary of %d", (int)batch->token[row],
                           engine->shape->vocab);
        if (check_parent(sequence, batch, row, err))
            return -1;
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
static int upload_paths(struct engine *engine, const struct sequence *sequence, const int32_t *nodes, int rows, struct err *err)
{
    size_t used = 0;
    int32_t *start = engine->indices;
    for (int row = 0; row < rows; row++) {
        int node = nodes[row], steps = sequence->depth[node] + 1 - sequence->run[node];
        start[row] = (int32_t)used;
        if (mem_grow(&engine->path_list, &engine->path_room, used + (size_t)steps + 1, sizeof *engine->path_list, err))
            return -1;
        for (int i = steps - 1, at = node; i >= 0; i--, at = sequence->parent[at])
            engine->path_list[used + (size_t)i] = sequence->length + at;
        used += (size_t)steps;
    }
    start[rows] = (int32_t)used;
    size_t bytes = (used ? used : 1) * sizeof *engine->path_list;
    if (engine->row.path.bytes < bytes) {
        struct buffer larger;
        if (device_alloc(engine->device, 2 * bytes, &larger, err))
            return -1;
        device_free(engine->device, &engine->row.path);
        engine->row.path = larger;
    }
    upload(engine, engine->row.path_start, start, rows + 1);
    upload(engine, engine->row.path, engine->path_list, (int)used);
    return 0;
}

int tree_upload(struct engine *engine, const struct sequence *sequence, const int32_t *node, int rows, struct err *err)
{
    int32_t *value = engine->indices;
    if (upload_paths(engine, sequence, node, rows, err))
        return -1;
    for (int row = 0; row < rows; row++)
        value[row] = sequence->length + sequence->depth[node[row]];
    upload(engine, engine->row.position, value, rows);
    for (int row = 0; row < rows; row++)
        value[row] = sequence->length + node[row];
    upload(engine, engine->row.slot, value, rows);
    for (int row = 0; row < rows; row++)
        value[row] = sequence->length + sequence->run[node[row]];
    upload(engine, engine->row.prefix, value, rows);
    return 0;
}

/* Which rows go on from stopped nodes: engine->from. True when any do. */
static bool find_stopped(struct pass *pass)
{
    struct engine *engine = pass->engine;
    const struct batch *batch = pass->batch;
    int found = 0;
    for (int row = 0; row < pass->rows; row++) {
        int above = batch->parent ? (int)batch->parent[row] : row - 1, parent = -1;
        if (above >= 0)
            parent = engine->from[above] < 0 ? -2 : pass->sequence->stopped->node[engine->from[above]];
        engine->from[row] = parent == -2 ? -1 : resume_find(pass, parent, batch->token[row]);
        found += engine->from[row] >= 0;
    }
    return found > 0;
}

/* Whether the rows that go on from no stopped node fit behind the pending ones. */
static bool fits_behind(const struct pass *pass)
{
    const struct sequence *sequence = pass->sequence;
    int fresh = 0;
    for (int row = 0; row < pass->rows; row++)
        fresh += pass->engine->from[row] < 0;
    return fresh <= sequence->capacity - sequence->length - sequence->pending;
}

/* The pending node that is a row's parent; those before the row have theirs. */
static int parent_node(const struct pass *pass, int row)
{
    const struct batch *batch = pass->batch;
    if (batch->parent && !batch->resume)
        return (int)batch->parent[row];
    int above = batch->parent ? (int)batch->parent[row] : row - 1;
    if (above >= 0)
        return (int)pass->engine->node[above];
    return batch->resume ? -1 : pass->sequence->pending - 1;
}

/* Adds the rows that are no nodes yet; engine->node tells all. Returns how many they are. */
static int append(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    struct sequence *sequence = pass->sequence;
    const struct batch *batch = pass->batch;
    int fresh = 0, node;
    for (int row = 0; row < pass->rows; row++) {
        if (pass->resumes && engine->from[row] >= 0) {
            engine->node[row] = sequence->stopped->node[engine->from[row]];
            continue;
        }
        engine->node[row] = node = sequence->pending + fresh++;
        if (node >= sequence->capacity - sequence->length)
            return err_set(err, ERR_INPUT, "the sequence is full: %d tokens and %d nodes of %d, and %d more rows",
                           sequence->length, sequence->pending, sequence->capacity, batch->rows);
        node_append(sequence, node, parent_node(pass, row), batch->part);
        if (sequence->length + sequence->depth[node] >= engine->max_positions)
            return err_set(err, ERR_INPUT, "position %d: the model ends at %d", sequence->length + sequence->depth[node],
                           engine->max_positions);
    }
    return fresh;
}

int tree_append(struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    struct sequence *sequence = pass->sequence;
    const struct batch *batch = pass->batch;
    int32_t *value = engine->indices;
    int fresh;
    if (check(engine, sequence, batch, err))
        return -1;
    pass->resumes = batch->resume && find_stopped(pass) && fits_behind(pass);
    if (batch->resume && !pass->resumes)
        sequence_rollback(sequence);
    fresh = append(pass, err);
    if (fresh < 0 || tree_upload(engine, sequence, engine->node, pass->rows, err))
        return -1;
    for (int row = 0; pass->resumes && row < pass->rows; row++)
        sequence->part[engine->node[row]] = NULL;
    for (int i = 0; i < batch->logit_rows; i++)
        value[i] = batch->logit_row ? batch->logit_row[i] : i;
    upload(engine, engine->logit_row, value, batch->logit_rows);
    upload(engine, engine->token, batch->token, batch->rows);
    sequence->pending += fresh;
    return 0;
}
