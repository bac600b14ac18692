/* `--draft auto`: the drafters that a model has without further files, and the policy that chooses among them. */
#ifndef MOE_SESSION_DRAFTS_H
#define MOE_SESSION_DRAFTS_H

#include <stdbool.h>

#include "common/draft/share.h"
#include "common/model/hparams.h"
#include "common/session/settings.h"

struct auto_drafts { const char *item[DRAFTERS_MAX + 2]; };

/* Replaces `auto` among the drafters of `settings` by those that are present: the others named there, predictors of the model
 * (mtp), and prompt lookup (ngram). Where neither policy nor tree was given, the policy is dytc-verify, which chooses drafter
 * and length by their costs. The list lies in *store, which must outlive the settings. Writes to *found whether `auto` was
 * there; without it, settings are as before. Returns 0, or -1 with *err set. */
int auto_drafts_expand(struct decode_settings *settings, struct auto_drafts *store, const struct hparams *model, bool *found,
                       struct err *err);

#endif
