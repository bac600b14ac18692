#include "common/bench/judge.h"

#include <sys/wait.h>
#include <unistd.h>

#include "common/bench/child.h"

int judge_ask(const char *command, const char *input, double seconds, const char *folder, bool *right, struct err *err)
{
    const char *const words[] = { "/bin/sh", "-c", command, NULL };
    struct child child = { .words = words, .input = -1, .output = -1, .errors = -1, .seconds = seconds };
    int status = 0, rc = -1;
    if (child_input(&child.input, folder, input, err) || child_run(&child, &status, err))
        goto done;
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) {
        err_set(err, ERR_INPUT, "the command '%s' ended with %s %d; it must exit with status 0 for a right answer and 1 for a "
                "wrong one", command, WIFEXITED(status) ? "exit status" : "signal",
                WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        goto done;
    }
    *right = WEXITSTATUS(status) == 0;
    rc = 0;
done:
    if (child.input >= 0)
        close(child.input);
    return rc;
}
