#include "common/draft/rows.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/plain/branches.h"

int draft_rows_init(struct draft_rows *rows, struct drafter *drafter, const struct drafter_setup *setup,
                    struct draft_source *source, struct err *err)
{
    const size_t wide = source->beside ? 2 : 1;
    rows->drafter = drafter;
    rows->setup = *setup;
    rows->source = source;
    if (setup->filter.temperature <= 0)
        rows->setup.choice = DRAFT_BEST;
    rows->setup.proposals = rows->setup.choice == DRAFT_DRAWN || source->beside ||
                            (setup->proposals && rows->setup.choice == DRAFT_COUPLED);
    rows->vocab = source->target_id || source->logits > setup->vocab ? setup->vocab : source->logits;
    if (rows->setup.choice == DRAFT_BEST && setup->filter.temperature <= 0 && !rows->setup.proposals &&
        (source->target_id || source->logits <= setup->vocab))
        rows->ranked = source->ranks < DRAFT_CHILDREN_MAX ? source->ranks : DRAFT_CHILDREN_MAX;
    if (rows->ranked && source->branches > 1 &&
        !(rows->second_ranking = mem_alloc(DRAFT_ROWS_MAX, sizeof *rows->second_ranking, err)))
        return -1;
    if (source->target_id && !(rows->spread = mem_alloc((size_t)rows->vocab, sizeof *rows->spread, err)))
        return -1;
    rows->row = mem_alloc(DRAFT_ROWS_MAX, sizeof *rows->row, err);
    rows->root = mem_alloc((size_t)rows->vocab, sizeof *rows->root, err);
    rows->kept = mem_alloc(wide * (size_t)rows->vocab, sizeof *rows->kept, err);
    rows->value = mem_alloc(wide * (size_t)setup->vocab, sizeof *rows->value, err);
    if (source->beside && !(rows->both = mem_alloc(wide * (size_t)rows->vocab, sizeof *rows->both, err)))
        return -1;
    return rows->row && rows->root && rows->kept && rows->value ? 0 : -1;
}

void draft_rows_free(struct draft_rows *rows)
{
    for (int row = 0; row < DRAFT_ROWS_MAX; row++) {
        mem_free(&rows->proposal[row]);
        mem_free(&rows->second[row]);
    }
    mem_free(&rows->second_ranking);
    mem_free(&rows->row);
    mem_free(&rows->root);
    mem_free(&rows->spread);
    mem_free(&rows->kept);
    mem_free(&rows->value);
    mem_free(&rows->both);
}

void draft_rows_forget(struct draft_rows *rows)
{
    rows->rows = rows->batch_rows = rows->logit_rows = 0;
}

/* Returns logits in the order of the target's vocabulary; tokens that the source does not have get -infinity. */
static const float *in_order(struct draft_rows *rows, const float *logits)
{
    const struct draft_source *source = rows->source;
    if (!source->target_id)
        return logits;
    for (int token = 0; token < rows->vocab; token++)
        rows->spread[token] = -INFINITY;
    for (int i = 0; i < source->logits; i++)
        rows->spread[source->target_id[i]] = logits[i];
    return rows->spread;
}

static void keep_root(struct draft_rows *rows, const float *logits)
{
    memcpy(rows->root, in_order(rows, logits), (size_t)rows->vocab * sizeof *rows->root);
}

static int keep_second(struct draft_rows *rows, int row, const float *logits, struct err *err)
{
    if (!rows->second[row] && !(rows->second[row] = mem_alloc((size_t)rows->vocab, sizeof **rows->second, err)))
        return -1;
    memcpy(rows->second[row], in_order(rows, logits), (size_t)rows->vocab * sizeof **rows->second);
    rows->has_second[row] = 1;
    return 0;
}

static void begin_rows(struct draft_rows *rows, int32_t token)
{
    const struct sample_draw here = propose_apart(&rows->draw, (uint32_t)rows->length);
    draft_rows_forget(rows);
    rows->row[0] = (struct draft_row){.token = token, .node = -1,
                                      .key = propose_apart(&here, (uint32_t)rows->drafter->number).key};
    rows->rows = 1;
    rows->has_second[0] = 0;
}

