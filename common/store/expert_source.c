#include "common/store/expert_source.h"

int expert_source_open(struct expert_source **out, const struct model *model, struct device *device, struct err *err)
{
    return device_info(device)->host_memory ? expert_source_mapped(out, model, device, err)
                                            : expert_source_uploaded(out, model, device, err);
}

void expert_source_close(struct expert_source **source)
{
    if (*source)
        (*source)->class->free(*source);
    *source = NULL;
}

void expert_source_begin(struct expert_source *source, int tokens, enum expert_forward forward, bool text)
{
    if (source && source->class->begin)
        source->class->begin(source, tokens, forward, text);
}

int expert_source_prefetch(struct expert_source *source, int layer, const int32_t *expert, const int32_t *tokens, int count,
                           struct err *err)
{
    return source->class->prefetch ? source->class->prefetch(source, layer, expert, tokens, count, err) : 0;
}

void expert_source_keep(struct expert_source *source, int layer)
{
    if (source->class->keep)
        source->class->keep(source, layer);
}

/* Applies X to all counters of store_facts. */
#define COUNTS(X) X(hits) X(misses) X(bytes) X(prefetched) X(wasted) X(host_hits) X(copied) X(copied_early) X(copied_wasted) \
                  X(named) X(right) X(scored)
#define SECONDS(X) X(stall) X(stall_copies)

struct store_facts store_facts_since(const struct store_facts *now, const struct store_facts *then)
{
    struct store_facts out = {.copies = now->copies, .forecasts = now->forecasts};
#define SUBTRACT(counter) out.counter = now->counter - then->counter;
    COUNTS(SUBTRACT) SECONDS(SUBTRACT)
    return out;
}

void store_facts_add(struct store_facts *sum, const struct store_facts *more)
{
#define ADD(counter) sum->counter += more->counter;
    COUNTS(ADD) SECONDS(ADD)
    sum->copies |= more->copies;
    sum->forecasts |= more->forecasts;
}

struct store_facts store_facts_share(const struct store_facts *total, int first, int rows, int all_rows)
{
    struct store_facts out = {.copies = total->copies, .forecasts = total->forecasts};
#define SHARE_COUNT(counter) out.counter = total->counter * (first + rows) / all_rows - total->counter * first / all_rows;
#define SHARE_SECONDS(counter) out.counter = total->counter * rows / all_rows;
    COUNTS(SHARE_COUNT) SECONDS(SHARE_SECONDS)
    return out;
}

bool expert_source_facts(const struct expert_source *source, struct store_facts *out)
{
    if (!source || !source->class->facts)
        return false;
    source->class->facts(source, out);
    return true;
}

bool expert_source_has_host(const struct expert_source *source) { return source->class->acquire_host != NULL; }

int expert_source_want(struct expert_source *source, const struct expert_union *wanted, enum expert_tier *tier,
                       struct err *err)
{
    for (int i = 0; i < wanted->count; i++)
        tier[i] = EXPERT_ON_DEVICE;
    return source->class->want ? source->class->want(source, wanted, tier, err) : 0;
}

int expert_source_acquire_host(struct expert_source *source, struct expert_union *wanted, const void **address,
                               struct err *err)
{
    return source->class->acquire_host(source, wanted, address, err);
}

void expert_source_release_host(struct expert_source *source, struct expert_union *wanted)
{
    source->class->release_host(source, wanted);
}

struct cache *expert_source_cache(const struct expert_source *source)
{
    return source && source->class->cache ? source->class->cache(source) : NULL;
}

const char *expert_source_method(const struct expert_source *source)
{
    return source && source->class->method ? source->class->method(source) : NULL;
}
