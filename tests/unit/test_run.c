/* The run loop of commands: subcommands, exit codes, signals, standard output. Each case is a child process. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/base/file.h"
#include "common/cli/command.h"

struct args {
    int code;                   /* the command fails with this error */
    bool print, wait, fill;
    const char *output;
};

static const struct opt options[] = {
    OPT_COUNT(0, "code", struct args, code, 0, 100, "fail with this kind of error"),
    OPT_FLAG(0, "print", struct args, print, "print with printf"),
    OPT_FLAG(0, "wait", struct args, wait, "write half an output, say so, and wait for a signal"),
    OPT_FLAG(0, "fill", struct args, fill, "write without end"),
    OPT_OUTPUT('o', "output", struct args, output, "write to FILE"),
    OPT_END
};

static int act(const void *arguments, const struct console *console, struct err *err)
{
    const struct args *args = arguments;
    struct output *out = NULL;
    console_note(console, "started");
    console_detail(console, "exactly");
    if (args->print)
        printf("text\n");
    if (output_open(&out, args->output ? args->output : "-", err))
        return -1;
    while (args->fill)
        if (output_write(out, "line\n", 5, err))
            goto fail;
    if (args->wait) {
        if (output_write(out, "half", 4, err) || output_flush(out, err))
            goto fail;
        (void)!write(STDOUT_FILENO, "ready", 5);
        pause();
    }
    if (args->code) {
        err_set(err, (enum err_code)args->code, "a.moe: it is so");
        goto fail;
    }
    return output_commit(&out, err);
fail:
    output_discard(&out);
    return -1;
}

static const struct subcommand subcommands[] = {
    {.name = "act", .summary = "act as told", .options = options, .console = CONSOLE_QUIET | CONSOLE_VERBOSE,
     .args_bytes = sizeof(struct args), .run = act, .implied = true},
    {.name = "other", .summary = "act otherwise", .options = options, .args_bytes = sizeof(struct args), .run = act},
    {.run = NULL}};
static const struct command with_implied = {.name = "moe-test", .summary = "do things", .subcommands = subcommands};
static const struct command without_implied = {.name = "moe-test", .summary = "do things", .subcommands = subcommands + 1};

struct outcome {
    int status;
    char out[4096], err[4096];
};

/* Prepares the child before the command runs. */
enum preparation { PLAIN, FULL, CLOSED, PIPE_IGNORED, PIPE_DEFAULT };

static void prepare(enum preparation how)
{
    int ends[2];
    switch (how) {
    case PLAIN:
        break;
    case FULL:
        dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
        break;
    case CLOSED:
        close(STDOUT_FILENO);
        break;
    case PIPE_IGNORED:
    case PIPE_DEFAULT:
        (void)!pipe(ends);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        signal(SIGPIPE, how == PIPE_IGNORED ? SIG_IGN : SIG_DFL);
        break;
    }
}

static pid_t start(const struct command *command, enum preparation how, const char *line, int *out, int *err)
{
    int outs[2], errs[2];
    static char copy[1400];
    char *argv[20] = {(char[]){"moe-test"}};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    assert_int_equal(pipe(outs), 0);
    assert_int_equal(pipe(errs), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(outs[1], STDOUT_FILENO);
        dup2(errs[1], STDERR_FILENO);
        for (int i = 0; i < 2; i++) {
            close(outs[i]);
            close(errs[i]);
        }
        prepare(how);
        int code = cli_main(argc, argv, command);
        fflush(stdout);
        _exit(code);
    }
    close(outs[1]);
    close(errs[1]);
    *out = outs[0];
    *err = errs[0];
    return child;
}

