#include "common/session/caching.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/memory_left.h"
#include "common/cache/cache.h"
#include "common/cli/number.h"
#include "common/model/hparams.h"

void prefetching_free(struct prefetching *prefetching)
{
    spec_free(&prefetching->spec);
    *prefetching = (struct prefetching){0};
}

int caching_prefetching(struct prefetching *out, const struct caching_options *options, struct err *err)
{
    enum { TABLE = PREFETCH_FORECAST };
    static const char *const names[] = {
        [PREFETCH_NONE] = "none", [PREFETCH_DRAFT] = "draft", [PREFETCH_FORCED] = "forced",
        [PREFETCH_NEXT_LAYER] = "next-layer", [TABLE] = "table", "popular", "last", "pairs", "utility"};
    struct prefetching made = {0};
    int which = PREFETCH_NONE;
    if (options->prefetch &&
        (spec_parse(&made.spec, options->prefetch, err) ||
         spec_pick(made.spec, "a source of prefetching", names, (int)(sizeof names / sizeof *names), &which, err) ||
         (which >= PREFETCH_FORECAST && spec_int(made.spec, "max", 0, 1, EXPERTS_MAX, &made.max, err)) ||
         (which == TABLE && spec_text(made.spec, "file", NULL, &made.file, err)) || spec_end(made.spec, err))) {
        prefetching_free(&made);
        return err_at(err, "--prefetch");
    }
    made.kind = which < PREFETCH_FORECAST ? (enum prefetch)which : PREFETCH_FORECAST;
    made.forecast = which < PREFETCH_FORECAST ? NULL : names[which];
    *out = made;
    return 0;
}

int caching_split(struct split_rule *out, const struct caching_options *options, struct err *err)
{
    return split_rule_read(out, options->split ? options->split : "none", err) ? err_at(err, "--split") : 0;
}

const char *caching_policy(const struct caching_options *options)
{
    return options->policy ? options->policy : options->hot_set ? "hot" : NULL;
}

/* Rejects policies that need to know future routes, which are unknown while a model decodes. */
static int check_policy(const struct caching_options *options, struct err *err)
{
    enum { STATIC, HOT };
    static const char *const names[] = {[STATIC] = "static", [HOT] = "hot", "lru", "lru-global", "lfu", "ahead", "utility",
                                        "utility-released", "utility-real"};
    struct spec *spec = NULL;
    const char *rank = NULL;
    int which;
    int rc = spec_parse(&spec, caching_policy(options), err) ||
             spec_pick(spec, "a policy here", names, (int)(sizeof names / sizeof *names), &which, err) ||
             (which == STATIC && spec_text(spec, "rank", NULL, &rank, err)) ? -1 : 0;
    if (!rc && which == STATIC && !rank == !options->hot_set)
        rc = err_set(err, ERR_INPUT, "static: %s", rank ? "both rank= and --hot-set name the experts to keep; leave one of "
                     "the two out"
                                                        : "no experts to keep are given; write static:rank=FILE, or add "
                                                        "--hot-set FILE");
    if (!rc && options->hot_set && which > HOT)
        rc = err_set(err, ERR_INPUT, "%s does not use --hot-set; choose hot or static", names[which]);
    spec_free(&spec);
    return rc ? err_at(err, "--cache-policy") : 0;
}

int caching_check_drafts(const struct caching_options *options, const struct strings *drafters, bool forced, struct err *err)
{
    struct prefetching prefetching;
    bool routes = false;
    if (caching_prefetching(&prefetching, options, err))
        return -1;
    const enum prefetch kind = prefetching.kind;
    prefetching_free(&prefetching);
    for (int i = 0; i < drafters->count; i++)
        routes |= !strncmp(drafters->items[i], "model:", 6) || !strncmp(drafters->items[i], "self", 4);
    if (kind == PREFETCH_DRAFT && !routes)
        return err_set(err, ERR_INPUT, "--prefetch draft: needs a drafter with the model's own router; add --draft self, or a "
                       "copy of the model as --draft model:file=FILE");
    if (kind == PREFETCH_FORCED && !forced)
        return err_set(err, ERR_INPUT, "--prefetch forced: needs routes that are known in advance; add --force-routes FILE");
    return 0;
}

