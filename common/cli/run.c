#include "common/cli/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/base/thread.h"
#include "common/base/version.h"
#include "common/cli/nearest.h"
#include "common/cli/signals.h"

/* Opens standard descriptors that were closed, with the wrong access mode, so that every use of them fails. Otherwise the
 * next file opened would get the number and be printed into. */
static void keep_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* Selects the subcommand that the first word names; *used: the word was consumed. */
static int pick_subcommand(const struct command *command, int argc, char **argv, const struct subcommand **out, bool *used,
                           struct err *err)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    const struct subcommand *implied = NULL;
    struct nearest nearest = {.word = word ? word : ""};
    *used = false;
    *out = NULL;
    for (const struct subcommand *sub = command->subcommands; sub->run; sub++) {
        if (!sub->name || sub->implied)
            implied = sub;
        if (!sub->name)
            continue;
        nearest_offer(&nearest, sub->name);
        if (word && strcmp(word, sub->name) == 0) {
            *used = true;
            *out = sub;
            return 0;
        }
    }
    *out = implied;
    if (implied || (word && word[0] == '-'))
        return 0;
    if (!word)
        return err_set(err, ERR_INPUT, "no subcommand is given; name one (--help lists them)");
    if (nearest.best)
        return err_set(err, ERR_INPUT, "'%s' is not a subcommand; did you mean %s?", word, nearest.best);
    return err_set(err, ERR_INPUT, "'%s' is not a subcommand; --help lists them", word);
}

static int print_help(const struct command *command, const struct subcommand *sub, bool spec, struct err *err)
{
    struct text text = {0};
    int rc = spec ? help_spec(&text, command, err) : help_print(&text, command, sub, err);
    rc = rc || output_whole("-", &text, err) ? -1 : 0;
    text_free(&text);
    return rc;
}

static int print_version(const struct command *command, struct err *err)
{
    struct text text = {0};
    int rc = text_printf(&text, err, "%s (moekit) %s\n", command->name, MOE_VERSION) || output_whole("-", &text, err) ? -1 : 0;
    text_free(&text);
    return rc;
}

/* Returns the subcommand that a word after the first names; NULL: none. */
static const struct subcommand *find_late_subcommand(const struct command *command, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        for (const struct subcommand *sub = command->subcommands; sub->run; sub++)
            if (sub->name && strcmp(argv[i], sub->name) == 0)
                return sub;
    return NULL;
}

/* Replaces the error if the first word is neither an option nor a file, and resembles a subcommand. */
static void note_mistyped_subcommand(const struct command *command, const char *word, struct err *err)
{
    struct nearest nearest = {.word = word};
    if (*word == '-' || !access(word, F_OK))
        return;
    for (const struct subcommand *sub = command->subcommands; sub->run; sub++)
        if (sub->name)
            nearest_offer(&nearest, sub->name);
    if (!nearest.best)
        return;
    *err = (struct err){0};
    err_set(err, ERR_INPUT, "'%s' is neither a file nor a subcommand; did you mean %s?", word, nearest.best);
}

/* Replaces the error if a subcommand is implied and another one was named after options: that name was parsed as an operand,
 * so there were too many operands, or options that only the named one has. Returns -1. */
static int note_late_subcommand(const struct command *command, const struct console *console, struct err *err)
{
    const struct subcommand *late = find_late_subcommand(command, console->argc, console->argv);
    if (late && console->argv[1][0] == '-' && console->misplaced) {
        *err = (struct err){0};
        err_set(err, ERR_INPUT, "put the subcommand %s before the options: %s %s %s ...", late->name, command->name,
                late->name, console->argv[1]);
    } else if (console->misplaced) {
        note_mistyped_subcommand(command, console->argv[1], err);
    }
    return -1;
}

