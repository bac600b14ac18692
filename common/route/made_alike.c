#include "common/route/made_alike.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Options of moe-profile and moe-decode. Any other option is ignored, and so is its value, unless the value begins with a dash.
 * */
static const struct decisive { char letter; const char *name; bool flag; } decisive[] = {
    {'n', "max-tokens", false}, {0, "record", false}, {0, "temperature", false}, {0, "top-k", false}, {0, "top-p", false},
    {0, "min-p", false}, {0, "seed", false}, {0, "stop", false}, {0, "ignore-eos", true}, {'d', "draft", false},
    {'K', "draft-length", false}, {0, "tree", false}, {0, "policy", false}, {0, "accept", false}, {'B', "budget", false},
    {0, "budget-phase", false}, {0, "budget-mode", false}, {0, "chat", true}, {0, "template-arg", false},
    {0, "parse-special", true}, {'c', "context", false}, {0, "kv-dtype", false}, {0, "activations", false},
    {0, "force-accept", false}, {0, "force-routes", false}, {0, "layers", false}, {0, "for", false}, {0, "dtype", false},
    {0, "mask", false}, {0, "turns", false}, {0, "cut", false}};

enum { OPTIONS = sizeof decisive / sizeof *decisive };
static const char flag_letters[] = "qvh";

/* The options as given; values of a repeatable option are joined with " + ". */
struct given { struct text value[OPTIONS]; };

static int find(const char *name, size_t length)
{
    for (int i = 0; i < OPTIONS; i++)
        if (!strncmp(decisive[i].name, name, length) && !decisive[i].name[length])
            return i;
    return -1;
}

static int find_letter(char letter)
{
    for (int i = 0; i < OPTIONS; i++)
        if (decisive[i].letter == letter)
            return i;
    return -1;
}

/* The last value counts, except for options that accumulate: drafters, stop texts, template arguments. */
static int take(struct given *given, int option, const char *value, struct err *err)
{
    struct text *text = &given->value[option];
    const char *name = decisive[option].name;
    bool adds = !strcmp(name, "draft") || !strcmp(name, "stop") || !strcmp(name, "template-arg");
    if (!adds)
        text_clear(text);
    return text_printf(text, err, "%s%s", text->length ? " + " : "", value);
}

static int take_options(struct given *given, const struct header *header, struct err *err)
{
    int at = 1;
    while (at < header->argc) {
        const char *word = header->argv[at++], *next = at < header->argc ? header->argv[at] : "";
        if (!strcmp(word, "--"))
            break;
        if (!strncmp(word, "--", 2)) {
            const char *equals = strchr(word, '=');
            int option = find(word + 2, equals ? (size_t)(equals - word - 2) : strlen(word + 2));
            if (option < 0)
                continue;
            at += !equals && !decisive[option].flag;
            if (take(given, option, decisive[option].flag ? "given" : equals ? equals + 1 : next, err))
                return -1;
            continue;
        }
        for (const char *letter = word + 1; word[0] == '-' && *letter; letter++) {
            int option = find_letter(*letter);
            if (strchr(flag_letters, *letter))
                continue;
            at += !letter[1];
            if (option >= 0 && take(given, option, letter[1] ? letter + 1 : next, err))
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

int made_alike(const struct header *header, const struct header *other, struct text *why, struct err *err)
{
    struct given a = {0}, b = {0};
    int rc = take_options(&a, header_producer(header), err) || take_options(&b, header_producer(other), err) ? -1 : 0;
    for (int i = 0; i < OPTIONS; i++) {
        const char *comma = why->length ? "; " : "", *name = decisive[i].name;
        const struct text *one = &a.value[i], *two = &b.value[i];
        if (rc || same(one, two))
            continue;
        if (decisive[i].flag)
            rc = text_printf(why, err, "%s%s --%s", comma, one->length ? "with" : "without", name);
        else if (!one->length)
            rc = text_printf(why, err, "%swithout --%s, not with %s", comma, name, two->data);
        else
            rc = text_printf(why, err, "%s--%s %s, not %s", comma, name, one->data, two->length ? two->data : "without it");
    }
    for (int i = 0; i < OPTIONS; i++) {
        text_free(&a.value[i]);
        text_free(&b.value[i]);
    }
    return rc ? -1 : 0;
}
