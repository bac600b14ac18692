#include "common/bench/outlook.h"

#include <math.h>

#include "common/bench/network.h"
#include "common/engine/kv.h"
#include "common/predict/union.h"
#include "common/session/caching.h"
#include "common/session/session.h"

const char *const outlook_bounds[] = {"reading memory", "products", "the link", "the disk", "the network", "operations",
                                      "drafting", NULL};

/* A product counts as bounded by multiplication if it takes at least this much longer than reading. */
static const double products_from = 1.2;

double outlook_seconds(const struct outlook_time *time)
{
    double sum = 0;
    for (int i = 0; i < OUTLOOK_BOUNDS; i++)
        sum += time->seconds[i];
    return sum;
}

enum outlook_bound outlook_bound(const struct outlook_time *time)
{
    int largest = 0;
    for (int i = 1; i < OUTLOOK_BOUNDS; i++)
        if (time->seconds[i] > time->seconds[largest])
            largest = i;
    return (enum outlook_bound)largest;
}

static int own_experts(const struct outlook_model *model, int ranks)
{
    return (model->shape.router.experts + ranks - 1) / ranks;
}

/* ---- the tiers of the parts */

/* Chooses the experts that stay in memory if not all do, or if --cache-experts limits them. */
static int choose_slots(struct outlook_place *place, const struct outlook_setup *setup, struct err *err)
{
    const struct outlook_model *model = setup->model;
    const char *text = setup->cache ? setup->cache : "auto";
    const double taken = place->kv + place->drafters, left = place->memory - place->dense;
    const int top_k = model->shape.router.top_k;
    int64_t room = left > 0 ? caching_room((int64_t)left, (uint64_t)taken) : 0;
    if (caching_read_slots(text, "--cache-experts", room, place->count, (int64_t)model->slot, &place->slots, err))
        return -1;
    place->slots = place->slots < place->count ? place->slots : place->count;
    place->runs = place->slots >= top_k;
    if (setup->cache && (double)place->slots * model->slot + taken > left) {
        place->runs = false;
        return err_set(err, ERR_INPUT, "--cache-experts %s: %lld experts need %.0f MB, but only %.0f MB of memory are free; "
                       "give less, or auto", text, (long long)place->slots, 1e-6 * (double)place->slots * model->slot,
                       1e-6 * fmax(left - taken, 0));
    }
    if (setup->cache && !place->runs)
        return err_set(err, ERR_INPUT, "--cache-experts %s: has room for %lld experts, but one token uses %d in a layer; give "
                       "at least %.0f bytes", text, (long long)place->slots, top_k, top_k * model->slot);
    return 0;
}

int outlook_place(struct outlook_place *out, const struct outlook_setup *setup, int texts, int ranks, struct err *err)
{
    const struct outlook_model *model = setup->model;
    const struct speeds *speeds = setup->speeds;
    const int own = own_experts(model, ranks), experts = model->shape.router.experts;
    struct outlook_place place = {
        .dense = model->weights - model->experts, .experts = model->experts * own / experts,
        .kv = texts * (double)session_kv_bytes(&model->shape, setup->context, (enum cache_format)setup->kv_format,
                                                speeds->gpu),
        .memory = speeds->gpu ? speeds->gpu_memory : speeds->memory, .count = (int64_t)own * model->moe_layers, .runs = true};
    for (int d = 0; d < setup->drafters; d++)
        place.drafters += setup->drafter[d].memory;
    place.fits = place.dense + place.experts + place.kv + place.drafters <= place.memory;
    place.slots = place.count;
    const int rc = setup->cache || !place.fits ? choose_slots(&place, setup, err) : 0;
    const double share = (double)place.slots / (double)place.count;
    place.hits = place.slots == place.count ? 1 : setup->hits >= 0 ? setup->hits : share;
    place.disk = 1 - place.hits;
    if (speeds->gpu && place.slots < place.count) {
        const double fitting = floor(0.75 * speeds->memory / model->slot);
        place.host_slots = fitting < (double)place.count ? (int64_t)fitting : place.count;
        place.disk = fmin(place.disk, 1 - (double)place.host_slots / (double)place.count);
    }
    *out = place;
    return rc;
}

/* ---- the time of a forward */

