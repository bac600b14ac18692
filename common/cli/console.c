#include "common/cli/console.h"

#include <stdarg.h>
#include <stdio.h>

static void say(const struct console *console, const char *format, va_list args)
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
    say(console, format, args);
    va_end(args);
}

void console_detail(const struct console *console, const char *format, ...)
{
    if (!console->verbose || console->quiet)
        return;
    va_list args;
    va_start(args, format);
    say(console, format, args);
    va_end(args);
}

void console_progress(const struct console *console, struct progress *bar, const char *unit, uint64_t total)
{
    progress_start(bar, console->quiet ? PROGRESS_NEVER : (enum progress_mode)console->progress, stderr, unit, total);
}
