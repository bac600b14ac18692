#include "common/decode/forced.h"

#include <stddef.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/policy/recorded_way.h"
#include "kernels/plain/accept.h"

struct source {
    struct recording *recording;        /* NULL: not requested */
    const struct recorded_text *text;   /* recorded text of the current prompt */
    const char *path;
};

struct forced {
    struct watch watch;
    struct draft_script script;
    int prompt_tokens;
    struct source routes, accept;
    bool borrows;                       /* the recordings belong to another object (`like`) */
    int moe_layers, top_k;
    int32_t *expert;                    /* [moe_layers][rows][top_k] */
    size_t room;
};

static int check_tokens(const struct source *source, const int32_t *token, size_t count, const struct hparams *shape,
                        struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (token[i] < 0 || token[i] >= shape->vocab)
            return err_set(err, ERR_INPUT, "%s: token %d is outside the model's vocabulary of %d tokens; use a recording of "
                           "this model", source->path, (int)token[i],
                           shape->vocab);
    return 0;
}

static int check_vocabulary(const struct source *source, const struct hparams *shape, struct err *err)
{
    const struct recording *all = source->recording;
    for (size_t t = 0; t < all->texts; t++)
        if (check_tokens(source, all->text[t].token, (size_t)all->text[t].tokens, shape, err))
            return -1;
    return check_tokens(source, all->token, all->rows, shape, err);
}

static int check_routes(const struct source *routes, const struct hparams *shape, struct err *err)
{
    const struct stream_model *model = &routes->recording->header.model;
    if (model->moe_layers != hparams_moe_layers(shape) || model->experts != shape->router.experts ||
        model->top_k != shape->router.top_k || !model->moe_layers)
        return err_set(err, ERR_INPUT, "%s: has routes of %d layers with %d of %d experts per token, but the model has %d "
                       "layers with %d of %d; use a recording of this model",
                       routes->path, model->moe_layers, model->top_k, model->experts, hparams_moe_layers(shape),
                       shape->router.top_k, shape->router.experts);
    return 0;
}

static int open_routes(struct source *routes, const char *path, const struct hparams *shape, struct err *err)
{
    routes->path = path;
    return path && (recording_read_chains(&routes->recording, path, false, err) || check_routes(routes, shape, err) ||
                    check_vocabulary(routes, shape, err)) ? -1 : 0;
}

static int open_accept(struct source *accept, const char *path, bool drafts, const struct hparams *shape, struct err *err)
{
    accept->path = path;
    if (!path)
        return 0;
    return (drafts ? recording_read_chains(&accept->recording, path, true, err)
                   : recording_read(&accept->recording, path, err)) || check_vocabulary(accept, shape, err) ? -1 : 0;
}

static int scripted_children(const struct draft_script *script, int drafter, int position, const int32_t *way, int depth,
                             int count, int32_t *token, float *log_probability, bool *ends, struct err *err);

int forced_open(struct forced **out, const char *routes, const char *accept, bool drafts, const struct hparams *shape,
                const struct forced *like, struct err *err)
{
    struct forced *forced = mem_alloc(1, sizeof *forced, err);
    if (!forced)
        return -1;
    forced->moe_layers = hparams_moe_layers(shape);
    forced->top_k = shape->router.top_k;
    forced->script.children = scripted_children;
    if (like) {
        forced->routes = like->routes;
        forced->accept = like->accept;
        forced->borrows = true;
    } else if (open_routes(&forced->routes, routes, shape, err) || open_accept(&forced->accept, accept, drafts, shape, err)) {
        forced_close(&forced);
        return -1;
    }
    *out = forced;
    return 0;
}

void forced_close(struct forced **forced)
{
    if (!*forced)
        return;
    if (!(*forced)->borrows) {
        recording_free(&(*forced)->routes.recording);
        recording_free(&(*forced)->accept.recording);
    }
    mem_free(&(*forced)->expert);
    mem_free(forced);
}

/* Finds the recorded text of a prompt; *out is NULL without a recording. */
static int find_text(const struct source *source, const int32_t *prompt, int count, const struct recorded_text **out,
                     struct err *err)
{
    *out = NULL;
    for (size_t t = 0; source->recording && !*out && t < source->recording->texts; t++) {
        const struct recorded_text *text = &source->recording->text[t];
        if (text->prompt_tokens == count && !memcmp(text->prompt, prompt, (size_t)count * sizeof *prompt) && text->tokens > 1)
            *out = text;
    }
    if (source->recording && !*out)
        return err_set(err, ERR_INPUT,
                       "%s: contains no answer of at least two tokens to this prompt; decode the prompts that were recorded",
                       source->path);
    return 0;
}

