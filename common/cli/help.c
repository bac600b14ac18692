/* Prints --help and --help=spec, both from the option tables. */
#include "common/cli/command.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/text.h"

enum { HELP_COLUMN = 28, HELP_WIDTH = 96, LEFT_INDENT = 12 };

static const struct subcommand *implied_subcommand(const struct command *command)
{
    for (const struct subcommand *sub = command->subcommands; sub->run; sub++)
        if (!sub->name || sub->implied)
            return sub;
    return NULL;
}

static bool has_names(const struct command *command) { return command->subcommands->name != NULL; }

static int put_argument(struct text *out, const struct opt *option, struct err *err)
{
    if (option->kind != OPT_KIND_CHOICE)
        return text_puts(out, option->argument, err);
    for (int i = 0; option->choices[i]; i++)
        if ((i && text_putc(out, '|', err)) || text_puts(out, option->choices[i], err))
            return -1;
    return 0;
}

/* Appends " (default 4)" if the initial value is one that the option accepts. */
static int put_default(struct text *out, const struct opt *option, const void *defaults, struct err *err)
{
    static const uint64_t units[] = {UINT64_C(1) << 30, 1 << 20, 1 << 10, 1};
    static const char suffixes[] = "GMK";
    if (!defaults)
        return 0;
    const char *field = (const char *)defaults + option->offset;
    int whole;
    double number;
    uint64_t size;
    const char *string;
    switch (option->kind) {
    case OPT_KIND_COUNT:
    case OPT_KIND_COUNT_AUTO:
        memcpy(&whole, field, sizeof whole);
        return whole >= option->min && whole <= option->max ? text_printf(out, err, " (default %d)", whole) : 0;
    case OPT_KIND_CHOICE:
        memcpy(&whole, field, sizeof whole);
        return whole >= 0 ? text_printf(out, err, " (default %s)", option->choices[whole]) : 0;
    case OPT_KIND_FLOAT:
        memcpy(&number, field, sizeof number);
        return number >= option->min && number <= option->max ? text_printf(out, err, " (default %g)", number) : 0;
    case OPT_KIND_UINT64:
        memcpy(&size, field, sizeof size);
        return text_printf(out, err, " (default %" PRIu64 ")", size);
    case OPT_KIND_SIZE:
        memcpy(&size, field, sizeof size);
        if ((double)size < option->min || (double)size > option->max)
            return 0;
        for (int i = 0;; i++)
            if (size % units[i] == 0 && (size || units[i] == 1))
                return text_printf(out, err, " (default %" PRIu64 "%.*s)", size / units[i], i < 3, suffixes + i);
    case OPT_KIND_STRING:
    case OPT_KIND_INPUT:
    case OPT_KIND_OUTPUT:
        memcpy(&string, field, sizeof string);
        return string ? text_printf(out, err, " (default %s)", string) : 0;
    default:
        return 0;
    }
}

/* Prints the words of `from`, wrapped at the right edge and indented to the help column; the cursor is at `column`. */
static int put_wrapped(struct text *out, const char *from, size_t column, struct err *err)
{
    while (*from) {
        size_t word = strcspn(from, " ");
        if (column > HELP_COLUMN && column + 1 + word > HELP_WIDTH) {
            if (text_printf(out, err, "\n%*s", HELP_COLUMN, ""))
                return -1;
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            if (text_putc(out, ' ', err))
                return -1;
            column++;
        }
        if (text_put(out, from, word, err))
            return -1;
        column += word;
        from += word + strspn(from + word, " ");
    }
    return text_putc(out, '\n', err);
}

/* Prints the left column; a text longer than a line is continued in the next line after a bar. */
static int put_left(struct text *out, const char *from, struct err *err)
{
    for (size_t left = strlen(from), indent = 0; left; indent = LEFT_INDENT) {
        size_t line = left + indent <= HELP_WIDTH ? left : HELP_WIDTH - indent;
        while (line < left && line && from[line - 1] != '|')
            line--;
        line = line ? line : left;
        if ((indent && text_printf(out, err, "\n%*s", (int)indent, "")) || text_put(out, from, line, err))
            return -1;
        from += line;
        left -= line;
    }
    return 0;
}

