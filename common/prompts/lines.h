/* The texts of prompts: reads files one after the other, each line by line or as a whole, in bounded memory.
 *
 *   .txt (.TXT)      text, one per line; with the option the file as one text
 *   .md (.MD)        text, the file as one text
 *   standard input   with the option one text; else JSON if its first character other than white space is `{', or `[' with
 *                    `{', `"' or nothing after it; else one text
 *   other files      JSON
 *
 * JSON is an object per line, or, if it begins with `[', one list, whose items count as lines. A text is without the newline at
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
    const char *name;                   /* name of the file, for messages */
    int64_t number;                     /* number of the line, from 1 */
    bool plain;                         /* text, not JSON */
    bool item;                          /* of a list */
    bool standard;                      /* from standard input */
};

/* Receives notes about valid but unexpected input. */
struct prompt_notes {
    void (*put)(void *context, const char *text);       /* NULL: notes are dropped */
    void *context;
};

/* files: borrowed. none: standard input is read. stop: see prompt_lines_next; NULL: none. notes: borrowed; receives notes on
 * files without lines; NULL: none, for a single file. */
int prompt_lines_open(struct prompt_lines **out, const char *const *files, size_t count, bool none, bool whole, size_t limit,
                      const struct stop *stop, const struct prompt_notes *notes, struct err *err);
void prompt_lines_close(struct prompt_lines **lines);

/* Returns 1: *out is the next line that is not blank; 0: no more lines; -1: error. After ERR_INPUT, for a line that is too
 * long or an invalid file, *out locates the error, and the next call continues after it. ERR_SIGNAL: a stop was requested
 * while waiting for input. */
int prompt_lines_next(struct prompt_lines *lines, struct prompt_line *out, struct err *err);

/* Starts over with the first file. twice: only files that can be read again; others are skipped. */
bool prompt_lines_rewind(struct prompt_lines *lines, bool twice);       /* false: some files were skipped, or will be */

#endif
