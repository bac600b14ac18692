/* Drafts with a draft head: a small network over the target's hidden states (common/head). Before a draft, the head reads in
 * one forward the true states of all tokens since the last draft; the last row is the root. Then each level of the draft is
 * one forward, in which the head continues from its own predicted states. These rows are dropped afterwards: once their
 * tokens are part of the text, the target's states replace them. Each piece of a prompt is read as soon as the target has
 * read it.
 *
 * A head on early states (Kangaroo) has true states of drafted tokens, too: drafted tokens run through the target's first
 * layers on the target's KV cache. The verification resumes from there, and accepted rows stay. Heads that guess (guess.h)
 * read no drafted rows. */
#include "common/draft/drafter.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/draft/guess.h"
#include "common/draft/rows.h"
#include "common/draft/states.h"
#include "common/head/head.h"

enum { MTP_DEPTH_MAX = 64 };

/* Settings given by the user; -1: as in the head's file. */
struct head_settings { int parallel, contrast, scaled; };

struct head_drafter {
    struct drafter base;
    struct draft_source source;
    struct model *model;
    struct head *head;
    const struct head_params *params;
    struct engine *target;
    struct sequence *sequence;          /* sequence of the target for this text */
    struct states states;               /* true states, from row head_length on */
    struct draft_rows rows;
    struct guess guess;                 /* only for Medusa and Hydra */
    bool second;                        /* Jakiro: the second branch drafts, too */
    struct head_settings wanted;
    bool early;                         /* the head reads early states, and no tokens */
    bool changed;                       /* a budget changed the experts of accepted rows, so the states that the head read
                                         * are not true */
    struct forward_part part;           /* with `early`: the target's layers before the head */
    int nodes;                          /* nodes of the source */
    int32_t node[DRAFT_ROWS_MAX], target_node[DRAFT_ROWS_MAX];      /* number of each node in the head, and in the target */
    int32_t *token;                     /* the text, [rows.length] */
    size_t token_room;
};

static struct head_drafter *drafter_of(const struct draft_source *source)
{
    return (struct head_drafter *)(uintptr_t)((const char *)source - offsetof(struct head_drafter, source));
}

static void head_free_drafter(struct drafter *drafter)
{
    struct head_drafter *mine = (struct head_drafter *)drafter;
    draft_rows_free(&mine->rows);
    states_close(&mine->states);
    guess_close(&mine->guess);
    head_close(&mine->head);
    model_close(&mine->model);
    mem_free(&mine->token);
    mem_free(&mine);
}

static int head_nodes(const struct draft_source *source) { return drafter_of(source)->nodes; }

static int head_room(const struct draft_source *source)
{
    const struct head_drafter *mine = drafter_of(source);
    const struct sequence *target = mine->sequence;
    const int after = head_capacity(mine->head) - head_length(mine->head) - head_pending(mine->head);
    const int own = HEAD_NODES_MAX - head_pending(mine->head), room = after < own ? after : own;
    const int there = sequence_capacity(target) - sequence_length(target) - sequence_pending(target);
    return mine->early && there < room ? there : room;
}

/* The rows of one forward of the head, as a selection of the rows of a reading. */
struct wave {
    int rows, logit_rows;
    int32_t row[HEAD_ROWS_MAX];         /* indices in the reading */
    int32_t token[HEAD_ROWS_MAX], parent[HEAD_ROWS_MAX];
    int32_t logit_row[DRAFT_ASKED_MAX], which[DRAFT_ASKED_MAX];     /* indices in the wave, and in the reading */
};

static void wave_add(const struct head_drafter *mine, struct wave *wave, const struct draft_reading *reading, int row)
{
    const int parent = reading->parent[row];
    for (int at = 0; at < reading->logit_rows; at++)
        if (reading->logit_row[at] == row) {
            wave->which[wave->logit_rows] = at;
            wave->logit_row[wave->logit_rows++] = wave->rows;
        }
    wave->row[wave->rows] = row;
    wave->token[wave->rows] = reading->token[row];
    wave->parent[wave->rows++] = parent < 0 ? -1 : mine->node[parent];
}

static struct draft_best best_at(const struct head_forward *forward, int branch, int first)
{
    const struct head_best *best = &forward->best[branch];
    return (struct draft_best){best->token + first, best->log_probability + first};
}

