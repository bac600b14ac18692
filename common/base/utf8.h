/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef MOE_BASE_UTF8_H
#define MOE_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* Returns the length (1 to 4) of the character at `text` and stores its code point; 0 if the bytes are not a character.
 * code may be NULL. */
int utf8_next(const char *text, size_t bytes, uint32_t *code);

/* Writes one valid code point to out[4]; returns its length. */
int utf8_put(char *out, uint32_t code);

/* Returns the offset of the first byte that is not part of a valid character; `bytes` if all are valid. */
size_t utf8_fault(const char *text, size_t bytes);

/* Copies a text, with U+FFFD for each byte that is not part of a valid character; returns NULL with err set if there is no
 * memory. Freed by mem_free. */
char *utf8_string(const char *text, struct err *err);

/* Replaces control characters by '?', those of two bytes (U+0080 to U+009F) by "??": names and texts from hostile files must
 * not control the terminal. kept: a control character that stays; 0: none. */
void utf8_make_printable(char *text, size_t bytes, char kept);

/* Counts the characters of a valid text. */
size_t utf8_count(const char *text, size_t bytes);

#endif
