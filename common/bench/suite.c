#include "common/bench/suite.h"

#include <limits.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/cli/nearest.h"
#include "common/report/grade.h"
#include "kernels/plain/philox.h"

static const char *const order_words[] = {"interleaved", "random", "blocked", NULL};

/* The suite while it is read: where errors are, and where relative names begin. */
struct parse {
    struct suite *suite;
    const char *folder;         /* with its slash; "": none */
    const json_t *root;
    const char *reference;      /* NULL: not given */
};

static int wrong(struct err *err, const char *key, const char *what)
{
    return err_set(err, ERR_INPUT, "\"%s\": %s", key, what);
}

static int known_keys(const json_t *object, const char *const *keys, const char *place, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        int i = 0;
        struct nearest nearest = {.word = key};
        for (; keys[i] && strcmp(keys[i], key); i++)
            nearest_offer(&nearest, keys[i]);
        if (keys[i])
            continue;
        err_set(err, ERR_INPUT, "\"%s\" is not known here%s%s%s", key, nearest.best ? "; did you mean \"" : "",
                nearest.best ? nearest.best : "", nearest.best ? "\"?" : "");
        return place ? err_at(err, "%s", place) : -1;
    }
    return 0;
}

static int get_int(const json_t *object, const char *key, int otherwise, int least, int most, int *out, struct err *err)
{
    const json_t *value = json_object_get(object, key);
    *out = otherwise;
    if (!value)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most)
        return err_set(err, ERR_INPUT, "\"%s\": must be a whole number from %d to %d", key, least, most);
    *out = (int)json_integer_value(value);
    return 0;
}

/* A word that stands for one of `words`. */
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
    return err_set(err, ERR_INPUT, "\"%s\": must be a word such as \"%s\"", key, nearest.best ? nearest.best : words[0]);
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
        return wrong(err, one ? "model" : "models", one ? "must be the name of a file" : "must be a map of names to files");
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

/* A text or an array of texts; as file names when `files`. */
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

/* The options of a setting: the suite's common ones, those of the setting above them, and the rank file resolved. */
static int merge_options(struct parse *parse, const json_t *map, struct suite_setting *setting, struct err *err)
{
    json_t *common = json_object_get(parse->root, "options");
    if (common && !json_is_object(common))
        return wrong(err, "options", "must be a map of options");
    if (!(setting->options = common ? json_copy(common) : json_object()) || json_object_update(setting->options, (json_t *)map))
        return err_memory(err);
    json_object_del(setting->options, "name");
    json_object_del(setting->options, "model");
    const char *rank = json_string_value(json_object_get(setting->options, "rank"));
    if (!rank || !strcmp(rank, "router"))
        return 0;
    char *path = resolved(parse, rank, err);
    if (!path)
        return -1;
    int rc = json_object_set_new(setting->options, "rank", json_string(path)) ? err_memory(err) : 0;
    mem_free(&path);
    return rc;
}

static int get_setting(struct parse *parse, size_t number, const json_t *map, struct err *err)
{
    struct suite *suite = parse->suite;
    struct suite_setting *setting = &suite->settings[number];
    const char *name = json_string_value(json_object_get(map, "name"));
    const json_t *model = json_object_get(map, "model");
    suite->setting_count++;
    if (!json_is_object(map) || !name || !*name)
        return err_set(err, ERR_INPUT, "\"settings\": number %zu must be a map with a \"name\"", number + 1);
    if (find_setting(suite, name) >= 0)
        return err_set(err, ERR_INPUT, "\"settings\": there are two of the name '%s'", name);
    if (model && (!json_is_string(model) || (setting->model = find_model(suite, json_string_value(model))) < 0))
        return err_set(err, ERR_INPUT, "setting '%s': \"model\": must be one of the names in \"models\"", name);
    if (!(setting->name = mem_string(name, err)) || merge_options(parse, map, setting, err))
        return -1;
    return 0;
}

static bool plain(const struct suite_setting *setting)
{
    const char *draft = json_string_value(json_object_get(setting->options, "draft"));
    return (!draft || !strcmp(draft, "none")) && !json_object_get(setting->options, "budget");
}

static int get_settings(struct parse *parse, struct err *err)
{
    struct suite *suite = parse->suite;
    const json_t *list = json_object_get(parse->root, "settings");
    size_t count = json_array_size(list);
    if (!count || count > SUITE_SETTINGS_MAX)
        return err_set(err, ERR_INPUT, "\"settings\": must be a list of 1 to %d settings", SUITE_SETTINGS_MAX);
    if (!(suite->settings = mem_alloc(count, sizeof *suite->settings, err)))
        return -1;
    for (size_t i = 0; i < count; i++)
        if (get_setting(parse, i, json_array_get(list, i), err))
            return -1;
    int named = parse->reference ? find_setting(suite, parse->reference) : -1;
    if (parse->reference && named < 0)
        return wrong(err, "reference", "must be the name of a setting");
    for (int i = 0; i < suite->setting_count; i++) {
        int reference = named;
        for (int j = suite->setting_count - 1; !parse->reference && j >= 0; j--)
            if (suite->settings[j].model == suite->settings[i].model && plain(&suite->settings[j]))
                reference = j;
        suite->settings[i].reference = reference;
    }
    return 0;
}

