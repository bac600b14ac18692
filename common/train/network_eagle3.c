/* The networks of EAGLE-3, a head that in training reads its own outputs over several steps, and of Kangaroo. */
#include "common/train/network_internal.h"

/* Computes g of model/head.h: the target's states, concatenated and projected. */
static struct variable *joined_states(const struct pass *pass)
{
    const struct head_params *head = pass->network->head;
    struct variable *parts[HEAD_STATES_MAX];
    for (int i = 0; i < head->states; i++)
        parts[i] = pass_state(pass, i);
    return op_linear(pass->tape, op_join(pass->tape, parts, head->states), find_pass_weight(pass, ROLE_JOINT, -1, 0), NULL);
}

/* Runs the layer of one step over h. Returns its output before the final norm. */
static struct variable *step_of(const struct pass *pass, struct variable *h, struct variable **qkv, int step)
{
    struct tape *tape = pass->tape;
    const float epsilon = pass->network->shape->norm_epsilon;
    struct variable *parts[] = {
        op_norm(tape, pass_embedding(pass, step + 1), find_pass_weight(pass, ROLE_EMBED_NORM, -1, 0), epsilon),
        op_norm(tape, h, find_pass_weight(pass, ROLE_HIDDEN_NORM, -1, 0), epsilon)};
    return pass_dense(pass, op_add(tape, h, pass_attention(pass, op_join(tape, parts, 2), qkv, step)));
}

int network_eagle3(const struct pass *pass)
{
    struct network *n = pass->network;
    const struct head_params *head = n->head;
    const struct loss_settings *s = &n->settings;
    struct variable *h = joined_states(pass), *qkv[LEARN_STEPS_MAX];
    struct judged judged[LEARN_STEPS_MAX];
    struct soft_target target = pass_soft_target(pass);
    const double each = 1 / ((double)pass_whole(pass)->texts * (double)pass_whole(pass)->longest);
    double scale = 1;
    for (int step = 0; step < s->steps; step++, scale *= s->decay) {
        struct rows_judged rows;
        if (!(h = step_of(pass, h, qkv, step)) || pass_rows(pass, step, step + 1, &rows))
            return -1;
        rows_weigh(pass, &rows, each);
        judged[step] = (struct judged){
            op_norm(pass->tape, h, find_pass_weight(pass, ROLE_FINAL_NORM, -1, 0), n->shape->norm_epsilon), rows.target_row,
            rows.weight, (float)scale, pass_sum(pass, pass_part(pass, "step", step))};
    }
    target.output = find_pass_weight(pass, ROLE_HEAD, -1, 0);
    target.word = head->target_id;
    target.words = head->draft_vocab;
    if (loss_soft(pass->tape, &target, judged, s->steps) || pass_collect(pass))
        return -1;
    scale = 1;
    for (int step = 0; step < s->steps; step++, scale *= s->decay)
        pass->losses->total += scale * pass->losses->part[step].value;
    return 0;
}

int network_kangaroo(const struct pass *pass)
{
    struct network *n = pass->network;
    struct tape *tape = pass->tape;
    const struct train_batch *b = pass->batch;
    struct variable *qkv[1];
    struct rows_judged rows;
    int *next = tape_memory(tape, (size_t)b->rows, sizeof *next);
    if (!next || pass_rows(pass, 0, 1, &rows))
        return -1;
    for (int text = 0; text < b->texts; text++)
        for (int row = b->offset[text]; row < b->offset[text + 1]; row++)
            next[row] = row + 1 < b->offset[text + 1] ? row + 1 : -1;
    struct variable *a = op_select(tape, pass_state(pass, 0), next, b->rows);
    struct variable *normed = op_norm(tape, a, find_pass_weight(pass, ROLE_ATTENTION_NORM, 0, 0), n->shape->norm_epsilon);
    struct variable *u = op_add(tape, a, pass_attention(pass, normed, qkv, 0));
    struct variable *out = op_norm(tape, u, find_pass_weight(pass, ROLE_FINAL_NORM, -1, 0), n->shape->norm_epsilon);
    const struct soft_target target = pass_soft_target(pass);
    if (rows.count > 0)
        rows_weigh(pass, &rows, 1 / rows.count);
    const struct judged judged = {out, rows.target_row, rows.weight, 1, pass_sum(pass, pass_part(pass, "token", -1))};
    if (loss_soft(tape, &target, &judged, 1) || pass_collect(pass))
        return -1;
    pass->losses->total = pass->losses->part[0].value;
    return 0;
}
