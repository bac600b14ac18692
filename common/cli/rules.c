#include "common/cli/rules.h"

#include <string.h>

#include "common/cli/command.h"

/* Returns the first of these names, after `from`, that was given; NULL if none. */
static const struct opt *find_given(const struct subcommand *subcommand, const bool *given, const char *names,
                                    const struct opt *from)
{
    for (const struct opt *option = from ? from + 1 : subcommand->options; option && option->kind; option++) {
        if (!given[option - subcommand->options])
            continue;
        for (const char *at = names; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
            if (strcspn(at, "|") == strlen(option->name) && !strncmp(at, option->name, strlen(option->name)))
                return option;
    }
    return NULL;
}

/* Formats the names that the subcommand has as "--a, --b or --c". */
static int put_names(struct text *out, const struct subcommand *subcommand, const char *names, const char *last,
                     struct err *err)
{
    const struct opt *known[16];
    int count = 0;
    for (const char *at = names; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const struct opt *option = opt_find(subcommand, at, strcspn(at, "|"));
        if (option && count < 16)
            known[count++] = option;
    }
    for (int i = 0; i < count; i++)
        if (text_printf(out, err, "%s--%s", !i ? "" : i + 1 < count ? ", " : last, known[i]->name))
            return -1;
    return 0;
}

static int refuse(const struct subcommand *subcommand, const struct opt_rule *rule, const struct opt *option,
                  const struct opt *other, struct err *err)
{
    struct text names = {0};
    int rc = -1;
    if (rule->relation == OPT_NEEDS) {
        if (!put_names(&names, subcommand, rule->others, " or ", err))
            err_set(err, ERR_INPUT, "--%s: %s; add %s", option->name, rule->why ? rule->why : "has no effect by itself",
                    names.data);
    } else if (rule->relation == OPT_EXCLUSIVE) {
        if (!put_names(&names, subcommand, rule->options, " and ", err))
            err_set(err, ERR_INPUT, "%s exclude each other; give one", names.data);
    } else if (rule->why) {
        err_set(err, ERR_INPUT, "--%s: %s; leave out this option or --%s", option->name, rule->why, other->name);
    } else {
        err_set(err, ERR_INPUT, "--%s and --%s exclude each other; give one", option->name, other->name);
    }
    text_free(&names);
    return rc;
}

int opt_check_rules(const struct subcommand *subcommand, const bool *given, struct err *err)
{
    for (const struct opt_rule *rule = subcommand->rules; rule && rule->relation; rule++) {
        const struct opt *option = find_given(subcommand, given, rule->options, NULL), *other;
        if (!option)
            continue;
        other = rule->relation == OPT_EXCLUSIVE ? find_given(subcommand, given, rule->options, option)
                                                : find_given(subcommand, given, rule->others, NULL);
        if (rule->relation == OPT_NEEDS ? !other : other != NULL)
            return refuse(subcommand, rule, option, other, err);
    }
    return 0;
}
