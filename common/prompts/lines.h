/* The texts that prompts are made of: files one after the other, each cut into lines or taken whole, in bounded memory.
 *
 *   .txt (.TXT)      text, one a line; whole with the option
 *   .md (.MD)        text, the file as one
 *   standard input   with the option one text; else JSON if its first character other than white space is `{', or `[' with
 *                    `{', `"' or nothing after it; else one text
 *   other files      JSON
 *
 * JSON is an object a line, or, if it begins with `[', one list, whose items count as lines. A text is without the newline at
 * its end, unless files are taken whole. A byte order mark is removed. Files packed by gzip, bzip2 or zstd are unpacked, and
 * the endings .gz, .bz2 and .zst of their names are ignored. */
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
    bool item;                          /* of a list */
    bool standard;                      /* from standard input */
};

/* Receives notes about valid but unexpected input. */
struct prompt_notes {
    void (*put)(void *context, const char *text);       /* NULL: notes are dropped */
    void *context;
};

/* files: borrowed. none: standard input is read. stop: see prompt_lines_next; NULL: none. notes: borrowed; of files
 * without any line; NULL: there is nothing beside the one file. */
int prompt_lines_open(struct prompt_lines **out, const char *const *files, size_t count, bool none, bool whole, size_t limit,
                      const struct stop *stop, const struct prompt_notes *notes, struct err *err);
void prompt_lines_close(struct prompt_lines **lines);

/* 1: *out is the next one that is not blank; 0: no more; -1: error. After ERR_INPUT, a line that is too long or a file that is
 * no good, out says where it is, and the next call goes on after it. ERR_SIGNAL: the stop was asked for while input was waited
 * for. */
int prompt_lines_next(struct prompt_lines *lines, struct prompt_line *out, struct err *err);

/* Starts over. twice: files that can be read again alone, others are skipped. */
bool prompt_lines_rewind(struct prompt_lines *lines, bool twice);       /* false: some were, or will be, skipped */

#endif
