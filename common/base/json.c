#include "common/base/json.h"

#include "common/base/mem.h"

bool json_no_memory(const json_error_t *fault) { return !*fault->text || json_error_code(fault) == json_error_out_of_memory; }

char *json_text(const json_t *value, size_t flags, struct err *err)
{
    size_t bytes = json_dumpb(value, NULL, 0, flags);           /* counts alone */
    char *text = bytes ? mem_alloc(bytes + 1, 1, err) : NULL;
    if (text && json_dumpb(value, text, bytes, flags) == bytes)
        return text;
    mem_free(&text);
    err_memory(err);
    return NULL;
}
