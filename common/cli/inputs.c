/* Finds the input files of a command line by the option table. */
#include <string.h>

#include "common/cli/command.h"
#include "common/cli/opt.h"
#include "common/cli/spec.h"

struct visit {
    opt_visitor *visit_file;
    const void *context;
};

static int visit_list(const struct visit *visit, const char *name, const struct strings *list, struct err *err)
{
    for (int i = 0; i < list->count; i++)
        if (visit->visit_file(visit->context, name, list->items[i], err))
            return -1;
    return 0;
}

/* Returns whether a value is one of the literal words between |. */
static bool is_word(const char *placeholder, const char *value)
{
    size_t length = strlen(value);
    for (const char *at = placeholder; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (strcspn(at, "|") == length && !strncmp(at, value, length))
            return true;
    return false;
}

/* Finds a file given alone, or as the value of any key of KIND:key=value,... The command itself reports faulty values. */
static int visit_string(const struct visit *visit, const struct opt *option, const char *value, struct err *err)
{
    struct spec *spec = NULL;
    int rc = 0;
    if (!value || is_word(option->argument, value))
        return 0;
    if (!strstr(option->argument, "=FILE"))
        return visit->visit_file(visit->context, option->name, value, err);
    if (spec_parse(&spec, value, NULL))
        return 0;
    for (int i = 0; !rc && spec_value(spec, i); i++)
        rc = visit->visit_file(visit->context, option->name, spec_value(spec, i), err);
    spec_free(&spec);
    return rc;
}

static int visit_option(const struct visit *visit, const struct opt *option, const char *field, struct err *err)
{
    const char *value;
    if (option->kind == OPT_KIND_INPUT) {
        memcpy(&value, field, sizeof value);
        return value ? visit->visit_file(visit->context, option->name, value, err) : 0;
    }
    if ((option->kind != OPT_KIND_STRING && option->kind != OPT_KIND_STRINGS) || !strstr(option->argument, "FILE"))
        return 0;
    if (option->kind == OPT_KIND_STRING) {
        memcpy(&value, field, sizeof value);
        return visit_string(visit, option, value, err);
    }
    const struct strings *list = (const struct strings *)(const void *)field;
    for (int i = 0; i < list->count; i++)
        if (visit_string(visit, option, list->items[i], err))
            return -1;
    return 0;
}

int opt_inputs(const struct subcommand *subcommand, const void *args, opt_visitor *visit_file, const void *context,
               struct err *err)
{
    const struct visit visit = {visit_file, context};
    for (const struct opt *option = subcommand->options; option && option->kind; option++)
        if (visit_option(&visit, option, (const char *)args + option->offset, err))
            return -1;
    for (const struct operand *operand = subcommand->operands; operand && operand->kind; operand++) {
        const char *field = (const char *)args + operand->offset, *value;
        bool list = operand->kind == OPERAND_KIND_ANY || operand->kind == OPERAND_KIND_SOME;
        if (list && visit_list(&visit, operand->name, (const struct strings *)(const void *)field, err))
            return -1;
        memcpy(&value, field, sizeof value);
        if (!list && value && visit_file(context, operand->name, value, err))
            return -1;
    }
    return 0;
}
