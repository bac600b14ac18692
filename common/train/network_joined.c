/* The networks of EAGLE-1, Jakiro and Jakiro*: heads that concatenate the embedding of the next token with the target's
 * state. */
#include "common/train/network_internal.h"

/* Computes u, the input of the feed-forward network before its norm (common/head/jakiro.c). */
static struct variable *trunk(const struct pass *pass)
{
    struct tape *tape = pass->tape;
    struct variable *parts[] = {pass_embedding(pass, 1), pass_final(pass)}, *qkv[1];
    struct variable *x = op_linear(tape, op_join(tape, parts, 2), find_pass_weight(pass, ROLE_JOINT, -1, 0),
                                find_pass_weight(pass, ROLE_JOINT_BIAS, -1, 0));
    return op_add(tape, x, pass_attention(pass, x, qkv, 0));
}

/* Returns the number of branches that are trained: one for the next token, or another one with Jakiro's second branch. */
static int outputs_of(const struct pass *pass)
{
    const struct head_params *head = pass->network->head;
    return head->kind == HEAD_JAKIRO && head->second != HEAD_SECOND_NONE ? 2 : 1;
}

struct branches {
    struct variable *u, *router, *expert[LEARN_EXPERTS_MAX];
    const struct mix_choice *choice;
    int experts;
};

/* Returns the output of expert e over its rows of y. */
static struct variable *expert_of(const struct pass *pass, const struct branches *b, struct variable *y, int e)
{
    struct tape *tape = pass->tape;
    struct variable *inner, *down;
    if (y && b->choice->count[e] < y->rows)
        y = op_select(tape, y, b->choice->rows_of + (size_t)e * (size_t)y->rows, b->choice->count[e]);
    if (pass->network->head->kind == HEAD_JAKIRO) {
        inner = op_gated(tape, op_linear(tape, y, pass_expert(pass, ROLE_EXPERTS, WEIGHT_GATE_UP, e), NULL));
        down = pass_expert(pass, ROLE_EXPERTS, WEIGHT_DOWN, e);
    } else {
        inner = op_gelu(tape, op_linear(tape, y, find_pass_weight(pass, ROLE_BRANCH_UP, 0, e), NULL));
        down = find_pass_weight(pass, ROLE_BRANCH_DOWN, 0, e);
    }
    return op_linear(tape, inner, down, NULL);
}

/* Runs router and experts over norm u, each expert over its own rows only. The second branch combines two experts even if the
 * first uses only one, so at least two are chosen then. */
static struct branches branches_of(const struct pass *pass, struct variable *u)
{
    struct tape *tape = pass->tape;
    struct variable *y = op_norm(tape, u, find_pass_weight(pass, ROLE_FFN_NORM, 0, 0), pass->network->shape->norm_epsilon);
    const struct hparams *shape = pass->network->shape;
    const int used = shape->router.top_k, slots = used < 2 && outputs_of(pass) > 1 ? 2 : used;
    struct branches b = {.u = u, .router = op_linear(tape, y, find_pass_weight(pass, ROLE_ROUTER, 0, 0), NULL),
                         .experts = shape->router.experts};
    if (!(b.choice = mix_choose(tape, b.router, b.experts, slots)))
        return b;
    for (int e = 0; e < b.experts; e++)
        b.expert[e] = expert_of(pass, &b, y, e);
    return b;
}

static struct variable *mix_of(const struct pass *pass, const struct branches *b, enum learn_mix mix, int first, int used)
{
    return op_mix(pass->tape, mix, b->u, b->router, first, used, b->expert, b->experts, b->choice);
}

int network_joined(const struct pass *pass)
{
    const struct loss_settings *s = &pass->network->settings;
    const struct head_params *head = pass->network->head;
    const int outputs = outputs_of(pass);
    struct variable *u = trunk(pass), *out[2] = {NULL};
    struct judged token[2];
    const double feature_scale[2] = {1, s->const_feature}, token_scale[2] = {s->token_weight, s->token_weight * s->const_token};
    int feature[2], token_part[2];
    if (head->kind == HEAD_EAGLE1) {
        out[0] = pass_dense(pass, u);
    } else {
        const struct branches b = branches_of(pass, u);
        const enum learn_mix second = head->second == HEAD_SECOND_SUM ? LEARN_MIX_PAIR : LEARN_MIX_CONTRAST;
        out[0] = mix_of(pass, &b, LEARN_MIX_SUM, 0, pass->network->shape->router.top_k);
        out[1] = outputs == 2 ? mix_of(pass, &b, second, b.experts, 2) : NULL;
    }
    for (int i = 0; i < outputs; i++) {
        const int ahead = head->second_next ? 0 : i;
        struct rows_judged rows;
        if (!out[i] || pass_rows(pass, ahead, ahead + 1, &rows))
            return -1;
        rows_weigh(pass, &rows, 1 / (rows.count + 1e-5));
        feature[i] = pass_part(pass, i ? "feature_const" : "feature", -1);
        token_part[i] = pass_part(pass, i ? "token_const" : "token", -1);
        token[i] = (struct judged){out[i], rows.target_row, rows.weight, (float)token_scale[i],
                                   pass_sum(pass, token_part[i])};
        const struct judged smooth = {out[i], rows.target_row, rows.weight, (float)feature_scale[i],
                                       pass_sum(pass, feature[i])};
        if (loss_smooth(pass->tape, &smooth, pass_judge(pass)))
            return -1;
    }
    const struct soft_target target = pass_soft_target(pass);
    if (loss_soft(pass->tape, &target, token, outputs) || pass_collect(pass))
        return -1;
    for (int i = 0; i < outputs; i++)
        pass->losses->total += feature_scale[i] * pass->losses->part[feature[i]].value +
                               token_scale[i] * pass->losses->part[token_part[i]].value;
    return 0;
}
