#include "common/report/grade_choice.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool digit(char c) { return c >= '0' && c <= '9'; }
static bool letter(char c) { return isalpha((unsigned char)c) && !((unsigned char)c & 0x80); }
static bool part_of_word(char c) { return isalnum((unsigned char)c) || ((unsigned char)c & 0x80) || c == '_' || c == '\''; }

/* A range of a text; begin NULL: none. */
struct span { const char *begin, *end; };

/* Returns the contents of the last closed box, among the last TRIES boxes. */
static struct span last_box(const char *text)
{
    enum { TRIES = 64 };
    int tries = 0;
    for (const char *at = text + strlen(text); at > text && tries < TRIES;) {
        const size_t mark = strncmp(--at, "\\boxed{", 7) == 0 ? 7 : strncmp(at, "\\fbox{", 6) == 0 ? 6 : 0;
        const char *end = at + mark;
        if (!mark)
            continue;
        for (int depth = 1; *end; end++) {
            depth += (*end == '{') - (*end == '}');
            if (!depth)
                return (struct span){at + mark, end};
        }
        tries++;
    }
    return (struct span){NULL, NULL};
}

/* Returns the number after the first "####" that has one on its line. */
static struct span marked_number(const char *text)
{
    for (const char *at = strstr(text, "####"); at; at = strstr(at + 1, "####")) {
        const char *begin = at + strspn(at, "#"), *end = begin + strcspn(begin, "\n");
        for (const char *c = begin; c < end; c++)
            if (digit(*c))
                return (struct span){begin, end};
    }
    return (struct span){NULL, NULL};
}

static bool has_digit(struct span in)
{
    while (in.begin < in.end && !digit(*in.begin))
        in.begin++;
    return in.begin < in.end;
}

const char *grade_number_range(const char *text, const char **stop, bool *first)
{
    const struct span marked = marked_number(text), box = last_box(text);
    *first = marked.begin != NULL;
    if (!marked.begin && !(box.begin && has_digit(box))) {
        *stop = text + strlen(text);
        return text;
    }
    *stop = marked.begin ? marked.end : box.end;
    return marked.begin ? marked.begin : box.begin;
}

static struct span trimmed(struct span in)
{
    while (in.begin < in.end && isspace((unsigned char)*in.begin))
        in.begin++;
    while (in.end > in.begin && isspace((unsigned char)in.end[-1]))
        in.end--;
    return in;
}

/* Returns whether the range is a number, except for a currency or percent sign. */
static bool is_number(struct span in)
{
    in = trimmed(in);
    for (const char *at = in.begin; at < in.end; at++)
        if (!digit(*at) && !strchr(",.-$\\%", *at))
            return false;
    return has_digit(in);
}

/* Returns the letter of "C", "(C)", "C." or "C)", as a capital; '\0' for any other text. */
static char single_letter(const char *text)
{
    struct span in = trimmed((struct span){text, text + strlen(text)});
    if (in.begin < in.end && *in.begin == '(')
        in.begin++;
    if (in.end > in.begin && strchr(").", in.end[-1]))
        in.end--;
    return in.end - in.begin == 1 && letter(*in.begin) ? (char)toupper((unsigned char)*in.begin) : '\0';
}

enum grade_rule grade_choice_rule(const char *expected)
{
    const struct span box = last_box(expected);
    if (marked_number(expected).begin)
        return GRADE_NUMBER;
    if (box.begin)
        return is_number(box) ? GRADE_NUMBER : GRADE_BOXED;
    return single_letter(expected) ? GRADE_LETTER : GRADE_EXACT;
}

int grade_put_boxed(struct text *out, const char *text, struct err *err)
{
    static const struct { const char *from, *to; } changed[] = {
        {"\\left", ""}, {"\\right", ""}, {"\\!", ""}, {"\\,", ""}, {"\\;", ""}, {"\\:", ""}, {"\\ ", ""}, {"\\$", ""},
        {"$", ""}, {"\\dfrac", "\\frac"}, {"\\tfrac", "\\frac"},
    };
    struct span in = last_box(text);
    if (!in.begin)
        in = (struct span){text, text + strlen(text)};
    in = trimmed(in);
    if (in.end > in.begin && in.end[-1] == '.')
        in.end--;
    text_clear(out);
    while (in.begin < in.end) {
        const size_t count = sizeof changed / sizeof *changed;
        size_t i = 0;
        while (i < count && strncmp(in.begin, changed[i].from, strlen(changed[i].from)) != 0)
            i++;
        if (i < count ? text_puts(out, changed[i].to, err)
                      : !isspace((unsigned char)*in.begin) && text_putc(out, *in.begin, err))
            return -1;
        in.begin += i < count ? strlen(changed[i].from) : 1;
    }
    return 0;
}

/* Returns the letter at `at`, after any wrappings of a choice; NULL: there is a word or something else. */
static const char *choice_at(const char *at)
{
    static const char *const wrappings[] = {"\\boxed{", "\\text{", "\\mathrm{", "\\textbf{"};
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < sizeof wrappings / sizeof *wrappings; i++)
            if (!strncmp(at, wrappings[i], strlen(wrappings[i]))) {
                at += strlen(wrappings[i]);
                more = true;
            }
        if (*at && strchr(" \t\n(*[$:\"", *at)) {
            at++;
            more = true;
        }
    }
    return letter(*at) && !part_of_word(at[1]) ? at : NULL;
}

/* Returns the choice that is stated last; ignores "the answer is a number" and "the answer is I think". */
static char stated_choice(const char *text)
{
    static const char *const marks[] = {"answer is", "answer:", "answer**:", "choice is", "option is"};
    char choice = '\0';
    for (const char *at = text; *at; at++)
        for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
            if (strncasecmp(at, marks[i], strlen(marks[i])) != 0)
                continue;
            const char *found = choice_at(at + strlen(marks[i]));
            if (found && !((*found == 'a' || *found == 'I') && found[1] == ' ' && letter(found[2])))
                choice = *found;
        }
    return choice;
}

/* Returns the last capital letter that is not part of a word, except for the words "I" and "A". */
static char lone_capital(const char *text)
{
    char choice = '\0';
    for (const char *at = text; *at; at++) {
        if (*at < 'A' || *at > 'Z' || part_of_word(at[1]) || (at > text && part_of_word(at[-1])))
            continue;
        if ((*at == 'A' || *at == 'I') && at[1] == ' ' && letter(at[2]))
            continue;
        choice = *at;
    }
    return choice;
}

int grade_put_letter(struct text *out, const char *text, struct err *err)
{
    const struct span box = last_box(text);
    const char *begin = text + strspn(text, " \t\r\n(*");
    char choice = stated_choice(text);
    if (!choice && box.begin && choice_at(box.begin))
        choice = *choice_at(box.begin);
    if (!choice && letter(*begin) && (!begin[1] || strchr(".):*\r\n", begin[1])))
        choice = *begin;
    if (!choice)
        choice = single_letter(text);
    if (!choice)
        choice = lone_capital(text);
    text_clear(out);
    return choice ? text_putc(out, (char)toupper((unsigned char)choice), err) : 0;
}