static void take(int from, char *text, size_t room)
{
    size_t used = 0;
    ssize_t got;
    while (used + 1 < room && (got = read(from, text + used, room - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    close(from);
}

static struct outcome run(const struct command *command, enum preparation how, const char *line)
{
    struct outcome outcome;
    int out, err;
    pid_t child = start(command, how, line, &out, &err);
    take(out, outcome.out, sizeof outcome.out);
    take(err, outcome.err, sizeof outcome.err);
    assert_int_equal(waitpid(child, &outcome.status, 0), child);
    return outcome;
}

static void assert_exit(struct outcome outcome, int code)
{
    if (!WIFEXITED(outcome.status) || WEXITSTATUS(outcome.status) != code)
        fail_msg("status %x instead of exit code %d; stderr: %s", outcome.status, code, outcome.err);
}

static void errors_become_exit_codes(void **state)
{
    (void)state;
    struct outcome done = run(&with_implied, PLAIN, "--print -q");
    assert_exit(done, 0);
    assert_string_equal(done.out, "text\n");
    assert_string_equal(done.err, "");
    struct outcome no = run(&with_implied, PLAIN, "--code 6 -q");
    assert_exit(no, 1);
    assert_string_equal(no.err, "moe-test: a.moe: it is so\n");
    static const char *const troubles[] = {"--code 1", "--code 2", "--code 3"};
    for (int i = 0; i < 3; i++)
        assert_exit(run(&with_implied, PLAIN, troubles[i]), 2);
}

static void notes_follow_quiet_and_verbose(void **state)
{
    (void)state;
    assert_string_equal(run(&with_implied, PLAIN, "").err, "moe-test: started\n");
    assert_string_equal(run(&with_implied, PLAIN, "-v").err,
                        "moe-test: started\nmoe-test: exactly\n");
}

static void subcommands_are_picked(void **state)
{
    (void)state;
    struct outcome named = run(&with_implied, PLAIN, "act --print");
    assert_exit(named, 0);
    assert_string_equal(named.out, "text\n");
    assert_exit(run(&without_implied, PLAIN, "other"), 0);
    struct outcome missing = run(&without_implied, PLAIN, "");
    assert_exit(missing, 2);
    assert_string_equal(missing.err, "moe-test: no subcommand is given; name one (--help lists them)\n");
    struct outcome wrong = run(&without_implied, PLAIN, "othr");
    assert_exit(wrong, 2);
    assert_string_equal(wrong.err, "moe-test: 'othr' is not a subcommand; did you mean other?\n");
    assert_exit(run(&without_implied, PLAIN, "--print"), 2);
}

static void help_and_version_are_printed(void **state)
{
    (void)state;
    struct outcome all = run(&with_implied, PLAIN, "--help");
    assert_exit(all, 0);
    assert_string_equal(all.err, "");
    assert_non_null(strstr(all.out, "usage: moe-test [SUBCOMMAND] ...\nDo things.\n"));
    assert_non_null(strstr(all.out, "act as told (meant when none is named)\n"));
    struct outcome one = run(&with_implied, PLAIN, "other -h");
    assert_non_null(strstr(one.out, "usage: moe-test other [OPTION...]\nAct otherwise.\n"));
    assert_null(strstr(one.out, "--quiet"));
    assert_non_null(strstr(run(&without_implied, PLAIN, "--help").out, "usage: moe-test SUBCOMMAND ...\n"));
    assert_int_equal(strncmp(run(&without_implied, PLAIN, "--version").out, "moe-test (moekit) ", 18), 0);
    assert_int_equal(strncmp(run(&with_implied, PLAIN, "act --version --print").out, "moe-test (moekit) ", 18), 0);
    assert_int_equal(strncmp(run(&with_implied, PLAIN, "--help=spec").out, "command\tmoe-test\t", 17), 0);
}

static void standard_output_is_checked(void **state)
{
    (void)state;
    static const char *const lines[] = {"--print -q", "--fill -q", "--help", "--version", "--help=spec"};
    for (int i = 0; i < 5; i++) {
        struct outcome full = run(&with_implied, FULL, lines[i]);
        assert_exit(full, 2);
        assert_non_null(strstr(full.err, "moe-test: standard output: No space left on device\n"));
        struct outcome closed = run(&with_implied, CLOSED, lines[i]);
        assert_exit(closed, 2);
        assert_non_null(strstr(closed.err, "moe-test: standard output: "));
    }
}

/* The next opened file must not get the number of a closed standard output, or output would be written into it. */
static void a_closed_standard_output_stays_closed(void **state)
{
    (void)state;
    char line[1300], *folder = unit_folder();
    struct err err = {0};
    struct text text = {0};
    snprintf(line, sizeof line, "--print -q -o %s/a", folder);
    assert_exit(run(&with_implied, CLOSED, line), 2);
    assert_int_equal(file_read(&text, unit_path(folder, "a"), 100, &err), 0);
    assert_int_equal(text.length, 0);
    text_free(&text);
    unit_remove(folder);
}

static void a_closed_pipe_ends_quietly(void **state)
{
    (void)state;
    enum preparation preparations[] = {PIPE_IGNORED, PIPE_DEFAULT};
    static const char *const lines[] = {"--fill -q", "--print -q", "--help"};
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < 3; i++) {
            struct outcome outcome = run(&with_implied, preparations[p], lines[i]);
            assert_true(WIFSIGNALED(outcome.status));
            assert_int_equal(WTERMSIG(outcome.status), SIGPIPE);
            assert_string_equal(outcome.err, "");
        }
}

static void signals_remove_what_is_unfinished(void **state)
{
    (void)state;
    int signals[] = {SIGINT, SIGTERM, SIGHUP};
    char *folder = unit_folder();
    for (int i = 0; i < 3; i++) {
        char line[1300], ready[6] = {0}, rest[100];
        int out, err, status;
        snprintf(line, sizeof line, "--wait -o %s/a.moe", folder);
        pid_t child = start(&with_implied, PLAIN, line, &out, &err);
        assert_int_equal(read(out, ready, 5), 5);
        snprintf(line, sizeof line, "test -n \"$(ls %s)\"", folder);
        assert_int_equal(system(line), 0);                      /* the unfinished file exists */
        assert_int_equal(kill(child, signals[i]), 0);
        take(out, rest, sizeof rest);
        take(err, rest, sizeof rest);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), signals[i]);
        snprintf(line, sizeof line, "test -z \"$(ls %s)\"", folder);
        assert_int_equal(system(line), 0);
    }
    unit_remove(folder);
}

int main(void)
{
    /* The parent may ignore these signals; a command would inherit that. */
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_become_exit_codes),
        cmocka_unit_test(notes_follow_quiet_and_verbose),
        cmocka_unit_test(subcommands_are_picked),
        cmocka_unit_test(help_and_version_are_printed),
        cmocka_unit_test(standard_output_is_checked),
        cmocka_unit_test(a_closed_standard_output_stays_closed),
        cmocka_unit_test(a_closed_pipe_ends_quietly),
        cmocka_unit_test(signals_remove_what_is_unfinished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
