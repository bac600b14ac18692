#include "common/session/drafts.h"

#include <string.h>

#include "common/draft/drafter.h"

static void add(struct auto_drafts *store, int *count, const char *name)
{
    const struct drafter_class *class = drafter_find(name);
    bool present = false;
    for (int i = 0; i < *count; i++)
        present |= drafter_find(store->item[i]) == class;
    if (!present)
        store->item[(*count)++] = name;
}

int auto_drafts_expand(struct decode_settings *settings, struct auto_drafts *store, const struct hparams *model, bool *found,
                       struct err *err)
{
    const struct strings *named = &settings->draft;
    int count = 0;
    *found = false;
    for (int i = 0; i < named->count; i++)
        *found |= !strcmp(named->items[i], "auto");
    if (!*found)
        return 0;
    if (named->count > DRAFTERS_MAX)
        return err_set(err, ERR_INPUT, "--draft: %d drafters, of at most %d; leave some out", named->count, DRAFTERS_MAX);
    for (int i = 0; i < named->count; i++)
        if (!strcmp(named->items[i], "none"))
            return err_set(err, ERR_INPUT, "--draft: none and auto exclude one another; leave one of the two out");
        else if (strcmp(named->items[i], "auto"))
            store->item[count++] = named->items[i];
    if (model->predictors)
        add(store, &count, "mtp");
    add(store, &count, "ngram");
    settings->draft = (struct strings){store->item, count};
    if (!settings->policy && !settings->tree)
        settings->policy = "dytc-verify";
    return 0;
}
