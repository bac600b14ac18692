#include "common/ranks/ranks.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/plugin.h"
#include "common/ranks/guard.h"

/* The facts of a process that all processes know. */
struct member {
    int64_t id;                 /* process id on its machine */
    uint64_t born;              /* start time in the system's count, which distinguishes processes that had the same id */
    cpu_set_t processors;       /* processors that it may run on */
    char host[240];
};

struct ranks {
    const struct ranks_plugin *plugin;      /* NULL: a single process */
    struct ranks_link *link;
    int rank, size;
    struct member *members;                 /* [size]; NULL until exchanged */
    bool *watched;                          /* [size] this process can see whether that process lives */
    bool over;                              /* an error is known to all, or a process died: no further call is allowed */
    bool died;                              /* a process died, so the end must not wait for all */
    bool prints_error;                      /* this process must print the error */
};

/* Requests per process: sending and receiving, for two rounds at a time. */
enum { REQUESTS = 4 };

/* ---- liveness of the processes ---- */

static bool is_alive(const struct ranks *r, int rank)
{
    return !r->watched[rank] || guard_start_time(r->members[rank].id) == r->members[rank].born;
}

/* Checks whether a process on this machine has died. */
static int check_alive(struct ranks *r, struct err *err)
{
    for (int i = 0; i < r->size; i++) {
        if (is_alive(r, i))
            continue;
        r->over = r->died = r->prints_error = true;
        for (int before = 0; before < r->rank; before++)
            r->prints_error = r->prints_error && !is_alive(r, before);
        /* This process ends now. It waits so that others do not take it for the one that died first, and so that the process
         * that prints the error has done so. */
        nanosleep(&(struct timespec){.tv_nsec = r->prints_error ? 300000000 : 900000000}, NULL);
        return err_set(err, ERR_IO, "process %d of %d (%s, pid %" PRId64 ") ended unexpectedly", i, r->size, r->members[i].host,
                       r->members[i].id);
    }
    return 0;
}

/* ---- messages ---- */

static int failed(struct ranks *r, int error, struct err *err)
{
    char text[512];
    snprintf(text, sizeof text, "%s", r->plugin->error_text(error));
    r->over = r->died = r->prints_error = true;
    return err_set(err, ERR_IO, "process %d of %d: communication failed: %s", r->rank, r->size, text);
}

/* Expected length of a wait. SHORT: data are on their way; LONG: another process is still computing. */
enum patience { PATIENCE_SHORT, PATIENCE_LONG };

static int wait_for_requests(struct ranks *r, const int *request, int count, enum patience patience, struct err *err)
{
    const double spin = 200e-6, longest = 500e-6, start = clock_seconds();
    double looked = start;
    for (int i = 0; i < count;) {
        int done = 0, error = r->plugin->test(r->link, request[i], &done);
        if (error)
            return failed(r, error, err);
        if (done) {
            i++;
            continue;
        }
        const double now = clock_seconds(), waited = now - start, pause = waited / 8 < longest ? waited / 8 : longest;
        if (patience == PATIENCE_SHORT || waited < spin)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * pause)}, NULL);
        if (r->members && now - looked > 0.05) {
            if (check_alive(r, err))
                return -1;
            looked = clock_seconds();
        }
    }
    return 0;
}

static int start_send(struct ranks *r, int request, int to, const void *data, size_t bytes, struct err *err)
{
    const int error = r->plugin->send(r->link, request, to, data, bytes);
    return error ? failed(r, error, err) : 0;
}

static int start_receive(struct ranks *r, int request, int from, void *data, size_t bytes, struct err *err)
{
    const int error = r->plugin->receive(r->link, request, from, data, bytes);
    return error ? failed(r, error, err) : 0;
}

static int send_all(struct ranks *r, int to, const void *data, size_t bytes, struct err *err)
{
    const int request = 0;
    return start_send(r, request, to, data, bytes, err) || wait_for_requests(r, &request, 1, PATIENCE_SHORT, err) ? -1 : 0;
}

static int receive_all(struct ranks *r, int from, void *data, size_t bytes, enum patience patience, struct err *err)
{
    const int request = 1;
    return start_receive(r, request, from, data, bytes, err) || wait_for_requests(r, &request, 1, patience, err) ? -1 : 0;
}

