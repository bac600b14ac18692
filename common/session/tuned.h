/* --settings FILE: the drafting options that `moe-bench tune` found fastest for a model on a machine (moe-bench(1)).
 *
 * The file is a JSON object. Only `options` is read here, a map of draft, draft-length and policy as in a suite. The other
 * members describe the measurement. "cost" is a cost table (policy/cost.h), so the file can be used as one, too. */
#ifndef MOE_SESSION_TUNED_H
#define MOE_SESSION_TUNED_H

#include "common/model/model.h"
#include "common/session/settings.h"

enum { TUNED_VERSION = 1 };

struct tuned {
    const char *path;                       /* NULL: no file was given; borrowed from the settings */
    struct decode_settings_store *store;    /* storage of the applied options' strings */
    char index[65];                         /* digest of the model file that was measured */
    bool used, costs;                       /* used: the options were applied; costs: the file contains a cost table */
};

/* Reads settings->tuned, if given, and applies the file's options, unless settings already name a drafter, length, tree or
 * policy. *out must outlive the settings; the caller frees it. */
int tuned_read(struct tuned *out, struct decode_settings *settings, struct err *err);
void tuned_free(struct tuned *tuned);

/* Fails if another model file was measured, because costs depend on the format. */
int tuned_check(const struct tuned *tuned, const struct model *model, struct err *err);

#endif
