/* One forward: embedding, then each layer's attention and feed-forward network, then logits of the rows that want them. */
#include "common/base/mem.h"
#include "common/engine/internal.h"

static void norm(const struct pass *pass, struct buffer in, struct buffer weight, struct buffer bias, struct buffer out,
                 int rows)
{
    struct engine *engine = pass->engine;
    int hidden = engine->shape->hidden;
    engine->ops->norm(engine->queue, &(struct norm_args){
        .in = in, .weight = weight, .bias = bias, .out = out, .epsilon = engine->shape->norm_epsilon,
        .center = engine->shape->layer_norm,
        .rows = rows, .parts = 1, .width = hidden, .in_stride = hidden, .out_stride = hidden});
}

/* The part of each row of a buffer from `first` float on, with the buffer's stride. */
static struct buffer row_part(struct buffer rows, int first)
{
    uint64_t offset = (uint64_t)first * sizeof(float);
    return buffer_part(rows, offset, rows.bytes - offset);
}

static void project(const struct pass *pass, struct buffer in, int in_stride, const struct matrix *matrix, struct buffer bias,
                    struct buffer out, int out_stride)
{
    struct engine *engine = pass->engine;
    engine->ops->linear(engine->queue, &(struct linear_args){
        .in = in, .weight = matrix->data, .bias = bias, .out = out, .operand = engine->operand, .format = matrix->format,
        .slab = pass->slab, .rows = pass->rows, .inputs = matrix->inputs, .outputs = matrix->outputs, .in_stride = in_stride,
        .out_stride = out_stride});
}

/* Of each head of q or k, or of all at once. No weight: none. */
static struct norm_args head_norm(const struct pass *pass, struct buffer x, struct buffer weight, int heads)
{
    struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    bool whole = shape->attention.qk_norm == QK_NORM_WHOLE;
    return (struct norm_args){
        .in = x, .weight = shape->attention.qk_norm == QK_NORM_NONE ? (struct buffer){0, 0} : weight, .out = x,
        .epsilon = shape->norm_epsilon, .rows = pass->rows, .parts = whole ? 1 : heads,
        .width = whole ? heads * shape->attention.head_dim : shape->attention.head_dim,
        .in_stride = engine->qkv_width, .out_stride = engine->qkv_width};
}

static void latent_norm(const struct pass *pass, struct buffer x, struct buffer weight, int width, int stride)
{
    struct engine *engine = pass->engine;
    engine->ops->norm(engine->queue, &(struct norm_args){
        .in = x, .weight = weight, .out = x, .epsilon = engine->shape->attention.latent_epsilon, .rows = pass->rows, .parts = 1,
        .width = width, .in_stride = stride, .out_stride = stride});
}

static struct rope_args rotation(const struct pass *pass, struct buffer x, int heads, int head_dim, int stride)
{
    struct engine *engine = pass->engine;
    return (struct rope_args){
        .x = x, .table = engine->rope, .position = engine->position, .rows = pass->rows, .heads = heads, .head_dim = head_dim,
        .rotary = engine->shape->rope.rotary, .stride = stride};
}

