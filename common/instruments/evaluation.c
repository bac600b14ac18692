#include "common/instruments/evaluation.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/decode/decode.h"
#include "common/decode/grow.h"
#include "common/model/model.h"
#include "common/policy/shape.h"
#include "kernels/plain/accept.h"

/* Drafts a text with one shape (chains or trees) without decoding it. */
struct walker {
    struct drafters drafters;
    struct shape *shape;
    struct policy *policy;
    struct draft_tree tree;
    struct draft_leaf *leaf;
    struct draft_share share[DRAFTERS_MAX];
    struct sequence *sequence;          /* the target's KV cache, for a head that runs a part of the target */
    int next;                           /* committed length at which the next iteration begins */
};

/* Decodes with drafts of one shape, and counts the iterations of its text. */
struct run {
    struct decode_settings settings;
    struct decoder *decoder;
    struct iteration { int length, accepted; } *list;
    size_t count, room;
};

enum { CHAIN, TREE, SHAPES };

struct evaluation {
    struct evaluation_setup setup;
    struct text draft;                  /* "head:file=..." */
    const char *words[1];
    int positions, depth, limit;        /* depth: depth of the deepest draft */
    struct feature_request features;
    struct buffer states;               /* [features.count][text.tokens][hidden] states of the current text */
    struct forward shown;               /* the result that a forward over the whole text would return */
    int32_t *row;                       /* [row_room] 0, 1, ... */
    size_t row_room;
    bool early;                         /* the head reads drafted tokens through the target's first layers: */
    struct forward_part part;
    struct walker walker[SHAPES];
    struct run run[SHAPES];
    int shapes;
};

static struct decode_settings settings_of(const struct evaluation_setup *setup, int which, const char **words)
{
    struct decode_settings settings = DECODE_DEFAULTS;
    settings.draft = (struct strings){words, 1};
    settings.draft_length = which == CHAIN ? setup->length : DRAFT_LENGTH_NONE;
    settings.tree = which == CHAIN ? NULL : setup->tree;
    return settings;
}

int evaluation_rows(const char *tree, int *rows, struct err *err)
{
    const char *words[1] = {"head"};
    const struct evaluation_setup setup = {.length = EVALUATION_LENGTH_MAX, .tree = tree};
    const struct decode_settings settings = settings_of(&setup, tree ? TREE : CHAIN, words);
    return decode_rows(&settings, false, rows, err);
}

/* ---- opening ---- */

static int open_walker(struct evaluation *e, int which, struct err *err)
{
    const struct hparams *shape = engine_hparams(e->setup.engine);
    struct walker *w = &e->walker[which];
    if (shape_open(&w->shape, which == CHAIN ? NULL : e->setup.tree, err))
        return err_at(err, "--tree");
    const struct drafter_setup drafting = {
        .vocab = shape->vocab, .positions = engine_max_positions(e->setup.engine), .target = e->setup.engine,
        .choice = DRAFT_BEST, .probabilities = w->shape->trims, .filter = {.top_p = 1}};
    const struct policy_drafter about = {.name = e->words[0], .reviews = true};
    const struct policy_setup policy = {
        .drafters = 1, .drafter = &about, .draft_length = which == CHAIN ? e->setup.length : DRAFT_LENGTH_NONE,
        .max_length = DRAFT_LENGTH_MAX, .shape = w->shape};
    return drafters_open(&w->drafters, e->words, 1, &drafting, err) || policy_open(&w->policy, "static", &policy, err) ||
           draft_tree_init(&w->tree, w->shape->room, err) || drafters_features(&w->drafters, &e->features, err) ||
           !(w->leaf = mem_alloc((size_t)w->shape->room + 1, sizeof *w->leaf, err)) ? -1 : 0;
}

static int open_run(struct evaluation *e, int which, struct err *err)
{
    struct run *run = &e->run[which];
    run->settings = settings_of(&e->setup, which, e->words);
    const struct decoder_setup setup = {.engine = e->setup.engine, .tokenizer = e->setup.tokenizer, .settings = &run->settings,
                                        .stop = e->setup.stop};
    return decoder_open(&run->decoder, &setup, err);
}

/* Reads the settings that must be known before the head is opened from the head's file. */
static int read_head(struct evaluation *e, struct err *err)
{
    struct model *file = NULL;
    if (model_open_head(&file, e->setup.head, err))
        return -1;
    const struct head_params *head = model_head(file);
    e->early = head->kind == HEAD_KANGAROO;
    e->part.layers = e->early ? head->state[0] + 1 : 0;
    e->positions = head->heads && head->heads < e->setup.length ? head->heads : e->setup.length;
    model_close(&file);
    return text_printf(&e->draft, err, "head:file=%s%s%s", e->setup.head, e->setup.drafting ? "," : "",
                       e->setup.drafting ? e->setup.drafting : "");
}

