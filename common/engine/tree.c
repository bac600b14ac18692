/* Turns a batch of tokens and parents into pending nodes and the arguments of kernels (kv.h). */
#include "common/base/mem.h"
#include "common/engine/internal.h"

/* Checks a row's parent: one computed with another part of the layers does not have all keys and values that its child
 * needs. */
static int check_parent(const struct sequence *sequence, const struct batch *batch, int row, struct err *err)
{
    const int newest = (batch->resume ? 0 : sequence->kv.pending) + row - 1;
    const int parent = batch->parent ? (int)batch->parent[row] : newest;
    if (parent < -1 || parent > newest)
        return err_set(err, ERR_INPUT, "row %d: its parent, node %d, is not an earlier node", row, parent);
    if (!batch->resume && parent >= 0 && parent < sequence->kv.pending && sequence->part[parent] != batch->part)
        return err_set(err, ERR_INPUT, "row %d: its parent, node %d, was computed with other parts of the layers", row, parent);
    return 0;
}

static int check(const struct engine *engine, const struct sequence *sequence, const struct batch *batch, struct err *err)
{
    if (batch->rows < 1 || batch->rows > engine->setup.max_rows)
        return err_set(err, ERR_INPUT, "a forward has %d rows, but this engine processes 1 to %d", batch->rows,
                       engine->setup.max_rows);
    for (int row = 0; row < batch->rows; row++) {
        if (batch->token[row] < 0 || batch->token[row] >= engine->shape->vocab)
            return err_set(err, ERR_INPUT, "token %d is outside the vocabulary of %d tokens", (int)batch->token[row],
                           engine->shape->vocab);
        if (check_parent(sequence, batch, row, err))
            return -1;
    }
    if (batch->logit_rows < 0 || batch->logit_rows > batch->rows || batch->logit_rows > engine->setup.max_logit_rows)
        return err_set(err, ERR_INPUT, "logits of %d rows were requested; this forward has %d rows, and the engine returns "
                       "logits of at most %d", batch->logit_rows,
                       batch->rows, engine->setup.max_logit_rows);
    for (int i = 0; batch->logit_row && i < batch->logit_rows; i++)
        if (batch->logit_row[i] < 0 || batch->logit_row[i] >= batch->rows)
            return err_set(err, ERR_INPUT, "logits of row %d were requested, but this forward has %d rows",
                           (int)batch->logit_row[i], batch->rows);
    return 0;
}

static void upload(struct engine *engine, struct buffer to, const int32_t *values, int count)
{
    queue_upload(engine->device, to, values, (size_t)count * sizeof *values);
}

/* Finds the rows that resume from stopped nodes: engine->from. Returns true if there are any. */
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

/* Returns whether the KV cache has room, after the pending nodes, for the rows that do not resume. */
static bool fits_after(const struct pass *pass)
{
    const struct sequence *sequence = pass->sequence;
    int fresh = 0;
    for (int row = 0; row < pass->rows; row++)
        fresh += pass->engine->from[row] < 0;
    return fresh <= sequence->kv.capacity - sequence->kv.length - sequence->kv.pending;
}

/* Returns the pending node that is a row's parent; earlier rows have their nodes already. */
static int parent_node(const struct pass_text *text, const int32_t *nodes, int row)
{
    const struct batch *batch = text->batch;
    if (batch->parent && !batch->resume)
        return (int)batch->parent[row];
    int above = batch->parent ? (int)batch->parent[row] : row - 1;
    if (above >= 0)
        return (int)nodes[above];
    return batch->resume ? -1 : text->sequence->kv.pending - 1;
}

/* Appends nodes for the rows that do not resume; sets nodes[] for all rows. Returns the number of new nodes. */
static int append(const struct pass *pass, const struct pass_text *text, int32_t *nodes, struct err *err)
{
    struct engine *engine = pass->engine;
    struct sequence *sequence = text->sequence;
    const struct batch *batch = text->batch;
    int fresh = 0, node;
    for (int row = 0; row < text->rows; row++) {
        if (pass->resumes && engine->from[row] >= 0) {
            nodes[row] = sequence->stopped->node[engine->from[row]];
            continue;
        }
        nodes[row] = node = sequence->kv.pending + fresh++;
        if (node >= sequence->kv.capacity - sequence->kv.length)
            return err_set(err, ERR_INPUT, "the sequence is full: %d tokens and %d pending nodes of its %d slots are used, "
                           "and %d more rows were to be added",
                           sequence->kv.length, sequence->kv.pending, sequence->kv.capacity, batch->rows);
        kv_append(&sequence->kv, node, parent_node(text, nodes, row));
        sequence->part[node] = batch->part;
        if (sequence->kv.length + sequence->kv.depth[node] >= engine->max_positions)
            return err_set(err, ERR_INPUT, "position %d exceeds the context of %d tokens",
                           sequence->kv.length + sequence->kv.depth[node],
                           engine->max_positions);
    }
    return fresh;
}

/* Appends a text's rows. If rows resume, stopped nodes stay pending and only the other rows are appended; otherwise
 * batch.resume drops all pending nodes first. Resumed nodes then count as computed by the whole model (part NULL). */
static int append_text(struct pass *pass, int i, struct err *err)
{
    struct engine *engine = pass->engine;
    struct pass_text *text = &pass->text[i];
    struct sequence *sequence = text->sequence;
    int32_t *nodes = engine->node + text->first;
    if (text->batch->resume && !pass->resumes)
        sequence_rollback(sequence);
    const int fresh = append(pass, text, nodes, err);
    if (fresh < 0 || row_table_add(&engine->row, &sequence->kv, nodes, text->rows, err))
        return -1;
    if (sequence->recurrent.layers) {
        const struct recurrent_rows at = recurrent_table_part(&engine->recurrent, engine->shape, text->first, i);
        if (recurrent_fill(&sequence->recurrent, &engine->recurrent, &at, &sequence->kv, nodes, text->rows, pass->prompt, err))
            return -1;
        if (pass_skips_layers(pass))
            recurrent_forget_made(&sequence->recurrent);
    }
    for (int row = 0; pass->resumes && row < text->rows; row++)
        sequence->part[nodes[row]] = NULL;
    sequence->kv.pending += fresh;
    text->longest = sequence->kv.length + sequence->kv.pending;
    return 0;
}

int tree_append(struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct batch *batch = pass->batch;
    int32_t *value = engine->indices;
    for (int i = 0; i < pass->texts; i++)
        if (check(engine, pass->text[i].sequence, pass->text[i].batch, err))
            return -1;
    pass->resumes = pass->texts == 1 && batch->resume && find_stopped(pass) && fits_after(pass);
    row_table_begin(&engine->row);
    for (int i = 0; i < pass->texts; i++)
        if (append_text(pass, i, err))
            return -1;
    if (row_table_end(&engine->row, err))
        return -1;
    for (int i = 0; i < batch->logit_rows; i++)
        value[i] = batch->logit_row ? batch->logit_row[i] : i;
    upload(engine, engine->logit_row, value, batch->logit_rows);
    upload(engine, engine->token, batch->token, batch->rows);
    return 0;
}
