/* Drafts with a smaller model, which decodes ahead on the target's device with a KV cache of its own.
 *
 * Its cache contains the text up to the last draft. The tokens since then are read in one forward at the next draft; the
 * last row of that forward is the root. Rows of drafts follow after the text (rows.h); accepted ones stay in the cache.
 *
 * The draft model must have the target's tokenizer. The padding of its vocabulary may differ: tokens that the target does
 * not have are not proposed. The drafter drafts nothing after a token that the draft model does not have, or at the end of
 * the draft model's context. */
#include "common/draft/drafter.h"

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/draft/rows.h"
#include "common/engine/companion.h"

struct model_drafter {
    struct drafter base;
    struct companion *companion;
    struct engine_source source;        /* on the draft model's engine; its sequence is NULL before the first text */
    struct draft_rows rows;
    int32_t *token;                     /* the text, [rows.length] */
    size_t token_room;
    bool lost;                          /* the text contains a token that the draft model does not have */
};

static void model_free_drafter(struct drafter *drafter)
{
    struct model_drafter *mine = (struct model_drafter *)drafter;
    draft_rows_free(&mine->rows);
    sequence_close(&mine->source.sequence);
    companion_close(&mine->companion);
    mem_free(&mine->token);
    mem_free(&mine);
}

/* Checks that a budget fits the draft model's own experts. */
static int check_plan(const struct expert_plan *plan, const struct engine *engine, const char *file, struct err *err)
{
    const struct hparams *shape = engine_hparams(engine);
    int layers = hparams_moe_layers(shape);
    if (plan && (plan->moe_layers != layers || plan->experts != shape->router.experts))
        return err_set(err, ERR_INPUT, "%s: the budget is for %d layers with %d experts, but this draft model has %d layers "
                       "with %d; leave --budget-phase draft out", file, plan->moe_layers, plan->experts, layers,
                       shape->router.experts);
    return 0;
}

static int model_open_drafter(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err)
{
    const char *file;
    if (spec_text(spec, "file", NULL, &file, err))
        return -1;
    if (!file)
        return spec_end(spec, err) ? -1 : err_set(err, ERR_INPUT, "model: no file is given; write model:file=FILE");
    struct model_drafter *mine = mem_alloc(1, sizeof *mine, err);
    if (!mine)
        return -1;
    if (companion_open(&mine->companion, file, setup->target, engine_config(setup->target)->cache, ENGINE_ROWS_MAX,
                       DRAFT_ASKED_MAX, err))
        goto failed;
    struct engine *engine = companion_engine(mine->companion);
    engine_source_init(&mine->source, engine);
    mine->source.plan = setup->plan;
    if (check_plan(setup->plan, engine, file, err) ||
        draft_rows_init(&mine->rows, &mine->base, setup, &mine->source.base, err))
        goto failed;
    *out = &mine->base;
    return 0;
failed:
    model_free_drafter(&mine->base);
    return -1;
}

static int model_begin(struct drafter *drafter, const struct draft_text *text, struct err *err)
{
    struct model_drafter *mine = (struct model_drafter *)drafter;
    struct draft_rows *rows = &mine->rows;
    struct engine_source *source = &mine->source;
    int max = source->base.positions, tokens = text->tokens < max ? text->tokens : max, old = 0;
    rows->draw = text->draw;
    rows->length = 0;
    draft_rows_forget(rows);
    mine->lost = false;
    if (source->sequence) {
        old = sequence_capacity(source->sequence) - ENGINE_ROWS_MAX;
        if (old >= tokens)
            return sequence_truncate(source->sequence, 0, err);
    }
    int room = old < max / 2 ? 2 * old : max;             /* doubled, so that growing prompts do not each cost a new cache */
    sequence_close(&source->sequence);
    return sequence_open(&source->sequence, source->engine, (room < tokens ? tokens : room) + ENGINE_ROWS_MAX, err);
}

