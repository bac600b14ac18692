/* First include of every unit test: cmocka with its requirements, and a temporary folder. */
#ifndef MOE_TESTS_UNIT_H
#define MOE_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/err.h"

/* Ends the test with the error's text if the call failed. */
static inline void must(int rc, const struct err *err)
{
    if (rc)
        fail_msg("%s", err->text);
}

/* Returns the folder of the test models, whatever the working directory is. */
static inline const char *unit_models(void)
{
    const char *models = getenv("MOE_MODELS");
    return models ? models : "tests/models";
}

/* Returns whether a test over many random cases should run only a few: with sanitisers these few show all memory accesses;
 * the normal build and the long check run all cases. */
static inline bool unit_brief(void) { return getenv("MOE_SANITIZED") && !getenv("MOE_LONG"); }
/* Returns whether slow tests should run only a part of their cases, as in the daily check; the long check runs all. */
static inline bool unit_sample(void) { return !getenv("MOE_LONG"); }

/* Makes a new folder under $TMPDIR and returns its malloc'ed path; unit_remove deletes the folder with its contents. */
static inline char *unit_folder(void)
{
    const char *base = getenv("TMPDIR");
    char path[1024];
    snprintf(path, sizeof path, "%s/moe-unit-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(path));
    return strdup(path);
}

static inline void unit_remove(char *folder)
{
    char command[1200];
    snprintf(command, sizeof command, "chmod -R u+w '%s' && rm -rf '%s'", folder, folder);
    assert_int_equal(system(command), 0);
    free(folder);
}

/* Returns folder/name, in a buffer that the next four calls do not overwrite. */
static inline const char *unit_path(const char *folder, const char *name)
{
    static char paths[4][1200];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline void unit_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

#endif