static int find_depth(struct evaluation *e, struct err *err)
{
    struct shape *shape = NULL;
    e->depth = e->setup.length;
    if (!e->setup.tree)
        return 0;
    if (shape_open(&shape, e->setup.tree, err))
        return err_at(err, "--tree");
    e->depth = shape->depth > e->depth ? shape->depth : e->depth;
    shape_close(&shape);
    return 0;
}

static int open_parts(struct evaluation *e, struct err *err)
{
    if (read_head(e, err) || find_depth(e, err))
        return -1;
    e->words[0] = e->draft.data;
    /* Requires that a draft after the last token of the text fits into the context, too. */
    e->limit = engine_max_positions(e->setup.engine) - e->depth - 1;
    if (e->limit < 2)
        return err_set(err, ERR_INPUT, "a context of %d tokens leaves no room for drafts of %d; give a larger --context",
                       engine_max_positions(e->setup.engine), e->depth);
    e->limit = e->setup.limit && e->setup.limit < e->limit ? e->setup.limit : e->limit;
    e->shapes = e->setup.tree ? SHAPES : TREE;
    for (int which = 0; which < e->shapes; which++)
        if (e->setup.decoding ? open_run(e, which, err) : open_walker(e, which, err))
            return -1;
    return 0;
}

int evaluation_open(struct evaluation **out, const struct evaluation_setup *setup, struct err *err)
{
    struct evaluation *e = mem_alloc(1, sizeof *e, err);
    if (!e)
        return -1;
    e->setup = *setup;
    if (open_parts(e, err)) {
        evaluation_close(&e);
        return -1;
    }
    *out = e;
    return 0;
}

static void close_walker(struct walker *w)
{
    drafters_close(&w->drafters);
    policy_close(&w->policy);
    shape_close(&w->shape);
    draft_tree_free(&w->tree);
    sequence_close(&w->sequence);
    mem_free(&w->leaf);
}

void evaluation_close(struct evaluation **evaluation)
{
    struct evaluation *e = *evaluation;
    if (e) {
        for (int which = 0; which < SHAPES; which++) {
            close_walker(&e->walker[which]);
            decoder_close(&e->run[which].decoder);
            mem_free(&e->run[which].list);
        }
        device_free(engine_config(e->setup.engine)->device, &e->states);
        text_free(&e->draft);
        mem_free(&e->row);
    }
    mem_free(evaluation);
}

const struct feature_request *evaluation_states(const struct evaluation *evaluation) { return &evaluation->features; }
int evaluation_limit(const struct evaluation *evaluation) { return evaluation->limit; }

/* ---- counting ---- */

/* Counts a draft with `accepted` correct tokens; the answer has `left` more tokens. */
static void count_draft(struct evaluation_drafts *drafts, int accepted, int left, int positions)
{
    for (int i = 0; i < positions && i < left; i++) {
        drafts->tried[i]++;
        drafts->reached[i] += i <= accepted;
        drafts->right[i] += i < accepted;
    }
}

static int positions_of(const struct evaluation *e, int which) { return which == CHAIN ? e->positions : e->depth; }

static struct evaluation_walk *walk_of(struct evaluation_counts *counts, int which)
{
    return which == CHAIN ? &counts->chain : &counts->tree;
}

/* ---- without decoding ---- */

/* Uploads the text's states to the buffers from which drafters read them. */
static int put_states(struct evaluation *e, const struct evaluation_text *text, struct err *err)
{
    struct device *device = engine_config(e->setup.engine)->device;
    const uint64_t bytes = (uint64_t)text->tokens * (uint64_t)engine_hparams(e->setup.engine)->hidden * sizeof(float);
    const uint64_t all = (uint64_t)e->features.count * bytes;
    const size_t rows = (size_t)text->tokens, known = e->row_room;
    if (all > e->states.bytes) {
        device_free(device, &e->states);
        if (device_alloc(device, all, &e->states, err))
            return -1;
    }
    for (int i = 0; i < e->features.count; i++)
        queue_upload(device, buffer_part(e->states, (uint64_t)i * bytes, bytes), text->state[i], bytes);
    if (mem_grow(&e->row, &e->row_room, rows, sizeof *e->row, err))
        return -1;
    for (size_t i = known; i < e->row_room; i++)
        e->row[i] = (int32_t)i;
    e->shown = (struct forward){.rows = text->tokens, .hidden_size = engine_hparams(e->setup.engine)->hidden,
                                .features = buffer_part(e->states, 0, all)};
    return queue_wait(device, err);
}

