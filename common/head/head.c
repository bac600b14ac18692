/* A forward of a draft head: rows are added to the cache as nodes, the kind's `enter` computes the layer's input from
 * embeddings and states, the layer runs, and the logits of the branches are copied to the host. */
#include "common/head/head.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/head/internal.h"

static const struct head_class *const classes[] = {&head_eagle1, &head_eagle3, &head_medusa, &head_hydra, &head_kangaroo,
                                                &head_jakiro, &head_jakiro_star, NULL};

static const struct head_class *find_class(enum head_kind kind)
{
    const struct head_class *const *class = classes;
    while (*class && (*class)->kind != kind)
        class++;
    return *class;
}

struct buffer head_columns(struct buffer rows, int first)
{
    const uint64_t offset = (uint64_t)first * sizeof(float);
    return buffer_part(rows, offset, rows.bytes - offset);
}

void head_embed(const struct head_pass *pass, struct buffer out, int out_stride)
{
    head_embed_tokens(pass, pass->head->token, out, out_stride);
}

void head_embed_tokens(const struct head_pass *pass, struct buffer token, struct buffer out, int out_stride)
{
    const struct head *head = pass->head;
    const struct matrix *own = &head->weights.embed;
    head->ops->embed(head->queue, &(struct embed_args){
        .token = token, .table = own->data.address ? own->data : head->ends.embed, .out = out,
        .format = own->data.address ? own->format : head->ends.embed_format, .rows = pass->rows->rows,
        .vocab = head->shape->vocab, .hidden = head->shape->hidden, .out_stride = out_stride});
}

void head_gather(const struct head_pass *pass, struct buffer in, int in_rows, int in_stride, struct buffer index,
                 struct buffer out, int out_stride, int width)
{
    pass->head->ops->gather(pass->head->queue, &(struct gather_args){
        .in = in, .index = index, .out = out, .rows = in_rows, .count = pass->rows->rows, .width = width,
        .in_stride = in_stride, .out_stride = out_stride});
}

void head_recycle(const struct head_pass *pass, struct buffer out, int out_stride)
{
    const int hidden = pass->head->shape->hidden;
    head_gather(pass, pass->head->made, 1 + HEAD_NODES_MAX, hidden, pass->head->state_row, out, out_stride, hidden);
}

void head_linear(const struct head_pass *pass, struct buffer in, const struct matrix *matrix, struct buffer bias,
                 struct buffer out, int out_stride, bool add)
{
    const struct head *head = pass->head;
    head->ops->linear(head->queue, &(struct linear_args){
        .in = in, .weight = matrix->data, .bias = bias, .out = out, .operand = head->space.operand, .format = matrix->format,
        .add = add, .rows = pass->rows->rows, .inputs = matrix->inputs, .outputs = matrix->outputs,
        .in_stride = matrix->inputs, .out_stride = out_stride});
}

void head_norm(const struct head_pass *pass, struct buffer in, int in_stride, struct buffer weight, struct buffer out,
               int out_stride, int width)
{
    const struct head *head = pass->head;
    head->ops->norm(head->queue, &(struct norm_args){
        .in = in, .weight = weight, .out = out, .epsilon = head->shape->norm_epsilon, .rows = pass->rows->rows, .parts = 1,
        .width = width, .in_stride = in_stride, .out_stride = out_stride});
}

static int alloc(struct head *head, struct buffer *out, int rows, int width, struct err *err)
{
    return workspace_alloc(head->device, out, rows, width, sizeof(float), err);
}

static int alloc_buffers(struct head *head, struct err *err)
{
    const int rows = head->setup.max_rows, hidden = head->shape->hidden, wanted = head->setup.max_logit_rows;
    const struct head_params *params = head->params;
    const int states = params->states * params->target.hidden, branches = head_branches(head);
    const int tokens = params->kind == HEAD_HYDRA ? params->heads : 1;
    const int joined = states > (1 + tokens) * hidden ? states : (1 + tokens) * hidden;
    head->index = mem_alloc((size_t)rows, sizeof *head->index, err);
    if (!head->index || alloc(head, &head->token, rows, tokens, err) || alloc(head, &head->state_row, rows, 1, err) ||
        alloc(head, &head->logit_row, rows, 1, err) || alloc(head, &head->every_row, rows, 1, err) ||
        alloc(head, &head->embedded, rows, hidden, err) || alloc(head, &head->joined, rows, joined, err) ||
        alloc(head, &head->pair, rows, 2 * hidden, err) || alloc(head, &head->made, 1 + HEAD_NODES_MAX, hidden, err) ||
        alloc(head, &head->last, branches * wanted, hidden, err) ||
        workspace_alloc(head->device, &head->logits, (int64_t)branches * wanted, params->draft_vocab, sizeof(float), err))
        return -1;
    for (int row = 0; row < rows; row++)
        head->index[row] = row;
    queue_upload(head->device, head->every_row, head->index, (size_t)rows * sizeof *head->index);
    const uint64_t best = (uint64_t)(branches * wanted) * HEAD_BEST_MAX * (sizeof(int32_t) + sizeof(float));
    return device_alloc_shared(head->device, best > head->logits.bytes ? best : head->logits.bytes, &head->landing, err);
}

