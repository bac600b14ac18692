/* Jakiro and Jakiro* (arXiv 2502.06282): EAGLE-1 with experts. u is x after attention, y its norm, r the router's output for
 * y.
 *
 *     jakiro       branch 0, of the next token: u + the sum of s_j E_j over the K experts with the largest s, the softmax of
 *                  r0 .. rN-1 (sections 3.1 and 3.2)
 *                  branch 1, of the token after it: over the two experts chosen first, with the softmax of their router rows
 *                  among rN .. r2N-1: u + the output of the one with the larger weight minus that of the other (section 3.3),
 *                  both weighted: the contrast, in which these weights rank the two; or u + both
 *     jakiro_star  branches u + E of the expert with the larger r (the last of equals), and u + E of the other, both
 *                  unweighted, as in the program. scaled: equation 4 of the paper as printed: f of equation 3, which is branch
 *                  0 of jakiro, times each expert's score; both branches then rank tokens as f does, one more uniformly than
 *                  the other. A token's probability is the sum of both branches' under one softmax
 *
 * Later rows continue from branch 0, or, if scaled, from f. */
#include "common/head/internal.h"

enum { PAIR = 2 };

static void route(const struct head_pass *pass)
{
    struct head *head = pass->head;
    layer_norm(&head->space, head->space.x, head->weights.layer.ffn_norm, (struct buffer){0, 0}, head->space.normed,
               pass->rows->rows);
    head_linear(pass, head->space.normed, &head->weights.layer.router, (struct buffer){0, 0}, head->router,
                head->weights.layer.router.outputs, false);
}

/* Computes the weights [rows][apart] of `slots` experts by a rule from the router's rows `first` and later; with `chosen`
 * from the router's rows of the chosen experts. */
static void weigh(const struct head_pass *pass, enum blend_rule rule, int first, int slots, int apart, bool chosen)
{
    struct head *head = pass->head;
    head->ops->blend_weights(head->queue, &(struct blend_weights_args){
        .logits = head_columns(head->router, first), .weight = head->weight,
        .column = chosen ? head->chosen : (struct buffer){0, 0}, .rule = rule, .rows = pass->rows->rows, .slots = slots,
        .logits_stride = head->weights.layer.router.outputs, .weight_stride = apart, .column_stride = apart});
}

/* Computes out = in + the weighted sum of the first `slots` experts of a row's `apart`. */
static void blend(const struct head_pass *pass, struct buffer in, int slots, int apart, struct buffer out)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    head->ops->blend(head->queue, &(struct blend_args){
        .in = in, .part = head->space.partial, .weight = head->weight, .out = out, .rows = pass->rows->rows, .slots = slots,
        .slot_stride = apart, .width = hidden, .in_stride = hidden, .part_stride = hidden, .out_stride = hidden});
}

/* Selects the best `slots` experts of each row, with their scores as weights. */
static void choose(const struct head_pass *pass, int slots)
{
    struct head *head = pass->head;
    const int experts = head->shape->router.experts, rows = head->weights.layer.router.outputs;
    head_gather(pass, head->router, pass->rows->rows, rows, head->every_row, head->score, experts, experts);
    head->ops->route_score(head->queue, &(struct route_score_args){
        .logits = head->score, .score = head->score, .kind = ROUTER_SOFTMAX_TOPK, .rows = pass->rows->rows,
        .experts = experts});
    head->ops->route_select(head->queue, &(struct route_select_args){
        .score = head->score, .wanted = head->wanted, .expert = head->chosen, .weight = head->weight,
        .kind = ROUTER_SOFTMAX_TOPK, .scale = 1, .rows = pass->rows->rows, .experts = experts, .top_k = slots});
}

