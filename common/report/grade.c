#include "common/report/grade.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/report/grade_choice.h"
#include "common/report/rouge.h"

const char *const grade_rule_names[] = {"none", "number", "exact", "json", "code", "rouge", "boxed", "letter", NULL};

enum grade_rule grade_rule_of(const char *task, const char *expected)
{
    static const struct { const char *task; enum grade_rule rule; } known[] = {
        {"math", GRADE_NUMBER}, {"maths", GRADE_NUMBER}, {"gsm8k", GRADE_NUMBER}, {"math_reasoning", GRADE_NUMBER},
        {"aime", GRADE_NUMBER}, {"svamp", GRADE_NUMBER}, {"multiarith", GRADE_NUMBER}, {"summ", GRADE_ROUGE},
        {"summary", GRADE_ROUGE}, {"summarization", GRADE_ROUGE}, {"summarisation", GRADE_ROUGE}, {"cnn_dm", GRADE_ROUGE},
        {"cnndm", GRADE_ROUGE}, {"cnn_dailymail", GRADE_ROUGE}, {"xsum", GRADE_ROUGE},
    };
    for (size_t i = 0; task && i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(task, known[i].task))
            return known[i].rule;
    return expected ? grade_choice_rule(expected) : GRADE_EXACT;
}

int grade_rules_cell(struct table *table, unsigned rules, struct err *err)
{
    struct text names = {0};
    int rc = 0;
    for (int i = 0; grade_rule_names[i] && !rc; i++)
        if (rules & 1u << i)
            rc = text_printf(&names, err, "%s%s", names.length ? " " : "", i == GRADE_NONE ? "command" : grade_rule_names[i]);
    rc = rc || table_cell(table, err, "%s", names.length ? names.data : "") ? -1 : 0;
    text_free(&names);
    return rc;
}

bool grade_scores(const char *rule) { return !strcmp(rule, grade_rule_names[GRADE_ROUGE]); }

static bool digit(char c) { return c >= '0' && c <= '9'; }

/* Finds the end of the number that starts with the digit at `at`, and the end of its integer part. */
static const char *number_end(const char *at, const char **whole_end)
{
    const char *end = at;
    while (digit(*end))
        end++;
    if (end - at <= 3)
        while (*end == ',' && digit(end[1]) && digit(end[2]) && digit(end[3]) && !digit(end[4]))
            end += 4;
    *whole_end = end;
    if (*end == '.' && digit(end[1]))
        for (end++; digit(*end); end++)
            continue;
    return end;
}

int grade_number(const char *text, struct text *out, bool *found, struct err *err)
{
    const char *begin = NULL, *end = NULL, *whole_end = NULL, *stop;
    bool first_counts;
    for (const char *at = grade_number_range(text, &stop, &first_counts); at < stop && !(begin && first_counts);) {
        if (!digit(*at)) {
            at++;
            continue;
        }
        begin = at;
        at = end = number_end(at, &whole_end);
    }
    text_clear(out);
    *found = begin != NULL;
    if (!begin)
        return 0;
    bool negative = begin > text && begin[-1] == '-' &&
                    (begin - 1 == text || !(isalnum((unsigned char)begin[-2]) || begin[-2] == ')'));
    const char *fraction_end = end;
    while (fraction_end > whole_end && (fraction_end[-1] == '0' || fraction_end[-1] == '.'))
        fraction_end--;
    const char *first = begin;
    while (first < whole_end - 1 && (*first == '0' || *first == ','))
        first++;
    if (negative && !(*first == '0' && fraction_end == whole_end) && text_putc(out, '-', err))
        return -1;
    for (const char *at = first; at < fraction_end; at++)
        if (*at != ',' && text_putc(out, *at, err))
            return -1;
    return 0;
}

static int put_trimmed(struct text *out, const char *text, struct err *err)
{
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        length--;
    while (length && isspace((unsigned char)*text))
        text++, length--;
    text_clear(out);
    return text_put(out, text, length, err);
}

static bool same(const struct text *a, const struct text *b)
{
    return a->length == b->length && (!a->length || !memcmp(a->data, b->data, a->length));
}

/* Finds the first JSON object in `text`; NULL: none. Only the first TRIES braces are tried. */
static int first_object(const char *text, json_t **out, struct err *err)
{
    enum { TRIES = 64 };
    const char *at = strchr(text, '{');
    *out = NULL;
    for (int tries = 0; at && tries < TRIES && !*out; at = strchr(at + 1, '{'), tries++) {
        json_error_t fault;
        *out = json_read(at, strlen(at), JSON_DISABLE_EOF_CHECK, &fault);
        if (!*out && json_no_memory(&fault))
            return err_memory(err);
    }
    return 0;
}