/* Shows rows first .. first + count - 1 of the text to the drafters. */
static int show(struct evaluation *e, struct walker *w, const struct evaluation_text *text, int first, int count, bool prompt,
                struct err *err)
{
    const struct target_view view = {.forward = &e->shown, .features = &e->features, .position = first, .token = text->token,
                                     .kept = e->row + first, .kept_rows = count, .prompt = prompt};
    return drafters_observe(&w->drafters, &view, err);
}

/* Fills the target's KV cache of the first layers up to `length` tokens. */
static int read_early(struct evaluation *e, struct walker *w, const struct evaluation_text *text, int length, struct err *err)
{
    const int rows_max = engine_config(e->setup.engine)->max_rows;
    sequence_rollback(w->sequence);
    for (int at = sequence_length(w->sequence); e->early && at < length; at = sequence_length(w->sequence)) {
        const int rows = length - at < rows_max ? length - at : rows_max;
        const struct batch batch = {.rows = rows, .token = text->token + at, .part = &e->part};
        struct forward forward;
        if (engine_forward(e->setup.engine, w->sequence, &batch, &forward, err) ||
            sequence_commit(w->sequence, forward.node, rows, err))
            return -1;
    }
    return 0;
}

static int begin_sequence(struct evaluation *e, struct walker *w, int tokens, struct err *err)
{
    const int room = !e->early ? 1 : tokens + 2 * (w->shape->room + 1);
    if (w->sequence && sequence_capacity(w->sequence) >= room)
        return sequence_truncate(w->sequence, 0, err);
    sequence_close(&w->sequence);
    return sequence_open(&w->sequence, e->setup.engine, room, err);
}

/* Drafts at one committed length. next: the text's tokens that follow, `left` of them in the answer. Returns how many
 * drafted tokens equal them, -1 on failure. */
static int draft_here(struct walker *w, const int32_t *next, int left, int depth, struct err *err)
{
    const struct growth growth = {&w->tree, w->leaf, w->policy, &w->drafters, w->share};
    int accepted = 0, node = -1;
    draft_tree_clear(&w->tree);
    if (draft_grow(&growth, depth, err) < 0)
        return -1;
    while (accepted < left && (node = accept_child(w->tree.token, w->tree.parent, w->tree.nodes, node, next[accepted])) >= 0)
        accepted++;
    return accepted;
}

/* Drafts at committed length n: n tokens are decided, n - 1 of them read. */
static int step(struct evaluation *e, int which, const struct evaluation_text *text, int n, struct evaluation_counts *counts,
                struct err *err)
{
    struct walker *w = &e->walker[which];
    struct evaluation_walk *walk = walk_of(counts, which);
    const bool inside = text->mask[n - 1] && text->mask[n], begins = inside && n == w->next;
    int end = n, accepted;
    if (!inside)
        w->next = n + 1;
    while (inside && end < text->tokens && text->mask[end])
        end++;
    if (begins || (inside && which == CHAIN)) {
        if (read_early(e, w, text, n - 1, err) || (accepted = draft_here(w, text->token + n, end - n, e->depth, err)) < 0)
            return -1;
        if (which == CHAIN)
            count_draft(&counts->all, accepted, end - n, positions_of(e, which));
        if (begins) {
            count_draft(&walk->begun, accepted, end - n, positions_of(e, which));
            walk->iterations++;
            w->next = n + accepted + 1;
        }
    }
    if (show(e, w, text, n - 1, 1, false, err))
        return -1;
    return drafters_commit(&w->drafters, text->token + n, 1, err);
}

static int walk_text(struct evaluation *e, int which, const struct evaluation_text *text, int prompt,
                     struct evaluation_counts *counts, struct err *err)
{
    struct walker *w = &e->walker[which];
    if (begin_sequence(e, w, text->tokens, err))
        return -1;
    const struct draft_text about = {w->sequence, text->tokens + e->depth, {0}};
    w->next = prompt + 1;
    if (drafters_begin(&w->drafters, &about, text->token, prompt, err) || show(e, w, text, 0, prompt, true, err) ||
        drafters_commit(&w->drafters, text->token + prompt, 1, err))
        return -1;
    for (int n = prompt + 1; n < text->tokens; n++)
        if (step(e, which, text, n, counts, err))
            return -1;
    return 0;
}

int evaluation_text(struct evaluation *evaluation, const struct evaluation_text *text, struct evaluation_counts *counts,
                    struct err *err)
{
    struct evaluation_counts sums = *counts;
    const int vocab = engine_hparams(evaluation->setup.engine)->vocab;
    int prompt = 1;                     /* at least one token is read before anything is drafted */
    for (int i = 0; i < text->tokens; i++)
        if (text->token[i] < 0 || text->token[i] >= vocab)
            return err_set(err, ERR_INPUT, "token %d is outside the vocabulary of %d tokens", (int)text->token[i], vocab);
    while (prompt < text->tokens && !text->mask[prompt])
        prompt++;
    sums.texts++;
    for (int n = prompt + 1; n < text->tokens; n++)
        sums.tokens += text->mask[n - 1] && text->mask[n];
    if (prompt + 1 < text->tokens) {
        if (put_states(evaluation, text, err))
            return -1;
        for (int which = 0; which < evaluation->shapes; which++)
            if (walk_text(evaluation, which, text, prompt, &sums, err))
                return -1;
    }
    *counts = sums;
    return 0;
}

