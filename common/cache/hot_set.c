#include "common/cache/hot_set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/cli/keys.h"

enum { FILE_LIMIT = 1 << 22, FILE_VERSION = 1, COUNT_MAX = 1 << 30 };

void hot_set_free(struct hot_set *set)
{
    mem_free(&set->key);
    mem_free(&set->weight);
    set->count = 0;
}

static int check_model(const json_t *map, const struct stream_model *model, struct err *err)
{
    static const char *const keys[] = {"name", "source", "layers", "experts", "top_k", NULL};
    const char *name = json_string_value(json_object_get(map, "name"));
    const char *source = json_string_value(json_object_get(map, "source"));
    int layers, experts, top_k;
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "\"model\": expected a JSON object");
    if (keys_known(map, keys, err) || keys_int(map, "layers", 0, 1, COUNT_MAX, &layers, err) ||
        keys_int(map, "experts", 0, 1, COUNT_MAX, &experts, err) || keys_int(map, "top_k", 0, 1, COUNT_MAX, &top_k, err))
        return err_at(err, "\"model\"");
    if (!name || !source)
        return err_set(err, ERR_INPUT, "\"model\": expected \"name\" and \"source\", both texts");
    if (layers != model->moe_layers || experts != model->experts || top_k != model->top_k)
        return err_set(err, ERR_INPUT, "this hot set is for %s (%d layers, %d experts, top %d), not for %s (%d layers, %d "
                       "experts, top %d); use another file, or remove this one", name, layers, experts, top_k, model->name,
                       model->moe_layers,
                       model->experts, model->top_k);
    if (*source && *model->source_sha256 && strcmp(source, model->source_sha256))
        return err_set(err, ERR_INPUT, "this hot set is for %s, whose weights differ from those of %s; use another file, or "
                       "remove this one",
                       name, model->name);
    return 0;
}

static int get_expert(struct hot_set *set, const json_t *item, const struct stream_model *model, bool *seen, struct err *err)
{
    json_int_t layer = json_integer_value(json_array_get(item, 0)), expert = json_integer_value(json_array_get(item, 1));
    double weight = json_number_value(json_array_get(item, 2));
    if (json_array_size(item) != 3 || !json_is_integer(json_array_get(item, 0)) || !json_is_integer(json_array_get(item, 1)) ||
        !json_is_number(json_array_get(item, 2)))
        return err_set(err, ERR_INPUT, "expected [layer, expert, weight]");
    if (layer < 0 || layer >= model->moe_layers || expert < 0 || expert >= model->experts)
        return err_set(err, ERR_INPUT, "expert %lld of layer %lld does not exist in this model", (long long)expert,
                       (long long)layer);
    if (!(weight > 0) || isinf(weight) || (set->count && weight > set->weight[set->count - 1]))
        return err_set(err, ERR_INPUT, "expected weights above 0, in descending order");
    int key = (int)(layer * model->experts + expert);
    if (seen[key])
        return err_set(err, ERR_INPUT, "expert %lld of layer %lld occurs twice", (long long)expert, (long long)layer);
    seen[key] = true;
    set->key[set->count] = key;
    set->weight[set->count++] = weight;
    return 0;
}

static int get_file(struct hot_set *set, const json_t *map, const struct stream_model *model, struct err *err)
{
    static const char *const keys[] = {"hot_set", "model", "experts", NULL};
    const json_t *list = json_object_get(map, "experts"), *item;
    int version, rc = 0;
    size_t at;
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "expected the JSON object that --hot-set writes");
    if (keys_int(map, "hot_set", 0, 1, COUNT_MAX, &version, err))
        return -1;
    if (version != FILE_VERSION)
        return err_set(err, ERR_INPUT, version ? "\"hot_set\": this version is newer than this program supports; update moekit"
                                               : "\"hot_set\" is missing, so this file is not a hot set; name another, and "
                                               "--hot-set will write it");
    if (keys_known(map, keys, err) || check_model(json_object_get(map, "model"), model, err))
        return -1;
    size_t count = (size_t)model->moe_layers * model->experts;
    if (!json_is_array(list) || json_array_size(list) > count)
        return err_set(err, ERR_INPUT, "\"experts\": expected a list of at most %zu entries", count);
    bool *seen = mem_alloc(count, sizeof *seen, err);
    set->key = mem_alloc(json_array_size(list), sizeof *set->key, err);
    set->weight = mem_alloc(json_array_size(list), sizeof *set->weight, err);
    rc = seen && set->key && set->weight ? 0 : -1;
    for (at = 0; !rc && (item = json_array_get(list, at)); at++)
        if (get_expert(set, item, model, seen, err))
            rc = err_at(err, "\"experts\": entry %zu", at + 1);
    mem_free(&seen);
    return rc;
}

int hot_set_read(struct hot_set *out, const char *path, const struct stream_model *model, struct err *err)
{
    struct hot_set set = {0};
    json_t *map = json_file(path, FILE_LIMIT, "a hot set", err);
    if (!map)
        return -1;
    int rc = get_file(&set, map, model, err) ? err_at(err, "%s", path) : 0;
    json_decref(map);
    if (rc)
        hot_set_free(&set);
    else
        *out = set;
    return rc;
}

struct warm { double weight; int32_t key; };

static int hotter(const void *a, const void *b)
{
    const struct warm *x = a, *y = b;
    return x->weight != y->weight ? (x->weight < y->weight) - (x->weight > y->weight) : (x->key > y->key) - (x->key < y->key);
}

/* Returns all weights above 0, hottest first; NULL with err set. */
static struct warm *sorted(const double *weight, int keys, int *count, struct err *err)
{
    struct warm *warm = mem_alloc(keys, sizeof *warm, err);
    *count = 0;
    for (int key = 0; warm && key < keys; key++)
        if (weight[key] > 0)
            warm[(*count)++] = (struct warm){weight[key], key};
    if (warm)
        qsort(warm, *count, sizeof *warm, hotter);
    return warm;
}

int hot_set_write(const char *path, const double *weight, const struct stream_model *model, struct err *err)
{
    struct text text = {0};
    int count, rc = -1;
    struct warm *warm = sorted(weight, model->moe_layers * model->experts, &count, err);
    json_t *map = json_pack("{s:s,s:s,s:i,s:i,s:i}", "name", model->name, "source", model->source_sha256, "layers",
                            model->moe_layers, "experts", model->experts, "top_k", model->top_k);
    char *identity = map ? json_text(map, JSON_COMPACT, err) : NULL;
    if (!map)
        err_memory(err);
    if (!warm || !identity ||
        text_printf(&text, err, "{\"hot_set\":%d,\"model\":%s,\n\"experts\":[", FILE_VERSION, identity))
        goto done;
    for (int i = 0; i < count; i++)
        if (text_printf(&text, err, "%s[%d,%d,%.9g]", !i ? "" : i % 8 ? "," : ",\n", warm[i].key / model->experts,
                        warm[i].key % model->experts, warm[i].weight))
            goto done;
    rc = text_puts(&text, "]}\n", err) || output_whole(path, &text, err) ? -1 : 0;
done:
    json_decref(map);
    mem_free(&identity);
    mem_free(&warm);
    text_free(&text);
    return rc;
}