/* Returns whether the draft vocabulary's order is the target's, so that among equal logits the lower id is first in both. */
static bool keeps_order(const struct head_params *params)
{
    for (int i = 1; params->target_id && i < params->draft_vocab; i++)
        if (params->target_id[i] <= params->target_id[i - 1])
            return false;
    return true;
}

/* Allocates the buffers that only requests for the most probable tokens use. */
static int alloc_best(struct head *head, struct err *err)
{
    const struct head_params *params = head->params;
    const int rows = head_branches(head) * head->setup.max_logit_rows;
    head->ranks = params->draft_vocab <= TOP_VOCAB_MAX && keeps_order(params);
    if (!head->ranks)
        return 0;
    const size_t scratch = top_scratch_bytes(rows, params->draft_vocab, HEAD_BEST_MAX);
    if (alloc(head, &head->best_token, rows, HEAD_BEST_MAX, err) || alloc(head, &head->best_logp, rows, HEAD_BEST_MAX, err) ||
        workspace_alloc(head->device, &head->best_scratch, 1, (int64_t)scratch, 1, err) ||
        (params->target_id && alloc(head, &head->map, 1, params->draft_vocab, err)))
        return -1;
    if (!params->target_id)
        return 0;
    queue_upload(head->device, head->map, params->target_id, (size_t)params->draft_vocab * sizeof *params->target_id);
    return queue_wait(head->device, err);
}

/* Allocates the buffers of Jakiro's experts. The second branch combines two experts even if the first uses one. */
static int alloc_branches(struct head *head, struct err *err)
{
    const int rows = head->setup.max_rows, experts = head->shape->router.experts, used = head->shape->router.top_k;
    int rc = -1;
    if (head->class->branches < 2)
        return 0;
    head->slots = used < 2 && head_branches(head) > 1 ? 2 : used;
    int32_t *both = mem_alloc((size_t)rows * (size_t)head->slots, sizeof *both, err);
    if (!both || alloc(head, &head->router, rows, head->weights.layer.router.outputs, err) ||
        alloc(head, &head->weight, rows, head->slots, err) || alloc(head, &head->branch, rows, head->shape->hidden, err) ||
        (head->params->scaled && alloc(head, &head->scaled, rows, head->shape->hidden, err)) ||
        alloc(head, &head->chosen, rows, head->slots, err) || alloc(head, &head->wanted, rows, head->slots, err) ||
        alloc(head, &head->score, rows, experts, err) ||
        (head_routes(head->params, head->shape) &&
         !(head->routed = mem_alloc((size_t)rows * (size_t)head->slots, sizeof *head->routed, err))) ||
        workspace_widen(&head->space, head->slots, err))
        goto done;
    for (int i = 0; i < rows * head->slots; i++)
        both[i] = i % head->slots;
    queue_upload(head->device, head->chosen, both, (size_t)rows * (size_t)head->slots * sizeof *both);
    rc = queue_wait(head->device, err);
done:
    mem_free(&both);
    return rc;
}

/* Returns the output head: the head's own, or the target's. */
static struct matrix output_of(const struct head *head)
{
    const struct matrix *own = &head->weights.output;
    return own->data.address ? *own : (struct matrix){head->ends.head, head->ends.head_format, head->shape->vocab,
                                                      head->shape->hidden};
}

static int make(struct head *head, struct err *err)
{
    const struct head_setup *setup = &head->setup;
    const struct matrix output = output_of(head);
    return head_weights_open(&head->weights, setup->model, head->number, head->device, err) ||
           workspace_make(&head->space, head->device, setup->model, setup->max_rows, err) ||
           workspace_reserve(&head->space, operand_bytes(output.format, output.inputs), err) ||
           row_table_open(&head->table, head->device, setup->max_rows, err) || alloc_buffers(head, err) ||
           alloc_best(head, err) || alloc_branches(head, err) || head_experts_open(head, err) ? -1 : 0;
}

