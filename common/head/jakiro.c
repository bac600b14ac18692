/* Jakiro and Jakiro* (arXiv 2502.06282): EAGLE-1 with two experts, both of which every token uses. u stands for x after
 * attention, y for its norm, r for what the router makes of y.
 *
 *     jakiro       branch 0, of the next token: u + softmax(r0, r1) . (E0, E1), section 3.2
 *                  branch 1, of the one after it: u + what the better expert by softmax(r2, r3) makes, less the other's
 *                  (section 3.3): the contrast, whose order is its own
 *     jakiro_star  branches u + E of the expert with the larger r (the last of equals), and u + the other's, neither weighed;
 *                  a token's probability is the sum of both branches' under one softmax (as the program has it; the paper's
 *                  equation 4 weighs them)
 *
 * Branch 0 is what rows after go on from. */
#include "common/head/internal.h"

enum { EXPERTS = 2 };

static void route(const struct head_pass *pass)
{
    struct head *head = pass->head;
    layer_norm(&head->space, head->space.x, head->weights.layer.ffn_norm, (struct buffer){0, 0}, head->space.normed,
               pass->rows->rows);
    head_linear(pass, head->space.normed, &head->weights.layer.router, (struct buffer){0, 0}, head->router,
                head->weights.layer.router.outputs, false);
}

/* out = u + the experts, weighed by a rule over the router's rows from `first` on. */
static void blend(const struct head_pass *pass, enum blend_rule rule, int first, struct buffer out)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    head->ops->blend_weights(head->queue, &(struct blend_weights_args){
        .logits = head_columns(head->router, first), .weight = head->weight, .rule = rule, .rows = pass->rows->rows,
        .slots = EXPERTS, .logits_stride = head->weights.layer.router.outputs});
    head->ops->blend(head->queue, &(struct blend_args){
        .in = head->space.x, .part = head->space.partial, .weight = head->weight, .out = out, .rows = pass->rows->rows,
        .slots = EXPERTS, .width = hidden, .in_stride = hidden, .part_stride = hidden, .out_stride = hidden});
}

static int jakiro_leave(struct head_pass *pass, const struct layer *layer, struct err *err)
{
    struct head *head = pass->head;
    const struct layer_weights *weights = &head->weights.layer;
    const struct hparams *shape = head->shape;
    (void)layer, (void)err;
    route(pass);
    head->ops->expert_ffn(head->queue, &(struct expert_ffn_args){
        .in = head->space.normed, .expert = head->both, .table = weights->dense_table, .inner = head->space.inner,
        .partial = head->space.partial, .group = head->space.group, .operand = head->space.operand,
        .format = weights->experts_format, .down_format = weights->experts_down_format, .apart = true,
        .rows = pass->rows->rows, .slots = EXPERTS, .experts = EXPERTS, .hidden = shape->hidden,
        .inner_width = shape->expert_inner});
    blend(pass, BLEND_SOFTMAX, 0, head->branch);
    pass->branch[0] = head->branch;
    if (head_wanted_branches(pass) > 1) {
        blend(pass, BLEND_CONTRAST, EXPERTS, head->space.x);
        pass->branch[1] = head->space.x;
    }
    return 0;
}

static int jakiro_star_leave(struct head_pass *pass, const struct layer *layer, struct err *err)
{
    struct head *head = pass->head;
    const struct head_weights *weights = &head->weights;
    const int hidden = head->shape->hidden, inner = head->shape->expert_inner;
    (void)layer, (void)err;
    route(pass);
    for (int expert = 0; expert < EXPERTS; expert++) {
        head_linear(pass, head->space.normed, &weights->branch_up[expert], (struct buffer){0, 0}, head->space.inner, inner,
                    false);
        head->ops->activate(head->queue, &(struct activate_args){
            .in = head->space.inner, .out = head->space.inner, .activation = ACTIVATION_GELU, .rows = pass->rows->rows,
            .width = inner});
        head_linear(pass, head->space.inner, &weights->branch_down[expert], (struct buffer){0, 0},
                    head_columns(head->space.partial, expert * hidden), EXPERTS * hidden, false);
    }
    blend(pass, BLEND_LARGEST, 0, head->branch);
    pass->branch[0] = head->branch;
    if (head_wanted_branches(pass) > 1) {
        blend(pass, BLEND_OTHERS, 0, head->space.x);
        pass->branch[1] = head->space.x;
    }
    return 0;
}

const struct head_class head_jakiro = {
    .kind = HEAD_JAKIRO, .branches = 2, .enter = head_enter_pair, .leave = jakiro_leave};
const struct head_class head_jakiro_star = {
    .kind = HEAD_JAKIRO_STAR, .branches = 2, .joins = true, .enter = head_enter_pair, .leave = jakiro_star_leave};
