#include "common/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

static void set(struct err *err, enum err_code code, const char *format, va_list args)
{
    err->code = code;
    vsnprintf(err->text, sizeof err->text, format, args);
    utf8_make_printable(err->text, strlen(err->text), 0);         /* a message stays on one line */
}

int (err_set)(struct err *err, enum err_code code, const char *format, ...)
{
    if (err && err->code == ERR_NONE) {
        va_list args;
        va_start(args, format);
        set(err, code, format, args);
        va_end(args);
    }
    return -1;
}

int (err_errno)(struct err *err, const char *format, ...)
{
    int number = errno;
    if (err && err->code == ERR_NONE) {
        va_list args;
        va_start(args, format);
        set(err, number == EPIPE ? ERR_PIPE : number == ENOMEM ? ERR_MEMORY : ERR_IO, format, args);
        va_end(args);
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, ": %s", strerror(number));
    }
    return -1;
}

int (err_memory)(struct err *err)
{
    return err_set(err, ERR_MEMORY, "out of memory");
}

int (err_at)(struct err *err, const char *format, ...)
{
    if (err && err->code != ERR_NONE) {
        char where[sizeof err->text], joined[sizeof err->text];
        va_list args;
        va_start(args, format);
        vsnprintf(where, sizeof where, format, args);
        va_end(args);
        utf8_make_printable(where, strlen(where), 0);
        size_t used = (size_t)snprintf(joined, sizeof joined, "%.*s: ", (int)(sizeof joined / 2), where);
        snprintf(joined + used, sizeof joined - used, "%s", err->text);
        memcpy(err->text, joined, sizeof joined);
    }
    return -1;
}

void err_clear(struct err *err)
{
    if (err) {
        err->code = ERR_NONE;
        err->text[0] = '\0';
    }
}
