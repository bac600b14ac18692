#include "common/engine/second.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "common/cache/utility.h"
#include "common/engine/internal.h"
#include "common/engine/pieces.h"

/* A thread that computes one piece after another. */
struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, wanted, stop;             /* wanted: a piece is waiting or being computed */
    const struct device_ops *ops;
    struct queue *queue;
    struct expert_ffn_args args;
    double seconds;                      /* duration of the last piece */
};

struct second {
    struct second_setup setup;
    const struct hparams *shape;
    struct split split;
    struct cache *cache;                 /* cache of the device's slots, owned by the experts' source; NULL: none */
    const struct utility_expert *levels; /* [MoE layers * experts], owned by the cache; NULL: its policy has no levels */
    struct device *host;
    struct weights *weights;             /* mapped on the host: biases */
    struct workspace space;              /* on the host, for the maximum rows so far */
    struct worker worker;
    enum expert_forward forward;
    /* State of the current layer: */
    struct expert_union mine;            /* the host's experts */
    int pairs;                           /* number of pairs in the layer: rows times top_k */
    bool clean;                          /* all of the device's experts were resident */
    int device_experts;
    double began;                        /* start time of the device's part */
    bool working;                        /* the thread has a piece, whose experts are held */
    int32_t *expert, *tokens;            /* [experts], arrays of `mine` */
    enum expert_tier *tier;
    bool *there;
    const void **address;
    int32_t *level;                      /* [experts] levels before the policy learns from this forward */
    int32_t *ids, *piece_ids, *index;    /* [pairs] ids: those of the layer; piece_ids: those of the piece; index: place of
                                          * each pair's result for the sum */
    uint64_t *table;                     /* [experts] */
    size_t ids_room, piece_room, index_room;
    struct buffer states, results;       /* shared: [rows][hidden], [pairs of the host][hidden] */
    struct buffer parts, places;         /* on the device: [pairs, then pairs of the host][hidden] f32, [pairs] i32 */
    struct second_facts facts;
    char label[224];
    int32_t *counts;                     /* arrays of facts */
    double *shares;
};

/* ---- the thread */

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (!w->wanted) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        const double start = clock_seconds();
        w->ops->expert_ffn(w->queue, &w->args);
        w->seconds = clock_seconds() - start;
        pthread_mutex_lock(&w->lock);
        w->wanted = false;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int worker_open(struct worker *w, struct device *host, struct err *err)
{
    w->ops = device_ops(host);
    w->queue = device_queue(host);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    const int failed = thread_start(&w->thread, worker_main, w);
    w->open = !failed;
    if (!failed)
        return 0;
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    return err_set(err, ERR_MEMORY, "the thread of the second processor cannot be started: %s", strerror(failed));
}