/* Queries into engine->qkv, keys and values into the cache. */
static void make_qkv(const struct pass *pass, int n)
{
    struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    const struct layer_weights *layer = &engine->weights->layer[n];
    int heads = shape->attention.heads, kv_heads = shape->attention.kv_heads, head_dim = shape->attention.head_dim;
    struct buffer k = row_part(engine->qkv, heads * head_dim), v = row_part(engine->qkv, (heads + kv_heads) * head_dim);
    struct sequence *sequence = pass->sequence;

    project(pass, engine->normed, shape->hidden, &layer->qkv, layer->qkv_bias, engine->qkv, engine->qkv_width);
    if (layer->v.data.address)
        project(pass, engine->normed, shape->hidden, &layer->v, layer->v_bias, v, engine->qkv_width);
    ops_qkv(engine->ops, engine->queue, &(struct qkv_args){
        .q_norm = head_norm(pass, engine->qkv, layer->q_norm, heads), .k_norm = head_norm(pass, k, layer->k_norm, kv_heads),
        .clamp = {.x = engine->qkv, .limit = shape->attention.clip_qkv, .rows = pass->rows, .width = engine->qkv_width,
                  .stride = engine->qkv_width},
        .q_rope = rotation(pass, engine->qkv, heads, head_dim, engine->qkv_width),
        .k_rope = rotation(pass, k, kv_heads, head_dim, engine->qkv_width),
        .write = {.in_k = k, .in_v = v, .k = sequence->k[n], .v = sequence->v[n], .slot = engine->slot,
                  .format = engine->setup.cache, .rows = pass->rows, .kv_heads = kv_heads, .head_dim = head_dim,
                  .value_dim = head_dim, .capacity = sequence->capacity, .stride = engine->qkv_width}});
}

/* The same through latents (model/hparams.h). */
static void make_latent_qkv(const struct pass *pass, int n)
{
    struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    const struct layer_weights *layer = &engine->weights->layer[n];
    int heads = shape->attention.heads, head_dim = shape->attention.head_dim, hidden = shape->hidden;
    int q_rank = shape->attention.q_rank, kv_rank = shape->attention.kv_rank, rotary = shape->rope.rotary;
    struct buffer none = {0, 0}, key = row_part(engine->latent_kv, kv_rank);
    struct sequence *sequence = pass->sequence;

    if (q_rank) {
        project(pass, engine->normed, hidden, &layer->q_a, layer->q_a_bias, engine->latent_q, q_rank);
        latent_norm(pass, engine->latent_q, layer->q_a_norm, q_rank, q_rank);
    }
    project(pass, q_rank ? engine->latent_q : engine->normed, q_rank ? q_rank : hidden, &layer->q, none, engine->qkv,
            engine->qkv_width);
    project(pass, engine->normed, hidden, &layer->kv_a, layer->kv_a_bias, engine->latent_kv, kv_rank + rotary);
    latent_norm(pass, engine->latent_kv, layer->kv_a_norm, kv_rank, kv_rank + rotary);
    project(pass, engine->latent_kv, kv_rank + rotary, &layer->kv_b, none, engine->spread, engine->spread_width);
    struct rope_args q_rope = rotation(pass, engine->qkv, heads, head_dim, engine->qkv_width);
    struct rope_args k_rope = rotation(pass, key, 1, rotary, kv_rank + rotary);
    engine->ops->rope(engine->queue, &q_rope);
    engine->ops->rope(engine->queue, &k_rope);
    engine->ops->kv_write(engine->queue, &(struct kv_write_args){
        .in_k = engine->spread, .in_v = row_part(engine->spread, heads * (head_dim - rotary)), .shared = key,
        .k = sequence->k[n], .v = sequence->v[n], .slot = engine->slot, .format = engine->setup.cache,
        .rows = pass->rows, .kv_heads = heads,
        .head_dim = head_dim, .value_dim = shape->attention.value_dim, .capacity = sequence->capacity,
        .stride = engine->spread_width, .shared_width = rotary, .shared_stride = kv_rank + rotary});
}

