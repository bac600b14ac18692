#include "common/base/json.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/base/text.h"

static _Thread_local bool failed;               /* an allocation of jansson failed since this was cleared */
static _Thread_local bool reading, too_much;    /* reading only: the tree exceeds `room`, so further allocations fail */
static _Thread_local size_t held, room;         /* bytes of the tree so far */

static void *watched_malloc(size_t bytes)
{
    too_much |= reading && (bytes > room || held > room - bytes);
    void *block = too_much ? NULL : malloc(bytes);
    failed |= !block;
    held += malloc_usable_size(block);
    return block;
}

static void watched_free(void *block)
{
    const size_t bytes = malloc_usable_size(block);
    held -= bytes < held ? bytes : held;        /* freed memory may have been allocated before the limit was set */
    free(block);
}

__attribute__((constructor)) static void watch(void) { json_set_alloc_funcs(watched_malloc, watched_free); }

static bool beyond_64_bits(const char *integer, size_t bytes)
{
    const bool negative = *integer == '-';
    const char *max = negative ? "9223372036854775808" : "9223372036854775807";
    const size_t digits = bytes - negative;
    return digits != strlen(max) ? digits > strlen(max) : memcmp(integer + negative, max, digits) > 0;
}

/* Appends "e0" to each integer beyond 64 bits, which makes it a real. */
static int put_reals(struct text *out, const char *text, size_t bytes)
{
    const char *end = text + bytes, *from = text, *at = text;
    bool quoted = false;
    while (at < end) {
        if (quoted || !memchr("-0123456789", *at, 11)) {
            quoted ^= *at == '"';
            at += quoted && *at == '\\' && at + 1 < end ? 2 : 1;
            continue;
        }
        const char *number = at;
        bool integer = true;
        for (; at < end && memchr("+-.eE0123456789", *at, 15); at++)
            integer &= !memchr(".eE", *at, 3);
        if (!integer || !beyond_64_bits(number, (size_t)(at - number)))
            continue;
        if (text_put(out, from, (size_t)(at - from), NULL) || text_puts(out, "e0", NULL))
            return -1;
        from = at;
    }
    return text_put(out, from, (size_t)(end - from), NULL);
}

static json_t *read_tree(const char *text, size_t bytes, size_t flags, json_error_t *fault)
{
    held = 0;
    room = bytes < (SIZE_MAX - JSON_TREE_ROOM) / 2 ? 2 * bytes + JSON_TREE_ROOM : SIZE_MAX;
    failed = too_much = false;
    reading = true;
    json_t *value = json_loadb(text, bytes, flags, fault);
    reading = false;
    if (!failed)
        return value;
    json_decref(value);
    *fault = (json_error_t){.line = 1, .column = 1};
    if (too_much)
        snprintf(fault->text, sizeof fault->text, "too many values for so short a text: they take more than %zu MiB",
                 room >> 20);
    too_much = false;
    return NULL;
}

json_t *json_read(const char *text, size_t bytes, size_t flags, json_error_t *fault)
{
    struct text reals = {0};
    json_t *value = read_tree(text, bytes, flags, fault);
    if (value || json_error_code(fault) != json_error_numeric_overflow)
        return value;
    if (put_reals(&reals, text, bytes))
        *fault = (json_error_t){.line = 1, .column = 1};
    else
        value = read_tree(reals.data, reals.length, flags, fault);
    text_free(&reals);
    return value;
}

bool json_no_memory(const json_error_t *fault) { return !*fault->text || json_error_code(fault) == json_error_out_of_memory; }

json_t *json_file(const char *path, size_t limit, const char *what, struct err *err)
{
    struct text text = {0};
    json_error_t fault;
    json_t *value = NULL;
    if (file_read(&text, path, limit, err))
        return NULL;
    value = json_read(text.data ? text.data : "", text.length, JSON_REJECT_DUPLICATES, &fault);
    if (!value && json_no_memory(&fault))
        err_memory(err);
    else if (!value)
        err_set(err, ERR_INPUT, "%s:%d: not JSON: %s; expected %s", strcmp(path, "-") ? path : "standard input",
                fault.line < 1 ? 1 : fault.line, fault.text, what);
    text_free(&text);
    return value;
}

/* Shortens each real of a dump in place to the fewest digits that read back the same: jansson writes all 17. A point or an
 * exponent is kept. */
static void shorten_reals(char *text)
{
    char *to = text;
    for (const char *at = text; *at;) {
        const char *number = at;
        char digits[NUMERAL_ROOM];
        if (*at == '"') {
            do
                at += *at == '\\' ? 2 : 1;
            while (*at != '"');
            at++;
        } else {
            at += strspn(at, "+-.eE0123456789");
            at += at == number;
        }
        size_t bytes = (size_t)(at - number);
        if (memchr("-0123456789", *number, 11) && (memchr(number, '.', bytes) || memchr(number, 'e', bytes))) {
            numeral_real(digits, strtod(number, NULL), false);
            strcat(digits, strpbrk(digits, ".e") ? "" : ".0");
            bytes = strlen(digits) < bytes ? strlen(digits) : bytes;
            number = strlen(digits) == bytes ? digits : number;
        }
        memmove(to, number, bytes);
        to += bytes;
    }
    *to = '\0';
}

char *json_text(const json_t *value, size_t flags, struct err *err)
{
    failed = false;
    size_t bytes = json_dumpb(value, NULL, 0, flags);           /* counts alone */
    char *text = bytes ? mem_alloc(bytes + 1, 1, err) : NULL;
    if (text && json_dumpb(value, text, bytes, flags) == bytes && !failed) {
        if (!(flags & JSON_REAL_PRECISION(31)))
            shorten_reals(text);
        return text;
    }
    mem_free(&text);
    err_memory(err);
    return NULL;
}

int json_write(const char *path, const json_t *value, size_t flags, struct err *err)
{
    struct text line = {0};
    char *text = json_text(value, flags, err);
    int rc = !text || text_printf(&line, err, "%s\n", text) || output_whole(path, &line, err) ? -1 : 0;
    text_free(&line);
    mem_free(&text);
    return rc;
}

int json_line(struct text *out, json_t *object, struct err *err)
{
    char *line = object ? json_text(object, JSON_COMPACT, err) : NULL;
    int rc = line ? text_printf(out, err, "%s\n", line) : err_memory(err);
    mem_free(&line);
    json_decref(object);
    return rc;
}

json_t *json_finite(double value) { return isfinite(value) ? json_real(value) : json_null(); }
