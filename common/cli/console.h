/* The terminal and verbosity of a command, passed to the code that prints messages. */
#ifndef MOE_CLI_CONSOLE_H
#define MOE_CLI_CONSOLE_H

#include <stdbool.h>

#include "common/base/progress.h"
#include "common/base/text.h"
#include "common/cli/claims.h"

struct console {
    const char *program;            /* "moe-decode" */
    int argc;                       /* the command line, for the provenance in a stream's header */
    char **argv;
    bool quiet, verbose;
    bool silent;                    /* prints nothing at all: another process of the job prints it */
    int progress;                   /* enum progress_mode */
    int help;                       /* see opt_parse */
    bool version;
    bool started;                   /* the command line was valid, and the subcommand was called */
    bool misplaced;                 /* opt_parse failed at an option or operand that another subcommand may have */
    struct claims claims;           /* outputs of the command; see opt_parse */
};

/* Prints one line on stderr after the program's name: notes unless -q, details only under -v. */
void console_note(const struct console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void console_fault(const struct console *console, const struct err *err);   /* prints that a part failed; also under -q */
void console_notes(const struct console *console, const struct text *notes);        /* prints each line as a note */
void console_detail(const struct console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fails if the command writes this file. Must be called before reading a file that an input names and no option does. */
int console_reads(const struct console *console, const char *name, const char *path, struct err *err);

/* Starts a progress bar on stderr in the requested mode; none under -q. */
void console_progress(const struct console *console, struct progress *bar, const char *unit, uint64_t total);

#endif
