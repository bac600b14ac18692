/* What every unit test includes first: cmocka and what it needs, and a fresh folder to work in. */
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

/* The folder of the test models, wherever the test was started. */
static inline const char *unit_models(void)
{
    const char *models = getenv("MOE_MODELS");
    return models ? models : "tests/models";
}

/* Under sanitisers a test that goes over many random cases sees every access in a few of them: those of the build without
 * sanitisers, and of the long check, are all. */
static inline bool unit_brief(void) { return getenv("MOE_SANITIZED") && !getenv("MOE_LONG"); }
/* What takes seconds is done for a part of its cases every day, and for all in the long check. */
static inline bool unit_sample(void) { return !getenv("MOE_LONG"); }

/* A new folder under $TMPDIR; *path is malloc'ed. unit_remove deletes it with all that is in it. */
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

/* folder/name, in a buffer that the next four calls leave alone. */
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
