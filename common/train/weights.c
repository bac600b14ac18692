#include "common/train/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/model_write.h"
#include "kernels/plain/philox.h"

enum { ALIGN = 16 };

static size_t padded_floats(const struct weight *weight)
{
    return size_align((size_t)weight->value.rows * (size_t)weight->value.width, ALIGN);
}

static bool is_frozen(const struct weight *weight) { return weight->tensor->role == ROLE_EMBED; }

/* Lists the weights of the layout, without allocating their memory. */
static void list_weights(struct weights *w)
{
    for (int i = 0; i < w->layout.count; i++) {
        const struct tensor *t = &w->layout.tensors[i];
        if (t->kind != TENSOR_EXPERTS) {
            const bool vector = t->kind == TENSOR_VECTOR;
            w->list[w->count++] = (struct weight){
                .tensor = t, .value = {.rows = vector ? 1 : t->outputs, .width = vector ? t->outputs : t->inputs}};
            continue;
        }
        for (int block = 0; block < t->count; block++) {
            w->list[w->count++] = (struct weight){.tensor = t, .part = WEIGHT_GATE_UP, .block = block,
                                                  .value = {.rows = 2 * t->inputs, .width = t->outputs}};
            w->list[w->count++] = (struct weight){.tensor = t, .part = WEIGHT_DOWN, .block = block,
                                                  .value = {.rows = t->outputs, .width = t->inputs}};
        }
    }
}

static int lay_out(struct weights *w, struct err *err)
{
    size_t at = 0, kept = 0;
    for (int i = 0; i < w->count; i++)
        *(is_frozen(&w->list[i]) ? &kept : &w->floats) += padded_floats(&w->list[i]);
    if (!(w->data = mem_alloc_aligned(w->floats, sizeof *w->data, err)) ||
        !(w->first = mem_alloc_aligned(w->floats, sizeof *w->data, err)) ||
        !(w->second = mem_alloc_aligned(w->floats, sizeof *w->data, err)) ||
        !(w->frozen = mem_alloc_aligned(kept, sizeof *w->data, err)))
        return -1;
    w->frozen_floats = kept;
    kept = 0;
    for (int i = 0; i < w->count; i++) {
        struct weight *weight = &w->list[i];
        const bool frozen = is_frozen(weight);
        weight->data = frozen ? w->frozen + kept : w->data + at;
        *(frozen ? &kept : &at) += padded_floats(weight);
    }
    return 0;
}

int weights_make(struct weights **out, const struct head_params *head, const struct hparams *shape, struct err *err)
{
    struct weights *w = mem_alloc(1, sizeof *w, err);
    size_t room = 0;
    if (!w)
        return -1;
    w->shape = *shape;
    if (head_copy(&w->head, head, err) || layout_make_head(&w->layout, head, shape, err))
        goto failed;
    for (int i = 0; i < w->layout.count; i++)
        room += 2 * (size_t)w->layout.tensors[i].count;
    if (!(w->list = mem_alloc(room, sizeof *w->list, err)))
        goto failed;
    list_weights(w);
    if (lay_out(w, err))
        goto failed;
    *out = w;
    return 0;
failed:
    weights_free(&w);
    return -1;
}

/* Returns whether the device computes in host memory, so that both sides share the arrays. */
static bool in_place(const struct weights *w) { return device_info(w->device)->host_memory; }

void weights_free(struct weights **weights)
{
    struct weights *w = *weights;
    if (!w)
        return;
    head_free(&w->head);
    layout_free(&w->layout);
    mem_free(&w->list);
    mem_free(&w->data);
    mem_free(&w->gradient);
    mem_free(&w->first);
    mem_free(&w->second);
    mem_free(&w->frozen);
    if (w->device && !in_place(w))
        for (int part = 0; part < WEIGHTS_PARTS; part++)
            device_free(w->device, &w->at[part]);
    if (w->device && !in_place(w))
        device_free(w->device, &w->frozen_at);
    if (w->device) {
        device_free(w->device, &w->squares);
        device_free(w->device, &w->outside);
    }
    mem_free(weights);
}

