#include "common/cli/opt.h"

#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/cli/command.h"
#include "common/cli/foreign.h"
#include "common/cli/nearest.h"
#include "common/cli/number.h"

static const char *const progress_modes[] = {"auto", "always", "never", NULL};

const struct opt console_options[] = {
    OPT_FLAG('q', "quiet", struct console, quiet, "print no notes or progress"),
    OPT_FLAG('v', "verbose", struct console, verbose, "print details of the run"),
    OPT_CHOICE(0, "progress", struct console, progress, progress_modes, "show a progress bar on standard error"),
    {OPT_KIND_HELP, 'h', "help", NULL, "print this help", OPT_FIELD(int, struct console, help), 0, 0, NULL, NULL},
    OPT_FLAG(0, "version", struct console, version, "print the version"),
    OPT_END
};

bool console_has(const struct subcommand *subcommand, const struct opt *option)
{
    const char letter = option->letter;
    unsigned needs = letter == 'q' ? CONSOLE_QUIET : letter == 'v' ? CONSOLE_VERBOSE :
                     option->kind == OPT_KIND_CHOICE ? CONSOLE_PROGRESS : 0;
    return (subcommand->console & needs) == needs;
}

static const struct opt none[] = {OPT_END};

static const struct opt *own_options(const struct subcommand *subcommand)
{
    return subcommand->options ? subcommand->options : none;
}

static bool is_console(const struct opt *option)
{
    return option >= console_options && option < console_options + sizeof console_options / sizeof *console_options;
}

const struct opt *opt_find(const struct subcommand *subcommand, const char *name, size_t length)
{
    for (const struct opt *option = own_options(subcommand); option->kind; option++)
        if (option->kind != OPT_KIND_GROUP && strncmp(option->name, name, length) == 0 && !option->name[length])
            return option;
    for (const struct opt *option = console_options; option->kind; option++)
        if (console_has(subcommand, option) && strncmp(option->name, name, length) == 0 && !option->name[length])
            return option;
    return NULL;
}

const struct opt *opt_find_letter(const struct subcommand *subcommand, char letter)
{
    for (const struct opt *option = own_options(subcommand); option->kind; option++)
        if (option->letter == letter)
            return option;
    for (const struct opt *option = console_options; option->kind; option++)
        if (console_has(subcommand, option) && option->letter == letter)
            return option;
    return NULL;
}

/* State of parsing one command line. */
struct walk {
    const struct subcommand *subcommand;
    int argc, at;
    char **argv;
    void *args;
    struct console *console;
    const char **operands;
    int operand_count;
    bool *given;                        /* [options of the subcommand] given, as the rules between options count it */
    bool *seen;                         /* [options of the subcommand] occurs on the command line */
    const char *input, *output;         /* the options or operands given as "-" */
};

/* Claims standard input or output: standard input can be read once, and two writers on standard output would mix. */
static int claim_standard(const char **owner, const char *what, const char *name, const char *value, struct err *err)
{
    if (strcmp(value, "-") != 0)
        return 0;
    if (*owner && *owner != name)
        return err_set(err, ERR_INPUT, "standard %s is named twice, by %s and by %s; give one of them a file", what, *owner,
                       name);
    if (*owner && *owner == name && strcmp(what, "input") == 0)
        return err_set(err, ERR_INPUT, "standard input is named twice, but can be read only once; name a file for one of the "
                       "two");
    *owner = name;
    return 0;
}

static int add_string(struct walk *walk, struct strings *strings, const char *value, struct err *err)
{
    if (!strings->items) {
        strings->items = mem_alloc((size_t)walk->argc, sizeof *strings->items, err);
        if (!strings->items)
            return -1;
    }
    strings->items[strings->count++] = value;
    return 0;
}

/* Stores the value of one option; the caller adds the option to an error. */
static int store(struct walk *walk, const struct opt *option, const char *value, struct err *err)
{
    char *field = (is_console(option) ? (char *)walk->console : (char *)walk->args) + option->offset;
    int whole;
    switch (option->kind) {
    case OPT_KIND_FLAG:
        *(bool *)field = true;
        return 0;
    case OPT_KIND_HELP:
        if (value && strcmp(value, "spec") != 0)
            return err_set(err, ERR_INPUT, "takes no value");
        *(int *)field = value ? 2 : 1;
        return 0;
    case OPT_KIND_COUNT_AUTO:
        if (strcmp(value, "auto") == 0) {
            *(int *)field = OPT_AUTO;
            return 0;
        }
        return number_int(value, (int)option->min, (int)option->max, (int *)field, err);
    case OPT_KIND_COUNT:
        return number_int(value, (int)option->min, (int)option->max, (int *)field, err);
    case OPT_KIND_SIZE:
        return number_size(value, (uint64_t)option->min, option->max < 0x1p64 ? (uint64_t)option->max : UINT64_MAX,
                           (uint64_t *)field, err);
    case OPT_KIND_UINT64:
        return number_uint64(value, (uint64_t *)field, err);
    case OPT_KIND_FLOAT:
        return number_float(value, option->min, option->max, (double *)field, err);
    case OPT_KIND_CHOICE:
        if (number_choice(value, option->choices, &whole, err))
            return -1;
        memcpy(field, &whole, sizeof whole);                    /* the field may have an enum type */
        return 0;
    case OPT_KIND_STRINGS:
        return add_string(walk, (struct strings *)field, value, err);
    case OPT_KIND_STRING:
    case OPT_KIND_INPUT:
    case OPT_KIND_OUTPUT:
    case OPT_KIND_END:
    case OPT_KIND_GROUP:
        break;
    }
    *(const char **)field = value;
    return 0;
}

