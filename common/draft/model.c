/* A smaller model drafts: it decodes ahead with a KV cache of its own, on the target's device.
 *
 * Its cache holds the text but for what came since it was last asked; that is read in one forward when it is asked again,
 * whose last row is the root's. Nodes of a draft that it has read are ROWS behind it, a tree by tokens, so that rows are
 * found again whatever becomes of the draft's own nodes; what of them is accepted stays in the cache. Leaves of a level are
 * read in one forward.
 *
 * The draft model must have the target's tokenizer. Its vocabulary may be padded otherwise: tokens that the target does not
 * have are not proposed, and after a token that the draft model does not have, or where its context ends, it is silent. */
#include "common/draft/drafter.h"

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/engine/companion.h"
#include "kernels/plain/propose.h"

#include <math.h>
#include <string.h>

enum { ROWS_MAX = 1 + ENGINE_ROWS_MAX, CHILDREN_MAX = 64, ASKED_MAX = 64 };

struct row {
    int32_t token;
    int parent, child, sibling;         /* rows; child: the newest, sibling: the one before it; 0: none */
    int depth;                          /* the root's is 0 */
    uint64_t key;                       /* of the random numbers that its children are drawn with, under DRAFT_DRAWN */
    int asked, found;                   /* children: asked for, 0: no logits were wanted; and what there is of them */
    int32_t best[CHILDREN_MAX];
    float log_probability[CHILDREN_MAX];
};

struct model_drafter {
    struct drafter base;
    struct drafter_setup setup;
    struct companion *companion;
    struct engine *engine;              /* the companion's */
    struct sequence *sequence;          /* NULL before the first text */
    int vocab;                          /* of target and draft the smaller */
    struct draft_text text;
    int32_t *token;                     /* the text */
    size_t token_room;
    int length;
    bool lost;                          /* the text has a token that the draft model does not know */
    struct row *row;                    /* [ROWS_MAX] row 0 is the root; pending node i of the sequence is row i + 1 */
    int rows;                           /* 0: the root was not read yet */
    float *proposal[ROWS_MAX];          /* each [setup.vocab], made when first needed; for setup.proposals */
    float *root;                        /* [vocab] logits behind the root, in case it is asked again */
    int32_t *kept;                      /* scratch: [vocab] */
    double *value;                      /* [vocab], and proposals [setup.vocab] */
    /* The forward that is being put together. */
    int32_t batch_token[ROWS_MAX], batch_parent[ROWS_MAX], logit_row[ASKED_MAX];
    int batch_rows, logit_rows;
};

static void model_free_drafter(struct drafter *drafter)
{
    struct model_drafter *mine = (struct model_drafter *)drafter;
    for (int row = 0; row < ROWS_MAX; row++)
        mem_free(&mine->proposal[row]);
    sequence_close(&mine->sequence);
    companion_close(&mine->companion);
    mem_free(&mine->token);
    mem_free(&mine->row);
    mem_free(&mine->root);
    mem_free(&mine->kept);
    mem_free(&mine->value);
    mem_free(&mine);
}

/* A budget of the draft model's own experts. */
static int check_plan(const struct expert_plan *plan, const struct engine *engine, const char *file, struct err *err)
{
    const struct hparams *shape = engine_hparams(engine);
    int layers = hparams_moe_layers(shape);
    if (plan && (plan->moe_layers != layers || plan->experts != shape->router.experts))
        return err_set(err, ERR_INPUT, "%s: the budget is for %d layers of %d experts, this draft model has %d of %d; leave "
                       "--budget-phase draft out", file, plan->moe_layers, plan->experts, layers, shape->router.experts);
    return 0;
}

