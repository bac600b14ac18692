#include "common/bench/suite_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/base/utf8.h"
#include "common/stream/bench.h"

struct made { struct suite_options options; };

static const struct opt table[] = {SUITE_OPTIONS(struct made, options), OPT_END};
static const struct suite_options defaults = SUITE_OPTIONS_DEFAULTS;

enum { DRAFTERS = 8, AXES = DRAFTERS + sizeof table / sizeof *table };

static bool is_list(const struct opt *option) { return option->kind == OPT_KIND_STRING && text_ends(option->argument, ",..."); }

/* Returns the next given option after `option`, NULL: the first; NULL if there is none. All but the models make a suite. */
static const struct opt *next_given(const struct suite_options *options, const struct opt *option)
{
    for (option = option ? option + 1 : table; option->kind; option++)
        if (option->kind != OPT_KIND_GROUP && strcmp(option->name, "model") && !opt_equal(option, options, &defaults))
            return option;
    return NULL;
}

const char *suite_options_given(const struct suite_options *options)
{
    const struct opt *option = next_given(options, NULL);
    return option ? option->name : NULL;
}

/* Returns whether the text after a comma continues the value before it: key=value does, KIND:key=value does not. */
static bool continues(const char *at)
{
    size_t key = strcspn(at, "=:,\\");
    return key && at[key] == '=';
}

/* Returns the end of the value that begins here. */
static const char *end_of(const char *at)
{
    while (*at && (*at != ',' || continues(at + 1)))
        at += *at == '\\' && at[1] ? 2 : 1;
    return at;
}

/* Returns a JSON integer or real if the text is a number that JSON values keep exactly; else a string, as for large seeds. */
static json_t *value_of(const char *text)
{
    char *end;
    long long whole = strtoll(text, &end, 10);
    char written[32];
    snprintf(written, sizeof written, "%lld", whole);
    if (!strcmp(written, text))
        return json_integer(whole);
    double real = strtod(text, &end);
    bool number = strchr(text, '.') && !*end && strspn(text, "-.0123456789") == strlen(text);
    return number ? json_real(real) : json_string(text);
}

/* Removes backslashes from a file name. In settings of a drafter they stay, and the parser of the spec removes them. */
static void take_backslashes(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++)
        if (*at != '\\' || at[1] != ',')
            *to++ = *at;
    *to = '\0';
}

/* Splits "a,b:c=1,d=2" into a JSON list of values. */
static json_t *split(const char *name, const char *list, struct err *err)
{
    json_t *values = json_array();
    for (const char *at = list, *end; values; at = end + 1) {
        end = end_of(at);
        if (end == at) {
            err_set(err, ERR_INPUT, "--%s %s: a value is missing before or after a comma", name, list);
            break;
        }
        char *value = mem_copy(at, (size_t)(end - at), err);
        if (!value)
            break;
        if (!strcmp(name, "rank"))
            take_backslashes(value);
        int rc = json_array_append_new(values, value_of(value));
        mem_free(&value);
        if (rc) {
            err_memory(err);
            break;
        }
        if (!*end)
            return values;
    }
    json_decref(values);
    return NULL;
}

/* The value lists of one command line: drafters first. Those of SETTING_DRAFT have no effect without drafts; those of
 * SETTING_TEXT change the text even then, so they are common to all settings, or varied by the suite. */
struct axes {
    const char *name[AXES];
    json_t *values[AXES];
    unsigned part[AXES];                /* enum setting_part */
    int count, drafters;
};

static int add_axis(struct axes *axes, const char *name, const char *list, struct err *err)
{
    if (!(axes->values[axes->count] = split(name, list, err)))
        return -1;
    axes->name[axes->count] = name;
    axes->part[axes->count++] = setting_part(name);
    return 0;
}

static int open_axes(struct axes *axes, const struct suite_options *options, struct err *err)
{
    if (options->draft.count > DRAFTERS)
        return err_set(err, ERR_INPUT, "--draft: one setting combines more than %d drafters; give fewer", DRAFTERS);
    for (int i = 0; i < options->draft.count; i++)
        if (add_axis(axes, "draft", options->draft.items[i], err))
            return -1;
    axes->drafters = axes->count;
    for (const struct opt *option = NULL; (option = next_given(options, option));)
        if (is_list(option) &&
            add_axis(axes, option->name, *(const char *const *)((const char *)options + option->offset), err))
            return -1;
    return 0;
}

static int append_value(struct text *text, const json_t *value, struct err *err)
{
    if (json_is_string(value))
        return text_puts(text, json_string_value(value), err);
    return json_is_integer(value) ? text_printf(text, err, "%lld", (long long)json_integer_value(value))
                                  : text_printf(text, err, "%g", json_real_value(value));
}

