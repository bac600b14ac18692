#include "common/session/settings.h"

#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/cli/command.h"
#include "common/cli/nearest.h"

const char *const budget_mode_words[] = {[BUDGET_TRUNCATE] = "truncate", [BUDGET_SUBSTITUTE] = "substitute", NULL};

const char *const suite_setting_keys[] = {"name", "model", "threads", "device", "isa", "order", "parallel", NULL};

struct suite_args { struct decode_settings settings; };

const struct opt decode_settings_options[] = {DECODE_OPTIONS(struct suite_args, settings), OPT_END};
static const struct subcommand suite_subcommand = {.options = decode_settings_options, .args_bytes = sizeof(struct suite_args)};

/* Returns the part of an option of the table, from the title before the option. */
static unsigned part_of(const struct opt *option)
{
    while (option->kind != OPT_KIND_GROUP)
        option--;
    return (unsigned)option->min;
}

/* Returns the next option of these parts after `option`, NULL: the first; NULL if there is none. */
static const struct opt *next_option(const struct opt *option, unsigned parts)
{
    for (option = option ? option + 1 : decode_settings_options; option->kind; option++)
        if (option->kind != OPT_KIND_GROUP && part_of(option) & parts)
            return option;
    return NULL;
}

unsigned setting_part(const char *name)
{
    for (const struct opt *option = NULL; (option = next_option(option, SETTING_ALL));)
        if (!strcmp(option->name, name))
            return part_of(option);
    return 0;
}

const struct opt *decode_settings_differ(const struct decode_settings *a, const struct decode_settings *b, unsigned parts)
{
    const struct opt *option = next_option(NULL, parts);
    while (option && opt_equal(option, a, b))
        option = next_option(option, parts);
    return option;
}

int decode_settings_json(json_t *out, const struct decode_settings *settings, unsigned parts, struct err *err)
{
    for (const struct opt *option = NULL; (option = next_option(option, parts));)
        if (json_object_set_new(out, option->name, opt_json(option, settings)))
            return err_memory(err);
    return 0;
}

struct decode_settings_store {
    json_t *texts;              /* list of all texts that the settings point to */
    struct suite_args args;
};

/* Returns a value as it would be written on a command line, in a text that the store owns. */
static const char *text_of(struct decode_settings_store *store, const struct opt *option, json_t *value, struct err *err)
{
    json_t *text = NULL;
    if (json_is_string(value)) {
        if (strlen(json_string_value(value)) != json_string_length(value))
            return err_set(err, ERR_INPUT, "a text contains a NUL character; remove it"), NULL;
        text = json_incref(value);
    } else if (option->kind == OPT_KIND_UINT64 && json_is_real(value)) {
        return err_set(err, ERR_INPUT, "expected a whole number; one above 9223372036854775807 must be written in quotes"),
               NULL;
    } else if (json_is_number(value)) {
        char *number = json_text(value, JSON_ENCODE_ANY, err);
        text = number ? json_string(number) : NULL;
        mem_free(&number);
    } else {
        const char *lists = "expected one value, not a list; \"vary\" makes a setting of each value of a list";
        return err_set(err, ERR_INPUT, "%s", option->kind == OPT_KIND_STRINGS ? "expected a text or a list of texts"
                                             : json_is_array(value) ? lists : "expected a number or a text"), NULL;
    }
    return json_array_append_new(store->texts, text) ? err_memory(err), NULL : json_string_value(text);
}

static int unknown_key(const char *name, struct err *err)
{
    struct nearest nearest = {.word = name};
    for (const struct opt *option = decode_settings_options; option->kind; option++)
        if (option->kind != OPT_KIND_GROUP && option->letter && name[0] == option->letter && !name[1])
            nearest.best = option->name;
        else if (option->kind != OPT_KIND_GROUP)
            nearest_offer(&nearest, option->name);
    for (const char *const *key = suite_setting_keys; *key; key++)
        nearest_offer(&nearest, *key);
    if (nearest.best)
        return err_set(err, ERR_INPUT, "a setting cannot have the option \"%s\"; did you mean \"%s\"?", name, nearest.best);
    return err_set(err, ERR_INPUT, "a setting cannot have the option \"%s\"; it can have those of moe-decode for tokens, "
                   "drafts and budgets, and others apply to the whole run: see moe-bench(1)", name);
}

