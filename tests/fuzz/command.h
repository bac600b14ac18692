/* Runs a subcommand within a driver. The driver includes the command's own file, with its main renamed:
 *
 *     #define main command_main
 *     #include "cmd/moe-coact.c"
 *     #undef main */
#ifndef MOE_TESTS_FUZZ_COMMAND_H
#define MOE_TESTS_FUZZ_COMMAND_H

#include <string.h>

#include "common/base/mem.h"
#include "common/cli/command.h"
#include "tests/fuzz/fuzz.h"

static __attribute__((unused)) int command_main(int argc, char **argv);

/* words[0] is the subcommand's name, the others its arguments; ends with NULL. The command may fail or succeed. */
static inline void command_run(const struct subcommand *subcommands, char **words)
{
    struct console console = {.program = "fuzz", .argv = words, .quiet = true, .progress = PROGRESS_NEVER};
    const struct subcommand *sub = subcommands;
    struct err err = {0};
    while (sub->run && (!sub->name || strcmp(sub->name, words[0])))
        sub++;
    while (words[console.argc])
        console.argc++;
    void *args = sub->run ? mem_alloc(1, sub->args_bytes, &err) : NULL;
    if (!args)
        abort();
    if (sub->defaults)
        memcpy(args, sub->defaults, sub->args_bytes);
    if (!opt_parse(sub, console.argc - 1, words + 1, args, &console, &err)) {
        console.quiet = true;
        if (sub->run(args, &console, &err) && (!err.code || !*err.text || strchr(err.text, '\n')))
            abort();                    /* an error is reported, in one line */
    }
    opt_free(sub, args);
    mem_free(&args);
}

#endif
