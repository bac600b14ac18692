/* A command, and the function that runs it: options, signals, errors, exit code. A command's main is
 *
 *     int main(int argc, char **argv) { return cli_main(argc, argv, &moe_coact); }
 *
 * Exit codes: 0 done; 1 the answer is no (ERR_ANSWER_NO); 2 trouble. An error is one line on stderr that begins with the
 * command's name. SIGINT, SIGTERM and SIGHUP remove unfinished output files and end the process as the signal would have; a run
 * that a signal requested to stop (signals.h) fails with ERR_SIGNAL, and the process then ends by that signal.
 * ERR_REPORTED ends the process with 2 and no line: another process of the job prints it (common/ranks).
 * A closed pipe (SIGPIPE, or ERR_PIPE where that signal is blocked) ends the process the same way, without a message. */
#ifndef MOE_CLI_COMMAND_H
#define MOE_CLI_COMMAND_H

#include "common/base/text.h"
#include "common/cli/console.h"
#include "common/cli/opt.h"
#include "common/cli/rules.h"

/* Options of the console that a subcommand accepts; --help and --version are always accepted. */
enum {
    CONSOLE_QUIET = 1,
    CONSOLE_VERBOSE = 2,
    CONSOLE_PROGRESS = 4,
};

struct subcommand {
    const char *name;                   /* NULL: the command has no subcommands */
    const char *summary;                /* one line, lower case, no full stop */
    const struct opt *options;          /* ends with OPT_END */
    const struct opt_rule *rules;       /* ends with OPT_RULES_END; NULL: none */
    const struct operand *operands;     /* ends with OPERAND_END; NULL: none */
    unsigned console;                   /* CONSOLE_... */
    bool implied;                       /* chosen if the first word is not a subcommand */
    size_t args_bytes;
    const void *defaults;               /* initial value of args; NULL: zeros */
    int (*run)(const void *args, const struct console *console, struct err *err);
};

struct command {
    const char *name, *summary;
    const struct subcommand *subcommands;       /* ends with an entry without run */
    void (*before_fault)(void);         /* called before the error of an invalid command line is printed; NULL: no call */
};

int cli_main(int argc, char **argv, const struct command *command);

/* The console's options; `subcommand` accepts those that its mask names. */
extern const struct opt console_options[];
bool console_has(const struct subcommand *subcommand, const struct opt *option);

/* Appends the usage of a subcommand: words of the command line in order, without a newline. */
int help_usage(struct text *out, const char *program, const struct subcommand *subcommand, struct err *err);

/* Prints the help for people (`subcommand` NULL: of the command as a whole), and the whole table for programs: tab-separated
 * lines
 *     command    NAME SUMMARY
 *     subcommand NAME SUMMARY implied|-         a name of - means the command itself
 *     operand    NAME one|maybe|any|some
 *     group      TITLE                          of the options that follow
 *     option     LETTER|- NAME KIND ARGUMENT|- CHOICES|- HELP         choices with | between them */
int help_print(struct text *out, const struct command *command, const struct subcommand *subcommand, struct err *err);
int help_spec(struct text *out, const struct command *command, struct err *err);

#endif