static bool takes_value(const struct opt *option) { return option->kind != OPT_KIND_FLAG && option->kind != OPT_KIND_HELP; }

/* Refuses a word with `dashes` dashes, `length` bytes long; the error suggests another program's or the nearest name. */
static int unknown_option(const struct walk *walk, const char *word, size_t length, size_t dashes, struct err *err)
{
    char name[64];
    size_t kept = length - dashes < sizeof name - 1 ? length - dashes : sizeof name - 1;
    memcpy(name, word + dashes, kept);
    name[kept] = '\0';
    struct nearest nearest = {.word = name};
    walk->console->misplaced = true;
    for (const struct opt *option = own_options(walk->subcommand); option->kind; option++)
        if (option->kind != OPT_KIND_GROUP)
            nearest_offer(&nearest, option->name);
    for (const struct opt *option = console_options; option->kind; option++)
        if (console_has(walk->subcommand, option))
            nearest_offer(&nearest, option->name);
    if (foreign_option(walk->subcommand, word, length, err))
        return -1;
    if (nearest.best)
        return err_set(err, ERR_INPUT, "unknown option %.*s%s; did you mean --%s?", (int)dashes, word, name, nearest.best);
    if (dashes == 1 && foreign_option(walk->subcommand, word, 2, err))
        return -1;
    return err_set(err, ERR_INPUT, "unknown option %.*s%s; --help lists the options", (int)dashes, word, name);
}

static size_t count_options(const struct subcommand *subcommand)
{
    size_t count = 0;
    for (const struct opt *option = own_options(subcommand); option->kind; option++)
        count++;
    return count;
}

/* Refuses a second value for an option that keeps one, because either may have been meant. */
static int check_once(const struct walk *walk, const struct opt *option, struct err *err)
{
    if (is_console(option) || option->kind == OPT_KIND_STRINGS || option->kind == OPT_KIND_FLAG)
        return 0;
    bool *seen = &walk->seen[option - own_options(walk->subcommand)];
    if (*seen)
        return err_set(err, ERR_INPUT, "is given twice; leave one of the two out");
    *seen = true;
    return 0;
}

/* Records that an option was given, for the rules between options; the value "none" counts as not given. */
static void note_given(const struct walk *walk, const struct opt *option, const char *value)
{
    if (!is_console(option))
        walk->given[option - own_options(walk->subcommand)] = option->kind != OPT_KIND_CHOICE || strcmp(value, "none") != 0;
}

/* Parses --name, --name=value and --name value. */
static int take_long(struct walk *walk, const char *word, struct err *err)
{
    const char *name = word + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct opt *option = opt_find(walk->subcommand, name, length);
    const char *value = equals ? equals + 1 : NULL;
    if (!option)
        return unknown_option(walk, word, length + 2, 2, err);
    if (value && option->kind == OPT_KIND_FLAG)
        return err_set(err, ERR_INPUT, "--%s: takes no value", option->name);
    if (!value && takes_value(option)) {
        if (walk->at == walk->argc)
            return err_set(err, ERR_INPUT, "--%s: needs a value", option->name);
        value = walk->argv[walk->at++];
    }
    if (check_once(walk, option, err) || store(walk, option, value, err))
        return err_at(err, "--%s", option->name);
    note_given(walk, option, value);
    return 0;
}

/* Refuses the name of a long option after one dash: `-output x` would be parsed as `-o utput`, and llama.cpp's `-ot x` as
 * `-o t`, which writes to a wrong file. */
static int refuse_one_dash(const struct walk *walk, const char *word, struct err *err)
{
    const size_t length = strcspn(word + 1, "=");
    if (length < 2)
        return 0;
    if (opt_find(walk->subcommand, word + 1, length))
        return err_set(err, ERR_INPUT, "unknown option %.*s; did you mean --%.*s?", (int)length + 1, word, (int)length,
                       word + 1);
    return foreign_option(walk->subcommand, word, length + 1, err) ? -1 : 0;
}