struct weight *weights_find(struct weights *weights, enum tensor_role role, enum weight_part part, int layer, int stage)
{
    for (int i = 0; i < weights->count; i++) {
        struct weight *weight = &weights->list[i];
        const struct tensor *t = weight->tensor;
        const bool expert = t->kind == TENSOR_EXPERTS;
        if (t->role == role && weight->part == part && t->layer == layer && (expert ? weight->block : t->stage) == stage)
            return weight;
    }
    return NULL;
}

/* ---- on a device ---- */

static float **host_part(struct weights *w, enum weights_part part)
{
    float **const parts[] = {&w->data, &w->first, &w->second, &w->gradient};
    return parts[part];
}

/* Allocates `count` floats on the device and copies `data` to them; NULL: leaves them undefined. */
static int upload_floats(struct weights *w, float *data, size_t count, struct buffer *out, struct err *err)
{
    const size_t bytes = count * sizeof *data;
    if (in_place(w)) {
        *out = device_map(w->device, data, bytes);
        return 0;
    }
    if (device_alloc(w->device, bytes, out, err))
        return -1;
    if (data)
        queue_upload(w->device, *out, data, bytes);
    return 0;
}

static struct buffer part_of(struct buffer whole, size_t at, size_t count)
{
    return whole.address ? buffer_part(whole, at * sizeof(float), count * sizeof(float)) : whole;
}

int weights_place(struct weights *w, struct device *device, struct err *err)
{
    const size_t blocks = (w->floats + LEARN_BLOCK - 1) / LEARN_BLOCK;
    w->device = device;
    if (in_place(w) && !(w->gradient = mem_alloc_aligned(w->floats, sizeof *w->gradient, err)))
        return -1;
    for (int part = 0; part < WEIGHTS_PARTS; part++)
        if (upload_floats(w, *host_part(w, (enum weights_part)part), w->floats, &w->at[part], err))
            return -1;
    if (upload_floats(w, w->frozen, w->frozen_floats, &w->frozen_at, err) ||
        device_alloc(device, blocks * sizeof(double), &w->squares, err) ||
        device_alloc(device, blocks * sizeof(int64_t), &w->outside, err))
        return -1;
    for (int i = 0; i < w->count; i++) {
        struct weight *weight = &w->list[i];
        const size_t count = (size_t)weight->value.rows * (size_t)weight->value.width;
        if (is_frozen(weight)) {
            weight->value.data = part_of(w->frozen_at, (size_t)(weight->data - w->frozen), count);
        } else {
            weight->value.data = part_of(w->at[WEIGHTS_DATA], (size_t)(weight->data - w->data), count);
            weight->value.gradient = part_of(w->at[WEIGHTS_GRADIENT], (size_t)(weight->data - w->data), count);
        }
    }
    weights_clear_gradients(w);
    return queue_wait(device, err);
}

int weights_fetch(struct weights *w, enum weights_part part, size_t begin, size_t end, struct err *err)
{
    float **to = host_part(w, part);
    if (in_place(w))
        return 0;
    if (!*to && !(*to = mem_alloc_aligned(w->floats, sizeof **to, err)))
        return -1;
    queue_download(w->device, *to + begin, part_of(w->at[part], begin, end - begin), (end - begin) * sizeof **to);
    return queue_wait(w->device, err);
}

int weights_send(struct weights *w, enum weights_part part, size_t begin, size_t end, struct err *err)
{
    if (in_place(w))
        return 0;
    queue_upload(w->device, part_of(w->at[part], begin, end - begin), *host_part(w, part) + begin,
                 (end - begin) * sizeof(float));
    return queue_wait(w->device, err);
}

int weights_fetch_all(struct weights *w, struct err *err)
{
    for (int part = WEIGHTS_DATA; part <= WEIGHTS_SECOND; part++)
        if (weights_fetch(w, (enum weights_part)part, 0, w->floats, err))
            return -1;
    return 0;
}

