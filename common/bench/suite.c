#include "common/bench/suite.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/bench/suite_vary.h"
#include "common/cli/keys.h"
#include "common/cli/nearest.h"
#include "common/cli/number.h"
#include "common/model/model_index.h"
#include "common/report/grade.h"
#include "common/report/summary.h"
#include "common/stream/frame.h"
#include "kernels/plain/philox.h"

enum { SUITE_LIMIT = 16 << 20 };        /* bytes of a suite's file */

static const char *const order_words[] = {"interleaved", "random", "blocked", NULL};
const char *const suite_draw_words[] = {"same", "fresh", NULL};

/* State of reading a suite: position for errors, and folder for relative names. */
struct parse {
    struct suite *suite;
    const char *folder;         /* folder with its slash; "": none */
    const json_t *root;
    const char *reference;      /* NULL: not given */
};

static int wrong(struct err *err, const char *key, const char *what)
{
    return err_set(err, ERR_INPUT, "\"%s\": %s", key, what);
}

/* Reads a string that must be one of `words`. */
static int get_word(const json_t *value, const char *key, const char *const *words, int *out, struct err *err)
{
    const char *text = json_string_value(value);
    struct nearest nearest = {.word = text ? text : ""};
    for (int i = 0; text && words[i]; i++) {
        nearest_offer(&nearest, words[i]);
        if (!strcmp(words[i], text)) {
            *out = i;
            return 0;
        }
    }
    return err_set(err, ERR_INPUT, "\"%s\": must be one of its keywords, such as \"%s\"", key,
                   nearest.best ? nearest.best : words[0]);
}

static char *resolved(const struct parse *parse, const char *name, struct err *err)
{
    struct text path = {0};
    bool whole = name[0] == '/' || !strcmp(name, "-");
    char *copy = NULL;
    if (!text_puts(&path, whole ? "" : parse->folder, err) && !text_puts(&path, name, err))
        copy = mem_string(path.data, err);
    text_free(&path);
    return copy;
}

static int get_models(struct parse *parse, struct err *err)
{
    struct suite *suite = parse->suite;
    json_t *many = json_object_get(parse->root, "models"), *one = json_object_get(parse->root, "model"), *value;
    const char *name;
    if (!many == !one)
        return wrong(err, "models", "a suite has either \"model\" or \"models\"");
    if (one ? !json_is_string(one) : !json_is_object(many) || !json_object_size(many))
        return wrong(err, one ? "model" : "models",
                     one ? "must be the name of a file" : "must be a JSON object of names and files");
    size_t count = one ? 1 : json_object_size(many);
    if (count > SUITE_MODELS_MAX)
        return wrong(err, "models", "too many of them");
    if (!(suite->models = mem_alloc(count, sizeof *suite->models, err)))
        return -1;
    if (one) {
        suite->model_count = 1;
        return (suite->models[0].name = mem_string(json_string_value(one), err)) &&
               (suite->models[0].path = resolved(parse, json_string_value(one), err)) ? 0 : -1;
    }
    json_object_foreach(many, name, value) {
        struct suite_model *model = &suite->models[suite->model_count++];
        if (!json_is_string(value))
            return wrong(err, name, "a model is given by the name of its file");
        if (!(model->name = mem_string(name, err)) || !(model->path = resolved(parse, json_string_value(value), err)))
            return -1;
    }
    return 0;
}

/* Reads a string or an array of strings; with `files` they are file names, which are resolved. */
static int get_texts(struct parse *parse, const char *key, bool files, char ***out, int *count, struct err *err)
{
    json_t *value = json_object_get(parse->root, key);
    size_t length = json_is_array(value) ? json_array_size(value) : 1;
    if (!value)
        return 0;
    if (length > SUITE_FILES_MAX)
        return wrong(err, key, "too many of them");
    if (!(*out = mem_alloc(length, sizeof **out, err)))
        return -1;
    for (size_t i = 0; i < length; i++) {
        const char *text = json_string_value(json_is_array(value) ? json_array_get(value, i) : value);
        if (!text)
            return wrong(err, key, "must be a text or a list of texts");
        if (!((*out)[*count] = files ? resolved(parse, text, err) : mem_string(text, err)))
            return -1;
        ++*count;
    }
    return 0;
}

static int find_model(const struct suite *suite, const char *name)
{
    for (int i = 0; i < suite->model_count; i++)
        if (!strcmp(suite->models[i].name, name))
            return i;
    return -1;
}

