/* The oracle's choice, and how the engine computes, stores and compares the contribution of each routed expert. */
#include "common/engine/oracle.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"
#include "common/engine/pieces.h"

/* Let R be the missing part of a row's sum, and c an expert's contribution. Choosing the expert changes |R|^2 by |c|^2 - 2
 * R.c. Both terms follow from the dot products between the contributions of one row, which are computed once. */
struct rebuild {
    const struct oracle *oracle;
    double *product;            /* [rows][slots][slots] */
    double *left;               /* [rows][slots] R.c */
    double *gain;               /* [experts] decrease of the squared distance */
};

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void multiply_out(struct rebuild *rebuild)
{
    const struct oracle *oracle = rebuild->oracle;
    size_t slots = (size_t)oracle->slots, hidden = (size_t)oracle->hidden;
    for (size_t row = 0; row < (size_t)oracle->rows; row++) {
        const float *own = oracle->contribution + row * slots * hidden;
        double *product = rebuild->product + row * slots * slots;
        for (size_t a = 0; a < slots; a++)
            for (size_t b = 0; b < slots; b++) {
                bool any = oracle->expert[row * slots + a] >= 0 && oracle->expert[row * slots + b] >= 0;
                product[a * slots + b] = any ? dot(own + a * hidden, own + b * hidden, oracle->hidden) : 0;
                if (!oracle->routed || oracle->routed[row * slots + b])
                    rebuild->left[row * slots + a] += product[a * slots + b];
            }
    }
}

/* Returns the expert with the largest gain, -1 if none is left. */
static int best_expert(struct rebuild *rebuild, const uint8_t *mask)
{
    const struct oracle *oracle = rebuild->oracle;
    size_t slots = (size_t)oracle->slots;
    int best = -1;
    for (int e = 0; e < oracle->experts; e++)
        rebuild->gain[e] = NAN;                     /* no row routes to it */
    for (size_t row = 0; row < (size_t)oracle->rows; row++)
        for (size_t s = 0; s < slots; s++) {
            int e = oracle->expert[row * slots + s];
            if (e < 0 || mask[e])
                continue;
            double gain = 2 * rebuild->left[row * slots + s] - rebuild->product[(row * slots + s) * slots + s];
            rebuild->gain[e] = isnan(rebuild->gain[e]) ? gain : rebuild->gain[e] + gain;
        }
    for (int e = 0; e < oracle->experts; e++)
        if (!isnan(rebuild->gain[e]) && (best < 0 || rebuild->gain[e] > rebuild->gain[best]))
            best = e;
    return best;
}

static void take_expert(struct rebuild *rebuild, int expert)
{
    const struct oracle *oracle = rebuild->oracle;
    size_t slots = (size_t)oracle->slots;
    for (size_t row = 0; row < (size_t)oracle->rows; row++)
        for (size_t s = 0; s < slots; s++)
            if (oracle->expert[row * slots + s] == expert)
                for (size_t other = 0; other < slots; other++)
                    rebuild->left[row * slots + other] -= rebuild->product[(row * slots + s) * slots + other];
}

int oracle_choose(const struct oracle *oracle, uint8_t *mask, struct err *err)
{
    size_t pairs = (size_t)oracle->rows * (size_t)oracle->slots;
    struct rebuild rebuild = {.oracle = oracle};
    int rc = -1, expert;
    rebuild.product = mem_alloc(pairs * (size_t)oracle->slots, sizeof(double), err);
    rebuild.left = mem_alloc(pairs, sizeof(double), err);
    rebuild.gain = mem_alloc((size_t)oracle->experts, sizeof(double), err);
    if (!rebuild.product || !rebuild.left || !rebuild.gain)
        goto done;
    memset(mask, 0, (size_t)oracle->experts);
    multiply_out(&rebuild);
    for (int taken = 0; taken < oracle->budget && (expert = best_expert(&rebuild, mask)) >= 0; taken++) {
        mask[expert] = 1;
        take_expert(&rebuild, expert);
    }
    rc = 0;
done:
    mem_free(&rebuild.product);
    mem_free(&rebuild.left);
    mem_free(&rebuild.gain);
    return rc;
}

size_t oracle_pairs(const struct workspace *space)
{
    return (size_t)space->rows * (size_t)space->shape->router.top_k;
}

int oracle_alloc(struct workspace *space, struct err *err)
{
    const struct hparams *shape = space->shape;
    size_t pairs = oracle_pairs(space), row = (size_t)shape->hidden * sizeof(float);
    if (space->apart)
        return 0;
    device_free(space->device, &space->apart_in);     /* remains of a failed attempt */
    device_free(space->device, &space->apart_out);
    device_free(space->device, &space->apart_row);
    mem_free(&space->apart_index);
    mem_free(&space->gold);
    return device_alloc(space->device, pairs * row, &space->apart_in, err) ||
           device_alloc(space->device, pairs * row, &space->apart_out, err) ||
           device_alloc(space->device, pairs * sizeof(int32_t), &space->apart_row, err) ||
           !(space->apart_index = mem_alloc(pairs, sizeof *space->apart_index, err)) ||
           !(space->gold = mem_alloc(pairs * (size_t)shape->hidden, sizeof(float), err)) ||
           !(space->apart = mem_alloc(pairs * (size_t)shape->hidden, sizeof(float), err)) ? -1 : 0;
}

