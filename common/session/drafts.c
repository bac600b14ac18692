#include "common/session/drafts.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/draft/drafter.h"
#include "common/model/hparams.h"

static bool has(const struct decode_settings *settings, const struct drafter_class *class)
{
    for (int i = 0; i < settings->draft.count; i++)
        if (drafter_find(settings->draft.items[i]) == class)
            return true;
    return false;
}

/* Adds the drafter unless one of its kind exists already, or there are as many as can be used. */
static void add(struct decode_settings *settings, struct auto_drafts *store, const char *name)
{
    if (settings->draft.count < DRAFTERS_MAX && !has(settings, drafter_find(name)))
        store->item[settings->draft.count++] = name;
}

int auto_drafts_attach(struct decode_settings *settings, struct auto_drafts *store, const char *model, struct err *err)
{
    const struct strings *named = &settings->draft;
    int count = 0;
    if (tuned_read(&store->tuned, settings, err))
        return -1;
    for (int i = 0; i < named->count; i++)
        store->found |= !strcmp(named->items[i], "auto");
    if (!store->found)
        return 0;
    if (named->count > DRAFTERS_MAX)
        return err_set(err, ERR_INPUT, "--draft: %d drafters are given, more than the maximum of %d; leave some out",
                       named->count, DRAFTERS_MAX);
    for (int i = 0; i < named->count; i++)
        if (!strcmp(named->items[i], "none"))
            return err_set(err, ERR_INPUT, "--draft: none and auto exclude each other; leave one of the two out");
        else if (strcmp(named->items[i], "auto"))
            store->item[count++] = named->items[i];
    if (attached_read(&store->attached, model, err))
        return -1;
    const int given = count;
    for (int i = 0; i < store->attached.count; i++) {
        bool twice = false;
        for (int other = 0; other < given; other++)
            twice |= !strcmp(store->item[other], store->attached.draft[i]);
        if (!twice)
            store->item[count++] = store->attached.draft[i];
    }
    settings->draft = (struct strings){store->item, count};
    return 0;
}

/* Sets the policy that chooses among the drafters. */
static int choose_policy(struct decode_settings *settings, struct auto_drafts *store, const struct hparams *shape,
                         struct err *err)
{
    static const char name[] = "dytc-verify";
    const struct tuned *tuned = &store->tuned;
    settings->policy = name;
    if (!tuned->used || !tuned->costs || shape->router.experts || strchr(tuned->path, ','))       /* a comma ends a setting */
        return 0;
    struct text text = {0};
    if (text_printf(&text, err, "%s:cost=%s", name, tuned->path)) {
        text_free(&text);
        return -1;
    }
    settings->policy = store->policy = text.data;
    return 0;
}

int auto_drafts_expand(struct decode_settings *settings, struct auto_drafts *store, const struct model *model, struct err *err)
{
    enum { SELF_LAYERS = 4 };           /* with fewer layers too little would be left out */
    const struct hparams *shape = model_hparams(model);
    if (tuned_check(&store->tuned, model, err))
        return -1;
    if (!store->found)
        return 0;
    if (attached_check(&store->attached, model, err))
        return -1;
    if (shape->predictors)
        add(settings, store, "mtp");
    if (shape->layers >= SELF_LAYERS)
        add(settings, store, "self");
    add(settings, store, "suffix");
    add(settings, store, "ngram");
    return !settings->policy && !settings->tree ? choose_policy(settings, store, shape, err) : 0;
}

int auto_drafts_inputs(const struct auto_drafts *store, opt_visitor *visit, const void *context, struct err *err)
{
    const struct attached *attached = &store->attached;
    if (attached->path && visit(context, "attached drafters", attached->path, err))
        return -1;
    for (int i = 0; i < attached->count; i++)
        if (visit(context, "attached drafter", attached->file[i], err))
            return -1;
    return store->tuned.store ? decode_settings_inputs(store->tuned.store, visit, context, err) : 0;
}

void auto_drafts_free(struct auto_drafts *store)
{
    attached_free(&store->attached);
    tuned_free(&store->tuned);
    mem_free(&store->policy);
    *store = (struct auto_drafts){0};
}