/* ---- agreement on errors ---- */

struct word {
    int32_t code, asks;             /* enum err_code; ERR_NONE: no error */
    uint64_t fingerprint;
    int32_t rank, all;              /* in the verdict: the process with the error, and whether all have failed */
    char text[sizeof ((struct err *)NULL)->text];
};
enum { WORD_BYTES = offsetof(struct word, text) };      /* the text follows only with an error */

static int send_word(struct ranks *r, int to, const struct word *word, struct err *err)
{
    return send_all(r, to, word, WORD_BYTES, err) ||
           (word->code && send_all(r, to, word->text, sizeof word->text, err)) ? -1 : 0;
}

static int receive_word(struct ranks *r, int from, struct word *word, struct err *err)
{
    if (receive_all(r, from, word, WORD_BYTES, PATIENCE_LONG, err) ||
        (word->code && receive_all(r, from, word->text, sizeof word->text, PATIENCE_SHORT, err)))
        return -1;
    word->text[sizeof word->text - 1] = '\0';
    return 0;
}

/* In process 0: receives the status of all others and sends them the verdict, the first error in order of rank. */
static int collect_status(struct ranks *r, struct word *word, struct err *err)
{
    struct word other;
    int failures = word->code != ERR_NONE;
    for (int i = 1; i < r->size; i++) {
        if (receive_word(r, i, &other, err))
            return -1;
        failures += other.code != ERR_NONE;
        if (!other.code && other.fingerprint != word->fingerprint) {
            other.code = ERR_IO;
            snprintf(other.text, sizeof other.text, "does not compute what process 0 computes; start all processes with the "
                     "same options, prompts and files");
        }
        if (other.code && !word->code) {
            other.rank = i;
            other.asks |= word->asks;
            *word = other;
        }
        word->asks |= other.asks;
    }
    word->all = failures == r->size;
    for (int i = 1; i < r->size; i++)
        if (send_word(r, i, word, err))
            return -1;
    return 0;
}

static int exchange_status(struct ranks *r, const struct err *own, uint64_t fingerprint, bool asks, bool *asked,
                           struct err *err)
{
    struct word word = {.code = own ? (int32_t)own->code : ERR_NONE, .asks = asks, .fingerprint = fingerprint};
    if (asked)
        *asked = asks;
    if (!r->plugin)
        return 0;
    if (r->over)
        return err_set(err, ERR_REPORTED, "the other processes ended");
    if (own)
        memcpy(word.text, own->text, sizeof word.text);
    if (r->rank == 0 ? collect_status(r, &word, err) : send_word(r, 0, &word, err) || receive_word(r, 0, &word, err))
        return -1;
    if (asked)
        *asked = word.asks != 0;
    if (word.code == ERR_NONE)
        return 0;
    r->over = true;
    r->prints_error = r->rank == 0;
    if (own)
        err_clear(err);
    if (word.all || word.rank >= r->size)
        return err_set(err, (enum err_code)word.code, "%s", word.text);
    return err_set(err, (enum err_code)word.code, "process %d of %d (%s): %s", word.rank, r->size,
                   r->members ? r->members[word.rank].host : "?", word.text);
}

int ranks_agree(struct ranks *ranks, bool asks, bool *asked, struct err *err)
{
    return exchange_status(ranks, NULL, 0, asks, asked, err);
}

int ranks_agree_on(struct ranks *ranks, uint64_t fingerprint, bool asks, bool *asked, struct err *err)
{
    return exchange_status(ranks, NULL, fingerprint, asks, asked, err);
}

void ranks_leave(struct ranks *r, struct err *err)
{
    if (!r || !r->plugin)
        return;
    if (!r->over) {
        const struct err own = *err;
        exchange_status(r, &own, 0, false, NULL, err);
    }
    if (!r->prints_error)
        err->code = ERR_REPORTED;
}

/* ---- to open and close ---- */

int ranks_alone(struct ranks **out, struct err *err)
{
    struct ranks *r = mem_alloc(1, sizeof *r, err);
    if (!r)
        return -1;
    r->size = 1;
    *out = r;
    return 0;
}

