#include "common/cli/spec.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/cli/nearest.h"
#include "common/cli/number.h"

enum { SETTINGS = 32 };

struct spec {
    char *kind;                                 /* owns the memory of all names and values */
    struct { const char *key, *value; } given[SETTINGS];
    const char *asked[SETTINGS];                /* "new|old" */
    char name[SETTINGS][32];                    /* first of these names */
    int givens, askeds;
    const char *twice;                          /* the key given under both of its names */
};

void spec_free(struct spec **spec)
{
    if (*spec)
        mem_free(&(*spec)->kind);
    mem_free(spec);
}

/* Terminates the word at *at at the first `stop` or NUL, removes backslashes, and moves *at past it. */
static char *take_word(char **at, const char *stops, char *stopped)
{
    char *word = *at, *from = *at, *to = *at;
    while (*from && !strchr(stops, *from)) {
        if (*from == '\\' && from[1])
            from++;
        *to++ = *from++;
    }
    *stopped = *from;
    *at = *from ? from + 1 : from;
    *to = '\0';
    return word;
}

static int parse_settings(struct spec *spec, char *at, struct err *err)
{
    char stopped = ',';
    while (stopped == ',') {
        const char *key = take_word(&at, "=,", &stopped);
        if (stopped != '=' || !*key)
            return err_set(err, ERR_INPUT, "%s: '%s' is not of the form key=value; write KIND:key=value,...", spec->kind, key);
        const char *value = take_word(&at, ",", &stopped);
        for (int i = 0; i < spec->givens; i++)
            if (strcmp(spec->given[i].key, key) == 0)
                return err_set(err, ERR_INPUT, "%s: %s is given twice", spec->kind, key);
        if (spec->givens == SETTINGS)
            return err_set(err, ERR_INPUT, "%s: more than %d settings are given", spec->kind, SETTINGS);
        spec->given[spec->givens].key = key;
        spec->given[spec->givens++].value = value;
    }
    return 0;
}

int spec_parse(struct spec **out, const char *text, struct err *err)
{
    struct spec *spec = mem_alloc(1, sizeof *spec, err);
    if (!spec)
        return -1;
    spec->kind = mem_string(text, err);
    if (!spec->kind) {
        spec_free(&spec);
        return -1;
    }
    char *colon = strchr(spec->kind, ':');
    if (colon)
        *colon = '\0';
    if (!*spec->kind)
        err_set(err, ERR_INPUT, "'%s' does not begin with a kind; write KIND or KIND:key=value,...", text);
    if (!*spec->kind || (colon && parse_settings(spec, colon + 1, err))) {
        spec_free(&spec);
        return -1;
    }
    *out = spec;
    return 0;
}

/* Returns whether `name` is one of the names of a key, "new|old". */
static bool names_key(const char *key, const char *name)
{
    const size_t length = strlen(name);
    for (;; key = strchr(key, '|') + 1) {
        if (strcspn(key, "|") == length && memcmp(key, name, length) == 0)
            return true;
        if (!strchr(key, '|'))
            return false;
    }
}

static int first_name(const char *key) { return (int)strcspn(key, "|"); }

/* Returns the value given for the key, or NULL; marks the key as known. */
static const char *find_value(struct spec *spec, const char *key)
{
    const char *value = NULL;
    if (spec->askeds < SETTINGS) {
        snprintf(spec->name[spec->askeds], sizeof spec->name[0], "%.*s", first_name(key), key);
        spec->asked[spec->askeds++] = key;
    }
    for (int i = 0; i < spec->givens; i++)
        if (names_key(key, spec->given[i].key)) {
            spec->twice = value ? key : spec->twice;
            value = spec->given[i].value;
        }
    return value;
}

static int at_key(const struct spec *spec, const char *key, int failed, struct err *err)
{
    return failed ? err_at(err, "%s: %.*s", spec->kind, first_name(key), key) : 0;
}

int spec_int(struct spec *spec, const char *key, int otherwise, int min, int max, int *out, struct err *err)
{
    const char *value = find_value(spec, key);
    if (value)
        return at_key(spec, key, number_int(value, min, max, out, err), err);
    *out = otherwise;
    return 0;
}

int spec_float(struct spec *spec, const char *key, double otherwise, double min, double max, double *out, struct err *err)
{
    const char *value = find_value(spec, key);
    if (value)
        return at_key(spec, key, number_float(value, min, max, out, err), err);
    *out = otherwise;
    return 0;
}

int spec_choice(struct spec *spec, const char *key, int otherwise, const char *const *choices, int *out, struct err *err)
{
    const char *value = find_value(spec, key);
    if (value)
        return at_key(spec, key, number_choice(value, choices, out, err), err);
    *out = otherwise;
    return 0;
}

int spec_text(struct spec *spec, const char *key, const char *otherwise, const char **out, struct err *err)
{
    const char *value = find_value(spec, key);
    if (value && !*value)
        return err_set(err, ERR_INPUT, "%s: %.*s: is empty", spec->kind, first_name(key), key);
    *out = value ? value : otherwise;
    return 0;
}

const char *spec_kind(const struct spec *spec) { return spec->kind; }

const char *spec_value(const struct spec *spec, int n) { return n < spec->givens ? spec->given[n].value : NULL; }

static int append(struct err *err, const char *first, const char *second)
{
    size_t used = err ? strlen(err->text) : 0;
    if (err)
        snprintf(err->text + used, sizeof err->text - used, "%s%s", first, second);
    return -1;
}

/* Writes a list of names: "static, cascade and off". */
static int list_names(struct text *out, const char *const *names, int count, struct err *err)
{
    for (int i = 0; i < count; i++)
        if (text_printf(out, err, "%s%s", i == 0 ? "" : i == count - 1 ? " and " : ", ", names[i]))
            return -1;
    return 0;
}

int spec_pick(const struct spec *spec, const char *what, const char *const *names, int count, int *out, struct err *err)
{
    struct nearest nearest = {.word = spec->kind};
    struct text list = {0};
    for (int i = 0; i < count; i++) {
        nearest_offer(&nearest, names[i]);
        if (strcmp(spec->kind, names[i]) == 0) {
            *out = i;
            return 0;
        }
    }
    if (nearest.best)
        return err_set(err, ERR_INPUT, "'%s' is not %s; did you mean %s?", spec->kind, what, nearest.best);
    if (!list_names(&list, names, count, err))
        err_set(err, ERR_INPUT, "'%s' is not %s; there %s %s", spec->kind, what, count == 1 ? "is" : "are", list.data);
    text_free(&list);
    return -1;
}

int spec_end(const struct spec *spec, struct err *err)
{
    if (spec->twice)
        return err_set(err, ERR_INPUT, "%s: %.*s is given twice, because %s are two names of one setting; give one", spec->kind,
                       first_name(spec->twice), spec->twice, spec->twice);
    for (int i = 0; i < spec->givens; i++) {
        struct nearest nearest = {.word = spec->given[i].key};
        int known = 0;
        for (int j = 0; j < spec->askeds; j++) {
            known |= names_key(spec->asked[j], spec->given[i].key);
            nearest_offer(&nearest, spec->name[j]);
        }
        if (known)
            continue;
        err_set(err, ERR_INPUT, "%s: unknown setting %s%s", spec->kind, nearest.word,
                nearest.best ? "; did you mean " : spec->askeds ? "; its settings are" : "; it has no settings");
        if (nearest.best)
            return append(err, nearest.best, "?");
        for (int j = 0; j < spec->askeds; j++)
            append(err, j ? ", " : " ", spec->name[j]);
        return -1;
    }
    return 0;
}