static void attention(const struct pass *pass, int n)
{
    struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    const struct layer_weights *layer = &engine->weights->layer[n];
    int heads = shape->attention.heads, value_dim = shape->attention.value_dim;
    struct sequence *sequence = pass->sequence;

    norm(pass, engine->x, layer->attention_norm, layer->attention_norm_bias, engine->normed, pass->rows);
    (shape->attention.kv_rank ? make_latent_qkv : make_qkv)(pass, n);
    engine->ops->attention(engine->queue, &(struct attention_args){
        .q = engine->qkv, .k = sequence->k[n], .v = sequence->v[n], .sink = layer->sinks, .prefix = engine->prefix,
        .path_start = engine->path_start, .path = engine->path, .out = engine->attended, .scale = shape->attention.scale,
        .format = engine->setup.cache, .rows = pass->rows, .heads = heads,
        .kv_heads = shape->attention.kv_heads, .head_dim = shape->attention.head_dim, .value_dim = value_dim,
        .capacity = sequence->capacity, .stride = engine->qkv_width, .window = shape->layer[n].window,
        .longest = pass->longest});
    engine->ops->linear(engine->queue, &(struct linear_args){
        .in = engine->attended, .weight = layer->out.data, .bias = layer->out_bias, .out = engine->x,
        .operand = engine->operand, .format = layer->out.format, .add = true, .scale = shape->residual_scale,
        .slab = pass->slab, .rows = pass->rows, .inputs = heads * value_dim, .outputs = shape->hidden,
        .in_stride = heads * value_dim,
        .out_stride = shape->hidden});
}

/* Keeps the residual stream after layer n for the caller. */
static int keep_hidden(const struct pass *pass, int n, struct err *err)
{
    struct engine *engine = pass->engine;
    uint64_t row = (uint64_t)engine->shape->hidden * sizeof(float), bytes = (uint64_t)pass->rows * row;
    if (!engine->hidden.address &&
        device_alloc(engine->device, (uint64_t)engine->setup.max_rows * (uint64_t)engine->shape->layers * row,
                     &engine->hidden, err))
        return -1;
    engine->ops->gather(engine->queue, &(struct gather_args){
        .in = engine->x, .index = engine->every_row, .out = buffer_part(engine->hidden, (uint64_t)n * bytes, bytes),
        .rows = pass->rows, .count = pass->rows, .width = engine->shape->hidden});
    return 0;
}

static void head(const struct pass *pass)
{
    struct engine *engine = pass->engine;
    const struct matrix *matrix = &engine->weights->head;
    int rows = pass->batch->logit_rows, hidden = engine->shape->hidden;
    if (!rows)
        return;
    engine->ops->gather(engine->queue, &(struct gather_args){
        .in = engine->x, .index = engine->logit_row, .out = engine->last, .rows = pass->rows, .count = rows, .width = hidden});
    norm(pass, engine->last, engine->weights->final_norm, engine->weights->final_norm_bias, engine->last, rows);
    engine->ops->linear(engine->queue, &(struct linear_args){
        .in = engine->last, .weight = matrix->data, .bias = engine->weights->head_bias, .out = engine->logits,
        .operand = engine->operand,
        .scale = engine->shape->logit_divisor != 0 ? 1 / engine->shape->logit_divisor : 0, .format = matrix->format,
        .rows = rows, .inputs = hidden, .outputs = engine->shape->vocab, .in_stride = hidden,
        .out_stride = engine->shape->vocab});
}

int forward_put(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    const struct expert_plan *plan = pass->batch->plan;
    int moe = 0;
    if (plan && plan_begin(pass, err))
        return -1;
    engine->ops->embed(engine->queue, &(struct embed_args){
        .token = engine->token, .table = engine->weights->embed.data, .out = engine->x, .format = engine->weights->embed.format,
        .scale = shape->embed_scale, .rows = pass->rows, .vocab = shape->vocab, .hidden = shape->hidden});
    for (int n = 0; n < shape->layers; n++) {
        attention(pass, n);
        norm(pass, engine->x, engine->weights->layer[n].ffn_norm, engine->weights->layer[n].ffn_norm_bias, engine->normed,
             pass->rows);
        if (shape->layer[n].ffn == FFN_DENSE)
            dense_ffn(pass, n, shape->dense_inner, (struct buffer){0, 0});
        else if (experts_ffn(pass, n, moe++, err))
            return -1;
        if (shape->layer[n].ffn == FFN_EXPERTS && shape->shared_inner)
            shared_ffn(pass, n);
        if (pass->batch->want_hidden && keep_hidden(pass, n, err))
            return -1;
    }
    head(pass);
    return 0;
}