static bool same_json(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b)) {
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!same_json(json_array_get(a, i), json_array_get(b, i)))
                return false;
        return true;
    }
    if (!json_is_object(a) || !json_is_object(b))
        return json_equal(a, b);
    if (json_object_size(a) != json_object_size(b))
        return false;
    json_object_foreach((json_t *)(uintptr_t)a, key, value) {
        const json_t *other = json_object_get(b, key);
        if (!other || !same_json(value, other))
            return false;
    }
    return true;
}

static int grade_json(const char *text, const char *expected, bool *correct, struct text *found, struct err *err)
{
    json_t *has = NULL, *want = NULL;
    char *shown = NULL;
    int rc = -1;
    text_clear(found);
    if (first_object(text, &has, err) || first_object(expected, &want, err))
        goto done;
    if (has && (!(shown = json_text(has, JSON_COMPACT | JSON_SORT_KEYS, err)) || text_puts(found, shown, err)))
        goto done;
    *correct = has && want && same_json(has, want);
    rc = 0;
done:
    free(shown);
    json_decref(has);
    json_decref(want);
    return rc;
}

enum { TAB = 4 };

/* Returns a line's text without white space at its ends, and its indentation. */
static const char *line_body(const char *at, size_t length, size_t *indent, size_t *body)
{
    size_t first = 0;
    *indent = 0;
    while (first < length && isspace((unsigned char)at[first]))
        *indent += at[first++] == '\t' ? TAB : 1;
    while (length > first && isspace((unsigned char)at[length - 1]))
        length--;
    *body = length - first;
    return at + first;
}

/* Returns the part of a text that is graded, and its length: the first fenced block, or all. */
static const char *fenced(const char *text, size_t *length)
{
    const char *fence = strstr(text, "```"), *begin = fence ? strchr(fence, '\n') : NULL;
    const char *end = begin ? strstr(begin, "\n```") : NULL;
    *length = strlen(text);
    if (!begin)
        return text;
    *length = end ? (size_t)(end - begin) : strlen(begin);
    return begin;
}

static int put_code(struct text *out, const char *text, struct err *err)
{
    size_t length, min = SIZE_MAX, indent, body;
    const char *begin = fenced(text, &length), *end = begin + length;
    text_clear(out);
    for (int pass = 0; pass < 2; pass++)
        for (const char *at = begin, *next; at < end; at = next + (next < end)) {
            next = memchr(at, '\n', (size_t)(end - at));
            next = next ? next : end;
            const char *line = line_body(at, (size_t)(next - at), &indent, &body);
            if (!body)
                continue;
            if (!pass) {
                min = indent < min ? indent : min;
                continue;
            }
            for (size_t i = min; i < indent; i++)
                if (text_putc(out, ' ', err))
                    return -1;
            if (text_put(out, line, body, err) || text_putc(out, '\n', err))
                return -1;
        }
    return 0;
}

static int put_plain(enum grade_rule rule, struct text *out, const char *text, struct err *err)
{
    if (rule == GRADE_BOXED)
        return grade_put_boxed(out, text, err);
    if (rule == GRADE_LETTER)
        return grade_put_letter(out, text, err);
    return rule == GRADE_CODE ? put_code(out, text, err) : put_trimmed(out, text, err);
}

static int compare(enum grade_rule rule, const char *text, const char *expected, bool *correct, struct text *found,
                   struct err *err)
{
    struct text want = {0};
    bool has = true, wanted = true;
    int rc = -1;
    if (rule == GRADE_JSON)
        return grade_json(text, expected, correct, found, err);
    if (rule == GRADE_NUMBER) {
        if (grade_number(text, found, &has, err) || grade_number(expected, &want, &wanted, err))
            goto done;
    } else if (put_plain(rule, found, text, err) || put_plain(rule, &want, expected, err)) {
        goto done;
    }
    if (rule == GRADE_LETTER)
        has = found->length > 0;
    *correct = has && wanted && same(found, &want);
    rc = 0;
done:
    text_free(&want);
    return rc;
}

int grade_answer(enum grade_rule rule, const char *text, const char *expected, bool *correct, double *score,
                 struct text *found, struct err *err)
{
    if (rule == GRADE_ROUGE) {
        if (rouge_l(text, expected, score, err) || put_trimmed(found, text, err))
            return -1;
        *correct = false;
        return 0;
    }
    if (compare(rule, text, expected, correct, found, err))
        return -1;
    *score = *correct;
    return 0;
}