void draft_rows_root(struct draft_rows *rows, int32_t token, const float *logits)
{
    begin_rows(rows, token);
    if (logits) {
        keep_root(rows, logits);
        return;
    }
    rows->row[0].node = rows->source->nodes(rows->source);
    rows->batch_token[rows->batch_rows] = token;
    rows->batch_parent[rows->batch_rows] = -1;
    rows->logit_row[rows->logit_rows++] = rows->batch_rows++;
}

int draft_rows_root_second(struct draft_rows *rows, const float *logits, struct err *err)
{
    return keep_second(rows, 0, logits, err);
}

static int refuse_logits(const struct draft_rows *rows, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: logits are not finite; %s", rows->source->path, rows->source->fault);
}

/* Copies a list of the most likely tokens without those of probability 0. Equal logits are ordered by id, as in
 * propose_tokens. An empty list is an error: logits are not finite. */
static int rank(const struct draft_rows *rows, const struct draft_best *from, int count, struct draft_ranking *out,
                struct err *err)
{
    for (out->found = 0; out->found < count && from->token[out->found] >= 0 &&
         from->log_probability[out->found] > -INFINITY; out->found++) {
        out->best[out->found] = from->token[out->found];
        out->log_probability[out->found] = from->log_probability[out->found];
    }
    return out->found ? 0 : refuse_logits(rows, err);
}

static void set_children(const struct draft_rows *rows, int at, const struct draft_ranking *ranking)
{
    struct draft_row *row = &rows->row[at];
    row->found = ranking->found;
    memcpy(row->best, ranking->best, sizeof row->best);
    memcpy(row->log_probability, ranking->log_probability, sizeof row->log_probability);
    row->doubtful = rows->stop > 0 && exp((double)ranking->log_probability[0]) < rows->stop;
}

/* Returns whether the requested nodes are on the last level but one and are predicted by the second branch. */
static bool guessed_by_second(const struct draft_rows *rows)
{
    return rows->source->second_next && rows->source->branches > 1 && rows->levels == 2;
}

static int keep_best(struct draft_rows *rows, int at, const struct draft_best *branch, int count, bool second, struct err *err)
{
    struct draft_ranking ranking = {.found = 0};
    if (rank(rows, &branch[at && guessed_by_second(rows)], count, &ranking, err))
        return -1;
    set_children(rows, at, &ranking);
    rows->has_second[at] = second;
    return second ? rank(rows, &branch[1], count, &rows->second_ranking[at], err) : 0;
}

int draft_rows_root_best(struct draft_rows *rows, int32_t token, const struct draft_best *branch, struct err *err)
{
    begin_rows(rows, token);
    return keep_best(rows, 0, branch, rows->ranked, rows->source->branches > 1, err);
}

int draft_rows_child(const struct draft_rows *rows, int row, int32_t token)
{
    int child = rows->row[row].child;
    while (child && rows->row[child].token != token)
        child = rows->row[child].sibling;
    return child;
}

static int have_proposal(struct draft_rows *rows, int at, struct err *err)
{
    const size_t wide = rows->source->beside ? 2 : 1;
    if (!rows->proposal[at])
        rows->proposal[at] = mem_alloc(wide * (size_t)rows->setup.vocab, sizeof **rows->proposal, err);
    return rows->proposal[at] ? 0 : -1;
}

/* Stores the distribution that a row's children are drawn from. With their own noise (DRAFT_DRAWN) it also gives their
 * log-probabilities. */
static int keep_proposal(struct draft_rows *rows, int at, const float *logits, struct err *err)
{
    struct draft_row *row = &rows->row[at];
    if (have_proposal(rows, at, err))
        return -1;
    sample_probabilities(logits, rows->vocab, &rows->setup.filter, rows->kept, rows->value);
    for (int token = 0; token < rows->vocab; token++)
        rows->proposal[at][token] = (float)rows->value[token];
    for (int child = 0; rows->setup.choice == DRAFT_DRAWN && child < row->found; child++)
        row->log_probability[child] = (float)log(rows->value[row->best[child]]);
    return 0;
}