static int run(struct engine *engine, struct sequence *sequence, const struct batch *batch, bool slab, struct forward *out,
               struct err *err)
{
    int pending = sequence->pending;
    struct pass pass = {.engine = engine, .sequence = sequence, .batch = batch, .rows = batch->rows, .slab = slab};
    if (batch->plan && (batch->plan->moe_layers != engine->moe_layers || batch->plan->experts != engine->shape->router.experts))
        return err_set(err, ERR_INPUT, "the expert plan is for %d layers of %d experts, the model has %d of %d",
                       batch->plan->moe_layers, batch->plan->experts, engine->moe_layers, engine->shape->router.experts);
    if (batch->plan && batch->plan->ranking == PLAN_PATH && !batch->row_weight)
        return err_set(err, ERR_INPUT, "the expert plan goes by paths, but rows have no weights");
    for (int moe = 0; moe < engine->moe_layers; moe++)
        engine->reconstruction[moe] = 0;
    if (tree_append(engine, sequence, batch, err))
        return -1;
    pass.longest = sequence->length + sequence->pending;
    if (forward_put(&pass, err) || facts_collect(engine, sequence, batch, out, err)) {
        sequence->pending = pending;
        return -1;
    }
    return 0;
}

int engine_forward(struct engine *engine, struct sequence *sequence, const struct batch *batch, struct forward *out,
                   struct err *err)
{
    return run(engine, sequence, batch, false, out, err);
}

/* One piece of a prompt: a chain behind the committed tokens, committed at once. */
static int piece(struct engine *engine, struct sequence *sequence, const struct batch *batch, bool slab, struct forward *out,
                 struct err *err)
{
    int32_t *node = mem_alloc((size_t)batch->rows, sizeof *node, err);
    int rc = -1;
    if (!node)
        return -1;
    for (int i = 0; i < batch->rows; i++)
        node[i] = i;
    if (!run(engine, sequence, batch, slab, out, err))
        rc = sequence_commit(sequence, node, batch->rows, err);
    mem_free(&node);
    return rc;
}

/* Rows of the piece that begins at `position` of a part of a prompt that ends before `end`. */
static int piece_rows(const struct engine *engine, bool every, int position, int end, bool *slab)
{
    int size = every ? engine->setup.max_logit_rows : engine->piece_rows, rows = size - position % size;
    int whole = every ? 0 : engine->slab_rows, next = whole ? position - position % whole + whole : 0;
    *slab = whole && position % whole == 0 && next <= end;
    if (*slab)
        return whole;
    if (whole && next < position + rows && next + whole <= end)
        rows = next - position;
    return rows < end - position ? rows : end - position;
}

int engine_prompt(struct engine *engine, struct sequence *sequence, const int32_t *token, int count,
                  const struct batch *options, engine_piece_function *each, void *context, struct forward *out, struct err *err)
{
    struct batch batch = options ? *options : (struct batch){0};
    bool every = batch.logit_rows == ENGINE_EVERY_ROW, slab;
    if (sequence->pending)
        return err_set(err, ERR_INPUT, "a prompt cannot be added to a sequence with %d pending nodes", sequence->pending);
    if (count < 1)
        return err_set(err, ERR_INPUT, "the prompt has no tokens; give at least one");
    for (int done = 0; done < count; done += batch.rows) {
        int position = sequence->length;
        int32_t last;
        batch.rows = piece_rows(engine, every, position, position + count - done, &slab);
        last = batch.rows - 1;
        batch.token = token + done;
        batch.parent = NULL;
        batch.logit_row = every ? NULL : &last;
        batch.logit_rows = every ? batch.rows : done + batch.rows == count;
        if (piece(engine, sequence, &batch, slab, out, err) || (each && each(context, out, position, err)))
            return -1;
    }
    return 0;
}