static int find_setting(const struct suite *suite, const char *name)
{
    for (int i = 0; i < suite->setting_count; i++)
        if (suite->settings[i].name && !strcmp(suite->settings[i].name, name))
            return i;
    return -1;
}

/* Options of a setting that name files, relative to the suite's folder: in the values of these keys of KIND:key=value,..., or,
 * without keys, as the whole value unless it is one of the words. Names between |. */
static const struct file_option { const char *option, *keys, *words; } file_options[] = {
    {"draft", "|file|corpus|save|experts|skip|", NULL}, {"tree", "|file|", NULL}, {"policy", "|file|cost|", NULL},
    {"rank", NULL, "|router|path|oracle|oracle:as=routed|oracle:as=printed|"}, {"reference", NULL, "|self|"},
    {"settings", NULL, ""}, {"force-routes", NULL, ""}, {"force-accept", NULL, ""}};

static bool is_among(const char *names, const char *name, size_t length)
{
    for (const char *at = strchr(names, '|'); at && at[1]; at = strchr(at + 1, '|'))
        if (!strncmp(at + 1, name, length) && at[1 + length] == '|')
            return true;
    return false;
}

/* Returns whether a value names a file: skip= accepts a ratio, too, and the cost of policy oracle is a word. */
static bool is_file(const char *spec, const char *key, const char *value)
{
    char *end;
    (void)strtod(value, &end);
    const bool number = end > value && (!*end || *end == ',');
    return *value != '/' && !(number && !strncmp(key, "skip", 4)) &&
           !(!strncmp(key, "cost", 4) && !strncmp(spec, "oracle:", 7));
}

/* Appends a value with the folder before the names of files in it. */
static int put_resolved(struct text *out, const struct parse *parse, const struct file_option *files, const char *value,
                        struct err *err)
{
    if (!files->keys) {
        const bool whole = *value == '/' || !strcmp(value, "-") || is_among(files->words, value, strlen(value));
        return text_puts(out, whole ? "" : parse->folder, err) || text_puts(out, value, err) ? -1 : 0;
    }
    for (const char *at = value; *at; at++) {
        const size_t key = strcspn(at + 1, "=");
        if (text_putc(out, *at, err))
            return -1;
        if ((*at != ':' && *at != ',') || !at[1 + key] || !is_among(files->keys, at + 1, key) ||
            !is_file(value, at + 1, at + key + 2))
            continue;
        if (text_put(out, at + 1, key + 1, err))
            return -1;
        at += key + 1;
        for (const char *from = parse->folder; *from; from++)
            if ((strchr(",\\", *from) && text_putc(out, '\\', err)) || text_putc(out, *from, err))
                return -1;
    }
    return 0;
}

/* Returns the value with resolved names, a text or a list of texts; other values as they are. */
static json_t *resolve_value(const struct parse *parse, const struct file_option *files, json_t *value, struct err *err)
{
    struct text text = {0};
    json_t *made = NULL, *item;
    size_t at;
    if (json_is_array(value)) {
        made = json_array();
        json_array_foreach(value, at, item)
            if (json_array_append_new(made, resolve_value(parse, files, item, err))) {
                json_decref(made);
                return NULL;
            }
        return made;
    }
    if (!json_is_string(value))
        return json_incref(value);
    if (!put_resolved(&text, parse, files, json_string_value(value), err))
        made = json_string(text.data ? text.data : "");
    text_free(&text);
    return made;
}

/* Merges the options of a setting: the suite's common ones, overridden by the setting's own, with file names resolved; parses
 * them. */
static int merge_options(struct parse *parse, const json_t *map, struct suite_setting *setting, struct err *err)
{
    json_t *common = json_object_get(parse->root, "options");
    if (common && !json_is_object(common))
        return wrong(err, "options", "must be a JSON object of options");
    if (!(setting->options = common ? json_copy(common) : json_object()) || json_object_update(setting->options, (json_t *)map))
        return err_memory(err);
    for (const char *const *key = suite_setting_keys; *key; key++)
        json_object_del(setting->options, *key);
    for (size_t i = 0; i < sizeof file_options / sizeof *file_options; i++) {
        json_t *value = json_object_get(setting->options, file_options[i].option);
        if (value && json_object_set_new(setting->options, file_options[i].option,
                                         resolve_value(parse, &file_options[i], value, err)))
            return err_memory(err);
    }
    return decode_settings_from_json(&setting->settings, &setting->store, setting->options, err);
}

