/* Several processes in a test: forks that communicate over socket pairs, by a plug-in of common/ranks made of these.
 *
 *     static int work(struct ranks *ranks, void *argument) { ... return failures; }      in each process
 *     pipes_run(3, work, argument)                                                       returns the sum of the exit
 *     statuses
 *
 * A process returns results in memory allocated by pipes_memory. */
#ifndef MOE_TESTS_RANKS_PIPES_H
#define MOE_TESTS_RANKS_PIPES_H

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/ranks/ranks.h"
#include "tests/unit/unit.h"

enum { PIPES_MAX = 4, PIPES_REQUESTS = 64 };

struct pipes_job {
    int rank, size;
    int end[PIPES_MAX][PIPES_MAX];      /* [own rank][other rank] */
};

/* Pending messages by the other process, in the order of the requests. */
struct ranks_link {
    struct pipes_job *job;
    struct pipes_message {
        bool used, sends;
        int peer;
        long turn;
        char *data;
        size_t bytes, done;
    } message[PIPES_REQUESTS];
    long turns;
};

static int pipes_open(struct ranks_link **out, void *context, int requests_per_rank, int *rank, int *size)
{
    struct ranks_link *link = calloc(1, sizeof *link);
    link->job = context;
    *rank = link->job->rank;
    *size = link->job->size;
    *out = link;
    return requests_per_rank * *size > PIPES_REQUESTS;
}

static int pipes_begin(struct ranks_link *link, int request, bool sends, int peer, void *data, size_t bytes)
{
    if (link->message[request].used || bytes > RANKS_MESSAGE_BYTES || peer == link->job->rank)
        return 2;
    link->message[request] = (struct pipes_message){true, sends, peer, link->turns++, data, bytes, 0};
    return 0;
}

static int pipes_send(struct ranks_link *link, int request, int to, const void *data, size_t bytes)
{
    return pipes_begin(link, request, true, to, (void *)(uintptr_t)data, bytes);
}

static int pipes_receive(struct ranks_link *link, int request, int from, void *data, size_t bytes)
{
    return pipes_begin(link, request, false, from, data, bytes);
}

/* Progresses, for each direction and process, the oldest requested message. */
static int pipes_test(struct ranks_link *link, int request, int *done)
{
    for (int i = 0; i < PIPES_REQUESTS; i++) {
        struct pipes_message *m = &link->message[i];
        bool first = m->used && m->done < m->bytes;
        for (int k = 0; first && k < PIPES_REQUESTS; k++) {
            const struct pipes_message *other = &link->message[k];
            first = !(other->used && other->done < other->bytes && other->sends == m->sends && other->peer == m->peer &&
                      other->turn < m->turn);
        }
        if (!first)
            continue;
        const int fd = link->job->end[link->job->rank][m->peer];
        const ssize_t n = m->sends ? send(fd, m->data + m->done, m->bytes - m->done, MSG_DONTWAIT | MSG_NOSIGNAL)
                                   : recv(fd, m->data + m->done, m->bytes - m->done, MSG_DONTWAIT);
        if (n > 0)
            m->done += (size_t)n;           /* a closed peer is handled by the check for dead processes */
    }
    struct pipes_message *m = &link->message[request];
    *done = m->done == m->bytes;
    if (*done)
        m->used = false;
    return 0;
}

/* Waits until all processes have called this. */
static int pipes_close(struct ranks_link **link)
{
    const struct pipes_job *job = (*link)->job;
    char bye = 0;
    for (int i = 0; i < job->size; i++)
        if (i != job->rank)
            (void)!send(job->end[job->rank][i], &bye, 1, MSG_NOSIGNAL);
    for (int i = 0; i < job->size; i++)
        if (i != job->rank)
            (void)!recv(job->end[job->rank][i], &bye, 1, 0);
    free(*link);
    *link = NULL;
    return 0;
}

static const char *pipes_error(int error) { return error == 2 ? "a request is in use, or too long" : "too many requests"; }

static const struct ranks_plugin pipes_plugin = {RANKS_PLUGIN_VERSION, pipes_open, pipes_send, pipes_receive, pipes_test,
                                                 pipes_close, pipes_error};

/* Returns zeroed memory shared by all processes. */
static inline void *pipes_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static inline int pipes_run(int size, int (*work)(struct ranks *ranks, void *argument), void *argument)
{
    struct pipes_job job = {.size = size};
    pid_t child[PIPES_MAX];
    int failures = 0;
    for (int a = 0; a < size; a++)
        for (int b = 0; b < a; b++) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            job.end[a][b] = pair[0];
            job.end[b][a] = pair[1];
        }
    fflush(NULL);
    for (job.rank = 0; job.rank < size; job.rank++) {
        if ((child[job.rank] = fork()))
            continue;
        struct ranks *ranks = NULL;
        struct err err = {0};
        if (ranks_over(&ranks, &pipes_plugin, &job, size, &err)) {
            fprintf(stderr, "process %d: %s\n", job.rank, err.text);
            _exit(100);
        }
        const int failed = work(ranks, argument);
        ranks_close(&ranks);
        _exit(failed);
    }
    for (int i = 0; i < size; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        failures += WIFEXITED(status) ? WEXITSTATUS(status) : 0;       /* a killed process was killed on purpose */
    }
    for (int a = 0; a < size; a++)
        for (int b = 0; b < size; b++)
            if (a != b)
                close(job.end[a][b]);
    return failures;
}

#endif