static struct head *new_head(const struct head_setup *setup, struct err *err)
{
    const struct engine_setup *target = engine_config(setup->target);
    struct head *head = mem_alloc(1, sizeof *head, err);
    if (!head)
        return NULL;
    head->setup = *setup;
    head->shape = model_hparams(setup->model);
    head->device = target->device;
    head->ops = device_ops(target->device);
    head->queue = device_queue(target->device);
    head->ends = engine_ends(setup->target);
    return head;
}

/* Fills in the description of a predictor, because the model file contains none. */
static void describe_own(struct head *head)
{
    const struct model_identity *model = model_identity(head->setup.model);
    head->class = &head_mtp;
    head->own = (struct head_params){
        .kind = HEAD_MTP, .states = 1, .state = {model->layers}, .normed_output = true, .draft_vocab = model->vocab,
        .target = {.source = model->source, .tokenizer = model->tokenizer, .layers = model->layers, .hidden = model->hidden,
                   .vocab = model->vocab}};
    snprintf(head->own.target.name, sizeof head->own.target.name, "%s", model->name);
    head->params = &head->own;
}

static int finish(struct head **out, struct head *head, int failed, struct err *err)
{
    if (failed) {
        const char *path = model_path(head->setup.model);
        head_close(&head);
        return err_at(err, "%s", path);
    }
    *out = head;
    return 0;
}

int head_open_network(struct head **out, const struct head_setup *setup, int module, struct err *err)
{
    struct head *head = new_head(setup, err);
    if (!head)
        return -1;
    describe_own(head);
    head->layers = 1;
    head->number = head->shape->layers + module;
    return finish(out, head, make(head, err), err);
}

static int open_predictors(struct head **out, const struct head_setup *setup, struct err *err)
{
    if (!model_hparams(setup->model)->predictors)
        return err_set(err, ERR_INPUT, "%s: the model has no layers for multi-token prediction; choose another drafter, such "
                       "as ngram", model_path(setup->model));
    struct head *head = new_head(setup, err);
    if (!head)
        return -1;
    describe_own(head);
    return finish(out, head, modules_open(head, err), err);
}

int head_open(struct head **out, const struct head_setup *setup, struct err *err)
{
    const struct head_params *params = model_head(setup->model);
    const struct head_class *class = params ? find_class(params->kind) : NULL;
    if (!params)
        return open_predictors(out, setup, err);
    if (!class)
        return err_set(err, ERR_INPUT, "%s: drafting with a head of kind %s is not supported", model_path(setup->model),
                       head_kind_name(params->kind));
    struct head *head = new_head(setup, err);
    if (!head)
        return -1;
    head->class = class;
    head->own = setup->params ? *setup->params : *params;
    head->params = &head->own;
    head->layers = head->shape->layers;
    return finish(out, head, make(head, err), err);
}

void head_close(struct head **head)
{
    struct head *h = *head;
    if (!h)
        return;
    struct buffer *all[] = {&h->token, &h->state_row, &h->logit_row, &h->every_row, &h->embedded, &h->joined, &h->pair,
                            &h->made, &h->router, &h->weight, &h->branch, &h->scaled, &h->chosen, &h->wanted, &h->score,
                            &h->last, &h->logits, &h->best_token,
                            &h->best_logp, &h->best_scratch, &h->map, &h->rope.table};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        device_free(h->device, all[i]);
    device_free_shared(h->device, &h->landing);
    modules_close(h);
    head_experts_close(h);
    kv_close(&h->kv);
    row_table_close(&h->table);
    workspace_free(&h->space);
    head_weights_close(&h->weights);
    mem_free(&h->index);
    mem_free(head);
}

const struct head_params *head_description(const struct head *head) { return head->params; }
bool head_ranks(const struct head *head) { return head->ranks; }
int head_branches(const struct head *head)
{
    const struct head_params *params = head->params;
    return params->kind == HEAD_JAKIRO && params->second == HEAD_SECOND_NONE ? 1
           : head->class->branches ? head->class->branches : params->heads;
}

