#include "common/cli/console.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void print(const struct console *console, const char *format, va_list args)
{
    fflush(stdout);
    fprintf(stderr, "%s: ", console->program);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void console_note(const struct console *console, const char *format, ...)
{
    if (console->quiet)
        return;
    va_list args;
    va_start(args, format);
    print(console, format, args);
    va_end(args);
}

void console_fault(const struct console *console, const struct err *err)
{
    if (console->silent)
        return;
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", console->program, err->text);
}

void console_notes(const struct console *console, const struct text *notes)
{
    const char *line = notes->data;
    for (const char *end; line && (end = strchr(line, '\n')); line = end + 1)
        console_note(console, "%.*s", (int)(end - line), line);
}

void console_detail(const struct console *console, const char *format, ...)
{
    if (!console->verbose || console->quiet)
        return;
    va_list args;
    va_start(args, format);
    print(console, format, args);
    va_end(args);
}

int console_reads(const struct console *console, const char *name, const char *path, struct err *err)
{
    return claims_input(&console->claims, name, path, err);
}

void console_progress(const struct console *console, struct progress *bar, const char *unit, uint64_t total)
{
    progress_start(bar, console->quiet ? PROGRESS_NEVER : (enum progress_mode)console->progress, stderr, unit, total);
}
