#include "common/draft/drafter.h"

#include <string.h>

#include "common/cli/nearest.h"

const struct drafter_class *const drafter_classes[] = {&drafter_ngram, &drafter_model, NULL};

static int find_class(const struct drafter_class **out, const char *kind, struct err *err)
{
    struct nearest nearest = {.word = kind};
    nearest_offer(&nearest, "none");
    for (const struct drafter_class *const *class = drafter_classes; *class; class++) {
        nearest_offer(&nearest, (*class)->name);
        if (strcmp(kind, (*class)->name) == 0) {
            *out = *class;
            return 0;
        }
    }
    if (nearest.best)
        return err_set(err, ERR_INPUT, "'%s' is not a drafter; did you mean %s?", kind, nearest.best);
    return err_set(err, ERR_INPUT, "'%s' is not a drafter; there are none, ngram and model", kind);
}

int drafter_open(struct drafter **out, const char *text, const struct drafter_setup *setup, struct err *err)
{
    const struct drafter_class *class = NULL;
    struct drafter *drafter = NULL;
    struct spec *spec = NULL;
    int rc = -1;
    if (spec_parse(&spec, text, err))
        goto done;
    if (strcmp(spec_kind(spec), "none") != 0) {
        if (find_class(&class, spec_kind(spec), err))
            goto done;
        if (setup->plan && !class->plans) {
            err_set(err, ERR_INPUT, "%s: a budget for drafting, but this drafter has no experts; leave --budget-phase draft "
                    "out", class->name);
            goto done;
        }
        if (class->open(&drafter, spec, setup, err))
            goto done;
        drafter->class = class;
        drafter->number = setup->number;
    }
    if (spec_end(spec, err))
        goto done;
    *out = drafter;
    drafter = NULL;
    rc = 0;
done:
    drafter_close(&drafter);
    spec_free(&spec);
    return rc;
}

void drafter_close(struct drafter **drafter)
{
    if (*drafter)
        (*drafter)->class->free(*drafter);
    *drafter = NULL;
}