/* Computes one piece. Each row has one slot, initialised with a sum of 0, so a row's bits do not depend on the piece that
 * contains its expert. */
static void compute_piece(const struct apart_rows *apart, const struct pieces *pieces)
{
    const struct layer *at = pieces->at;
    struct workspace *space = at->space;
    const struct hparams *shape = space->shape;
    space->ops->expert_ffn(space->queue, &(struct expert_ffn_args){
        .in = space->apart_in, .out = space->apart_out, .expert = pieces->expert,
        .weight = shape->router.weigh_input ? (struct buffer){0, 0} : apart->weight,
        .gate_up_bias = at->weights->gate_up_bias, .down_bias = at->weights->down_bias,
        .limit = hparams_expert_limit(shape, at->number), .alpha = shape->glu_alpha, .glu = shape->glu,
        .table = pieces->table, .inner = space->inner, .partial = space->partial,
        .group = space->group, .operand = space->operand, .format = at->experts.format,
        .down_format = at->experts.down_format, .rows = apart->count, .slots = 1, .experts = shape->router.experts,
        .hidden = shape->hidden, .inner_width = shape->expert_inner});
}

int oracle_compute(const struct layer *at, const struct apart_rows *apart, float *out, struct err *err)
{
    struct workspace *space = at->space;
    const struct hparams *shape = space->shape;
    const bool weighed = shape->router.weigh_input;
    struct pieces pieces;
    size_t bytes = (size_t)apart->count * (size_t)shape->hidden * sizeof(float);
    space->ops->gather(space->queue, &(struct gather_args){
        .in = space->normed, .index = apart->row, .out = weighed ? space->apart_out : space->apart_in, .rows = at->rows->rows,
        .count = apart->count, .width = shape->hidden});
    if (weighed)
        space->ops->blend(space->queue, &(struct blend_args){
            .part = space->apart_out, .weight = apart->weight, .out = space->apart_in, .rows = apart->count, .slots = 1,
            .width = shape->hidden});
    memset(out, 0, bytes);
    queue_upload(space->device, space->apart_out, out, bytes);
    if (pieces_begin(&pieces, at, apart->expert, apart->ids, apart->count, NULL, err))
        return -1;
    while (pieces_left(&pieces)) {
        if (pieces_next(&pieces, err))
            return -1;
        compute_piece(apart, &pieces);
        pieces_release(&pieces);
    }
    queue_download(space->device, out, space->apart_out, bytes);
    return queue_wait(space->device, err);
}

/* Computes out [rows][top_k][hidden], the contribution of each routed expert, by a call in which each slot is a row. */
static int compute_apart(const struct layer *at, float *out, struct err *err)
{
    struct workspace *space = at->space;
    const struct apart_rows apart = {space->apart_row, at->routing.expert, at->routing.weight, NULL,
                                     at->rows->rows * at->routing.top_k};
    for (int i = 0; i < apart.count; i++)
        space->apart_index[i] = (int32_t)(i / at->routing.top_k);
    queue_upload(space->device, space->apart_row, space->apart_index, (size_t)apart.count * sizeof *space->apart_index);
    return oracle_compute(at, &apart, out, err);
}

int oracle_contributions(const struct layer *at, struct err *err)
{
    struct workspace *space = at->space;
    return oracle_alloc(space, err) || compute_apart(at, space->gold, err) ? -1 : 0;
}

int oracle_mask(const struct layer *at, int budget, struct err *err)
{
    struct workspace *space = at->space;
    const struct hparams *shape = space->shape;
    int32_t *expert = space->by_slot;
    queue_download(space->device, expert, at->routing.expert,
                   (size_t)at->rows->rows * (size_t)at->routing.top_k * sizeof *expert);
    if (queue_wait(space->device, err) ||
        oracle_choose(&(struct oracle){space->gold, expert, NULL, at->rows->rows, at->routing.top_k, shape->hidden,
                                       shape->router.experts, budget}, space->mark, err))
        return -1;
    queue_upload(space->device, at->routing.mask, space->mark, (size_t)shape->router.experts);
    return 0;
}

int oracle_compare(const struct layer *at, float *error, struct err *err)
{
    struct workspace *space = at->space;
    size_t slots = (size_t)at->routing.top_k, hidden = (size_t)space->shape->hidden;
    double off = 0, all = 0;
    if (compute_apart(at, space->apart, err))
        return -1;
    for (size_t row = 0; row < (size_t)at->rows->rows; row++)
        for (size_t i = 0; i < hidden; i++) {
            double gold = 0, made = 0;
            for (size_t s = 0; s < slots; s++) {
                gold += (double)space->gold[(row * slots + s) * hidden + i];
                made += (double)space->apart[(row * slots + s) * hidden + i];
            }
            off += (made - gold) * (made - gold);
            all += gold * gold;
        }
    *error = (float)(off / all);
    return 0;
}