static int model_open_drafter(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err)
{
    const char *file;
    if (spec_text(spec, "file", NULL, &file, err))
        return -1;
    if (!file)
        return spec_end(spec, err) ? -1 : err_set(err, ERR_INPUT, "model: which one? write model:file=FILE");
    struct model_drafter *mine = mem_alloc(1, sizeof *mine, err);
    if (!mine)
        return -1;
    mine->setup = *setup;
    if (setup->filter.temperature <= 0)
        mine->setup.choice = DRAFT_BEST;
    mine->setup.proposals = mine->setup.choice == DRAFT_DRAWN || (setup->proposals && mine->setup.choice == DRAFT_COUPLED);
    if (companion_open(&mine->companion, file, setup->target, ENGINE_ROWS_MAX, ASKED_MAX, err))
        goto failed;
    mine->engine = companion_engine(mine->companion);
    if (check_plan(setup->plan, mine->engine, file, err))
        goto failed;
    mine->vocab = engine_hparams(mine->engine)->vocab;
    mine->vocab = mine->vocab < setup->vocab ? mine->vocab : setup->vocab;
    mine->row = mem_alloc(ROWS_MAX, sizeof *mine->row, err);
    mine->root = mem_alloc((size_t)mine->vocab, sizeof *mine->root, err);
    mine->kept = mem_alloc((size_t)mine->vocab, sizeof *mine->kept, err);
    mine->value = mem_alloc((size_t)setup->vocab, sizeof *mine->value, err);
    if (!mine->row || !mine->root || !mine->kept || !mine->value)
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
    int most = engine_max_positions(mine->engine), tokens = text->tokens < most ? text->tokens : most, old = 0;
    mine->text = *text;
    mine->length = mine->rows = 0;
    mine->lost = false;
    if (mine->sequence) {
        old = sequence_capacity(mine->sequence) - ENGINE_ROWS_MAX;
        if (old >= tokens)
            return sequence_truncate(mine->sequence, 0, err);
    }
    int room = old < most / 2 ? 2 * old : most;             /* so that growing prompts do not each cost a new one */
    sequence_close(&mine->sequence);
    return sequence_open(&mine->sequence, mine->engine, (room < tokens ? tokens : room) + ENGINE_ROWS_MAX, err);
}

/* The child of a row that carries the token; 0: none was read. */
static int find_child(const struct model_drafter *mine, int row, int32_t token)
{
    int child = mine->row[row].child;
    while (child && mine->row[child].token != token)
        child = mine->row[child].sibling;
    return child;
}

/* What was drafted, read and accepted stays in the cache; but not the last token, whose logits the next draft wants. */
static int keep_accepted(struct model_drafter *mine, const int32_t *token, int count, struct err *err)
{
    int32_t path[ENGINE_ROWS_MAX];
    int kept = 0;
    for (int row = 0; kept < count - 1; kept++) {
        row = find_child(mine, row, token[kept]);
        if (!row)
            break;
        path[kept] = row - 1;
    }
    mine->rows = 0;
    return sequence_commit(mine->sequence, path, kept, err);
}

static int model_commit(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    struct model_drafter *mine = (struct model_drafter *)drafter;
    if (mem_grow(&mine->token, &mine->token_room, (size_t)mine->length + (size_t)count, sizeof *mine->token, err) ||
        (mine->rows && count && keep_accepted(mine, token, count, err)))
        return -1;
    for (int at = 0; at < count; at++) {
        mine->lost |= token[at] >= engine_hparams(mine->engine)->vocab;
        mine->token[mine->length++] = token[at];
    }
    return 0;
}

static int count_bytes(void *context, const struct forward *piece, int position, struct err *err)
{
    (void)position, (void)err;
    ((struct model_drafter *)context)->base.bytes += piece->bytes;
    return 0;
}

