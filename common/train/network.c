#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/rope.h"
#include "common/train/network_internal.h"
#include "common/train/stored.h"

const struct loss_settings loss_defaults = {
    .token_weight = 0.1, .const_feature = 0.5, .const_token = 0.5, .steps = 7, .decay = 0.8};

static bool guesses(const struct head_params *head) { return head->kind == HEAD_MEDUSA || head->kind == HEAD_HYDRA; }

/* Returns whether the head reads token embeddings; hydra's heads do. */
static bool embeds(const struct head_params *head) { return head->kind != HEAD_MEDUSA && head->kind != HEAD_KANGAROO; }

static int open_target(struct network *n, const struct engine_ends *ends, struct err *err)
{
    const struct hparams *shape = model_hparams(n->target);
    const struct buffer none = {0, 0};
    const struct tensor *embed, *head;
    const struct weight *own = weights_find(n->weights, ROLE_EMBED, WEIGHT_WHOLE, -1, 0);
    if (!(embed = model_tensor(n->target, err, "embed")) ||
        !(head = model_tensor(n->target, err, shape->tied ? "embed" : "head")))
        return -1;
    struct stored_setup setup = {.model = n->target, .tensor = head, .device = n->device, .blocks = true};
    if (!guesses(n->head)) {
        setup.there = ends ? ends->head : none;
        n->target_head = (struct variable){.rows = head->outputs, .width = head->inputs};
        if (stored_open(&n->target_head.stored, &setup, err))
            return -1;
        stored_block(n->target_head.stored, device_learn(n->device), 0);
    }
    setup.there = ends ? ends->embed : shape->tied && n->target_head.stored ? stored_on_device(n->target_head.stored) : none;
    setup.tensor = embed;
    setup.blocks = false;
    if (own)
        n->own_embed = own->value;
    else if (embeds(n->head) && stored_open(&n->embed, &setup, err))
        return -1;
    return queue_wait(n->device, err);
}

static int open_rotations(struct network *n, int longest, struct err *err)
{
    const struct hparams *s = n->shape;
    float *table;
    size_t floats;
    if (!s->layers)
        return 0;
    if (s->rope.rotary != s->attention.head_dim || s->attention.value_dim != s->attention.head_dim || s->attention.qkv_bias ||
        s->attention.out_bias || s->layer[0].window)
        return err_set(err, ERR_INPUT, "training does not support heads with attention biases, a window or partial rotary "
                       "embeddings");
    n->attention = (struct attention){s->attention.heads, s->attention.kv_heads, s->attention.head_dim, s->attention.scale,
                                      {0, 0}, longest + n->settings.steps};
    if (!size_mul((size_t)n->attention.positions, (size_t)s->attention.head_dim, &floats))
        return err_memory(err);
    if (!(table = mem_alloc(floats, sizeof *table, err)) ||
        device_alloc(n->device, floats * sizeof *table, &n->rotations, err)) {
        mem_free(&table);
        return -1;
    }
    rope_table(&s->rope, 0, n->attention.positions, table);
    queue_upload(n->device, n->rotations, table, floats * sizeof *table);
    mem_free(&table);
    n->attention.rotations = n->rotations;
    return 0;
}

int network_open(struct network **out, struct weights *weights, const struct model *target, const struct engine_ends *ends,
                 const struct loss_settings *settings, int longest, struct err *err)
{
    struct network *n = mem_alloc(1, sizeof *n, err);
    if (!n)
        return -1;
    *n = (struct network){.weights = weights, .head = &weights->head, .shape = &weights->shape, .target = target,
                          .device = weights->device, .settings = *settings};
    if (settings->steps > LEARN_STEPS_MAX - 1) {
        err_set(err, ERR_INPUT, "%d training-time-test steps are given, more than the maximum of %d", settings->steps,
                LEARN_STEPS_MAX - 1);
        goto failed;
    }
    if (n->head->states_norm || n->head->state_norms || n->head->normed_residual || n->head->normed_output) {
        err_set(err, ERR_INPUT, "training does not support EAGLE-3 heads with additional norms or a normed residual");
        goto failed;
    }
    if (open_target(n, ends, err) || open_rotations(n, longest, err))
        goto failed;
    *out = n;
    return 0;
failed:
    network_close(&n);
    return -1;
}

