/* Rules between options, as tables: every command refuses a combination in which one option would have no effect, with the
 * same message. */
#ifndef MOE_CLI_RULES_H
#define MOE_CLI_RULES_H

#include <stdbool.h>

#include "common/base/err.h"

struct subcommand;

enum opt_relation {
    OPT_NO_RELATION,
    OPT_NEEDS,                          /* each of `options` needs one of `others` */
    OPT_EXCLUDES,                       /* one of `options` and one of `others` exclude each other */
    OPT_EXCLUSIVE,                      /* at most one of `options` may be given */
};

/* Long names separated by |; names that a subcommand lacks count as not given. */
struct opt_rule {
    enum opt_relation relation;
    const char *options, *others;
    const char *why;                    /* reason in the message, "nothing is cached"; NULL: obvious */
};

#define OPT_RULES_END {OPT_NO_RELATION, NULL, NULL, NULL}

/* Fails if a rule is violated. given: one flag per option of the subcommand's table. A choice of "none" counts as not given. */
int opt_check_rules(const struct subcommand *subcommand, const bool *given, struct err *err);

#endif
