#include "common/draft/drafter.h"

#include <stddef.h>
#include <string.h>

#include "common/model/head.h"

const struct drafter_class *const drafter_classes[] = {
    &drafter_ngram,
    &drafter_pld,
    &drafter_suffix,
    &drafter_lookahead,
    &drafter_model,
    &drafter_self,
    &drafter_head,
    &drafter_mtp,
    NULL};

enum { DRAFTERS = sizeof drafter_classes / sizeof *drafter_classes - 1 };

static int check_setup(const struct drafter_class *class, const struct drafter_setup *setup, struct err *err)
{
    if (setup->plan && !class->plans)
        return err_set(err, ERR_INPUT, "%s: this drafter has no experts, so a budget cannot limit its drafting; leave "
                       "--budget-phase draft out", class->name);
    if (setup->choice == DRAFT_BRANCHES && !class->branches)
        return err_set(err, ERR_INPUT, "%s: --accept jakiro-star works only with a draft head of kind jakiro_star; choose "
                       "another --accept", class->name);
    return 0;
}

/* Fails with a remedy if the user gave a file, or the kind of a head, in place of a drafter's spec. */
static int check_file(const struct spec *spec, struct err *err)
{
    const char *name = spec_kind(spec), *ending = strrchr(name, '.'), *file = spec_value(spec, 0);
    enum head_kind kind;
    if (ending && !strcmp(ending, ".moe"))
        return err_set(err, ERR_INPUT, "'%s' is a file, not a drafter; write head:file=%s for a draft head, or model:file=%s "
                       "for a draft model", name,
                       name, name);
    if (head_kind_by_name(name, &kind) || !strcmp(name, "eagle"))
        return err_set(err, ERR_INPUT, "'%s' is a kind of draft head, not a drafter; write head:file=%s, because the file "
                       "determines the kind", name,
                       file ? file : "FILE");
    return 0;
}

/* Parses the spec `text` and finds the class of its drafter. *class is NULL for "none". */
static int pick(struct spec **spec, const char *text, const struct drafter_class **class, struct err *err)
{
    const char *names[DRAFTERS + 1] = {"none"};
    bool known = false;
    int which;
    for (int i = 0; i < DRAFTERS; i++)
        names[i + 1] = drafter_classes[i]->name;
    if (spec_parse(spec, text, err))
        return -1;
    for (int i = 0; i <= DRAFTERS; i++)
        known |= !strcmp(spec_kind(*spec), names[i]);
    if (!strcmp(spec_kind(*spec), "auto"))                  /* the code that chooses drafters has replaced `auto`
                                                             * (session/drafts.h) */
        return err_set(err, ERR_INPUT, "auto: only moe-decode and moe-bench choose drafters by themselves; name one, such as "
                       "ngram");
    if (strchr(spec_kind(*spec), ','))
        return err_set(err, ERR_INPUT, "'%s': give each drafter with a --draft of its own, the best first", spec_kind(*spec));
    if ((!known && check_file(*spec, err)) || spec_pick(*spec, "a drafter", names, DRAFTERS + 1, &which, err))
        return -1;
    *class = which ? drafter_classes[which - 1] : NULL;
    return 0;
}

const struct drafter_class *drafter_find(const char *text)
{
    const struct drafter_class *class = NULL;
    struct spec *spec = NULL;
    struct err err = {0};
    int rc = pick(&spec, text, &class, &err);
    spec_free(&spec);
    return rc ? NULL : class;
}

int drafter_open(struct drafter **out, const char *text, const struct drafter_setup *setup, struct err *err)
{
    const struct drafter_class *class;
    struct drafter *drafter = NULL;
    struct spec *spec = NULL;
    int rc = -1;
    if (pick(&spec, text, &class, err))
        goto done;
    if (class) {
        if (check_setup(class, setup, err) || class->open(&drafter, spec, setup, err))
            goto done;
        drafter->class = class;
        drafter->number = setup->number;
        if (drafter->riders > RIDERS_MAX) {
            err_set(err, ERR_INPUT, "%s: would add %d rows to each verification, more than the maximum of %d; give smaller "
                    "settings", class->name, drafter->riders,
                    RIDERS_MAX);
            goto done;
        }
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