void network_close(struct network **network)
{
    if (*network) {
        stored_close(&(*network)->embed);
        stored_close(&(*network)->target_head.stored);
        device_free((*network)->device, &(*network)->rotations);
    }
    mem_free(network);
}

/* Makes the batch's states available on the device, and clears the sums of the losses. */
static int upload_states(struct pass *pass)
{
    const struct train_batch *b = pass->batch;
    const size_t floats = (size_t)b->rows * (size_t)b->hidden;
    for (int i = 0; i < b->points.count; i++)
        if (!(pass->state[i] = tape_constant(pass->tape, b->state[i], floats, sizeof(float))).address)
            return -1;
    pass->clean = pass->state[b->points.count - 1];
    if (b->clean)
        pass->clean = tape_constant(pass->tape, b->clean, floats, sizeof(float));
    pass->sums = tape_buffer(pass->tape, LOSS_PARTS_MAX, sizeof(double));
    if (!pass->clean.address || !pass->sums.address)
        return -1;
    tape_ops(pass->tape)->clear(tape_queue(pass->tape), &(struct learn_clear_args){pass->sums, 2 * LOSS_PARTS_MAX});
    return 0;
}

int network_loss(struct network *network, struct tape *tape, const struct train_batch *batch, struct losses *out,
                 struct err *err)
{
    struct pass pass = {.network = network, .tape = tape, .batch = batch, .losses = out};
    const enum head_kind kind = network->head->kind;
    *out = (struct losses){.total = 0};
    if (upload_states(&pass))
        return tape_failed(tape, err);
    const int rc = kind == HEAD_EAGLE3 ? network_eagle3(&pass) : kind == HEAD_KANGAROO ? network_kangaroo(&pass)
                   : guesses(network->head) ? network_guesses(&pass) : network_joined(&pass);
    return rc ? tape_failed(tape, err) : 0;
}

void losses_add(struct losses *sum, const struct losses *of)
{
    if (!sum->count) {
        *sum = *of;
        return;
    }
    sum->total += of->total;
    for (int i = 0; i < of->count; i++)
        sum->part[i].value += of->part[i].value;
}

/* ---- what they share ---- */

struct variable *find_pass_weight(const struct pass *pass, enum tensor_role role, int layer, int stage)
{
    struct weight *weight = weights_find(pass->network->weights, role, WEIGHT_WHOLE, layer, stage);
    return weight ? &weight->value : NULL;
}

struct variable *pass_expert(const struct pass *pass, enum tensor_role role, enum weight_part part, int expert)
{
    return &weights_find(pass->network->weights, role, part, 0, expert)->value;
}

struct variable *pass_embedding(const struct pass *pass, int shift)
{
    const struct train_batch *b = pass->batch;
    struct network *n = pass->network;
    int32_t *token = tape_memory(pass->tape, (size_t)b->rows, sizeof *token);
    if (!token)
        return NULL;
    for (int text = 0; text < b->texts; text++)
        for (int row = b->offset[text]; row < b->offset[text + 1]; row++)
            token[row] = row + shift < b->offset[text + 1] ? b->token[row + shift] : 0;
    if (n->own_embed.data.address)
        return op_select(pass->tape, &n->own_embed, token, b->rows);
    struct variable *out = tape_value(pass->tape, b->rows, n->shape->hidden, false);
    const struct buffer at = tape_constant(pass->tape, token, (size_t)b->rows, sizeof *token);
    if (!out || !at.address)
        return NULL;
    stored_embed(n->embed, at, b->rows, out->data);
    return out;
}

const struct train_whole *pass_whole(const struct pass *pass)
{
    return pass->batch->whole ? pass->batch->whole : &pass->batch->own;
}