/* Writes down what the children of a row are drawn from; with noise of their own, that is also how likely they are. */
static int keep_proposal(struct model_drafter *mine, int at, const float *logits, struct err *err)
{
    struct row *row = &mine->row[at];
    if (!mine->proposal[at]) {
        mine->proposal[at] = mem_alloc((size_t)mine->setup.vocab, sizeof **mine->proposal, err);
        if (!mine->proposal[at])
            return -1;
    }
    sample_probabilities(logits, mine->vocab, &mine->setup.filter, mine->kept, mine->value);
    for (int token = 0; token < mine->vocab; token++)
        mine->proposal[at][token] = (float)mine->value[token];
    for (int child = 0; mine->setup.choice == DRAFT_DRAWN && child < row->found; child++)
        row->log_probability[child] = (float)log(mine->value[row->best[child]]);
    return 0;
}

/* From the logits behind a row to its children, as many as were asked for. */
static int rank_children(struct model_drafter *mine, int at, const float *logits, struct err *err)
{
    struct row *row = &mine->row[at];
    const bool drawn = mine->setup.choice == DRAFT_DRAWN;
    struct sample_draw draw = mine->text.draw;
    draw.position = (uint32_t)(mine->length + row->depth);
    if (drawn)
        draw.key = row->key;
    row->found = propose_tokens(logits, mine->vocab, &mine->setup.filter, mine->setup.choice == DRAFT_BEST ? NULL : &draw,
                                row->asked, mine->kept, mine->value, row->best,
                                mine->setup.probabilities && !drawn ? row->log_probability : NULL);
    if (!row->found)
        return err_set(err, ERR_INPUT, "%s: logits are not finite; the draft model's weights are damaged",
                       model_path(engine_made_from(mine->engine)->model));
    return mine->setup.proposals ? keep_proposal(mine, at, logits, err) : 0;
}

/* Reads what came since the last draft; the root is row 0 then. */
static int catch_up(struct model_drafter *mine, struct err *err)
{
    int cached = sequence_length(mine->sequence);
    const struct batch options = {.plan = cached ? mine->setup.plan : NULL};     /* as with the target, not in the prompt */
    struct forward forward;
    double began = clock_seconds();
    if (engine_prompt(mine->engine, mine->sequence, mine->token + cached, mine->length - cached, &options, count_bytes, mine,
                      &forward, err))
        return -1;
    memcpy(mine->root, forward.logits + (size_t)(forward.logit_rows - 1) * (size_t)forward.vocab,
           (size_t)mine->vocab * sizeof *mine->root);
    const struct sample_draw here = propose_apart(&mine->text.draw, (uint32_t)mine->length);
    mine->row[0] = (struct row){.token = mine->token[mine->length - 1],
                                .key = propose_apart(&here, (uint32_t)mine->base.number).key};
    mine->rows = 1;
    mine->base.read += mine->length - cached;
    mine->base.read_s += clock_seconds() - began;
    return 0;
}

static int add_row(struct model_drafter *mine, int parent, int32_t token)
{
    struct row *row = &mine->row[mine->rows];
    row->token = token;
    row->parent = parent;
    row->child = row->asked = row->found = 0;
    row->sibling = mine->row[parent].child;
    row->depth = mine->row[parent].depth + 1;
    row->key = propose_apart(&(struct sample_draw){.key = mine->row[parent].key}, (uint32_t)token).key;
    mine->row[parent].child = mine->rows;
    mine->batch_token[mine->batch_rows] = token;
    mine->batch_parent[mine->batch_rows++] = parent - 1;
    return mine->rows++;
}

/* The row of a leaf with its children ranked once the forward has run; -1: there is no room for it. Rows on the way that
 * were not read yet (another drafter's nodes) come along. */
static int want_leaf(struct model_drafter *mine, const struct draft_tree *tree, const struct draft_leaf *leaf)
{
    int32_t path[ENGINE_ROWS_MAX];
    int depth = draft_tree_path(tree, leaf->node, path, ENGINE_ROWS_MAX), row = 0, next;
    int asked = leaf->siblings < CHILDREN_MAX ? leaf->siblings : CHILDREN_MAX;
    if (mine->rows + depth > ROWS_MAX || mine->length + depth > engine_max_positions(mine->engine))
        return -1;
    for (int at = 0; at < depth; at++) {
        next = find_child(mine, row, path[at]);
        if (at == depth - 1 && next && mine->row[next].asked < asked)
            next = 0;                   /* read, but its logits are gone: once more */
        row = next ? next : add_row(mine, row, path[at]);
    }
    if (mine->row[row].asked < asked) {
        mine->row[row].asked = asked;
        if (row)
            mine->logit_row[mine->logit_rows++] = mine->batch_rows - 1;
    }
    return row;
}

