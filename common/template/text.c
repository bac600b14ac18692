#include "common/template/text.h"

#include <string.h>

#include <utf8proc.h>

#include "common/base/utf8.h"

/* Returns whether a character is white space as defined by Python's str.isspace. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_letter(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

int text_case(struct render *r, const struct string *s, enum text_case to, struct value *out)
{
    struct builder builder = {0};
    bool inside = false;
    for (size_t at = 0; at < s->bytes;) {
        uint32_t code = 0;
        char text[4];
        int length = utf8_next(s->data + at, s->bytes - at, &code);
        bool upper = to == CASE_UPPER || (to != CASE_LOWER && !inside);
        inside = to == CASE_CAPITALIZE || is_letter(code);
        code = (uint32_t)(upper ? (to == CASE_UPPER ? utf8proc_toupper : utf8proc_totitle)((utf8proc_int32_t)code)
                                : utf8proc_tolower((utf8proc_int32_t)code));
        if (builder_put(r, &builder, text, (size_t)utf8_put(text, code), s->mask ? s->mask[at] : s->content))
            return -1;
        at += (size_t)length;
    }
    return builder_end(r, &builder, out);
}

static bool in_set(const struct string *set, const char *text, int length, uint32_t code)
{
    if (!set)
        return is_space(code);
    for (size_t at = 0; at < set->bytes;) {
        int other = utf8_next(set->data + at, set->bytes - at, NULL);
        if (other == length && !memcmp(set->data + at, text, (size_t)length))
            return true;
        at += (size_t)other;
    }
    return false;
}

int text_strip(struct render *r, const struct string *s, const struct string *set, bool left, bool right, struct value *out)
{
    size_t begin = 0, end = s->bytes;
    uint32_t code = 0;
    while (left && begin < end) {
        int length = utf8_next(s->data + begin, end - begin, &code);
        if (!in_set(set, s->data + begin, length, code))
            break;
        begin += (size_t)length;
    }
    while (right && begin < end) {
        size_t at = end - 1;
        while (at > begin && (s->data[at] & 0xC0) == 0x80)
            at--;
        utf8_next(s->data + at, end - at, &code);
        if (!in_set(set, s->data + at, (int)(end - at), code))
            break;
        end = at;
    }
    if (render_charge(r, (set ? set->bytes + 1 : 1) * (s->bytes - (end - begin))))
        return -1;
    return value_part(r, s, begin, end, out);
}

static int part_put(struct render *r, const struct string *s, size_t begin, size_t end, struct value *list)
{
    struct value part;
    return value_part(r, s, begin, end, &part) || list_put(r, list->as.list, part) ? -1 : 0;
}

static int split_spaces(struct render *r, const struct string *s, int64_t max, struct value *out)
{
    size_t at = 0, next;
    uint32_t code = 0;
    for (;;) {
        while (at < s->bytes && (next = (size_t)utf8_next(s->data + at, s->bytes - at, &code), is_space(code)))
            at += next;
        if (at == s->bytes)
            return 0;
        size_t begin = at;
        if (max-- == 0)
            return part_put(r, s, begin, s->bytes, out);
        while (at < s->bytes && (next = (size_t)utf8_next(s->data + at, s->bytes - at, &code), !is_space(code)))
            at += next;
        if (part_put(r, s, begin, at, out))
            return -1;
    }
}

int text_split(struct render *r, const struct string *s, const struct string *separator, int64_t max, struct value *out)
{
    size_t begin = 0;
    if (value_list(r, out) || render_charge(r, s->bytes))
        return -1;
    if (!separator)
        return split_spaces(r, s, max, out);
    if (!separator->bytes)
        return render_fail(r, "an empty separator");
    while (max-- != 0) {
        const char *found = memmem(s->data + begin, s->bytes - begin, separator->data, separator->bytes);
        if (!found)
            break;
        size_t end = (size_t)(found - s->data);
        if (part_put(r, s, begin, end, out))
            return -1;
        begin = end + separator->bytes;
    }
    return part_put(r, s, begin, s->bytes, out);
}

/* Returns the length of the line end at `at`; 0 if there is none. */
static size_t line_end_bytes(const struct string *s, size_t at)
{
    const unsigned char *p = (const unsigned char *)s->data + at;
    size_t left = s->bytes - at;
    if (p[0] == '\r')
        return left > 1 && p[1] == '\n' ? 2 : 1;
    if ((p[0] >= '\n' && p[0] <= '\f') || (p[0] >= 0x1c && p[0] <= 0x1e))
        return 1;
    if (left > 1 && p[0] == 0xc2 && p[1] == 0x85)
        return 2;
    return left > 2 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9) ? 3 : 0;
}

size_t text_line_end(const struct string *s, size_t begin, size_t *next)
{
    size_t end = begin, bytes = 0;
    while (end < s->bytes && !(bytes = line_end_bytes(s, end)))
        end++;
    *next = end + bytes;
    return end;
}

int text_lines(struct render *r, const struct string *s, struct value *out)
{
    if (value_list(r, out) || render_charge(r, s->bytes))
        return -1;
    for (size_t begin = 0, next; begin < s->bytes; begin = next) {
        size_t end = text_line_end(s, begin, &next);
        if (part_put(r, s, begin, end, out))
            return -1;
    }
    return 0;
}

static int put_part(struct render *r, struct builder *builder, const struct string *s, size_t begin, size_t end)
{
    struct string part = *s;
    part.data += begin;
    part.bytes = end - begin;
    if (part.mask)
        part.mask += begin;
    return builder_put_string(r, builder, &part);
}

int text_replace(struct render *r, const struct string *s, const struct string *from, const struct string *to, int64_t max,
                 struct value *out)
{
    struct builder builder = {0};
    size_t begin = 0;
    if (!from->bytes)
        return render_fail(r, "replacing an empty string is not supported");
    while (max-- != 0) {
        const char *found = memmem(s->data + begin, s->bytes - begin, from->data, from->bytes);
        if (!found)
            break;
        size_t end = (size_t)(found - s->data);
        if (put_part(r, &builder, s, begin, end) || builder_put_string(r, &builder, to))
            return -1;
        begin = end + from->bytes;
    }
    return put_part(r, &builder, s, begin, s->bytes) || builder_end(r, &builder, out) ? -1 : 0;
}

int text_join(struct render *r, const struct list *list, const struct string *separator, struct value *out)
{
    struct builder builder = {0};
    for (size_t i = 0; i < list->n; i++)
        if ((i && builder_put_string(r, &builder, separator)) || write_value(r, &builder, &list->items[i]))
            return -1;
    return builder_end(r, &builder, out);
}

int dict_items(struct render *r, const struct dict *dict, struct value *out)
{
    if (value_list(r, out))
        return -1;
    for (size_t i = 0; i < dict->n; i++) {
        struct value pair, key;
        if (value_list(r, &pair) || dict_key(r, dict, i, &key) ||
            list_put(r, pair.as.list, key) || list_put(r, pair.as.list, dict->items[i]) || list_put(r, out->as.list, pair))
            return -1;
        pair.as.list->tuple = true;
    }
    return 0;
}
