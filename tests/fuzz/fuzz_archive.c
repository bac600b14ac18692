/* Any bytes as a checkpoint in an archive, from a file and from a pipe. */
#include <archive_entry.h>
#include <fcntl.h>

#include "common/base/mem.h"
#include "common/checkpoint/archive.h"
#include "tests/fuzz/fuzz.h"

/* Total size of unpacked members, with a limit that no input here needs. */
static size_t unpacked(int fd)
{
    struct archive *archive = archive_read_new();
    struct archive_entry *entry;
    struct archive_input input;
    static uint8_t step[65536];
    size_t sum = 0;
    la_ssize_t got;
    archive_read_support_filter_gzip(archive);
    archive_read_support_filter_bzip2(archive);
    archive_read_support_filter_zstd(archive);
    archive_read_support_format_tar(archive);
    archive_read_support_format_zip(archive);
    archive_read_support_format_raw(archive);
    if (lseek(fd, 0, SEEK_SET))
        abort();
    const bool opened = !archive_input_open(&input, fd, NULL);      /* leading zeros are rejected */
    if (opened && archive_input_attach(&input, archive) == ARCHIVE_OK)
        while (archive_read_next_header(archive, &entry) >= ARCHIVE_WARN && sum < (size_t)1 << 30)
            while ((got = archive_read_data(archive, step, sizeof step)) > 0 && sum < (size_t)1 << 30)
                sum += (size_t)got;
    archive_read_free(archive);
    archive_input_close(&input);
    return sum;
}

static void open_archive(int fd)
{
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
    if (!cp)
        abort();
    if (!checkpoint_open_archive(cp, fd, NULL, NULL))
        for (size_t i = 0; i < cp->tensor_count; i++)
            if (cp->tensors[i].offset + cp->tensors[i].bytes > cp->files[cp->tensors[i].file].bytes)
                abort();
    checkpoint_close(&cp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    int ends[2], fd = fuzz_file(data, bytes, path);
    open_archive(fd);
    if (bytes <= 1 << 20 && !pipe(ends)) {
        fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
        bool filled = write(ends[1], data, bytes) == (ssize_t)bytes;
        close(ends[1]);
        if (filled)
            open_archive(ends[0]);
        close(ends[0]);
    }
    if (&fuzz_reserved)
        fuzz_reserved = (size_t)130 << 20;      /* a window of zstd, whose size the archive names, up to 128 MiB */
    if (&fuzz_unpacked)
        fuzz_unpacked = unpacked(fd);
    close(fd);
    return 0;
}
