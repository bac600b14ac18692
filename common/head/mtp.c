/* The predictors of a model (DeepSeek-V3, arXiv 2412.19437 section 2.2; GLM-4.5; Qwen3-Next) as one head. Module k of
 * K, 1 .. K, computes
 *
 *     row i    x = joint [embed_norm E(token i + k); hidden_norm h], where h is the output of module k - 1 at i, or for k = 1
 *              the target's state after its final norm; one layer of the model's own kind; final_norm of that is the module's
 *              output and the input of the output head: logits of token i + k + 1
 *
 * The report does not say whether states are taken before or after a norm. Here all are taken after it, as in SGLang and in
 * vLLM since 2026.
 *
 * So for n tokens module k has rows 0 .. n - 1 - k. Drafted tokens pass through the modules in turn: module 2 reads the first
 * token after the text, with the output of module 1 for the text's last row, and so on; after the last module the first one
 * continues with the last one's output, as in vLLM. With one module this is EAGLE's procedure. Each module attends to its own
 * rows only. */
#include <string.h>

#include "common/base/mem.h"
#include "common/head/internal.h"

static int mtp_enter(struct head_pass *pass, struct err *err)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    (void)err;
    head_embed(pass, head->embedded, hidden);
    head_norm(pass, head->embedded, hidden, head->weights.embed_norm, head->pair, 2 * hidden, hidden);
    if (pass->batch->state.address)
        head_gather(pass, pass->batch->state, pass->batch->state_rows, hidden, head->state_row, head->embedded, hidden, hidden);
    else
        head_recycle(pass, head->embedded, hidden);
    head_norm(pass, head->embedded, hidden, head->weights.hidden_norm, head_columns(head->pair, hidden), 2 * hidden, hidden);
    head_linear(pass, head->pair, &head->weights.joint, (struct buffer){0, 0}, head->space.x, hidden, false);
    return 0;
}

static int mtp_leave(struct head_pass *pass, const struct layer *layer, struct err *err)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    if (layer_ffn(layer, err))
        return -1;
    head_norm(pass, head->space.x, hidden, head->weights.final_norm, head->space.x, hidden, hidden);
    pass->branch[0] = head->space.x;
    return 0;
}

const struct head_class head_mtp = {.kind = HEAD_MTP, .branches = 1, .enter = mtp_enter, .leave = mtp_leave};

int modules_open(struct head *head, struct err *err)
{
    const struct head_setup *setup = &head->setup;
    struct modules *modules = mem_alloc(1, sizeof *modules, err);
    if (!modules)
        return -1;
    head->modules = modules;
    for (; modules->count < head->shape->predictors; modules->count++)
        if (head_open_network(&modules->module[modules->count], setup, modules->count, err))
            return -1;
    const size_t rows = (size_t)setup->max_logit_rows;
    head->ranks = modules->module[0]->ranks;
    return !(modules->logits = mem_alloc(rows * (size_t)head->shape->vocab, sizeof *modules->logits, err)) ||
           !(modules->best_token = mem_alloc(rows * HEAD_BEST_MAX, sizeof *modules->best_token, err)) ||
           !(modules->best_logp = mem_alloc(rows * HEAD_BEST_MAX, sizeof *modules->best_logp, err)) ? -1 : 0;
}

void modules_close(struct head *head)
{
    if (!head->modules)
        return;
    for (int k = 0; k < head->modules->count; k++)
        head_close(&head->modules->module[k]);
    mem_free(&head->modules->logits);
    mem_free(&head->modules->best_token);
    mem_free(&head->modules->best_logp);
    mem_free(&head->modules);
}

int modules_length(const struct head *head) { return head_length(head->modules->module[0]); }
int modules_pending(const struct head *head) { return head->modules->nodes; }
int modules_capacity(const struct head *head) { return head_capacity(head->modules->module[0]); }

