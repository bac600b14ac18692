#include "common/base/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"

/* Returns whether the file can be read with O_DIRECT: some file systems accept the flag and refuse the reads. */
static bool reads_directly(int fd)
{
    _Alignas(DIRECT_STEP) unsigned char page[DIRECT_STEP];
    return pread(fd, page, DIRECT_STEP, 0) >= 0 || errno != EINVAL;
}

int direct_open(struct direct_file *out, const char *path, struct err *err)
{
    struct stat status;
    struct direct_file file = {.path = path, .direct = true};
    file.fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT | O_NONBLOCK);
    if (file.fd >= 0 && !reads_directly(file.fd)) {
        close(file.fd);
        file.fd = -1;
        errno = EINVAL;
    }
    if (file.fd < 0 && errno == EINVAL) {
        file.direct = false;
        file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    }
    if (file.fd < 0)
        return err_errno(err, "%s", path);
    if (file_regular(file.fd, path, &status, err)) {
        close(file.fd);
        return -1;
    }
    if (!file.direct)
        posix_fadvise(file.fd, 0, 0, POSIX_FADV_RANDOM);            /* disables read-ahead */
    file.bytes = (uint64_t)status.st_size;
    *out = file;
    return 0;
}

void direct_close(struct direct_file *file)
{
    if (file->path)
        close(file->fd);
    *file = (struct direct_file){0};
}

int direct_take(const struct direct_file *file, uint64_t offset, size_t want, int64_t got, size_t *done, struct err *err)
{
    if (got < 0 && (got == -EINTR || got == -EAGAIN))
        return 0;
    if (got < 0) {
        errno = (int)-got;
        return err_errno(err, "%s: byte %llu", file->path, (unsigned long long)(offset + *done));
    }
    size_t there = *done + (size_t)got;
    if (!file->direct && got > 0)
        posix_fadvise(file->fd, (off_t)(offset + *done), (off_t)got, POSIX_FADV_DONTNEED);
    if (there >= want)
        return 1;
    size_t whole = file->direct ? there & ~(size_t)(DIRECT_STEP - 1) : there;
    if (whole == *done)
        return err_set(err, ERR_INPUT, "%s: ends at byte %llu, but %llu bytes are needed: the file was truncated while it was "
                       "read; restore it and run again", file->path, (unsigned long long)(offset + there),
                       (unsigned long long)(offset + want));
    *done = whole;
    return 0;
}

int direct_read(const struct direct_file *file, void *data, uint64_t offset, size_t bytes, struct err *err)
{
    size_t done = 0;
    for (int state = 0; !state;) {
        ssize_t got = pread(file->fd, (char *)data + done, size_align(bytes - done, DIRECT_STEP), (off_t)(offset + done));
        state = direct_take(file, offset, bytes, got < 0 ? -errno : got, &done, err);
        if (state < 0)
            return -1;
    }
    return 0;
}
