/* A growing byte string. `data` is NUL-terminated once anything was put; NULL while empty. Bytes may contain NULs.
 * Start with `struct text t = {0}`; end with text_free. */
#ifndef MOE_BASE_TEXT_H
#define MOE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

struct text {
    char *data;
    size_t length, room;
};

int text_put(struct text *text, const void *bytes, size_t count, struct err *err);
int text_puts(struct text *text, const char *string, struct err *err);
int text_putc(struct text *text, char byte, struct err *err);
int text_printf(struct text *text, struct err *err, const char *format, ...) __attribute__((format(printf, 3, 4)));
void text_make_printable(struct text *text);     /* replaces control characters except newlines by '?' */
void text_clear(struct text *text);      /* length 0, memory kept */
void text_free(struct text *text);

bool text_ends(const char *string, const char *end);
bool bytes_end(const char *bytes, size_t count, const char *end);       /* the same for bytes that are not NUL-terminated */

#endif