/* Returns whether the most likely token is less probable than `limit`. SWIFT's rule uses the softmax of the unscaled logits
 * at any temperature. */
static bool likeliest_below(const float *logits, int vocab, double limit)
{
    float max = -INFINITY;
    double sum = 0;
    for (int token = 0; token < vocab; token++)
        max = logits[token] > max ? logits[token] : max;
    for (int token = 0; token < vocab; token++)
        sum += exp((double)logits[token] - (double)max);
    return 1 / sum < limit;
}

/* Ranks the children of a row from both branches; the second branch's logits were kept. */
static int rank_branches(struct draft_rows *rows, int at, const float *logits, struct err *err)
{
    struct draft_row *row = &rows->row[at];
    const float *const branch[2] = {logits, rows->second[at]};
    struct sample_draw draw = rows->draw;
    draw.position = (uint32_t)(rows->length + row->depth);
    draw.key = row->key;
    if (have_proposal(rows, at, err))
        return -1;
    row->ranked = row->asked;
    row->found = branches_propose(branch, rows->vocab, &rows->setup.filter, &draw, row->asked, rows->kept, rows->value,
                                  rows->both, row->best, row->log_probability, rows->proposal[at], rows->setup.vocab);
    return row->found ? 0 : refuse_logits(rows, err);
}

/* Ranks the children of a row by its logits, as many as were requested. */
static int rank_children(struct draft_rows *rows, int at, const float *logits, struct err *err)
{
    struct draft_row *row = &rows->row[at];
    const bool drawn = rows->setup.choice == DRAFT_DRAWN;
    struct sample_draw draw = rows->draw;
    if (rows->source->beside)
        return rank_branches(rows, at, logits, err);
    draw.position = (uint32_t)(rows->length + row->depth);
    if (drawn)
        draw.key = row->key;
    row->ranked = row->asked;
    row->found = propose_tokens(logits, rows->vocab, &rows->setup.filter, rows->setup.choice == DRAFT_BEST ? NULL : &draw,
                                row->asked, rows->kept, rows->value, row->best,
                                rows->setup.probabilities && !drawn ? row->log_probability : NULL);
    if (!row->found)
        return refuse_logits(rows, err);
    row->doubtful = rows->stop > 0 && likeliest_below(logits, rows->vocab, rows->stop);
    return rows->setup.proposals ? keep_proposal(rows, at, logits, err) : 0;
}

/* Adds a row that the source does not compute. */
static int add_unread(struct draft_rows *rows, int parent, int32_t token)
{
    struct draft_row *row = &rows->row[rows->rows];
    row->token = token;
    row->parent = parent;
    row->child = row->asked = row->found = row->ranked = 0;
    row->doubtful = false;
    row->sibling = rows->row[parent].child;
    row->depth = rows->row[parent].depth + 1;
    row->node = DRAFT_UNREAD;
    row->key = propose_apart(&(struct sample_draw){.key = rows->row[parent].key}, (uint32_t)token).key;
    rows->row[parent].child = rows->rows;
    rows->has_second[rows->rows] = 0;
    return rows->rows++;
}

static int add_row(struct draft_rows *rows, int parent, int32_t token)
{
    const int row = add_unread(rows, parent, token);
    rows->row[row].node = rows->source->nodes(rows->source) + rows->batch_rows;
    rows->batch_token[rows->batch_rows] = token;
    rows->batch_parent[rows->batch_rows++] = rows->row[parent].node;
    return row;
}

/* Returns whether the rows on the path to a node fit into the source's levels, the row table, the source's nodes, its
 * context, and one reading. */
