/* After a forward: its arrays on the host, by row; distinct experts; nominal bytes. */
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"

/* An array of a forward: [layers][rows][width] on the device, and so it lands; [rows][layers][width] at `out`. Elements are 4
 * bytes. */
struct fetched {
    struct buffer from;
    int layers, width;
    void *out;
};

enum { FETCHED_MOST = 5 };

static size_t fetched_bytes(const struct fetched *array, int rows)
{
    return (size_t)array->layers * (size_t)rows * (size_t)array->width * 4;
}

static void turn(const struct fetched *array, int rows, const char *landed)
{
    size_t row_bytes = (size_t)array->width * 4, layers = (size_t)array->layers;
    for (size_t layer = 0; layer < layers; layer++)
        for (size_t row = 0; row < (size_t)rows; row++)
            memcpy((char *)array->out + (row * layers + layer) * row_bytes,
                   landed + (layer * (size_t)rows + row) * row_bytes, row_bytes);
}

/* Makes room for so many bytes to land; what landed before is gone. */
static int make_landing(struct engine *engine, size_t bytes, struct err *err)
{
    size_t room = 2 * (size_t)engine->landing.bytes;
    if (bytes <= engine->landing.bytes)
        return 0;
    device_free_shared(engine->device, &engine->landing);
    return device_alloc_shared(engine->device, bytes > room ? bytes : room, &engine->landing, err);
}

/* All copies are on their way before the one wait: the logits, which stay where they land, and behind them the arrays. */
static int fetch(struct engine *engine, const struct batch *batch, const struct fetched *array, int count, struct err *err)
{
    size_t logits = (size_t)batch->logit_rows * (size_t)engine->shape->vocab * sizeof(float), bytes = logits;
    for (int i = 0; i < count; i++)
        bytes += fetched_bytes(&array[i], batch->rows);
    if (make_landing(engine, bytes, err))
        return -1;
    char *first = (char *)(uintptr_t)engine->landing.address, *at = first + logits;
    queue_download(engine->device, first, engine->logits, logits);
    for (int i = 0; i < count; i++) {
        queue_download(engine->device, at, array[i].from, fetched_bytes(&array[i], batch->rows));
        at += fetched_bytes(&array[i], batch->rows);
    }
    if (queue_wait(engine->device, err))
        return -1;
    at = first + logits;
    for (int i = 0; i < count; i++) {
        turn(&array[i], batch->rows, at);
        at += fetched_bytes(&array[i], batch->rows);
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

static void tell_routing(struct engine *engine, const struct batch *batch, struct forward *out)
{
    if (!engine->moe_layers)
        return;
    count_distinct(engine, engine->out_wanted, batch->rows, engine->distinct_wanted);
    count_distinct(engine, engine->out_expert, batch->rows, engine->distinct_loaded);
    out->expert = engine->out_expert;
    out->weight = engine->out_weight;
    out->wanted = engine->out_wanted;
    out->distinct_wanted = engine->distinct_wanted;
    out->distinct_loaded = engine->distinct_loaded;
    out->reconstruction = batch->want_reconstruction ? engine->reconstruction : NULL;
    out->score = batch->want_scores ? engine->out_score : NULL;
}

static int alloc_hidden(struct engine *engine, struct err *err)
{
    const struct hparams *shape = engine->shape;
    size_t floats = (size_t)engine->setup.max_rows * (size_t)shape->layers * (size_t)shape->hidden;
    if (!engine->out_hidden)
        engine->out_hidden = mem_alloc(floats, sizeof(float), err);
    return engine->out_hidden ? 0 : -1;
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
    const int moe = engine->moe_layers, top_k = shape->router.top_k;
    struct forward facts = {
        .rows = batch->rows, .logit_rows = batch->logit_rows, .moe_layers = moe, .experts = shape->router.experts,
        .top_k = top_k, .vocab = shape->vocab, .layers = shape->layers, .hidden_size = shape->hidden,
    };
    struct fetched array[FETCHED_MOST];
    int count = 0;
    if (batch->want_hidden && alloc_hidden(engine, err))
        return -1;
    if (moe) {
        array[count++] = (struct fetched){engine->expert, moe, top_k, engine->out_expert};
        array[count++] = (struct fetched){engine->weight, moe, top_k, engine->out_weight};
        array[count++] = (struct fetched){engine->wanted, moe, top_k, engine->out_wanted};
    }
    if (moe && batch->want_scores)
        array[count++] = (struct fetched){engine->score, moe, shape->router.experts, engine->out_score};
    if (batch->want_hidden)
        array[count++] = (struct fetched){engine->hidden, shape->layers, shape->hidden, engine->out_hidden};
    if (fetch(engine, batch, array, count, err))
        return -1;
    facts.logits = (const float *)(uintptr_t)engine->landing.address;
    facts.hidden = batch->want_hidden ? engine->out_hidden : NULL;
    tell_routing(engine, batch, &facts);
    facts.expert_bytes = engine->weights->expert_bytes;
    facts.bytes = nominal_bytes(engine, sequence->length + sequence->pending, batch->rows, batch->logit_rows > 0);
    *out = facts;
    return 0;
}