static void worker_start(struct worker *w, const struct expert_ffn_args *args)
{
    pthread_mutex_lock(&w->lock);
    w->args = *args;
    w->wanted = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void worker_wait(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->wanted)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static void worker_close(struct worker *w)
{
    if (!w->open)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
}

/* ---- opening */

/* Measures the seconds of copying one expert to the device. */
static int time_copies(struct second *s, struct err *err)
{
    enum { COPIES = 4 };
    const size_t bytes = (size_t)s->split.setup.expert_bytes;
    struct device *device = s->setup.device;
    struct device_event *event = NULL;
    struct buffer from = {0}, to = {0};
    int rc = device_alloc_shared(device, bytes, &from, err) || device_alloc(device, bytes, &to, err) ||
             event_open(&event, device, err) ? -1 : 0;
    if (!rc)
        memset((void *)(uintptr_t)from.address, 0, bytes);
    for (int i = 0; !rc && i <= COPIES; i++) {
        const double start = clock_seconds();
        copy_upload(device, to, (const void *)(uintptr_t)from.address, bytes);
        event_record(event, QUEUE_COPIES);
        rc = event_wait(event, err);
        s->split.times.copy_s += i ? clock_seconds() - start : 0;       /* the first copy is a warm-up */
        s->split.times.copies += i > 0;
    }
    event_close(&event);
    device_free(device, &to);
    device_free_shared(device, &from);
    return rc;
}

static int open_split(struct second *s, struct err *err)
{
    const struct second_setup *setup = &s->setup;
    struct split_setup split = {
        .rule = setup->rule, .layers = hparams_moe_layers(s->shape), .experts = s->shape->router.experts,
        .top_k = s->shape->router.top_k, .all_layers = s->shape->layers, .draft_length = setup->draft_length};
    for (int n = s->shape->layers - 1; n >= 0; n--)
        if (s->shape->layer[n].ffn == FFN_EXPERTS)
            split.expert_bytes = (double)s->weights->layer[n].expert_bytes;
    s->cache = expert_source_cache(setup->experts);
    s->levels = s->cache ? cache_utility_states(s->cache, &split.K) : NULL;
    split.slots = s->cache ? cache_slots(s->cache) : split.layers * split.experts;
    return split_open(&s->split, &split, err) ? err_at(err, "--split") : 0;
}

static int open_facts(struct second *s, struct err *err)
{
    const size_t layers = (size_t)s->split.setup.layers, levels = (size_t)s->split.setup.K + 1;
    s->counts = mem_alloc(layers * (6 + levels), sizeof *s->counts, err);
    s->shares = mem_alloc(2 * layers * levels, sizeof *s->shares, err);
    if (!s->counts || !s->shares)
        return -1;
    const bool levelled = s->split.setup.rule.kind >= SPLIT_LEVEL, balances = s->split.setup.rule.kind == SPLIT_BALANCE;
    s->facts = (struct second_facts){
        .rule = s->setup.rule, .layers = (int)layers, .K = s->split.setup.K, .tau = s->counts,
        .device_experts = s->counts + layers, .host_experts = s->counts + 2 * layers,
        .device_pairs = s->counts + 3 * layers, .host_pairs = s->counts + 4 * layers,
        .cold = s->counts + 5 * layers, .fetches = levelled ? s->counts + 6 * layers : NULL,
        .cold_share = balances ? s->shares : NULL, .hot_share = balances ? s->shares + layers * levels : NULL};
    return 0;
}

static int open_parts(struct second *s, struct err *err)
{
    const size_t experts = (size_t)s->shape->router.experts;
    struct device_setup host = s->setup.host;
    host.name = "host";
    host.f32_activations = !device_info(s->setup.device)->integer_activations;
    if (device_open(&s->host, &host, err) || weights_open(&s->weights, s->setup.model, s->host, err) || open_split(s, err) ||
        open_facts(s, err) || worker_open(&s->worker, s->host, err))
        return -1;
    if (!(s->expert = mem_alloc(experts, sizeof *s->expert, err)) ||
        !(s->tokens = mem_alloc(experts, sizeof *s->tokens, err)) || !(s->tier = mem_alloc(experts, sizeof *s->tier, err)) ||
        !(s->there = mem_alloc(experts, sizeof *s->there, err)) ||
        !(s->address = mem_alloc(experts, sizeof *s->address, err)) ||
        !(s->level = mem_alloc(experts, sizeof *s->level, err)) || !(s->table = mem_alloc(experts, sizeof *s->table, err)))
        return -1;
    return s->setup.rule.kind == SPLIT_BALANCE ? time_copies(s, err) : 0;
}

int second_open(struct second **out, const struct second_setup *setup, struct err *err)
{
    const struct device_info *info = device_info(setup->device);
    if (info->host_memory)
        return err_set(err, ERR_INPUT, "--split: device %s is the host itself, so there is no second processor to share "
                       "experts with; choose a --device with its own memory", info->name);
    if (!setup->experts || !expert_source_has_host(setup->experts))
        return err_set(err, ERR_INPUT, "--split: no experts of %s are in the host's memory; add --host-experts",
                       model_path(setup->model));
    struct second *s = mem_alloc(1, sizeof *s, err);
    if (!s)
        return -1;
    s->setup = *setup;
    s->shape = model_hparams(setup->model);
    if (open_parts(s, err)) {
        second_close(&s);
        return -1;
    }
    snprintf(s->label, sizeof s->label, "experts are split between %s and %s (%s): bits may differ from those of one processor",
             info->name, device_info(s->host)->name, split_rule_name(&setup->rule));
    *out = s;
    return 0;
}

void second_close(struct second **second)
{
    struct second *s = *second;
    if (!s)
        return;
    worker_close(&s->worker);
    if (s->host)
        workspace_free(&s->space);
    weights_close(&s->weights);
    device_free_shared(s->setup.device, &s->states);
    device_free_shared(s->setup.device, &s->results);
    device_free(s->setup.device, &s->parts);
    device_free(s->setup.device, &s->places);
    device_close(&s->host);
    split_close(&s->split);
    mem_free(&s->expert);
    mem_free(&s->tokens);
    mem_free(&s->tier);
    mem_free(&s->there);
    mem_free(&s->address);
    mem_free(&s->level);
    mem_free(&s->table);
    mem_free(&s->ids);
    mem_free(&s->piece_ids);
    mem_free(&s->index);
    mem_free(&s->counts);
    mem_free(&s->shares);
    mem_free(second);
}

const struct split_rule *second_rule(const struct second *second) { return &second->split.setup.rule; }

const char *second_label(const struct second *second) { return second->label; }

/* ---- a forward */

void second_begin(struct second *s, enum expert_forward forward)
{
    s->forward = forward;
    if (forward != EXPERTS_VERIFY)
        return;
    split_begin(&s->split);
    memset(s->counts, 0, (size_t)s->facts.layers * (size_t)(7 + s->facts.K) * sizeof *s->counts);
    s->facts.host_s = s->facts.wait_s = 0;
}

bool second_splits(const struct second *s)
{
    return s->split.setup.rule.kind == SPLIT_STATIC || s->forward != EXPERTS_PROMPT;
}

static int grow_shared(struct device *device, struct buffer *buffer, size_t bytes, struct err *err)
{
    const size_t room = 2 * (size_t)buffer->bytes;
    if (bytes <= buffer->bytes)
        return 0;
    device_free_shared(device, buffer);
    return device_alloc_shared(device, bytes > room ? bytes : room, buffer, err);
}

static int grow(struct device *device, struct buffer *buffer, size_t bytes, struct err *err)
{
    const size_t room = 2 * (size_t)buffer->bytes;
    if (bytes <= buffer->bytes)
        return 0;
    device_free(device, buffer);
    return device_alloc(device, bytes > room ? bytes : room, buffer, err);
}

/* Allocates memory for the layer's rows: on the host, and for transfers between the two. */
static int make_room(struct second *s, const struct layer *at, struct err *err)
{
    const size_t pairs = (size_t)at->rows->rows * (size_t)at->routing.top_k, row = (size_t)s->shape->hidden * sizeof(float);
    int rows = at->rows->rows;
    if (rows > s->space.rows) {
        rows = rows > 2 * s->space.rows ? rows : 2 * s->space.rows;
        workspace_free(&s->space);
        if (workspace_make(&s->space, s->host, s->setup.model, rows, err)) {
            workspace_free(&s->space);
            s->space = (struct workspace){0};
            return -1;
        }
    }
    return grow_shared(s->setup.device, &s->states, (size_t)at->rows->rows * row, err) ||
           grow(s->setup.device, &s->parts, 2 * pairs * row, err) ||
           grow(s->setup.device, &s->places, pairs * sizeof(int32_t), err) ||
           mem_grow(&s->ids, &s->ids_room, pairs, sizeof *s->ids, err) ||
           mem_grow(&s->piece_ids, &s->piece_room, pairs, sizeof *s->piece_ids, err) ||
           mem_grow(&s->index, &s->index_room, pairs, sizeof *s->index, err) ? -1 : 0;
}

int second_take(struct second *s, const struct layer *at, struct err *err)
{
    struct workspace *space = at->space;
    if (make_room(s, at, err))
        return -1;
    queue_download(space->device, (void *)(uintptr_t)s->states.address, workspace_experts_in(space),
                   (size_t)at->rows->rows * (size_t)s->shape->hidden * sizeof(float));
    return 0;
}

/* Reads the layer's levels for the balancer, before the policy learns from this forward. */
static void read_levels(struct second *s, const struct layer *at, const struct expert_union *wanted)
{
    const int experts = s->shape->router.experts;
    for (int e = 0; s->levels && e < experts; e++)
        s->level[e] = s->levels[at->moe * experts + e].level;
    if (s->levels && s->forward == EXPERTS_VERIFY)
        split_learn(&s->split, at->moe, wanted->expert, wanted->tokens, wanted->count, s->level, sizeof *s->level);
}

/* Reads the levels after the policy has learnt, and sets the layer's next tau. */
static void learn_levels(struct second *s, const struct layer *at, int distinct)
{
    int32_t *counts = s->counts, *fetches = counts + 6 * s->facts.layers + at->moe * (s->facts.K + 1);
    if (s->forward != EXPERTS_VERIFY || !s->facts.fetches)
        return;
    counts[at->moe] = s->split.layer[at->moe].tau;
    const int cold = balance_fetches(s->cache, s->levels, s->facts.K, at->moe, s->shape->router.experts, s->split.setup.slots,
                                     fetches);
    counts[5 * s->facts.layers + at->moe] = cold;
    cache_threshold(s->cache, split_next(&s->split, at->moe, distinct, fetches, cold));
}

static void count(struct second *s, const struct layer *at, const struct expert_union *wanted, int all)
{
    const int layers = s->facts.layers;
    if (s->forward != EXPERTS_VERIFY)
        return;
    s->counts[layers + at->moe] = wanted->count;
    s->counts[2 * layers + at->moe] = all - wanted->count;
    for (int i = 0; i < all; i++)
        s->counts[(i < wanted->count ? 3 : 4) * layers + at->moe] += wanted->tokens[i];
}

/* Splits the layer's experts. Resident experts and those in flight count as present on the device. Device times are measured
 * only if all of its experts were resident and nothing was in flight (`clean`), so that they do not include copies. */
int second_split(struct second *s, const struct layer *at, const int32_t *ids, struct expert_union *wanted, struct err *err)
{
    const int all = wanted->count;
    read_levels(s, at, wanted);
    if (expert_source_want(s->setup.experts, wanted, s->tier, err))
        return err_at(err, "layer %d", at->number);
    bool in_flight = false;
    for (int i = 0; i < all; i++) {
        s->there[i] = s->tier[i] <= EXPERT_COMING;
        in_flight |= s->tier[i] == EXPERT_COMING;
    }
    wanted->count = split_choose(&s->split, at->moe, wanted->expert, wanted->tokens, s->there, all, s->level, sizeof *s->level);
    wanted->part = true;
    count(s, at, wanted, all);
    learn_levels(s, at, all);
    s->device_experts = wanted->count;
    s->clean = !in_flight;
    for (int i = 0; i < wanted->count; i++)
        s->clean &= s->there[i];
    s->pairs = at->rows->rows * at->routing.top_k;
    memcpy(s->ids, ids, (size_t)s->pairs * sizeof *ids);
    s->mine = (struct expert_union){.layer = at->number, .expert = s->expert, .tokens = s->tokens, .count = all - wanted->count,
                                    .part = true};
    memcpy(s->expert, wanted->expert + wanted->count, (size_t)s->mine.count * sizeof *s->expert);
    memcpy(s->tokens, wanted->tokens + wanted->count, (size_t)s->mine.count * sizeof *s->tokens);
    const bool asks = s->split.setup.rule.kind == SPLIT_RESIDENT && s->forward == EXPERTS_VERIFY && s->cache;
    for (int i = 0; asks && i < s->mine.count; i++)
        cache_ask(s->cache, at->moe, s->expert[i], 1);
    return 0;
}

/* ---- the host's part ---- */

static struct buffer host_buffer(struct second *s, const void *data, size_t bytes) { return device_map(s->host, data, bytes); }

/* Passes one piece of the host's experts to the thread. */
static int start_piece(struct second *s, const struct layer *at, struct err *err)
{
    struct expert_union *mine = &s->mine;
    const size_t pairs = (size_t)s->pairs, experts = (size_t)s->shape->router.experts;
    if (expert_source_acquire_host(s->setup.experts, mine, s->address, err))
        return err_at(err, "layer %d", at->number);
    memset(s->table, 0, experts * sizeof *s->table);
    for (int i = mine->done; i < mine->done + mine->held; i++)
        s->table[mine->expert[i]] = (uint64_t)(uintptr_t)s->address[i];
    for (size_t i = 0; i < pairs; i++)
        s->piece_ids[i] = s->ids[i] >= 0 && s->table[s->ids[i]] ? s->ids[i] : -1;
    const struct layer_weights *weights = &s->weights->layer[at->number];
    worker_start(&s->worker, &(struct expert_ffn_args){
        .in = s->states, .expert = host_buffer(s, s->piece_ids, pairs * sizeof *s->piece_ids),
        .gate_up_bias = weights->gate_up_bias, .down_bias = weights->down_bias,
        .table = host_buffer(s, s->table, experts * sizeof *s->table), .inner = s->space.inner, .partial = s->space.partial,
        .group = s->space.group, .operand = s->space.operand, .format = at->experts.format,
        .down_format = at->experts.down_format, .limit = hparams_expert_limit(s->shape, at->number),
        .alpha = s->shape->glu_alpha, .glu = s->shape->glu, .apart = true,
        .rows = at->rows->rows, .slots = at->routing.top_k, .experts = s->shape->router.experts, .hidden = s->shape->hidden,
        .inner_width = s->shape->expert_inner});
    s->working = true;
    return 0;
}

static void end_piece(struct second *s)
{
    const double start = clock_seconds();
    int64_t pairs = 0;
    if (!s->working)
        return;
    worker_wait(&s->worker);
    s->working = false;
    for (int i = s->mine.done; i < s->mine.done + s->mine.held; i++)
        pairs += s->mine.tokens[i];
    if (s->forward == EXPERTS_VERIFY) {
        s->facts.wait_s += clock_seconds() - start;
        s->facts.host_s += s->worker.seconds;
        if (split_warms_up(&s->split)) {
            s->split.times.host_s += s->worker.seconds;
            s->split.times.pairs += pairs;
        }
    }
    expert_source_release_host(s->setup.experts, &s->mine);
}

int second_start(struct second *s, const struct layer *at, struct err *err)
{
    if (s->mine.count && start_piece(s, at, err))
        return -1;
    s->began = clock_seconds();
    return 0;
}

struct buffer second_partial(const struct second *s) { return s->parts; }

/* Measures the time of the device's part; its queue was empty when it began. */
static int time_device(struct second *s, struct err *err)
{
    if (s->forward != EXPERTS_VERIFY || !split_warms_up(&s->split) || !s->device_experts || !s->clean)
        return 0;
    if (queue_wait(s->setup.device, err))
        return -1;
    s->split.times.device_s += clock_seconds() - s->began;
    s->split.times.experts += s->device_experts;
    return 0;
}

/* Packs the rows computed by the host, and sets for each pair the index of its result: among the device's or the host's. */
static int pack(struct second *s, int *packed, struct err *err)
{
    const size_t width = (size_t)s->shape->hidden;
    const float *partial = (const float *)(uintptr_t)s->space.partial.address;
    int rows = 0, count = 0;
    for (int e = 0; e < s->shape->router.experts; e++)
        s->there[e] = false;
    for (int i = 0; i < s->mine.count; i++) {
        s->there[s->mine.expert[i]] = true;
        rows += s->mine.tokens[i];
    }
    if (grow_shared(s->setup.device, &s->results, (size_t)rows * width * sizeof(float), err))
        return -1;
    float *to = (float *)(uintptr_t)s->results.address;
    for (int i = 0; i < s->pairs; i++) {
        s->index[i] = i;
        if (s->ids[i] < 0 || !s->there[s->ids[i]])
            continue;
        s->index[i] = s->pairs + count;
        memcpy(to + (size_t)count++ * width, partial + (size_t)i * width, width * sizeof *to);
    }
    *packed = count;
    return 0;
}

int second_finish(struct second *s, const struct layer *at, struct buffer out, struct err *err)
{
    const size_t row = (size_t)s->shape->hidden * sizeof(float);
    struct workspace *space = at->space;
    int packed;
    if (time_device(s, err))
        return -1;
    end_piece(s);
    while (s->mine.done < s->mine.count) {
        if (start_piece(s, at, err))
            return -1;
        end_piece(s);
    }
    if (pack(s, &packed, err))
        return -1;
    queue_upload(space->device, buffer_part(s->parts, (size_t)s->pairs * row, (size_t)packed * row),
                 (const void *)(uintptr_t)s->results.address, (size_t)packed * row);
    queue_upload(space->device, s->places, s->index, (size_t)s->pairs * sizeof *s->index);
    space->ops->gather(space->queue, &(struct gather_args){
        .in = s->parts, .index = s->places, .out = out, .rows = s->pairs + packed, .count = s->pairs,
        .width = s->shape->hidden});
    return 0;
}

void second_abandon(struct second *s)
{
    if (!s->working)
        return;
    worker_wait(&s->worker);
    s->working = false;
    expert_source_release_host(s->setup.experts, &s->mine);
}

/* ---- results ---- */

void second_drafted(struct second *s, double seconds, int tokens)
{
    if (!split_warms_up(&s->split))
        return;
    s->split.times.draft_s += seconds;
    s->split.times.drafted += tokens;
}

static double unit(double seconds, int64_t count) { return count ? seconds / (double)count : 0; }

const struct second_facts *second_facts(struct second *s)
{
    const struct split_times *times = &s->split.times;
    const int K = s->facts.K;
    for (int n = 0; n < s->facts.layers && s->facts.cold_share; n++) {
        const struct balance_shares *shares = &s->split.layer[n].shares;
        for (int tau = 1; tau <= K; tau++) {
            s->shares[n * (K + 1) + tau] = shares->pairs ? (double)shares->cold[tau] / (double)shares->pairs : 1;
            s->shares[(s->facts.layers + n) * (K + 1) + tau] =
                shares->experts ? (double)shares->hot[tau] / (double)shares->experts : 0;
        }
    }
    s->facts.pair_s = unit(times->host_s, times->pairs);
    s->facts.expert_s = unit(times->device_s, times->experts);
    s->facts.copy_s = unit(times->copy_s, times->copies);
    s->facts.draft_s = unit(times->draft_s, times->drafted);
    s->facts.warms_up = split_warms_up(&s->split);
    return &s->facts;
}
