#include "common/cli/keys.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/cli/nearest.h"

int keys_known(const json_t *object, const char *const *keys, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        int i = 0;
        struct nearest nearest = {.word = key};
        for (; keys[i] && strcmp(keys[i], key); i++)
            nearest_offer(&nearest, keys[i]);
        if (!keys[i])
            return err_set(err, ERR_INPUT, "unknown key \"%s\"%s%s%s", key, nearest.best ? "; did you mean \"" : "",
                           nearest.best ? nearest.best : "", nearest.best ? "\"?" : "");
    }
    return 0;
}

int keys_int(const json_t *object, const char *key, int otherwise, int min, int max, int *out, struct err *err)
{
    const json_t *value = json_object_get(object, key);
    *out = otherwise;
    if (!value)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < min || json_integer_value(value) > max)
        return err_set(err, ERR_INPUT, "\"%s\": expected a whole number from %d to %d", key, min, max);
    *out = (int)json_integer_value(value);
    return 0;
}

int keys_real(const json_t *object, const char *key, double otherwise, double min, double max, double *out, struct err *err)
{
    const json_t *value = json_object_get(object, key);
    *out = value ? json_number_value(value) : otherwise;
    if ((value && !json_is_number(value)) || !(*out >= min && *out <= max))
        return err_set(err, ERR_INPUT, "\"%s\": expected a number from %g to %g", key, min, max);
    return 0;
}

int keys_microseconds(const json_t *object, const char *key, double otherwise, double *out, struct err *err)
{
    if (keys_real(object, key, otherwise, 0, 1e12, out, err))
        return -1;
    *out *= 1e-6;
    return 0;
}

int keys_flag(const json_t *object, const char *key, bool *out, struct err *err)
{
    const json_t *value = json_object_get(object, key);
    *out = json_is_true(value);
    return value && !json_is_boolean(value) ? err_set(err, ERR_INPUT, "\"%s\": expected true or false", key) : 0;
}

int keys_text(const json_t *object, const char *key, char *out, size_t room, struct err *err)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text)
        return err_set(err, ERR_INPUT, "\"%s\": expected a text", key);
    snprintf(out, room, "%s", text);
    return 0;
}

int keys_object(const json_t *map, const char *key, const char *const *keys, bool needed, const json_t **out, struct err *err)
{
    *out = json_object_get(map, key);
    if (*out ? !json_is_object(*out) : needed)
        return err_set(err, ERR_INPUT, "\"%s\": expected a JSON object", key);
    return *out && keys_known(*out, keys, err) ? err_at(err, "\"%s\"", key) : 0;
}