void modules_rollback(struct head *head)
{
    struct modules *modules = head->modules;
    for (int k = 0; k < modules->count; k++)
        head_rollback(modules->module[k]);
    modules->nodes = modules->true_nodes = 0;
}

int modules_begin(struct head *head, int tokens, struct err *err)
{
    modules_rollback(head);
    for (int k = 0; k < head->modules->count; k++)
        if (head_begin(head->modules->module[k], tokens, err))
            return -1;
    return 0;
}

/* Runs true rows through all modules. Row r of the batch is row r - 1 of the text for the next module, which combines this
 * module's output there with the same token. */
static int run_true(struct modules *modules, const struct head_batch *batch, struct head_forward *out, struct err *err)
{
    struct head_forward forward;
    if (modules->nodes || batch->parent)
        return err_set(err, ERR_INPUT, "true rows must form a chain after the text, and no other rows may be pending");
    if (head_run(modules->module[0], batch, out, err))
        return -1;
    modules->skipped[0] = 0;
    for (int k = 1; k < modules->count; k++) {
        const struct head *before = modules->module[k - 1];
        const int skipped = modules->skipped[k] = modules->skipped[k - 1] + (head_length(before) == 0);
        for (int row = skipped; row < batch->rows; row++)
            modules->state[row - skipped] = row - modules->skipped[k - 1];
        const struct head_batch next = {.rows = batch->rows - skipped, .token = batch->token + skipped, .state = before->made,
                                        .state_rows = 1 + HEAD_NODES_MAX, .state_row = modules->state};
        if (next.rows < 1)
            continue;
        if (head_run(modules->module[k], &next, &forward, err))
            return -1;
        out->bytes += forward.bytes;
    }
    modules->nodes = modules->true_nodes = batch->rows;
    return 0;
}

/* Returns the parent node of a row in the row's own module: with M modules the row's M-th ancestor. */
static int32_t node_above(const struct modules *modules, int parent)
{
    for (int step = 1; step < modules->count && parent >= 0; step++)
        parent = modules->parent[parent];
    return parent < 0 ? -1 : modules->own[parent];
}

/* Copies a module's results for some rows to the places of these rows in the whole result. */
static void keep_answers(struct modules *modules, const struct head_batch *part, const struct head_forward *forward)
{
    const size_t vocab = (size_t)forward->vocab, best = (size_t)part->best;
    for (size_t at = 0; at < (size_t)part->logit_rows; at++) {
        const size_t to = (size_t)modules->which[at];
        if (!best) {
            memcpy(modules->logits + to * vocab, forward->logits[0] + at * vocab, vocab * sizeof *modules->logits);
            continue;
        }
        memcpy(modules->best_token + to * best, forward->best[0].token + at * best, best * sizeof *modules->best_token);
        memcpy(modules->best_logp + to * best, forward->best[0].log_probability + at * best,
               best * sizeof *modules->best_logp);
    }
}

/* Runs the rows of one module. */
static int run_module(struct modules *modules, int k, const struct head_batch *batch, struct head_forward *out, struct err *err)
{
    const struct head *before = modules->module[(k + modules->count - 1) % modules->count];
    struct head_batch part = {.token = modules->token, .parent = modules->above, .state_row = modules->state,
                              .logit_row = modules->wanted, .best = batch->best};
    struct head_forward forward;
    if (modules->count > 1) {
        part.state = before->made;
        part.state_rows = 1 + HEAD_NODES_MAX;
    }
    for (int row = 0; row < batch->rows; row++) {
        const int node = modules->nodes + row, parent = modules->parent[node];
        if (modules->depth[node] % modules->count != k)
            continue;
        for (int at = 0; at < batch->logit_rows; at++)
            if ((batch->logit_row ? batch->logit_row[at] : at) == row) {
                modules->which[part.logit_rows] = at;
                modules->wanted[part.logit_rows++] = part.rows;
            }
        modules->token[part.rows] = batch->token[row];
        modules->above[part.rows] = node_above(modules, parent);
        modules->state[part.rows] = parent < 0 ? 0 : 1 + modules->own[parent];
        modules->own[node] = head_pending(modules->module[k]) + part.rows++;
    }
    if (!part.rows)
        return 0;
    if (head_run(modules->module[k], &part, &forward, err))
        return -1;
    keep_answers(modules, &part, &forward);
    out->bytes += forward.bytes;
    return 0;
}

