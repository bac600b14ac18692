#include "common/ranks/guard.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"

/* Messages of this process to its guard; the end of the stream without ENDED means that this process was killed. */
enum { MET = 'm', ENDED = 'e' };

static int to_guard = -1;           /* this process's end of a socket */
static pid_t guard;

/* Returns when a process started and stores its parent; 0 if it has ended. */
static uint64_t read_process(int64_t id, int64_t *parent)
{
    char path[64], line[1024];
    uint64_t born = 0;
    char state = 'X';
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", id);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    const size_t got = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[got] = '\0';
    const char *name_end = strrchr(line, ')');
    if (!name_end ||
        sscanf(name_end + 1, " %c %" SCNd64 " %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
               &state, parent, &born) != 3 || state == 'Z' || state == 'X')
        return 0;
    return born;
}

uint64_t guard_start_time(int64_t id)
{
    int64_t parent;
    return read_process(id, &parent);
}

/* ---- in the guard ---- */

static volatile sig_atomic_t terminated;

static void note_termination(int signal)
{
    (void)signal;
    terminated = 1;
}

static bool is_mpirun(int64_t id)
{
    static const char *const names[] = {"mpirun\n", "mpiexec\n", "orterun\n"};
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%" PRId64 "/comm", id);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    const bool got = fgets(name, sizeof name, file);
    fclose(file);
    for (size_t i = 0; got && i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

static bool has_living_child(int64_t id)
{
    bool found = false;
    DIR *folder = opendir("/proc");
    if (!folder)
        return true;
    for (const struct dirent *entry; !found && (entry = readdir(folder));) {
        int64_t parent = -1;
        found = read_process(strtol(entry->d_name, NULL, 10), &parent) && parent == id;
    }
    closedir(folder);
    return found;
}

/* Kills the launcher once it has had no living children for 4 seconds. Returns if the launcher ends before. */
static void end_launcher(int64_t launcher, uint64_t born)
{
    double idle_since = clock_seconds();
    if (!is_mpirun(launcher))
        return;
    while (guard_start_time(launcher) == born) {
        const double now = clock_seconds();
        if (has_living_child(launcher))
            idle_since = now;
        else if (now - idle_since > 4) {
            kill((pid_t)launcher, SIGKILL);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
}

/* Renames this process, so that a search for its parent by the command line does not find the guard: overwrites the arguments,
 * which are contiguous and begin with the program's name. */
static void rename_process(void)
{
    static const char name[] = "moe-guard";
    char block[4096];
    size_t length = 0, got;
    FILE *file = fopen("/proc/self/cmdline", "r");
    if (!file)
        return;
    while ((got = fread(block, 1, sizeof block, file)))
        length += got;
    fclose(file);
    if (length < sizeof name)
        return;
    memset(program_invocation_name, 0, length);
    memcpy(program_invocation_name, name, sizeof name);
}

_Noreturn static void watch(int from, int rank, int size, int64_t process, int64_t launcher, bool ends_launcher)
{
    char host[240] = "?", command[32], byte;
    bool met = false;
    const uint64_t born = guard_start_time(launcher);
    snprintf(command, sizeof command, "%s", program_invocation_short_name);
    rename_process();
    /* mpirun sends SIGTERM to the whole process group before it kills it */
    signal(SIGTERM, note_termination);
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    for (int file = 0; file < 1024; file++)
        if (file != from && file != STDERR_FILENO)
            close(file);
    for (;;) {
        const ssize_t got = read(from, &byte, 1);
        if (got == 1 && byte == MET)
            met = true;
        else if (got == 1)
            _exit(0);
        else if (got == 0 || errno != EINTR)
            break;
    }
    setpgid(0, 0);
    gethostname(host, sizeof host - 1);
    if (!met && !terminated && guard_start_time(launcher) == born)
        dprintf(STDERR_FILENO, "%s: process %d of %d (%s, pid %" PRId64 ") ended unexpectedly\n", command,
                rank, size, host, process);
    close(STDERR_FILENO);
    if (ends_launcher)
        end_launcher(launcher, born);
    _exit(0);
}

/* ---- in the process ---- */

static void write_to_guard(char byte)
{
    while (to_guard >= 0 && send(to_guard, &byte, 1, MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
}

static void end_guard(void)
{
    write_to_guard(ENDED);
    waitpid(guard, NULL, 0);
}

int guard_start(int rank, int size, bool ends_launcher, struct err *err)
{
    const int64_t process = getpid(), launcher = getppid();
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return err_set(err, ERR_IO, "the socket to the guard of process %d cannot be opened: %s", rank, strerror(errno));
    if ((guard = fork()) == 0) {
        close(ends[1]);
        watch(ends[0], rank, size, process, launcher, ends_launcher);
    }
    close(ends[0]);
    if (guard < 0) {
        close(ends[1]);
        return err_set(err, ERR_IO, "the guard of process %d cannot be reached: %s", rank, strerror(errno));
    }
    to_guard = ends[1];
    atexit(end_guard);
    return 0;
}

void guard_met(void) { write_to_guard(MET); }
