/* Reference answers of prompts: id, task and answer in files of JSON lines, as prompts/prompts.h reads them, but without a
 * model. Lines without an answer are counted, not kept. A missing id is replaced by the prompt's index, counted from 0 over
 * all files. Errors name file and line. */
#ifndef MOE_BENCH_REFERENCES_H
#define MOE_BENCH_REFERENCES_H

#include <stddef.h>

#include "common/base/err.h"

struct reference {
    char *task, *id, *answer;           /* task: "" for none */
};

struct references {
    struct reference *items;            /* sorted by task and id */
    size_t count, room;
};

int references_read(struct references *out, const char *const *paths, int count, struct err *err);
void references_free(struct references *references);        /* *references is {0} afterwards */

/* Finds a reference; NULL: none. task may be NULL. If several have the same task and id, any of them. */
const struct reference *references_find(const struct references *references, const char *task, const char *id);

#endif
