/* What a command knows about the terminal it was started from, handed down to who has something to say there. */
#ifndef MOE_CLI_CONSOLE_H
#define MOE_CLI_CONSOLE_H

#include <stdbool.h>

#include "common/base/progress.h"
#include "common/base/text.h"
#include "common/cli/claims.h"

struct console {
    const char *program;            /* "moe-decode" */
    int argc;                       /* as the command was started: for the provenance in a stream's header */
    char **argv;
    bool quiet, verbose;
    int progress;                   /* enum progress_mode */
    int help;                       /* see opt_parse */
    bool version;
    struct claims claims;           /* what the command writes; see opt_parse */
};

/* One line on stderr after the program's name: notes unless -q, details only under -v. */
void console_note(const struct console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void console_fault(const struct console *console, const struct err *err);   /* of a part; the rest goes on: also under -q */
void console_notes(const struct console *console, const struct text *notes);        /* each line of them */
void console_detail(const struct console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Asked before a file is read that no option names, but an input does: an error when the command writes that file. */
int console_reads(const struct console *console, const char *name, const char *path, struct err *err);

/* Starts a bar on stderr in the mode that was asked for; -q means none. */
void console_progress(const struct console *console, struct progress *bar, const char *unit, uint64_t total);

#endif
