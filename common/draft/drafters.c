#include "common/draft/drafters.h"

#include <string.h>

static int check_names(const char *const *text, int count, struct err *err)
{
    if (count > DRAFTERS_MAX)
        return err_set(err, ERR_INPUT, "%d drafters are given, more than the maximum of %d; leave some out", count,
                       DRAFTERS_MAX);
    for (int i = 0; count > 1 && i < count; i++)
        if (!strcmp(text[i], "none"))
            return err_set(err, ERR_INPUT, "none: cannot be combined with other drafters; leave out none or the others");
    return 0;
}

/* Returns whether drafter `which` gets the expert budget for drafting. The budget goes to all drafters that support one; if
 * none does, it goes to the first, whose open then fails with the reason. */
static bool takes_plan(const char *const *text, int count, int which)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        const struct drafter_class *class = drafter_find(text[i]);
        any |= class && class->plans;
        if (i == which && class && class->plans)
            return true;
    }
    return !any && !which;
}

int drafters_open(struct drafters *out, const char *const *text, int count, const struct drafter_setup *setup, struct err *err)
{
    struct drafters made = {.count = 0};
    if (check_names(text, count, err))
        return -1;
    for (int i = 0; i < count; i++) {
        struct drafter_setup one = *setup;
        one.number = i;
        one.plan = takes_plan(text, count, i) ? setup->plan : NULL;
        if (drafter_open(&made.item[made.count], text[i], &one, err)) {
            drafters_close(&made);
            return -1;
        }
        made.count += made.item[made.count] != NULL;
    }
    *out = made;
    return 0;
}

void drafters_close(struct drafters *drafters)
{
    for (int i = 0; i < drafters->count; i++)
        drafter_close(&drafters->item[i]);
    drafters->count = 0;
}

int drafters_begin(struct drafters *drafters, const struct draft_text *text, const int32_t *token, int count, struct err *err)
{
    for (int i = 0; i < drafters->count; i++)
        if (drafters->item[i]->class->begin(drafters->item[i], text, err))
            return -1;
    return drafters_commit(drafters, token, count, err);
}

int drafters_commit(struct drafters *drafters, const int32_t *token, int count, struct err *err)
{
    for (int i = 0; i < drafters->count; i++)
        if (drafters->item[i]->class->commit(drafters->item[i], token, count, err))
            return -1;
    return 0;
}

int drafters_observe(struct drafters *drafters, const struct target_view *view, struct err *err)
{
    for (int i = 0; i < drafters->count; i++) {
        struct drafter *drafter = drafters->item[i];
        if (drafter->class->observe && drafter->class->observe(drafter, view, err))
            return -1;
    }
    return 0;
}

static int add_layer(struct feature_request *out, int layer, struct err *err)
{
    int at = 0;
    while (at < out->count && out->layer[at] < layer)
        at++;
    if (at < out->count && out->layer[at] == layer)
        return 0;
    if (out->count == FEATURES_MAX)
        return err_set(err, ERR_INPUT, "the drafters together read the states of more than %d layers; leave a drafter out",
                       FEATURES_MAX);
    for (int above = out->count++; above > at; above--)
        out->layer[above] = out->layer[above - 1];
    out->layer[at] = layer;
    return 0;
}

int drafters_features(const struct drafters *drafters, struct feature_request *out, struct err *err)
{
    struct feature_request all = {.count = 0};
    for (int i = 0; i < drafters->count; i++)
        for (int at = 0; at < drafters->item[i]->features.count; at++)
            if (add_layer(&all, drafters->item[i]->features.layer[at], err))
                return -1;
    *out = all;
    return 0;
}

int drafters_riders(const struct drafters *drafters)
{
    int rows = 0;
    for (int i = 0; i < drafters->count; i++)
        rows += drafters->item[i]->riders;
    return rows;
}

void drafters_reset(struct drafters *drafters)
{
    for (int i = 0; i < drafters->count; i++) {
        drafters->item[i]->bytes = drafters->item[i]->read = 0;
        drafters->item[i]->read_s = 0;
    }
}

void drafters_collect(const struct drafters *drafters, struct draft_share *share)
{
    for (int i = 0; i < drafters->count; i++) {
        share[i].bytes = drafters->item[i]->bytes;
        share[i].caught_up = drafters->item[i]->read;
        share[i].caught_up_s = drafters->item[i]->read_s;
    }
}