static int get_machine_text(const json_t *map, const char *key, char **out, struct err *err)
{
    const json_t *value = json_object_get(map, key);
    if (value && !json_is_string(value))
        return wrong(err, key, "must be a word");
    return value && !(*out = mem_string(json_string_value(value), err)) ? -1 : 0;
}

/* Reads the order of prompts: "reversed", "shuffled:SEED". */
static int get_walk(const json_t *map, struct suite_setting *setting, struct err *err)
{
    static const char shuffled[] = "shuffled:";
    const json_t *value = json_object_get(map, "order");
    const char *text = json_string_value(value);
    if (!value || (text && !strcmp(text, "given")))
        return 0;
    setting->walk = SUITE_REVERSED;
    if (text && !strcmp(text, "reversed"))
        return 0;
    setting->walk = SUITE_SHUFFLED;
    if (text && !strncmp(text, shuffled, sizeof shuffled - 1) &&
        !number_uint64(text + sizeof shuffled - 1, &setting->walk_seed, NULL))
        return 0;
    return wrong(err, "order", "must be \"given\", \"reversed\" or \"shuffled:SEED\" in a setting");
}

static int get_setting(struct parse *parse, const struct suite_variant *variant, struct err *err)
{
    struct suite *suite = parse->suite;
    struct suite_setting *setting = &suite->settings[suite->setting_count++];
    const char *name = json_string_value(json_object_get(variant->map, "name"));
    const json_t *model = json_object_get(variant->map, "model");
    setting->entry = variant->entry;
    setting->shared = json_incref(variant->shared);
    if (find_setting(suite, name) >= 0)
        return err_set(err, ERR_INPUT, "\"settings\": two settings have the name '%s'; rename one", name);
    if (model && (!json_is_string(model) || (setting->model = find_model(suite, json_string_value(model))) < 0))
        return err_set(err, ERR_INPUT, "setting '%s': \"model\": must be one of the names in \"models\"", name);
    if (!(setting->name = mem_string(name, err)))
        return -1;
    if (keys_int(variant->map, "threads", 0, 1, 4096, &setting->threads, err) ||
        keys_int(variant->map, "parallel", 1, 1, SUITE_PARALLEL_MAX, &setting->parallel, err) ||
        get_machine_text(variant->map, "device", &setting->device, err) ||
        get_machine_text(variant->map, "isa", &setting->isa, err) || get_walk(variant->map, setting, err) ||
        merge_options(parse, variant->map, setting, err))
        return err_at(err, "setting '%s'", name);
    return 0;
}

bool suite_plain(const struct suite_setting *setting)
{
    const struct decode_settings *s = &setting->settings;
    const bool drafts = s->draft.count ? strcmp(s->draft.items[0], "none") != 0 : s->force_accept || s->tuned;
    return (!drafts || !s->draft_length) && !s->budget;
}

/* Returns the first setting that can be the reference of this one, -1: none. */
static int find_reference(const struct suite *suite, const struct suite_setting *setting)
{
    for (int i = 0; i < suite->setting_count; i++) {
        const struct suite_setting *other = &suite->settings[i];
        bool meant = suite->reference >= 0 ? other->entry == suite->reference
                                           : other->model == setting->model && suite_plain(other);
        if (meant && json_equal(other->shared, setting->shared))
            return i;
    }
    return -1;
}

static int find_named_reference(struct parse *parse, const json_t *list, struct err *err)
{
    parse->suite->reference = -1;
    for (size_t i = 0; parse->reference && i < json_array_size(list); i++)
        if (!strcmp(json_string_value(json_object_get(json_array_get(list, i), "name")), parse->reference))
            parse->suite->reference = (int)i;
    return parse->reference && parse->suite->reference < 0 ? wrong(err, "reference", "must be the name of a setting") : 0;
}

static int get_settings(struct parse *parse, struct err *err)
{
    struct suite *suite = parse->suite;
    const json_t *list = json_object_get(parse->root, "settings");
    struct suite_variants variants = {0};
    int rc = -1;
    if (suite_variants_make(&variants, list, json_object_get(parse->root, "vary"), SUITE_SETTINGS_MAX, err) ||
        !(suite->settings = mem_alloc(variants.count, sizeof *suite->settings, err)))
        goto done;
    for (size_t i = 0; i < variants.count; i++)
        if (get_setting(parse, &variants.items[i], err))
            goto done;
    if (find_named_reference(parse, list, err))
        goto done;
    for (int i = 0; i < suite->setting_count; i++)
        suite->settings[i].reference = find_reference(suite, &suite->settings[i]);
    rc = 0;
done:
    suite_variants_free(&variants);
    return rc;
}