/* Runs one forward of the head. states: input states of all rows, as in head_batch; address 0: none. */
static int wave_run(struct head_drafter *mine, const struct wave *wave, const struct draft_reading *reading,
                    struct buffer states, int64_t *bytes, struct err *err)
{
    const struct head_batch batch = {.rows = wave->rows, .token = mine->early ? NULL : wave->token, .parent = wave->parent,
                                     .state = states, .state_rows = reading->rows, .state_row = wave->row,
                                     .logit_row = wave->logit_row, .logit_rows = wave->logit_rows,
                                     .branches = reading->branches, .best = reading->best};
    const int vocab = mine->params->draft_vocab;
    struct head_forward forward;
    if (head_run(mine->head, &batch, &forward, err))
        return err_at(err, "%s", mine->source.path);
    *bytes += forward.bytes;
    for (int at = 0; at < wave->rows; at++)
        mine->node[mine->nodes + wave->row[at]] = forward.first_node + at;
    for (int at = 0; at < wave->logit_rows; at++) {
        const float *logits[HEAD_BRANCHES_MAX] = {NULL};
        struct draft_best best[HEAD_BRANCHES_MAX];
        for (int b = 0; b < HEAD_BRANCHES_MAX && forward.logits[b]; b++)
            logits[b] = forward.logits[b] + (size_t)at * (size_t)vocab;
        for (int b = 0; b < HEAD_BRANCHES_MAX && forward.best[b].token; b++)
            best[b] = best_at(&forward, b, at * reading->best);
        if (reading->best ? reading->take_best(reading->context, wave->which[at], best, reading->best, err)
                          : reading->take(reading->context, wave->which[at], logits, err))
            return -1;
    }
    return 0;
}

/* Reads rows level by level. A row that continues from the head's own states needs a parent from an earlier forward, so if a
 * reading contains several levels (nodes of another drafter), each level is one forward. */
static int read_levels(struct head_drafter *mine, const struct draft_reading *reading, int64_t *bytes, struct err *err)
{
    int level[DRAFT_ROWS_MAX], last = 0;
    for (int row = 0; row < reading->rows; row++) {
        const int above = reading->parent[row] - mine->nodes;
        level[row] = above < 0 ? 0 : level[above] + 1;
        last = level[row] > last ? level[row] : last;
    }
    for (int at = 0; at <= last; at++) {
        struct wave wave = {.rows = 0};
        for (int row = 0; row < reading->rows; row++)
            if (level[row] == at)
                wave_add(mine, &wave, reading, row);
        if (wave_run(mine, &wave, reading, (struct buffer){0, 0}, bytes, err))
            return -1;
    }
    return 0;
}

/* Runs all rows through the target's first layers, then the resulting states through the head. */
static int read_early(struct head_drafter *mine, const struct draft_reading *reading, int64_t *bytes, struct err *err)
{
    int32_t parent[HEAD_ROWS_MAX];
    struct wave wave = {.rows = 0};
    struct forward forward;
    for (int row = 0; row < reading->rows; row++) {
        mine->target_node[mine->nodes + row] = sequence_pending(mine->sequence) + row;
        mine->node[mine->nodes + row] = head_pending(mine->head) + row;
        parent[row] = reading->parent[row] < 0 ? -1 : mine->target_node[reading->parent[row]];
        wave_add(mine, &wave, reading, row);
    }
    const struct batch batch = {.rows = reading->rows, .token = reading->token, .parent = parent,
                                .features = &mine->base.features, .part = &mine->part};
    if (engine_forward(mine->target, mine->sequence, &batch, &forward, err))
        return -1;
    *bytes += forward.bytes;
    return wave_run(mine, &wave, reading, forward.features, bytes, err);
}

static int head_read_rows(struct draft_source *source, const struct draft_reading *reading, int64_t *bytes, struct err *err)
{
    struct head_drafter *mine = drafter_of(source);
    if (mine->guess.head ? guess_read(&mine->guess, reading, mine->nodes, bytes, err)
                         : (mine->early ? read_early : read_levels)(mine, reading, bytes, err))
        return -1;
    mine->nodes += reading->rows;
    return 0;
}

