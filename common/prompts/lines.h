/* The texts that prompts are made of: files one after the other, each cut into lines or taken whole, in bounded memory.
 *
 *   .txt (.TXT)      text, one a line; whole with the option
 *   .md (.MD)        text, the file as one
 *   standard input   with the option one text; else JSON lines if its first character other than white space is `{', or `['
 *                    with `{', `"' or nothing after it; else one text
 *   other files      JSON lines
 *
 * A text that nobody asked to have whole has no newline at its end. A byte order mark is taken away. */
#ifndef MOE_PROMPTS_LINES_H
#define MOE_PROMPTS_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/stop.h"
#include "common/base/text.h"

struct prompt_lines;

struct prompt_line {
    struct text *text;                  /* valid until the next call */
    const char *name;                   /* of the file, for messages */
    int64_t number;                     /* of the line, from 1 */
    bool plain;                         /* text, not JSON */
    bool standard;                      /* from standard input */
};

/* files: borrowed. none: standard input is read. stop: see prompt_lines_next; NULL: none. */
int prompt_lines_open(struct prompt_lines **out, const char *const *files, size_t count, bool none, bool whole, size_t limit,
                      const struct stop *stop, struct err *err);
void prompt_lines_close(struct prompt_lines **lines);

/* 1: *out is the next one that is not blank; 0: no more; -1: error. After ERR_INPUT, a line that is too long, out has its
 * where, and the next call goes on after it. ERR_SIGNAL: the stop was asked for while input was waited for. */
int prompt_lines_next(struct prompt_lines *lines, struct prompt_line *out, struct err *err);

/* Begins anew. twice: files that can be read again alone, others are passed over. */
bool prompt_lines_rewind(struct prompt_lines *lines, bool twice);       /* false: some were, or will be, passed over */

#endif