int head_length(const struct head *head) { return head->modules ? modules_length(head) : head->kv.length; }
int head_pending(const struct head *head) { return head->modules ? modules_pending(head) : head->kv.pending; }
int head_capacity(const struct head *head) { return head->modules ? modules_capacity(head) : head->kv.capacity; }

int head_begin(struct head *head, int tokens, struct err *err)
{
    const struct hparams *shape = head->shape;
    if (head->modules)
        return modules_begin(head, tokens, err);
    const struct layer_attention own = hparams_attention(shape, head->number);
    const struct kv_shape kv = {head->layers, own.kv_heads, own.head_dim, own.value_dim, NULL,
                                engine_config(head->setup.target)->cache};
    head->kv.length = head->kv.pending = 0;
    if (head->kv.capacity >= tokens + HEAD_NODES_MAX)
        return 0;
    kv_close(&head->kv);
    head->kv.capacity = 0;
    return rope_cover(&head->rope, own.rope, head->device, tokens + HEAD_NODES_MAX, err) ||
           kv_open(&head->kv, head->device, &kv, tokens + HEAD_NODES_MAX, err) ? -1 : 0;
}

/* Checks that a row that continues from the head's output has a parent in an earlier batch. */
static int check_row(const struct head *head, const struct head_batch *batch, int row, struct err *err)
{
    const int pending = head->kv.pending, parent = batch->parent ? (int)batch->parent[row] : pending + row - 1;
    if (batch->token && (batch->token[row] < 0 || batch->token[row] >= head->shape->vocab))
        return err_set(err, ERR_INPUT, "token %d is outside the vocabulary of %d tokens", (int)batch->token[row],
                       head->shape->vocab);
    if (parent < -1 || parent >= pending + row)
        return err_set(err, ERR_INPUT, "row %d: its parent, node %d, is not an earlier node", row, parent);
    if (!batch->state.address && (parent >= pending || (parent < 0 && !head->kv.length)))
        return err_set(err, ERR_INPUT, "row %d: its parent has not been computed yet", row);
    if (batch->state.address && (batch->state_row[row] < 0 || batch->state_row[row] >= batch->state_rows))
        return err_set(err, ERR_INPUT, "row %d: reads state %d, but there are %d states", row, (int)batch->state_row[row],
                       batch->state_rows);
    return 0;
}

int head_check_best(const struct head *head, int best, struct err *err)
{
    const int vocab = head->params->draft_vocab, max = !head->ranks ? 0 : vocab < HEAD_BEST_MAX ? vocab : HEAD_BEST_MAX;
    return best >= 0 && best <= max ? 0 : err_set(err, ERR_INPUT, "the %d most likely tokens were requested, but this head "
                                                  "returns at most %d", best, max);
}

static int check(const struct head *head, const struct head_batch *batch, struct err *err)
{
    if (batch->rows < 1 || batch->rows > head->setup.max_rows)
        return err_set(err, ERR_INPUT, "a forward has %d rows, but this head processes 1 to %d", batch->rows,
                       head->setup.max_rows);
    if (batch->logit_rows < 0 || batch->logit_rows > batch->rows || batch->logit_rows > head->setup.max_logit_rows ||
        batch->branches < 0 || batch->branches > head_branches(head))
        return err_set(err, ERR_INPUT, "logits of %d rows and %d branches were requested, but this head returns at most %d "
                       "rows and %d branches", batch->logit_rows,
                       batch->branches, head->setup.max_logit_rows, head_branches(head));
    if (head_check_best(head, batch->best, err))
        return -1;
    if (head->kv.pending + batch->rows > HEAD_NODES_MAX ||
        head->kv.length + head->kv.pending + batch->rows > head->kv.capacity)
        return err_set(err, ERR_INPUT, "the head's KV cache is full: %d rows and %d pending nodes of its %d slots are used, "
                       "and %d more rows were to be added", head->kv.length,
                       head->kv.pending, head->kv.capacity, batch->rows);
    for (int row = 0; row < batch->rows; row++)
        if (check_row(head, batch, row, err))
            return -1;
    for (int i = 0; batch->logit_row && i < batch->logit_rows; i++)
        if (batch->logit_row[i] < 0 || batch->logit_row[i] >= batch->rows)
            return err_set(err, ERR_INPUT, "logits of row %d were requested, but this forward has %d rows",
                           (int)batch->logit_row[i], batch->rows);
    return 0;
}

static void upload(struct head *head, struct buffer to, const int32_t *values, int count)
{
    queue_upload(head->device, to, values, (size_t)count * sizeof *values);
}

