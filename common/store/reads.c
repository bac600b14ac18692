#include "common/store/reads.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/base/thread.h"

enum { THREADS_MAX = 8, PART_MAX = 1 << 30, LOOK_MS = 100 };      /* LOOK_MS: milliseconds between two checks of the stop */

/* Tag of io_uring entries that are not reads. */
static const uint64_t NO_READ = UINT64_MAX;

struct read {
    char *data;
    uint64_t offset;
    size_t bytes, done;
    int tag;
    int rc;                              /* result of a read by a thread */
    struct err err;
    int next;                            /* next in its list; -1: last */
};

/* A queue of indices into reads.read. */
struct list {
    int first, last;                     /* -1: none */
};

struct reads {
    const struct direct_file *file;
    struct read *read;                   /* [depth] */
    int depth, busy;
    struct list idle;
    char way[256];
    bool ring_open;
    struct io_uring ring;
    /* The rest is used by threads only. */
    pthread_mutex_t lock;
    pthread_cond_t work, ended;
    struct list wanted, done;
    pthread_t thread[THREADS_MAX];
    int threads;
    bool stop;
};

static void list_add(struct reads *reads, struct list *list, int number)
{
    reads->read[number].next = -1;
    if (list->first < 0)
        list->first = number;
    else
        reads->read[list->last].next = number;
    list->last = number;
}

static int list_take(struct reads *reads, struct list *list)
{
    int number = list->first;
    if (number >= 0)
        list->first = reads->read[number].next;
    return number;
}

/* ---- threads */

static void *read_all(void *argument)
{
    struct reads *reads = argument;
    pthread_mutex_lock(&reads->lock);
    for (;;) {
        int number = list_take(reads, &reads->wanted);
        if (number < 0 && reads->stop)
            break;
        if (number < 0) {
            pthread_cond_wait(&reads->work, &reads->lock);
            continue;
        }
        struct read *read = &reads->read[number];
        pthread_mutex_unlock(&reads->lock);
        read->rc = direct_read(reads->file, read->data, read->offset, read->bytes, &read->err);
        pthread_mutex_lock(&reads->lock);
        list_add(reads, &reads->done, number);
        pthread_cond_signal(&reads->ended);
    }
    pthread_mutex_unlock(&reads->lock);
    return NULL;
}

static int start_threads(struct reads *reads, struct err *err)
{
    int want = reads->depth < THREADS_MAX ? reads->depth : THREADS_MAX;
    while (reads->threads < want) {
        int failed = thread_start(&reads->thread[reads->threads], read_all, reads);
        if (failed) {
            errno = failed;
            return err_errno(err, "a thread that reads %s cannot be started", reads->file->path);
        }
        reads->threads++;
    }
    return 0;
}

static int thread_next(struct reads *reads, bool wait, int *tag, struct err *err)
{
    pthread_mutex_lock(&reads->lock);
    while (wait && reads->done.first < 0)
        pthread_cond_wait(&reads->ended, &reads->lock);
    int number = list_take(reads, &reads->done);
    pthread_mutex_unlock(&reads->lock);
    if (number < 0)
        return 0;
    const struct read *read = &reads->read[number];
    *tag = read->tag;
    list_add(reads, &reads->idle, number);
    reads->busy--;
    return read->rc ? err_set(err, read->err.code, "%s", read->err.text) : 1;
}

/* ---- io_uring */

static int ring_submit(struct reads *reads, int number, struct err *err)
{
    struct read *read = &reads->read[number];
    const size_t part = size_align(read->bytes - read->done, DIRECT_STEP);
    struct io_uring_sqe *entry = io_uring_get_sqe(&reads->ring);
    if (!entry)                             /* it has an entry for each read, so the kernel did not accept
                                             * earlier ones */
        return err_set(err, ERR_IO, "%s: the submission queue of io_uring is full, so a read cannot be submitted",
                       reads->file->path);
    io_uring_prep_read(entry, reads->file->fd, read->data + read->done,
                       (unsigned)(part < PART_MAX ? part : PART_MAX), read->offset + read->done);
    io_uring_sqe_set_data64(entry, (uint64_t)number);
    for (;;) {
        int rc = io_uring_submit(&reads->ring);
        if (rc >= 0)
            return 0;
        if (rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
            io_uring_prep_nop(entry);       /* the next submit sends this entry, too, and it must not read then */
            io_uring_sqe_set_data64(entry, NO_READ);
            errno = -rc;
            return err_errno(err, "%s: reading with io_uring failed", reads->file->path);
        }
    }
}

static int ring_next(struct reads *reads, bool wait, int *tag, struct err *err)
{
    for (;;) {
        struct io_uring_cqe *entry = NULL;
        int rc = wait ? io_uring_wait_cqe(&reads->ring, &entry) : io_uring_peek_cqe(&reads->ring, &entry);
        if (rc == -EAGAIN && !wait)
            return 0;
        if (rc == -EINTR || rc == -EAGAIN)
            continue;
        if (rc < 0) {
            errno = -rc;
            return err_errno(err, "%s: reading with io_uring failed", reads->file->path);
        }
        const uint64_t data = io_uring_cqe_get_data64(entry);
        const int number = (int)data, got = entry->res;
        io_uring_cqe_seen(&reads->ring, entry);
        if (data == NO_READ)
            continue;
        struct read *read = &reads->read[number];
        int state = direct_take(reads->file, read->offset, read->bytes, got, &read->done, err);
        if (!state && ring_submit(reads, number, err))
            state = -1;
        if (!state)
            continue;
        *tag = read->tag;
        list_add(reads, &reads->idle, number);
        reads->busy--;
        return state;
    }
}

