/* The settings of a suite written out: "vary" says what takes several values, and means every combination of them.
 *
 *   "settings": [{"name": "none"}, {"name": "ngram", "draft": "ngram", "vary": {"draft-length": [1, 4]}}],
 *   "vary": {"temperature": [0, 1]}
 *
 * are six: "none, temperature 0", "none, temperature 1", "ngram, draft-length 1, temperature 0", ... That of the suite holds
 * for all settings but those that say themselves what it varies. */
#ifndef MOE_BENCH_SUITE_VARY_H
#define MOE_BENCH_SUITE_VARY_H

#include <stddef.h>

#include <jansson.h>

#include "common/base/err.h"

struct suite_variant {
    json_t *map;                /* the setting with one value each, its name with them, and no "vary" */
    json_t *shared;             /* what the suite's own "vary" gave it */
    int entry;                  /* its index in the list that was read, from 0 */
};

struct suite_variants {
    struct suite_variant *items;
    size_t count, room;
};

/* Starts from {0}. Errors: no list, a setting that is no map or has no name, a "vary" that is no map of lists, more than
 * `max` settings. */
int suite_variants_make(struct suite_variants *out, const json_t *settings, const json_t *vary, int max, struct err *err);
void suite_variants_free(struct suite_variants *variants);      /* and back to {0} */

#endif
