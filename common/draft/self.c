/* The target drafts for itself at lower cost: it skips attention or feed-forward parts of its layers (SWIFT, arXiv
 * 2410.06916), uses fewer experts per token or those of a quantised copy of itself, or exits after a layer; all of these can
 * be combined. It drafts on pending nodes after the committed tokens of the target's own KV cache, so no token of a text is
 * read a second time. Each draft begins with the root, which is a node, too.
 *
 * With search=N the set of skipped parts is searched for while decoding (self_search.h), with one candidate per N drafts.
 *
 * If it only exits early, the verification resumes from the exit layer and does not compute the first layers again
 * (batch.resume). */
#include "common/draft/drafter.h"

#include "common/base/mem.h"
#include "common/cli/number.h"
#include "common/draft/rows.h"
#include "common/draft/self_search.h"
#include "common/draft/skip_file.h"

static const char default_skip[] = "0.4";
enum { SEARCH_MAX = 1 << 20, WINDOW_MAX = 4096 };

struct self_drafter {
    struct drafter base;
    struct engine_source source;        /* the target's engine and sequence */
    struct draft_rows rows;
    struct forward_part part;
    struct skip_set skip;
    struct experts_copy *experts;       /* NULL: the target's own experts */
    struct self_search *search;         /* NULL: no search */
    int32_t last;                       /* last token of the text: the root */
};

static void self_free_drafter(struct drafter *drafter)
{
    struct self_drafter *mine = (struct self_drafter *)drafter;
    draft_rows_free(&mine->rows);
    experts_copy_close(&mine->experts);
    self_search_close(&mine->search);
    mem_free(&mine);
}

struct self_settings {
    const char *skip, *experts;
    int top_k, exit, search, window;
    double stop;
};

static int read_settings(struct self_settings *out, struct spec *spec, const struct engine *target, struct err *err)
{
    const struct hparams *shape = engine_hparams(target);
    const bool moe = hparams_moe_layers(shape) > 0;
    if (spec_text(spec, "skip", NULL, &out->skip, err) || spec_int(spec, "topk", 0, 1, EXPERTS_MAX, &out->top_k, err) ||
        spec_text(spec, "experts", NULL, &out->experts, err) || spec_int(spec, "exit", 0, 1, LAYERS_MAX, &out->exit, err) ||
        spec_int(spec, "search", 0, 1, SEARCH_MAX, &out->search, err) ||
        spec_int(spec, "window", 0, 1, WINDOW_MAX, &out->window, err) ||
        spec_float(spec, "stop", 0, 0, 1, &out->stop, err) || spec_end(spec, err))
        return -1;
    if (out->exit >= shape->layers)
        return err_set(err, ERR_INPUT, "self: exit=%d: the model has %d layers; exit after 1 to %d of them", out->exit,
                       shape->layers, shape->layers - 1);
    if ((out->top_k || out->experts) && !moe)
        return err_set(err, ERR_INPUT, "self: %s: the model has no routed experts; leave it out",
                       out->top_k ? "topk" : "experts");
    if (out->top_k && out->top_k >= shape->router.top_k)
        return err_set(err, ERR_INPUT, "self: topk=%d: the model uses %d experts per token; give fewer", out->top_k,
                       shape->router.top_k);
    if (!out->skip && ((!out->experts && !out->top_k && !out->exit) || out->search))
        out->skip = default_skip;
    if (out->window && !out->search)
        return err_set(err, ERR_INPUT, "self: window=%d: applies to a search only; add search=1", out->window);
    return 0;
}

/* Opens the set of skipped parts. With an exit, a ratio applies to the layers before the exit. A file may skip only parts of
 * these layers; otherwise its settings would not describe the draft. */
static int open_skip(struct self_drafter *mine, const struct self_settings *settings, const struct model *model,
                     struct err *err)
{
    struct model_identity identity = *model_identity(model);
    const struct skip_set *skip = &mine->skip;
    struct err none = {0};
    double ratio;
    if (settings->exit && !number_float(settings->skip, 0, 1, &ratio, &none))
        identity.layers = settings->exit;
    if (skip_set_open(&mine->skip, settings->skip, &identity, err))
        return err_at(err, "self");
    for (int n = settings->exit; settings->exit && n < skip->layers; n++)
        if (skip->attention[n] || skip->ffn[n])
            return err_set(err, ERR_INPUT, "self: skip=%s: skips layer %d, but with exit=%d drafting ends before that layer; "
                           "leave out one of the two", settings->skip, n, settings->exit);
    mine->part.skip_attention = mine->skip.attention;
    mine->part.skip_ffn = mine->skip.ffn;
    return 0;
}

