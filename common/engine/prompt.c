/* Cuts prompts into pieces, and runs the pieces one by one or in spans. */
#include "common/base/mem.h"
#include "common/engine/internal.h"

/* Runs one piece of a prompt: a chain after the committed tokens, committed at once. */
static int run_piece(struct engine *engine, struct sequence *sequence, const struct batch *batch, bool slab,
                     struct forward *out, struct err *err)
{
    int32_t *node = mem_alloc((size_t)batch->rows, sizeof *node, err);
    int rc = -1;
    if (!node)
        return -1;
    for (int i = 0; i < batch->rows; i++)
        node[i] = i;
    if (!forward_run(engine, sequence, batch, slab ? PROMPT_SLAB : PROMPT, out, err))
        rc = sequence_commit(sequence, node, batch->rows, err);
    mem_free(&node);
    return rc;
}

/* Returns the maximum rows of a piece. With logits of every row this is a multiple of 64 if the engine accepts 64 such rows,
 * so that pieces begin at multiples of 64 tokens, whatever drafts and concurrent texts the engine was opened for. */
static int max_piece_rows(const struct engine *engine, bool every)
{
    enum { MULTIPLE = 64 };
    const int max = engine->setup.max_logit_rows;
    return !every ? engine->piece_rows : max < MULTIPLE ? max : max - max % MULTIPLE;
}

/* Returns the rows of the piece at `position`, in a part of a prompt that ends before `end`. *slab: it is a slab. */
static int piece_rows(const struct engine *engine, bool every, int position, int end, bool *slab)
{
    int size = max_piece_rows(engine, every), rows = size - position % size;
    int whole = every ? 0 : engine->slab_rows, next = whole ? position - position % whole + whole : 0;
    *slab = whole && position % whole == 0 && next <= end;
    if (*slab)
        return whole;
    if (whole && next < position + rows && next + whole <= end)
        rows = next - position;
    return rows < end - position ? rows : end - position;
}

/* Returns whether pieces run in spans. With scores or hidden states they do not, because these would have to be kept for all
 * layers and rows. */
static bool spans(const struct engine *engine, const struct batch *batch)
{
    const struct expert_source *experts = engine->setup.experts;
    return engine->moe_layers && experts && !experts->class->fixed && !batch->plan && !batch->forced && !batch->want_scores &&
           !batch->want_hidden && !batch->want_reconstruction;
}

/* Selects the next pieces of a prompt that ends before `end`. */
static void cut(struct span *span, const struct engine *engine, bool every, int position, int end, bool together)
{
    *span = (struct span){.every = every};
    do {
        span->piece_rows[span->pieces] = piece_rows(engine, every, position, end, &span->slab[span->pieces]);
        span->rows += span->piece_rows[span->pieces];
        position += span->piece_rows[span->pieces++];
    } while (together && position < end && span->pieces < SPAN_PIECES && span->rows < SPAN_ROWS);
    span->last = position == end;
}

static int run_one(struct engine *engine, struct sequence *sequence, struct batch *batch, const struct span *span,
                   engine_piece_function *each, void *context, struct forward *out, struct err *err)
{
    const int position = sequence->kv.length;
    const int32_t last = span->rows - 1;
    batch->rows = span->rows;
    batch->logit_row = span->every ? NULL : &last;
    batch->logit_rows = span->every ? span->rows : span->last;
    return run_piece(engine, sequence, batch, span->slab[0], out, err) || (each && each(context, out, position, err)) ? -1 : 0;
}

int engine_prompt(struct engine *engine, struct sequence *sequence, const int32_t *token, int count,
                  const struct batch *options, engine_piece_function *each, void *context, struct forward *out, struct err *err)
{
    struct batch batch = options ? *options : (struct batch){0};
    const bool every = batch.logit_rows == ENGINE_EVERY_ROW, together = spans(engine, &batch);
    struct span span;
    if (sequence->kv.pending)
        return err_set(err, ERR_INPUT, "a prompt cannot be appended while the sequence has %d pending nodes",
                       sequence->kv.pending);
    if (count < 1)
        return err_set(err, ERR_INPUT, "the prompt has no tokens; give at least one");
    batch.part = NULL;
    batch.resume = false;
    batch.parent = NULL;
    for (int done = 0; done < count; done += span.rows) {
        const int position = sequence->kv.length;
        cut(&span, engine, every, position, position + count - done, together);
        batch.token = token + done;
        if (span.pieces == 1 ? run_one(engine, sequence, &batch, &span, each, context, out, err)
                             : span_run(engine, sequence, &batch, &span, each, context, out, err))
            return -1;
    }
    return 0;
}

int engine_prompt_keeps(const struct engine *engine, int same, int before, int next)
{
    const int whole = engine->slab_rows;
    if (!whole)
        return same;
    const int old = before - before % whole, now = next - next % whole, both = old < now ? old : now;
    if (old == now && same >= old)
        return same;
    return (same < both ? same : both) / whole * whole;
}
