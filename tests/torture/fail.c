/* Loaded into a command (LD_PRELOAD): makes one call fail, as on a machine in trouble.
 *
 *   FAIL_CALL   the group: memory, read, write, map, open, sync, rename, thread, ring (io_uring itself); short: the read
 *               returns half of the data, and there is no io_uring
 *   FAIL_AT     which call of that group fails, from 1; all later ones work again. 0: none
 *   FAIL_STICK  if set: all later ones fail, too
 *   FAIL_SPARE  a library whose own allocations neither fail nor count
 *   FAIL_COUNT  name of a file that gets the number of calls of the group at the end of the process
 *
 * Calls before main (the dynamic linker, constructors of libraries) are not counted. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum group { MEMORY, READ, WRITE, MAP, OPEN, SYNC, RENAME, THREAD, RING, SHORT, GROUPS };
static const char *const group_names[GROUPS] = {
    "memory", "read", "write", "map", "open", "sync", "rename", "thread", "ring", "short"
};

static atomic_bool started;
static int chosen = -1;
static long fail_at;
static bool stick;
static atomic_long calls;
static char count_file[4096];

static bool fails(enum group group)
{
    if (!atomic_load_explicit(&started, memory_order_acquire) || (int)group != chosen)
        return false;
    long n = atomic_fetch_add(&calls, 1) + 1;
    return fail_at > 0 && (n == fail_at || (stick && n > fail_at));
}

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

/* Returns a pointer to the function that is hidden, looked up once. */
#define HIDDEN(type, name, ...) \
    static type (*hidden)(__VA_ARGS__); \
    if (!hidden) \
        *(void **)&hidden = next(name)

static uintptr_t spared_begin, spared_end;