/* Returns the value of a short option, the rest of its word or the next word; NULL with an error if there is none. */
static const char *short_value(struct walk *walk, const struct opt *option, const char *letter, struct err *err)
{
    if (letter[1] == '=') {
        err_set(err, ERR_INPUT, "-%s: a value follows a letter without =; write -%c %s or --%s%s", letter, *letter, letter + 2,
                option->name, letter + 1);
        return NULL;
    }
    if (letter[1])
        return letter + 1;
    if (walk->at == walk->argc) {
        err_set(err, ERR_INPUT, "-%c: needs a value", *letter);
        return NULL;
    }
    return walk->argv[walk->at++];
}

/* Parses -abc, -n5 and -n 5. */
static int take_short(struct walk *walk, const char *word, struct err *err)
{
    if (refuse_one_dash(walk, word, err))
        return -1;
    for (const char *letter = word + 1; *letter; letter++) {
        const struct opt *option = opt_find_letter(walk->subcommand, *letter);
        if (!option && letter == word + 1)
            return unknown_option(walk, word, strcspn(word, "="), 1, err);
        if (!option)
            return err_set(err, ERR_INPUT, "unknown option -%c; --help lists the options", *letter);
        const char *value = NULL;
        if (takes_value(option) && !(value = short_value(walk, option, letter, err)))
            return -1;
        if (check_once(walk, option, err) || store(walk, option, value, err))
            return err_at(err, "-%c", *letter);
        note_given(walk, option, value);
        if (value)
            break;
    }
    return 0;
}

static int take_words(struct walk *walk, struct err *err)
{
    bool ended = false;
    while (walk->at < walk->argc) {
        const char *word = walk->argv[walk->at++];
        if (!ended && strcmp(word, "--") == 0) {
            ended = true;
        } else if (!ended && strncmp(word, "--", 2) == 0) {
            if (take_long(walk, word, err))
                return -1;
        } else if (!ended && word[0] == '-' && word[1]) {
            if (take_short(walk, word, err))
                return -1;
        } else {
            walk->operands[walk->operand_count++] = word;
        }
    }
    return 0;
}

/* Refuses an extra word. If it names no existing file, it was likely meant for -o, as with cp and mv. */
static int refuse_operand(const struct walk *walk, const char *word, struct err *err)
{
    const struct opt *output = opt_find_letter(walk->subcommand, 'o');
    walk->console->misplaced = true;
    if (output && output->kind == OPT_KIND_OUTPUT && !*(const char **)((char *)walk->args + output->offset) &&
        access(word, F_OK))
        return err_set(err, ERR_INPUT, "unexpected argument '%s'; name the output with -o %s", word, word);
    return err_set(err, ERR_INPUT, "unexpected argument '%s'; see --help", word);
}

static int missing_operand(const struct walk *walk, const char *name, struct err *err)
{
    const char *program = walk->console->program;
    struct text usage = {0};
    if (!program || help_usage(&usage, program, walk->subcommand, NULL))
        err_set(err, ERR_INPUT, "%s is missing; see --help", name);
    else
        err_set(err, ERR_INPUT, "%s is missing; %s", name, usage.data);
    text_free(&usage);
    return -1;
}

/* Stores the operands in their fields: single ones take one word each, a list takes the rest. */
static int store_operands(struct walk *walk, struct err *err)
{
    const struct operand *operand = walk->subcommand->operands;
    int at = 0;
    for (; operand && operand->kind; operand++) {
        char *field = (char *)walk->args + operand->offset;
        if (at == walk->operand_count && (operand->kind == OPERAND_KIND_ONE || operand->kind == OPERAND_KIND_SOME))
            return missing_operand(walk, operand->name, err);
        bool list = operand->kind == OPERAND_KIND_ANY || operand->kind == OPERAND_KIND_SOME;
        for (bool first = true; at < walk->operand_count && (list || first); at++, first = false) {
            if (claim_standard(&walk->input, "input", operand->name, walk->operands[at], err))
                return -1;
            if (list && add_string(walk, (struct strings *)field, walk->operands[at], err))
                return -1;
            if (!list)
                *(const char **)field = walk->operands[at];
        }
    }
    return at < walk->operand_count ? refuse_operand(walk, walk->operands[at], err) : 0;
}

/* Returns the file that an option names; NULL if it names none. */
static const char *file_of(const struct walk *walk, const struct opt *option)
{
    if (option->kind != OPT_KIND_INPUT && option->kind != OPT_KIND_OUTPUT)
        return NULL;
    return *(const char **)((char *)walk->args + option->offset);
}