/* Returns whether a combination drafts nothing: all drafters are "none", or the length is 0. */
static bool drafts_nothing(const struct axes *axes, json_t *const *value)
{
    for (int i = 0; i < axes->count; i++) {
        const char *text = json_string_value(value[i]);
        if ((i < axes->drafters && axes->drafters == 1 && text && !strcmp(text, "none")) ||
            (!strcmp(axes->name[i], "draft-length") && json_is_integer(value[i]) && !json_integer_value(value[i])))
            return true;
    }
    return false;
}

/* Builds a setting's name: drafters, and the options that vary, "ngram + pld, draft-length 4". */
static int name_setting(struct text *name, const struct axes *axes, json_t *const *value, bool nothing, const char *model,
                        struct err *err)
{
    if (model && text_printf(name, err, "%s: ", model))
        return -1;
    size_t begin = name->length;
    for (int i = 0; i < axes->drafters && !nothing; i++)
        if ((i && text_puts(name, " + ", err)) || append_value(name, value[i], err))
            return -1;
    for (int i = axes->drafters; i < axes->count; i++) {
        bool lone = !strcmp(axes->name[i], "budget") && (nothing || !axes->drafters);
        if (axes->part[i] & SETTING_TEXT || (nothing && axes->part[i] == SETTING_DRAFT) ||
            (json_array_size(axes->values[i]) < 2 && !lone))
            continue;
        if (text_printf(name, err, "%s%s ", name->length > begin ? ", " : "", axes->name[i]) ||
            append_value(name, value[i], err))
            return -1;
    }
    return name->length > begin ? 0 : text_puts(name, "none", err);
}

static bool is_known(const json_t *settings, const json_t *setting)
{
    const json_t *other;
    size_t at;
    json_array_foreach(settings, at, other)
        if (json_equal(other, setting))
            return true;
    return false;
}

/* Adds the combination as a setting, unless an equal one exists. */
static int add_setting(json_t *settings, const struct axes *axes, json_t *const *value, const char *model, struct err *err)
{
    bool nothing = drafts_nothing(axes, value);
    struct text name = {0};
    json_t *map = json_object(), *drafters = json_array();
    int rc = !map || !drafters ? err_memory(err) : name_setting(&name, axes, value, nothing, model, err);
    bool failed = !rc && json_object_set_new(map, "name", json_string(name.data));
    failed = failed || (!rc && model && json_object_set_new(map, "model", json_string(model)));
    for (int i = 0; !rc && i < axes->count; i++) {
        if (axes->part[i] & SETTING_TEXT || (nothing && axes->part[i] == SETTING_DRAFT))
            continue;
        failed |= i < axes->drafters ? json_array_append(drafters, value[i]) : json_object_set(map, axes->name[i], value[i]);
    }
    if (!rc && json_array_size(drafters))
        failed |= json_object_set(map, "draft", axes->drafters > 1 ? drafters : json_array_get(drafters, 0));
    if (!rc && !failed && !is_known(settings, map)) {
        if (json_array_size(settings) == BENCH_SETTINGS_MAX)
            rc = err_set(err, ERR_INPUT, "these options make more than %d settings; give fewer values", BENCH_SETTINGS_MAX);
        else
            failed = json_array_append(settings, map);
    }
    json_decref(drafters);
    json_decref(map);
    text_free(&name);
    return rc || failed ? (rc ? -1 : err_memory(err)) : 0;
}

/* Adds every combination, the last list varying fastest; lists of the text belong to the suite's "vary". */
static int add_settings(json_t *settings, const struct axes *axes, const char *model, struct err *err)
{
    size_t at[AXES] = {0};
    for (bool more = true; more;) {
        json_t *value[AXES];
        for (int i = 0; i < axes->count; i++)
            value[i] = json_array_get(axes->values[i], at[i]);
        if (add_setting(settings, axes, value, model, err))
            return -1;
        int turn = axes->count - 1;
        while (turn >= 0 && (axes->part[turn] & SETTING_TEXT || ++at[turn] == json_array_size(axes->values[turn])))
            at[turn--] = 0;
        more = turn >= 0;
    }
    return 0;
}

/* Writes the name of a model: "pocket" for "a/pocket.moe"; models of the same name get their whole paths. */
static int name_model(struct text *out, const struct strings *models, int index, struct err *err)
{
    for (int whole = 0; ; whole++) {
        const char *path = models->items[index], *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
        const char *dot = strrchr(base, '.');
        bool other = false;
        text_clear(out);
        size_t bytes = whole ? strlen(path) : dot && dot > base ? (size_t)(dot - base) : strlen(base);
        if (text_put(out, whole ? path : base, bytes, err))
            return -1;
        for (int i = 0; i < models->count && !whole; i++) {
            const char *its = strrchr(models->items[i], '/');
            its = its ? its + 1 : models->items[i];
            other |= i != index && !strncmp(its, out->data, out->length) && (!its[out->length] || its[out->length] == '.');
        }
        if (!other)
            return 0;
    }
}

