/* A temporary folder shared by all tests of a group: cmocka_run_group_tests(tests, make_folder, remove_folder). */
#ifndef MOE_TESTS_FOLDER_H
#define MOE_TESTS_FOLDER_H

#include "tests/unit/unit.h"

static char *folder;

static inline int make_folder(void **state)
{
    (void)state;
    folder = unit_folder();
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    unit_remove(folder);
    return 0;
}

#endif
