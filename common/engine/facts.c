/* Collects the results of a forward: downloads its arrays and sorts them by row; counts distinct experts and nominal bytes. */
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"

/* An array to download: [layers][rows][width] on the device and as it arrives; [rows][layers][width] at `out`. Elements have
 * 4 bytes. */
struct download {
    struct buffer from;
    int layers, width;
    void *out;
    const void *stopped;         /* [STOPPED_MAX][layers][width] values of the layers before the exit of stopped nodes; NULL:
                                  * none */
    int absent;                  /* byte value that fills elements of layers that the forward left out */
    bool every_layer;            /* the array has all layers, not only MoE layers */
};

enum { DOWNLOADS_MAX = 5 };

static size_t download_bytes(const struct download *array, int rows)
{
    return (size_t)array->layers * (size_t)rows * (size_t)array->width * 4;
}

/* Returns the layer that follows layer n in an array. */
static int next_layer(const struct pass *pass, const struct download *array, int n)
{
    do
        n++;
    while (!array->every_layer && pass->engine->shape->layer[n].ffn != FFN_EXPERTS);
    return n;
}

/* Transposes a downloaded array. Rows that resume at a later layer have no elements for earlier layers; these are copied
 * from their stopped nodes. */
static void transpose_array(const struct pass *pass, const struct download *array, const char *landed)
{
    const size_t row_bytes = (size_t)array->width * 4, layers = (size_t)array->layers, rows = (size_t)pass->rows;
    for (size_t layer = 0, n = (size_t)next_layer(pass, array, -1); layer < layers; layer++) {
        const bool ran = array->every_layer ? (int)n < pass_layers(pass) : pass_feeds(pass, (int)n);
        size_t at = layer * rows;
        for (size_t row = 0; row < rows; row++) {
            char *to = (char *)array->out + (row * layers + layer) * row_bytes;
            if (resume_layer(pass, (int)row) > (int)n)
                memcpy(to, (const char *)array->stopped + ((size_t)pass->engine->from[row] * layers + layer) * row_bytes,
                       row_bytes);
            else if (ran)
                memcpy(to, landed + at++ * row_bytes, row_bytes);
            else
                memset(to, array->absent, row_bytes);
        }
        if (layer + 1 < layers)
            n = (size_t)next_layer(pass, array, (int)n);
    }
}

/* Allocates at least `bytes` bytes of host memory for downloads; earlier results are lost. */
static int reserve_landing(struct engine *engine, size_t bytes, struct err *err)
{
    size_t room = 2 * (size_t)engine->landing.bytes;
    if (bytes <= engine->landing.bytes)
        return 0;
    device_free_shared(engine->device, &engine->landing);
    return device_alloc_shared(engine->device, bytes > room ? bytes : room, &engine->landing, err);
}

/* Downloads the logits, or the answers that replace them, and the arrays, with a single wait for all copies. Logits stay
 * where they are downloaded to. */
static int fetch(const struct pass *pass, const struct download *array, int count, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct batch *batch = pass->batch;
    struct buffer answer[ANSWER_PARTS];
    const int answers = answer_put(pass, answer, err);
    size_t bytes = 0, first = 0;
    for (int i = 0; i < answers; i++)
        first += (size_t)answer[i].bytes;
    for (int i = 0; i < count; i++)
        bytes += download_bytes(&array[i], batch->rows);
    if (answers < 0 || reserve_landing(engine, first + bytes, err))
        return -1;
    char *at = (char *)(uintptr_t)engine->landing.address;
    for (int i = 0; i < answers; at += answer[i++].bytes)
        queue_download(engine->device, at, answer[i], (size_t)answer[i].bytes);
    for (int i = 0; i < count; i++) {
        queue_download(engine->device, at, array[i].from, download_bytes(&array[i], batch->rows));
        at += download_bytes(&array[i], batch->rows);
    }
    if (queue_wait(engine->device, err))
        return -1;
    at = (char *)(uintptr_t)engine->landing.address + first;
    for (int i = 0; i < count; i++) {
        transpose_array(pass, &array[i], at);
        at += download_bytes(&array[i], batch->rows);
    }
    return 0;
}

/* Counts the distinct experts of each layer in some rows of expert [rows][layers][top_k]; with `run` only in layers that this
 * forward ran. */
