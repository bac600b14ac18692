#include "common/checkpoint/archive.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"

int archive_input_open(struct archive_input *input, int fd, struct err *err)
{
    struct stat status;
    *input = (struct archive_input){.fd = fd};
    if (fstat(fd, &status))
        return err_errno(err, "cannot be read");
    input->seekable = S_ISREG(status.st_mode);
    input->step = mem_alloc(INPUT_STEP, 1, err);
    input->tail = mem_alloc(TAIL_BYTES, 1, err);
    return input->step && input->tail ? 0 : -1;
}

void archive_input_close(struct archive_input *input)
{
    mem_free(&input->step);
    mem_free(&input->tail);
}

/* The next bytes of a pipe; 0 at its end. */
static ssize_t next_bytes(struct archive_input *input)
{
    ssize_t got;
    do
        got = read(input->fd, input->step, INPUT_STEP);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        input->failed = errno;
    for (ssize_t i = 0; i < got;) {
        size_t at = (size_t)(input->total % TAIL_BYTES), room = TAIL_BYTES - at;
        size_t bytes = (size_t)(got - i) < room ? (size_t)(got - i) : room;
        memcpy(input->tail + at, input->step + i, bytes);
        input->total += bytes;
        i += (ssize_t)bytes;
    }
    return got;
}

static la_ssize_t on_read(struct archive *archive, void *context, const void **data)
{
    struct archive_input *input = context;
    ssize_t got = next_bytes(input);
    if (got < 0)
        archive_set_error(archive, input->failed, "cannot be read");
    *data = input->step;
    return got;
}

int archive_input_attach(struct archive_input *input, struct archive *archive)
{
    return input->seekable ? archive_read_open_fd(archive, input->fd, INPUT_STEP)
                           : archive_read_open(archive, input, NULL, on_read, NULL);
}

/* The last `bytes` bytes in `out`; fewer when there are not so many. */
static size_t last_bytes(const struct archive_input *input, uint8_t *out, size_t bytes)
{
    if (input->seekable) {
        off_t end = lseek(input->fd, 0, SEEK_END);
        if (end < 0 || (off_t)bytes > end)
            bytes = end < 0 ? 0 : (size_t)end;
        ssize_t got = pread(input->fd, out, bytes, end - (off_t)bytes);
        return got < 0 ? 0 : (size_t)got;
    }
    if (bytes > input->total)
        bytes = (size_t)input->total;
    for (size_t i = 0; i < bytes; i++)
        out[i] = input->tail[(input->total - bytes + i) % TAIL_BYTES];
    return bytes;
}

static unsigned little16(const uint8_t *at) { return at[0] | (unsigned)at[1] << 8; }

/* The record that ends a zip: signature, counts (0xffff: in another record), and a comment that fills the rest. */
static bool zip_ends(const struct archive_input *input, uint8_t *tail, uint64_t members)
{
    enum { RECORD = 22 };
    size_t bytes = last_bytes(input, tail, TAIL_BYTES);
    for (size_t back = RECORD; back <= bytes; back++) {
        const uint8_t *at = tail + bytes - back;
        if (memcmp(at, "PK\5\6", 4) || little16(at + 20) != back - RECORD)
            continue;
        return little16(at + 10) == 0xffff || little16(at + 10) == (members & 0xffff);
    }
    return false;
}

static bool tar_ends(const struct archive_input *input)
{
    enum { BLOCK = 512 };
    uint8_t block[BLOCK];
    if (last_bytes(input, block, BLOCK) != BLOCK)
        return false;
    for (int i = 0; i < BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

int archive_input_check_end(struct archive_input *input, struct archive *archive, uint64_t members, struct err *err)
{
    int base = archive_format(archive) & ARCHIVE_FORMAT_BASE_MASK;
    bool plain = archive_filter_code(archive, 0) == ARCHIVE_FILTER_NONE, whole = true;
    if (!input->seekable)
        while (next_bytes(input) > 0)
            ;
    if (input->failed)
        return err_set(err, ERR_IO, "cannot be read: %s", strerror(input->failed));
    if (base == ARCHIVE_FORMAT_ZIP && plain && !input->seekable) {
        uint8_t *tail = mem_alloc(TAIL_BYTES, 1, err);
        if (!tail)
            return -1;
        whole = zip_ends(input, tail, members);
        mem_free(&tail);
    } else if (base == ARCHIVE_FORMAT_TAR && plain) {
        whole = tar_ends(input);
    }
    return whole ? 0 : err_set(err, ERR_INPUT, "the archive has no proper end; it is cut off or damaged");
}

int spool_open(int *fd, const char *beside, struct err *err)
{
    char folder[PATH_MAX];
    if (!beside) {
        *fd = memfd_create("headers", MFD_CLOEXEC);
        return *fd < 0 ? err_errno(err, "no room for headers") : 0;
    }
    const char *slash = strrchr(beside, '/');
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - beside) + 1 : 1,
                 slash ? beside : ".") >= (int)sizeof folder)
        return err_set(err, ERR_INPUT, "%s: the name is too long", beside);
    return file_nameless(fd, folder, err);
}

int spool_write(int fd, uint64_t offset, const void *data, size_t bytes, struct err *err)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return err_errno(err, "the tensors cannot be kept beside the output");
        done += (size_t)put;
    }
    return 0;
}
