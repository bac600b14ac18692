/* `--draft auto`: the drafters that are available for a model, and the policy that chooses among them; and --settings, which
 * may contain auto, too. */
#ifndef MOE_SESSION_DRAFTS_H
#define MOE_SESSION_DRAFTS_H

#include <stdbool.h>

#include "common/draft/share.h"
#include "common/model/model.h"
#include "common/session/attached.h"
#include "common/session/settings.h"
#include "common/session/tuned.h"

struct auto_drafts {
    const char *item[DRAFTERS_MAX + ATTACHED_MAX + 4];
    struct attached attached;
    struct tuned tuned;
    char *policy;                       /* owned text of settings->policy; NULL: settings->policy was not set here */
    bool found;                         /* `auto` was among the drafters; if not, the settings are unchanged */
};

/* Must be called before the model is opened: applies the options of settings->tuned; then, if `auto` is among the drafters
 * of `settings`, replaces it by the files attached to the model file `model` (attached.h). *store owns the list and must
 * outlive the settings. Returns 0, or -1 with *err set. */
int auto_drafts_attach(struct decode_settings *settings, struct auto_drafts *store, const char *model, struct err *err);

/* Must be called with the open model: adds the drafters that need no file, after those named and attached: the model's
 * predictors (mtp), the model with parts left out (self), and lookups of repeated text (suffix, ngram). Without a given
 * policy or tree, the policy is dytc-verify, which chooses drafter and length by their costs. For a dense model whose drafts
 * come from --settings, the policy reads the costs of forwards from that file; those of an MoE depend on its experts, too.
 * Returns 0, or -1 with *err set. */
int auto_drafts_expand(struct decode_settings *settings, struct auto_drafts *store, const struct model *model, struct err *err);

/* Passes on the input files that only the attached drafters and --settings name; must be called after auto_drafts_attach. */
int auto_drafts_inputs(const struct auto_drafts *store, opt_visitor *visit, const void *context, struct err *err);

void auto_drafts_free(struct auto_drafts *store);               /* and back to {0} */

#endif
