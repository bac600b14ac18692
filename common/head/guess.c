/* Medusa (arXiv 2401.10774) and Hydra (2402.05109): heads that guess one token each, all from one state of the text. Hydra's
 * prefix layer, if present, computes this state with one layer over all true states. */
#include "common/head/internal.h"

static int guess_enter(struct head_pass *pass, struct err *err)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    if (!pass->batch->state.address)
        return err_set(err, ERR_INPUT, "%s: this kind of head takes true states only, not rows of drafted tokens",
                       head_kind_name(head->params->kind));
    if (pass->batch->logit_rows)
        return err_set(err, ERR_INPUT, "%s: rows of this kind of head have no logits; call head_guess",
                       head_kind_name(head->params->kind));
    head_gather(pass, pass->batch->state, pass->batch->state_rows, hidden, head->state_row, head->space.x, hidden, hidden);
    return 0;
}

static int guess_leave(struct head_pass *pass, const struct layer *layer, struct err *err)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    if (head->params->prefix) {
        if (layer_ffn(layer, err))
            return -1;
        head_norm(pass, head->space.x, hidden, head->weights.final_norm, head->space.x, hidden, hidden);
    }
    pass->branch[0] = head->space.x;
    return 0;
}

const struct head_class head_medusa = {.kind = HEAD_MEDUSA, .guesses = true, .enter = guess_enter, .leave = guess_leave};
const struct head_class head_hydra = {.kind = HEAD_HYDRA, .guesses = true, .branches = 1, .enter = guess_enter,
                                      .leave = guess_leave};

/* Computes z += silu(linear of in + bias). */
static void add_block(const struct head_pass *pass, struct buffer in, const struct head_guess *guess, int block,
                      struct buffer z)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    head_linear(pass, in, &guess->block[block], guess->block_bias[block], head->pair, hidden, false);
    head->ops->activate(head->queue, &(struct activate_args){
        .in = head->pair, .add = z, .out = z, .activation = ACTIVATION_SILU, .rows = pass->rows->rows, .width = hidden,
        .in_stride = hidden, .add_stride = hidden, .out_stride = hidden});
}

/* Computes joined = [state; E(t) of all tokens up to this head's, oldest first]. */
static void join_tokens(const struct head_pass *pass, int tokens)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden, width = (1 + tokens) * hidden;
    const uint64_t column = (uint64_t)head->setup.max_rows * sizeof(int32_t);
    head_recycle(pass, head->joined, width);
    for (int i = 0; i < tokens; i++)
        head_embed_tokens(pass, buffer_part(head->token, (uint64_t)i * column, column),
                          head_columns(head->joined, (1 + i) * hidden), width);
}

/* Stores the logits of one head at `out`. */
static void put_guess(const struct head_pass *pass, int number, struct buffer out)
{
    struct head *head = pass->head;
    const struct head_guess *guess = &head->weights.guess[number];
    const int hidden = head->shape->hidden;
    const struct buffer z = head->embedded;
    if (head->params->kind == HEAD_HYDRA) {
        join_tokens(pass, 1 + number);
        head_linear(pass, head->joined, &guess->residual, guess->residual_bias, z, hidden, false);
        add_block(pass, head->joined, guess, 0, z);
    } else {
        head_recycle(pass, z, hidden);
        add_block(pass, z, guess, 0, z);
    }
    for (int block = 1; block < head->params->blocks; block++)
        add_block(pass, z, guess, block, z);
    head_linear(pass, z, &guess->output, guess->output_bias, out, head->params->draft_vocab, false);
}

static int64_t guess_bytes(const struct head *head, int number)
{
    const struct head_guess *guess = &head->weights.guess[number];
    uint64_t bytes = guess->residual.data.bytes + guess->residual_bias.bytes + guess->output.data.bytes +
                     guess->output_bias.bytes;
    for (int block = 0; block < head->params->blocks; block++)
        bytes += guess->block[block].data.bytes + guess->block_bias[block].bytes;
    return (int64_t)bytes;
}

static int check_row(const struct head *head, const struct head_guesses *ask, int row, struct err *err)
{
    const int node = ask->node ? (int)ask->node[row] : -1, tokens = 1 + ask->first;
    if (node < -1 || node >= head->kv.pending || (node < 0 && !head->kv.length))
        return err_set(err, ERR_INPUT, "guess %d: its node %d has not been computed yet", row, node);
    for (int i = 0; head->params->kind == HEAD_HYDRA && i < tokens; i++) {
        const int32_t token = ask->token[row * tokens + i];
        if (token < 0 || token >= head->shape->vocab)
            return err_set(err, ERR_INPUT, "token %d is outside the vocabulary of %d tokens", (int)token, head->shape->vocab);
    }
    return 0;
}

static int check(const struct head *head, const struct head_guesses *ask, struct err *err)
{
    if (!head->class->guesses)
        return err_set(err, ERR_INPUT, "%s: this kind of head has no guessing heads", head_kind_name(head->params->kind));
    if (ask->rows < 1 || ask->rows > head->setup.max_logit_rows || ask->first < 0 || ask->heads < 1 ||
        ask->heads > head_branches(head) || ask->first > head->params->heads - ask->heads)
        return err_set(err, ERR_INPUT, "guesses for %d rows by heads %d to %d were requested; the limit is %d rows and %d of "
                       "the %d heads at once",
                       ask->rows, ask->first, ask->first + ask->heads - 1, head->setup.max_logit_rows, head_branches(head),
                       head->params->heads);
    for (int row = 0; row < ask->rows; row++)
        if (check_row(head, ask, row, err))
            return -1;
    return head_check_best(head, ask->best, err);
}

/* Uploads the rows of the states to read and, for Hydra, the tokens column by column. */
static void upload(struct head *head, const struct head_guesses *ask)
{
    const uint64_t column = (uint64_t)head->setup.max_rows * sizeof(int32_t);
    const int tokens = head->params->kind == HEAD_HYDRA ? 1 + ask->first : 0;
    const size_t bytes = (size_t)ask->rows * sizeof(int32_t);
    for (int row = 0; row < ask->rows; row++)
        head->index[row] = ask->node ? 1 + ask->node[row] : 0;
    queue_upload(head->device, head->state_row, head->index, bytes);
    for (int i = 0; i < tokens; i++) {
        for (int row = 0; row < ask->rows; row++)
            head->index[row] = ask->token[row * tokens + i];
        queue_upload(head->device, buffer_part(head->token, (uint64_t)i * column, column), head->index, bytes);
    }
}

int head_guess(struct head *head, const struct head_guesses *ask, struct head_forward *out, struct err *err)
{
    struct layer_rows rows = {.rows = ask->rows};
    const struct head_pass pass = {.head = head, .rows = &rows};
    struct head_forward facts = {.rows = ask->rows, .logit_rows = ask->rows, .vocab = head->params->draft_vocab};
    if (check(head, ask, err))
        return -1;
    const size_t bytes = (size_t)ask->rows * (size_t)facts.vocab * sizeof(float);
    upload(head, ask);
    for (int i = 0; i < ask->heads; i++) {
        put_guess(&pass, ask->first + i, buffer_part(head->logits, (size_t)i * bytes, bytes));
        facts.bytes += guess_bytes(head, ask->first + i);
    }
    head_fetch(head, ask->heads, ask->rows, ask->best, &facts);
    if (queue_wait(head->device, err))
        return -1;
    *out = facts;
    return 0;
}