int forced_find(const struct forced *forced, const int32_t *prompt, int count, struct err *err)
{
    const struct recorded_text *text;
    return find_text(&forced->routes, prompt, count, &text, err) || find_text(&forced->accept, prompt, count, &text, err) ? -1
                                                                                                                          : 0;
}

int forced_begin(struct forced *forced, const int32_t *prompt, int count, struct err *err)
{
    forced->prompt_tokens = count;
    return find_text(&forced->routes, prompt, count, &forced->routes.text, err) ||
           find_text(&forced->accept, prompt, count, &forced->accept.text, err) ? -1 : 0;
}

int forced_tokens(const struct forced *forced) { return forced->accept.text ? forced->accept.text->tokens : -1; }

const int32_t *forced_text(const struct forced *forced) { return forced->accept.text->token; }

/* Returns the experts [moe_layers][top_k] of the token `depth` levels below token `at` of the answer. */
static const int32_t *experts_at(const struct source *routes, int at, int depth)
{
    const struct recording *all = routes->recording;
    int positions = routes->text->tokens - 1;
    const struct recorded_position *position = &all->position[routes->text->position + (size_t)(at % positions)];
    size_t row = position->row + (size_t)depth;
    if (depth >= position->n)
        row = all->position[routes->text->position + (size_t)((at + depth) % positions)].row;
    return all->expert + row * all->width;
}

/* Sets the forced experts of each row of the forward. The root is the last token of the text so far. */
static int before(struct watch *watch, struct sequence *sequence, struct batch *batch, struct decode_iteration *iteration,
                  struct err *err)
{
    struct forced *forced = (struct forced *)watch;
    size_t rows = (size_t)batch->rows, top_k = (size_t)forced->top_k;
    int at = iteration->position - forced->prompt_tokens;
    (void)sequence;
    if (mem_grow(&forced->expert, &forced->room, (size_t)forced->moe_layers * rows * top_k, sizeof *forced->expert, err))
        return -1;
    for (size_t row = 0; row < rows; row++) {
        int depth = 0;
        for (int above = iteration->record.node_parents[row]; above >= 0; above = iteration->record.node_parents[above])
            depth++;
        const int32_t *experts = experts_at(&forced->routes, at, depth);
        for (size_t layer = 0; layer < (size_t)forced->moe_layers; layer++)
            memcpy(forced->expert + (layer * rows + row) * top_k, experts + layer * top_k, top_k * sizeof *experts);
    }
    batch->forced = forced->expert;
    return 0;
}

struct watch *forced_watch(struct forced *forced)
{
    static const struct watch_class class = {.before = before};
    forced->watch.class = &class;
    return forced->routes.recording ? &forced->watch : NULL;
}

int forced_accept(const struct forced *forced, int at, const struct draft_tree *tree, int32_t *path, int32_t *emitted)
{
    const int32_t *text = forced_text(forced) + at;
    int left = forced_tokens(forced) - at, accepted = 0;
    for (int node = -1;; accepted++) {
        emitted[accepted] = text[accepted];
        node = accept_child(tree->token, tree->parent, tree->nodes, node, text[accepted]);
        if (node < 0 || accepted + 1 == left)
            return accepted;
        path[accepted] = node;
    }
}

/* ---- the drafters' recorded proposals ---- */

const struct draft_script *forced_script(const struct forced *forced)
{
    return forced->accept.recording ? &forced->script : NULL;
}

/* Returns whether the drafter was asked for tokens below a node of its recorded draft. */
static bool drafted_below(const struct recording *all, const struct recorded_draft *draft, int at)
{
    return all->trees ? all->asked[draft->row + (size_t)at] > 0 : at + 1 < draft->n || draft->n - 1 < all->length;
}

/* Finds the recorded node to continue from. Prefers the draft recorded at the root, because a drafter that reads its own
 * tokens continues that draft. */
static struct recorded_node find_node(const struct recorded_way *way)
{
    const int right = recorded_way_matches(way);
    struct recorded_node found;
    for (int on = 0; on <= right; on++)
        if (recorded_way_find(way, on, &found) && drafted_below(way->all, &way->all->draft[found.draft], found.at))
            return found;
    return recorded_way_guess(way);
}