static void count_distinct(const struct pass *pass, int first, int rows, const int32_t *expert, bool run, int32_t *distinct)
{
    const struct engine *engine = pass->engine;
    const int layers = engine->moe_layers, top_k = pass_top_k(pass), experts = engine->shape->router.experts;
    uint8_t *mark = engine->space.mark;
    for (int n = 0, layer = 0; layer < layers; n++) {
        if (engine->shape->layer[n].ffn != FFN_EXPERTS)
            continue;
        memset(mark, 0, (size_t)experts);
        distinct[layer] = 0;
        for (int row = first; row < first + rows; row++)
            for (int slot = 0; slot < top_k; slot++) {
                int32_t e = expert[((size_t)row * (size_t)layers + (size_t)layer) * (size_t)top_k + (size_t)slot];
                if (e >= 0 && !mark[e] && (!run || resume_layer(pass, row) <= n)) {
                    mark[e] = 1;
                    distinct[layer]++;
                }
            }
        layer++;
    }
}

static void fill_routing(const struct pass *pass, struct forward *out)
{
    struct engine *engine = pass->engine;
    const struct batch *batch = pass->batch;
    if (!engine->moe_layers)
        return;
    count_distinct(pass, 0, pass->rows, engine->out_wanted, false, engine->distinct_wanted);
    count_distinct(pass, 0, pass->rows, engine->out_expert, true, engine->distinct_loaded);
    out->expert = engine->out_expert;
    out->weight = engine->out_weight;
    out->wanted = engine->out_wanted;
    out->distinct_wanted = engine->distinct_wanted;
    out->distinct_loaded = engine->distinct_loaded;
    out->reconstruction = batch->want_reconstruction ? engine->reconstruction : NULL;
    out->score = batch->want_scores ? engine->out_score : NULL;
    out->ahead = batch->want_ahead ? engine->out_ahead : NULL;
}

/* Stores the routing of the rows of a stopped pass with their stopped nodes. */
static void keep_routing(const struct pass *pass)
{
    const struct engine *engine = pass->engine;
    struct stopped *stopped = pass->sequence->stopped;
    const size_t width = (size_t)engine->moe_layers * (size_t)engine->shape->router.top_k;
    for (int row = pass->rows, i = stopped ? stopped->count : 0; i-- > 0 && row-- > 0;) {
        while (row >= 0 && engine->node[row] != stopped->node[i])
            row--;                              /* a row that resume_keep had no room for */
        if (row < 0)
            break;
        memcpy(stopped->wanted + (size_t)i * width, engine->out_wanted + (size_t)row * width, width * sizeof *stopped->wanted);
        memcpy(stopped->expert + (size_t)i * width, engine->out_expert + (size_t)row * width, width * sizeof *stopped->expert);
        memcpy(stopped->weight + (size_t)i * width, engine->out_weight + (size_t)row * width, width * sizeof *stopped->weight);
    }
}

static int alloc_hidden(struct engine *engine, struct err *err)
{
    const struct hparams *shape = engine->shape;
    size_t floats = (size_t)engine->setup.max_rows * (size_t)shape->layers * (size_t)shape->hidden;
    if (!engine->out_hidden)
        engine->out_hidden = mem_alloc(floats, sizeof(float), err);
    return engine->out_hidden ? 0 : -1;
}

/* Returns the bytes of a layer's state and of the updates by the tokens of its current segment. */
static int64_t state_bytes(const struct hparams *shape, int64_t cached)
{
    const struct delta_shape *d = &shape->delta;
    const struct delta_widths w = hparams_delta_widths(shape);
    const int64_t values = w.values;
    const int64_t tokens = cached < DELTA_BORDER ? cached : DELTA_BORDER, past = d->taps - 1;
    if (d->kind == RECURRENCE_NONE)
        return (cached < past ? cached : past) * shape->hidden * (int64_t)sizeof(float);
    return (values * d->key_dim + tokens * (w.keys + values + w.steps)) * (int64_t)sizeof(float);
}

/* Returns the bytes of keys, values and states that the rows of a text read in layer n. */
static int64_t seen_bytes(const struct pass *pass, int n, int rows, int64_t cached)
{
    const struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    const struct index_shape *index = &shape->index;
    if (index->heads && cached > index->top_k) {        /* keys and values of the chosen positions, and the indexer's keys of
                                                         * all positions */
        const struct layer_attention own = hparams_attention(shape, n);
        const int64_t chosen = (int64_t)index->top_k * own.kv_heads * (own.head_dim + own.value_dim);
        return (chosen + (shape->layer[n].shares_index ? 0 : cached * index->dim)) * (int64_t)cache_size(engine->setup.cache);
    }
    const int64_t window = shape->layer[n].window;
    const int64_t seen = window && shape->attention.aligned ? cached - (cached - rows) / window * window : window + rows - 1;
    if (shape->layer[n].state)
        return state_bytes(shape, cached);
    return (window && seen < cached ? seen : cached) * kv_layer_bytes(shape, n, engine->setup.cache);
}

