#include "common/draft/skip_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/cli/keys.h"
#include "common/cli/number.h"

enum { FILE_LIMIT = 1 << 20, FILE_VERSION = 1, COUNT_MAX = 1 << 30 };

const char *const skip_endings[] = {"score", "patience", "iterations", "all", "interrupted", NULL};

int skip_parts(int layers) { return layers > 2 ? 2 * (layers - 2) : 0; }

int skip_count(int layers, double ratio) { return (int)(skip_parts(layers) * ratio); }

static const uint8_t *part_of(const struct skip_set *set, int part)
{
    int half = skip_parts(set->layers) / 2;
    return part < half ? &set->attention[1 + part] : &set->ffn[1 + part - half];
}

bool skip_part(const struct skip_set *set, int part) { return *part_of(set, part); }

void skip_part_set(struct skip_set *set, int part, bool left_out) { *(uint8_t *)(uintptr_t)part_of(set, part) = left_out; }

/* Marks `parts` parts of the `layers` layers first, first + 2, ... as skipped: whole layers, evenly spread; if `parts` is
 * odd, also the attention of one more layer. */
static void spread(struct skip_set *set, int first, int layers, int parts)
{
    int chosen = (parts + 1) / 2;
    for (int i = 0; i < chosen; i++) {
        int layer = first + 2 * ((2 * i + 1) * layers / (2 * chosen));
        set->attention[layer] = 1;
        set->ffn[layer] = 2 * i + 2 <= parts;
    }
}

int skip_set_first(struct skip_set *out, int layers, double ratio, struct err *err)
{
    int odd = (layers - 1) / 2, even = layers - 2 - odd, count = skip_count(layers, ratio);
    struct skip_set set = {.layers = layers};
    if (skip_parts(layers) < 1)
        return err_set(err, ERR_INPUT, "the model has %d layers, and the first and the last are never skipped, so nothing can "
                       "be skipped; choose another drafter", layers);
    if (count < 1)
        return err_set(err, ERR_INPUT, "a ratio of %g skips none of the %d parts that can be skipped in %d layers; give at "
                       "least %g",
                       ratio, skip_parts(layers), layers, ceil(1000. / skip_parts(layers)) / 1000);
    spread(&set, 1, odd, count < 2 * odd ? count : 2 * odd);
    if (count > 2 * odd)
        spread(&set, 2, even, count - 2 * odd);
    *out = set;
    return 0;
}

static int wrong(struct err *err, const char *key, const char *what)
{
    return err_set(err, ERR_INPUT, "\"%s\": %s", key, what);
}

/* Reads the digest with the given key, a string of 64 hexadecimal digits; "" if it is missing and not needed. */
static int get_digest(const json_t *map, const char *key, bool needed, const char **out, struct err *err)
{
    const json_t *value = json_object_get(map, key);
    const char *text = json_string_value(value);
    *out = "";
    if (!needed && (!value || json_is_null(value)))
        return 0;
    if (!text || strlen(text) != 64 || strspn(text, "0123456789abcdef") != 64)
        return wrong(err, key, "expected 64 hexadecimal digits");
    *out = text;
    return 0;
}

static bool same_digest(const char *text, const struct sha256 *digest)
{
    static const struct sha256 none;
    char hex[65];
    sha256_hex(digest, hex);
    return !*text || !memcmp(digest, &none, sizeof none) || !strcmp(text, hex);
}

