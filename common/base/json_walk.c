#include "common/base/json_walk.h"

#include <string.h>

#include "common/base/utf8.h"

enum { PLAIN_DIGITS = 18 };         /* any number of this many digits fits into 64 bits */

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    return at;
}

/* Computes line and column of a position, from 1. */
static void position_of(const char *begin, const char *at, int *line, int *column)
{
    const char *start = begin;
    *line = 1;
    for (const char *c; (c = memchr(start, '\n', (size_t)(at - start)));) {
        ++*line;
        start = c + 1;
    }
    *column = (int)(at - start) + 1;
}

static int not_json(const char *begin, const char *at, const char *what, struct err *err)
{
    int line, column;
    position_of(begin, at, &line, &column);
    return err_set(err, ERR_INPUT, "not valid JSON, line %d column %d: %s", line, column, what);
}

/* Returns the address after a string; NULL if the string has no end. */
static const char *string_end(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        at += *at == '\\' && at + 1 < end;
    return at < end ? at + 1 : NULL;
}

static const char *value_end(const char *at, const char *end)
{
    size_t depth = 0;
    if (at < end && *at == '"')
        return string_end(at, end);
    if (at < end && *at != '{' && *at != '[') {
        const char *begin = at;
        while (at < end && !is_space(*at) && !memchr(",]}[{\":", *at, 7))
            at++;
        return at > begin ? at : NULL;
    }
    while (at && at < end) {
        if (*at == '"') {
            at = string_end(at, end);
            continue;
        }
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at++;
        if (!depth)
            return at;
    }
    return NULL;
}

int json_whole(struct json_part *out, const char *text, size_t bytes, struct err *err)
{
    const char *end = text + bytes, *at = skip_space(text, end), *after = value_end(at, end);
    if (!after)
        return not_json(text, at, at == end ? "it is empty" : "expected the end of a value", err);
    const char *rest = skip_space(after, end);
    if (rest < end)
        return not_json(text, rest, "something follows the value", err);
    *out = (struct json_part){text, at, (size_t)(after - at)};
    return 0;
}

json_t *json_part_read(struct json_part part, struct err *err)
{
    json_error_t fault;
    int line, column;
    if (part.bytes > JSON_TREE_BYTES) {
        position_of(part.begin, part.text, &line, &column);
        err_set(err, ERR_INPUT, "line %d column %d: a value of %zu bytes, more than the limit of %d", line, column,
                part.bytes, JSON_TREE_BYTES);
        return NULL;
    }
    json_t *value = json_read(part.text, part.bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &fault);
    if (value)
        return value;
    if (json_no_memory(&fault)) {
        err_memory(err);
        return NULL;
    }
    position_of(part.begin, part.text, &line, &column);
    err_set(err, ERR_INPUT, "not valid JSON, line %d column %d: %s", line + fault.line - 1,
            fault.line > 1 ? fault.column : column + fault.column - 1, fault.text);
    return NULL;
}

int json_part_string(struct json_part part, struct text *out, struct err *err)
{
    size_t plain = 1;
    text_clear(out);
    while (plain + 1 < part.bytes && (unsigned char)part.text[plain] >= ' ' && part.text[plain] != '\\')
        plain++;
    if (json_part_is(part, '"') && plain + 1 == part.bytes && utf8_fault(part.text + 1, plain - 1) == plain - 1)
        return text_put(out, part.text + 1, plain - 1, err);
    json_t *value = json_part_read(part, err);
    int rc = -1;
    if (json_is_string(value))
        rc = text_put(out, json_string_value(value), json_string_length(value), err);
    else if (value)
        not_json(part.begin, part.text, "expected a string", err);
    json_decref(value);
    return rc;
}

bool json_part_integer(struct json_part part, int64_t *out)
{
    int64_t plain = 0;
    size_t at = 0;
    while (at < part.bytes && at < PLAIN_DIGITS && part.text[at] >= '0' && part.text[at] <= '9')
        plain = plain * 10 + (part.text[at++] - '0');
    if (at && at == part.bytes && (at == 1 || *part.text != '0')) {
        *out = plain;
        return true;
    }
    json_t *value = json_part_read(part, NULL);
    bool found = json_is_integer(value);
    if (found)
        *out = json_integer_value(value);
    json_decref(value);
    return found;
}

void json_walk_start(struct json_walk *walk, struct json_part whole)
{
    *walk = (struct json_walk){.object = json_part_is(whole, '{'), .at = whole.text + 1, .end = whole.text + whole.bytes};
    walk->key.begin = walk->value.begin = whole.begin;
}

/* Skips one value, which begins at walk->at. */
static int take_part(struct json_walk *walk, struct json_part *part, struct err *err)
{
    const char *after = value_end(walk->at, walk->end);
    if (!after)
        return not_json(part->begin, walk->at, "expected a value", err);
    part->text = walk->at;
    part->bytes = (size_t)(after - walk->at);
    walk->at = skip_space(after, walk->end);
    return 0;
}

int json_walk_next(struct json_walk *walk, struct err *err)
{
    walk->at = skip_space(walk->at, walk->end);
    if (walk->at + 1 == walk->end && *walk->at == (walk->object ? '}' : ']'))
        return 0;
    if (walk->begun && (walk->at == walk->end || *walk->at != ','))
        return not_json(walk->value.begin, walk->at, "expected a comma or the end", err);
    walk->at = skip_space(walk->at + walk->begun, walk->end);
    walk->begun = true;
    if (walk->object) {
        if (walk->at == walk->end || *walk->at != '"' || take_part(walk, &walk->key, err) || walk->at == walk->end ||
            *walk->at != ':')
            return not_json(walk->value.begin, walk->at, "expected a key and a colon", err);
        walk->at = skip_space(walk->at + 1, walk->end);
    }
    return take_part(walk, &walk->value, err) ? -1 : 1;
}

int json_walk_count(struct json_part whole, size_t *count, struct err *err)
{
    struct json_walk walk;
    size_t found = 0;
    int more;
    for (json_walk_start(&walk, whole); (more = json_walk_next(&walk, err)) > 0;)
        found++;
    if (!more)
        *count = found;
    return more;
}

int json_split(struct json_part object, const char *const *names, int count, struct json_part *parts, json_t **rest,
               struct err *err)
{
    struct json_walk walk;
    struct text key = {0};
    json_t *made = json_object();
    size_t bytes = 0;
    int more = made ? 1 : err_memory(err);
    for (int i = 0; i < count; i++)
        parts[i] = (struct json_part){.begin = object.begin};
    for (json_walk_start(&walk, object); more > 0 && (more = json_walk_next(&walk, err)) > 0;) {
        int which = 0;
        if (json_part_string(walk.key, &key, err)) {
            more = -1;
            break;
        }
        while (which < count && strcmp(names[which], key.data))
            which++;
        if (which < count ? parts[which].text != NULL : json_object_get(made, key.data) != NULL) {
            more = not_json(object.begin, walk.key.text, "duplicate object key", err);
        } else if (which < count) {
            parts[which] = walk.value;
        } else {
            bytes += walk.key.bytes + walk.value.bytes;                 /* the rest is too large: the object is refused */
            json_t *value = json_part_read(bytes > JSON_TREE_BYTES ? object : walk.value, err);
            if (!value)
                more = -1;
            else if (json_object_set_new(made, key.data, value))
                more = err_memory(err);
        }
    }
    text_free(&key);
    if (more) {
        json_decref(made);
        return -1;
    }
    *rest = made;
    return 0;
}
