/* Any bytes, with a valid end record, as a bench or decode stream for a report. */
#define main command_main
#include "tests/fuzz/command.h"
#include "cmd/moe-bench.c"
#undef main
#include "tests/fuzz/reseal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char *const forms[] = { "--text", "--markdown", "--json", "--csv", "--svg" };
    struct text sealed = {0};
    char path[64];
    reseal(&sealed, data, bytes);
    int fd = fuzz_file((const uint8_t *)sealed.data, sealed.length, path);
    char *words[] = { "report", forms[bytes % 5], "-o", "/dev/null", path, NULL };
    command_run(subcommands, words);
    close(fd);
    text_free(&sealed);
    return 0;
}