static int check_model(const json_t *map, const struct model_identity *model, struct err *err)
{
    static const char *const keys[] = {"name", "index", "source", "tokenizer", "layers", NULL};
    const char *index, *source, *tokenizer, *name = json_string_value(json_object_get(map, "name"));
    int layers;
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "expected a JSON object");
    if (keys_known(map, keys, err) || get_digest(map, "index", true, &index, err) ||
        get_digest(map, "source", true, &source, err) || get_digest(map, "tokenizer", false, &tokenizer, err) ||
        keys_int(map, "layers", 0, 1, LAYERS_MAX, &layers, err))
        return -1;
    if (!name)
        return wrong(err, "name", "expected a text");
    if (layers != model->layers)
        return err_set(err, ERR_INPUT, "the skip file is for %s with %d layers, not for %s with %d; make one for this model "
                       "with moe-profile skip", name,
                       layers, model->name, model->layers);
    if (!same_digest(source, &model->source))
        return err_set(err, ERR_INPUT, "the skip file is for %s, whose weights differ from those of %s; make one for this "
                       "model with moe-profile skip", name,
                       model->name);
    if (!same_digest(tokenizer, &model->tokenizer))
        return err_set(err, ERR_INPUT,
                       "the skip file was made for %s, whose tokenizer differs from that of %s; make one for this model with "
                       "moe-profile skip", name,
                       model->name);
    return 0;
}

static int get_layers(const json_t *map, const char *key, int layers, uint8_t *out, struct err *err)
{
    const json_t *list = json_object_get(map, key), *item;
    int last = 0;
    size_t at;
    if (!json_is_array(list))
        return wrong(err, key, "expected a list of layers, such as [1,3]");
    json_array_foreach((json_t *)(uintptr_t)list, at, item) {
        if (!json_is_integer(item))
            return wrong(err, key, "expected a list of layers, such as [1,3]");
        json_int_t layer = json_integer_value(item);
        if (layer == 0 || layer == layers - 1)
            return wrong(err, key, layer ? "the last layer is never skipped" : "layer 0 is never skipped");
        if (layer <= last || layer >= layers)
            return err_set(err, ERR_INPUT, "\"%s\": expected layer numbers from 1 to %d, in ascending order", key, layers - 2);
        out[last = (int)layer] = 1;
    }
    return 0;
}

static int get_share(const json_t *map, const char *key, double *out, struct err *err)
{
    const json_t *value = json_object_get(map, key);
    *out = json_number_value(value);
    return json_is_number(value) && *out >= 0 && *out <= 1 ? 0 : wrong(err, key, "expected a number from 0 to 1");
}

static int get_search(const json_t *map, struct skip_search_facts *out, struct err *err)
{
    static const char *const keys[] = {"ratio", "seed", "texts", "candidates", "bayesian", "kept", "ended", NULL};
    const char *seed = json_string_value(json_object_get(map, "seed"));
    const char *ended = json_string_value(json_object_get(map, "ended"));
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "expected a JSON object");
    if (keys_known(map, keys, err) || get_share(map, "ratio", &out->ratio, err) ||
        keys_int(map, "texts", 0, 0, COUNT_MAX, &out->texts, err) ||
        keys_int(map, "candidates", 0, 0, COUNT_MAX, &out->candidates, err) ||
        keys_int(map, "bayesian", 0, 0, COUNT_MAX, &out->bayesian, err) ||
        keys_int(map, "kept", 0, 0, COUNT_MAX, &out->kept, err))
        return -1;
    if (!seed)
        return wrong(err, "seed", "expected a text of digits");      /* JSON integers have only 63 bits here */
    if (number_uint64(seed, &out->seed, err))
        return err_at(err, "\"seed\"");
    for (int i = 0; ended && skip_endings[i] && !out->ended; i++)
        out->ended = strcmp(ended, skip_endings[i]) ? NULL : skip_endings[i];
    return out->ended ? 0 : wrong(err, "ended", "expected a word such as \"score\"");
}