static int check_drafted(const struct head *head, const struct head_batch *batch, struct err *err)
{
    const struct modules *modules = head->modules;
    if (modules->true_nodes || !modules_length(head))
        return err_set(err, ERR_INPUT, "drafted tokens can be computed only after the text, and no true rows may be pending");
    if (!batch->token || batch->rows < 1 || batch->rows > head->setup.max_rows || batch->logit_rows < 0 ||
        batch->logit_rows > head->setup.max_logit_rows || modules->nodes + batch->rows > HEAD_NODES_MAX)
        return err_set(err, ERR_INPUT, "a forward has %d rows and logits of %d, but this head processes at most %d and %d, "
                       "and has %d pending nodes",
                       batch->rows, batch->logit_rows, head->setup.max_rows, head->setup.max_logit_rows, modules->nodes);
    if (head_check_best(head, batch->best, err))
        return -1;
    for (int row = 0; row < batch->rows; row++) {
        const int parent = batch->parent ? (int)batch->parent[row] : modules->nodes + row - 1;
        if (parent < -1 || parent >= modules->nodes)
            return err_set(err, ERR_INPUT, "row %d: its parent has not been computed yet", row);
    }
    return 0;
}

static int run_drafted(struct head *head, const struct head_batch *batch, struct head_forward *out, struct err *err)
{
    struct modules *modules = head->modules;
    if (check_drafted(head, batch, err))
        return -1;
    *out = (struct head_forward){.rows = batch->rows, .logit_rows = batch->logit_rows, .vocab = head->shape->vocab,
                                 .first_node = modules->nodes};
    for (int row = 0; row < batch->rows; row++) {
        const int node = modules->nodes + row, parent = batch->parent ? (int)batch->parent[row] : node - 1;
        modules->parent[node] = parent;
        modules->depth[node] = parent < 0 ? 1 : modules->depth[parent] + 1;
    }
    for (int k = 0; k < modules->count; k++)
        if (run_module(modules, k, batch, out, err))
            return -1;
    modules->nodes += batch->rows;
    if (batch->logit_rows && batch->best)
        out->best[0] = (struct head_best){modules->best_token, modules->best_logp};
    else if (batch->logit_rows)
        out->logits[0] = modules->logits;
    return 0;
}

/* Runs a forward over all modules. If it fails, no module keeps the rows. */
int modules_run(struct head *head, const struct head_batch *batch, struct head_forward *out, struct err *err)
{
    struct modules *modules = head->modules;
    int pending[PREDICTORS_MAX];
    for (int k = 0; k < modules->count; k++)
        pending[k] = modules->module[k]->kv.pending;
    if (!(batch->state.address ? run_true(modules, batch, out, err) : run_drafted(head, batch, out, err)))
        return 0;
    for (int k = 0; k < modules->count; k++)
        modules->module[k]->kv.pending = pending[k];
    return -1;
}

int modules_commit(struct head *head, const int32_t *node, int count, struct err *err)
{
    struct modules *modules = head->modules;
    for (int i = 0; i < count; i++)
        if (node[i] != i || i >= modules->true_nodes)
            return err_set(err, ERR_INPUT, "only true rows can be committed, in order from the first");
    for (int k = 0; k < modules->count; k++) {
        const int kept = count - (modules->true_nodes ? modules->skipped[k] : 0);
        if (head_commit(modules->module[k], node, kept > 0 ? kept : 0, err))
            return -1;
    }
    modules->nodes = modules->true_nodes = 0;
    return 0;
}