static int get_grades(struct parse *parse, struct err *err)
{
    struct suite *suite = parse->suite;
    json_t *map = json_object_get(parse->root, "grade"), *value;
    const char *task;
    if (!map)
        return 0;
    if (!json_is_object(map))
        return wrong(err, "grade", "must be a map of tasks to rules");
    if (!(suite->grades = mem_alloc(json_object_size(map), sizeof *suite->grades, err)))
        return -1;
    json_object_foreach(map, task, value) {
        struct suite_grade *grade = &suite->grades[suite->grade_count++];
        if (!(grade->task = mem_string(task, err)) || get_word(value, task, grade_rule_names, &grade->rule, err))
            return -1;
    }
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
        return wrong(err, "limits", "must be a map");
    if (known_keys(map, keys, "\"limits\"", err) || get_int(map, keys[0], 0, 1, INT_MAX, &suite->limit_prompts, err) ||
        get_int(map, keys[1], 0, 1, INT_MAX, &suite->limit_task_prompts, err) ||
        get_int(map, keys[2], 0, 1, 1 << 24, &suite->limit_tokens, err))
        return -1;
    return 0;
}

static int get_how(struct parse *parse, struct err *err)
{
    struct suite *suite = parse->suite;
    const json_t *order = json_object_get(parse->root, "order"), *chat = json_object_get(parse->root, "chat");
    const json_t *field = json_object_get(parse->root, "field"), *reference = json_object_get(parse->root, "reference");
    const json_t *seconds = json_object_get(parse->root, "measure-seconds");
    if (get_int(parse->root, "repetitions", 1, 1, 10000, &suite->repetitions, err) ||
        get_int(parse->root, "warm-up", 1, 0, 1000, &suite->warm_up, err) ||
        (order && get_word(order, "order", order_words, &suite->order, err)))
        return -1;
    if (chat && !json_is_boolean(chat))
        return wrong(err, "chat", "must be true or false");
    if (field && !json_is_string(field))
        return wrong(err, "field", "must be the name of a field");
    if (reference && !json_is_string(reference))
        return wrong(err, "reference", "must be the name of a setting");
    if (seconds && (!json_is_number(seconds) || json_number_value(seconds) < 0 || json_number_value(seconds) > 600))
        return wrong(err, "measure-seconds", "must be a number from 0 to 600");
    suite->measure_seconds = seconds ? json_number_value(seconds) : 1;
    suite->chat = json_is_true(chat);
    parse->reference = json_string_value(reference);
    return field && !(suite->field = mem_string(json_string_value(field), err)) ? -1 : 0;
}

static int parse_suite(struct parse *parse, struct err *err)
{
    static const char *const keys[] = {"model", "models", "prompts", "settings", "options", "reference", "repetitions", "order",
                                       "warm-up", "limits", "tasks", "grade", "chat", "field", "measure-seconds", NULL};
    struct suite *suite = parse->suite;
    if (!json_is_object(parse->root))
        return err_set(err, ERR_INPUT, "a suite is a map: {\"model\": ..., \"prompts\": ..., \"settings\": [...]}");
    if (known_keys(parse->root, keys, NULL, err) || get_how(parse, err) || get_models(parse, err) ||
        get_texts(parse, "prompts", true, &suite->prompts, &suite->prompt_count, err) ||
        get_texts(parse, "tasks", false, &suite->tasks, &suite->task_count, err) || get_limits(parse, err) ||
        get_grades(parse, err) || get_settings(parse, err))
        return -1;
    return suite->prompt_count ? 0 : wrong(err, "prompts", "must name at least one file");
}

/* "a/b/suite.json" -> "a/b/" */
static char *folder_of(const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_copy(path, (size_t)(slash - path) + 1, err) : mem_string("", err);
}

int suite_read(struct suite **out, const char *path, struct err *err)
{
    struct text text = {0};
    struct suite *suite = NULL;
    json_t *root = NULL;
    json_error_t fault;
    char *folder = NULL;
    int rc = -1;
    if (file_read(&text, path, (size_t)16 << 20, err))
        return -1;
    if (!(root = json_loadb(text.data ? text.data : "", text.length, JSON_REJECT_DUPLICATES, &fault))) {
        err_set(err, ERR_INPUT, "%s:%d: %s", path, fault.line, fault.text);
        goto done;
    }
    if (!(suite = mem_alloc(1, sizeof *suite, err)) || !(folder = folder_of(path, err)))
        goto done;
    struct parse parse = {.suite = suite, .folder = folder, .root = root};
    if (parse_suite(&parse, err)) {
        err_at(err, "%s", path);
        goto done;
    }
    *out = suite;
    suite = NULL;
    rc = 0;
done:
    suite_free(&suite);
    json_decref(root);
    mem_free(&folder);
    text_free(&text);
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
        json_decref(old->settings[i].options);
    }
    for (int i = 0; i < old->grade_count; i++)
        mem_free(&old->grades[i].task);
    mem_free(&old->models);
    mem_free(&old->settings);
    mem_free(&old->grades);
    mem_free(&old->field);
    free_texts(&old->prompts, old->prompt_count);
    free_texts(&old->tasks, old->task_count);
    mem_free(suite);
}

int suite_grade_rule(const struct suite *suite, const char *task)
{
    for (int i = 0; task && i < suite->grade_count; i++)
        if (!strcmp(suite->grades[i].task, task))
            return suite->grades[i].rule;
    return grade_rule_of_task(task);
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