static int set_option(struct decode_settings_store *store, const char *name, json_t *value, struct err *err)
{
    const struct opt *option = decode_settings_options;
    while (option->kind && (option->kind == OPT_KIND_GROUP || strcmp(option->name, name) != 0))
        option++;
    if (!option->kind)
        return unknown_key(name, err);
    const bool list = option->kind == OPT_KIND_STRINGS && json_is_array(value);
    if (option->kind == OPT_KIND_FLAG && !json_is_boolean(value))
        return err_set(err, ERR_INPUT, "--%s: expected true or false, without quotes", name);
    if (option->kind == OPT_KIND_FLAG)
        return json_is_true(value) ? opt_set(option, &store->args, NULL, 1, err) : 0;
    for (size_t i = 0, count = list ? json_array_size(value) : 1; i < count; i++) {
        const char *text = text_of(store, option, list ? json_array_get(value, i) : value, err);
        if (!text || opt_set(option, &store->args, text, (int)count, err))
            return err_at(err, "--%s", name);
    }
    return 0;
}

int decode_settings_from_json(struct decode_settings *out, struct decode_settings_store **store, const json_t *map,
                              struct err *err)
{
    const struct suite_args defaults = {.settings = DECODE_DEFAULTS};
    struct decode_settings_store *made;
    const char *name;
    json_t *value;
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "expected a JSON object of option names and values");
    if (!(made = mem_alloc(1, sizeof *made, err)))
        return -1;
    *made = (struct decode_settings_store){json_array(), defaults};
    json_object_foreach((json_t *)(uintptr_t)map, name, value)
        if (set_option(made, name, value, err)) {
            decode_settings_free(&made);
            return -1;
        }
    *out = made->args.settings;
    *store = made;
    return 0;
}

static int put_note(struct text *notes, const char *setting, const char *option, const char *why, struct err *err)
{
    return text_printf(notes, err, "%s%s%s--%s: has no effect: %s\n", setting ? "setting '" : "", setting ? setting : "",
                       setting ? "': " : "", option, why);
}

int decode_settings_note(const struct decode_settings *settings, const char *name, struct text *notes, struct err *err)
{
    const struct decode_settings *s = settings, defaults = DECODE_DEFAULTS;
    bool none = s->draft.count > 0 && !s->force_accept && !name;
    for (int i = 0; i < s->draft.count; i++)
        none &= !strcmp(s->draft.items[i], "none");
    const struct { const char *option; bool given; } drafting[] = {
        {"draft-length", s->draft_length > 0 || s->draft_length == DRAFT_LENGTH_AUTO}, {"tree", s->tree},
        {"policy", s->policy}, {"accept", s->accept}, {"overlap", s->overlap}};
    for (size_t i = 0; none && i < sizeof drafting / sizeof *drafting; i++)
        if (drafting[i].given && put_note(notes, name, drafting[i].option, "nothing is drafted", err))
            return -1;
    for (const struct opt *option = NULL; !s->filter.temperature && (option = next_option(option, SETTING_SAMPLING));)
        if (!opt_equal(option, s, &defaults) &&
            put_note(notes, name, option->name, "--temperature 0 chooses the most likely token", err))
            return -1;
    return 0;
}

int decode_settings_print(const struct decode_settings *settings, const struct console *console, struct err *err)
{
    struct text notes = {0};
    int rc = decode_settings_note(settings, NULL, &notes, err);
    console_notes(console, &notes);
    text_free(&notes);
    return rc;
}

int decode_settings_inputs(const struct decode_settings_store *store, opt_visitor *visit, const void *context, struct err *err)
{
    return opt_inputs(&suite_subcommand, &store->args, visit, context, err);
}

void decode_settings_free(struct decode_settings_store **store)
{
    if (*store) {
        opt_free(&suite_subcommand, &(*store)->args);
        json_decref((*store)->texts);
    }
    mem_free(store);
}
