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

struct store_facts store_facts_since(const struct store_facts *now, const struct store_facts *then)
{
    return (struct store_facts){
        .hits = now->hits - then->hits, .misses = now->misses - then->misses, .bytes = now->bytes - then->bytes,
        .prefetched = now->prefetched - then->prefetched, .wasted = now->wasted - then->wasted,
        .copies = now->copies, .host_hits = now->host_hits - then->host_hits, .copied = now->copied - then->copied,
        .copied_early = now->copied_early - then->copied_early, .copied_wasted = now->copied_wasted - then->copied_wasted,
        .named = now->named - then->named, .right = now->right - then->right, .scored = now->scored - then->scored,
        .forecasts = now->forecasts, .stall = now->stall - then->stall, .stall_copies = now->stall_copies - then->stall_copies};
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
