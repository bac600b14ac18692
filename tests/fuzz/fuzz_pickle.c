/* Any bytes as a pickle: all accepted values exist. */
#include "common/checkpoint/pickle.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pickle p = {0};
    size_t used = 0, entries = 0;
    if (pickle_read(&p, data, bytes, &used, NULL))
        return 0;
    if (used > bytes || p.root >= p.value_count)
        abort();
    for (size_t i = 0; i < p.value_count; i++) {
        const struct pickle_value *v = &p.values[i];
        if (v->kind == PICKLE_TEXT && (v->is.integer < 0 || (uint64_t)v->is.integer + v->count > bytes))
            abort();
        if (v->kind == PICKLE_TUPLE || v->kind == PICKLE_STORAGE || v->kind == PICKLE_TENSOR)
            for (uint32_t k = 0; k < v->count; k++)
                if ((size_t)v->is.items + k >= p.item_count || p.items[v->is.items + k] >= p.value_count)
                    abort();
        if (v->kind == PICKLE_DICT || v->kind == PICKLE_LIST)
            for (uint32_t at = v->is.chain.first; at; at = p.entries[at - 1].next)
                if (at > p.entry_count || ++entries > p.entry_count)
                    abort();
    }
    pickle_free(&p);
    return 0;
}
