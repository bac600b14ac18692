#include "common/session/settings.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/cli/command.h"
#include "common/cli/nearest.h"

const char *const budget_mode_words[] = {[BUDGET_TRUNCATE] = "truncate", [BUDGET_SUBSTITUTE] = "substitute", NULL};

const char *const suite_setting_keys[] = {"name", "model", "threads", "device", "isa", "order", "parallel", NULL};

struct suite_args { struct decode_settings settings; };

const struct opt decode_settings_options[] = {DECODE_OPTIONS(struct suite_args, settings), OPT_END};
static const struct subcommand suite_subcommand = {.options = decode_settings_options, .args_bytes = sizeof(struct suite_args)};

/* Returns the part of an option of the table, which the title before it has. */
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

/* The words that the map would be on a command line, and the list of them as options keep it. */
struct decode_settings_store {
    char **word;
    size_t words, room;
    struct suite_args args;
};

static int add_word(struct decode_settings_store *store, const char *name, const char *value, struct err *err)
{
    struct text text = {0};
    int rc = -1;
    if (mem_grow(&store->word, &store->room, store->words + 1, sizeof *store->word, err) ||
        text_printf(&text, err, value ? "--%s=%s" : "--%s", name, value))
        goto done;
    store->word[store->words] = mem_string(text.data, err);
    if (!store->word[store->words])
        goto done;
    store->words++;
    rc = 0;
done:
    text_free(&text);
    return rc;
}

static int add_value(struct decode_settings_store *store, const char *name, const json_t *value, struct err *err)
{
    char number[64];
    size_t used;
    if (json_is_string(value)) {
        if (strlen(json_string_value(value)) != json_string_length(value))
            return err_set(err, ERR_INPUT, "a text contains a NUL byte");
        return add_word(store, name, json_string_value(value), err);
    }
    if (!json_is_number(value))
        return err_set(err, ERR_INPUT, "expected a number, a text, a list of texts, or true or false");
    used = json_dumpb(value, number, sizeof number - 1, JSON_ENCODE_ANY);
    if (used >= sizeof number)
        return err_set(err, ERR_INPUT, "a number has too many digits");
    number[used] = '\0';
    return add_word(store, name, number, err);
}

static int unknown_key(const char *name, struct err *err)
{
    struct nearest nearest = {.word = name};
    for (const struct opt *option = decode_settings_options; option->kind; option++)
        if (option->kind != OPT_KIND_GROUP)
            nearest_offer(&nearest, option->name);
    for (const char *const *key = suite_setting_keys; *key; key++)
        nearest_offer(&nearest, *key);
    if (nearest.best)
        return err_set(err, ERR_INPUT, "settings have no option \"%s\"; did you mean \"%s\"?", name, nearest.best);
    return err_set(err, ERR_INPUT, "settings have no option \"%s\"; moe-bench(1) lists them", name);
}

static int add_words(struct decode_settings_store *store, const json_t *map, struct err *err)
{
    const char *name;
    json_t *value, *item;
    size_t at;
    json_object_foreach((json_t *)(uintptr_t)map, name, value) {
        const struct opt *option = opt_find(&suite_subcommand, name, strlen(name));
        if (!option)
            return unknown_key(name, err);
        if (option->kind == OPT_KIND_FLAG && json_is_boolean(value)) {
            if (json_is_true(value) && add_word(store, name, NULL, err))
                return -1;
        } else if (option->kind == OPT_KIND_STRINGS && json_is_array(value)) {
            json_array_foreach(value, at, item)
                if (add_value(store, name, item, err))
                    return err_at(err, "%s", name);
        } else if (add_value(store, name, value, err)) {
            return err_at(err, "%s", name);
        }
    }
    return 0;
}

int decode_settings_from_json(struct decode_settings *out, struct decode_settings_store **store, const json_t *map,
                              struct err *err)
{
    const struct suite_args defaults = {.settings = DECODE_DEFAULTS};
    struct console console = {.program = "suite"};
    struct decode_settings_store *made;
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "expected a JSON object of option names and values");
    made = mem_alloc(1, sizeof *made, err);
    if (!made)
        return -1;
    made->args = defaults;
    if (add_words(made, map, err) ||
        opt_parse(&suite_subcommand, (int)made->words, made->word, &made->args, &console, err)) {
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
        for (size_t i = 0; i < (*store)->words; i++)
            mem_free(&(*store)->word[i]);
        mem_free(&(*store)->word);
    }
    mem_free(store);
}