static int exchange_members(struct ranks *r, struct err *err)
{
    struct member *members = mem_alloc((size_t)r->size, sizeof *members, err);
    size_t *cut = mem_alloc((size_t)r->size + 1, sizeof *cut, err);
    int rc = !members || !cut || !(r->watched = mem_alloc((size_t)r->size, sizeof *r->watched, err)) ? -1 : 0;
    if (!rc) {
        struct member *self = &members[r->rank];
        self->id = getpid();
        self->born = guard_start_time(self->id);
        if (sched_getaffinity(0, sizeof self->processors, &self->processors))
            CPU_ZERO(&self->processors);
        if (gethostname(self->host, sizeof self->host - 1))
            snprintf(self->host, sizeof self->host, "?");
        for (int i = 0; i <= r->size; i++)
            cut[i] = (size_t)i * sizeof *members;
        rc = ranks_share(r, members, cut, err);
    }
    for (int i = 0; !rc && i < r->size; i++) {
        members[i].host[sizeof members[i].host - 1] = '\0';
        r->watched[i] = !strcmp(members[i].host, members[r->rank].host) && members[i].born &&
                        guard_start_time(members[i].id) == members[i].born;
    }
    mem_free(&cut);
    if (rc)
        mem_free(&members);
    r->members = members;
    return rc;
}

int ranks_over(struct ranks **out, const struct ranks_plugin *plugin, void *context, int expected, struct err *err)
{
    struct ranks *r = mem_alloc(1, sizeof *r, err);
    if (!r)
        return -1;
    r->plugin = plugin;
    const int error = plugin->open(&r->link, context, REQUESTS, &r->rank, &r->size);
    if (error) {
        err_set(err, ERR_IO, "%s", plugin->error_text(error));
        mem_free(&r);
        return -1;
    }
    if (r->size > RANKS_MAX)
        err_set(err, ERR_INPUT, "the job has %d processes, more than the maximum of %d; start fewer", r->size, RANKS_MAX);
    else if (expected && expected != r->size)
        err_set(err, ERR_INPUT, "the job has %d processes, but the plug-in finds %d, because it was built for another MPI; "
                "build it with the MPI whose mpirun starts the job", expected, r->size);
    else if (!exchange_members(r, err)) {
        *out = r;
        return 0;
    }
    ranks_close(&r);
    return -1;
}

int ranks_open(struct ranks **out, const char *name, int expected, struct err *err)
{
    char file[64];
    snprintf(file, sizeof file, "moe-ranks-%s.so", name);
    void *library = plugin_load(file, "build it on a machine with mpicc, which make deps-mpi installs", err);
    if (!library)
        return -1;
    const struct ranks_plugin *(*find)(void) = NULL;
    *(void **)&find = dlsym(library, RANKS_PLUGIN_SYMBOL);
    if (!find || find()->version != RANKS_PLUGIN_VERSION)
        return err_set(err, ERR_INPUT, "%s has another version than this command; build it again", file);
    return ranks_over(out, find(), NULL, expected, err);
}

void ranks_close(struct ranks **ranks)
{
    struct ranks *r = *ranks;
    if (!r)
        return;
    if (r->link && !r->died)
        r->plugin->close(&r->link);
    mem_free(&r->members);
    mem_free(&r->watched);
    mem_free(ranks);
}

int ranks_rank(const struct ranks *r) { return r->rank; }

int ranks_size(const struct ranks *r) { return r->size; }

int ranks_sharing_processors(const struct ranks *r)
{
    int beside = 1;
    for (int i = 0; r->members && i < r->size; i++) {
        const struct member *self = &r->members[r->rank], *other = &r->members[i];
        cpu_set_t both;
        CPU_AND(&both, &self->processors, &other->processors);
        beside += i != r->rank && !strcmp(other->host, self->host) && CPU_COUNT(&both);
    }
    return beside;
}

/* Returns how many of the first `count` processes are on this host. */
static int count_on_host(const struct ranks *r, int count)
{
    int here = 0;
    for (int i = 0; i < count; i++)
        here += !strcmp(r->members[i].host, r->members[r->rank].host);
    return here;
}

int ranks_here(const struct ranks *r) { return r->members ? count_on_host(r, r->rank) : 0; }

int ranks_on_host(const struct ranks *r) { return r->members ? count_on_host(r, r->size) : 1; }

