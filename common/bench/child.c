#include "common/bench/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"

static int put_input(int fd, const char *input, struct err *err)
{
    size_t bytes = strlen(input), at = 0;
    while (at < bytes) {
        ssize_t n = write(fd, input + at, bytes - at);
        if (n < 0 && errno != EINTR)
            return err_errno(err, "the input of a command cannot be written to the temporary folder (TMPDIR)");
        at += n > 0 ? (size_t)n : 0;
    }
    return lseek(fd, 0, SEEK_SET) < 0 ? err_errno(err, "a file in the temporary folder (TMPDIR) cannot be written") : 0;
}

int child_input(int *out, const char *folder, const char *text, struct err *err)
{
    int fd;
    if (file_nameless(&fd, folder, err))
        return -1;
    if (put_input(fd, text, err)) {
        close(fd);
        return -1;
    }
    *out = fd;
    return 0;
}

/* Collects the signals that end this process and that it does not ignore. */
static void find_ending_signals(sigset_t *set)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action;
        if (!sigaction(numbers[i], NULL, &action) && action.sa_handler != SIG_IGN)
            sigaddset(set, numbers[i]);
    }
}

static bool is_pending(const sigset_t *set)
{
    sigset_t pending, both;
    return !sigpending(&pending) && !sigandset(&both, &pending, set) && !sigisemptyset(&both);
}

static bool replace_descriptor(int from, int to)
{
    int null_device = from < 0 ? open("/dev/null", to == STDIN_FILENO ? O_RDONLY : O_WRONLY) : -1;
    return dup2(from < 0 ? null_device : from, to) >= 0;
}

/* Runs in the child; calls only async-signal-safe functions before exec. Signal handlers are reset, because they would
 * remove the parent's files. */
static void exec_program(const struct child *child, const sigset_t *ending, const sigset_t *mask)
{
    setpgid(0, 0);
    for (int number = 1; number < NSIG; number++)
        if (sigismember(ending, number) == 1)
            signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if ((!child->folder || !chdir(child->folder)) && replace_descriptor(child->input, STDIN_FILENO) &&
        replace_descriptor(child->output, STDOUT_FILENO) &&
        (child->errors < 0 || replace_descriptor(child->errors, STDERR_FILENO)))
        execv(child->words[0], (char *const *)(uintptr_t)child->words);
    _exit(127);
}

/* Waits up to `seconds`, or until one of the `ending` signals is pending. Returns 1 if the child has ended, 0 if it is still
 * running, -1 if waitpid failed. */
static int ended(pid_t child, double seconds, const sigset_t *ending, int *status)
{
    double until = clock_seconds() + seconds;
    struct timespec pause = { 0, 200000 };
    for (;;) {
        pid_t got = waitpid(child, status, WNOHANG);
        if (got == child)
            return 1;
        if (got < 0 && errno != EINTR)
            return -1;
        if (clock_seconds() > until || is_pending(ending))
            return 0;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 20000000)
            pause.tv_nsec *= 2;
    }
}

/* Runs a child. Signals stay blocked until all processes of the program have ended. */
int child_run(const struct child *child, int *status, struct err *err)
{
    sigset_t ending, mask;
    struct sigaction usual = {.sa_handler = SIG_DFL}, before;
    int rc = 0;
    sigaction(SIGCHLD, &usual, &before);            /* if SIGCHLD is ignored, as some daemons leave it, waitpid returns no
                                                     * exit status */
    find_ending_signals(&ending);
    sigprocmask(SIG_BLOCK, &ending, &mask);
    pid_t pid = fork();
    if (!pid)
        exec_program(child, &ending, &mask);
    if (pid < 0) {
        rc = err_errno(err, "%s cannot be started", child->words[0]);
    } else {
        setpgid(pid, pid);          /* set in parent and child, so that it is set before either continues */
        int over = ended(pid, child->seconds, &ending, status);
        if (over < 0)
            rc = err_errno(err, "waiting for the end of %s failed", child->words[0]);
        if (!over) {
            kill(-pid, SIGKILL);
            waitpid(pid, status, 0);
            *status = 1 << 8;           /* exit status 1, as if it had answered no */
        }
        kill(-pid, SIGKILL);          /* kill processes that it started and left */
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGCHLD, &before, NULL);
    return rc;
}
