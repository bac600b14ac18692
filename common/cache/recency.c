#include "common/cache/recency.h"

#include <string.h>

#include "common/base/mem.h"

struct recency {
    int experts;
    bool global;
    int64_t clock;              /* number of wants so far: turns of layers, or single experts if global */
    int64_t *value;             /* [keys] */
    int32_t *list;              /* [layers][experts] most recently wanted first; NULL if global */
    bool *wanted;               /* [experts] scratch; all false between calls */
};

enum { TURN_BITS = 40 };        /* low bits of a value: the turn; the bits above are the rank, which is below CACHE_KEYS_MAX */

static int64_t value_at(int rank, int64_t turn) { return -((int64_t)rank * (1ll << TURN_BITS) + turn); }

int recency_open(struct recency **out, int layers, int experts, bool global, struct err *err)
{
    const size_t keys = (size_t)layers * experts;
    struct recency *r = mem_alloc(1, sizeof *r, err);
    if (!r)
        return -1;
    *r = (struct recency){.experts = experts, .global = global, .value = mem_alloc(keys, sizeof *r->value, err)};
    if (!r->value || (!global && (!(r->list = mem_alloc(keys, sizeof *r->list, err)) ||
                                  !(r->wanted = mem_alloc(experts, sizeof *r->wanted, err))))) {
        recency_close(&r);
        return -1;
    }
    for (size_t key = 0; key < keys && !global; key++) {
        r->list[key] = (int32_t)(key % experts);
        r->value[key] = value_at(r->list[key], 0);
    }
    *out = r;
    return 0;
}

void recency_close(struct recency **recency)
{
    if (*recency) {
        mem_free(&(*recency)->value);
        mem_free(&(*recency)->list);
        mem_free(&(*recency)->wanted);
    }
    mem_free(recency);
}

void recency_want(struct recency *r, int layer, const int32_t *expert, int count)
{
    int64_t *value = r->value + (size_t)layer * r->experts;
    if (r->global) {
        for (int i = 0; i < count; i++)
            value[expert[i]] = ++r->clock;
        return;
    }
    int32_t *list = r->list + (size_t)layer * r->experts;
    r->clock++;
    for (int i = 0; i < count; i++)
        r->wanted[expert[i]] = true;
    for (int from = r->experts - 1, to = from; from >= 0; from--)       /* the other experts keep their order */
        if (!r->wanted[list[from]])
            list[to--] = list[from];
    for (int i = 0; i < count; i++) {
        list[count - 1 - i] = expert[i];
        r->wanted[expert[i]] = false;
    }
    for (int rank = 0; rank < r->experts; rank++)
        value[list[rank]] = value_at(rank, r->clock);
}

void recency_touch(struct recency *r, int key)
{
    if (r->global) {
        r->value[key] = ++r->clock;
        return;
    }
    int32_t *list = r->list + key - key % r->experts;
    int at = 0;
    while (list[at] != key % r->experts)
        at++;
    memmove(list + 1, list, at * sizeof *list);
    list[0] = key % r->experts;
    r->value[key] = value_at(0, r->clock);
}

int64_t recency_of(const struct recency *r, int key) { return r->value[key]; }