static int jakiro_leave(struct head_pass *pass, const struct layer *layer, struct err *err)
{
    struct head *head = pass->head;
    const struct layer_weights *weights = &head->weights.layer;
    const struct hparams *shape = head->shape;
    const int experts = shape->router.experts, used = shape->router.top_k;
    const bool second = head_wanted_branches(pass) > 1, choice = head_routes(head->params, shape);
    const int slots = second && used < PAIR ? PAIR : used;
    (void)layer, (void)err;
    route(pass);
    head->routes = choice ? pass->rows->rows * slots : 0;
    if (choice)
        choose(pass, slots);
    else
        weigh(pass, BLEND_SOFTMAX, 0, PAIR, PAIR, false);
    head->ops->expert_ffn(head->queue, &(struct expert_ffn_args){
        .in = head->space.normed, .expert = head->chosen, .table = weights->dense_table, .inner = head->space.inner,
        .partial = head->space.partial, .group = head->space.group, .operand = head->space.operand,
        .format = weights->experts_format, .down_format = weights->experts_down_format, .apart = true,
        .rows = pass->rows->rows, .slots = slots, .experts = experts, .hidden = shape->hidden,
        .inner_width = shape->expert_inner});
    blend(pass, head->space.x, used, slots, head->branch);
    pass->branch[0] = head->branch;
    if (second) {
        weigh(pass, head->params->second == HEAD_SECOND_SUM ? BLEND_SOFTMAX : BLEND_CONTRAST, experts, PAIR, slots, choice);
        blend(pass, head->space.x, PAIR, slots, head->space.x);
        pass->branch[1] = head->space.x;
    }
    return 0;
}

/* Computes the branches: f times the score of the best expert, and of the other one, where f = u + the weighted sum of both
 * experts. Later rows continue from f. Both slots of a row contain f, and one of them has weight 0. */
static void scale_branches(struct head_pass *pass)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    weigh(pass, BLEND_SOFTMAX, 0, PAIR, PAIR, false);
    blend(pass, head->space.x, PAIR, PAIR, head->branch);
    for (int slot = 0; slot < PAIR; slot++)
        head_gather(pass, head->branch, pass->rows->rows, hidden, head->every_row,
                    head_columns(head->space.partial, slot * hidden), PAIR * hidden, hidden);
    weigh(pass, BLEND_LARGEST_SHARE, 0, PAIR, PAIR, false);
    blend(pass, (struct buffer){0, 0}, PAIR, PAIR, head->scaled);
    weigh(pass, BLEND_OTHERS_SHARE, 0, PAIR, PAIR, false);
    blend(pass, (struct buffer){0, 0}, PAIR, PAIR, head->space.x);
    pass->made = head->branch;
    pass->branch[0] = head->scaled;
    pass->branch[1] = head->space.x;
}

static int jakiro_star_leave(struct head_pass *pass, const struct layer *layer, struct err *err)
{
    struct head *head = pass->head;
    const struct head_weights *weights = &head->weights;
    const int hidden = head->shape->hidden, inner = head->shape->expert_inner;
    (void)layer, (void)err;
    route(pass);
    for (int expert = 0; expert < PAIR; expert++) {
        head_linear(pass, head->space.normed, &weights->branch_up[expert], (struct buffer){0, 0}, head->space.inner, inner,
                    false);
        head->ops->activate(head->queue, &(struct activate_args){
            .in = head->space.inner, .out = head->space.inner, .activation = ACTIVATION_GELU, .rows = pass->rows->rows,
            .width = inner});
        head_linear(pass, head->space.inner, &weights->branch_down[expert], (struct buffer){0, 0},
                    head_columns(head->space.partial, expert * hidden), PAIR * hidden, false);
    }
    if (head->params->scaled) {
        scale_branches(pass);
        return 0;
    }
    weigh(pass, BLEND_LARGEST, 0, PAIR, PAIR, false);
    blend(pass, head->space.x, PAIR, PAIR, head->branch);
    pass->branch[0] = head->branch;
    if (head_wanted_branches(pass) > 1) {
        weigh(pass, BLEND_OTHERS, 0, PAIR, PAIR, false);
        blend(pass, head->space.x, PAIR, PAIR, head->space.x);
        pass->branch[1] = head->space.x;
    }
    return 0;
}

const struct head_class head_jakiro = {
    .kind = HEAD_JAKIRO, .branches = 2, .enter = head_enter_pair, .leave = jakiro_leave};
const struct head_class head_jakiro_star = {
    .kind = HEAD_JAKIRO_STAR, .branches = 2, .joins = true, .enter = head_enter_pair, .leave = jakiro_star_leave};
