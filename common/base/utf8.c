#include "common/base/utf8.h"

#include <string.h>

#include "common/base/mem.h"

int utf8_next(const char *text, size_t bytes, uint32_t *code)
{
    const unsigned char *p = (const unsigned char *)text;
    uint32_t value, min;
    int length;
    if (!bytes)
        return 0;
    if (p[0] < 0x80) {
        if (code)
            *code = p[0];
        return 1;
    }
    if (p[0] >= 0xC2 && p[0] <= 0xDF) {
        length = 2;
        min = 0x80;
        value = p[0] & 0x1Fu;
    } else if ((p[0] & 0xF0) == 0xE0) {
        length = 3;
        min = 0x800;
        value = p[0] & 0x0Fu;
    } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        length = 4;
        min = 0x10000;
        value = p[0] & 0x07u;
    } else {
        return 0;
    }
    if (bytes < (size_t)length)
        return 0;
    for (int i = 1; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (p[i] & 0x3Fu);
    }
    if (value < min || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
        return 0;
    if (code)
        *code = value;
    return length;
}

int utf8_put(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

size_t utf8_fault(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        uint64_t eight;
        if (bytes - at >= 8 && (memcpy(&eight, text + at, 8), !(eight & 0x8080808080808080u))) {
            at += 8;
            continue;
        }
        int length = utf8_next(text + at, bytes - at, NULL);
        if (!length)
            return at;
        at += (size_t)length;
    }
    return bytes;
}

size_t utf8_count(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += (text[i] & 0xC0) != 0x80;
    return count;
}

char *utf8_string(const char *text, struct err *err)
{
    static const char replacement[] = "\xef\xbf\xbd";
    enum { REPLACEMENT = sizeof replacement - 1 };
    const size_t bytes = strlen(text);
    size_t faults = 0;
    for (size_t at = 0; (at += utf8_fault(text + at, bytes - at)) < bytes; at++)
        faults++;
    char *copy = mem_alloc(bytes + faults * (REPLACEMENT - 1) + 1, 1, err), *to = copy;
    for (size_t at = 0, good; copy && at < bytes; at += good + 1) {
        good = utf8_fault(text + at, bytes - at);
        memcpy(to, text + at, good);
        to += good;
        if (at + good < bytes) {
            memcpy(to, replacement, REPLACEMENT);
            to += REPLACEMENT;
        }
    }
    return copy;
}

void utf8_make_printable(char *text, size_t bytes, char kept)
{
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)text[i], next = i + 1 < bytes ? (unsigned char)text[i + 1] : 0;
        if (byte == 0xC2 && next >= 0x80 && next < 0xA0)
            text[i] = text[i + 1] = '?';
        else if ((byte < 0x20 && (!kept || text[i] != kept)) || byte == 0x7f)
            text[i] = '?';
    }
}
