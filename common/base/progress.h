/* A bar on a terminal for work that takes longer than a second: how much is done, at what rate, how long it will take.
 *
 *     struct progress bar;
 *     progress_start(&bar, console->progress, stderr, "tokens", total);      total 0: not known
 *     ... progress_step(&bar, n); ...                                        from one thread
 *     progress_end(&bar);                                                    clears the line
 *
 * Drawn at most ten times a second. Never fails: drawing errors are ignored. */
#ifndef MOE_BASE_PROGRESS_H
#define MOE_BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum progress_mode {
    PROGRESS_AUTO,       /* on a terminal only */
    PROGRESS_ALWAYS,
    PROGRESS_NEVER
};

struct progress {
    FILE *to;            /* NULL: no bar */
    const char *unit;
    uint64_t done, total;
    double started, drawn;      /* clock_seconds; drawn is 0 before the first drawing */
};

void progress_start(struct progress *bar, enum progress_mode mode, FILE *to, const char *unit, uint64_t total);
void progress_step(struct progress *bar, uint64_t amount);
void progress_end(struct progress *bar);

/* Formats the bar after `seconds` of work. */
void progress_line(const struct progress *bar, double seconds, char *line, size_t room);

#endif