static int scripted_children(const struct draft_script *script, int drafter, int position, const int32_t *way, int depth,
                             int count, int32_t *token, float *log_probability, bool *ends, struct err *err)
{
    const struct forced *forced = (const struct forced *)((const char *)script - offsetof(struct forced, script));
    const struct recording *all = forced->accept.recording;
    const struct recorded_text *text = forced->accept.text;
    const struct recorded_way here = {all, text, position - text->prompt_tokens, drafter, way, depth};
    int found = 0, first = 0;
    *ends = false;
    if (here.at < 0 || here.at >= text->tokens - 1)
        return 0;
    const struct recorded_node node = find_node(&here);
    const struct recorded_draft *draft = &all->draft[node.draft];
    for (int at = node.at + 1; at < draft->n && found < count; at++) {
        if ((all->trees ? all->parent[draft->row + (size_t)at] : at - 1) != node.at)
            continue;
        first = first ? first : at;
        token[found] = all->token[draft->row + (size_t)at];
        log_probability[found++] = all->log_probability[draft->row + (size_t)at];
    }
    const int asked = all->trees ? all->asked[draft->row + (size_t)node.at] : 1;
    if (asked && found == asked && asked < count)
        return err_set(err, ERR_INPUT, "%s: the tree needs %d tokens after a node of depth %d, but only %d were recorded; "
                       "record with a larger tree", forced->accept.path, count,
                       depth, asked);
    *ends = first && drafted_below(all, draft, first) && !recorded_child(all, draft, first, -1);
    return found;
}

int forced_check(const struct forced *forced, const struct drafters *drafters, const struct drafter_setup *setup, bool chains,
                 struct err *err)
{
    const struct recording *all = forced->accept.recording;
    for (int i = 0; all && i < drafters->count; i++) {
        const struct drafter *drafter = drafters->item[i];
        if (!drafter->class->draws)
            continue;
        if (i >= all->drafters)
            return err_set(err, ERR_INPUT, "%s: contains drafts of %d %s, but %s is drafter number %d; record with as many "
                           "drafters",
                           forced->accept.path, all->drafters, all->drafters == 1 ? "drafter" : "drafters",
                           drafter->class->name, i + 1);
        if (drafter->learns)
            return err_set(err, ERR_INPUT, "%s replays recorded drafts, which a search cannot improve; leave search out",
                           drafter->class->name);
        if (setup->proposals)
            return err_set(err, ERR_INPUT, "%s replays recorded drafts, which have no probabilities for --overlap; leave "
                           "--overlap out",
                           drafter->class->name);
        if (!chains && !all->trees)
            return err_set(err, ERR_INPUT, "%s: contains chains, but %s is to draft trees; record with the same --tree",
                           forced->accept.path, drafter->class->name);
    }
    return 0;
}

/* ---- the recorded drafts as a drafter ---- */

struct recorded_drafter {
    struct drafter base;
    const struct forced *forced;
    int tokens;                         /* current length of the text, prompt included */
};

static int recorded_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                            int tokens, struct err *err)
{
    const struct recorded_drafter *mine = (const struct recorded_drafter *)drafter;
    const struct recording *all = mine->forced->accept.recording;
    const struct recorded_text *text = mine->forced->accept.text;
    int at = mine->tokens - text->prompt_tokens - 1, node = -1, before = tree->nodes;
    (void)err;
    if (leaves < 1 || leaf->node >= 0 || at < 0 || at >= text->tokens - 1)
        return 0;
    const struct recorded_position *position = &all->position[text->position + (size_t)at];
    for (int k = 1; k < position->n && k <= tokens; k++) {
        node = draft_tree_add(tree, node, all->token[position->row + (size_t)k],
                              all->log_probability[position->row + (size_t)k],
                              mine->base.number);
        if (node < 0)
            break;
    }
    return tree->nodes - before;
}

static int recorded_commit(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    (void)token, (void)err;
    ((struct recorded_drafter *)drafter)->tokens += count;
    return 0;
}

static int recorded_begin(struct drafter *drafter, const struct draft_text *text, struct err *err)
{
    (void)text, (void)err;
    ((struct recorded_drafter *)drafter)->tokens = 0;
    return 0;
}

static void recorded_free(struct drafter *drafter) { mem_free(&drafter); }

static const struct drafter_class recorded = {
    .name = "recorded",
    .summary = "the drafts of a recording",
    .propose = recorded_propose,
    .commit = recorded_commit,
    .begin = recorded_begin,
    .free = recorded_free,
};

int forced_drafter(struct forced *forced, struct drafter **out, struct err *err)
{
    struct recorded_drafter *drafter = mem_alloc(1, sizeof *drafter, err);
    if (!drafter)
        return -1;
    drafter->base.class = &recorded;
    drafter->forced = forced;
    *out = &drafter->base;
    return 0;
}
