#include "common/model/synthetic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/splitmix.h"
#include "common/model/step.h"

enum { CHUNK_VALUES = 1 << 16 };

struct generator {
    uint64_t seed;
    float *values[THREAD_POOL_MAX];        /* [CHUNK_VALUES or one row] per member */
};

/* Permutes the 32-bit numbers by plain 32-bit operations, so that compilers vectorise the loop over columns. */
static uint32_t mix32(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Fills row `row` of a part with uniform values within +-bound. */
static void random_row(float *values, int columns, uint64_t key, int row, float bound)
{
    uint64_t row_key = splitmix_mix(key + (uint64_t)row * 0x9e3779b97f4a7c15u);
    uint32_t base = (uint32_t)row_key, twist = (uint32_t)(row_key >> 32) | 1;
    float scale = bound * 0x1p-31f;
    for (int i = 0; i < columns; i++)
        values[i] = (float)(int32_t)mix32(base + (uint32_t)i * twist) * scale;
}

static void make_part(float *values, const struct block_job *job, uint64_t key, enum block_part part, int rows, int columns)
{
    float deviation = job->tensor->role == ROLE_EMBED ? 1 : 1 / sqrtf((float)columns);
    int step = columns > CHUNK_VALUES ? 1 : CHUNK_VALUES / columns;
    for (int row = 0; row < rows; row += step) {
        int some = rows - row < step ? rows - row : step;
        for (int i = 0; i < some; i++)
            random_row(values + (size_t)i * (size_t)columns, columns, splitmix_mix(key + part), row + i, deviation * sqrtf(3));
        block_pack(job->tensor, job->packed, part, row, some, values);
    }
}

static bool is_norm(enum tensor_role role)
{
    return role == ROLE_FINAL_NORM || role == ROLE_ATTENTION_NORM || role == ROLE_FFN_NORM || role == ROLE_Q_NORM ||
           role == ROLE_ATTENTION_OUT_NORM || role == ROLE_FFN_OUT_NORM ||
           role == ROLE_EXPERTS_NORM || role == ROLE_EXPERTS_OUT_NORM || role == ROLE_SHARED_OUT_NORM ||
           role == ROLE_LAYER_SCALE || role == ROLE_ROUTER_NORM || role == ROLE_EXPERT_SCALE ||
           role == ROLE_K_NORM || role == ROLE_Q_A_NORM || role == ROLE_KV_A_NORM || role == ROLE_PREDICT_NORM ||
           role == ROLE_PREDICT_EMBED_NORM || role == ROLE_PREDICT_HIDDEN_NORM || role == ROLE_STATES_NORM ||
           role == ROLE_STATE_NORM || role == ROLE_DELTA_NORM || role == ROLE_DELTA_SKIP || role == ROLE_EMBED_NORM ||
           role == ROLE_HIDDEN_NORM;
}

static int make_random(void *context, int member, struct block_job *job, struct err *err)
{
    struct generator *g = context;
    const struct tensor *t = job->tensor;
    char line[128];
    int length = snprintf(line, sizeof line, "random %llu %s %d %d %d\n", (unsigned long long)g->seed, t->name, job->block,
                          t->outputs, t->inputs);
    struct digest128 name = hash_xxh3(t->name, strlen(t->name));
    uint64_t key = splitmix_mix(splitmix_mix(g->seed ^ name.low) + (uint64_t)job->block * 4);
    if (!g->values[member] && !(g->values[member] = mem_alloc(WIDTH_MAX, sizeof(float), err)))
        return -1;
    memset(job->packed, 0, t->stride);
    if (t->role == ROLE_DELTA_CONV) {
        random_row((float *)job->packed, t->outputs, key, 0, 1);
    } else if (t->role == ROLE_DELTA_NEG_A) {
        for (int i = 0; i < t->outputs; i++)
            ((float *)job->packed)[i] = -2 * (float)(i + 1) / (float)(t->outputs + 1);
    } else if (t->kind == TENSOR_VECTOR) {
        for (int i = 0; is_norm(t->role) && i < t->outputs; i++)
            ((float *)job->packed)[i] = 1;
    } else if (t->kind == TENSOR_MATRIX) {
        make_part(g->values[member], job, key, BLOCK_ROWS, t->outputs, t->inputs);
    } else {
        if (!t->ungated)
            make_part(g->values[member], job, key, BLOCK_GATE, t->inputs, t->outputs);
        make_part(g->values[member], job, key, BLOCK_UP, t->inputs, t->outputs);
        make_part(g->values[member], job, key, BLOCK_DOWN, t->outputs, t->inputs);
    }
    job->digest = hash_xxh3(line, (size_t)length);
    return 0;
}

int synthetic_plan(struct layout *out, const struct hparams *shape, const struct synthetic_options *options, struct err *err)
{
    if (options->head ? layout_make_head(out, options->head, shape, err) : layout_make(out, shape, err))
        return -1;
    for (int i = 0; i < out->count; i++) {
        struct tensor *t = &out->tensors[i];
        t->format = tensor_format(out, t, t->role == ROLE_EXPERTS ? options->experts : options->dense, FORMAT_BF16);
    }
    return 0;
}

int synthetic_write(const char *path, const struct hparams *shape, const struct synthetic_options *options,
                    struct thread_pool *pool,
                    struct progress *bar, struct err *err)
{
    struct model_facts facts = {.shape = *shape, .synthetic = true, .seed = options->seed, .tokenizer = options->tokenizer};
    const struct text *json = &options->tokenizer_json;
    struct generator *g = mem_alloc(1, sizeof *g, err);
    struct layout layout = {0};
    int rc = -1;
    if (!g || (json->length && text_put(&facts.tokenizer_json, json->data, json->length, err)) ||
        (options->head && head_copy(&facts.head, options->head, err)) || synthetic_plan(&layout, shape, options, err))
        goto done;
    model_facts_name(&facts, options->name);
    snprintf(facts.producer, sizeof facts.producer, "%s", options->producer);
    g->seed = options->seed;
    rc = model_write_all(path, &layout, &facts, &(struct block_maker){make_random, g}, &facts.source, pool, bar, err);
done:
    for (int i = 0; g && i < THREAD_POOL_MAX; i++)
        mem_free(&g->values[i]);
    mem_free(&g);
    layout_free(&layout);
    model_facts_free(&facts);
    return rc;
}

/* ---- inflating ---- */

enum tensor_role inflate_role(const struct hparams *shape) { return hparams_moe_layers(shape) ? ROLE_EXPERTS : ROLE_DENSE; }

int *inflate_inner(struct hparams *shape)
{
    return inflate_role(shape) == ROLE_EXPERTS ? &shape->expert_inner : &shape->dense_inner;
}

int inflate_plan(struct layout *out, const struct model *model, int inner, struct err *err)
{
    struct hparams shape = *model_hparams(model);
    const struct head_params *head = model_head(model);
    struct layout layout = {0};
    int *width = inflate_inner(&shape);
    if (head && (!*width || head->kind == HEAD_JAKIRO_STAR))
        return err_set(err, ERR_INPUT, "%s: heads of kind %s have no layer that can be inflated", model_path(model),
                       head_kind_name(head->kind));
    if (shape.expert_bias)
        return err_set(err, ERR_INPUT, "%s: experts with biases cannot be inflated", model_path(model));
    if (inner <= *width)
        return err_set(err, ERR_INPUT, "%s: the inner width of its %s is already %d; give a larger width",
                       model_path(model), inflate_role(&shape) == ROLE_EXPERTS ? "experts" : "dense layers", *width);
    *width = inner;
    if (head ? head_check(head, &shape, err) || layout_make_head(&layout, head, &shape, err)
             : hparams_check(&shape, err) || layout_make(&layout, &shape, err))
        return err_at(err, "%s", model_path(model));
    for (int i = 0; i < layout.count; i++) {
        const struct tensor *from = model_tensor_at(model, i);
        layout.tensors[i].format = from->format;
        layout.tensors[i].mixed = from->mixed;
        layout.tensors[i].last_format = from->last_format;
    }
    *out = layout;
    return 0;
}

/* Returns the total bytes of the padded tensors of a layout. */
static uint64_t padded_bytes(const struct layout *layout, const struct hparams *shape)
{
    enum tensor_role role = inflate_role(shape);
    uint64_t bytes = 0;
    for (int i = 0; i < layout->count; i++) {
        const struct tensor *t = &layout->tensors[i];
        if (t->role == role && t->layer < shape->layers)
            bytes += t->stride * (uint64_t)(role == ROLE_EXPERTS ? shape->router.top_k : 1);
    }
    return bytes;
}

/* Searches the width, since bytes rise with it: the largest width with at most `bytes`, or the next one if it is nearer. */
int inflate_width(int *inner, const struct model *model, uint64_t bytes, struct err *err)
{
    struct hparams shape = *model_hparams(model);
    struct step_bytes now;
    int low = *inflate_inner(&shape), high = WIDTH_MAX;
    step_bytes(&now, model);
    uint64_t rest = step_bytes_all(&now) - (inflate_role(&shape) == ROLE_EXPERTS ? now.experts : now.dense);
    uint64_t below = 0, above = 0;
    if (bytes <= step_bytes_all(&now))
        return err_set(err, ERR_INPUT, "%s: a step already reads %llu bytes; give a larger --step", model_path(model),
                       (unsigned long long)step_bytes_all(&now));
    while (high - low > 1) {
        struct layout layout = {0};
        uint64_t end;
        int middle = low + (high - low) / 2;
        if (inflate_plan(&layout, model, middle, err) || layout_arrange(&layout, MODEL_PAGE, &end, err)) {
            layout_free(&layout);
            return -1;
        }
        uint64_t reached = rest + padded_bytes(&layout, &shape);
        layout_free(&layout);
        if (reached <= bytes) {
            low = middle;
            below = reached;
        } else {
            high = middle;
            above = reached;
        }
    }
    *inner = low > *inflate_inner(&shape) && (!above || bytes - below <= above - bytes) ? low : high;
    return 0;
}

/* Copies an expert into a larger block. Units of gate and up are copied as they are; without a gate, the last unit of up may be
 * partly filled. A unit of down stores its inputs in order, so the old unit is the beginning of the new one. */
static void copy_expert(const struct tensor *from, const unsigned char *old, const struct tensor *to, unsigned char *packed)
{
    int hidden = to->outputs;
    size_t units = ((size_t)hidden + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS;
    size_t narrow = unit_bytes(tensor_last_format(from), from->inputs), wide = unit_bytes(tensor_last_format(to), to->inputs);
    size_t old_down = tensor_last_offset(from), down = tensor_last_offset(to);
    memset(packed, 0, to->stride);
    memcpy(packed, old, old_down);
    for (size_t i = 0; i < units; i++)
        memcpy(packed + down + i * wide, old + old_down + i * narrow, narrow);
}

static int copy_block(void *context, int member, struct block_job *job, struct err *err)
{
    const struct model *model = context;
    const struct tensor *from = model_tensor(model, err, "%s", job->tensor->name);
    (void)member;
    if (!from)
        return -1;
    const unsigned char *old = (const unsigned char *)model_data(model, from) + from->stride * (uint64_t)job->block;
    if (job->tensor->role == inflate_role(model_hparams(model)))
        copy_expert(from, old, job->tensor, job->packed);
    else
        memcpy(job->packed, old, job->tensor->stride);
    return 0;
}

int inflate_write(const char *path, const struct model *model, int inner, const char *producer, struct thread_pool *pool,
                  struct progress *bar, struct err *err)
{
    const struct model_facts *original = model_facts(model);
    struct model_facts facts = {0};
    struct layout layout = {0};
    struct sha256 unused;
    int rc = -1;
    /* The copy gets new digests, so undetected damage would pass as valid in the copy. */
    if (inflate_plan(&layout, model, inner, err) || model_verify(model, err) || model_facts_copy(&facts, original, err))
        goto done;
    if (!facts.inflated_from)
        facts.inflated_from = *inflate_inner(&facts.shape);
    *inflate_inner(&facts.shape) = inner;
    snprintf(facts.producer, sizeof facts.producer, "%s", producer);
    rc = model_write_all(path, &layout, &facts, &(struct block_maker){copy_block, (void *)(uintptr_t)model}, &unused, pool, bar,
                         err);
done:
    layout_free(&layout);
    model_facts_free(&facts);
    return rc;
}
