#include "common/stream/values.h"

#include <string.h>

/* Returns the entry of a key, a new one if necessary; NULL, with overflow noted, if there is no room. */
static struct value *find_or_add(struct values *values, const char *key, enum value_type type)
{
    struct value *value = NULL;
    for (int i = 0; i < values->count; i++)
        if (!strcmp(values->items[i].key, key))
            value = &values->items[i];
    if (!value) {
        if (strlen(key) >= VALUES_KEY || values->count == VALUES_MAX) {
            values->overflow = true;
            return NULL;
        }
        value = &values->items[values->count++];
    }
    memset(value, 0, sizeof *value);
    memcpy(value->key, key, strlen(key));
    value->type = type;
    return value;
}

void values_int(struct values *values, const char *key, int64_t number)
{
    struct value *value = find_or_add(values, key, VALUE_INT);
    if (value)
        value->integer = number;
}

void values_real(struct values *values, const char *key, double number)
{
    struct value *value = find_or_add(values, key, VALUE_REAL);
    if (value)
        value->real = number;
}

void values_text(struct values *values, const char *key, const char *text)
{
    struct value *value = strlen(text) < VALUES_TEXT ? find_or_add(values, key, VALUE_TEXT) : NULL;
    if (value)
        memcpy(value->text, text, strlen(text));
    else
        values->overflow = true;
}

const struct value *values_find(const struct values *values, const char *key)
{
    for (int i = 0; i < values->count; i++)
        if (!strcmp(values->items[i].key, key))
            return &values->items[i];
    return NULL;
}

double values_number(const struct values *values, const char *key, double otherwise)
{
    const struct value *value = values_find(values, key);
    return !value || value->type == VALUE_TEXT ? otherwise : value->type == VALUE_INT ? (double)value->integer : value->real;
}