bool caching_wanted(const struct caching_options *options) { return options->experts && strcmp(options->experts, "none"); }

int caching_check(const struct caching_options *options, struct err *err)
{
    const bool wanted = caching_wanted(options);
    if (!wanted && options->policy)
        return err_set(err, ERR_INPUT, "--cache-policy has no effect without cached experts; add --cache-experts");
    if (!wanted && options->prefetch)
        return err_set(err, ERR_INPUT, "--prefetch has no effect without cached experts; add --cache-experts");
    if (!wanted && options->hot_set)
        return err_set(err, ERR_INPUT, "--hot-set has no effect without cached experts; add --cache-experts");
    if (!wanted && options->host)
        return err_set(err, ERR_INPUT, "--host-experts has no effect without cached experts; add --cache-experts");
    if (options->hot_set && !strcmp(options->hot_set, "-"))
        return err_set(err, ERR_INPUT, "--hot-set: standard input cannot be used, because the file is read and written; name "
                       "a file");
    return caching_policy(options) ? check_policy(options, err) : 0;
}

/* Number of all experts, and bytes of a slot, which is large enough for the largest expert. */
struct extent {
    int64_t count, slot;
};

static struct extent measure(const struct model *model)
{
    struct extent extent = {0};
    for (int i = 0; i < model_tensor_count(model); i++) {
        const struct tensor *tensor = model_tensor_at(model, i);
        if (tensor->role != ROLE_EXPERTS || tensor->layer >= model_hparams(model)->layers)
            continue;
        extent.count += tensor->count;
        extent.slot = (int64_t)tensor->stride > extent.slot ? (int64_t)tensor->stride : extent.slot;
    }
    return extent;
}

uint64_t caching_weights(const struct model *model)
{
    uint64_t bytes = 0;
    for (int i = 0; i < model_tensor_count(model); i++)
        bytes += model_tensor_at(model, i)->bytes;
    return bytes;
}

int64_t caching_kept(const struct model *model, const struct expert_source *experts, const struct peers_link *peers)
{
    const struct extent extent = measure(model);
    const int64_t weights = (int64_t)caching_weights(model);
    const struct cache *cache = expert_source_cache(experts);
    const int64_t mapped = peers ? extent.count * peers->here / peers->size : extent.count;
    return weights - (extent.count - (cache ? cache_slots(cache) : mapped)) * extent.slot;
}

int64_t caching_room(int64_t left, uint64_t taken) { return left - left / 8 - (int64_t)taken; }

int caching_choose(struct caching_options *options, const struct model *model, struct device *device, uint64_t taken,
                   struct text *note, struct err *err)
{
    const struct extent extent = measure(model);
    const int64_t left = device_memory_left(device), weights = (int64_t)caching_weights(model);
    const int64_t dense = weights - extent.count * extent.slot;
    if (options->experts || options->split || !extent.count || !device_info(device)->host_memory || left < 0 ||
        weights + (int64_t)taken <= left)
        return 0;
    if (text_printf(note, err, "%s: the weights take %lld MiB, and %lld MiB of memory are left; ", model_path(model),
                    (long long)(weights >> 20), (long long)(left >> 20)))
        return -1;
    if (caching_room(left - dense, taken) / extent.slot < model_hparams(model)->router.top_k)
        return text_printf(note, err, "not even the experts of one token fit, so the file is mapped, which is slow: free "
                           "memory, or convert to a smaller --dtype; `moe-bench plan -m %s` shows what fits\n",
                           model_path(model));
    options->experts = "auto";
    return text_printf(note, err, "experts are cached (--cache-experts auto), and --cache-experts none maps the file; "
                       "`moe-bench plan -m %s` shows what to expect\n", model_path(model));
}

/* The memory for slots, and the option that requests it. */
struct slot_memory {
    const char *option, *where;         /* where: " on cuda NVIDIA ..."; "": the host's */
    int64_t left, room;                 /* left: free bytes; room: bytes for slots by auto */
};

