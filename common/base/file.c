#include "common/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

enum { READ_STEP = 64 * 1024, BUFFER_BYTES = 64 * 1024, WRITEBACK_BYTES = 8 << 20 };

/* The page cache keeps an aligned write of up to this size contiguous. A process that maps the file then gets one huge page
 * for these bytes, and reads them faster (docs/benchmarks.md). */
enum { WINDOW_BYTES = 2 << 20 };

static bool is_standard(const char *path) { return strcmp(path, "-") == 0; }

int file_read(struct text *out, const char *path, size_t limit, struct err *err)
{
    const char *name = is_standard(path) ? "standard input" : path;
    struct text text = {0};
    int rc = -1, fd = is_standard(path) ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, "%s", name);
    for (;;) {
        size_t need;
        if (!size_add(text.length, READ_STEP + 1, &need) || mem_grow(&text.data, &text.room, need, 1, err))
            goto done;
        size_t got;
        if (file_read_some(fd, name, text.data + text.length, READ_STEP, &got, err))
            goto done;
        if (got == 0)
            break;
        text.length += got;
        if (text.length > limit) {
            err_set(err, ERR_INPUT, "%s: is larger than %zu bytes, the limit for files of this kind; check that it is the "
                    "right file", name, limit);
            goto done;
        }
    }
    rc = text_put(out, text.data, text.length, err);
done:
    if (!is_standard(path))
        close(fd);
    text_free(&text);
    return rc;
}

int file_read_some(int fd, const char *name, void *data, size_t room, size_t *got, struct err *err)
{
    for (;;) {
        ssize_t bytes = read(fd, data, room);
        if (bytes >= 0) {
            *got = (size_t)bytes;
            return 0;
        }
        if (errno == EAGAIN)
            poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
        else if (errno == EISDIR)
            return err_set(err, ERR_INPUT, "%s: is a folder; name a file", name);
        else if (errno != EINTR)
            return err_errno(err, "%s", name);
    }
}

static struct file_identity identity(const struct stat *status)
{
    return (struct file_identity){S_ISREG(status->st_mode), status->st_dev, status->st_ino};
}

struct file_identity file_identify(const char *path)
{
    struct stat status;
    return stat(path, &status) ? (struct file_identity){0} : identity(&status);
}

struct file_identity file_identify_descriptor(int fd)
{
    struct stat status;
    return fstat(fd, &status) ? (struct file_identity){0} : identity(&status);
}

bool file_is_pointer(const void *data, size_t bytes)
{
    static const char start[] = "version https://git-lfs.github.com/spec/";
    return bytes >= sizeof start - 1 && memcmp(data, start, sizeof start - 1) == 0;
}

bool file_same(const struct file_identity *a, const struct file_identity *b)
{
    return a->known && b->known && a->device == b->device && a->inode == b->inode;
}

int file_nameless(int *fd, const char *folder, struct err *err)
{
    struct text path = {0};
    int rc = -1;
    *fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*fd >= 0)
        return 0;
    if (text_printf(&path, err, "%s/.moe-XXXXXX", folder))        /* not every file system has files without names */
        goto done;
    *fd = mkostemp(path.data, O_CLOEXEC);
    if (*fd < 0) {
        err_errno(err, "%s: files cannot be written to this folder", folder);
        goto done;
    }
    unlink(path.data);
    rc = 0;
done:
    text_free(&path);
    return rc;
}

int file_regular(int fd, const char *path, struct stat *status, struct err *err)
{
    if (fstat(fd, status))
        return err_errno(err, "%s", path);
    if (S_ISREG(status->st_mode))
        return 0;
    return err_set(err, ERR_INPUT, "%s: is a %s, not a regular file; give the name of a file on disk", path,
                   S_ISDIR(status->st_mode) ? "folder" : S_ISFIFO(status->st_mode) ? "pipe" : "device");
}

/* Addresses of mapped files and their names, in static memory for a signal handler. An entry is read in state MAP_SET only. */
enum { MAPS = 64 };
enum map_state { MAP_FREE, MAP_TAKEN, MAP_SET };
static struct {
    atomic_int state;
    const uint8_t *data;
    size_t bytes;
    char name[PATH_MAX];
} maps[MAPS];