static int open_part(struct self_drafter *mine, const struct self_settings *settings, struct engine *target, struct err *err)
{
    const struct model *model = engine_config(target)->model;
    mine->part = (struct forward_part){.top_k = settings->top_k, .layers = settings->exit};
    if (settings->skip && open_skip(mine, settings, model, err))
        return -1;
    if (settings->experts && experts_copy_open(&mine->experts, target, settings->experts, err))
        return err_at(err, "self: experts");
    mine->part.experts = mine->experts;
    const struct skip_search_setup setup = SKIP_SEARCH_SWIFT;
    return !settings->search ? 0 : self_search_open(&mine->search, &setup, &mine->skip, &mine->part, target,
                                                    settings->window ? settings->window : SKIP_WINDOW, settings->search, err);
}

static int self_open_drafter(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err)
{
    struct self_settings settings;
    if (read_settings(&settings, spec, setup->target, err))
        return -1;
    struct self_drafter *mine = mem_alloc(1, sizeof *mine, err);
    if (!mine)
        return -1;
    engine_source_init(&mine->source, setup->target);
    mine->source.part = &mine->part;
    mine->source.plan = setup->plan;
    if (open_part(mine, &settings, setup->target, err) ||
        draft_rows_init(&mine->rows, &mine->base, setup, &mine->source.base, err)) {
        self_free_drafter(&mine->base);
        return -1;
    }
    mine->rows.stop = settings.stop;
    mine->base.learns = mine->search;
    *out = &mine->base;
    return 0;
}

static int self_begin(struct drafter *drafter, const struct draft_text *text, struct err *err)
{
    struct self_drafter *mine = (struct self_drafter *)drafter;
    struct draft_rows *rows = &mine->rows;
    (void)err;
    if (mine->search)
        self_search_begin(mine->search);
    mine->source.sequence = text->target;
    rows->draw = text->draw;
    rows->length = 0;
    draft_rows_forget(rows);
    return 0;
}

/* Appends to the text. Its nodes were dropped by the verification. */
static int self_commit(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    struct self_drafter *mine = (struct self_drafter *)drafter;
    draft_rows_forget(&mine->rows);
    mine->rows.length += count;
    mine->last = count ? token[count - 1] : mine->last;
    return mine->search ? self_search_commit(mine->search, token, count, err) : 0;
}

/* Returns whether there is room for at least the root, and sets the root. */
static bool ready(struct self_drafter *mine)
{
    struct draft_rows *rows = &mine->rows;
    const struct sequence *sequence = mine->source.sequence;
    if (rows->length < 1 || rows->length > mine->source.base.positions)
        return false;
    if (rows->rows)
        return true;
    if (sequence_length(sequence) != rows->length - 1 ||
        sequence_length(sequence) + sequence_pending(sequence) >= sequence_capacity(sequence))
        return false;
    draft_rows_root(rows, mine->last, NULL);
    return true;
}

/* Scores a candidate of the search. Only before the first node of a draft, because its nodes depend on the current set.
 * Bytes read by the search count as drafting cost. */
static int search_on(struct self_drafter *mine, struct err *err)
{
    bool better;
    return mine->rows.rows ? 0
        : self_search_step(mine->search, mine->source.sequence, &mine->skip, &better, &mine->base.bytes, err);
}

static int self_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                        struct err *err)
{
    struct self_drafter *mine = (struct self_drafter *)drafter;
    if (mine->search && search_on(mine, err))
        return -1;
    return leaves < 1 || tokens < 1 || !ready(mine) ? 0 : draft_rows_propose(&mine->rows, tree, leaf, leaves, tokens, err);
}

static int self_review(struct drafter *drafter, struct draft_tree *tree, int leaf, int *agreed, struct err *err)
{
    struct self_drafter *mine = (struct self_drafter *)drafter;
    *agreed = 0;
    return ready(mine) ? draft_rows_review(&mine->rows, tree, leaf, agreed, err) : 0;
}

const struct drafter_class drafter_self = {
    .name = "self",
    .summary = "the model itself, with parts of it left out",
    .settings = "skip=RATIO|FILE,topk=N,experts=FILE,exit=LAYER,stop=P,search=N,window=N",
    .draws = true,
    .plans = true,
    .pends = true,
    .open = self_open_drafter,
    .propose = self_propose,
    .review = self_review,
    .commit = self_commit,
    .begin = self_begin,
    .free = self_free_drafter,
};