static int rank_root(struct model_drafter *mine, struct err *err)
{
    const struct row *root = &mine->row[0];
    return root->found < root->asked ? rank_children(mine, 0, mine->root, err) : 0;
}

static int read_batch(struct model_drafter *mine, struct err *err)
{
    const struct batch batch = {.rows = mine->batch_rows, .token = mine->batch_token, .parent = mine->batch_parent,
                                .logit_row = mine->logit_row, .logit_rows = mine->logit_rows, .plan = mine->setup.plan};
    int first = mine->rows - mine->batch_rows;
    struct forward forward;
    mine->batch_rows = mine->logit_rows = 0;
    if (!batch.rows)
        return 0;
    if (engine_forward(mine->engine, mine->sequence, &batch, &forward, err))
        return -1;
    mine->base.bytes += forward.bytes;
    for (int at = 0; at < forward.logit_rows; at++)
        if (rank_children(mine, first + mine->logit_row[at], forward.logits + (size_t)at * (size_t)forward.vocab, err))
            return -1;
    return 0;
}

/* Adds the children of a leaf to the tree, and what should be continued to next[room]; returns how many that are. */
static int add_children(const struct model_drafter *mine, struct draft_tree *tree, const struct draft_leaf *leaf, int at,
                        struct draft_leaf *next, int room)
{
    const struct row *row = &mine->row[at];
    const bool known = mine->setup.probabilities;
    int added = 0;
    for (int child = 0; child < row->found && child < leaf->siblings && added < room; child++) {
        int nodes = tree->nodes;
        int node = draft_tree_add(tree, leaf->node, row->best[child], known ? row->log_probability[child] : NAN,
                                  mine->base.number);
        if (node < 0)
            break;
        if (node == nodes && mine->setup.proposals)
            tree->proposal[node] = mine->proposal[at];
        next[added++] = (struct draft_leaf){node, 1};
    }
    return added;
}

/* One level: the leaves go through the model, so many at a time as it gives logits for. Children go to next[], which has
 * room for as many as the tree. */
static int extend(struct model_drafter *mine, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                  struct draft_leaf *next, struct err *err)
{
    int row[ASKED_MAX], found = 0;
    for (int from = 0; from < leaves; from += ASKED_MAX) {
        int count = leaves - from < ASKED_MAX ? leaves - from : ASKED_MAX;
        for (int at = 0; at < count; at++)
            row[at] = want_leaf(mine, tree, &leaf[from + at]);
        if (rank_root(mine, err) || read_batch(mine, err))
            return -1;
        for (int at = 0; at < count; at++)
            if (row[at] >= 0)
                found += add_children(mine, tree, &leaf[from + at], row[at], next + found, tree->capacity - found);
    }
    return found;
}

static int model_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                         int tokens, struct err *err)
{
    struct model_drafter *mine = (struct model_drafter *)drafter;
    struct draft_leaf *list[2] = {NULL, NULL};
    int before = tree->nodes, rc = -1;
    if (mine->lost || mine->length < 1 || mine->length > engine_max_positions(mine->engine) || leaves < 1 || tokens < 1)
        return 0;
    for (int which = 0; which < 2; which++)
        if (!(list[which] = mem_alloc((size_t)tree->capacity, sizeof **list, err)))
            goto done;
    if (!mine->rows && catch_up(mine, err))
        goto done;
    for (int level = 0; level < tokens && leaves > 0; level++) {
        leaves = extend(mine, tree, leaf, leaves, list[level & 1], err);
        leaf = list[level & 1];
    }
    rc = leaves < 0 ? -1 : tree->nodes - before;
done:
    mem_free(&list[0]);
    mem_free(&list[1]);
    return rc;
}