static int first_layer(const struct pass *pass)
{
    int first = pass->engine->shape->layers;
    for (int row = 0; row < pass->rows; row++)
        first = resume_layer(pass, row) < first ? resume_layer(pass, row) : first;
    return first;
}

/* Returns the bytes of weights that a forward reads. A layer is read if any row runs it. */
static int64_t weight_bytes(const struct pass *pass)
{
    const struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    const int first = first_layer(pass);
    int64_t bytes = pass->batch->logit_rows > 0 ? engine->weights->head_bytes : 0;
    for (int n = 0, moe = 0; n < shape->layers; n++) {
        const struct layer_weights *weights = &engine->weights->layer[n];
        if (n >= first && pass_attends(pass, n))
            bytes += weights->attention_bytes;
        if (n >= first && pass_feeds(pass, n))
            bytes += weights->ffn_bytes;
        if (shape->layer[n].ffn == FFN_EXPERTS)
            bytes += engine->distinct_loaded[moe++] * pass_experts(pass, n).bytes;
    }
    return bytes;
}

static int64_t cache_bytes(const struct pass *pass, int rows, int64_t cached)
{
    int64_t bytes = 0;
    for (int n = first_layer(pass); n < pass->engine->shape->layers; n++)
        bytes += pass_attends(pass, n) ? seen_bytes(pass, n, rows, cached) : 0;
    return bytes;
}

int64_t nominal_bytes(const struct pass *pass, int64_t cached)
{
    return weight_bytes(pass) + cache_bytes(pass, pass->rows, cached);
}

/* Returns the text's share of the weight bytes that the forward read: equal for each row. The shares add up to the total. */
static int64_t share_of(const struct pass *pass, const struct pass_text *text, int64_t weights)
{
    return weights * (text->first + text->rows) / pass->rows - weights * text->first / pass->rows;
}

/* Counts, for each text and MoE layer, the experts that ran for this text's rows and for no other text. */
static void count_only(const struct pass *pass)
{
    struct engine *engine = pass->engine;
    const size_t layers = (size_t)engine->moe_layers, slots = layers * (size_t)pass_top_k(pass);
    const int top_k = pass_top_k(pass), experts = engine->shape->router.experts;
    enum { NO_TEXT = -1, SEVERAL = -2 };
    int32_t *user = engine->shared.user;
    for (int n = 0, layer = 0; layer < engine->moe_layers; n++) {
        if (engine->shape->layer[n].ffn != FFN_EXPERTS)
            continue;
        for (int e = 0; e < experts; e++)
            user[e] = NO_TEXT;
        for (int i = 0; i < pass->texts; i++)
            for (int row = pass->text[i].first; row < pass->text[i].first + pass->text[i].rows; row++)
                for (int slot = 0; slot < top_k; slot++) {
                    const int32_t e = engine->out_expert[(size_t)row * slots + (size_t)(layer * top_k + slot)];
                    if (e >= 0 && resume_layer(pass, row) <= n)
                        user[e] = user[e] == NO_TEXT || user[e] == i ? i : SEVERAL;
                }
        for (int i = 0; i < pass->texts; i++)
            engine->shared.distinct[(3 * (size_t)i + 2) * layers + (size_t)layer] = 0;
        for (int e = 0; e < experts; e++)
            if (user[e] >= 0)
                engine->shared.distinct[(3 * (size_t)user[e] + 2) * layers + (size_t)layer]++;
        layer++;
    }
}

