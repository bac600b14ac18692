/* After a forward: its arrays on the host, by row; distinct experts; nominal bytes. */
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"

/* From [layers][max_rows][width] on the device to [rows][layers][width] at `out`; elements are 4 bytes. */
static int fetch(struct engine *engine, struct buffer from, int layers, int rows, int width, void *out, struct err *err)
{
    size_t row_bytes = (size_t)width * 4, stride = (size_t)engine->setup.max_rows * row_bytes;
    for (int layer = 0; layer < layers; layer++) {
        queue_download(engine->device, engine->transpose, buffer_part(from, (size_t)layer * stride, stride),
                       (size_t)rows * row_bytes);
        if (queue_wait(engine->device, err))
            return -1;
        for (int row = 0; row < rows; row++)
            memcpy((char *)out + ((size_t)row * (size_t)layers + (size_t)layer) * row_bytes,
                   (const char *)engine->transpose + (size_t)row * row_bytes, row_bytes);
    }
    return 0;
}

/* distinct[layer] = experts that occur in expert [rows][layers][top_k]. */
static void count_distinct(struct engine *engine, const int32_t *expert, int rows, int32_t *distinct)
{
    int layers = engine->moe_layers, top_k = engine->shape->router.top_k, experts = engine->shape->router.experts;
    for (int layer = 0; layer < layers; layer++) {
        memset(engine->mark, 0, (size_t)experts);
        distinct[layer] = 0;
        for (int row = 0; row < rows; row++)
            for (int slot = 0; slot < top_k; slot++) {
                int32_t e = expert[((size_t)row * (size_t)layers + (size_t)layer) * (size_t)top_k + (size_t)slot];
                if (e >= 0 && !engine->mark[e]) {
                    engine->mark[e] = 1;
                    distinct[layer]++;
                }
            }
    }
}

static int fetch_routing(struct engine *engine, const struct batch *batch, struct forward *out, struct err *err)
{
    int moe = engine->moe_layers, top_k = engine->shape->router.top_k, rows = batch->rows;
    if (!moe)
        return 0;
    if (fetch(engine, engine->expert, moe, rows, top_k, engine->out_expert, err) ||
        fetch(engine, engine->weight, moe, rows, top_k, engine->out_weight, err) ||
        fetch(engine, engine->wanted, moe, rows, top_k, engine->out_wanted, err))
        return -1;
    count_distinct(engine, engine->out_wanted, rows, engine->distinct_wanted);
    count_distinct(engine, engine->out_expert, rows, engine->distinct_loaded);
    out->expert = engine->out_expert;
    out->weight = engine->out_weight;
    out->wanted = engine->out_wanted;
    out->distinct_wanted = engine->distinct_wanted;
    out->distinct_loaded = engine->distinct_loaded;
    out->reconstruction = batch->want_reconstruction ? engine->reconstruction : NULL;
    if (batch->want_scores) {
        if (fetch(engine, engine->score, moe, rows, engine->shape->router.experts, engine->out_score, err))
            return -1;
        out->score = engine->out_score;
    }
    return 0;
}

static int fetch_hidden(struct engine *engine, const struct batch *batch, struct forward *out, struct err *err)
{
    const struct hparams *shape = engine->shape;
    if (!batch->want_hidden)
        return 0;
    if (!engine->out_hidden) {
        size_t floats = (size_t)engine->setup.max_rows * (size_t)shape->layers * (size_t)shape->hidden;
        engine->out_hidden = mem_alloc(floats, sizeof(float), err);
        if (!engine->out_hidden)
            return -1;
    }
    if (fetch(engine, engine->hidden, shape->layers, batch->rows, shape->hidden, engine->out_hidden, err))
        return -1;
    out->hidden = engine->out_hidden;
    return 0;
}

int64_t nominal_bytes(const struct engine *engine, int64_t cached, int rows, bool with_head)
{
    const struct hparams *shape = engine->shape;
    int width = shape->attention.kv_heads * (shape->attention.head_dim + shape->attention.value_dim), experts_at = 0;
    int64_t bytes = engine->weights->layer_bytes + (with_head ? engine->weights->head_bytes : 0);
    for (int n = 0; n < shape->layers; n++) {
        int64_t seen = (int64_t)shape->layer[n].window + rows - 1;
        bytes += (shape->layer[n].window && seen < cached ? seen : cached) * width * (int64_t)cache_size(engine->setup.cache);
        if (shape->layer[n].ffn != FFN_DENSE)
            bytes += engine->distinct_loaded[experts_at++] * engine->weights->layer[n].expert_bytes;
    }
    return bytes;
}

int facts_collect(struct engine *engine, const struct sequence *sequence, const struct batch *batch, struct forward *out,
                  struct err *err)
{
    const struct hparams *shape = engine->shape;
    struct forward facts = {
        .rows = batch->rows, .logit_rows = batch->logit_rows, .moe_layers = engine->moe_layers,
        .experts = shape->router.experts, .top_k = shape->router.top_k, .vocab = shape->vocab, .layers = shape->layers,
        .hidden_size = shape->hidden, .logits = engine->out_logits,
    };
    queue_download(engine->device, engine->out_logits, engine->logits,
                   (size_t)batch->logit_rows * (size_t)shape->vocab * sizeof(float));
    if (queue_wait(engine->device, err) || fetch_routing(engine, batch, &facts, err) ||
        fetch_hidden(engine, batch, &facts, err))
        return -1;
    facts.expert_bytes = engine->weights->expert_bytes;
    facts.bytes = nominal_bytes(engine, sequence->length + sequence->pending, batch->rows, batch->logit_rows > 0);
    *out = facts;
    return 0;
}