/* Returns for how many rows of the text both the states and the tokens that the head needs are known. */
static int rows_known(const struct head_drafter *mine)
{
    const int known = mine->rows.length - head_length(mine->head) - !mine->early;
    return known < mine->states.count ? known : mine->states.count;
}

/* Runs the head over the next `rows` rows of the text. out receives the logits of the last one; it may be NULL. */
static int read_text(struct head_drafter *mine, int rows, struct head_forward *out, struct err *err)
{
    int32_t state[STATES_ROOM], node[STATES_ROOM];
    const int32_t last = rows - 1;
    struct head_forward forward;
    if (rows < 1)
        return 0;
    for (int row = 0; row < rows; row++) {
        state[row] = mine->states.first + row;
        node[row] = row;
    }
    const struct head_batch batch = {
        .rows = rows, .token = mine->early ? NULL : mine->token + head_length(mine->head) + 1, .state = mine->states.state,
        .state_rows = STATES_ROOM, .state_row = state, .logit_row = &last, .logit_rows = out && !mine->guess.head,
        .branches = mine->source.branches, .best = out && !mine->guess.head ? mine->rows.ranked : 0};
    head_rollback(mine->head);
    if (head_run(mine->head, &batch, &forward, err) || head_commit(mine->head, node, rows, err))
        return err_at(err, "%s", mine->source.path);
    mine->base.bytes += forward.bytes;
    mine->base.read += rows;
    states_drop(&mine->states, rows);
    if (out)
        *out = forward;
    return 0;
}

/* Returns whether a budget replaced an expert of a kept row. */
static bool has_changed(const struct target_view *view)
{
    const struct forward *forward = view->forward;
    const size_t slots = (size_t)forward->moe_layers * (size_t)forward->top_k;
    for (int i = 0; slots && i < view->kept_rows; i++) {
        const size_t at = (size_t)view->kept[i] * slots;
        if (memcmp(forward->expert + at, forward->wanted + at, slots * sizeof *forward->expert))
            return true;
    }
    return false;
}

/* Stores the true states for the next draft, which reads them together. They are read at once if they are of the prompt, or
 * if there is no room for more. */
static int head_observe(struct drafter *drafter, const struct target_view *view, struct err *err)
{
    struct head_drafter *mine = (struct head_drafter *)drafter;
    struct states *states = &mine->states;
    const double began = clock_seconds();
    mine->changed = mine->early && !view->prompt && has_changed(view);
    if (view->position != head_length(mine->head) + states->count)
        return err_set(err, ERR_INPUT, "%s: the head was given the states of position %d, but expected position %d",
                       mine->source.path, view->position,
                       head_length(mine->head) + states->count);
    for (int done = 0, count; done < view->kept_rows; done += count) {
        count = view->kept_rows - done;
        if (count > states_room(states)) {
            draft_rows_forget(&mine->rows);
            mine->nodes = 0;
            if (read_text(mine, rows_known(mine), NULL, err))
                return -1;
            count = count < states_room(states) ? count : states_room(states);
        }
        states_put(states, view, done, count);
    }
    if (view->prompt && read_text(mine, rows_known(mine), NULL, err))
        return -1;
    mine->base.read_s += clock_seconds() - began;
    return 0;
}

static int head_begin_text(struct drafter *drafter, const struct draft_text *text, struct err *err)
{
    struct head_drafter *mine = (struct head_drafter *)drafter;
    mine->sequence = text->target;
    mine->rows.draw = text->draw;
    mine->rows.length = 0;
    draft_rows_forget(&mine->rows);
    mine->nodes = 0;
    states_clear(&mine->states);
    return head_begin(mine->head, text->tokens, err) ? err_at(err, "%s", mine->source.path) : 0;
}

/* Commits the head's rows of accepted tokens, which were read with true (early) states: the root's row and those on the
 * accepted path. The last emitted token was not read yet. Not called if a budget changed the states; then the rows are read
 * again, as with other heads. */
static int keep_accepted(struct head_drafter *mine, const int32_t *token, int count, struct err *err)
{
    int32_t path[DRAFT_ROWS_MAX];
    int kept = 0, row = 0;
    while (kept < count) {
        path[kept] = mine->node[mine->rows.row[row].node];
        kept++;
        row = kept < count ? draft_rows_child(&mine->rows, row, token[kept - 1]) : 0;
        if (!row)
            break;
    }
    if (head_commit(mine->head, path, kept, err))
        return err_at(err, "%s", mine->source.path);
    states_drop(&mine->states, kept);
    return 0;
}

