/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef MOE_BASE_UTF8_H
#define MOE_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length (1 to 4) of the character that starts at `text`, and the character itself; 0 when the bytes are no character.
 * code may be NULL. */
int utf8_next(const char *text, size_t bytes, uint32_t *code);

/* Writes one character (a valid one) to out[4]; returns its length. */
int utf8_put(char *out, uint32_t code);

/* Offset of the first byte that is not part of a valid character; `bytes` when there is none. */
size_t utf8_fault(const char *text, size_t bytes);

/* Characters in a valid text. */
size_t utf8_count(const char *text, size_t bytes);

#endif
