#include "common/report/grade.h"

#include <ctype.h>
#include <string.h>

const char *const grade_rule_names[] = {"none", "number", "exact", NULL};

enum grade_rule grade_rule_of_task(const char *task)
{
    static const char *const mathematics[] = {"math", "maths", "gsm8k", "math_reasoning", "aime", "svamp", "multiarith"};
    for (size_t i = 0; task && i < sizeof mathematics / sizeof *mathematics; i++)
        if (!strcasecmp(task, mathematics[i]))
            return GRADE_NUMBER;
    return GRADE_EXACT;
}

static bool digit(char c) { return c >= '0' && c <= '9'; }

/* The number that starts with the digit at `at`: the end of its whole part and of all of it. */
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
    const char *begin = NULL, *end = NULL, *whole_end = NULL;
    for (const char *at = text; *at;) {
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

int grade_answer(enum grade_rule rule, const char *text, const char *expected, bool *correct, struct text *found,
                 struct err *err)
{
    struct text want = {0};
    bool has = true, wanted = true;
    int rc = -1;
    if (rule == GRADE_NUMBER) {
        if (grade_number(text, found, &has, err) || grade_number(expected, &want, &wanted, err))
            goto done;
    } else if (put_trimmed(found, text, err) || put_trimmed(&want, expected, err)) {
        goto done;
    }
    *correct = has && wanted && same(found, &want);
    rc = 0;
done:
    text_free(&want);
    return rc;
}