static int read_share(const char *text, int64_t count, int64_t *slots, struct err *err)
{
    char number[32];
    double share;
    const size_t length = strlen(text) - 1;
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    if (length >= sizeof number || number_float(number, 0, 100, &share, NULL))
        return err_set(err, ERR_INPUT, "'%.40s' is not a share; give one from 0%% to 100%%", text);
    *slots = (int64_t)floor((double)count * share / 100 + 1e-9);
    return 0;
}

int caching_read_slots(const char *text, const char *option, int64_t room, int64_t count, int64_t slot, int64_t *slots,
                       struct err *err)
{
    uint64_t bytes = 0;
    if (!strcmp(text, "auto")) {
        *slots = (room > 0 ? room : 0) / slot;
    } else if (*text && text[strlen(text) - 1] == '%') {
        if (read_share(text, count, slots, err))
            return err_at(err, "%s", option);
    } else if (*text < '0' || *text > '9') {
        return err_set(err, ERR_INPUT, "%s: '%s' is not a size; give a size such as 2G, a share such as 30%%, auto or none",
                       option, text);
    } else {
        if (number_size(text, 1, INT64_MAX, &bytes, err))
            return err_at(err, "%s", option);
        *slots = (int64_t)bytes / slot;
    }
    return 0;
}

/* Finds the number of slots that `text` requests, at most one per expert; fails if memory does not suffice. */
static int find_slots(const char *text, const struct slot_memory *memory, const struct model *model, int64_t *slots,
                      struct err *err)
{
    const struct extent extent = measure(model);
    const int top_k = model_hparams(model)->router.top_k;
    int64_t found;
    if (!extent.count)
        return err_set(err, ERR_INPUT, "%s: %s has no routed experts to keep in memory; leave the option out", memory->option,
                       model_path(model));
    if (caching_read_slots(text, memory->option, memory->room, extent.count, extent.slot, &found, err))
        return -1;
    if (found < top_k)
        return err_set(err, ERR_INPUT, "%s %s: has room for %lld of %lld experts%s, but one token uses %d in a layer; give at "
                       "least %lld bytes", memory->option, text, (long long)found,
                       (long long)extent.count, memory->where, top_k, (long long)top_k * (long long)extent.slot);
    *slots = found < extent.count ? found : extent.count;
    if (memory->left >= 0 && *slots * extent.slot > memory->left)
        return err_set(err, ERR_MEMORY, "%s %s: needs %lld MiB for %lld experts, but only %lld MiB are free%s; give less, or "
                       "auto", memory->option, text, (long long)(*slots * extent.slot >> 20), (long long)*slots,
                       (long long)(memory->left >> 20), memory->where);
    return 0;
}

int caching_slots(struct expert_cache *out, const struct caching_options *options, const struct model *model,
                  struct device *device, uint64_t taken, struct err *err)
{
    const struct device_info *info = device_info(device);
    struct slot_memory fast = {.option = "--cache-experts", .where = "", .left = device_memory_left(device)};
    struct slot_memory host = {.option = "--host-experts", .where = "", .left = memory_left("")};
    char where[80];
    snprintf(where, sizeof where, " on %s", info->name);
    if (!info->host_memory)
        fast.where = where;
    fast.room = caching_room(fast.left, taken);
    host.room = host.left - host.left / 4;
    const bool tier = options->host && strcmp(options->host, "none");
    if (tier && info->host_memory)
        return err_set(err, ERR_INPUT, "--host-experts: %s computes in the host's memory, so --cache-experts sets the experts "
                       "there; leave it out",
                       info->name);
    return find_slots(options->experts, &fast, model, &out->slots, err) ||
           (tier && find_slots(options->host, &host, model, &out->host_slots, err)) ? -1 : 0;
}

uint64_t caching_files(const struct strings *drafters)
{
    uint64_t bytes = 0;
    for (int i = 0; i < drafters->count; i++)
        for (const char *at = drafters->items[i]; *at;) {
            char name[1024];
            struct stat status;
            size_t length = strcspn(at, ":,=");
            snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), at);
            if (length && !stat(name, &status) && S_ISREG(status.st_mode))
                bytes += (uint64_t)status.st_size;
            at += length + (at[length] != '\0');
        }
    return bytes;
}