/* Adds rows as pending nodes and uploads their arguments. */
static int append(struct head *head, const struct head_batch *batch, struct err *err)
{
    const int first = head->kv.pending;
    int32_t *index = head->index;
    for (int row = 0; row < batch->rows; row++) {
        kv_append(&head->kv, first + row, batch->parent ? (int)batch->parent[row] : first + row - 1);
        index[row] = first + row;
    }
    if (row_table_fill(&head->table, &head->kv, index, batch->rows, err))
        return -1;
    if (batch->token)
        upload(head, head->token, batch->token, batch->rows);
    for (int row = 0; row < batch->rows; row++)
        index[row] = batch->state.address ? batch->state_row[row] : 1 + head->kv.parent[first + row];
    upload(head, head->state_row, index, batch->rows);
    for (int i = 0; i < batch->logit_rows; i++)
        index[i] = batch->logit_row ? batch->logit_row[i] : i;
    upload(head, head->logit_row, index, batch->logit_rows);
    head->table.at.longest = head->kv.length + first + batch->rows;
    return 0;
}

/* Computes the logits of the requested rows, for all branches in one product, so that the output head is read once. */
static void put_logits(const struct head_pass *pass, int branches)
{
    const struct head *head = pass->head;
    const struct matrix output = output_of(head);
    const int rows = pass->batch->logit_rows, hidden = head->shape->hidden;
    const bool own = head->weights.output.data.address != 0;
    const uint64_t bytes = (uint64_t)rows * (uint64_t)hidden * sizeof(float);
    for (int branch = 0; branch < branches; branch++)
        head->ops->gather(head->queue, &(struct gather_args){
            .in = pass->branch[branch], .index = head->logit_row,
            .out = buffer_part(head->last, (uint64_t)branch * bytes, bytes), .rows = pass->rows->rows, .count = rows,
            .width = hidden});
    if (head->weights.final_norm.address && !head->params->normed_output)
        layer_norm(&head->space, head->last, head->weights.final_norm, (struct buffer){0, 0}, head->last, branches * rows);
    head->ops->linear(head->queue, &(struct linear_args){
        .in = head->last, .weight = output.data, .bias = own ? (struct buffer){0, 0} : head->ends.head_bias,
        .out = head->logits, .operand = head->space.operand, .scale = own ? 0 : head->ends.scale, .format = output.format,
        .rows = branches * rows, .inputs = hidden, .outputs = output.outputs, .in_stride = hidden,
        .out_stride = output.outputs});
}

void head_fetch(const struct head *head, int branches, int rows, int best, struct head_forward *out)
{
    const int vocab = head->params->draft_vocab, each = rows * (best ? best : vocab);
    const size_t bytes = (size_t)branches * (size_t)each * sizeof(float);
    char *landed = (char *)(uintptr_t)head->landing.address;
    if (!best) {
        queue_download(head->device, landed, head->logits, bytes);
        for (int branch = 0; branch < branches; branch++)
            out->logits[branch] = (const float *)(const void *)landed + (size_t)branch * (size_t)each;
        return;
    }
    head->ops->top(head->queue, &(struct top_args){
        .logits = head->logits, .map = head->map, .token = head->best_token, .logp = head->best_logp,
        .scratch = head->best_scratch, .rows = branches * rows, .vocab = vocab, .k = best});
    queue_download(head->device, landed, head->best_token, bytes);
    queue_download(head->device, landed + bytes, head->best_logp, bytes);
    for (int branch = 0; branch < branches; branch++)
        out->best[branch] = (struct head_best){(const int32_t *)(const void *)landed + branch * each,
                                               (const float *)(const void *)(landed + bytes) + branch * each};
}

static int put(struct head_pass *pass, int first, struct err *err)
{
    struct head *head = pass->head;
    const uint64_t row = (uint64_t)head->shape->hidden * sizeof(float);
    if (head->class->enter(pass, err))
        return -1;
    const struct layer_text text = {
        .rows = *pass->rows, .cache = head->layers ? kv_layer(&head->kv, 0) : (struct layer_cache){.capacity = 0}};
    const struct layer layer = {
        .space = &head->space, .number = head->number, .weights = &head->weights.layer, .routing = head->routing,
        .experts = {head->experts, head->weights.layer.experts_format, head->weights.layer.experts_down_format,
                    head->weights.layer.expert_bytes},
        .reads = pass->reads, .rows = pass->rows, .text = &text, .texts = 1, .rope = head->rope.table};
    if (head->layers && layer_attention(&layer, err))
        return -1;
    if (head->class->leave(pass, &layer, err))
        return -1;
    head_gather(pass, pass->made.address ? pass->made : pass->branch[0], pass->rows->rows, head->shape->hidden, head->every_row,
                buffer_part(head->made, (uint64_t)(1 + first) * row, (uint64_t)pass->rows->rows * row), head->shape->hidden,
                head->shape->hidden);
    return 0;
}