/* Commits the rows of accepted tokens, except that of the last one, whose logits the next draft needs. */
static int keep_accepted(struct model_drafter *mine, const int32_t *token, int count, struct err *err)
{
    struct draft_rows *rows = &mine->rows;
    int32_t path[ENGINE_ROWS_MAX];
    int kept = 0;
    for (int row = 0; kept < count - 1; kept++) {
        row = draft_rows_child(rows, row, token[kept]);
        if (!row)
            break;
        path[kept] = rows->row[row].node;
    }
    draft_rows_forget(rows);
    return sequence_commit(mine->source.sequence, path, kept, err);
}

static int model_commit(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    struct model_drafter *mine = (struct model_drafter *)drafter;
    struct draft_rows *rows = &mine->rows;
    if (mem_grow(&mine->token, &mine->token_room, (size_t)rows->length + (size_t)count, sizeof *mine->token, err) ||
        (rows->rows && count && keep_accepted(mine, token, count, err)))
        return -1;
    for (int at = 0; at < count; at++) {
        mine->lost |= token[at] >= mine->source.base.vocab;
        mine->token[rows->length++] = token[at];
    }
    return 0;
}

static int count_bytes(void *context, const struct forward *piece, int position, struct err *err)
{
    (void)position, (void)err;
    ((struct model_drafter *)context)->base.bytes += piece->bytes;
    return 0;
}

/* Reads the tokens since the last draft. Row 0, the root, exists afterwards. */
static int catch_up(struct model_drafter *mine, struct err *err)
{
    struct draft_rows *rows = &mine->rows;
    int cached = sequence_length(mine->source.sequence);
    const struct batch options = {.plan = cached ? mine->source.plan : NULL,      /* no budget while reading a prompt, as
                                                                                   * with the target */
                                  .best = rows->ranked};
    struct forward forward;
    double began = clock_seconds();
    if (engine_prompt(mine->source.engine, mine->source.sequence, mine->token + cached, rows->length - cached, &options,
                      count_bytes, mine, &forward, err))
        return -1;
    const int32_t root = mine->token[rows->length - 1];
    mine->base.read += rows->length - cached;
    mine->base.read_s += clock_seconds() - began;
    if (rows->ranked)
        return draft_rows_root_best(rows, root, &(struct draft_best){forward.best, forward.best_log_probability}, err);
    draft_rows_root(rows, root, forward.logits + (size_t)(forward.logit_rows - 1) * (size_t)forward.vocab);
    return 0;
}

/* Returns 1 if the model can draft now, 0 if not, -1 on failure. */
static int ready(struct model_drafter *mine, struct err *err)
{
    const struct draft_rows *rows = &mine->rows;
    if (mine->lost || rows->length < 1 || rows->length > mine->source.base.positions)
        return 0;
    return !rows->rows && catch_up(mine, err) ? -1 : 1;
}

static int model_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                         int tokens, struct err *err)
{
    struct model_drafter *mine = (struct model_drafter *)drafter;
    int rc = leaves < 1 || tokens < 1 ? 0 : ready(mine, err);
    return rc > 0 ? draft_rows_propose(&mine->rows, tree, leaf, leaves, tokens, err) : rc;
}

static int model_review(struct drafter *drafter, struct draft_tree *tree, int leaf, int *agreed, struct err *err)
{
    struct model_drafter *mine = (struct model_drafter *)drafter;
    int rc = ready(mine, err);
    *agreed = 0;
    return rc > 0 ? draft_rows_review(&mine->rows, tree, leaf, agreed, err) : rc;
}

const struct drafter_class drafter_model = {
    .name = "model",
    .summary = "a smaller model with the same tokenizer",
    .settings = "file=FILE",
    .draws = true,
    .plans = true,
    .open = model_open_drafter,
    .propose = model_propose,
    .review = model_review,
    .commit = model_commit,
    .begin = model_begin,
    .free = model_free_drafter,
};