struct buffer pass_judge(const struct pass *pass) { return pass->clean; }

struct variable *pass_state(const struct pass *pass, int number)
{
    const struct train_batch *b = pass->batch;
    int point = 0;
    while (point + 1 < b->points.count && b->points.state[point] != pass->network->head->state[number])
        point++;
    return op_constant(pass->tape, b->rows, b->hidden, pass->state[point]);
}

struct variable *pass_final(const struct pass *pass)
{
    return op_constant(pass->tape, pass->batch->rows, pass->batch->hidden, pass->state[pass->batch->points.count - 1]);
}

struct variable *pass_attention(const struct pass *pass, struct variable *x, struct variable **qkv, int steps)
{
    const struct attention *shape = &pass->network->attention;
    struct variable *plain = op_linear(pass->tape, x, find_pass_weight(pass, ROLE_QKV, 0, 0), NULL);
    if (!(qkv[steps] = op_rotate(pass->tape, shape, pass->batch, plain, steps)))
        return NULL;
    return op_linear(pass->tape, op_attention(pass->tape, shape, pass->batch, qkv, steps),
                     find_pass_weight(pass, ROLE_OUT, 0, 0), NULL);
}

struct variable *pass_dense(const struct pass *pass, struct variable *u)
{
    struct tape *tape = pass->tape;
    struct variable *y = op_norm(tape, u, find_pass_weight(pass, ROLE_FFN_NORM, 0, 0), pass->network->shape->norm_epsilon);
    struct variable *inner = op_gated(tape, op_linear(tape, y, pass_expert(pass, ROLE_DENSE, WEIGHT_GATE_UP, 0), NULL));
    return op_add(tape, u, op_linear(tape, inner, pass_expert(pass, ROLE_DENSE, WEIGHT_DOWN, 0), NULL));
}

int pass_rows(const struct pass *pass, int mask_shift, int target_shift, struct rows_judged *out)
{
    const struct train_batch *b = pass->batch;
    *out = (struct rows_judged){tape_memory(pass->tape, (size_t)b->rows, sizeof(int)),
                                tape_memory(pass->tape, (size_t)b->rows, sizeof(float)),
                                (double)pass_whole(pass)->judged[mask_shift]};
    if (!out->target_row || !out->weight)
        return -1;
    for (int text = 0; text < b->texts; text++) {
        const int end = b->offset[text + 1];
        for (int row = b->offset[text]; row < end; row++) {
            const bool counts = row + mask_shift < end - 1 && b->mask[row + mask_shift];
            out->target_row[row] = counts ? row + target_shift : -1;
            out->weight[row] = 1;
        }
    }
    return 0;
}

void rows_weigh(const struct pass *pass, const struct rows_judged *rows, double each)
{
    for (int row = 0; row < pass->batch->rows; row++)
        rows->weight[row] = (float)each;
}

int pass_part(const struct pass *pass, const char *name, int number)
{
    struct losses *l = pass->losses;
    if (number < 0)
        snprintf(l->part[l->count].name, sizeof l->part[0].name, "%s", name);
    else
        snprintf(l->part[l->count].name, sizeof l->part[0].name, "%s%d", name, number);
    l->part[l->count].value = 0;
    return l->count++;
}

struct buffer pass_sum(const struct pass *pass, int part)
{
    return buffer_part(pass->sums, (uint64_t)part * sizeof(double), sizeof(double));
}

int pass_collect(const struct pass *pass)
{
    struct losses *l = pass->losses;
    const double *sums = tape_download(pass->tape, pass->sums, LOSS_PARTS_MAX, sizeof *sums);
    for (int i = 0; sums && i < l->count; i++)
        l->part[i].value = sums[i];
    return sums ? 0 : -1;
}

struct soft_target pass_soft_target(const struct pass *pass)
{
    struct network *n = pass->network;
    return (struct soft_target){.states = pass_judge(pass), .head = &n->target_head,
                                .words = n->target_head.rows, .output = &n->target_head};
}