/* ---- by decoding ---- */

static int take_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    struct run *run = context;
    if (mem_grow(&run->list, &run->room, run->count + 1, sizeof *run->list, err))
        return -1;
    run->list[run->count++] = (struct iteration){iteration->position + 1, iteration->record.accepted};
    return 0;
}

/* Decodes one text. It ends where the target ends it, or at `end` tokens; a draft from its last token has full length.
 * *ends: its length. */
static int decode_text(struct evaluation *e, int which, const int32_t *token, int tokens, int end, int *ends,
                       struct evaluation_counts *counts, struct err *err)
{
    struct run *run = &e->run[which];
    struct evaluation_walk *walk = walk_of(counts, which);
    const struct decode_prompt prompt = {.token = token, .tokens = tokens, .max_tokens = end - tokens + e->depth + 1};
    const struct decode_sink sink = {.context = run, .iteration = take_iteration};
    struct decode_result result;
    run->count = 0;
    decoder_forget(run->decoder);
    if (decoder_run(run->decoder, &prompt, &sink, &result, err))
        return -1;
    if (result.finish == FINISH_ABORT)
        return err_set(err, ERR_SIGNAL, "interrupted");
    *ends = tokens + result.tokens < end ? tokens + result.tokens : end;
    for (size_t i = 0; i < run->count && run->list[i].length < *ends; i++) {
        count_draft(&walk->begun, run->list[i].accepted, *ends - run->list[i].length, positions_of(e, which));
        walk->iterations++;
    }
    return 0;
}

int evaluation_prompt(struct evaluation *evaluation, const int32_t *token, int tokens, int max_tokens,
                      struct evaluation_counts *counts, struct err *err)
{
    struct evaluation_counts sums = *counts;
    const int end = max_tokens < evaluation->limit - tokens ? tokens + max_tokens : evaluation->limit;
    int ends[SHAPES] = {0};
    if (end <= tokens)
        return err_set(err, ERR_INPUT, "the prompt has %d tokens, and prompt and answer together may have %d, so no answer "
                       "fits; give a larger --context, or shorten the prompt",
                       tokens, evaluation->limit);
    for (int which = 0; which < evaluation->shapes; which++)
        if (decode_text(evaluation, which, token, tokens, end, &ends[which], &sums, err))
            return -1;
    if (evaluation->shapes == SHAPES && ends[CHAIN] != ends[TREE])
        return err_set(err, ERR_INPUT, "decoding with chains produced %d tokens, but with trees %d; this is an error in "
                       "moekit, because drafts must not change a text",
                       ends[CHAIN] - tokens, ends[TREE] - tokens);
    sums.texts++;
    sums.tokens += ends[CHAIN] > tokens ? ends[CHAIN] - tokens - 1 : 0;
    *counts = sums;
    return 0;
}

/* ---- shares ---- */

static double share(int64_t part, int64_t whole) { return whole ? (double)part / (double)whole : NAN; }

void evaluation_record(const struct evaluation *evaluation, const struct evaluation_counts *counts,
                       struct evaluation_shares *shares, struct train_eval *out)
{
    const bool decoded = evaluation->setup.decoding;
    const struct evaluation_drafts *all = decoded ? &counts->chain.begun : &counts->all, *begun = &counts->chain.begun;
    int positions = 0;
    while (positions < evaluation->positions && all->tried[positions])
        positions++;
    for (int i = 0; i < positions; i++) {
        shares->position[i] = i + 1;
        shares->acceptance[i] = share(all->right[i], all->tried[i]);
        shares->conditional[i] = share(all->right[i], all->reached[i]);
        shares->begun[i] = share(begun->right[i], begun->tried[i]);
    }
    out->texts = (int)counts->texts;
    out->positions = positions;
    out->position = shares->position;
    out->acceptance = shares->acceptance;
    out->conditional = shares->conditional;
    out->begun = shares->begun;
    out->tokens = counts->tokens;
    out->iterations = counts->chain.iterations;
    out->tree_iterations = evaluation->setup.tree ? counts->tree.iterations : -1;
    out->tokens_per_iteration = share(counts->tokens, counts->chain.iterations);
    out->tree_tokens_per_iteration = share(counts->tokens, counts->tree.iterations);
}
