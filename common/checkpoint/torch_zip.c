/* Reads the directory of a zip file: PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16, with the 64-bit forms. */
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/checkpoint/torch.h"

enum { END_BYTES = 22, END64_BYTES = 56, LOCATOR_BYTES = 20, ENTRY_BYTES = 46, LOCAL_BYTES = 30, COMMENT_MAX = 65535,
       DIRECTORY_MAX = 64 << 20 };
enum { END_SIGNATURE = 0x06054b50, END64_SIGNATURE = 0x06064b50, LOCATOR_SIGNATURE = 0x07064b50, ENTRY_SIGNATURE = 0x02014b50,
       LOCAL_SIGNATURE = 0x04034b50 };

static uint64_t number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static int damaged(struct err *err, const char *what)
{
    return err_set(err, ERR_INPUT, "%s; the zip file is truncated or damaged", what);
}

/* Location of the directory, and its number of entries. */
struct directory_span {
    uint64_t offset, bytes, count;
};

/* Finds the end-of-directory record, the last record of the file except for a comment. */
static int find_end(const struct checkpoint *cp, const struct source_tensor *whole, uint64_t size, struct directory_span *out,
                    uint64_t *end_at, struct err *err)
{
    const size_t room = size < END_BYTES + COMMENT_MAX ? (size_t)size : END_BYTES + COMMENT_MAX;
    uint8_t *tail = mem_alloc(room, 1, err);
    int rc = -1;
    if (!tail || checkpoint_read(cp, whole, size - room, tail, room, err))
        goto done;
    for (size_t at = room < END_BYTES ? 0 : room - END_BYTES + 1; at-- > 0;) {
        if (number(tail + at, 4) != END_SIGNATURE || at + END_BYTES + number(tail + at + 20, 2) != room)
            continue;
        *out = (struct directory_span){number(tail + at + 16, 4), number(tail + at + 12, 4), number(tail + at + 10, 2)};
        *end_at = size - room + at;
        rc = 0;
        goto done;
    }
    damaged(err, "its central directory is missing");
done:
    mem_free(&tail);
    return rc;
}

/* Reads the 64-bit end record of a large file; a locator before the 32-bit record points to it. */
static int find_end64(const struct checkpoint *cp, const struct source_tensor *whole, uint64_t end_at,
                      struct directory_span *out,
                      struct err *err)
{
    uint8_t locator[LOCATOR_BYTES], end[END64_BYTES];
    if (end_at < LOCATOR_BYTES)
        return 0;
    if (checkpoint_read(cp, whole, end_at - LOCATOR_BYTES, locator, sizeof locator, err))
        return -1;
    if (number(locator, 4) != LOCATOR_SIGNATURE)
        return 0;
    const uint64_t at = number(locator + 8, 8);
    if (end_at < END64_BYTES || at > end_at - END64_BYTES)
        return damaged(err, "its central directory has no end record");
    if (checkpoint_read(cp, whole, at, end, sizeof end, err))
        return -1;
    if (number(end, 4) != END64_SIGNATURE)
        return damaged(err, "its central directory has no end record");
    *out = (struct directory_span){number(end + 48, 8), number(end + 40, 8), number(end + 32, 8)};
    return 0;
}

/* Reads those sizes that do not fit into 32 bits from the extra field, which contains only these, in this order. */
static int widen(const uint8_t *extra, size_t length, uint64_t sizes[3], struct err *err)
{
    bool wide = false;
    for (int i = 0; i < 3; i++)
        wide |= sizes[i] == UINT32_MAX;
    for (size_t at = 0; wide && at + 4 <= length;) {
        size_t bytes = (size_t)number(extra + at + 2, 2), from = at + 4;
        if (bytes > length - from)
            break;
        if (number(extra + at, 2) == 1) {
            const size_t end = from + bytes;
            for (int i = 0; i < 3; i++) {
                if (sizes[i] != UINT32_MAX)
                    continue;
                if (from + 8 > end)
                    return damaged(err, "the size of a member is missing");
                sizes[i] = number(extra + from, 8);
                from += 8;
            }
            return 0;
        }
        at = from + bytes;
    }
    return wide ? damaged(err, "the size of a member is missing") : 0;
}