/* Returns the expected number of distinct experts per layer on the rank that loads most of them. `chance`: of each expert;
 * each rank has `own` of them, as if ranks were independent: sum over x of 1 - P(at most x) ^ ranks. */
static double busiest(double chance, int own, int ranks)
{
    double probability = pow(1 - chance, own), up_to = 0, sum = 0;
    if (ranks == 1 || chance >= 1)
        return own * chance;
    for (int x = 0; x < own; x++) {
        up_to += probability;
        sum += 1 - pow(fmin(up_to, 1), ranks);
        probability *= (double)(own - x) / (x + 1) * chance / (1 - chance);
    }
    return sum;
}

/* Adds the time and the bytes of `times` products of these weights with `rows` rows of activations. */
static void add_product(struct outlook_time *time, double *read, const struct speeds *speeds, const struct outlook_bytes *bytes,
                        double times, double rows)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const double each = speeds_per_byte(speeds, (enum weight_format)f, rows);
        const bool slow = each > products_from / speeds->read_bandwidth;
        time->seconds[slow ? OUTLOOK_PRODUCTS : OUTLOOK_MEMORY] += times * bytes->of[f] * each;
        *read += times * bytes->of[f];
    }
}

static double kv_read(const struct outlook_setup *setup)
{
    const struct hparams *shape = &setup->model->shape;
    double bytes = 0;
    for (int n = 0; n < shape->layers; n++) {
        const int window = shape->layer[n].window;
        const int seen = window && shape->attention.aligned ? setup->prefix % window + 1 : window;
        if (hparams_attends(shape, n))
            bytes += (double)kv_layer_bytes(shape, n, (enum cache_format)setup->kv_format) *
                     (window && window < setup->prefix ? seen : setup->prefix);
    }
    return bytes;
}

/* Returns the seconds to exchange the outputs of experts in each layer, and the logits, of all rows. */
static double network(const struct transfer_speed *network, const struct outlook_model *model, int ranks, double rows)
{
    const double row = sizeof(float) * rows, pairs = row * model->shape.router.top_k;
    return model->moe_layers * network_gather(network, ranks, pairs * model->shape.hidden) +
           network_gather(network, ranks, row * model->shape.vocab);
}

static double transfer(const struct transfer_speed *way, double bytes, double times)
{
    if (!(bytes > 0))
        return 0;
    return way->bytes_per_second > 0 ? bytes / way->bytes_per_second + times * way->latency_s : NAN;
}

static void forward(struct outlook_time *time, struct outlook_tiers *tiers, const struct outlook_setup *setup,
                    const struct outlook_point *point, int rows)
{
    const struct outlook_model *model = setup->model;
    const struct speeds *speeds = setup->speeds;
    const struct outlook_place *place = &point->place;
    const int experts = model->shape.router.experts, top_k = model->shape.router.top_k;
    const int own = own_experts(model, point->ranks), holders = (experts + own - 1) / own;
    const double all = (double)rows * point->texts, distinct = union_independent(experts, top_k, all);
    const double loaded = busiest(distinct / experts, own, holders), missing = loaded * (1 - place->hits);
    double expert = 0, layers = model->moe_layers * fmin(1, missing);
    *time = (struct outlook_time){{0}};
    *tiers = (struct outlook_tiers){.experts = distinct, .memory = point->texts * kv_read(setup)};
    time->seconds[OUTLOOK_MEMORY] = tiers->memory / speeds->read_bandwidth;
    add_product(time, &tiers->memory, speeds, &model->dense, 1, all);
    add_product(time, &tiers->memory, speeds, &model->head, 1.0 / point->ranks - 1, all);
    add_product(time, &tiers->memory, speeds, &model->expert, loaded, all * top_k / distinct);
    for (int f = 0; f < FORMAT_COUNT; f++)
        expert += model->expert.of[f];
    tiers->link = speeds->gpu ? missing * expert : 0;
    tiers->disk = loaded * place->disk * expert;
    time->seconds[OUTLOOK_LINK] = transfer(&speeds->link, tiers->link, layers);
    time->seconds[OUTLOOK_DISK] = transfer(&speeds->disk, tiers->disk, layers);
    if (point->ranks > 1)
        time->seconds[OUTLOOK_NETWORK] = network(&speeds->network, model, point->ranks, all);
    time->seconds[OUTLOOK_OPERATIONS] =
        (OUTLOOK_OPERATIONS_LAYER * model->layers + OUTLOOK_OPERATIONS_FORWARD) * speeds->operation_s;
}

