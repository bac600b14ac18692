#include "common/checkpoint/archive.h"

#include <errno.h>
#include <limits.h>
#include <lzma.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"

struct xz_input {
    lzma_stream stream;
    bool ended;                     /* the last byte was decompressed */
    uint8_t plain[INPUT_STEP];
};

static int open_xz(struct archive_input *input, struct err *err)
{
    struct xz_input *xz = input->xz = mem_alloc(1, sizeof *xz, err);
    if (!xz)
        return -1;
    xz->stream = (lzma_stream)LZMA_STREAM_INIT;
    return lzma_stream_decoder(&xz->stream, lzma_easy_decoder_memusage(9), LZMA_CONCATENATED) == LZMA_OK ? 0 : err_memory(err);
}

/* Reads the first bytes to recognise .xz. From a pipe they are kept for later reading; a regular file is read again. */
static int peek_first(struct archive_input *input, struct err *err)
{
    static const uint8_t magic[] = {0xfd, '7', 'z', 'X', 'Z', 0};
    while (input->ahead < sizeof magic) {
        ssize_t got = read(input->fd, input->step + input->ahead, INPUT_STEP - input->ahead);
        if (got < 0 && errno != EINTR)
            return err_errno(err, "cannot be read");
        if (got == 0)
            break;
        input->ahead += got > 0 ? (size_t)got : 0;
    }
    if (input->ahead >= sizeof magic && memcmp(input->step, magic, sizeof magic) == 0)
        return open_xz(input, err);
    if (input->ahead >= sizeof magic && !memcmp(input->step, (const uint8_t[sizeof magic]){0}, sizeof magic))
        return err_set(err, ERR_INPUT, "begins with zero bytes, so it is not a checkpoint or an archive; name a folder, a "
                       "file of weights, or a tar or zip archive of them");
    if (input->seekable && lseek(input->fd, -(off_t)input->ahead, SEEK_CUR) < 0)
        return err_errno(err, "cannot be read");
    input->ahead = input->seekable ? 0 : input->ahead;
    return 0;
}

int archive_input_open(struct archive_input *input, int fd, struct err *err)
{
    struct stat status;
    *input = (struct archive_input){.fd = fd};
    if (fstat(fd, &status))
        return err_errno(err, "cannot be read");
    input->seekable = S_ISREG(status.st_mode);
    input->step = mem_alloc(INPUT_STEP, 1, err);
    input->tail = mem_alloc(TAIL_BYTES, 1, err);
    return input->step && input->tail ? peek_first(input, err) : -1;
}

void archive_input_close(struct archive_input *input)
{
    if (input->xz)
        lzma_end(&input->xz->stream);
    mem_free(&input->xz);
    mem_free(&input->step);
    mem_free(&input->tail);
}

/* Reads the next bytes of a pipe or an .xz; returns 0 at its end. */
static ssize_t next_bytes(struct archive_input *input)
{
    ssize_t got = (ssize_t)input->ahead;
    input->ahead = 0;
    while (!got && (got = read(input->fd, input->step, INPUT_STEP)) < 0 && errno == EINTR)
        got = 0;
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

static la_ssize_t xz_fault(struct archive *archive, const lzma_stream *stream, lzma_ret ret)
{
    if (ret == LZMA_MEMLIMIT_ERROR)
        archive_set_error(archive, ENOMEM, "unpacking its .xz needs %ju MiB of memory, more than the limit of %ju MiB; "
                          "compress it with xz -9 or less", (uintmax_t)(lzma_memusage(stream) >> 20),
                          (uintmax_t)(lzma_memlimit_get(stream) >> 20));
    else if (ret == LZMA_MEM_ERROR)
        archive_set_error(archive, ENOMEM, "there is not enough memory to unpack its .xz");
    else
        archive_set_error(archive, EINVAL, ret == LZMA_BUF_ERROR ? "its .xz ends too early" : "its .xz is damaged");
    return ARCHIVE_FATAL;
}

/* Decompresses until there is output or the stream ends. At the end of the input lzma_code is called with LZMA_FINISH, which
 * reports a truncated file. */
static la_ssize_t on_read_xz(struct archive *archive, void *context, const void **data)
{
    struct archive_input *input = context;
    struct xz_input *xz = input->xz;
    lzma_stream *stream = &xz->stream;
    size_t made = 0;
    for (lzma_action action = LZMA_RUN; !made && !xz->ended;) {
        if (!stream->avail_in) {
            const void *more;
            const la_ssize_t got = on_read(archive, context, &more);
            if (got < 0)
                return got;
            stream->next_in = more;
            stream->avail_in = (size_t)got;
            action = got ? LZMA_RUN : LZMA_FINISH;
        }
        stream->next_out = xz->plain;
        stream->avail_out = INPUT_STEP;
        const lzma_ret ret = lzma_code(stream, action);
        made = INPUT_STEP - stream->avail_out;
        xz->ended = ret == LZMA_STREAM_END;
        if (ret != LZMA_OK && !xz->ended)
            return xz_fault(archive, stream, ret);
    }
    *data = xz->plain;
    return (la_ssize_t)made;
}

int archive_input_attach(struct archive_input *input, struct archive *archive)
{
    if (input->xz)
        return archive_read_open(archive, input, NULL, on_read_xz, NULL);
    return input->seekable ? archive_read_open_fd(archive, input->fd, INPUT_STEP)
                           : archive_read_open(archive, input, NULL, on_read, NULL);
}

uint64_t archive_input_packed(const struct archive_input *input, struct archive *archive)
{
    return input->xz ? input->total : (uint64_t)archive_filter_bytes(archive, -1);
}

bool archive_input_plain(const struct archive_input *input, struct archive *archive)
{
    return !input->xz && archive_filter_code(archive, 0) == ARCHIVE_FILTER_NONE;
}

/* Copies the last `bytes` bytes of the input to `out`; returns how many there were, perhaps fewer. */
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

/* Returns whether the tail contains the record that ends a zip: signature, matching counts (0xffff: in the 64-bit record),
 * and a comment that fills the rest. */
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
    bool plain = archive_input_plain(input, archive), whole = true;
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
    return whole ? 0 : err_set(err, ERR_INPUT, "the end of the archive is missing; it is truncated or damaged");
}

int spool_open(int *fd, const char *beside, struct err *err)
{
    char folder[PATH_MAX];
    if (!beside) {
        *fd = memfd_create("headers", MFD_CLOEXEC);
        return *fd < 0 ? err_errno(err, "there is no space for headers in the temporary folder (TMPDIR)") : 0;
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
        if (put < 0 && errno == ENOSPC)
            return err_set(err, ERR_IO, "the disk of the output is full: it also stores the archive's tensors until all are "
                           "converted; free some space, name an output on another disk, or unpack the archive and name its "
                           "folder");
        if (put < 0)
            return err_errno(err, "the archive's tensors cannot be stored in the folder of the output");
        done += (size_t)put;
    }
    return 0;
}
