#include "common/bench/suite_vary.h"

#include "common/base/mem.h"
#include "common/base/text.h"

static bool is_texts(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            return false;
    return json_array_size(list) > 0;
}

static int check_vary(const json_t *vary, struct err *err)
{
    const char *key;
    json_t *list, *value;
    size_t at;
    if (vary && !json_is_object(vary))
        return err_set(err, ERR_INPUT, "\"vary\": must be a JSON object of option names and lists of values");
    json_object_foreach((json_t *)(uintptr_t)vary, key, list) {
        if (!json_array_size(list))
            return err_set(err, ERR_INPUT, "\"vary\": \"%s\": must be a list of values", key);
        json_array_foreach(list, at, value)
            if (!json_is_string(value) && !json_is_number(value) && !json_is_boolean(value) && !is_texts(value))
                return err_set(err, ERR_INPUT, "\"vary\": \"%s\": each value must be a number, a text, a list of texts, true "
                               "or false",
                               key);
    }
    return 0;
}

/* Adds ", temperature 0.7" to the variant's name, and the value to its options. */
static int set_value(struct suite_variant *variant, const char *key, json_t *value, struct err *err)
{
    const char *name = json_string_value(json_object_get(variant->map, "name"));
    struct text text = {0};
    char written[64] = "";
    int rc = -1;
    if (text_printf(&text, err, "%s, %s", name, key))
        goto done;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (text_printf(&text, err, "%s%s", i ? " + " : " ", json_string_value(json_array_get(value, i))))
            goto done;
    if (!json_is_string(value) && !json_is_array(value)) {
        size_t used = json_dumpb(value, written, sizeof written - 1, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10));
        written[used < sizeof written ? used : 0] = '\0';
    }
    if (!json_is_array(value) &&
        text_printf(&text, err, " %s", json_is_string(value) ? json_string_value(value) : written))
        goto done;
    if (json_object_set_new(variant->map, "name", json_string(text.data)) || json_object_set(variant->map, key, value)) {
        err_memory(err);
        goto done;
    }
    rc = 0;
done:
    text_free(&text);
    return rc;
}

static int add(struct suite_variants *out, const json_t *map, const json_t *shared, int entry, struct err *err)
{
    struct suite_variant made = {json_deep_copy(map), shared ? json_deep_copy(shared) : json_object(), entry};
    if (!made.map || !made.shared) {
        err_memory(err);
    } else if (!mem_grow(&out->items, &out->room, out->count + 1, sizeof *out->items, err)) {
        out->items[out->count++] = made;
        return 0;
    }
    json_decref(made.map);
    json_decref(made.shared);
    return -1;
}

/* Replaces every variant from number `first` on by one variant per value of the key. */
static int multiply(struct suite_variants *out, size_t first, const char *key, const json_t *values, bool shared, size_t max,
                    struct err *err)
{
    size_t old = out->count, number = json_array_size(values);
    if (old + (old - first) * (number - 1) > max)
        return err_set(err, ERR_INPUT, "\"vary\": these values make more than %zu settings; list fewer", max);
    struct suite_variants made = {0};
    int rc = -1;
    for (size_t i = first; i < old; i++)
        for (size_t v = 0; v < number; v++) {
            json_t *value = json_array_get(values, v);
            if (add(&made, out->items[i].map, out->items[i].shared, out->items[i].entry, err) ||
                set_value(&made.items[made.count - 1], key, value, err) ||
                (shared && json_object_set(made.items[made.count - 1].shared, key, value) && err_memory(err)))
                goto done;
        }
    if (mem_grow(&out->items, &out->room, first + made.count, sizeof *out->items, err))
        goto done;
    for (size_t i = 0; i < made.count; i++) {
        if (first + i < old) {
            json_decref(out->items[first + i].map);
            json_decref(out->items[first + i].shared);
        }
        out->items[first + i] = made.items[i];
    }
    out->count = first + made.count;
    made.count = 0;
    rc = 0;
done:
    suite_variants_free(&made);
    return rc;
}

static int add_entry(struct suite_variants *out, const json_t *map, const json_t *vary, int entry, size_t max, struct err *err)
{
    const json_t *own = json_object_get(map, "vary");
    size_t first = out->count;
    const char *key, *name = json_string_value(json_object_get(map, "name"));
    json_t *values;
    if (!json_is_object(map) || !name || !*name)
        return err_set(err, ERR_INPUT, "\"settings\": number %d must be a JSON object with a \"name\"", entry + 1);
    if (check_vary(own, err))
        return err_at(err, "setting '%s'", name);
    if (add(out, map, NULL, entry, err))
        return -1;
    json_object_del(out->items[first].map, "vary");
    json_object_foreach((json_t *)(uintptr_t)own, key, values)
        if (multiply(out, first, key, values, false, max, err))
            return err_at(err, "setting '%s'", name);
    json_object_foreach((json_t *)(uintptr_t)vary, key, values)
        if (!json_object_get(map, key) && !json_object_get(own, key) && multiply(out, first, key, values, true, max, err))
            return err_at(err, "setting '%s'", name);
    return 0;
}

int suite_variants_make(struct suite_variants *out, const json_t *settings, const json_t *vary, int max, struct err *err)
{
    size_t count = json_array_size(settings);
    if (!count || count > (size_t)max)
        return err_set(err, ERR_INPUT, "\"settings\": must be a list of 1 to %d settings", max);
    if (check_vary(vary, err))
        return -1;
    for (size_t i = 0; i < count; i++)
        if (add_entry(out, json_array_get(settings, i), vary, (int)i, (size_t)max, err))
            return -1;
    return 0;
}

void suite_variants_free(struct suite_variants *variants)
{
    for (size_t i = 0; i < variants->count; i++) {
        json_decref(variants->items[i].map);
        json_decref(variants->items[i].shared);
    }
    mem_free(&variants->items);
    *variants = (struct suite_variants){0};
}