static bool has_room(const struct draft_rows *rows, int depth)
{
    const struct draft_source *source = rows->source;
    return (!source->levels || depth < source->levels) && rows->rows + depth <= DRAFT_ROWS_MAX &&
           rows->length + depth <= source->positions && rows->batch_rows + depth <= source->room(source) &&
           rows->batch_rows + depth <= source->max_rows;
}

/* Returns whether all tokens of a path are in this source's vocabulary; another drafter's tokens may not be. */
static bool can_read(const struct draft_rows *rows, const int32_t *path, int depth)
{
    for (int at = 0; at < depth; at++)
        if (path[at] >= rows->source->vocab)
            return false;
    return true;
}

/* Returns the row of a leaf, whose children are ranked once the forward has run; -1: there is no room for it, or the source
 * cannot read it. Rows on the path that were not read yet (another drafter's nodes) are added to the batch. */
static int want_leaf(struct draft_rows *rows, const struct draft_tree *tree, const struct draft_leaf *leaf)
{
    int32_t path[ENGINE_ROWS_MAX];
    int depth = draft_tree_path(tree, leaf->node, path, ENGINE_ROWS_MAX), row = 0, next;
    int asked = leaf->siblings < DRAFT_CHILDREN_MAX ? leaf->siblings : DRAFT_CHILDREN_MAX;
    if (!has_room(rows, depth) || !can_read(rows, path, depth))
        return -1;
    for (int at = 0; at < depth; at++) {
        next = draft_rows_child(rows, row, path[at]);
        if (next && (rows->row[next].node == DRAFT_UNREAD || (at == depth - 1 && rows->row[next].asked < asked)))
            next = 0;                   /* the row was read, but its logits were not kept: reads it again */
        row = next ? next : add_row(rows, row, path[at]);
    }
    if (rows->row[row].asked < asked) {
        rows->row[row].asked = asked;
        if (row)
            rows->logit_row[rows->logit_rows++] = rows->batch_rows - 1;
    }
    return row;
}

/* Returns the row of a leaf on the last level but one, whose children come from the second branch of its parent's row; 0:
 * the leaf is not of this kind. */
static int leaf_by_second(struct draft_rows *rows, const struct draft_tree *tree, const struct draft_leaf *leaf)
{
    int32_t path[ENGINE_ROWS_MAX];
    int row = 0;
    if (rows->levels != 1 || rows->source->branches < 2 || rows->source->second_next || rows->source->beside ||
        leaf->node < 0 || rows->rows == DRAFT_ROWS_MAX)
        return 0;
    const int depth = draft_tree_path(tree, leaf->node, path, ENGINE_ROWS_MAX);
    for (int at = 0; at < depth - 1; at++)
        if (!(row = draft_rows_child(rows, row, path[at])))
            return 0;
    if (!rows->has_second[row])
        return 0;
    const int last = add_unread(rows, row, path[depth - 1]);
    rows->row[last].asked = leaf->siblings < DRAFT_CHILDREN_MAX ? leaf->siblings : DRAFT_CHILDREN_MAX;
    return last;
}

/* Receives the logits of a row of the batch (callback). */
static int take_logits(void *context, int which, const float *const *logits, struct err *err)
{
    struct draft_rows *rows = context;
    const int row = rows->rows - rows->batch_rows + rows->logit_row[which];
    const bool second = guessed_by_second(rows);
    if (rows->source->branches > 1 && logits[1] && !second && keep_second(rows, row, logits[1], err))
        return -1;
    if (row)
        return rank_children(rows, row, in_order(rows, logits[second]), err);
    keep_root(rows, logits[0]);
    return 0;
}

/* Receives the most likely tokens of a row of the batch, in place of its logits (callback). */
static int take_best(void *context, int which, const struct draft_best *branch, int count, struct err *err)
{
    struct draft_rows *rows = context;
    const int row = rows->rows - rows->batch_rows + rows->logit_row[which];
    return keep_best(rows, row, branch, count,
                     rows->levels == 2 && rows->source->branches > 1 && !rows->source->second_next, err);
}