int weights_send_all(struct weights *w, struct err *err)
{
    for (int part = WEIGHTS_DATA; part <= WEIGHTS_SECOND; part++)
        if (weights_send(w, (enum weights_part)part, 0, w->floats, err))
            return -1;
    return 0;
}

void weights_clear_gradients(struct weights *w)
{
    device_learn(w->device)->clear(device_queue(w->device), &(struct learn_clear_args){w->at[WEIGHTS_GRADIENT], w->floats});
}

/* ---- from files ---- */

void tensor_row(const struct model *model, const struct tensor *tensor, int row, float *out)
{
    const char *data = model_data(model, tensor);
    enum weight_format format = tensor->format;
    if (tensor->mixed && row >= tensor->outputs - tensor->last) {
        data += tensor_last_offset(tensor);
        row -= tensor->outputs - tensor->last;
        format = tensor->last_format;
    }
    for (int i = 0; i < tensor->inputs; i++)
        out[i] = matrix_at(format, data, tensor->inputs, row, i);
}

static void read_expert(const struct weight *weight, const struct tensor *t, const char *packed)
{
    const int hidden = t->outputs, inner = t->inputs;
    float *out = weight->data;
    const char *down = packed + tensor_last_offset(t);
    if (weight->part == WEIGHT_DOWN) {
        for (int row = 0; row < hidden; row++)
            for (int i = 0; i < inner; i++)
                *out++ = matrix_at(tensor_last_format(t), down, inner, row, i);
        return;
    }
    for (int row = 0; row < 2 * inner; row++)
        for (int i = 0; i < hidden; i++)
            *out++ = row < inner ? expert_gate_at(t->format, packed, hidden, inner, row, i)
                                 : expert_up_at(t->format, packed, hidden, inner, row - inner, i);
}

void weights_read(struct weights *weights, const struct model *file)
{
    for (int i = 0; i < weights->count; i++) {
        const struct weight *weight = &weights->list[i];
        const struct tensor *t = model_tensor(file, NULL, "%s", weight->tensor->name);
        const char *data = model_data(file, t);
        if (t->kind == TENSOR_VECTOR)
            memcpy(weight->data, data, (size_t)t->outputs * sizeof(float));
        else if (t->kind == TENSOR_EXPERTS)
            read_expert(weight, t, data + (size_t)weight->block * t->stride);
        else
            for (int row = 0; row < t->outputs; row++)
                tensor_row(file, t, row, weight->data + (size_t)row * (size_t)t->inputs);
    }
}

/* ---- how training begins ---- */

/* Fills a weight uniformly from -bound .. bound. Philox gives four numbers per block; its counter is the weight's number and
 * the block's index in it. */
static void draw(const struct weight *weight, int number, float bound, uint64_t seed)
{
    const size_t count = (size_t)weight->value.rows * (size_t)weight->value.width;
    struct philox bits = {{0}};
    for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0)
            bits = philox((struct philox){{(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), (uint32_t)number, 0x57u}}, seed);
        weight->data[i] = bound * ((float)(bits.word[i % 4] >> 8) * 0x1p-23f - 1 + 0x1p-24f);
    }
}

static bool is_norm(enum tensor_role role)
{
    return role == ROLE_FINAL_NORM || role == ROLE_ATTENTION_NORM || role == ROLE_FFN_NORM || role == ROLE_EMBED_NORM ||
           role == ROLE_HIDDEN_NORM || role == ROLE_STATES_NORM || role == ROLE_STATE_NORM;
}

/* Returns the number of inputs of a matrix; for a bias, that of the matrix before it. */
static int inputs_of(const struct weights *weights, int number)
{
    const struct weight *weight = &weights->list[number];
    return weight->tensor->kind == TENSOR_VECTOR ? weights->list[number - 1].value.width : weight->value.width;
}