/* ---- copies ---- */

static size_t min_of(size_t a, size_t b) { return a < b ? a : b; }

int ranks_broadcast(struct ranks *r, void *data, size_t bytes, struct err *err)
{
    const int from = 0, to[2] = {1, 2};
    bool sent[2] = {false, false};
    if (ranks_agree(r, false, NULL, err))
        return -1;
    /* Passes data from each process to the next, in pieces; while one piece is sent, the next one is received. */
    for (size_t at = 0, turn = 0; r->size > 1 && at < bytes; at += RANKS_MESSAGE_BYTES, turn ^= 1) {
        char *piece = (char *)data + at;
        const size_t length = min_of(bytes - at, RANKS_MESSAGE_BYTES);
        if (r->rank > 0 && (start_receive(r, from, r->rank - 1, piece, length, err) ||
                            wait_for_requests(r, &from, 1, PATIENCE_SHORT, err)))
            return -1;
        if (r->rank + 1 == r->size)
            continue;
        if ((sent[turn] && wait_for_requests(r, &to[turn], 1, PATIENCE_SHORT, err)) ||
            start_send(r, to[turn], r->rank + 1, piece, length, err))
            return -1;
        sent[turn] = true;
    }
    for (int turn = 0; turn < 2; turn++)
        if (sent[turn] && wait_for_requests(r, &to[turn], 1, PATIENCE_SHORT, err))
            return -1;
    return 0;
}

/* Sends a part to one process while receiving another, in pieces. */
static int pass_on(struct ranks *r, int to, const char *out, size_t out_bytes, int from, char *in, size_t in_bytes,
                   struct err *err)
{
    for (size_t at = 0; at < out_bytes || at < in_bytes; at += RANKS_MESSAGE_BYTES) {
        int requests[2], count = 0;
        if (at < in_bytes) {
            if (start_receive(r, 1, from, in + at, min_of(in_bytes - at, RANKS_MESSAGE_BYTES), err))
                return -1;
            requests[count++] = 1;
        }
        if (at < out_bytes) {
            if (start_send(r, 0, to, out + at, min_of(out_bytes - at, RANKS_MESSAGE_BYTES), err))
                return -1;
            requests[count++] = 0;
        }
        if (wait_for_requests(r, requests, count, PATIENCE_SHORT, err))
            return -1;
    }
    return 0;
}

int ranks_share_agreed(struct ranks *r, void *data, const size_t *cut, struct err *err)
{
    const int size = r->size, next = (r->rank + 1) % size, before = (r->rank + size - 1) % size;
    char *bytes = data;
    for (int turn = 0; turn + 1 < size; turn++) {
        const int out = (r->rank + size - turn) % size, in = (before + size - turn) % size;
        if (pass_on(r, next, bytes + cut[out], cut[out + 1] - cut[out], before, bytes + cut[in], cut[in + 1] - cut[in], err))
            return -1;
    }
    return 0;
}

int ranks_share(struct ranks *r, void *data, const size_t *cut, struct err *err)
{
    return ranks_agree(r, false, NULL, err) || ranks_share_agreed(r, data, cut, err) ? -1 : 0;
}

int ranks_collect(struct ranks *r, void *data, const size_t *cut, struct err *err)
{
    char *bytes = data;
    if (ranks_agree(r, false, NULL, err))
        return -1;
    if (r->rank > 0)
        return pass_on(r, 0, bytes + cut[r->rank], cut[r->rank + 1] - cut[r->rank], 0, NULL, 0, err);
    for (int from = 1; from < r->size; from++)
        if (pass_on(r, 0, NULL, 0, from, bytes + cut[from], cut[from + 1] - cut[from], err))
            return -1;
    return 0;
}

void ranks_cut(const struct ranks *r, size_t count, size_t grain, size_t *cut)
{
    const size_t grains = (count + grain - 1) / grain, size = (size_t)r->size;
    for (size_t i = 0; i <= size; i++)
        cut[i] = min_of(count, (grains / size * i + grains % size * i / size) * grain);
}

/* ---- sums ---- */