/* Returns how many children the rows of the batch need. The root and second branches get the maximum, since more may be
 * requested later. */
static int best_wanted(const struct draft_rows *rows)
{
    const int first = rows->rows - rows->batch_rows;
    const bool second = rows->levels == 2 && rows->source->branches > 1 && !rows->source->second_next;
    int wanted = rows->ranked && second ? rows->ranked : 0;
    for (int i = 0; rows->ranked && i < rows->logit_rows; i++) {
        const int row = first + rows->logit_row[i], asked = row ? rows->row[row].asked : rows->ranked;
        wanted = asked > wanted ? asked : wanted;
    }
    return wanted < rows->ranked ? wanted : rows->ranked;
}

static int read_batch(struct draft_rows *rows, struct err *err)
{
    const struct draft_reading reading = {.rows = rows->batch_rows, .token = rows->batch_token, .parent = rows->batch_parent,
                                          .logit_row = rows->logit_row, .logit_rows = rows->logit_rows, .take = take_logits,
                                          .branches = rows->levels == 2 || rows->source->beside ? rows->source->branches : 1,
                                          .context = rows,
                                          .best = best_wanted(rows), .take_best = take_best};
    int64_t bytes = 0;
    int rc = reading.rows ? rows->source->read(rows->source, &reading, &bytes, err) : 0;
    rows->batch_rows = rows->logit_rows = 0;
    rows->drafter->bytes += bytes;
    if (rc)
        return -1;
    const float *root = guessed_by_second(rows) && rows->has_second[0] ? rows->second[0] : rows->root;
    return !rows->ranked && rows->row[0].ranked < rows->row[0].asked ? rank_children(rows, 0, root, err) : 0;
}

/* Reads as many of leaves[count] as one forward can. row[]: their rows, -1 for leaves that cannot be read. Returns the
 * number of leaves processed. */
static int read_leaves(struct draft_rows *rows, const struct draft_tree *tree, const struct draft_leaf *leaf, int count,
                       int *row, struct err *err)
{
    const int max = rows->source->max_logit_rows;
    int done = 0;
    if (rows->logit_rows == max && read_batch(rows, err))      /* possible only if the batch is the root alone */
        return -1;
    while (done < count && (!done || rows->logit_rows < max)) {
        int depth = leaf[done].node < 0 ? 0 : tree->depth[leaf[done].node];
        if (rows->batch_rows && rows->batch_rows + depth > rows->source->max_rows && done)
            break;
        row[done] = want_leaf(rows, tree, &leaf[done]);
        done++;
        if (rows->logit_rows == max)
            break;
    }
    return read_batch(rows, err) ? -1 : done;
}

/* Replaces a row's children by those of the script. Called each time the children are used, because a row may be ranked
 * again. */
static int follow_script(struct draft_rows *rows, int at, int count, struct err *err)
{
    const struct draft_script *script = rows->setup.script;
    struct draft_row *row = &rows->row[at];
    int32_t way[DRAFT_ROWS_MAX];
    bool ends;
    if (!script)
        return 0;
    for (int above = at; above; above = rows->row[above].parent)
        way[rows->row[above].depth - 1] = rows->row[above].token;
    row->found = script->children(script, rows->drafter->number, rows->length - 1, way, row->depth,
                                  count < DRAFT_CHILDREN_MAX ? count : DRAFT_CHILDREN_MAX, row->best, row->log_probability,
                                  &ends, err);
    row->doubtful = row->found > 0 && (ends || (rows->stop > 0 && rows->setup.filter.temperature <= 0 &&
                                                exp((double)row->log_probability[0]) < rows->stop));
    return row->found < 0 ? -1 : 0;
}

