#include "common/base/json.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"

static _Thread_local bool failed;               /* an allocation of jansson's, since this was cleared */
static _Thread_local bool reading, too_much;    /* a text is read; its tree would take more than `room`, and gets no more */
static _Thread_local size_t held, room;         /* bytes of the tree so far */

static void *watched_malloc(size_t bytes)
{
    too_much |= reading && (bytes > room || held > room - bytes);
    void *block = too_much ? NULL : malloc(bytes);
    failed |= !block;
    held += malloc_usable_size(block);
    return block;
}

static void watched_free(void *block)
{
    const size_t bytes = malloc_usable_size(block);
    held -= bytes < held ? bytes : held;        /* what was allocated before is freed, too */
    free(block);
}

__attribute__((constructor)) static void watch(void) { json_set_alloc_funcs(watched_malloc, watched_free); }

json_t *json_read(const char *text, size_t bytes, size_t flags, json_error_t *fault)
{
    held = 0;
    room = bytes < (SIZE_MAX - JSON_TREE_ROOM) / 2 ? 2 * bytes + JSON_TREE_ROOM : SIZE_MAX;
    failed = too_much = false;
    reading = true;
    json_t *value = json_loadb(text, bytes, flags, fault);
    reading = false;
    if (!failed)
        return value;
    json_decref(value);
    *fault = (json_error_t){.line = 1, .column = 1};
    if (too_much)
        snprintf(fault->text, sizeof fault->text, "too many values for so short a text: they take more than %zu MiB",
                 room >> 20);
    too_much = false;
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

int json_line(struct text *out, json_t *object, struct err *err)
{
    char *line = object ? json_text(object, JSON_COMPACT, err) : NULL;
    int rc = line ? text_printf(out, err, "%s\n", line) : err_memory(err);
    mem_free(&line);
    json_decref(object);
    return rc;
}

json_t *json_finite(double value) { return isfinite(value) ? json_real(value) : json_null(); }
