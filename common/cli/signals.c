#include "common/cli/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/file.h"

enum { SAME_NS = 100000000 };           /* a second signal within this time counts as the first one, sent twice */

static struct {
    atomic_bool gentle;
    struct stop stop;
    const char *program;
    int bell;                           /* write end of the pipe of stop.wake; -1: no pipe */
    struct timespec when;               /* time of the latest request; written before stop.signal */
    atomic_int latest;                  /* number of its signal, kept after signals_take; 0: none */
} state = {.stop = {.wake = -1}, .bell = -1};

static bool sent_twice(int number)
{
    struct timespec now;
    if (atomic_load(&state.latest) != number || clock_gettime(CLOCK_MONOTONIC, &now))
        return false;
    return (now.tv_sec - state.when.tv_sec) * 1000000000LL + (now.tv_nsec - state.when.tv_nsec) < SAME_NS;
}

/* Discards unfinished outputs, then raises the signal with its default action; the signal is blocked until this handler
 * returns. If another thread handles a second signal meanwhile, it discards the same outputs before it ends the process. */
static void end_by_signal(int number)
{
    output_discard_all_unsafe();
    signal(number, SIG_DFL);
    raise(number);
}

static void handle(int number)
{
    int kept = errno, none = 0;
    bool wish = atomic_load(&state.gentle) && (number == SIGINT || number == SIGTERM);
    if (!wish) {
        end_by_signal(number);
    } else if (!sent_twice(number)) {
        clock_gettime(CLOCK_MONOTONIC, &state.when);
        if (!atomic_compare_exchange_strong(&state.stop.signal, &none, number))
            end_by_signal(number);
        else if (atomic_store(&state.latest, number), state.bell >= 0)
            (void)!write(state.bell, "", 1);
    }
    errno = kept;
}

static void write_text(const char *text) { (void)!write(STDERR_FILENO, text, strlen(text)); }

/* Handles SIGBUS: a mapped file ends before the touched byte, or the disk fails. Several threads may get it at once. */
static void handle_bus(int number, siginfo_t *info, void *context)
{
    static atomic_flag printing = ATOMIC_FLAG_INIT;
    const char *name = file_map_at_unsafe(info->si_addr);
    (void)context;
    if (!name) {
        signal(number, SIG_DFL);                        /* the instruction is repeated and ends the process */
        return;
    }
    while (atomic_flag_test_and_set(&printing))
        pause();
    output_discard_all_unsafe();
    write_text(state.program);
    write_text(": ");
    write_text(name);
    write_text(": was truncated while it was mapped, or cannot be read; restore it and run again\n");
    _exit(2);
}

/* Handles SIGXFSZ: a file has reached the size limit. The write fails with EFBIG and is reported like a full disk. A handler
 * and not SIG_IGN, because child processes would inherit the latter. */
static void ignore_signal(int number) { (void)number; }

void signals_catch(const char *program)
{
    state.program = program;
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction action = {.sa_handler = handle}, before;
        sigfillset(&action.sa_mask);
        /* Signals that nohup or a shell's & ignore stay ignored; but a closed pipe always ends a command. */
        if (caught[i] == SIGPIPE || sigaction(caught[i], NULL, &before) || before.sa_handler != SIG_IGN)
            sigaction(caught[i], &action, NULL);
    }
    struct sigaction failing = {.sa_handler = ignore_signal, .sa_flags = SA_RESTART}, before;
    if (sigaction(SIGXFSZ, NULL, &before) || before.sa_handler != SIG_IGN)
        sigaction(SIGXFSZ, &failing, NULL);
    struct sigaction cut = {.sa_sigaction = handle_bus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &cut, NULL);
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigprocmask(SIG_UNBLOCK, &pipe, NULL);
}

const struct stop *signals_stop(void)
{
    int ends[2];
    if (state.bell < 0 && !pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {       /* without a pipe, a second signal may be needed */
        state.stop.wake = ends[0];
        state.bell = ends[1];
    }
    return &state.stop;
}

void signals_gentle(void) { atomic_store(&state.gentle, true); }

void signals_harsh(void) { atomic_store(&state.gentle, false); }

const char *signals_name(void)
{
    int number = atomic_load(&state.stop.signal);
    return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : NULL;
}

bool signals_take(int number)
{
    char rung;
    if (atomic_load(&state.stop.signal) != number)
        return false;
    while (state.bell >= 0 && read(state.stop.wake, &rung, 1) > 0)
        ;
    atomic_store(&state.stop.signal, 0);
    return true;
}

void signals_end(void)
{
    int number = atomic_load(&state.stop.signal);
    if (number)
        end_by_signal(number);
}
