/* The files of tests of one folder as one program.
 *
 *     run                   names them
 *     run NAME [PATTERN]    runs test_NAME, or its tests whose names match the pattern (* and ?)
 *
 * Each file has a main of its own, which the makefile renames to test_NAME_main; TEST_FILES there is TEST(name) for each. The
 * emulator's are C++, and have those of tests/kernel beside them as KERNEL(name), run as kernel_NAME.
 * Exit: that of the file's main, the number of tests that failed; 2 where there is no such file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__cplusplus)
#define C_FUNCTION extern "C"
extern "C" {                        /* cmocka.h declares it for some functions only */
#else
#define C_FUNCTION
#endif
#include <cmocka.h>
#if defined(__cplusplus)
}
#endif

#define TEST(name) int test_##name##_main(void);
#define KERNEL(name) C_FUNCTION int kernel_##name##_main(void);
TEST_FILES
#undef TEST
#undef KERNEL

static const struct {
    const char *name;
    int (*run)(void);
} FILES[] = {
#define TEST(name) {#name, test_##name##_main},
#define KERNEL(name) {"kernel_" #name, kernel_##name##_main},
    TEST_FILES
};

int main(int argc, char **argv)
{
    const int files = (int)(sizeof FILES / sizeof *FILES);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    for (int i = 0; i < files; i++)
        if (argc < 2)
            puts(FILES[i].name);
        else if (!strcmp(argv[1], FILES[i].name))
            return FILES[i].run();
    if (argc < 2)
        return 0;
    fprintf(stderr, "%s: there is no file of tests called %s\n", argv[0], argv[1]);
    return 2;
}