static int head_commit_text(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    struct head_drafter *mine = (struct head_drafter *)drafter;
    struct draft_rows *rows = &mine->rows;
    if (mem_grow(&mine->token, &mine->token_room, (size_t)rows->length + (size_t)count, sizeof *mine->token, err))
        return -1;
    if (mine->early && !mine->changed && mine->nodes && count && keep_accepted(mine, token, count, err))
        return -1;
    head_rollback(mine->head);
    draft_rows_forget(rows);
    mine->nodes = 0;
    memcpy(mine->token + rows->length, token, (size_t)count * sizeof *token);
    rows->length += count;
    return 0;
}

/* Reads the tokens since the last draft. `levels` are the requested levels. Afterwards row 0, the root, exists; with early
 * states it is read with the first leaves. */
static int catch_up(struct head_drafter *mine, int levels, struct err *err)
{
    const int32_t root = mine->token[mine->rows.length - 1];
    const double began = clock_seconds();
    struct head_forward forward;
    if (read_text(mine, rows_known(mine), mine->early ? NULL : &forward, err))
        return -1;
    if (head_length(mine->head) != mine->rows.length - 1)
        return err_set(err, ERR_INPUT, "%s: the head has the states of only %d of %d tokens", mine->source.path,
                       head_length(mine->head), mine->rows.length - 1);
    mine->base.read_s += clock_seconds() - began;
    if (mine->guess.head && guess_root(&mine->guess, root, levels, &forward, &mine->base.bytes, err))
        return err_at(err, "%s", mine->source.path);
    if (mine->rows.ranked && !mine->early) {
        struct draft_best best[HEAD_BRANCHES_MAX];
        for (int b = 0; b < mine->source.branches; b++)
            best[b] = best_at(&forward, b, 0);
        return draft_rows_root_best(&mine->rows, root, best, err);
    }
    draft_rows_root(&mine->rows, root, mine->early ? NULL : forward.logits[0]);
    return mine->source.branches > 1 ? draft_rows_root_second(&mine->rows, forward.logits[1], err) : 0;
}

/* Returns 1 if the head can draft `levels` levels now, 0 if not, -1 on failure. */
static int ready(struct head_drafter *mine, int levels, struct err *err)
{
    if (mine->rows.rows)
        return 1;
    if (mine->rows.length < 2 || mine->rows.length > mine->source.positions || head_room(&mine->source) < 1 ||
        (mine->early && sequence_length(mine->sequence) != mine->rows.length - 1))
        return 0;
    return catch_up(mine, levels, err) ? -1 : 1;
}

static int head_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                        struct err *err)
{
    struct head_drafter *mine = (struct head_drafter *)drafter;
    int rc = leaves < 1 || tokens < 1 ? 0 : ready(mine, tokens, err);
    return rc > 0 ? draft_rows_propose(&mine->rows, tree, leaf, leaves, tokens, err) : rc;
}

static int head_review(struct drafter *drafter, struct draft_tree *tree, int leaf, int *agreed, struct err *err)
{
    struct head_drafter *mine = (struct head_drafter *)drafter;
    int rc = ready(mine, 1, err);
    *agreed = 0;
    return rc > 0 ? draft_rows_review(&mine->rows, tree, leaf, agreed, err) : rc;
}

/* Writes the cost of opening to base.detail, for -v. */
static void describe_cost(struct head_drafter *mine, int64_t bytes)
{
    const struct feature_request *features = &mine->base.features;
    size_t used;
    snprintf(mine->base.detail, sizeof mine->base.detail, "%s, %.1f MB, reads states after %s",
             head_kind_name(mine->params->kind),
             (double)bytes / 1e6, features->count == 1 && features->layer[0] == mine->params->target.layers
             ? "the final norm" : features->count > 1 ? "layers" : "layer");
    for (int i = 0; i < features->count && features->layer[i] < mine->params->target.layers; i++) {
        used = strlen(mine->base.detail);
        snprintf(mine->base.detail + used, sizeof mine->base.detail - used, "%s %d", i ? "," : "", features->layer[i]);
    }
}

