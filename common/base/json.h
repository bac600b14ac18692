/* What jansson does not do by itself: say that memory was short, and write without losing a key then (json_dumps ignores
 * it when its buffer cannot grow for one). */
#ifndef MOE_BASE_JSON_H
#define MOE_BASE_JSON_H

#include <stdbool.h>

#include <jansson.h>

#include "common/base/err.h"

/* Did reading fail for want of memory? Then `fault` has no words for it. */
bool json_no_memory(const json_error_t *fault);

/* The value as text, to be freed with mem_free; NULL: no memory. */
char *json_text(const json_t *value, size_t flags, struct err *err);

#endif