static int get_grades(struct parse *parse, struct err *err)
{
    struct suite *suite = parse->suite;
    json_t *map = json_object_get(parse->root, "grade"), *value;
    const char *task;
    if (!map)
        return 0;
    if (!json_is_object(map) && !json_is_string(map))
        return wrong(err, "grade", "must be a JSON object of tasks and rules, or one rule for all tasks");
    if (!(suite->grades = mem_alloc(json_object_size(map) + 1, sizeof *suite->grades, err)))
        return -1;
    if (json_is_string(map))
        return get_word(map, "grade", grade_rule_names, &suite->grades[suite->grade_count++].rule, err);
    json_object_foreach(map, task, value) {
        struct suite_grade *grade = &suite->grades[suite->grade_count++];
        if (!(grade->task = mem_string(task, err)) || get_word(value, task, grade_rule_names, &grade->rule, err))
            return -1;
    }
    return 0;
}

static int get_figure(const json_t *value, int *out, struct err *err)
{
    struct nearest nearest = {.word = json_is_string(value) ? json_string_value(value) : ""};
    if (!json_is_string(value))
        return wrong(err, "figure", "must be the name of a figure of the report");
    for (int i = 0; summary_columns[i].key; i++) {
        if (!strcmp(summary_columns[i].key, nearest.word)) {
            *out = i;
            return 0;
        }
        nearest_offer(&nearest, summary_columns[i].key);
    }
    return nearest.best ? err_set(err, ERR_INPUT, "\"figure\": '%s' is not a figure of the report; did you mean %s?",
                                  nearest.word, nearest.best)
                        : err_set(err, ERR_INPUT, "\"figure\": '%s' is not a figure of the report; `moe-bench report --csv` "
                                  "lists the figures",
                                  nearest.word);
}

static int get_bound(const json_t *map, const char *key, double otherwise, double *out, struct err *err)
{
    const json_t *value = json_object_get(map, key);
    if (value && !json_is_number(value))
        return wrong(err, key, "must be a number");
    *out = value ? json_number_value(value) : otherwise;
    return 0;
}

static int get_gate(struct parse *parse, const json_t *map, struct suite_gate *gate, struct err *err)
{
    static const char *const keys[] = {"setting", "task", "figure", "least", "most", NULL};
    const char *setting = json_string_value(json_object_get(map, "setting"));
    const json_t *task = json_object_get(map, "task");
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "must be a JSON object");
    if (keys_known(map, keys, err) || get_figure(json_object_get(map, "figure"), &gate->figure, err) ||
        get_bound(map, "least", -INFINITY, &gate->min, err) || get_bound(map, "most", INFINITY, &gate->max, err))
        return -1;
    if (isinf(gate->min) && isinf(gate->max))
        return err_set(err, ERR_INPUT, "has no limit; add \"least\" or \"most\"");
    if (!setting || find_setting(parse->suite, setting) < 0)
        return wrong(err, "setting", "must be the name of one of the suite's settings");
    if (task && !json_is_string(task))
        return wrong(err, "task", "must be the name of a task");
    return !(gate->setting = mem_string(setting, err)) || (task && !(gate->task = mem_string(json_string_value(task), err)))
               ? -1 : 0;
}

/* Reads the gates. Must be called after the settings, which gates name. */
static int get_gates(struct parse *parse, struct err *err)
{
    struct suite *suite = parse->suite;
    const json_t *list = json_object_get(parse->root, "gate");
    if (!list)
        return 0;
    if (!json_is_array(list))
        return wrong(err, "gate", "must be a list of maps");
    if (!(suite->gates = mem_alloc(json_array_size(list), sizeof *suite->gates, err)))
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (get_gate(parse, json_array_get(list, i), &suite->gates[suite->gate_count++], err))
            return err_at(err, "\"gate\": %zu", i + 1);
    return 0;
}