static void map_add(const uint8_t *data, size_t bytes, const char *path)
{
    for (int i = 0; i < MAPS; i++) {
        int expected = MAP_FREE;
        if (!atomic_compare_exchange_strong(&maps[i].state, &expected, MAP_TAKEN))
            continue;
        maps[i].data = data;
        maps[i].bytes = bytes;
        snprintf(maps[i].name, sizeof maps[i].name, "%s", path);
        atomic_store(&maps[i].state, MAP_SET);
        return;
    }
}

static void map_remove(const uint8_t *data)
{
    for (int i = 0; data && i < MAPS; i++)
        if (atomic_load(&maps[i].state) == MAP_SET && maps[i].data == data) {
            atomic_store(&maps[i].state, MAP_FREE);
            return;
        }
}

const char *file_map_at_unsafe(const void *address)
{
    const uint8_t *at = address;
    for (int i = 0; i < MAPS; i++)
        if (atomic_load(&maps[i].state) == MAP_SET && at >= maps[i].data && at < maps[i].data + maps[i].bytes)
            return maps[i].name;
    return NULL;
}

int file_map_open(struct file_map *map, const char *path, struct err *err)
{
    struct stat status;
    void *data = NULL;
    int rc = -1, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);   /* do not wait for the writer of a pipe */
    if (fd < 0)
        return err_errno(err, "%s", path);
    if (file_regular(fd, path, &status, err))
        goto done;
    if (status.st_size > 0) {
        data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) {
            err_errno(err, "%s: cannot map %lld bytes", path, (long long)status.st_size);
            goto done;
        }
    }
    if (data)
        madvise(data, (size_t)status.st_size, MADV_HUGEPAGE);       /* advice only: failure changes nothing but speed */
    map->data = data;
    map->bytes = (size_t)status.st_size;
    map_add(map->data, map->bytes, path);
    rc = 0;
done:
    close(fd);
    return rc;
}

void file_map_forget(const struct file_map *map, uint64_t offset, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = offset / page * page;
    if (map->data && begin < map->bytes)
        madvise((void *)(uintptr_t)(map->data + begin), (size_t)(offset + bytes - begin), MADV_DONTNEED);
}

/* Unmaps whole pages. Huge pages are read whole, so those that reach beyond the edges are not used. The addresses stay
 * reserved until the map is closed. */