static int read_entry(struct torch_member *out, const uint8_t *directory, size_t length, size_t *at, struct err *err)
{
    const uint8_t *entry = directory + *at;
    if (length - *at < ENTRY_BYTES || number(entry, 4) != ENTRY_SIGNATURE)
        return damaged(err, "its central directory has fewer entries than it declares");
    const size_t name = (size_t)number(entry + 28, 2), extra = (size_t)number(entry + 30, 2);
    const size_t comment = (size_t)number(entry + 32, 2);
    if (length - *at - ENTRY_BYTES < name + extra + comment)
        return damaged(err, "an entry of its central directory is truncated");
    uint64_t sizes[3] = {number(entry + 24, 4), number(entry + 20, 4), number(entry + 42, 4)};
    if (widen(entry + ENTRY_BYTES + name, extra, sizes, err))
        return -1;
    *out = (struct torch_member){(const char *)entry + ENTRY_BYTES, name, sizes[2], sizes[0]};
    if (number(entry + 10, 2) != 0 || number(entry + 8, 2) & 1 || sizes[0] != sizes[1])
        return err_set(err, ERR_INPUT, "member %.*s is compressed or encrypted, which is not supported; save the weights with "
                       "torch.save",
                       (int)(name < 200 ? name : 200), out->name);
    *at += ENTRY_BYTES + name + extra + comment;
    return 0;
}

/* Finds a member's data. They begin after a local header, whose length only that header itself says. */
static int find_data(const struct checkpoint *cp, const struct source_tensor *whole, uint64_t size, struct torch_member *member,
                     struct err *err)
{
    uint8_t header[LOCAL_BYTES];
    if (size < LOCAL_BYTES || member->offset > size - LOCAL_BYTES)
        return damaged(err, "a member begins past the end of the file");
    if (checkpoint_read(cp, whole, member->offset, header, sizeof header, err))
        return -1;
    if (number(header, 4) != LOCAL_SIGNATURE)
        return damaged(err, "the header of a member is missing");
    member->offset += LOCAL_BYTES + number(header + 26, 2) + number(header + 28, 2);
    if (member->offset > size || member->bytes > size - member->offset)
        return damaged(err, "a member ends past the end of the file");
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct torch_member *x = a, *y = b;
    int order = memcmp(x->name, y->name, x->length < y->length ? x->length : y->length);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

int torch_zip_read(struct torch_zip *out, const struct checkpoint *cp, int file, struct err *err)
{
    const struct source_tensor whole = {.file = file};
    const uint64_t size = cp->files[file].bytes;
    struct torch_zip zip = {0};
    struct directory_span span;
    uint64_t end_at;
    size_t at = 0;
    if (find_end(cp, &whole, size, &span, &end_at, err) || find_end64(cp, &whole, end_at, &span, err))
        return -1;
    if (span.bytes > end_at || span.offset > end_at - span.bytes || span.bytes > DIRECTORY_MAX ||
        span.count > span.bytes / ENTRY_BYTES)
        return damaged(err, "its central directory is larger than the file");
    if (!(zip.directory = mem_alloc((size_t)span.bytes, 1, err)) ||
        !(zip.members = mem_alloc((size_t)span.count, sizeof *zip.members, err)) ||
        checkpoint_read(cp, &whole, span.offset, zip.directory, (size_t)span.bytes, err))
        goto failed;
    for (; zip.count < span.count; zip.count++)
        if (read_entry(&zip.members[zip.count], zip.directory, (size_t)span.bytes, &at, err) ||
            find_data(cp, &whole, size, &zip.members[zip.count], err))
            goto failed;
    if (zip.count)
        qsort(zip.members, zip.count, sizeof *zip.members, by_name);
    for (size_t i = 1; i < zip.count; i++)
        if (by_name(&zip.members[i - 1], &zip.members[i]) == 0) {
            damaged(err, "two members have the same name");
            goto failed;
        }
    *out = zip;
    return 0;
failed:
    torch_zip_free(&zip);
    return -1;
}

void torch_zip_free(struct torch_zip *zip)
{
    mem_free(&zip->directory);
    mem_free(&zip->members);
    zip->count = 0;
}

const struct torch_member *torch_zip_find(const struct torch_zip *zip, const char *name, size_t length)
{
    const struct torch_member key = {.name = name, .length = length};
    return zip->count ? bsearch(&key, zip->members, zip->count, sizeof key, by_name) : NULL;
}
