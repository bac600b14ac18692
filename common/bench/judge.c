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

/* In the child; only what may be called between fork and exec. Its output is no part of ours. */
static void become(const char *command, int input)
{
    int nowhere = open("/dev/null", O_WRONLY);
    setpgid(0, 0);
    if (dup2(input, STDIN_FILENO) >= 0 && (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) >= 0))
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

/* Waits up to `seconds`; false: it is still running. */
static bool ended(pid_t child, double seconds, int *status)
{
    double until = clock_seconds() + seconds;
    struct timespec pause = { 0, 200000 };
    for (;;) {
        pid_t got = waitpid(child, status, WNOHANG);
        if (got == child || (got < 0 && errno != EINTR))
            return true;
        if (clock_seconds() > until)
            return false;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 20000000)
            pause.tv_nsec *= 2;
    }
}

int judge_ask(const char *command, const char *input, double seconds, const char *folder, bool *right, struct err *err)
{
    int fd = -1, status = 0, rc = -1;
    if (file_nameless(&fd, folder, err) || put_input(fd, input, err))
        goto done;
    pid_t child = fork();
    if (child < 0) {
        err_errno(err, "starting the command");
        goto done;
    }
    if (!child)
        become(command, fd);
    setpgid(child, child);              /* whoever comes first */
    if (!ended(child, seconds, &status)) {
        kill(-child, SIGKILL);
        waitpid(child, &status, 0);
        status = 1 << 8;                /* as if it had said no */
    }
    kill(-child, SIGKILL);              /* what it left behind */
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
