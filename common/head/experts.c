/* The routed experts of a predictor, all of them resident. They need a source of their own, because the target's expert
 * source contains only the experts of the target's layers and may keep only some of them resident. */
#include "common/base/mem.h"
#include "common/head/internal.h"

struct layer_source {
    struct expert_source base;
    struct buffer table;
};

static int acquire(struct expert_source *source, struct expert_union *wanted, struct buffer *table, struct err *err)
{
    (void)err;
    wanted->held = wanted->count;
    *table = ((struct layer_source *)source)->table;
    return 0;
}

static void release(struct expert_source *source, struct expert_union *wanted)
{
    (void)source;
    wanted->done = wanted->held;
    wanted->held = 0;
}

static void free_source(struct expert_source *source)
{
    struct layer_source *mine = (struct layer_source *)source;
    mem_free(&mine);
}

static int open_source(struct expert_source **out, struct buffer table, struct err *err)
{
    static const struct expert_source_class class = {.name = "layer", .fixed = true, .acquire = acquire, .release = release,
                                                     .free = free_source};
    struct layer_source *mine = mem_alloc(1, sizeof *mine, err);
    if (!mine)
        return -1;
    *mine = (struct layer_source){{&class}, table};
    *out = &mine->base;
    return 0;
}

static int alloc(const struct head *head, struct buffer *out, int width, size_t size, struct err *err)
{
    return workspace_alloc(head->device, out, head->setup.max_rows, width, size, err);
}

int head_experts_open(struct head *head, struct err *err)
{
    const struct hparams *shape = head->shape;
    struct layer_routing *routing = &head->routing;
    const int top_k = shape->router.top_k;
    if (!head->weights.experts_table.address)
        return 0;
    routing->top_k = top_k;
    head->routed = mem_alloc((size_t)head->setup.max_rows * (size_t)top_k, sizeof *head->routed, err);
    return !head->routed || alloc(head, &routing->score, shape->router.experts, sizeof(float), err) ||
           alloc(head, &routing->wanted, top_k, sizeof(int32_t), err) ||
           alloc(head, &routing->expert, top_k, sizeof(int32_t), err) ||
           alloc(head, &routing->weight, top_k, sizeof(float), err) ||
           open_source(&head->experts, head->weights.experts_table, err) ? -1 : 0;
}

void head_experts_close(struct head *head)
{
    struct layer_routing *routing = &head->routing;
    struct buffer *all[] = {&routing->score, &routing->wanted, &routing->expert, &routing->weight};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        device_free(head->device, all[i]);
    expert_source_close(&head->experts);
    mem_free(&head->routed);
}

int64_t head_experts_bytes(const struct head *head)
{
    bool seen[EXPERTS_MAX] = {false};
    int distinct = 0;
    for (int i = 0; i < head->routes; i++) {
        const int32_t expert = head->routed[i];
        distinct += expert >= 0 && !seen[expert];
        if (expert >= 0)
            seen[expert] = true;
    }
    return distinct * head->weights.layer.expert_bytes;
}