static int get_file(struct skip_set *out, struct skip_found *found, const json_t *map, const struct model_identity *model,
                    struct err *err)
{
    static const char *const keys[] = {"skip", "model", "attention", "ffn", "matchness", "window", "search", NULL};
    int version;
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "expected the JSON object that moe-profile skip writes");
    if (keys_int(map, "skip", 0, 1, COUNT_MAX, &version, err))
        return -1;
    if (version != FILE_VERSION)
        return wrong(err, "skip", version ? "this version is newer than this program supports; update moekit"
                                          : "it is missing, so this is not a skip file; moe-profile skip writes them");
    if (keys_known(map, keys, err))
        return -1;
    if (check_model(json_object_get(map, "model"), model, err))
        return err_at(err, "\"model\"");
    if (get_layers(map, "attention", model->layers, out->attention, err) ||
        get_layers(map, "ffn", model->layers, out->ffn, err))
        return -1;
    if (!memchr(out->attention, 1, sizeof out->attention) && !memchr(out->ffn, 1, sizeof out->ffn))
        return err_set(err, ERR_INPUT, "the file skips nothing; make one with moe-profile skip");
    if (get_share(map, "matchness", &found->matchness, err) ||
        keys_int(map, "window", 0, 1, COUNT_MAX, &found->window, err))
        return -1;
    if (json_object_get(map, "search") && get_search(json_object_get(map, "search"), &found->search, err))
        return err_at(err, "\"search\"");
    return 0;
}

int skip_file_read(struct skip_set *out, struct skip_found *found, const char *path, const struct model_identity *model,
                   struct err *err)
{
    struct skip_set set = {.layers = model->layers};
    struct skip_found facts = {0};
    json_t *map = json_file(path, FILE_LIMIT, "a skip file", err);
    if (!map)
        return -1;
    int rc = get_file(&set, &facts, map, model, err) ? err_at(err, "%s", path) : 0;
    json_decref(map);
    if (rc)
        return -1;
    *out = set;
    if (found)
        *found = facts;
    return 0;
}

int skip_set_open(struct skip_set *out, const char *text, const struct model_identity *model, struct err *err)
{
    char *end;
    double ratio = strtod(text, &end);
    if (end == text || *end)
        return skip_file_read(out, NULL, text, model, err);
    if (!(ratio > 0 && ratio <= 1))
        return err_set(err, ERR_INPUT, "skip=%s: expected a ratio above 0 and up to 1, or a skip file", text);
    return skip_set_first(out, model->layers, ratio, err) ? err_at(err, "skip=%s", text) : 0;
}

static json_t *list_of(const uint8_t *left_out, int layers)
{
    json_t *list = json_array();
    for (int layer = 0; layer < layers; layer++)
        if (left_out[layer] && json_array_append_new(list, json_integer(layer))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *map_of_model(const struct model_identity *model)
{
    static const struct sha256 none;
    char index[65], source[65], tokenizer[65];
    sha256_hex(&model->index, index);
    sha256_hex(&model->source, source);
    sha256_hex(&model->tokenizer, tokenizer);
    return json_pack("{s:s,s:s,s:s,s:s?,s:i}", "name", model->name, "index", index, "source", source, "tokenizer",
                     memcmp(&model->tokenizer, &none, sizeof none) ? tokenizer : NULL, "layers", model->layers);
}

int skip_file_write(const char *path, const struct skip_set *set, const struct skip_found *found,
                    const struct model_identity *model, struct err *err)
{
    const struct skip_search_facts *search = &found->search;
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, search->seed);
    json_t *facts = !search->ended ? NULL
        : json_pack("{s:f,s:s,s:i,s:i,s:i,s:i,s:s}", "ratio", search->ratio, "seed", seed, "texts", search->texts, "candidates",
                    search->candidates, "bayesian", search->bayesian, "kept", search->kept, "ended", search->ended);
    json_t *map = json_pack("{s:i,s:o,s:o,s:o,s:f,s:i,s:o*}", "skip", FILE_VERSION, "model", map_of_model(model), "attention",
                            list_of(set->attention, set->layers), "ffn", list_of(set->ffn, set->layers), "matchness",
                            found->matchness, "window", found->window, "search", facts);
    int rc = !map || (search->ended && !facts) ? err_memory(err)
                                               : json_write(path, map, JSON_COMPACT | JSON_REAL_PRECISION(9), err);
    json_decref(map);
    return rc;
}
