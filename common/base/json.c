#include "common/base/json.h"

#include <stdlib.h>

#include "common/base/mem.h"

static _Thread_local bool failed;               /* an allocation of jansson's, since this was cleared */

static void *watched_malloc(size_t bytes)
{
    void *block = malloc(bytes);
    failed |= !block;
    return block;
}

__attribute__((constructor)) static void watch(void) { json_set_alloc_funcs(watched_malloc, free); }

json_t *json_read(const char *text, size_t bytes, size_t flags, json_error_t *fault)
{
    failed = false;
    json_t *value = json_loadb(text, bytes, flags, fault);
    if (!failed)
        return value;
    json_decref(value);
    *fault->text = 0;
    return NULL;
}

bool json_no_memory(const json_error_t *fault) { return !*fault->text || json_error_code(fault) == json_error_out_of_memory; }

char *json_text(const json_t *value, size_t flags, struct err *err)
{
    failed = false;
    size_t bytes = json_dumpb(value, NULL, 0, flags);           /* counts alone */
    char *text = bytes ? mem_alloc(bytes + 1, 1, err) : NULL;
    if (text && json_dumpb(value, text, bytes, flags) == bytes && !failed)
        return text;
    mem_free(&text);
    err_memory(err);
    return NULL;
}