/* Decides from the file and the user's settings whether Jakiro's second branch drafts. It then drafts the last level from
 * the forward that drafts the level before it, or, if it was trained for the next token, nodes of the last level but one. */
static int choose_second(struct head_drafter *mine, struct head_params *params, struct err *err)
{
    const struct head_settings *wanted = &mine->wanted;
    const bool none = params->second == HEAD_SECOND_NONE;
    if (params->kind != HEAD_JAKIRO)
        return wanted->contrast < 0
                   ? 0
                   : err_set(err, ERR_INPUT, "contrast: applies to draft heads of kind jakiro only; leave it out");
    if (none && (wanted->parallel > 0 || wanted->contrast > 0))
        return err_set(err, ERR_INPUT, "parallel and contrast use the head's second branch, and this head was trained without "
                       "one; leave them out");
    if (params->second_next && wanted->parallel > 0)
        return err_set(err, ERR_INPUT, "parallel: this head's second branch predicts the next token, so one forward cannot "
                       "draft the last two levels; leave it out");
    if (!params->second_next && wanted->parallel == 0 && wanted->contrast > 0)
        return err_set(err, ERR_INPUT, "contrast: this head's second branch predicts the token after the next, which is used "
                       "only if one forward drafts the last two levels; leave out parallel=0");
    mine->second = !none && (params->second_next ? wanted->contrast != 0 : wanted->parallel != 0);
    mine->base.ends = !mine->second ? NULL : params->second_next ? "contrast=0" : "parallel=0";
    if (wanted->contrast >= 0 && !none)
        params->second = wanted->contrast ? HEAD_SECOND_CONTRAST : HEAD_SECOND_SUM;
    return 0;
}

static int choose_branches(struct head_drafter *mine, struct head_params *params, const struct drafter_setup *setup,
                           struct err *err)
{
    mine->source.beside = setup->choice == DRAFT_BRANCHES && setup->filter.temperature > 0;
    if (setup->choice == DRAFT_BRANCHES && params->kind != HEAD_JAKIRO_STAR)
        return err_set(err, ERR_INPUT, "the head is of kind %s, but --accept jakiro-star works only with kind jakiro_star; "
                       "choose another --accept", head_kind_name(params->kind));
    if (mine->wanted.scaled >= 0 && params->kind != HEAD_JAKIRO_STAR)
        return err_set(err, ERR_INPUT, "scaled: applies to draft heads of kind jakiro_star only; leave it out");
    if (mine->wanted.scaled >= 0)
        params->scaled = mine->wanted.scaled;
    return choose_second(mine, params, err);
}

/* Opens the network: a head's file, or the prediction layers of the model itself. */
static int open_network(struct head_drafter *mine, const struct model *model, const struct drafter_setup *setup,
                        struct err *err)
{
    const struct engine_setup *target = engine_config(setup->target);
    const struct head_params *file = model_head(model);
    struct head_params params = file ? *file : (struct head_params){.kind = HEAD_MTP};
    const struct head_setup head = {.model = model, .target = setup->target, .params = file ? &params : NULL,
                                    .max_rows = HEAD_ROWS_MAX,
                                    .max_logit_rows = file && file->kind == HEAD_MEDUSA ? 1 : DRAFT_ASKED_MAX};
    int64_t bytes = 0;
    if (choose_branches(mine, &params, setup, err))
        return err_at(err, "%s", model_path(model));
    if (head_open(&mine->head, &head, err))
        return -1;
    mine->params = head_description(mine->head);
    if (states_open(&mine->states, target->device, mine->params, &mine->base.features, err))
        return -1;
    for (int i = 0; i < model_tensor_count(model); i++)
        bytes += file || model_tensor_at(model, i)->layer >= mine->params->target.layers
            ? (int64_t)model_tensor_at(model, i)->bytes : 0;
    mine->early = mine->params->kind == HEAD_KANGAROO;
    mine->part.layers = mine->early ? mine->params->state[0] + 1 : 0;
    const bool beside = mine->source.beside;
    const int rows = mine->early && target->max_rows < HEAD_ROWS_MAX ? target->max_rows : HEAD_ROWS_MAX;
    mine->source = (struct draft_source){
        .path = model_path(model), .fault = "its weights, or the states of the target, are damaged",
        .vocab = mine->params->target.vocab, .logits = mine->params->draft_vocab, .target_id = mine->params->target_id,
        .branches = mine->second || beside ? 2 : 1, .second_next = mine->params->second_next, .beside = beside,
        .max_rows = rows,
        .max_logit_rows = DRAFT_ASKED_MAX, .positions = setup->positions,
        .ranks = !head_ranks(mine->head) ? 0
                 : mine->params->draft_vocab < HEAD_BEST_MAX ? mine->params->draft_vocab : HEAD_BEST_MAX,
        .levels = mine->params->heads, .nodes = head_nodes, .room = head_room, .read = head_read_rows};
    describe_cost(mine, bytes);
    if (draft_rows_init(&mine->rows, &mine->base, setup, &mine->source, err))
        return -1;
    return mine->params->heads ? guess_open(&mine->guess, mine->head, mine->rows.ranked, err) : 0;
}