static bool joins(const struct head_pass *pass)
{
    return pass->head->class->joins && pass->batch->branches < 2;
}

int head_wanted_branches(const struct head_pass *pass)
{
    const struct head_batch *batch = pass->batch;
    return !batch->logit_rows ? 0 : joins(pass) ? pass->head->class->branches : batch->branches ? batch->branches : 1;
}

/* Replaces the logits of the first branch by those of both branches under one softmax. */
static void join(const struct head_pass *pass)
{
    const struct head *head = pass->head;
    const int rows = pass->batch->logit_rows, vocab = head->params->draft_vocab;
    const uint64_t bytes = (uint64_t)rows * (uint64_t)vocab * sizeof(float);
    const struct buffer first = buffer_part(head->logits, 0, bytes);
    head->ops->log_add(head->queue, &(struct log_add_args){
        .in = first, .add = buffer_part(head->logits, bytes, bytes), .out = first, .rows = rows, .width = vocab});
}

static int fetch(struct head_pass *pass, struct head_forward *out, struct err *err)
{
    struct head *head = pass->head;
    const struct head_batch *batch = pass->batch;
    const int branches = head_wanted_branches(pass);
    if (branches)
        put_logits(pass, branches);
    if (branches && joins(pass))
        join(pass);
    if (branches)
        head_fetch(head, joins(pass) ? 1 : branches, batch->logit_rows, batch->best, out);
    if (head->experts)
        head->routes = batch->rows * head->routing.top_k;
    if (head->routed)
        queue_download(head->device, head->routed, head->experts ? head->routing.expert : head->chosen,
                       (size_t)head->routes * sizeof *head->routed);
    return queue_wait(head->device, err);
}

static int64_t nominal_bytes(const struct head_pass *pass)
{
    const struct head *head = pass->head;
    const struct kv_shape *kv = &head->kv.shape;
    const struct matrix output = output_of(head);
    const int64_t cached = head->kv.length + head->kv.pending, width = kv->kv_heads * (kv->head_dim + kv->value_dim);
    const int64_t token = width * (int64_t)cache_size(kv->format) + 2 * kv->kv_heads * (int64_t)cache_scale(kv->format);
    return head->weights.layer_bytes + cached * token +
           head_experts_bytes(head) + (pass->batch->logit_rows ? (int64_t)output.data.bytes : 0);
}

int head_run(struct head *head, const struct head_batch *batch, struct head_forward *out, struct err *err)
{
    if (head->modules)
        return modules_run(head, batch, out, err);
    const int first = head->kv.pending;
    struct head_pass pass = {.head = head, .batch = batch, .rows = &head->table.at};
    struct head_forward facts = {.rows = batch->rows, .logit_rows = batch->logit_rows, .vocab = head->params->draft_vocab,
                                 .first_node = first};
    if (check(head, batch, err) || append(head, batch, err) || put(&pass, first, err) || fetch(&pass, &facts, err))
        return -1;
    head->kv.pending += batch->rows;
    facts.bytes = nominal_bytes(&pass);
    *out = facts;
    return 0;
}

int head_commit(struct head *head, const int32_t *node, int count, struct err *err)
{
    if (head->modules)
        return modules_commit(head, node, count, err);
    const uint64_t row = (uint64_t)head->shape->hidden * sizeof(float);
    const int32_t last = count ? node[count - 1] : -1;
    if (kv_commit(&head->kv, node, count, err))
        return -1;
    if (count) {
        upload(head, head->state_row, &last, 1);
        head->ops->gather(head->queue, &(struct gather_args){
            .in = buffer_part(head->made, row, head->made.bytes - row), .index = head->state_row, .out = head->made,
            .rows = HEAD_NODES_MAX, .count = 1, .width = head->shape->hidden});
    }
    return 0;
}

void head_rollback(struct head *head)
{
    if (head->modules)
        modules_rollback(head);
    head->kv.pending = 0;
}