/* ---- drafts */

static double draft_seconds(const struct outlook_drafter *drafter, const struct speeds *speeds)
{
    struct outlook_time time = {{0}};
    double read = 0;
    add_product(&time, &read, speeds, &drafter->step, 1, 1);
    return outlook_seconds(&time) + drafter->operations * speeds->operation_s;
}

/* Finds the draft length, by the plans of policy/plan.h: costs are in forwards of one row per text. */
static void decode(struct outlook_result *out, const struct outlook_setup *setup, const struct outlook_point *point,
                   const struct outlook_drafter *drafter)
{
    double verify[PLAN_TOKENS_MAX + 1], seconds = 0;
    struct outlook_time time;
    struct outlook_tiers tiers;
    struct plan plan = {.first = -1};
    const int max = setup->length >= 0 ? setup->length : OUTLOOK_LENGTH_MAX;
    forward(&time, &tiers, setup, point, 1);
    const double one = outlook_seconds(&time);
    if (drafter && max > 0 && one > 0) {
        seconds = point->texts * draft_seconds(drafter, setup->speeds);
        for (int k = 0; k <= max; k++) {
            forward(&time, &tiers, setup, point, k + 1);
            verify[k] = outlook_seconds(&time) / one;
        }
        struct plan_drafter only = {.token = seconds / one};
        for (int i = 0; i < PLAN_DEPTHS; i++)
            only.chance[i] = drafter->accept[i];
        struct plan_setup search = {.drafters = 1, .drafter = &only, .max = max, .survival = 1, .verify = verify};
        plan.count[0] = max;
        if (setup->length < 0) {
            search.rate = plan_best_rate(&search);
            plan_find(&plan, &search);
        }
        plan_weigh(&plan, &search);
    }
    *out = (struct outlook_result){.length = plan.count[0], .tokens = 1 + plan.tokens};
    forward(&out->time, &out->tiers, setup, point, 1 + out->length);
    out->time.seconds[OUTLOOK_DRAFTING] = out->length * seconds;
    out->tokens_per_second = point->place.runs ? point->texts * out->tokens / outlook_seconds(&out->time) : NAN;
}

/* Makes a point. If it is a point of a curve, a cache that does not fit is no error: `runs` is false. */
static int make_point(struct outlook_point *out, const struct outlook_setup *setup, int texts, int ranks, bool curve,
                      struct err *err)
{
    struct outlook_point point = {.texts = texts, .ranks = ranks};
    struct err refused = {0};
    if (outlook_place(&point.place, setup, texts, ranks, curve ? &refused : err) && !curve)
        return -1;
    decode(&point.result[0], setup, &point, NULL);
    for (int d = 0; d < setup->drafters; d++)
        decode(&point.result[1 + d], setup, &point, &setup->drafter[d]);
    *out = point;
    return 0;
}

int outlook_make(struct outlook *out, const struct outlook_setup *setup, struct err *err)
{
    enum { TEXTS_LAST = 64, RANKS_LAST = 1024 };
    struct outlook made = {.texts_count = 0};
    if (make_point(&made.at, setup, setup->texts, setup->ranks, false, err))
        return -1;
    for (int n = 1; n <= TEXTS_LAST; n *= 2)
        make_point(&made.texts[made.texts_count++], setup, n, setup->ranks, true, err);
    for (int n = 1; n <= RANKS_LAST; n *= 2)
        make_point(&made.ranks[made.ranks_count++], setup, setup->texts, n, true, err);
    *out = made;
    return 0;
}

int outlook_break_even(const struct outlook_point *curve, int count, int drafter, bool by_ranks)
{
    while (count > 0 && !(curve[count - 1].result[0].tokens_per_second > 0))
        count--;
    int at = count;
    while (at > 0 && !(curve[at - 1].result[1 + drafter].length > 0))
        at--;
    return at == count ? 0 : by_ranks ? curve[at].ranks : curve[at].texts;
}
