#include "common/cli/keys.h"

#include <stdint.h>
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
            return err_set(err, ERR_INPUT, "\"%s\" is not known here%s%s%s", key, nearest.best ? "; did you mean \"" : "",
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
        return err_set(err, ERR_INPUT, "\"%s\": must be a whole number from %d to %d", key, min, max);
    *out = (int)json_integer_value(value);
    return 0;
}