struct fold {
    struct ranks *ranks;
    const float *values;
    int givers;
    const size_t *cut;
    float *sum;
    bool anew;
    size_t piece;               /* floats of a part per piece */
    float *received[2];         /* [givers][piece] received data, of the current and of the next piece */
};

/* Returns how many floats of `rank`'s part belong to piece `at`. */
static size_t piece_of(const struct fold *f, int rank, size_t at)
{
    const size_t part = f->cut[rank + 1] - f->cut[rank], begin = at * f->piece;
    return begin < part ? min_of(part - begin, f->piece) : 0;
}

/* Starts all sends and receives of piece `at`, with the request numbers of its turn (even or odd). */
static int start_piece(const struct fold *f, size_t at, struct err *err)
{
    struct ranks *r = f->ranks;
    const int base = (int)(at % 2) * 2 * r->size;
    const size_t own = piece_of(f, r->rank, at);
    for (int i = 0; i < r->size; i++) {
        const size_t piece = piece_of(f, i, at);
        if (i == r->rank)
            continue;
        float *received = f->received[at % 2] + (size_t)i * f->piece;
        if (own && i < f->givers && start_receive(r, base + i, i, received, own * sizeof(float), err))
            return -1;
        if (piece && r->rank < f->givers &&
            start_send(r, base + r->size + i, i, f->values + f->cut[i] + at * f->piece, piece * sizeof(float), err))
            return -1;
    }
    return 0;
}

static void add_piece(const struct fold *f, size_t at)
{
    const struct ranks *r = f->ranks;
    const size_t count = piece_of(f, r->rank, at);
    float *sum = f->sum + at * f->piece, *total = f->received[at % 2] + (size_t)f->givers * f->piece;
    for (int i = 0; i < f->givers; i++) {
        const float *x = i == r->rank ? f->values + f->cut[i] + at * f->piece : f->received[at % 2] + (size_t)i * f->piece;
        const float *before = i ? total : f->anew ? NULL : sum;
        if (!before)
            memcpy(total, x, count * sizeof *x);
        else
            for (size_t k = 0; k < count; k++)
                total[k] = before[k] + x[k];
    }
    memcpy(sum, total, count * sizeof *sum);
}

/* Waits for the requests of piece `at`, one by one. */
static int end_piece(const struct fold *f, size_t at, struct err *err)
{
    struct ranks *r = f->ranks;
    const int base = (int)(at % 2) * 2 * r->size;
    for (int i = 0; i < r->size; i++) {
        const int in = base + i, out = base + r->size + i;
        if (i != r->rank && ((i < f->givers && piece_of(f, r->rank, at) && wait_for_requests(r, &in, 1, PATIENCE_SHORT, err)) ||
                             (r->rank < f->givers && piece_of(f, i, at) && wait_for_requests(r, &out, 1, PATIENCE_SHORT, err))))
            return -1;
    }
    return 0;
}

int ranks_fold(struct ranks *r, const float *values, int givers, const size_t *cut, float *sum, bool anew, struct err *err)
{
    enum { PIECES_BYTES = 16 << 20 };
    const size_t room = (size_t)givers + 1;
    const size_t piece = min_of(RANKS_MESSAGE_BYTES, PIECES_BYTES / room) / sizeof(float);
    struct fold f = {r, values, givers, cut, sum, anew, piece, {NULL}};
    size_t longest = 0, pieces;
    int rc = -1;
    for (int i = 0; i < r->size; i++)
        longest = cut[i + 1] - cut[i] > longest ? cut[i + 1] - cut[i] : longest;
    pieces = (longest + f.piece - 1) / f.piece;
    f.piece = min_of(f.piece, longest);
    if (!(f.received[0] = mem_alloc(room * (f.piece + 1), sizeof(float), err)) ||
        !(f.received[1] = mem_alloc(room * (f.piece + 1), sizeof(float), err)))
        goto done;
    if (ranks_agree(r, false, NULL, err) || (pieces && start_piece(&f, 0, err)))
        goto done;
    for (size_t at = 0; at < pieces; at++) {
        if ((at + 1 < pieces && start_piece(&f, at + 1, err)) || end_piece(&f, at, err))
            goto done;
        add_piece(&f, at);
    }
    rc = 0;
done:
    mem_free(&f.received[0]);
    mem_free(&f.received[1]);
    return rc;
}
