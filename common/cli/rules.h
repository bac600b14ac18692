/* What options have to do with each other, as tables: so a combination of which one option would have no effect is refused
 * everywhere, in the same words. */
#ifndef MOE_CLI_RULES_H
#define MOE_CLI_RULES_H

#include <stdbool.h>

#include "common/base/err.h"

struct subcommand;

enum opt_relation {
    OPT_NO_RELATION,
    OPT_NEEDS,                          /* each of `options` needs one of `others` */
    OPT_EXCLUDES,                       /* one of `options` and one of `others` exclude each other */
    OPT_EXCLUSIVE,                      /* of `options` one can be given */
};

/* Long names with | between them; those that a subcommand does not have count as not given. */
struct opt_rule {
    enum opt_relation relation;
    const char *options, *others;
    const char *why;                    /* "nothing is cached": of what is refused; NULL: it is plain */
};

#define OPT_RULES_END {OPT_NO_RELATION, NULL, NULL, NULL}

/* given: of each option of the subcommand's table. A choice of "none" counts as not given. */
int opt_check_rules(const struct subcommand *subcommand, const bool *given, struct err *err);

#endif
