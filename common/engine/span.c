/* Spans: several pieces of a prompt run layer by layer if experts are cached. All pieces run one layer before the next, so each
 * expert is read once per span, if the cache has slots for all requested experts of one layer. With fewer slots, the missing
 * experts are read again for each piece.
 *
 * Each piece has its own buffers for residual stream, routing and features, which replace the engine's while the piece runs.
 * Its rows attend to the same keys and values as in a forward of the piece alone: those of the committed tokens and of earlier
 * pieces, which have already run the layer. The bits are the same. */
#include "common/base/mem.h"
#include "common/engine/internal.h"
#include "common/engine/second.h"

/* Buffers of a piece; exchanged with the engine's while the piece runs. */
struct piece {
    struct buffer x, shortcut, chosen, chosen_start, chosen_prefix, wanted, expert, weight, features;
};

struct work {
    struct engine *engine;
    struct sequence *sequence;
    const struct batch *batch;
    const struct span *span;
    struct piece *piece;
    int start;                          /* tokens of the sequence before the span */
    int max_rows;                       /* of a piece */
    int32_t *every;                     /* [max_rows] 0, 1, ... */
};

/* State of the piece that runs. */
struct piece_run {
    struct batch batch;
    struct pass_text text;
    struct pass pass;
    struct layer_rows rows;
    int32_t last;
};

static void swap(struct buffer *a, struct buffer *b)
{
    const struct buffer old = *a;
    *a = *b;
    *b = old;
}

/* Exchanges the buffers of a piece and those of the engine. */
static void exchange(struct engine *engine, struct piece *piece)
{
    swap(&engine->space.x, &piece->x);
    swap(&engine->space.shortcut, &piece->shortcut);
    swap(&engine->space.chosen, &piece->chosen);
    swap(&engine->space.chosen_start, &piece->chosen_start);
    swap(&engine->space.chosen_prefix, &piece->chosen_prefix);
    swap(&engine->wanted, &piece->wanted);
    swap(&engine->expert, &piece->expert);
    swap(&engine->weight, &piece->weight);
    swap(&engine->features, &piece->features);
}

static int piece_open(const struct work *work, int i, struct err *err)
{
    const struct engine *engine = work->engine;
    struct piece *piece = &work->piece[i];
    const int64_t routed = (int64_t)engine->moe_layers * work->span->piece_rows[i], top_k = engine->shape->router.top_k;
    if (engine->shape->shortcut && workspace_alloc(engine->device, &piece->shortcut, engine->setup.max_rows,
                                                   engine->shape->hidden, sizeof(float), err))
        return -1;
    const struct index_shape *index = &engine->shape->index;
    if (index->heads &&
        (workspace_alloc(engine->device, &piece->chosen, engine->setup.max_rows, index->top_k, sizeof(int32_t), err) ||
         workspace_alloc(engine->device, &piece->chosen_start, engine->setup.max_rows, 2, sizeof(int32_t), err) ||
         workspace_alloc(engine->device, &piece->chosen_prefix, engine->setup.max_rows, 1, sizeof(int32_t), err)))
        return -1;
    return workspace_alloc(engine->device, &piece->x, engine->setup.max_rows, engine->shape->hidden, sizeof(float), err) ||
           workspace_alloc(engine->device, &piece->wanted, routed, top_k, sizeof(int32_t), err) ||
           workspace_alloc(engine->device, &piece->expert, routed, top_k, sizeof(int32_t), err) ||
           workspace_alloc(engine->device, &piece->weight, routed, top_k, sizeof(float), err) ? -1 : 0;
}

static void work_close(struct work *work)
{
    for (int i = 0; work->piece && i < work->span->pieces; i++) {
        struct piece *piece = &work->piece[i];
        struct buffer *all[] = {&piece->x, &piece->shortcut, &piece->chosen, &piece->chosen_start, &piece->chosen_prefix,
                                &piece->wanted, &piece->expert, &piece->weight, &piece->features};
        for (size_t at = 0; at < sizeof all / sizeof *all; at++)
            device_free(work->engine->device, all[at]);
    }
    mem_free(&work->piece);
    mem_free(&work->every);
}

static int work_open(struct work *work, struct err *err)
{
    const struct span *span = work->span;
    for (int i = 0; i < span->pieces; i++)
        work->max_rows = span->piece_rows[i] > work->max_rows ? span->piece_rows[i] : work->max_rows;
    if (!(work->piece = mem_alloc((size_t)span->pieces, sizeof *work->piece, err)) ||
        !(work->every = mem_alloc((size_t)work->max_rows, sizeof *work->every, err)))
        return -1;
    for (int i = 0; i < work->max_rows; i++)
        work->every[i] = i;
    for (int i = 0; i < span->pieces; i++)
        if (piece_open(work, i, err))
            return -1;
    return 0;
}