/* Adds the children of a leaf to the tree, and writes those that are to be extended to next[room]; returns their number. */
static int add_children(const struct draft_rows *rows, struct draft_tree *tree, const struct draft_leaf *leaf, int at,
                        struct draft_leaf *next, int room)
{
    const struct draft_row *row = &rows->row[at];
    const bool known = rows->setup.probabilities;
    int added = 0;
    for (int child = 0; child < row->found && child < leaf->siblings && added < room; child++) {
        int nodes = tree->nodes;
        int node = draft_tree_add(tree, leaf->node, row->best[child], known ? row->log_probability[child] : NAN,
                                  rows->drafter->number);
        if (node < 0)
            break;
        if (node == nodes && rows->setup.proposals)
            tree->proposal[node] = rows->proposal[at];
        next[added++] = (struct draft_leaf){node, 1};
    }
    return added;
}

/* Returns whether a leaf is this drafter's own node and the draft ends at it. */
static bool ends_at(const struct draft_rows *rows, const struct draft_tree *tree, int node)
{
    int32_t path[ENGINE_ROWS_MAX];
    int row = 0;
    if ((rows->stop <= 0 && !rows->setup.script) || node < 0 || tree->drafter[node] != rows->drafter->number)
        return false;
    int depth = draft_tree_path(tree, node, path, ENGINE_ROWS_MAX);
    for (int at = 0; at < depth - 1; at++)
        if (!(row = draft_rows_child(rows, row, path[at])))
            return false;
    return rows->row[row].found && rows->row[row].doubtful;
}

/* Extends all leaves by one level. Children are written to next[], which has room for as many nodes as the tree. */
static int extend(struct draft_rows *rows, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                  struct draft_leaf *next, struct err *err)
{
    int row[DRAFT_ASKED_MAX], found = 0, count;
    if (rows->ranked && guessed_by_second(rows) && leaves && leaf->node < 0 && rows->has_second[0])
        set_children(rows, 0, &rows->second_ranking[0]);
    for (int from = 0; from < leaves; from += count) {
        count = leaves - from < DRAFT_ASKED_MAX ? leaves - from : DRAFT_ASKED_MAX;
        if (ends_at(rows, tree, leaf[from].node)) {
            count = 1;
            continue;
        }
        for (int at = 1; at < count; at++)
            if (ends_at(rows, tree, leaf[from + at].node))
                count = at;
        if ((row[0] = leaf_by_second(rows, tree, &leaf[from]))) {
            count = 1;
            const int parent = rows->row[row[0]].parent;
            if (rows->ranked)
                set_children(rows, row[0], &rows->second_ranking[parent]);
            else if (rank_children(rows, row[0], rows->second[parent], err))
                return -1;
        } else if ((count = read_leaves(rows, tree, &leaf[from], count, row, err)) < 0) {
            return -1;
        }
        for (int at = 0; at < count; at++) {
            if (row[at] < 0)
                continue;
            if (follow_script(rows, row[at], leaf[from + at].siblings, err))
                return -1;
            found += add_children(rows, tree, &leaf[from + at], row[at], next + found, tree->capacity - found);
        }
    }
    return found;
}

int draft_rows_propose(struct draft_rows *rows, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                       struct err *err)
{
    struct draft_leaf *list[2] = {NULL, NULL};
    int before = tree->nodes, rc = -1;
    for (int which = 0; which < 2; which++)
        if (!(list[which] = mem_alloc((size_t)tree->capacity, sizeof **list, err)))
            goto done;
    for (int level = 0; level < tokens && leaves > 0; level++) {
        rows->levels = tree->levels > level ? tree->levels - level : 0;
        leaves = extend(rows, tree, leaf, leaves, list[level & 1], err);
        leaf = list[level & 1];
    }
    rc = leaves < 0 ? -1 : tree->nodes - before;
done:
    mem_free(&list[0]);
    mem_free(&list[1]);
    return rc;
}

/* The nodes of a review: the leaf and all nodes below it, with the row of each. */
struct reviewed {
    struct draft_leaf *leaf;            /* [1 + nodes] the first is the leaf of the review */
    int *row;                           /* [1 + nodes] row of each leaf; -1: no room for it */
    int32_t *way;                       /* [1 + nodes] nodes of the tree that the review keeps */
    int count;
};