/* What it would choose behind the leaf and every node below it: list[] says where, row[] which of its rows those are, -1: its
 * context ends before. Returns how many. */
static int read_below(struct model_drafter *mine, const struct draft_tree *tree, int leaf, struct draft_leaf *list, int *row,
                      struct err *err)
{
    int count = 0;
    list[count++] = (struct draft_leaf){leaf, 1};
    for (int node = leaf + 1; node < tree->nodes; node++)
        if (draft_tree_is_below(tree, node, leaf))
            list[count++] = (struct draft_leaf){node, 1};
    for (int from = 0; from < count; from += ASKED_MAX) {
        for (int at = from; at < count && at < from + ASKED_MAX; at++)
            row[at] = want_leaf(mine, tree, &list[at]);
        if (rank_root(mine, err) || read_batch(mine, err))
            return -1;
    }
    return count;
}

/* The child of a node that carries the token, in list[from ...]; -1: there is none. */
static int listed_child(const struct draft_tree *tree, const struct draft_leaf *list, int from, int count, int32_t token)
{
    for (int at = from + 1; at < count; at++)
        if (tree->parent[list[at].node] == list[from].node && tree->token[list[at].node] == token)
            return at;
    return -1;
}

/* Writes into a node that it is this drafter's choice behind a row. */
static void mark(const struct model_drafter *mine, struct draft_tree *tree, int node, int row)
{
    tree->log_probability[node] = mine->setup.probabilities ? mine->row[row].log_probability[0] : NAN;
    tree->proposal[node] = mine->setup.proposals ? mine->proposal[row] : NULL;
}

static int follow(struct model_drafter *mine, struct draft_tree *tree, int leaf, struct draft_leaf *list, int *row,
                  int32_t *way, int *agreed, struct err *err)
{
    int count = read_below(mine, tree, leaf, list, row, err), at = 0, kept = 0, last;
    if (count < 0)
        return -1;
    for (int next; row[at] >= 0 && mine->row[row[at]].found > 0; at = next) {
        next = listed_child(tree, list, at, count, mine->row[row[at]].best[0]);
        if (next < 0)
            break;
        mark(mine, tree, list[next].node, row[at]);
        tree->reviewer[list[next].node] = mine->base.number;
        way[kept++] = list[next].node;
    }
    if (draft_tree_follow(tree, leaf, way, kept, &last, err))
        return -1;
    *agreed = kept;
    if (row[at] < 0 || mine->row[row[at]].found < 1)
        return 0;
    int node = draft_tree_add(tree, last, mine->row[row[at]].best[0], NAN, mine->base.number);
    if (node < 0)
        return 0;
    mark(mine, tree, node, row[at]);
    return 1;
}

static int model_review(struct drafter *drafter, struct draft_tree *tree, int leaf, int *agreed, struct err *err)
{
    struct model_drafter *mine = (struct model_drafter *)drafter;
    const size_t nodes = (size_t)tree->nodes + 1;
    struct draft_leaf *list = NULL;
    int32_t *way = NULL;
    int *row = NULL, rc = -1;
    *agreed = 0;
    if (mine->lost || mine->length < 1 || mine->length > engine_max_positions(mine->engine))
        return 0;
    list = mem_alloc(nodes, sizeof *list, err);
    way = mem_alloc(nodes, sizeof *way, err);
    row = mem_alloc(nodes, sizeof *row, err);
    if (list && way && row && (mine->rows || !catch_up(mine, err)))
        rc = follow(mine, tree, leaf, list, row, way, agreed, err);
    mem_free(&list);
    mem_free(&way);
    mem_free(&row);
    return rc;
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