/* Raises the limit of the main thread's stack to what computations need: beyond it the process would end by SIGSEGV. */
static int raise_stack(struct err *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= THREAD_STACK_BYTES)
        return 0;
    const unsigned long long allowed = (unsigned long long)limit.rlim_max >> 10;
    limit.rlim_cur = THREAD_STACK_BYTES;
    if (limit.rlim_max < limit.rlim_cur)
        limit.rlim_max = limit.rlim_cur;
    return !setrlimit(RLIMIT_STACK, &limit) ? 0 : err_set(err, ERR_INPUT, "`ulimit -s' allows at most %llu KiB of stack; raise "
                                                          "it to %d", allowed, THREAD_STACK_BYTES >> 10);
}

static int run_subcommand(const struct command *command, const struct subcommand *sub, bool named, struct console *console,
                          struct err *err)
{
    void *args = mem_alloc(1, sub->args_bytes, err);
    int skip = named ? 2 : 1, rc = -1;
    if (!args)
        return -1;
    if (sub->defaults)
        memcpy(args, sub->defaults, sub->args_bytes);
    if (opt_parse(sub, console->argc > skip ? console->argc - skip : 0, console->argv + skip, args, console, err)) {
        rc = named ? -1 : note_late_subcommand(command, console, err);
        goto done;
    }
    if (console->help)
        rc = print_help(command, named || !sub->name ? sub : NULL, console->help == 2, err);
    else if (console->version)
        rc = print_version(command, err);
    else {
        console->started = true;
        rc = raise_stack(err) ? -1 : sub->run(args, console, err);
    }
done:
    opt_free(sub, args);
    mem_free(&args);
    return rc;
}

/* Runs a command line that begins with an option: without a subcommand, only options of the whole command are accepted. */
static int run_command(const struct command *command, int argc, char **argv, struct err *err)
{
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return print_help(command, NULL, false, err);
    if (strcmp(word, "--help=spec") == 0)
        return print_help(command, NULL, true, err);
    if (strcmp(word, "--version") == 0)
        return print_version(command, err);
    const struct subcommand *late = find_late_subcommand(command, argc, argv);
    if (late)
        return err_set(err, ERR_INPUT, "%s: put the subcommand before the options: %s %s %s ...", word, command->name,
                       late->name, word);
    return err_set(err, ERR_INPUT, "no subcommand is given; name one before the options (--help lists them)");
}

/* Returns the limit on address space in MiB if it caused the failure; 0 if memory was not the cause, or there is no limit. A
 * mapped model takes address space for all its bytes, however few are in memory. */
static unsigned long long address_limit(const struct err *err)
{
    struct rlimit limit;
    bool limited = err->code == ERR_MEMORY && !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY;
    return limited ? (unsigned long long)limit.rlim_cur >> 20 : 0;
}

/* Prints the error; returns the exit code. */
static int judge(const struct command *command, int rc, struct err *err)
{
    if (!rc && (fflush(stdout) || ferror(stdout)))
        rc = err_errno(err, "standard output");
    if (!rc)
        return 0;
    if (err->code == ERR_PIPE) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    fflush(stdout);
    if (err->code == ERR_REPORTED)
        return 2;
    fprintf(stderr, "%s: %s", command->name, err->code ? err->text : "failed for an unknown reason");
    if (address_limit(err))
        fprintf(stderr, "; `ulimit -v' limits addresses to %llu MiB: raise it to the model's size plus 2 GiB, and limit "
                "memory with a control group instead", address_limit(err));
    fputc('\n', stderr);
    if (err->code == ERR_SIGNAL)
        signals_end();
    return err->code == ERR_ANSWER_NO ? 1 : err->code == ERR_NO_ANSWER ? 125 : 2;
}

int cli_main(int argc, char **argv, const struct command *command)
{
    struct err err = {0};
    struct console console = {.program = command->name, .argc = argc, .argv = argv};
    const struct subcommand *sub = NULL;
    bool named = false;
    keep_standard_descriptors();
    signals_catch(command->name);
    int rc = pick_subcommand(command, argc, argv, &sub, &named, &err);
    if (!rc)
        rc = sub ? run_subcommand(command, sub, named, &console, &err) : run_command(command, argc, argv, &err);
    if (rc && !console.started && command->before_fault)
        command->before_fault();
    return judge(command, rc, &err);
}