static int open_head(struct head_drafter *mine, const char *file, const struct drafter_setup *setup, struct err *err)
{
    if (model_open_head(&mine->model, file, err))
        return -1;
    if (head_check_target(model_head(mine->model), model_identity(engine_config(setup->target)->model), false, err))
        return err_at(err, "%s", file);
    return open_network(mine, mine->model, setup, err);
}

static int head_open_drafter(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err)
{
    const char *file;
    double stop;
    struct head_settings wanted;
    if (spec_text(spec, "file", NULL, &file, err) || spec_float(spec, "stop", 0, 0, 1, &stop, err) ||
        spec_int(spec, "parallel", -1, 0, 1, &wanted.parallel, err) ||
        spec_int(spec, "contrast", -1, 0, 1, &wanted.contrast, err) ||
        spec_int(spec, "scaled", -1, 0, 1, &wanted.scaled, err) || spec_end(spec, err))
        return -1;
    if (!file)
        return err_set(err, ERR_INPUT, "head: no file is given; write head:file=FILE");
    if (stop > 0 && setup->choice == DRAFT_BRANCHES)
        return err_set(err, ERR_INPUT, "head: stop cannot be combined with --accept jakiro-star, whose published program does "
                       "not stop early; leave out one of the two");
    struct head_drafter *mine = mem_alloc(1, sizeof *mine, err);
    if (!mine)
        return -1;
    mine->target = setup->target;
    mine->wanted = wanted;
    if (open_head(mine, file, setup, err)) {
        head_free_drafter(&mine->base);
        return -1;
    }
    mine->rows.stop = stop;
    *out = &mine->base;
    return 0;
}

static int mtp_open_drafter(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err)
{
    int depth;
    double stop;
    if (spec_int(spec, "depth", 0, 1, MTP_DEPTH_MAX, &depth, err) || spec_float(spec, "stop", 0, 0, 1, &stop, err) ||
        spec_end(spec, err))
        return -1;
    struct head_drafter *mine = mem_alloc(1, sizeof *mine, err);
    if (!mine)
        return -1;
    mine->target = setup->target;
    mine->wanted = (struct head_settings){-1, -1, -1};
    if (open_network(mine, engine_config(setup->target)->model, setup, err)) {
        head_free_drafter(&mine->base);
        return err_at(err, "mtp");
    }
    mine->source.levels = depth;
    mine->rows.stop = stop;
    *out = &mine->base;
    return 0;
}

const struct drafter_class drafter_head = {
    .name = "head",
    .summary = "a small network that reads the model's states (EAGLE, Jakiro, Medusa, Hydra, Kangaroo)",
    .settings = "file=FILE,stop=P,parallel=0|1,contrast=0|1,scaled=0|1",
    .draws = true,
    .branches = true,
    .pends = true,
    .open = head_open_drafter,
    .propose = head_propose,
    .review = head_review,
    .observe = head_observe,
    .commit = head_commit_text,
    .begin = head_begin_text,
    .free = head_free_drafter,
};

const struct drafter_class drafter_mtp = {
    .name = "mtp",
    .summary = "the model's own layers that predict further tokens",
    .settings = "depth=N,stop=P",
    .draws = true,
    .pends = true,
    .open = mtp_open_drafter,
    .propose = head_propose,
    .review = head_review,
    .observe = head_observe,
    .commit = head_commit_text,
    .begin = head_begin_text,
    .free = head_free_drafter,
};