static int get_limits(struct parse *parse, struct err *err)
{
    static const char *const keys[] = {"prompts", "prompts-per-task", "max-tokens", NULL};
    struct suite *suite = parse->suite;
    const json_t *map = json_object_get(parse->root, "limits");
    if (!map)
        return 0;
    if (!json_is_object(map))
        return wrong(err, "limits", "must be a JSON object");
    if (keys_known(map, keys, err) || keys_int(map, keys[0], 0, 1, INT_MAX, &suite->limit_prompts, err) ||
        keys_int(map, keys[1], 0, 1, INT_MAX, &suite->limit_task_prompts, err) ||
        keys_int(map, keys[2], 0, 1, 1 << 24, &suite->limit_tokens, err))
        return err_at(err, "\"limits\"");
    return 0;
}

static int get_how(struct parse *parse, struct err *err)
{
    struct suite *suite = parse->suite;
    const json_t *order = json_object_get(parse->root, "order"), *chat = json_object_get(parse->root, "chat");
    const json_t *field = json_object_get(parse->root, "field"), *reference = json_object_get(parse->root, "reference");
    const json_t *seconds = json_object_get(parse->root, "measure-seconds"), *draws = json_object_get(parse->root, "draws");
    const json_t *source = json_object_get(parse->root, "chat-template");
    if (keys_int(parse->root, "repetitions", 1, 1, 10000, &suite->repetitions, err) ||
        keys_int(parse->root, "warm-up", 1, 0, 1000, &suite->warm_up, err) ||
        (order && get_word(order, "order", order_words, &suite->order, err)) ||
        (draws && get_word(draws, "draws", suite_draw_words, &suite->draws, err)))
        return -1;
    if (chat && !json_is_boolean(chat))
        return wrong(err, "chat", "must be true or false");
    if (field && !json_is_string(field))
        return wrong(err, "field", "must be the name of a field");
    if (source && !json_is_string(source))
        return wrong(err, "chat-template", "must be the name of a file");
    if (reference && !json_is_string(reference))
        return wrong(err, "reference", "must be the name of a setting");
    if (seconds && (!json_is_number(seconds) || json_number_value(seconds) < 0 || json_number_value(seconds) > 600))
        return wrong(err, "measure-seconds", "must be a number from 0 to 600");
    suite->measure_seconds = seconds ? json_number_value(seconds) : 1;
    suite->chat = json_is_true(chat);
    parse->reference = json_string_value(reference);
    return (field && !(suite->field = mem_string(json_string_value(field), err))) ||
           (source && !(suite->chat_template = resolved(parse, json_string_value(source), err))) ? -1 : 0;
}

static int parse_suite(struct parse *parse, struct err *err)
{
    static const char *const keys[] = {"model", "models", "prompts", "settings", "options", "reference", "repetitions", "order",
                                       "warm-up", "limits", "tasks", "grade", "gate", "draws", "chat", "field",
                                       "chat-template", "measure-seconds", "vary", NULL};
    struct suite *suite = parse->suite;
    if (!json_is_object(parse->root))
        return err_set(err, ERR_INPUT, "expected a JSON object: {\"model\": ..., \"prompts\": ..., \"settings\": [...]}");
    if (keys_known(parse->root, keys, err) || get_how(parse, err) || get_models(parse, err) ||
        get_texts(parse, "prompts", true, &suite->prompts, &suite->prompt_count, err) ||
        get_texts(parse, "tasks", false, &suite->tasks, &suite->task_count, err) || get_limits(parse, err) ||
        get_grades(parse, err) || get_settings(parse, err) || get_gates(parse, err))
        return -1;
    return suite->prompt_count ? 0 : wrong(err, "prompts", "must name at least one file");
}

/* Returns the folder of a path: "a/b/" for "a/b/suite.json". */
static char *folder_of(const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_copy(path, (size_t)(slash - path) + 1, err) : mem_string("", err);
}

static int make_suite(struct suite **out, const json_t *root, const char *folder, struct err *err)
{
    struct suite *suite = mem_alloc(1, sizeof *suite, err);
    if (!suite)
        return -1;
    struct parse parse = {.suite = suite, .folder = folder, .root = root};
    if (parse_suite(&parse, err)) {
        suite_free(&suite);
        return -1;
    }
    *out = suite;
    return 0;
}

int suite_from_json(struct suite **out, const json_t *root, struct err *err) { return make_suite(out, root, "", err); }