/* Prints `left` in the left column and `right` beside it, or below it where it does not fit. */
static int put_row(struct text *out, const struct text *left, const struct text *right, struct err *err)
{
    if (put_left(out, left->data, err))
        return -1;
    int gap = left->length + 2 > HELP_COLUMN ? HELP_COLUMN : HELP_COLUMN - (int)left->length;
    if (gap == HELP_COLUMN && text_putc(out, '\n', err))
        return -1;
    return text_printf(out, err, "%*s", gap, "") || put_wrapped(out, right->data, HELP_COLUMN, err) ? -1 : 0;
}

static int put_option(struct text *out, const struct opt *option, const void *defaults, struct err *err)
{
    struct text left = {0}, right = {0};
    bool value = option->kind != OPT_KIND_FLAG && option->kind != OPT_KIND_HELP;
    int rc = option->letter ? text_printf(&left, err, "  -%c, --%s", option->letter, option->name)
                            : text_printf(&left, err, "      --%s", option->name);
    rc = rc || (value && (text_putc(&left, ' ', err) || put_argument(&left, option, err)));
    rc = rc || text_puts(&right, option->help, err) || put_default(&right, option, defaults, err);
    rc = rc || put_row(out, &left, &right, err);
    text_free(&left);
    text_free(&right);
    return rc ? -1 : 0;
}

int help_usage(struct text *out, const char *program, const struct subcommand *sub, struct err *err)
{
    if (text_printf(out, err, "usage: %s", program))
        return -1;
    if (sub->name && text_printf(out, err, sub->implied ? " [%s]" : " %s", sub->name))
        return -1;
    if (text_puts(out, " [OPTION...]", err))
        return -1;
    for (const struct operand *operand = sub->operands; operand && operand->kind; operand++) {
        static const char *const forms[] = {"", " %s", " [%s]", " [%s...]", " %s..."};
        const char *form = forms[operand->kind], *hole = strstr(form, "%s");
        if (text_put(out, form, (size_t)(hole - form), err) || text_puts(out, operand->name, err) ||
            text_puts(out, hole + 2, err))
            return -1;
    }
    return 0;
}

static int put_sentence(struct text *out, const char *summary, struct err *err)
{
    char first = summary[0] >= 'a' && summary[0] <= 'z' ? (char)(summary[0] - 'a' + 'A') : summary[0];
    return text_printf(out, err, "%c%s.\n", first, summary + 1);
}

static const char other[] = "Other options";       /* the last group, which contains the console's options */

static bool is_title(const struct opt *option, const char *title)
{
    return option->kind == OPT_KIND_GROUP && strcmp(option->help, title) == 0;
}

static bool has_groups(const struct opt *option)
{
    while (option->kind && option->kind != OPT_KIND_GROUP)
        option++;
    return option->kind;
}

/* Prints the options under all occurrences of this title; NULL: those before the first title. */
static int put_group(struct text *out, const struct subcommand *sub, const char *title, struct err *err)
{
    bool inside = !title;
    if (title && text_printf(out, err, "\n%s:\n", title))
        return -1;
    for (const struct opt *option = sub->options; option && option->kind; option++) {
        if (option->kind == OPT_KIND_GROUP)
            inside = title && is_title(option, title);
        else if (inside && put_option(out, option, sub->defaults, err))
            return -1;
    }
    return 0;
}

