/* Expands the settings of a suite: "vary" lists options with several values, and means every combination of them.
 *
 *   "settings": [{"name": "none"}, {"name": "ngram", "draft": "ngram", "vary": {"draft-length": [1, 4]}}],
 *   "vary": {"temperature": [0, 1]}
 *
 * gives six settings: "none, temperature 0", "none, temperature 1", "ngram, draft-length 1, temperature 0", ... The suite's
 * "vary" applies to all settings except those that themselves set the option. */
#ifndef MOE_BENCH_SUITE_VARY_H
#define MOE_BENCH_SUITE_VARY_H

#include <stddef.h>

#include <jansson.h>

#include "common/base/err.h"

struct suite_variant {
    json_t *map;                /* the setting with one value per key, its extended name, and no "vary" */
    json_t *shared;             /* values set by the suite's own "vary" */
    int entry;                  /* index in the list that was read, from 0 */
};

struct suite_variants {
    struct suite_variant *items;
    size_t count, room;
};

/* Expands the list. *out must be {0}. Errors: no list, a setting that is not an object or has no name, a "vary" that is not
 * an object of lists, more than `max` settings. */
int suite_variants_make(struct suite_variants *out, const json_t *settings, const json_t *vary, int max, struct err *err);
void suite_variants_free(struct suite_variants *variants);      /* *variants is {0} afterwards */

#endif