static int reviewed_make(struct reviewed *reviewed, const struct draft_tree *tree, int leaf, struct err *err)
{
    const size_t room = 1 + (size_t)tree->nodes;
    if (!(reviewed->leaf = mem_alloc(room, sizeof *reviewed->leaf, err)) ||
        !(reviewed->row = mem_alloc(room, sizeof *reviewed->row, err)) ||
        !(reviewed->way = mem_alloc(room, sizeof *reviewed->way, err)))
        return -1;
    reviewed->leaf[reviewed->count++] = (struct draft_leaf){leaf, 1};
    for (int node = leaf + 1; node < tree->nodes; node++)
        if (draft_tree_is_below(tree, node, leaf))
            reviewed->leaf[reviewed->count++] = (struct draft_leaf){node, 1};
    return 0;
}

static void reviewed_free(struct reviewed *reviewed)
{
    mem_free(&reviewed->leaf);
    mem_free(&reviewed->row);
    mem_free(&reviewed->way);
}

/* Returns the index of the child of a reviewed node that carries the token; -1: none. */
static int reviewed_child(const struct reviewed *reviewed, const struct draft_tree *tree, int from, int32_t token)
{
    for (int at = from + 1; at < reviewed->count; at++)
        if (tree->parent[reviewed->leaf[at].node] == reviewed->leaf[from].node && tree->token[reviewed->leaf[at].node] == token)
            return at;
    return -1;
}

/* Returns this drafter's own token after a row; -1: none. */
static int32_t choice_after(const struct draft_rows *rows, int row)
{
    return row >= 0 && rows->row[row].found ? rows->row[row].best[0] : -1;
}

/* Records in a node its probability as this drafter's choice after a row. */
static void mark(const struct draft_rows *rows, struct draft_tree *tree, int node, int row)
{
    tree->log_probability[node] = rows->setup.probabilities ? rows->row[row].log_probability[0] : NAN;
    tree->proposal[node] = rows->setup.proposals ? rows->proposal[row] : NULL;
}

/* Follows the drafter's own choices through the reviewed nodes, drops all other nodes, and adds its own next token. */
static int follow(const struct draft_rows *rows, struct draft_tree *tree, struct reviewed *reviewed, int *agreed,
                  struct err *err)
{
    const int *row = reviewed->row;
    int at = 0, last;
    for (int next; choice_after(rows, row[at]) >= 0; at = next) {
        next = reviewed_child(reviewed, tree, at, choice_after(rows, row[at]));
        if (next < 0)
            break;
        mark(rows, tree, reviewed->leaf[next].node, row[at]);
        tree->reviewer[reviewed->leaf[next].node] = rows->drafter->number;
        reviewed->way[(*agreed)++] = reviewed->leaf[next].node;
    }
    if (draft_tree_follow(tree, reviewed->leaf[0].node, reviewed->way, *agreed, &last, err))
        return -1;
    const int32_t choice = choice_after(rows, row[at]);
    int node = choice < 0 ? -1 : draft_tree_add(tree, last, choice, NAN, rows->drafter->number);
    if (node < 0)
        return 0;
    mark(rows, tree, node, row[at]);
    return 1;
}

int draft_rows_review(struct draft_rows *rows, struct draft_tree *tree, int leaf, int *agreed, struct err *err)
{
    struct reviewed reviewed = {.count = 0};
    int rc = reviewed_make(&reviewed, tree, leaf, err);
    *agreed = 0;
    rows->levels = 0;
    for (int done = 0, count; !rc && done < reviewed.count; done += count)
        if ((count = read_leaves(rows, tree, reviewed.leaf + done, reviewed.count - done, reviewed.row + done, err)) < 0)
            rc = -1;
    for (int at = 0; !rc && at < reviewed.count; at++)
        rc = reviewed.row[at] < 0 ? 0 : follow_script(rows, reviewed.row[at], 1, err);
    if (!rc)
        rc = follow(rows, tree, &reviewed, agreed, err);
    reviewed_free(&reviewed);
    return rc;
}