void file_map_leave_out(const struct file_map *map, uint64_t offset, uint64_t bytes)
{
    enum { HUGE_PAGE = 2 << 20 };
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end = (offset + bytes) / page * page;
    const uint64_t begin = (offset + page - 1) / page * page, first = offset / HUGE_PAGE * HUGE_PAGE;
    const uint64_t beside = (end + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, last = beside < map->bytes ? beside : map->bytes;
    uint8_t *data = (uint8_t *)(uintptr_t)map->data;
    if (!data || begin >= end || end > map->bytes)
        return;
    madvise(data + first, (size_t)(begin - first), MADV_NOHUGEPAGE);
    madvise(data + end, (size_t)(last - end), MADV_NOHUGEPAGE);
    mmap(data + begin, (size_t)(end - begin), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

void file_map_close(struct file_map *map)
{
    map_remove(map->data);
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->bytes);
    map->data = NULL;
    map->bytes = 0;
}

/* Names of the files that a signal handler removes. The table is static, because the handler may run while another thread
 * closes an output and must never follow a pointer that is being freed. A name is read in state SLOT_NAMED only, a farewell
 * message in state SLOT_KEPT only. */
enum { SLOTS = 32, SIGNAL_TEXT_BYTES = 4096 };
enum slot_state { SLOT_FREE, SLOT_TAKEN, SLOT_NAMED, SLOT_KEPT };
static struct {
    atomic_int state;
    char name[PATH_MAX], signal_text[SIGNAL_TEXT_BYTES];
} slots[SLOTS];

static int slot_take(void)
{
    for (int i = 0; i < SLOTS; i++) {
        int expected = SLOT_FREE;
        if (atomic_compare_exchange_strong(&slots[i].state, &expected, SLOT_TAKEN)) {
            *slots[i].signal_text = '\0';
            return i;
        }
    }
    return -1;
}

void output_discard_all_unsafe(void)
{
    for (int i = 0; i < SLOTS; i++) {
        int state = atomic_load(&slots[i].state);
        if (state == SLOT_NAMED)
            unlink(slots[i].name);
        if (state == SLOT_KEPT)
            (void)!write(STDERR_FILENO, slots[i].signal_text, strnlen(slots[i].signal_text, SIGNAL_TEXT_BYTES));
    }
}

struct output {
    char *path;             /* path as the user wrote it */
    char *target;           /* target of the link at `path`; the name created by the commit */
    char *left;             /* partial output of an earlier process; NULL: none */
    uint8_t *buffer;
    size_t used;
    struct window {         /* bytes passed to output_write_at and not yet written, up to a multiple of WINDOW_BYTES */
        uint8_t *data;      /* [WINDOW_BYTES]; NULL until bytes are buffered */
        uint64_t start;
        size_t used;
    } window;
    uint64_t written_back;  /* write-back was started for all bytes before this offset */
    int fd, slot;           /* slot: of the temporary name in the table of names; -1 when written in place */
    bool keeps;             /* opened by output_open_kept */
    bool kept, folder_synced;
    double synced;          /* clock_seconds; initially the time of opening */
};

static const char *output_name(const struct output *out) { return is_standard(out->path) ? "standard output" : out->path; }

const char *output_path(const struct output *out) { return out->path; }

bool output_in_place(const struct output *out) { return out->slot < 0; }

bool output_is_terminal(const struct output *out) { return isatty(out->fd); }

/* Frees the output and removes its temporary file. */
static void output_free(struct output **address)
{
    struct output *out = *address;
    if (!out)
        return;
    if (out->slot >= 0 && atomic_load(&slots[out->slot].state) == SLOT_NAMED)
        unlink(slots[out->slot].name);                  /* must run while the descriptor still holds its lock */
    if (out->fd >= 0 && !is_standard(out->path))
        close(out->fd);
    if (out->slot >= 0)
        atomic_store(&slots[out->slot].state, SLOT_FREE);
    mem_free(&out->window.data);
    mem_free(&out->buffer);
    mem_free(&out->target);
    mem_free(&out->left);
    mem_free(&out->path);
    mem_free(address);
}

/* Creates the file that the slot names. The slot is filled first, so that a signal in between cannot leave the file on disk. */
static bool create_named(struct output *out)
{
    atomic_store(&slots[out->slot].state, SLOT_NAMED);
    out->fd = open(slots[out->slot].name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out->fd < 0)
        atomic_store(&slots[out->slot].state, SLOT_TAKEN);
    return out->fd >= 0;
}

/* Matches the end of a temporary name after "TARGET.tmp.": digits, or digits, a point and digits. */
static bool is_number_of_temporary(const char *end)
{
    size_t digits = strspn(end, "0123456789"), more;
    if (!digits || !end[digits])
        return digits;
    more = strspn(end + digits + 1, "0123456789");
    return end[digits] == '.' && more && !end[digits + 1 + more];
}

/* Removes a temporary file whose process has died: its lock is free. A process that creates one takes the lock and then checks
 * that the name was not removed in between. */
static void remove_dead(const char *path)
{
    struct stat open_one, named;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (!fstat(fd, &open_one) && S_ISREG(open_one.st_mode) && !flock(fd, LOCK_EX | LOCK_NB) && !lstat(path, &named) &&
        named.st_ino == open_one.st_ino && named.st_dev == open_one.st_dev)
        unlink(path);
    close(fd);
}

/* Removes temporary files of this output that killed processes left; no other code removes them. */
static void remove_leftovers(const char *target)
{
    const char *slash = strrchr(target, '/'), *base = slash ? slash + 1 : target;
    const size_t folder = (size_t)(base - target), length = strlen(base);
    char path[PATH_MAX];
    DIR *entries;
    snprintf(path, sizeof path, "%.*s", folder ? (int)folder : 1, folder ? target : ".");
    if (!(entries = opendir(path)))
        return;
    for (const struct dirent *entry; (entry = readdir(entries));)
        if (!strncmp(entry->d_name, base, length) && !strncmp(entry->d_name + length, ".tmp.", 5) &&
            is_number_of_temporary(entry->d_name + length + 5) &&
            snprintf(path, sizeof path, "%.*s%s", (int)folder, target, entry->d_name) < PATH_MAX)
            remove_dead(path);
    closedir(entries);
}

/* Locks the temporary file. Returns false if a process that cleans up took the lock first: it has removed the name, or is
 * about to. */
static bool lock_named(struct output *out)
{
    struct stat status;
    if (flock(out->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return false;
    return fstat(out->fd, &status) || status.st_nlink;          /* on file systems without locks, none is taken */
}

static int open_temporary(struct output *out, struct err *err)
{
    char *name = slots[out->slot].name;
    remove_leftovers(out->target);
    for (int attempt = 0; attempt < 100; attempt++) {
        int length = attempt ? snprintf(name, PATH_MAX, "%s.tmp.%ld.%d", out->target, (long)getpid(), attempt)
                             : snprintf(name, PATH_MAX, "%s.tmp.%ld", out->target, (long)getpid());
        if (length >= PATH_MAX)
            return err_set(err, ERR_IO, "%s: the name is too long; give a shorter one", out->path);
        if (create_named(out)) {
            if (lock_named(out))
                return 0;
            close(out->fd);
            out->fd = -1;
            atomic_store(&slots[out->slot].state, SLOT_TAKEN);
            errno = EEXIST;
        }
        if (errno != EEXIST)
            break;
    }
    return err_errno(err, "%s: files cannot be written to the folder of this output", out->path);
}

int output_check_folder(const char *path, struct err *err)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int length = !slash ? 0 : slash == path ? 1 : (int)(slash - path);
    if (!strcmp(path, "-") || snprintf(folder, sizeof folder, "%.*s", length ? length : 1, length ? path : ".") >= PATH_MAX)
        return 0;
    return !access(folder, W_OK) ? 0 : err_errno(err, "%s: files cannot be written to the folder of this output; name another",
                                                 path);
}

static off_t file_bytes(const char *path)
{
    struct stat status;
    return !stat(path, &status) && S_ISREG(status.st_mode) ? status.st_size : -1;
}

/* Renames PATH.part of an earlier process to PATH.part.old, unless PATH.part.old is longer; then removes PATH.part. A lock, not
 * a process number, shows whether PATH.part is still being written: process numbers are reused. */
static int move_left(struct output *out, const char *part, struct err *err)
{
    int rc = -1, fd = open(part, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_errno(err, "%s: cannot be written", out->path);
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        err_set(err, ERR_INPUT, "%s: another process is writing this file; wait until it ends, or name another output",
                out->path);
    else if (file_bytes(part) > file_bytes(out->left) ? rename(part, out->left) : unlink(part))
        err_errno(err, "%s: the unfinished output of an earlier run, named .part, cannot be renamed", out->path);
    else
        rc = 0;
    close(fd);
    return rc;
}

static int open_part(struct output *out, struct err *err)
{
    char *name = slots[out->slot].name;
    struct text left = {0};
    if (snprintf(name, PATH_MAX, "%s.part", out->target) >= PATH_MAX)
        return err_set(err, ERR_IO, "%s: the name is too long; give a shorter one", out->path);
    if (text_printf(&left, err, "%s.old", name))
        return -1;
    out->left = left.data;
    if (move_left(out, name, err))
        return -1;
    if (file_bytes(out->left) < 0)
        mem_free(&out->left);
    if (!create_named(out))
        return err_errno(err, "%s: files cannot be written to the folder of this output", out->path);
    (void)!flock(out->fd, LOCK_EX | LOCK_NB);           /* on file systems without locks, none is taken */
    return 0;
}

static bool starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* Returns whether an output is written in place. Names of descriptors and devices refer to something that is already open,
 * which a rename would not reach. Under /dev, only shm is a folder of ordinary files. */
static bool written_in_place(const char *path, const struct stat *status)
{
    return !S_ISREG(status->st_mode) || (starts_with(path, "/dev/") && !starts_with(path, "/dev/shm/")) ||
           starts_with(path, "/proc/");
}

static int output_begin(struct output *out, bool kept, struct err *err)
{
    struct stat status;
    if (is_standard(out->path)) {
        out->fd = STDOUT_FILENO;
        return fstat(out->fd, &status) ? err_errno(err, "standard output") : 0;
    }
    if (!*out->path)
        return err_set(err, ERR_INPUT, "the name of an output file is empty; name a file");
    bool exists = stat(out->path, &status) == 0;
    if (exists && S_ISDIR(status.st_mode))
        return err_set(err, ERR_INPUT, "%s: is a folder; name a file in it", out->path);
    if (exists && written_in_place(out->path, &status)) {
        out->fd = open(out->path, O_WRONLY | O_CLOEXEC);
        return out->fd < 0 ? err_errno(err, "%s", out->path) : 0;
    }
    if (exists && access(out->path, W_OK))
        return err_errno(err, "%s", out->path);
    char *target = exists ? realpath(out->path, NULL) : NULL;
    out->target = target ? target : mem_string(out->path, err);
    if (!out->target)
        return -1;
    out->slot = slot_take();
    if (out->slot < 0)
        return err_set(err, ERR_IO, "%s: more than %d outputs are open at once; write fewer", out->path, SLOTS);
    if (kept ? open_part(out, err) : open_temporary(out, err))
        return -1;
    if (exists)
        (void)!fchmod(out->fd, status.st_mode & 0777);          /* keeps the mode, as overwriting the file would */
    return 0;
}

static int open_output(struct output **address, const char *path, bool kept, struct err *err)
{
    struct output *out = mem_alloc(1, sizeof *out, err);
    if (!out)
        return -1;
    out->fd = out->slot = -1;
    out->keeps = kept;
    out->synced = clock_seconds();
    out->path = mem_string(path, err);
    out->buffer = mem_alloc(BUFFER_BYTES, 1, err);
    if (!out->path || !out->buffer || output_begin(out, kept, err)) {
        output_free(&out);
        return -1;
    }
    *address = out;
    return 0;
}

int output_open(struct output **address, const char *path, struct err *err) { return open_output(address, path, false, err); }

int output_open_kept(struct output **address, const char *path, struct err *err)
{
    return open_output(address, path, true, err);
}

const char *output_left(const struct output *out) { return out->left; }

/* Syncs the folder, so that the new name survives a crash; a file system that cannot do that is not an error. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    int fd = open(*folder ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/* Syncs the output, at most once a second. A crash of the machine loses bytes that are not on the disk, and perhaps later
 * ones; syncing once a second bounds the loss without waiting for the disk after each write. */
void output_keep(struct output *out)
{
    if (out->slot < 0 || !out->keeps)
        return;
    atomic_store(&slots[out->slot].state, SLOT_KEPT);
    out->kept = true;
    if (clock_seconds() - out->synced < 1)
        return;
    fdatasync(out->fd);
    if (!out->folder_synced)
        sync_folder(out->target);
    out->folder_synced = true;
    out->synced = clock_seconds();
}

void output_set_signal_text(struct output *out, const char *text)
{
    if (out->slot >= 0 && strlen(text) < SIGNAL_TEXT_BYTES)
        memcpy(slots[out->slot].signal_text, text, strlen(text) + 1);
}

void output_spare_left(struct output *out) { mem_free(&out->left); }

bool output_is_kept(const struct output *out) { return out->kept; }

/* Writes all bytes, at `offset` unless that is negative. Waits for a descriptor that is set not to block. */
static int write_all(struct output *out, const uint8_t *data, size_t bytes, off_t offset, struct err *err)
{
    while (bytes) {
        size_t step = bytes < (size_t)1 << 30 ? bytes : (size_t)1 << 30;
        ssize_t done = offset < 0 ? write(out->fd, data, step) : pwrite(out->fd, data, step, offset);
        if (done < 0 && errno == EAGAIN) {
            struct pollfd ready = {.fd = out->fd, .events = POLLOUT};
            poll(&ready, 1, -1);
            continue;
        }
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return err_errno(err, "%s", output_name(out));
        data += done;
        bytes -= (size_t)done;
        offset += offset < 0 ? 0 : done;
    }
    return 0;
}

/* Writes the buffered bytes. A failed write is not retried. */
static int buffer_flush(struct output *out, struct err *err)
{
    size_t used = out->used;
    out->used = 0;
    return write_all(out, out->buffer, used, -1, err);
}

/* Starts write-back of the bytes up to `end`, so that the commit waits less. A failure is ignored. */
static void start_writeback(struct output *out, uint64_t end)
{
    if (end < out->written_back + WRITEBACK_BYTES)
        return;
    (void)!sync_file_range(out->fd, (off_t)out->written_back, (off_t)(end - out->written_back), SYNC_FILE_RANGE_WRITE);
    out->written_back = end;
}

static int write_at(struct output *out, uint64_t offset, const uint8_t *data, size_t bytes, struct err *err)
{
    if (write_all(out, data, bytes, (off_t)offset, err))
        return -1;
    start_writeback(out, offset + bytes);
    return 0;
}

static int window_flush(struct output *out, struct err *err)
{
    size_t used = out->window.used;
    out->window.used = 0;
    return used ? write_at(out, out->window.start, out->window.data, used, err) : 0;
}

int output_flush(struct output *out, struct err *err)
{
    return buffer_flush(out, err) || window_flush(out, err) ? -1 : 0;
}

int output_write(struct output *out, const void *data, size_t bytes, struct err *err)
{
    if (window_flush(out, err))
        return -1;
    if (bytes > BUFFER_BYTES - out->used && buffer_flush(out, err))
        return -1;
    if (bytes >= BUFFER_BYTES)
        return write_all(out, data, bytes, -1, err);
    if (bytes)
        memcpy(out->buffer + out->used, data, bytes);
    out->used += bytes;
    return 0;
}

static int check_range(const struct output *out, uint64_t offset, size_t bytes, struct err *err)
{
    if (out->slot < 0)
        return err_set(err, ERR_INPUT, "%s: is not a regular file, which this output needs; name a file on disk",
                       output_name(out));
    if (offset > INT64_MAX || bytes > INT64_MAX - offset)
        return err_set(err, ERR_INPUT, "%s: offset %llu exceeds the size that a file can have", output_name(out),
                       (unsigned long long)offset);
    return 0;
}

/* Buffers the bytes of the current window; its last byte triggers the write. */
static int window_fill(struct output *out, uint64_t offset, const uint8_t *data, size_t bytes, struct err *err)
{
    struct window *window = &out->window;
    if (!window->data && !(window->data = mem_alloc(WINDOW_BYTES, 1, err)))
        return -1;
    if (!window->used)
        window->start = offset;
    memcpy(window->data + window->used, data, bytes);
    window->used += bytes;
    return (offset + bytes) % WINDOW_BYTES ? 0 : window_flush(out, err);
}

int output_write_at(struct output *out, uint64_t offset, const void *data, size_t bytes, struct err *err)
{
    const uint8_t *from = data;
    if (check_range(out, offset, bytes, err) || buffer_flush(out, err))
        return -1;
    if (offset != out->window.start + out->window.used && window_flush(out, err))
        return -1;
    for (size_t step; bytes; offset += step, from += step, bytes -= step) {
        size_t left = WINDOW_BYTES - (size_t)(offset % WINDOW_BYTES);
        bool whole = left == WINDOW_BYTES && bytes >= WINDOW_BYTES;
        step = whole ? bytes / WINDOW_BYTES * WINDOW_BYTES : bytes < left ? bytes : left;
        if (whole ? write_at(out, offset, from, step, err) : window_fill(out, offset, from, step, err))
            return -1;
    }
    return 0;
}

int output_expect(const struct output *out, uint64_t bytes, struct err *err)
{
    struct statvfs disk;
    if (out->slot < 0 || fstatvfs(out->fd, &disk) || !disk.f_blocks)        /* the file system does not report its size */
        return 0;
    const uint64_t blocks = geteuid() ? disk.f_bavail : disk.f_bfree;
    if (bytes <= blocks * disk.f_frsize)
        return 0;
    return err_set(err, ERR_IO, "%s: needs %.1f MB, but its disk has only %.1f MB free; free some space, or name a file on "
                   "another disk",
                   out->path, (double)bytes * 1e-6, (double)blocks * (double)disk.f_frsize * 1e-6);
}

/* Renames the temporary file to the output. A second descriptor holds the lock meanwhile; without it another process would take
 * the file for the leftover of a killed one. */
static int close_named(struct output *out, struct err *err)
{
    const int lock = fcntl(out->fd, F_DUPFD_CLOEXEC, 0);
    int rc = close(out->fd) || rename(slots[out->slot].name, out->target) ? err_errno(err, "%s", out->path) : 0;
    out->fd = -1;
    if (lock >= 0)
        close(lock);
    return rc;
}

static int output_finish(struct output *out, struct err *err)
{
    if (output_flush(out, err))
        return -1;
    if (is_standard(out->path))
        return 0;
    if (out->slot < 0) {
        const int failed = close(out->fd);
        out->fd = -1;
        return failed ? err_errno(err, "%s", out->path) : 0;
    }
    if (fsync(out->fd))
        return err_errno(err, "%s", out->path);
    if (close_named(out, err))
        return -1;
    atomic_store(&slots[out->slot].state, SLOT_TAKEN);          /* the temporary name is gone */
    if (out->left)
        unlink(out->left);
    sync_folder(out->target);
    return 0;
}

int output_commit(struct output **address, struct err *err)
{
    int rc = output_finish(*address, err);
    output_free(address);
    return rc;
}

void output_discard(struct output **address)
{
    output_free(address);
}

int output_whole(const char *path, const struct text *text, struct err *err)
{
    struct output *out = NULL;
    int rc = output_open(&out, path, err) || output_write(out, text->data, text->length, err) || output_commit(&out, err)
                 ? -1 : 0;
    output_discard(&out);
    return rc;
}
