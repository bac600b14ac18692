/* --settings FILE: the drafting options that `moe-bench tune` found fastest for a model on a machine (moe-bench(1)).
 *
 * The file is a JSON object; `options` is read here, a map of draft, draft-length and policy as in a suite. The rest says what
 * was measured. Its "cost" is a cost table (policy/cost.h), so the file is one, too. */
#ifndef MOE_SESSION_TUNED_H
#define MOE_SESSION_TUNED_H

#include "common/model/model.h"
#include "common/session/settings.h"

enum { TUNED_VERSION = 1 };

struct tuned {
    const char *path;                       /* NULL: no file was given; borrowed from the settings */
    struct decode_settings_store *store;    /* strings of the options taken */
    char index[65];                         /* digest of the model file that was measured */
    bool used, costs;                       /* its options were taken; it has a cost table */
};

/* Reads settings->tuned, if given, and takes its options, unless settings name a drafter, length, tree or policy themselves.
 * *out must outlive the settings; free it. */
int tuned_read(struct tuned *out, struct decode_settings *settings, struct err *err);
void tuned_free(struct tuned *tuned);

/* Fails if another model file was measured: one in another format has other costs. */
int tuned_check(const struct tuned *tuned, const struct model *model, struct err *err);

#endif
