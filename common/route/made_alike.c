#include "common/route/made_alike.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

#define VALUE(short, long) {.kind = OPT_KIND_STRING, .letter = short, .name = long}

/* Further options of moe-profile and moe-decode. Any option that is in no table is ignored, and so is its value, unless the
 * value begins with a dash. */
static const struct opt others[] = {
    VALUE(0, "record"), {.kind = OPT_KIND_FLAG, .name = "chat"}, {.kind = OPT_KIND_STRINGS, .name = "template-arg"},
    {.kind = OPT_KIND_FLAG, .name = "parse-special"}, VALUE('c', "context"), VALUE(0, "kv-dtype"), VALUE(0, "activations"),
    VALUE(0, "layers"), VALUE(0, "for"), VALUE(0, "dtype"), VALUE(0, "mask"), VALUE(0, "turns"), VALUE(0, "cut"), OPT_END};

static const char flag_letters[] = "qvh";

/* Returns the number of compared options, which includes titles of the table. */
static int count_options(const struct opt *settings)
{
    int count = sizeof others / sizeof *others - 1;
    for (; settings->kind; settings++)
        count++;
    return count;
}

static const struct opt *option_at(const struct opt *settings, int at)
{
    for (; at && settings->kind; at--)
        settings++;
    return settings->kind ? settings : &others[at];
}

/* Finds an option by its long name or, if that is NULL, its letter; -1: not compared. */
static int find(const struct opt *settings, const char *name, size_t length, char letter)
{
    const struct opt *option;
    for (int i = 0; (option = option_at(settings, i))->kind; i++)
        if (name ? !strncmp(option->name, name, length) && !option->name[length] : option->letter == letter)
            return i;
    return -1;
}

/* The last value counts; those of a repeatable option are joined with " + ". */
static int take(struct text *text, enum opt_kind kind, const char *value, struct err *err)
{
    if (kind != OPT_KIND_STRINGS)
        text_clear(text);
    return text_printf(text, err, "%s%s", text->length ? " + " : "", value);
}

/* Writes the options as given to value[count_options(settings)]. */
static int take_options(struct text *value, const struct opt *settings, const struct header *header, struct err *err)
{
    int at = 1;
    while (at < header->argc) {
        const char *word = header->argv[at++], *next = at < header->argc ? header->argv[at] : "";
        if (!strcmp(word, "--"))
            break;
        if (!strncmp(word, "--", 2)) {
            const char *equals = strchr(word, '=');
            int option = find(settings, word + 2, equals ? (size_t)(equals - word - 2) : strlen(word + 2), 0);
            if (option < 0)
                continue;
            const enum opt_kind kind = option_at(settings, option)->kind;
            const bool flag = kind == OPT_KIND_FLAG;
            at += !equals && !flag;
            if (take(&value[option], kind, flag ? "given" : equals ? equals + 1 : next, err))
                return -1;
            continue;
        }
        for (const char *letter = word + 1; word[0] == '-' && *letter; letter++) {
            int option = find(settings, NULL, 0, *letter);
            if (strchr(flag_letters, *letter))
                continue;
            at += !letter[1];
            if (option >= 0 && take(&value[option], option_at(settings, option)->kind, letter[1] ? letter + 1 : next, err))
                return -1;
            break;
        }
    }
    return 0;
}

/* Compares numbers by value: 0.70 equals 0.7. */
static bool same(const struct text *a, const struct text *b)
{
    if (!a->length || !b->length)
        return a->length == b->length;
    char *end_a, *end_b;
    double one = strtod(a->data, &end_a), other = strtod(b->data, &end_b);
    return !strcmp(a->data, b->data) || (!*end_a && !*end_b && one == other);
}

/* Appends the option to *why, with its values in both streams. */
static int put_difference(struct text *why, const struct opt *option, const struct text *a, const struct text *b,
                          struct err *err)
{
    const char *comma = why->length ? "; " : "", *name = option->name;
    if (option->kind == OPT_KIND_FLAG)
        return text_printf(why, err, "%s%s --%s", comma, a->length ? "with" : "without", name);
    if (!a->length)
        return text_printf(why, err, "%swithout --%s, not with %s", comma, name, b->data);
    return text_printf(why, err, "%s--%s %s, not %s", comma, name, a->data, b->length ? b->data : "without it");
}

int made_alike(const struct opt *settings, const struct header *header, const struct header *other, struct text *why,
               struct err *err)
{
    const int count = count_options(settings);
    struct text *a = mem_alloc(2 * (size_t)count, sizeof *a, err), *b;
    if (!a)
        return -1;
    b = a + count;
    int rc = take_options(a, settings, header_producer(header), err) ||
             take_options(b, settings, header_producer(other), err) ? -1 : 0;
    for (int i = 0; i < count; i++) {
        if (!rc && !same(&a[i], &b[i]))
            rc = put_difference(why, option_at(settings, i), &a[i], &b[i], err);
        text_free(&a[i]);
        text_free(&b[i]);
    }
    mem_free(&a);
    return rc;
}
