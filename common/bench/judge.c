#include "common/bench/judge.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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
            return err_errno(err, "keeping what the command reads in the temporary folder (TMPDIR)");
        at += n > 0 ? (size_t)n : 0;
    }
    return lseek(fd, 0, SEEK_SET) < 0 ? err_errno(err, "the temporary folder (TMPDIR)") : 0;
}

/* Of the signals that end this process, those that it does not ignore. */
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

/* In the child; only what may be called between fork and exec. Its output is no part of ours, nor are our signal handlers,
 * which would remove our files. */
static void become(const char *command, int input, const sigset_t *ending, const sigset_t *mask)
{
    int nowhere = open("/dev/null", O_WRONLY);
    setpgid(0, 0);
    for (int number = 1; number < NSIG; number++)
        if (sigismember(ending, number) == 1)
            signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (dup2(input, STDIN_FILENO) >= 0 && (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) >= 0))
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

/* Waits up to `seconds`, or until one of these signals is there: 1, or 0: it is still running; -1: nobody can tell. */
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

/* Runs the command to its end, which no signal to this process outruns: signals wait until nothing of the command is left. */
static int run(const char *command, int input, double seconds, int *status, struct err *err)
{
    sigset_t ending, mask;
    struct sigaction usual = {.sa_handler = SIG_DFL}, before;
    int rc = 0;
    sigaction(SIGCHLD, &usual, &before);            /* ignored, as some daemons leave it, a child has no exit status */
    find_ending_signals(&ending);
    sigprocmask(SIG_BLOCK, &ending, &mask);
    pid_t child = fork();
    if (!child)
        become(command, input, &ending, &mask);
    if (child < 0) {
        rc = err_errno(err, "starting the command");
    } else {
        setpgid(child, child);          /* whoever comes first */
        int over = ended(child, seconds, &ending, status);
        if (over < 0)
            rc = err_errno(err, "waiting for the command");
        if (!over) {
            kill(-child, SIGKILL);
            waitpid(child, status, 0);
            *status = 1 << 8;           /* as if it had said no */
        }
        kill(-child, SIGKILL);          /* what it left behind */
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGCHLD, &before, NULL);
    return rc;
}

int judge_ask(const char *command, const char *input, double seconds, const char *folder, bool *right, struct err *err)
{
    int fd = -1, status = 0, rc = -1;
    if (file_nameless(&fd, folder, err) || put_input(fd, input, err) || run(command, fd, seconds, &status, err))
        goto done;
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) {
        err_set(err, ERR_INPUT, "the command '%s' ended with %s %d; it must exit with 0 for a right answer and 1 for a "
                "wrong one", command, WIFEXITED(status) ? "exit status" : "signal",
                WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        goto done;
    }
    *right = WEXITSTATUS(status) == 0;
    rc = 0;
done:
    if (fd >= 0)
        close(fd);
    return rc;
}