static int find_spared(struct dl_phdr_info *info, size_t bytes, void *name)
{
    (void)bytes;
    if (!info->dlpi_name || !strstr(info->dlpi_name, name))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            spared_begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            spared_end = spared_begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static bool no_memory(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    if ((at >= spared_begin && at < spared_end) || !fails(MEMORY))
        return false;
    errno = ENOMEM;
    return true;
}

/* The next allocator: the sanitiser's, or the C library's. */
void *malloc(size_t bytes)
{
    HIDDEN(void *, "malloc", size_t);
    return no_memory(__builtin_return_address(0)) ? NULL : hidden(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    HIDDEN(void *, "calloc", size_t, size_t);
    return no_memory(__builtin_return_address(0)) ? NULL : hidden(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    HIDDEN(void *, "realloc", void *, size_t);
    return no_memory(__builtin_return_address(0)) ? NULL : hidden(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    HIDDEN(void *, "aligned_alloc", size_t, size_t);
    return no_memory(__builtin_return_address(0)) ? NULL : hidden(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    HIDDEN(int, "posix_memalign", void **, size_t, size_t);
    return no_memory(__builtin_return_address(0)) ? ENOMEM : hidden(out, alignment, bytes);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    HIDDEN(ssize_t, "read", int, void *, size_t);
    if (fails(READ)) {
        errno = EIO;
        return -1;
    }
    return hidden(fd, data, bytes > 1 && fails(SHORT) ? bytes / 2 : bytes);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    HIDDEN(ssize_t, "pread", int, void *, size_t, off_t);
    if (fails(READ)) {
        errno = EIO;
        return -1;
    }
    /* O_DIRECT reads and writes whole pages, except for the last one of a file. */
    return hidden(fd, data, bytes > 4096 && fails(SHORT) ? (bytes / 2 + 4095) / 4096 * 4096 : bytes, offset);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    HIDDEN(ssize_t, "write", int, const void *, size_t);
    if (fd != STDERR_FILENO && fails(WRITE)) {
        errno = ENOSPC;
        return -1;
    }
    return hidden(fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    HIDDEN(ssize_t, "pwrite", int, const void *, size_t, off_t);
    if (fails(WRITE)) {
        errno = ENOSPC;
        return -1;
    }
    return hidden(fd, data, bytes, offset);
}

int ftruncate(int fd, off_t bytes)
{
    HIDDEN(int, "ftruncate", int, off_t);
    if (fails(WRITE)) {
        errno = ENOSPC;
        return -1;
    }
    return hidden(fd, bytes);
}

void *mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    HIDDEN(void *, "mmap", void *, size_t, int, int, int, off_t);
    if (fails(MAP)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return hidden(where, bytes, protection, flags, fd, offset);
}

int open(const char *path, int flags, ...)
{
    HIDDEN(int, "open", const char *, int, ...);
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (fails(OPEN)) {
        errno = EMFILE;
        return -1;
    }
    return hidden(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    HIDDEN(FILE *, "fopen", const char *, const char *);
    if (fails(OPEN)) {
        errno = EMFILE;
        return NULL;
    }
    return hidden(path, mode);
}

int memfd_create(const char *name, unsigned flags)
{
    HIDDEN(int, "memfd_create", const char *, unsigned);
    if (fails(OPEN)) {
        errno = EMFILE;
        return -1;
    }
    return hidden(name, flags);
}

int fsync(int fd)
{
    HIDDEN(int, "fsync", int);
    if (fails(SYNC)) {
        errno = EIO;
        return -1;
    }
    return hidden(fd);
}

int rename(const char *from, const char *to)
{
    HIDDEN(int, "rename", const char *, const char *);
    if (fails(RENAME)) {
        errno = EACCES;
        return -1;
    }
    return hidden(from, to);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    HIDDEN(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    return fails(THREAD) ? EAGAIN : hidden(thread, attributes, run, context);
}

/* A kernel without io_uring, or with io_uring disabled. */
struct io_uring;
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    HIDDEN(int, "io_uring_queue_init", unsigned, struct io_uring *, unsigned);
    return fails(RING) || chosen == SHORT ? -ENOSYS : hidden(entries, ring, flags);
}

/* Reads use this call. */
int io_uring_submit(struct io_uring *ring);
int io_uring_submit(struct io_uring *ring)
{
    HIDDEN(int, "io_uring_submit", struct io_uring *);
    return fails(READ) ? -EIO : hidden(ring);
}

static void write_count(void)
{
    char text[32];
    atomic_store(&started, false);
    int fd = *count_file ? open(count_file, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    int bytes = snprintf(text, sizeof text, "%ld\n", atomic_load(&calls));
    if (fd >= 0) {
        (void)!write(fd, text, (size_t)bytes);
        close(fd);
    }
}

/* Wraps main, so that counting begins there. */
static int (*real_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **environment)
{
    const char *call = getenv("FAIL_CALL"), *at = getenv("FAIL_AT"), *count = getenv("FAIL_COUNT");
    for (int i = 0; call && i < GROUPS; i++)
        if (strcmp(call, group_names[i]) == 0)
            chosen = i;
    fail_at = at ? atol(at) : 0;
    stick = getenv("FAIL_STICK") != NULL;
    snprintf(count_file, sizeof count_file, "%s", count ? count : "");
    if (getenv("FAIL_SPARE"))
        dl_iterate_phdr(find_spared, getenv("FAIL_SPARE"));
    unsetenv("LD_PRELOAD");
    atexit(write_count);
    atomic_store_explicit(&started, true, memory_order_release);
    return real_main(argc, argv, environment);
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, int (*init)(int, char **, char **),
                      void (*finish)(void), void (*loader_finish)(void), void *stack_end);
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, int (*init)(int, char **, char **),
                      void (*finish)(void), void (*loader_finish)(void), void *stack_end)
{
    int (*hidden)(int (*)(int, char **, char **), int, char **, int (*)(int, char **, char **), void (*)(void), void (*)(void),
                  void *);
    *(void **)&hidden = next("__libc_start_main");
    real_main = main;
    return hidden(counted_main, argc, argv, init, finish, loader_finish, stack_end);
}
