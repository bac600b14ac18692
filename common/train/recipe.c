#include "common/train/recipe.h"

#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"

/* Settings whose values are digests, and the words that a message has for them instead. */
static const struct { const char *key, *words; } digests[] = {
    {"target", "another model"}, {"texts", "other texts"}, {"from", "another head to begin with"},
};

/* Appends the option's name with hyphens: "micro-batch". */
static int put_name(struct text *out, const char *key, struct err *err)
{
    for (; *key; key++)
        if (text_putc(out, *key == '_' ? '-' : *key, err))
            return -1;
    return 0;
}

static int put_value(struct text *out, const json_t *value, struct err *err)
{
    char *text = NULL;
    if (json_is_string(value))
        return text_printf(out, err, "%.40s", json_string_value(value));
    if (json_is_real(value))
        return text_printf(out, err, "%g", json_real_value(value));
    if (!(text = json_text(value, JSON_COMPACT | JSON_ENCODE_ANY, err)))
        return -1;
    int rc = text_printf(out, err, "%.80s", text);
    mem_free(&text);
    return rc;
}

static int put_difference(struct text *out, const char *key, const json_t *was, const json_t *is, struct err *err)
{
    if (out->length && text_puts(out, "; ", err))
        return -1;
    for (size_t i = 0; i < sizeof digests / sizeof *digests; i++)
        if (!strcmp(digests[i].key, key))
            return text_puts(out, digests[i].words, err);
    if (put_name(out, key, err) || text_putc(out, ' ', err))
        return -1;
    return (was ? put_value(out, was, err) : text_puts(out, "not given", err)) || text_puts(out, ", not ", err) ||
           put_value(out, is, err) ? -1 : 0;
}

int recipe_difference(struct text *out, const char *was, size_t was_bytes, const char *is, struct err *err)
{
    json_error_t fault;
    const char *key;
    json_t *before = json_read(was, was_bytes, 0, &fault), *now = json_read(is, strlen(is), 0, &fault), *value;
    int rc = 0;
    if (json_is_object(before))
        json_object_foreach(now, key, value)
            if (!rc && !json_equal(json_object_get(before, key), value))
                rc = put_difference(out, key, json_object_get(before, key), value, err);
    json_decref(before);
    json_decref(now);
    return rc;
}