static int put_models(json_t *suite, json_t *settings, const struct axes *axes, const struct strings *models, struct err *err)
{
    json_t *map = json_object();
    struct text name = {0};
    int rc = 0;
    if (models->count == 1) {
        json_decref(map);
        return json_object_set_new(suite, "model", json_string(models->items[0])) ? err_memory(err)
                                                                                  : add_settings(settings, axes, NULL, err);
    }
    for (int i = 0; i < models->count && !rc; i++) {
        rc = name_model(&name, models, i, err);
        if (!rc && json_object_get(map, name.data))
            rc = err_set(err, ERR_INPUT, "--model %s: is given twice", models->items[i]);
        else if (!rc && json_object_set_new(map, name.data, json_string(models->items[i])))
            rc = err_memory(err);
        rc = rc || add_settings(settings, axes, name.data, err) ? -1 : 0;
    }
    text_free(&name);
    rc = !rc && json_object_set(suite, "models", map) ? err_memory(err) : rc;
    json_decref(map);
    return rc;
}

/* Adds options common to all settings, the varying options of the text, and how the suite is run. */
static bool put_options(json_t *suite, const struct suite_options *options, const struct axes *axes)
{
    json_t *common = json_object(), *vary = json_object();
    bool failed = !common || !vary;
    for (int i = 0; i < axes->count && !failed; i++)
        if (axes->part[i] & SETTING_TEXT)
            failed = json_array_size(axes->values[i]) > 1
                         ? json_object_set(vary, axes->name[i], axes->values[i])
                         : json_object_set(common, axes->name[i], json_array_get(axes->values[i], 0));
    for (const struct opt *option = NULL; !failed && (option = next_given(options, option));) {
        if (is_list(option) || !strcmp(option->name, "draft"))
            continue;
        json_t *value = opt_json(option, options);
        failed = !strcmp(option->name, "prompts-per-task")
                     ? json_object_set_new(suite, "limits", json_pack("{s:o?}", option->name, value))
                     : json_object_set_new(setting_part(option->name) ? common : suite, option->name, value);
    }
    if (!failed && json_object_size(common))
        failed = json_object_set(suite, "options", common);
    if (!failed && json_object_size(vary))
        failed = json_object_set(suite, "vary", vary);
    json_decref(common);
    json_decref(vary);
    return failed;
}

/* option: NULL for a file of prompts. */
static int check_text(const char *option, const char *text, struct err *err)
{
    const size_t bytes = strlen(text);
    if (utf8_fault(text, bytes) == bytes)
        return 0;
    err_set(err, ERR_INPUT, "'%.200s' is not valid UTF-8, which a suite needs; convert the text, or rename the file", text);
    return option ? err_at(err, "--%s", option) : -1;
}

/* Fails if a text is not UTF-8: a suite is JSON. */
static int check_texts(const struct suite_options *options, const struct strings *prompts, struct err *err)
{
    for (int i = 0; i < prompts->count; i++)
        if (check_text(NULL, prompts->items[i], err))
            return -1;
    for (const struct opt *option = table; option->kind; option++) {
        const void *field = (const char *)options + option->offset;
        const struct strings *list = field;
        const char *text = option->kind == OPT_KIND_STRING ? *(const char *const *)field : NULL;
        if (text && check_text(option->name, text, err))
            return -1;
        for (int i = 0; option->kind == OPT_KIND_STRINGS && i < list->count; i++)
            if (check_text(option->name, list->items[i], err))
                return -1;
    }
    return 0;
}

int suite_options_make(json_t **out, const struct suite_options *options, const struct strings *prompts, struct err *err)
{
    struct axes axes = {0};
    json_t *suite = json_object(), *settings = json_array();
    int rc = check_texts(options, prompts, err) ? -1 : suite && settings ? open_axes(&axes, options, err) : err_memory(err);
    rc = rc || put_models(suite, settings, &axes, &options->models, err) ? -1 : 0;
    if (!rc && (json_object_set_new(suite, "prompts", strings_json(prompts)) || json_object_set(suite, "settings", settings) ||
                put_options(suite, options, &axes)))
        rc = err_memory(err);
    for (int i = 0; i < axes.count; i++)
        json_decref(axes.values[i]);
    json_decref(settings);
    if (rc)
        json_decref(suite);
    else
        *out = suite;
    return rc;
}
