/* The choice itself, and the engine's side: how what each routed expert adds is computed apart, kept and compared. */
#include "common/engine/oracle.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"

/* With R what is missing of a row's sum and c what an expert adds to it, taking the expert changes |R|^2 by |c|^2 - 2 R.c.
 * Both follow from the products of the contributions of one row with each other, which are computed once. */
struct rebuild {
    const struct oracle *oracle;
    double *product;            /* [rows][slots][slots] */
    double *left;               /* [rows][slots] R.c */
    double *gain;               /* [experts] by which the squared distance would shrink */
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

/* The expert that is best to take next, -1: none is left. */
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
    size_t places = (size_t)oracle->rows * (size_t)oracle->slots;
    struct rebuild rebuild = {.oracle = oracle};
    int rc = -1, expert;
    rebuild.product = mem_alloc(places * (size_t)oracle->slots, sizeof(double), err);
    rebuild.left = mem_alloc(places, sizeof(double), err);
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

size_t oracle_places(const struct engine *engine)
{
    return (size_t)engine->setup.max_rows * (size_t)engine->shape->router.top_k;
}

int oracle_alloc(struct engine *engine, struct err *err)
{
    const struct hparams *shape = engine->shape;
    size_t places = oracle_places(engine), row = (size_t)shape->hidden * sizeof(float);
    if (engine->apart)
        return 0;
    device_free(engine->device, &engine->apart_in);     /* what a failed attempt has left */
    device_free(engine->device, &engine->apart_out);
    device_free(engine->device, &engine->apart_row);
    mem_free(&engine->gold);
    int32_t *index = mem_alloc(places, sizeof *index, err);
    if (!index)
        return -1;
    for (size_t i = 0; i < places; i++)
        index[i] = (int32_t)(i / (size_t)shape->router.top_k);
    int rc = device_alloc(engine->device, places * row, &engine->apart_in, err) ||
             device_alloc(engine->device, places * row, &engine->apart_out, err) ||
             device_alloc(engine->device, places * sizeof *index, &engine->apart_row, err) ||
             !(engine->gold = mem_alloc(places * (size_t)shape->hidden, sizeof(float), err)) ||
             !(engine->apart = mem_alloc(places * (size_t)shape->hidden, sizeof(float), err)) ? -1 : 0;
    if (!rc)
        queue_upload(engine->device, engine->apart_row, index, places * sizeof *index);
    mem_free(&index);
    return rc;
}

int oracle_compute(const struct expert_layer *at, const struct apart_rows *apart, struct buffer table, float *out,
                   struct err *err)
{
    struct engine *engine = at->pass->engine;
    const struct hparams *shape = engine->shape;
    size_t bytes = (size_t)apart->count * (size_t)shape->hidden * sizeof(float);
    memset(out, 0, bytes);
    queue_upload(engine->device, engine->apart_out, out, bytes);
    engine->ops->gather(engine->queue, &(struct gather_args){
        .in = engine->normed, .index = apart->row, .out = engine->apart_in, .rows = at->pass->rows, .count = apart->count,
        .width = shape->hidden});
    engine->ops->expert_ffn(engine->queue, &(struct expert_ffn_args){
        .in = engine->apart_in, .out = engine->apart_out, .expert = apart->expert, .weight = apart->weight,
        .gate_up_bias = at->weights->gate_up_bias, .down_bias = at->weights->down_bias, .limit = shape->glu_limit,
        .alpha = shape->glu_alpha, .table = table, .inner = engine->inner, .partial = engine->partial, .group = engine->group,
        .operand = engine->operand, .format = at->weights->experts_format,
        .down_format = at->weights->experts_down_format, .rows = apart->count, .slots = 1, .experts = shape->router.experts,
        .hidden = shape->hidden, .inner_width = shape->expert_inner});
    queue_download(engine->device, out, engine->apart_out, bytes);
    return queue_wait(engine->device, err);
}

/* out [rows][top_k][hidden] = what each expert of the layer's routing adds: a forward in which each slot is a row. */
static int compute_apart(const struct expert_layer *at, float *out, struct err *err)
{
    const struct engine *engine = at->pass->engine;
    const struct apart_rows apart = {engine->apart_row, at->expert, at->weight,
                                     at->pass->rows * engine->shape->router.top_k};
    struct buffer table;
    int count;
    if (experts_acquire(at, &table, &count, err))
        return -1;
    int rc = oracle_compute(at, &apart, table, out, err);
    experts_release(at, count);
    return rc;
}

int oracle_look(const struct expert_layer *at, struct err *err)
{
    struct engine *engine = at->pass->engine;
    return oracle_alloc(engine, err) || compute_apart(at, engine->gold, err) ? -1 : 0;
}

int oracle_mask(const struct expert_layer *at, int budget, struct err *err)
{
    struct engine *engine = at->pass->engine;
    const struct hparams *shape = engine->shape;
    int32_t *expert = engine->by_slot;
    queue_download(engine->device, expert, at->expert,
                   (size_t)at->pass->rows * (size_t)shape->router.top_k * sizeof *expert);
    if (queue_wait(engine->device, err) ||
        oracle_choose(&(struct oracle){engine->gold, expert, NULL, at->pass->rows, shape->router.top_k, shape->hidden,
                                       shape->router.experts, budget}, engine->mark, err))
        return -1;
    queue_upload(engine->device, at->mask, engine->mark, (size_t)shape->router.experts);
    return 0;
}

int oracle_compare(const struct expert_layer *at, float *error, struct err *err)
{
    struct engine *engine = at->pass->engine;
    size_t slots = (size_t)engine->shape->router.top_k, hidden = (size_t)engine->shape->hidden;
    double off = 0, all = 0;
    if (compute_apart(at, engine->apart, err))
        return -1;
    for (size_t row = 0; row < (size_t)at->pass->rows; row++)
        for (size_t i = 0; i < hidden; i++) {
            double gold = 0, made = 0;
            for (size_t s = 0; s < slots; s++) {
                gold += (double)engine->gold[(row * slots + s) * hidden + i];
                made += (double)engine->apart[(row * slots + s) * hidden + i];
            }
            off += (made - gold) * (made - gold);
            all += gold * gold;
        }
    *error = (float)(off / all);
    return 0;
}