/* Appends the rows of a piece as pending nodes after the span's earlier pieces, and uploads their tokens and positions. */
static int piece_run_begin(const struct work *work, int i, struct piece_run *run, struct err *err)
{
    const struct span *span = work->span;
    int before = 0;
    for (int at = 0; at < i; at++)
        before += span->piece_rows[at];
    work->sequence->kv.length = work->start + before;
    work->sequence->kv.pending = 0;
    run->batch = *work->batch;
    run->batch.rows = span->piece_rows[i];
    run->batch.token += before;
    run->last = run->batch.rows - 1;
    run->batch.logit_row = span->every ? NULL : &run->last;
    run->batch.logit_rows = span->every ? run->batch.rows : span->last && i + 1 == span->pieces;
    run->text = (struct pass_text){.sequence = work->sequence, .batch = &run->batch, .rows = run->batch.rows};
    run->pass = (struct pass){.engine = work->engine, .sequence = work->sequence, .batch = &run->batch, .text = &run->text,
                              .texts = 1, .rows = run->batch.rows, .slab = span->slab[i], .prompt = true};
    if (tree_append(&run->pass, err))
        return -1;
    run->rows = work->engine->row.at;
    run->rows.rows = run->pass.rows;
    run->rows.slab = run->pass.slab;
    return 0;
}

/* Runs one piece through one layer. */
static int run_layer(const struct work *work, int i, int n, int moe, struct err *err)
{
    struct piece_run run;
    if (piece_run_begin(work, i, &run, err) || (!n && forward_begin(&run.pass, err)))
        return -1;
    if (!n)
        forward_embed(&run.pass, run.pass.rows);
    return forward_layer(&run.pass, &run.rows, n, moe, err);
}

static int run_layers(const struct work *work, struct err *err)
{
    struct engine *engine = work->engine;
    const struct hparams *shape = engine->shape;
    for (int n = 0, moe = 0; n < shape->layers; moe += shape->layer[n++].ffn == FFN_EXPERTS) {
        if (shape->layer[n].ffn == FFN_EXPERTS)
            expert_source_keep(engine->setup.experts, n);
        recurrent_rewind(&work->sequence->recurrent);
        for (int i = 0; i < work->span->pieces; i++) {
            exchange(engine, &work->piece[i]);
            const int rc = run_layer(work, i, n, moe, err);
            exchange(engine, &work->piece[i]);
            if (rc)
                return -1;
            recurrent_commit(&work->sequence->recurrent, work->every, work->span->piece_rows[i]);
        }
    }
    return 0;
}

/* Computes logits and facts of a piece that has run all layers, and commits it. Returns 1 if `each` refuses the piece. */
static int end_piece(const struct work *work, int i, engine_piece_function *each, void *context, struct forward *out,
                     struct err *err)
{
    struct piece_run run;
    if (piece_run_begin(work, i, &run, err))
        return -1;
    const int position = work->sequence->kv.length;
    if (forward_end(&run.pass, err) || facts_collect(&run.pass, out, err) ||
        sequence_commit(work->sequence, work->every, run.pass.rows, err))
        return -1;
    return each && each(context, out, position, err);
}

static int end_pieces(const struct work *work, engine_piece_function *each, void *context, struct forward *out,
                      struct err *err)
{
    struct engine *engine = work->engine;
    recurrent_rewind(&work->sequence->recurrent);
    for (int i = 0, rc; i < work->span->pieces; i++) {
        struct piece *piece = &work->piece[i];
        exchange(engine, piece);
        rc = end_piece(work, i, each, context, out, err);
        exchange(engine, piece);
        if (rc)
            return rc;
        if (i + 1 == work->span->pieces)
            swap(&engine->features, &piece->features);          /* *out refers to them until the next forward */
    }
    return 0;
}

int span_run(struct engine *engine, struct sequence *sequence, const struct batch *batch, const struct span *span,
             engine_piece_function *each, void *context, struct forward *out, struct err *err)
{
    struct work work = {.engine = engine, .sequence = sequence, .batch = batch, .span = span, .start = sequence->kv.length};
    const struct pass whole = {.engine = engine, .sequence = sequence, .batch = batch};
    struct err ignored = {0};
    int rc = work_open(&work, err);
    recurrent_hold(&sequence->recurrent);
    if (!rc) {
        forward_begin_experts(&whole, PROMPT, span->rows);
        rc = run_layers(&work, err);
        expert_source_keep(engine->setup.experts, -1);
    }
    const bool ran = !rc;
    if (ran)
        rc = end_pieces(&work, each, context, out, err);
    if (rc) {
        queue_wait(engine->device, &ignored);           /* before the buffers of queued operations are freed */
        if (engine->setup.second)
            second_abandon(engine->setup.second);
        if (rc < 0) {
            sequence->kv.length = work.start;
            recurrent_rewind(&sequence->recurrent);
            sequence_rollback(sequence);
        }
    }
    recurrent_release(&sequence->recurrent);
    work_close(&work);
    return rc ? -1 : 0;
}
