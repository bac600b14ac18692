#include "common/prompts/unpack.h"

#include <errno.h>
#include <string.h>

#include <archive.h>
#include <archive_entry.h>

#include "common/base/mem.h"

enum { STEP = 65536 };

struct unpack {
    struct archive *archive;
    unpack_source *source;
    void *context;
    bool opened, ended;
    size_t first;                   /* number of bytes in `step` that were read before the archive was opened */
    struct err err;                 /* of the source */
    uint8_t step[STEP];
};

bool unpack_begins(const void *bytes, size_t count, bool *more)
{
    static const struct { uint8_t bytes[4]; size_t count; } magics[] = {
        {{0x1f, 0x8b, 0x08}, 3}, {{'B', 'Z', 'h'}, 3}, {{0x28, 0xb5, 0x2f, 0xfd}, 4}};
    *more = false;
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        const size_t known = count < magics[i].count ? count : magics[i].count;
        if (memcmp(bytes, magics[i].bytes, known))
            continue;
        if (known == magics[i].count)
            return true;
        *more = true;
    }
    return false;
}

static la_ssize_t read_packed(struct archive *archive, void *context, const void **bytes)
{
    struct unpack *unpack = context;
    size_t got = unpack->first;
    unpack->first = 0;
    *bytes = unpack->step;
    if (!got && unpack->source(unpack->context, unpack->step, sizeof unpack->step, &got, &unpack->err)) {
        archive_set_error(archive, EIO, "%s", unpack->err.text);
        return -1;
    }
    return (la_ssize_t)got;
}

static int fault(struct unpack *unpack, struct err *err)
{
    const char *text = archive_error_string(unpack->archive);
    if (unpack->err.code) {
        *err = unpack->err;
        return -1;
    }
    if (archive_errno(unpack->archive) == ENOMEM)
        return err_memory(err);
    return err_set(err, ERR_INPUT, "the file cannot be unpacked: %s", text ? text : "it is damaged or truncated");
}

int unpack_open(struct unpack **out, const void *first, size_t count, unpack_source *source, void *context, struct err *err)
{
    struct unpack *unpack = mem_alloc(1, sizeof *unpack, err);
    if (!unpack)
        return -1;
    unpack->source = source;
    unpack->context = context;
    unpack->first = count;
    memcpy(unpack->step, first, count);
    if (!(unpack->archive = archive_read_new())) {
        mem_free(&unpack);
        return err_memory(err);
    }
    archive_read_support_filter_gzip(unpack->archive);
    archive_read_support_filter_bzip2(unpack->archive);
    archive_read_support_filter_zstd(unpack->archive);
    archive_read_support_format_raw(unpack->archive);
    archive_read_support_format_empty(unpack->archive);
    *out = unpack;
    return 0;
}

void unpack_close(struct unpack **unpack)
{
    if (!*unpack)
        return;
    archive_read_free((*unpack)->archive);
    mem_free(unpack);
}

/* Opens the archive on the first read, because a pipe may deliver its bytes late. */
static int begin(struct unpack *unpack, struct err *err)
{
    struct archive_entry *entry;
    unpack->opened = true;
    if (archive_read_open(unpack->archive, unpack, NULL, read_packed, NULL) != ARCHIVE_OK)
        return fault(unpack, err);
    int rc = archive_read_next_header(unpack->archive, &entry);
    unpack->ended = rc == ARCHIVE_EOF;
    return rc == ARCHIVE_OK || rc == ARCHIVE_EOF ? 0 : fault(unpack, err);
}

int unpack_read(struct unpack *unpack, void *data, size_t room, size_t *got, struct err *err)
{
    if (!unpack->opened && begin(unpack, err))
        return -1;
    *got = 0;
    if (unpack->ended)
        return 0;
    la_ssize_t bytes = archive_read_data(unpack->archive, data, room);
    if (bytes < 0)
        return fault(unpack, err);
    *got = (size_t)bytes;
    unpack->ended = !bytes;
    return 0;
}
