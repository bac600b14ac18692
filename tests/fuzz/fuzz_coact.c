/* Any bytes, with a valid end record, as the stream that each of moe-coact's subcommands reads. */
#define main command_main
#include "tests/fuzz/command.h"
#include "cmd/moe-coact.c"
#undef main
#include "tests/fuzz/reseal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct text sealed = {0};
    char path[64];
    reseal(&sealed, data, bytes);
    int fd = fuzz_file((const uint8_t *)sealed.data, sealed.length, path);
    char *calls[][7] = {
        { "rank-experts", "-o", "/dev/null", path },
        { "rank-experts", "--by", "mass", "--keep=0.5", "--json", "-o/dev/null", path },
        { "coverage", "-o", "/dev/null", path },     { "coverage", "--svg", "-o", "/dev/null", "--rank", path, path },
        { "union", "-o", "/dev/null", path },        { "locality", "--text", "-o", "/dev/null", path },
        { "rank-experts", "--by=coverage", "--total=12", "-o", "/dev/null", path },
        { "rank-experts", "--by=pairs", "--text", "-o", "/dev/null", path },
        { "matrix", "--phase=all", "--svg", "-o", "/dev/null", path }, { "matrix", "-o", "/dev/null", path },
        { "stats", "--phase=all", "--text", "-o", "/dev/null", path }, { "union", "--trees", "--svg", "-o", "/dev/null", path },
        { "coverage", "--by=router", "--text", "-o", "/dev/null", path },
        { "reuse", "-K3", "--svg", "-o", "/dev/null", path }, { "signal", "--text", "-o", "/dev/null", path },
        { "signal", "-K1", "--svg", "-o", "/dev/null", path }, { "drift", "--text", "-o", "/dev/null", path },
        { "merge", "-o", "/dev/null", path, path },
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char *words[8] = {0};
        memcpy(words, calls[i], sizeof calls[i]);
        command_run(subcommands, words);
    }
    close(fd);
    text_free(&sealed);
    return 0;
}
