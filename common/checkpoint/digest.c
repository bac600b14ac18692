#include "common/checkpoint/digest.h"

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/mem.h"
#include "common/base/thread.h"

struct digester {
    struct checkpoint *checkpoint;
    atomic_size_t next;                 /* index of the next file to digest */
    atomic_bool stopped;
    bool beside;                        /* an own thread is running */
    pthread_t thread;
    struct err own, errs[THREAD_POOL_MAX];
};

static int digest_file(struct digester *d, int index, struct err *err)
{
    enum { STEP = 1 << 20 };
    struct source_file *file = &d->checkpoint->files[index];
    const struct source_tensor whole = {.file = index};
    struct sha256_stream *stream = NULL;
    void *data = mem_alloc(STEP, 1, err);
    int rc = -1;
    if (!data || sha256_stream_new(&stream, err))
        goto done;
    for (uint64_t at = 0; at < file->bytes && !atomic_load(&d->stopped);) {
        size_t bytes = file->bytes - at < STEP ? (size_t)(file->bytes - at) : STEP;
        if (checkpoint_read(d->checkpoint, &whole, at, data, bytes, err) || sha256_stream_put(stream, data, bytes, err))
            goto done;
        at += bytes;
    }
    rc = sha256_stream_end(&stream, &file->digest, err);
    file->digested = rc == 0;
done:
    sha256_stream_free(&stream);
    mem_free(&data);
    return rc;
}

static void digest_files(struct digester *d, struct err *err)
{
    for (size_t i; !atomic_load(&d->stopped) && (i = atomic_fetch_add(&d->next, 1)) < d->checkpoint->file_count;)
        if (!d->checkpoint->files[i].digested && digest_file(d, (int)i, err))
            atomic_store(&d->stopped, true);
}

static void *digest_beside(void *argument)
{
    struct digester *d = argument;
    digest_files(d, &d->own);
    return NULL;
}

static void digest_member(void *argument, int member, int members)
{
    struct digester *d = argument;
    (void)members;
    digest_files(d, &d->errs[member]);
}

/* Starts the thread. If it cannot be started, this is no error: digester_end does all the work in the pool. */
int digester_start(struct digester **out, struct checkpoint *checkpoint, bool beside, struct err *err)
{
    struct digester *d = mem_alloc(1, sizeof *d, err);
    if (!d)
        return -1;
    d->checkpoint = checkpoint;
    d->beside = beside && !thread_start(&d->thread, digest_beside, d);
    *out = d;
    return 0;
}

static void digester_join(struct digester *d)
{
    if (d->beside)
        pthread_join(d->thread, NULL);
    d->beside = false;
}

int digester_end(struct digester **address, struct thread_pool *pool, struct err *err)
{
    struct digester *d = *address;
    int rc = 0;
    thread_pool_run(pool, digest_member, d);
    digester_join(d);
    if (d->own.code)
        rc = err_set(err, d->own.code, "%s: %s", d->checkpoint->path, d->own.text);
    for (int i = 0; i < thread_pool_size(pool) && !rc; i++)
        if (d->errs[i].code)
            rc = err_set(err, d->errs[i].code, "%s: %s", d->checkpoint->path, d->errs[i].text);
    mem_free(address);
    return rc;
}

void digester_stop(struct digester **address)
{
    if (*address) {
        atomic_store(&(*address)->stopped, true);
        digester_join(*address);
    }
    mem_free(address);
}
