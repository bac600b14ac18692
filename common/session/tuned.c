#include "common/session/tuned.h"

#include <string.h>

#include "common/base/json.h"
#include "common/cli/keys.h"

enum { FILE_LIMIT = 1 << 20 };

void tuned_free(struct tuned *tuned)
{
    decode_settings_free(&tuned->store);
    *tuned = (struct tuned){0};
}

static int read_map(struct tuned *out, struct decode_settings *settings, const json_t *map, struct err *err)
{
    static const char *const keys[] = {"settings", "model", "machine", "options", "tokens_per_second", "cost", "drafters",
                                       "tried", NULL};
    static const char *const known[] = {"draft", "draft-length", "policy", NULL};
    const char *index = json_string_value(json_object_get(json_object_get(map, "model"), "index"));
    const json_t *options = json_object_get(map, "options");
    struct decode_settings made;
    int version;
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "expected a JSON object");
    if (keys_known(map, keys, err) || keys_int(map, "settings", 0, 1, TUNED_VERSION, &version, err))
        return -1;
    if (version != TUNED_VERSION)
        return err_set(err, ERR_INPUT, "\"settings\": expected the version, %d; write the file with moe-bench tune",
                       TUNED_VERSION);
    if (!index || strlen(index) != 64)
        return err_set(err, ERR_INPUT, "\"model\": \"index\": expected 64 hexadecimal digits");
    memcpy(out->index, index, sizeof out->index);
    if (!json_is_object(options))
        return err_set(err, ERR_INPUT, "\"options\": expected a JSON object of options");
    if (keys_known(options, known, err) || decode_settings_from_json(&made, &out->store, options, err))
        return err_at(err, "\"options\"");
    if (settings->draft.count || settings->draft_length != DRAFT_LENGTH_NONE || settings->policy || settings->tree)
        return 0;
    out->used = true;
    out->costs = json_array_size(json_object_get(map, "cost"));
    settings->draft = made.draft;
    settings->draft_length = made.draft_length;
    settings->policy = made.policy;
    return 0;
}

int tuned_read(struct tuned *out, struct decode_settings *settings, struct err *err)
{
    struct tuned made = {.path = settings->tuned};
    if (!settings->tuned) {
        *out = made;
        return 0;
    }
    json_t *map = json_file(made.path, FILE_LIMIT, "a file of settings", err);
    int rc = map ? read_map(&made, settings, map, err) : -1;
    json_decref(map);
    if (rc) {
        if (map)
            err_at(err, "%s", made.path);
        err_at(err, "--settings");
        tuned_free(&made);
        return -1;
    }
    *out = made;
    return 0;
}

int tuned_check(const struct tuned *tuned, const struct model *model, struct err *err)
{
    char index[65];
    sha256_hex(&model_identity(model)->index, index);
    if (!tuned->path || !strcmp(index, tuned->index))
        return 0;
    return err_set(err, ERR_INPUT, "--settings: %s: was measured with another model file than %s; run moe-bench tune for this "
                   "model", tuned->path, model_path(model));
}