static const struct tensor *target_head(const struct model *target, struct err *err)
{
    return model_tensor(target, err, model_hparams(target)->tied ? "embed" : "head");
}

int weights_start(struct weights *weights, const struct model *target, uint64_t seed, struct err *err)
{
    for (int i = 0; i < weights->count; i++) {
        const struct weight *weight = &weights->list[i];
        const enum tensor_role role = weight->tensor->role;
        const size_t count = (size_t)weight->value.rows * (size_t)weight->value.width;
        if (is_norm(role)) {
            for (size_t k = 0; k < count; k++)
                weight->data[k] = 1;
        } else if (role == ROLE_OUTPUT || role == ROLE_EMBED) {
            const struct tensor *from = role == ROLE_EMBED ? model_tensor(target, err, "embed") : target_head(target, err);
            if (!from)
                return -1;
            for (int row = 0; row < from->outputs; row++)
                tensor_row(target, from, row, weight->data + (size_t)row * (size_t)from->inputs);
        } else if (role != ROLE_BLOCK) {
            draw(weight, i, 1 / sqrtf((float)inputs_of(weights, i)), seed);
        }
    }
    return 0;
}

/* ---- into a file ---- */

struct packing {
    const struct weights *weights;
};

/* Returns the first weight of a tensor's block. */
static const struct weight *weight_of(const struct weights *weights, const struct tensor *tensor, int block)
{
    for (int i = 0; i < weights->count; i++)
        if (strcmp(weights->list[i].tensor->name, tensor->name) == 0 && weights->list[i].block == block)
            return &weights->list[i];
    return NULL;
}

static int pack_block(void *context, int member, struct block_job *job, struct err *err)
{
    const struct packing *packing = context;
    const struct tensor *t = job->tensor;
    const struct weight *weight = weight_of(packing->weights, t, job->block);
    (void)member, (void)err;
    memset(job->packed, 0, t->stride);
    if (t->kind == TENSOR_VECTOR) {
        memcpy(job->packed, weight->data, (size_t)t->outputs * sizeof(float));
    } else if (t->kind == TENSOR_MATRIX) {
        matrix_pack(t->format, job->packed, t->inputs, 0, t->outputs, weight->data);
    } else {
        const int hidden = t->outputs, inner = t->inputs;
        expert_pack_gate_up(t->format, job->packed, hidden, 0, 0, inner, weight->data);
        expert_pack_gate_up(t->format, job->packed, hidden, 1, 0, inner,
                            weight->data + (size_t)inner * (size_t)hidden);
        expert_pack_down(t->format, job->packed, hidden, inner, 0, hidden, weight[1].data);
    }
    job->digest = hash_xxh3(job->packed, t->stride);
    return 0;
}

int weights_write(struct weights *weights, const struct weights_file *file, struct thread_pool *pool, struct err *err)
{
    struct packing packing = {weights};
    const struct block_maker maker = {pack_block, &packing};
    struct model_writer *writer = NULL;
    struct model_facts facts = {.shape = weights->shape};
    struct layout layout = {0};
    int rc = -1;
    if (weights->device && weights_fetch(weights, WEIGHTS_DATA, 0, weights->floats, err))
        return -1;
    if (head_copy(&facts.head, &weights->head, err) || layout_make_head(&layout, &weights->head, &weights->shape, err))
        goto done;
    for (int i = 0; i < layout.count; i++)
        layout.tensors[i].format = tensor_format(&layout, &layout.tensors[i], file->format, FORMAT_F32);
    model_facts_name(&facts, file->name);
    snprintf(facts.producer, sizeof facts.producer, "%s", file->producer);
    if (model_writer_open(&writer, file->path, &layout, err) ||
        model_writer_fill(writer, &maker, pool, NULL, &facts.source, err) || model_writer_commit(&writer, &facts, err))
        goto done;
    rc = 0;
done:
    model_writer_discard(&writer);
    layout_free(&layout);
    model_facts_free(&facts);
    return rc;
}