/* ---- both */

int reads_open(struct reads **out, const struct direct_file *file, int depth, bool threads, struct err *err)
{
    struct reads *reads = mem_alloc(1, sizeof *reads, err);
    int rc = 0;
    if (!reads)
        return -1;
    reads->file = file;
    reads->depth = depth < 1 ? 1 : depth < READS_DEPTH_MAX ? depth : READS_DEPTH_MAX;
    reads->idle = reads->wanted = reads->done = (struct list){-1, -1};
    pthread_mutex_init(&reads->lock, NULL);
    pthread_cond_init(&reads->work, NULL);
    pthread_cond_init(&reads->ended, NULL);
    reads->read = mem_alloc((size_t)reads->depth, sizeof *reads->read, err);
    if (!reads->read)
        goto failed;
    for (int i = 0; i < reads->depth; i++)
        list_add(reads, &reads->idle, i);
    if (!threads)
        rc = io_uring_queue_init((unsigned)reads->depth, &reads->ring, 0);
    reads->ring_open = !threads && rc >= 0;
    if (!reads->ring_open && start_threads(reads, err))
        goto failed;
    if (reads->ring_open)
        snprintf(reads->way, sizeof reads->way, "io_uring");
    else if (threads)
        snprintf(reads->way, sizeof reads->way, "%d threads", reads->threads);
    else
        snprintf(reads->way, sizeof reads->way, "%d threads, as io_uring cannot be had: %s", reads->threads, strerror(-rc));
    *out = reads;
    return 0;
failed:
    reads_close(&reads);
    return -1;
}

void reads_abandon(struct reads **address)
{
    struct reads *reads = *address;
    if (reads && reads->ring_open)
        io_uring_queue_exit(&reads->ring);
    for (int i = 0; reads && i < reads->threads; i++)       /* threads use *reads until the process ends */
        pthread_detach(reads->thread[i]);
    if (reads && !reads->threads) {
        mem_free(&reads->read);
        mem_free(address);
    }
    *address = NULL;
}

void reads_close(struct reads **address)
{
    struct reads *reads = *address;
    int tag;
    if (!reads)
        return;
    while (reads->busy && reads->ring_open) {
        int busy = reads->busy;
        if (ring_next(reads, true, &tag, NULL) < 0 && reads->busy == busy)
            break;                          /* the ring itself fails; closing it ends the reads in flight */
    }
    if (reads->ring_open)
        io_uring_queue_exit(&reads->ring);
    pthread_mutex_lock(&reads->lock);
    reads->stop = true;
    pthread_cond_broadcast(&reads->work);
    pthread_mutex_unlock(&reads->lock);
    for (int i = 0; i < reads->threads; i++)
        pthread_join(reads->thread[i], NULL);
    pthread_cond_destroy(&reads->ended);
    pthread_cond_destroy(&reads->work);
    pthread_mutex_destroy(&reads->lock);
    mem_free(&reads->read);
    mem_free(address);
}

const char *reads_method(const struct reads *reads) { return reads->way; }
int reads_busy(const struct reads *reads) { return reads->busy; }
bool reads_full(const struct reads *reads) { return reads->busy == reads->depth; }

int reads_start(struct reads *reads, int tag, void *data, uint64_t offset, size_t bytes, struct err *err)
{
    int number = list_take(reads, &reads->idle);
    if (number < 0)
        return err_set(err, ERR_INPUT, "%s: more than %d reads were started at once", reads->file->path, reads->depth);
    struct read *read = &reads->read[number];
    *read = (struct read){.data = data, .offset = offset, .bytes = bytes, .tag = tag, .next = -1};
    if (reads->ring_open) {
        if (ring_submit(reads, number, err)) {
            list_add(reads, &reads->idle, number);
            return -1;
        }
        reads->busy++;
        return 0;
    }
    reads->busy++;
    pthread_mutex_lock(&reads->lock);
    list_add(reads, &reads->wanted, number);
    pthread_cond_signal(&reads->work);
    pthread_mutex_unlock(&reads->lock);
    return 0;
}

/* Waits at most LOOK_MS for a read to complete. Returns whether one has. */
static bool has_ended(struct reads *reads, const struct stop *stop)
{
    struct timespec until;
    if (reads->ring_open) {
        struct pollfd ready[] = {{.fd = reads->ring.ring_fd, .events = POLLIN}, {.fd = stop->wake, .events = POLLIN}};
        if (!io_uring_cq_ready(&reads->ring))
            poll(ready, 2, LOOK_MS);
        return io_uring_cq_ready(&reads->ring) > 0;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&reads->lock);
    if (reads->done.first < 0)
        pthread_cond_timedwait(&reads->ended, &reads->lock, &until);
    const bool ended = reads->done.first >= 0;
    pthread_mutex_unlock(&reads->lock);
    return ended;
}

int reads_wait(struct reads *reads, const struct stop *stop, struct err *err)
{
    while (stop && reads->busy && !has_ended(reads, stop))
        if (stop_asked(stop))
            return err_set(err, ERR_SIGNAL, "interrupted");
    return 0;
}

int reads_next(struct reads *reads, bool wait, int *tag, struct err *err)
{
    *tag = -1;
    if (!reads->busy)
        return 0;
    return reads->ring_open ? ring_next(reads, wait, tag, err) : thread_next(reads, wait, tag, err);
}
