/* EAGLE-1 (arXiv 2401.15077), whose network EAGLE-2 (2406.16858) also uses, and EAGLE-3 (2503.01840). */
#include "common/head/internal.h"

/* Returns whether the batch has true states; otherwise rows read the head's own output. */
static bool reads_states(const struct head_pass *pass)
{
    return pass->batch->state.address != 0;
}

/* Computes x = joint [E(token); state] + bias, which attention reads without a norm. */
int head_enter_pair(struct head_pass *pass, struct err *err)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    (void)err;
    head_embed(pass, head->pair, 2 * hidden);
    if (reads_states(pass))
        head_gather(pass, pass->batch->state, pass->batch->state_rows, hidden, head->state_row,
                    head_columns(head->pair, hidden), 2 * hidden, hidden);
    else
        head_recycle(pass, head_columns(head->pair, hidden), 2 * hidden);
    head_linear(pass, head->pair, &head->weights.joint, head->weights.joint_bias, head->space.x, hidden, false);
    pass->reads = head->space.x;
    return 0;
}

/* Runs the feed-forward network; there is no norm before the output head. */
static int eagle1_leave(struct head_pass *pass, const struct layer *layer, struct err *err)
{
    if (layer_ffn(layer, err))
        return -1;
    pass->branch[0] = pass->head->space.x;
    return 0;
}

/* Computes x = g: joint [states]. The states may be normalised first: each by itself, or their concatenation, or both. */
static void join_states(struct head_pass *pass)
{
    struct head *head = pass->head;
    const struct head_params *params = head->params;
    const int each = params->target.hidden, width = params->states * each;
    const uint64_t bytes = (uint64_t)pass->batch->state_rows * (uint64_t)each * sizeof(float);
    for (int i = 0; i < params->states; i++) {
        struct buffer part = head_columns(head->joined, i * each);
        head_gather(pass, buffer_part(pass->batch->state, (uint64_t)i * bytes, bytes), pass->batch->state_rows, each,
                    head->state_row, part, width, each);
        if (params->state_norms)
            head_norm(pass, part, width, head->weights.state_norm[i], part, width, each);
    }
    if (params->states_norm)
        head_norm(pass, head->joined, width, head->weights.states_norm, head->joined, width, width);
    head_linear(pass, head->joined, &head->weights.joint, head->weights.joint_bias, head->space.x, head->shape->hidden, false);
}

/* Computes the input of attention, [embed_norm E(token); hidden_norm g]; the residual is g, or with normed_residual
 * hidden_norm g. */
static int eagle3_enter(struct head_pass *pass, struct err *err)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    (void)err;
    if (reads_states(pass))
        join_states(pass);
    else
        head_recycle(pass, head->space.x, hidden);
    head_embed(pass, head->embedded, hidden);
    head_norm(pass, head->embedded, hidden, head->weights.embed_norm, head->pair, 2 * hidden, hidden);
    head_norm(pass, head->space.x, hidden, head->weights.hidden_norm, head_columns(head->pair, hidden), 2 * hidden, hidden);
    if (head->params->normed_residual)
        head_norm(pass, head->space.x, hidden, head->weights.hidden_norm, head->space.x, hidden, hidden);
    pass->reads = head->pair;
    return 0;
}

/* Runs the feed-forward network. The output head reads the output of final_norm. Later rows continue from the input of
 * final_norm, or with normed_output from its output. */
static int eagle3_leave(struct head_pass *pass, const struct layer *layer, struct err *err)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    if (layer_ffn(layer, err))
        return -1;
    if (head->params->normed_output)
        head_norm(pass, head->space.x, hidden, head->weights.final_norm, head->space.x, hidden, hidden);
    pass->branch[0] = head->space.x;
    return 0;
}

const struct head_class head_eagle1 = {.kind = HEAD_EAGLE1, .branches = 1, .enter = head_enter_pair, .leave = eagle1_leave};
const struct head_class head_eagle3 = {.kind = HEAD_EAGLE3, .branches = 1, .enter = eagle3_enter, .leave = eagle3_leave};
