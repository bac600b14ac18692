#include "common/arch/config.h"
#include "common/base/json.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int config_parse(json_t **out, const char *text, size_t bytes, struct err *err)
{
    json_error_t fault;
    json_t *value = json_read(text ? text : "", bytes, JSON_REJECT_DUPLICATES, &fault);
    if (!value && json_no_memory(&fault))
        return err_memory(err);
    if (!value)
        return err_set(err, ERR_INPUT, "line %d, column %d: %s", fault.line, fault.column, fault.text);
    if (!json_is_object(value)) {
        json_decref(value);
        return err_set(err, ERR_INPUT, "must be one JSON object");
    }
    *out = value;
    return 0;
}

const json_t *config_get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

int config_refuse(const json_t *object, const char *key, struct err *err, const char *format, ...)
{
    const json_t *value = json_object_get(object, key);
    char reason[256];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (!value)
        return err_set(err, ERR_INPUT, "%s is missing; %s", key, reason);
    char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
    err_set(err, ERR_INPUT, "%s is %.80s; %s", key, shown ? shown : "?", reason);
    free(shown);
    return -1;
}

static int absent(const json_t *object, const char *key, bool required, struct err *err)
{
    return required ? config_refuse(object, key, err, "the model's shape needs it") : 0;
}

int config_int(const json_t *object, const char *key, bool required, int *out, struct err *err)
{
    const json_t *value = config_get(object, key);
    if (!value)
        return absent(object, key, required, err);
    if (!json_is_integer(value))
        return config_refuse(object, key, err, "it must be an integer");
    if (json_integer_value(value) < INT_MIN || json_integer_value(value) > INT_MAX)
        return config_refuse(object, key, err, "it must be an integer of 32 bits");
    *out = (int)json_integer_value(value);
    return 0;
}

int config_real(const json_t *object, const char *key, bool required, double *out, struct err *err)
{
    const json_t *value = config_get(object, key);
    if (!value)
        return absent(object, key, required, err);
    if (!json_is_number(value))
        return config_refuse(object, key, err, "it must be a number");
    *out = json_number_value(value);
    return 0;
}

int config_bool(const json_t *object, const char *key, bool required, bool *out, struct err *err)
{
    const json_t *value = config_get(object, key);
    if (!value)
        return absent(object, key, required, err);
    if (!json_is_boolean(value))
        return config_refuse(object, key, err, "it must be true or false");
    *out = json_is_true(value);
    return 0;
}

int config_text(const json_t *object, const char *key, bool required, const char **out, struct err *err)
{
    const json_t *value = config_get(object, key);
    if (!value)
        return absent(object, key, required, err);
    if (!json_is_string(value))
        return config_refuse(object, key, err, "it must be a string");
    *out = json_string_value(value);
    return 0;
}

int config_no_step_limit(const json_t *config, struct err *err)
{
    const json_t *limit = config_get(config, "time_step_limit"), *last = json_array_get(limit, 1);
    const bool endless = json_is_object(last) || json_number_value(last) >= 1e30;
    if (!limit || (endless && json_number_value(json_array_get(limit, 0)) <= 0))
        return 0;
    return config_refuse(config, "time_step_limit", err, "only 0 to infinity, which is no limit, is supported");
}
