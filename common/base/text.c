#include "common/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"

int text_put(struct text *text, const void *bytes, size_t count, struct err *err)
{
    size_t need;
    if (!size_add(text->length, count, &need) || !size_add(need, 1, &need))
        return err_memory(err);
    if (mem_grow(&text->data, &text->room, need, 1, err))
        return -1;
    if (count)
        memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = '\0';
    return 0;
}

int text_puts(struct text *text, const char *string, struct err *err)
{
    return text_put(text, string, strlen(string), err);
}

int text_putc(struct text *text, char byte, struct err *err)
{
    return text_put(text, &byte, 1, err);
}

int text_printf(struct text *text, struct err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int count = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (count < 0)
        return err_set(err, ERR_INPUT, "text cannot be formatted");
    if (mem_grow(&text->data, &text->room, text->length + (size_t)count + 1, 1, err))
        return -1;
    va_start(args, format);
    vsnprintf(text->data + text->length, (size_t)count + 1, format, args);
    va_end(args);
    text->length += (size_t)count;
    return 0;
}

void text_make_printable(struct text *text)
{
    utf8_make_printable(text->data, text->length, '\n');
}

void text_clear(struct text *text)
{
    text->length = 0;
    if (text->data)
        text->data[0] = '\0';
}

void text_free(struct text *text)
{
    mem_free(&text->data);
    text->length = text->room = 0;
}

bool bytes_end(const char *bytes, size_t count, const char *end)
{
    const size_t length = strlen(end);
    return count >= length && !memcmp(bytes + count - length, end, length);
}

bool text_ends(const char *string, const char *end) { return bytes_end(string, strlen(string), end); }