/* Fails with a remedy if the file is of another kind, not a suite. */
static int check_kind(const char *path, struct err *err)
{
    char first[sizeof MODEL_MAGIC + FRAME_GUARD_BYTES] = "";
    size_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd >= 0 && !fstat(fd, &status) && S_ISREG(status.st_mode))
        (void)!file_read_some(fd, path, first, sizeof first, &got, NULL);
    if (fd >= 0)
        close(fd);
    if (got >= sizeof MODEL_MAGIC - 1 && !memcmp(first, MODEL_MAGIC, sizeof MODEL_MAGIC - 1))
        return err_set(err, ERR_INPUT, "%s: is a model file, not a suite; to run without a suite: moe-bench run -m %s PROMPTS",
                       path, path);
    if (got >= FRAME_GUARD_BYTES && !memcmp(first, FRAME_GUARD, FRAME_GUARD_BYTES))
        return err_set(err, ERR_INPUT, "%s: is a stream, not a suite (a JSON file that names models, prompts and settings); "
                       "to show the stream: moe-bench report %s", path, path);
    if (text_ends(path, ".jsonl") || text_ends(path, ".txt"))
        return err_set(err, ERR_INPUT, "%s: is a file of prompts, not a suite; to run without a suite: moe-bench run -m "
                       "MODEL.moe %s", path, path);
    return 0;
}

int suite_refuse(const char *path, struct err *err)
{
    struct stat status;
    if (!text_ends(path, ".json") || stat(path, &status) || !S_ISREG(status.st_mode))
        return 0;
    json_t *root = json_file(path, SUITE_LIMIT, "a suite", NULL);
    const bool suite = json_is_object(root) && json_object_get(root, "settings");
    json_decref(root);
    return suite ? err_set(err, ERR_INPUT, "%s: is a suite, not a file of prompts; to run the suite, leave -m out: moe-bench "
                           "run %s",
                           path, path) : 0;
}

int suite_read(struct suite **out, const char *path, struct err *err)
{
    if (strcmp(path, "-") && check_kind(path, err))
        return -1;
    json_t *root = json_file(path, SUITE_LIMIT, "one JSON object, a suite", err);
    char *folder = root ? folder_of(path, err) : NULL;
    int rc = folder ? make_suite(out, root, folder, err) : -1;
    if (rc && folder)
        err_at(err, "%s", path);
    json_decref(root);
    mem_free(&folder);
    return rc;
}

static void free_texts(char ***texts, int count)
{
    for (int i = 0; i < count; i++)
        mem_free(&(*texts)[i]);
    mem_free(texts);
}

void suite_free(struct suite **suite)
{
    struct suite *old = *suite;
    if (!old)
        return;
    for (int i = 0; i < old->model_count; i++) {
        mem_free(&old->models[i].name);
        mem_free(&old->models[i].path);
    }
    for (int i = 0; i < old->setting_count; i++) {
        mem_free(&old->settings[i].name);
        mem_free(&old->settings[i].device);
        mem_free(&old->settings[i].isa);
        json_decref(old->settings[i].options);
        decode_settings_free(&old->settings[i].store);
        json_decref(old->settings[i].shared);
    }
    for (int i = 0; i < old->grade_count; i++)
        mem_free(&old->grades[i].task);
    for (int i = 0; i < old->gate_count; i++) {
        mem_free(&old->gates[i].setting);
        mem_free(&old->gates[i].task);
    }
    mem_free(&old->models);
    mem_free(&old->settings);
    mem_free(&old->grades);
    mem_free(&old->gates);
    mem_free(&old->field);
    mem_free(&old->chat_template);
    free_texts(&old->prompts, old->prompt_count);
    free_texts(&old->tasks, old->task_count);
    mem_free(suite);
}

int suite_grade_rule(const struct suite *suite, const char *task, const char *expected)
{
    for (int i = 0; i < suite->grade_count; i++)
        if (!suite->grades[i].task || !strcmp(suite->grades[i].task, task ? task : ""))
            return suite->grades[i].rule;
    return (int)grade_rule_of(task, expected);
}

void suite_turn(const struct suite *suite, int prompt, int repeat, int *order)
{
    int count = suite->setting_count;
    for (int i = 0; i < count; i++)
        order[i] = suite->order == SUITE_INTERLEAVED ? (int)(((int64_t)prompt + repeat + i) % count) : i;
    for (int i = count - 1; suite->order == SUITE_RANDOM && i > 0; i--) {
        struct philox random = philox((struct philox){{(uint32_t)i, (uint32_t)prompt, (uint32_t)repeat, 0}}, 0);
        int other = (int)((uint64_t)random.word[0] * ((uint64_t)i + 1) >> 32), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}