/* Prints each group where its title first occurs. */
static int put_options(struct text *out, const struct subcommand *sub, struct err *err)
{
    bool groups = sub->options && has_groups(sub->options);
    if (((!groups || sub->options->kind != OPT_KIND_GROUP) && text_puts(out, "\n", err)) || put_group(out, sub, NULL, err))
        return -1;
    for (const struct opt *option = sub->options; option && option->kind; option++) {
        const struct opt *first = sub->options;
        if (option->kind != OPT_KIND_GROUP)
            continue;
        while (!is_title(first, option->help))
            first++;
        if (first == option && !is_title(option, other) && put_group(out, sub, option->help, err))
            return -1;
    }
    if (groups && put_group(out, sub, other, err))
        return -1;
    for (const struct opt *option = console_options; option->kind; option++)
        if (console_has(sub, option) && put_option(out, option, NULL, err))
            return -1;
    return 0;
}

int help_print(struct text *out, const struct command *command, const struct subcommand *sub, struct err *err)
{
    if (sub)
        return help_usage(out, command->name, sub, err) || text_putc(out, '\n', err) ||
               put_sentence(out, sub->summary, err) || put_options(out, sub, err) ? -1 : 0;
    if (text_printf(out, err, "usage: %s %s\n", command->name, implied_subcommand(command) ? "[SUBCOMMAND] ..."
                    : "SUBCOMMAND ...") ||
        put_sentence(out, command->summary, err) || text_puts(out, "\nSubcommands:\n", err))
        return -1;
    for (sub = command->subcommands; sub->run; sub++) {
        struct text left = {0}, right = {0};
        int rc = text_printf(&left, err, "  %s", sub->name) || text_puts(&right, sub->summary, err) ||
                 (sub->implied && text_puts(&right, " (meant when none is named)", err)) || put_row(out, &left, &right, err);
        text_free(&left);
        text_free(&right);
        if (rc)
            return -1;
    }
    return text_printf(out, err, "\n%s SUBCOMMAND --help lists the options of one.\n", command->name);
}

static int spec_option(struct text *out, const struct opt *option, struct err *err)
{
    static const char *const kinds[] = {"end", "flag", "count", "count-auto", "size", "uint64", "float", "string", "strings",
                                        "choice", "input", "output", "flag"};
    if (option->kind == OPT_KIND_GROUP)
        return text_printf(out, err, "group\t%s\n", option->help);
    const char letter[2] = {option->letter ? option->letter : '-', '\0'};
    if (text_printf(out, err, "option\t%s\t%s\t%s\t%s\t", letter, option->name, kinds[option->kind],
                    option->argument ? option->argument : "-"))
        return -1;
    const char *summary, *word = option->word ? option->word(0, &summary) : NULL;
    for (int i = 0; word; word = option->word(++i, &summary))
        if (text_printf(out, err, i ? "|%s" : "%s", word))
            return -1;
    if (!option->word && (option->kind == OPT_KIND_CHOICE ? put_argument(out, option, err) : text_putc(out, '-', err)))
        return -1;
    return text_printf(out, err, "\t%s\n", option->help);
}

int help_spec(struct text *out, const struct command *command, struct err *err)
{
    static const char *const forms[] = {"end", "one", "maybe", "any", "some"};
    if (text_printf(out, err, "command\t%s\t%s\n", command->name, command->summary))
        return -1;
    for (const struct subcommand *sub = command->subcommands; sub->run; sub++) {
        if (text_printf(out, err, "subcommand\t%s\t%s\t%s\n", sub->name ? sub->name : "-", sub->summary,
                        sub->implied && has_names(command) ? "implied" : "-"))
            return -1;
        for (const struct operand *operand = sub->operands; operand && operand->kind; operand++)
            if (text_printf(out, err, "operand\t%s\t%s\n", operand->name, forms[operand->kind]))
                return -1;
        for (const struct opt *option = sub->options; option && option->kind; option++)
            if (spec_option(out, option, err))
                return -1;
        if (sub->options && has_groups(sub->options) && text_printf(out, err, "group\t%s\n", other))
            return -1;
        for (const struct opt *option = console_options; option->kind; option++)
            if (console_has(sub, option) && spec_option(out, option, err))
                return -1;
    }
    return 0;
}
