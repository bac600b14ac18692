/* The networks of Medusa and Hydra: several heads, each of which predicts one token. */
#include "common/train/network_internal.h"

/* Returns the state that the heads read: the normalised output of Hydra's prefix layer, or without one the target's state. */
static struct variable *states_of(const struct pass *pass)
{
    struct tape *tape = pass->tape;
    const float epsilon = pass->network->shape->norm_epsilon;
    struct variable *f = pass_final(pass), *qkv[1];
    if (!pass->network->head->prefix)
        return f;
    struct variable *normed = op_norm(tape, f, find_pass_weight(pass, ROLE_ATTENTION_NORM, 0, 0), epsilon);
    struct variable *u = op_add(tape, f, pass_attention(pass, normed, qkv, 0));
    return op_norm(tape, pass_dense(pass, u), find_pass_weight(pass, ROLE_FINAL_NORM, -1, 0), epsilon);
}

/* The rows at which head i predicts a token of an answer, and these tokens. */
struct answers {
    int *row;
    int32_t *token;
    int count;
};

static int answers_of(const struct pass *pass, int i, struct answers *out)
{
    const struct train_batch *b = pass->batch;
    *out = (struct answers){tape_memory(pass->tape, (size_t)b->rows, sizeof(int)),
                            tape_memory(pass->tape, (size_t)b->rows, sizeof(int32_t)), 0};
    if (!out->row || !out->token)
        return -1;
    for (int text = 0; text < b->texts; text++)
        for (int row = b->offset[text]; row + 2 + i < b->offset[text + 1]; row++)
            if (b->mask[row + 2 + i]) {
                out->row[out->count] = row;
                out->token[out->count++] = b->token[row + 2 + i];
            }
    return 0;
}

/* Returns x + silu(linear x). In Hydra's first block x is first multiplied by a matrix of its own. */
static struct variable *block_of(const struct pass *pass, struct variable *x, int head, int block)
{
    struct tape *tape = pass->tape;
    struct variable *residual = find_pass_weight(pass, ROLE_RESIDUAL, head, 0);
    struct variable *inner = op_silu(tape, op_linear(tape, x, find_pass_weight(pass, ROLE_BLOCK, head, block),
                                                  find_pass_weight(pass, ROLE_BLOCK_BIAS, head, block)));
    if (block == 0 && residual)
        x = op_linear(tape, x, residual, find_pass_weight(pass, ROLE_RESIDUAL_BIAS, head, 0));
    return op_add(tape, x, inner);
}

int network_guesses(const struct pass *pass)
{
    const struct head_params *head = pass->network->head;
    struct variable *state = states_of(pass), *embedding[HEAD_HEADS_MAX];
    for (int i = 0; head->kind == HEAD_HYDRA && i < head->heads; i++)
        if (!(embedding[i] = pass_embedding(pass, i + 1)))
            return -1;
    for (int i = 0; i < head->heads; i++) {
        struct variable *parts[HEAD_HEADS_MAX + 1];
        struct answers answers;
        const int part = pass_part(pass, "head", i);
        int count = 0;
        if (!state || answers_of(pass, i, &answers))
            return -1;
        if (!answers.count)
            continue;
        parts[count++] = op_select(pass->tape, state, answers.row, answers.count);
        for (int e = 0; head->kind == HEAD_HYDRA && e <= i; e++)
            parts[count++] = op_select(pass->tape, embedding[e], answers.row, answers.count);
        struct variable *z = op_join(pass->tape, parts, count);
        for (int block = 0; block < head->blocks; block++)
            z = block_of(pass, z, i, block);
        if (loss_hard(pass->tape, z, find_pass_weight(pass, ROLE_OUTPUT, i, head->blocks),
                      find_pass_weight(pass, ROLE_OUTPUT_BIAS, i, 0), answers.token,
                      (float)(1.0 / (double)pass_whole(pass)->answered[i + 2]), pass_sum(pass, part)))
            return -1;
    }
    if (pass_collect(pass))
        return -1;
    for (int i = 0; i < head->heads; i++)
        pass->losses->total += pass->losses->part[i].value;
    return 0;
}