static int claim_files(struct walk *walk, struct err *err)
{
    for (const struct opt *option = own_options(walk->subcommand); option->kind; option++) {
        const char *value = file_of(walk, option);
        bool input = option->kind == OPT_KIND_INPUT;
        if (value && claim_standard(input ? &walk->input : &walk->output, input ? "input" : "output", option->name, value, err))
            return -1;
    }
    return 0;
}

static int claim_input(const void *context, const char *name, const char *path, struct err *err)
{
    const struct walk *walk = context;
    const struct claims *claims = &walk->console->claims;
    const struct opt *option = opt_find(walk->subcommand, name, strlen(name));
    bool resumed = option && option->kind == OPT_KIND_INPUT && option->min > 0;
    return (resumed ? claims_resumed : claims_input)(claims, name, path, err);
}

/* Refuses an output that is also an input or another output. Standard input counts even if it is implied. */
static int claim_outputs(struct walk *walk, struct err *err)
{
    struct claims *claims = &walk->console->claims;
    *claims = (struct claims){0};
    if (claims_standard_output(claims, err))
        return -1;
    for (const struct opt *option = own_options(walk->subcommand); option->kind; option++) {
        const char *value = option->kind == OPT_KIND_OUTPUT ? file_of(walk, option) : NULL;
        if (value && claims_output(claims, option->name, value, option->min > 0, err))
            return -1;
    }
    return opt_inputs(walk->subcommand, walk->args, claim_input, walk, err) ||
           claims_input(claims, "standard input", "-", err) ? -1 : 0;
}

int opt_parse(const struct subcommand *subcommand, int argc, char **argv, void *args, struct console *console, struct err *err)
{
    struct walk walk = {.subcommand = subcommand, .argc = argc, .argv = argv, .args = args, .console = console};
    walk.operands = mem_alloc((size_t)argc, sizeof *walk.operands, err);
    if (!walk.operands)
        return -1;
    walk.given = mem_alloc(2 * (count_options(subcommand) + 1), sizeof *walk.given, err);
    walk.seen = walk.given + count_options(subcommand) + 1;
    int rc = walk.given ? take_words(&walk, err) : -1;
    if (!rc && !console->help && !console->version)
        rc = claim_files(&walk, err) || store_operands(&walk, err) || claim_outputs(&walk, err) ||
             opt_check_rules(subcommand, walk.given, err) ? -1 : 0;
    mem_free(&walk.operands);
    mem_free(&walk.given);
    return rc;
}

int opt_set(const struct opt *option, void *args, const char *value, int room, struct err *err)
{
    struct walk walk = {.args = args, .argc = room};
    return value && option->kind == OPT_KIND_FLAG ? err_set(err, ERR_INPUT, "takes no value")
                                                  : store(&walk, option, value, err);
}

void opt_free(const struct subcommand *subcommand, void *args)
{
    for (const struct opt *option = own_options(subcommand); option->kind; option++)
        if (option->kind == OPT_KIND_STRINGS)
            mem_free(&((struct strings *)((char *)args + option->offset))->items);
    for (const struct operand *operand = subcommand->operands; operand && operand->kind; operand++)
        if (operand->kind == OPERAND_KIND_ANY || operand->kind == OPERAND_KIND_SOME)
            mem_free(&((struct strings *)((char *)args + operand->offset))->items);
}

/* Returns a text as JSON; bytes that are not UTF-8, as in names of files, become U+FFFD. NULL: no memory. */
static json_t *string_json(const char *text)
{
    char *valid = utf8_string(text, NULL);
    json_t *value = valid ? json_string(valid) : NULL;
    mem_free(&valid);
    return value;
}

json_t *strings_json(const struct strings *strings)
{
    json_t *list = json_array();
    for (int i = 0; i < strings->count; i++)
        if (json_array_append_new(list, string_json(strings->items[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

json_t *opt_json(const struct opt *option, const void *args)
{
    const void *field = (const char *)args + option->offset;
    const enum opt_kind kind = option->kind;
    if (kind == OPT_KIND_STRING || kind == OPT_KIND_INPUT || kind == OPT_KIND_OUTPUT) {
        const char *text = *(const char *const *)field;
        return text ? string_json(text) : json_null();
    }
    return kind == OPT_KIND_FLAG ? json_boolean(*(const bool *)field)
         : kind == OPT_KIND_FLOAT ? json_real(*(const double *)field)
         : kind == OPT_KIND_STRINGS ? strings_json(field)
         : kind == OPT_KIND_SIZE || kind == OPT_KIND_UINT64 ? json_integer((json_int_t)*(const uint64_t *)field)
                                                            : json_integer(*(const int *)field);
}

bool opt_equal(const struct opt *option, const void *a, const void *b)
{
    json_t *one = opt_json(option, a), *other = opt_json(option, b);
    const bool equal = json_equal(one, other);
    json_decref(one);
    json_decref(other);
    return equal;
}