/* Sets *out to the part of `all` that belongs to text i. */
static void fill_text(const struct pass *pass, int i, const struct forward *all, int64_t weights, int first_logit,
                      struct forward *out)
{
    struct engine *engine = pass->engine;
    const struct pass_text *text = &pass->text[i];
    const struct kv *kv = &text->sequence->kv;
    const size_t first = (size_t)text->first, moe = (size_t)all->moe_layers, routed = first * moe * (size_t)all->top_k;
    struct forward own = *all;
    own.rows = text->rows;
    own.logit_rows = text->batch->logit_rows;
    own.texts = pass->texts;
    own.all_rows = pass->rows;
    own.all_loaded = own.only_loaded = all->distinct_loaded;
    own.bytes = share_of(pass, text, weights) + cache_bytes(pass, text->rows, kv->length + kv->pending);
    if (pass->texts > 1) {
        own.logits = all->logits ? all->logits + (size_t)first_logit * (size_t)all->vocab : NULL;
        own.choice = all->choice ? all->choice + first_logit : NULL;
        own.best = all->best ? all->best + first_logit * text->batch->best : NULL;
        own.best_log_probability = all->best ? all->best_log_probability + first_logit * text->batch->best : NULL;
        own.node += first;
        own.hidden = all->hidden ? all->hidden + first * (size_t)all->layers * (size_t)all->hidden_size : NULL;
        if (pass->batch->features)
            own.features = layer_rows_from(all->features, text->first * pass->batch->features->count, all->hidden_size);
    }
    if (pass->texts > 1 && moe) {
        int32_t *wanted = engine->shared.distinct + 3 * (size_t)i * moe, *loaded = wanted + moe;
        count_distinct(pass, text->first, text->rows, engine->out_wanted, false, wanted);
        count_distinct(pass, text->first, text->rows, engine->out_expert, true, loaded);
        own.distinct_wanted = wanted;
        own.distinct_loaded = loaded;
        own.only_loaded = loaded + moe;
        own.expert += routed;
        own.weight += routed;
        own.wanted += routed;
        own.score = all->score ? all->score + first * moe * (size_t)all->experts : NULL;
    }
    *out = own;
}

/* Removes the scores of zero experts, which have no weights: [rows][moe][experts] remain. */
static void drop_zero_scores(struct engine *engine, int rows)
{
    const size_t experts = (size_t)engine->shape->router.experts, all = (size_t)hparams_choices(engine->shape);
    for (size_t i = 1; all > experts && i < (size_t)rows * (size_t)engine->moe_layers; i++)
        memmove(engine->out_score + i * experts, engine->out_score + i * all, experts * sizeof(float));
}

/* Downloads the results. The routing of a pass that exits early is also stored with its nodes, because a resumed forward
 * returns it for the layers that it skips. */
int facts_collect(const struct pass *pass, struct forward *out, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct batch *batch = pass->batch;
    const struct stopped *stopped = pass->sequence->stopped;
    const struct hparams *shape = engine->shape;
    const int moe = engine->moe_layers, top_k = pass_top_k(pass);
    struct forward facts = {
        .rows = batch->rows, .logit_rows = batch->logit_rows, .moe_layers = moe, .experts = shape->router.experts,
        .top_k = top_k, .vocab = shape->vocab, .layers = shape->layers, .hidden_size = shape->hidden,
    };
    struct download array[DOWNLOADS_MAX];
    int count = 0;
    if (batch->want_hidden && alloc_hidden(engine, err))
        return -1;
    if (moe) {
        array[count++] = (struct download){engine->expert, moe, top_k, engine->out_expert, stopped ? stopped->expert : NULL, -1,
                                           false};
        array[count++] = (struct download){engine->weight, moe, top_k, engine->out_weight, stopped ? stopped->weight : NULL, 0,
                                           false};
        array[count++] = (struct download){engine->wanted, moe, top_k, engine->out_wanted, stopped ? stopped->wanted : NULL, -1,
                                           false};
    }
    if (moe && batch->want_scores)
        array[count++] = (struct download){engine->score, moe, hparams_choices(shape), engine->out_score, NULL, 0, false};
    if (batch->want_hidden)
        array[count++] = (struct download){engine->hidden, shape->layers, shape->hidden, engine->out_hidden, NULL, 0, true};
    if (fetch(pass, array, count, err))
        return -1;
    if (moe && batch->want_scores)
        drop_zero_scores(engine, batch->rows);
    answer_set(pass, (const char *)(uintptr_t)engine->landing.address, &facts);
    facts.hidden = batch->want_hidden ? engine->out_hidden : NULL;
    facts.node = engine->node;
    if (batch->features)
        facts.features = engine->features;
    fill_routing(pass, &facts);
    if (pass_layers(pass) < shape->layers && pass_leaves_nothing_else_out(batch))
        keep_routing(pass);
    facts.expert_bytes = batch->part && batch->part->experts ? experts_copy_bytes(batch->part->experts)
                                                             : engine->weights->expert_bytes;
    const int64_t weights = weight_bytes(pass);
    if (pass->texts > 1 && moe)
        count_only(pass);
    for (int i = 0, logit = 0; i < pass->texts; logit += pass->text[i++].batch->logit_rows)
        fill_text(pass, i, &facts, weights, logit, &out[i]);
    return 0;
}
