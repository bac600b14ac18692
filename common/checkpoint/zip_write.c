#include "common/checkpoint/zip_write.h"

#include <string.h>

#include <lzma.h>

#include "common/base/mem.h"

enum { LOCAL_SIGNATURE = 0x04034b50, ENTRY_SIGNATURE = 0x02014b50, END64_SIGNATURE = 0x06064b50, LOCATOR_SIGNATURE = 0x07064b50,
       END_SIGNATURE = 0x06054b50 };
enum { LOCAL_BYTES = 30, LOCAL_CHECKSUM = 14, END64_BYTES = 56, FIELD_BYTES = 4 };
enum { VERSION = 20, VERSION64 = 45, FIRST_DAY = 1 << 5 | 1, FIELD64 = 1, FIELD_PADDING = 0x4246 };

struct zip_writer {
    struct output *file;
    uint64_t large, at, count;
    struct text directory, header;
    struct member {
        char name[256];
        uint64_t offset, bytes, missing;
    } member;
    uint32_t checksum;              /* CRC-32 of the member's bytes so far */
};

/* ---- headers ---- */

static int put(struct text *out, uint64_t value, int bytes, struct err *err)
{
    uint8_t number[8];
    for (int i = 0; i < bytes; i++)
        number[i] = (uint8_t)(value >> 8 * i);
    return text_put(out, number, (size_t)bytes, err);
}

/* Returns the value of a 32-bit field: the number, or UINT32_MAX if it is in a 64-bit field. */
static uint64_t narrow(const struct zip_writer *zip, uint64_t value) { return value < zip->large ? value : UINT32_MAX; }

/* Appends what both headers of a member have in common: version, flags, method (none), time, date, checksum, both sizes,
 * length of the name. */
static int put_facts(const struct zip_writer *zip, struct text *out, const struct member *m, bool wide, uint32_t sum,
                     struct err *err)
{
    return put(out, wide ? VERSION64 : VERSION, 2, err) || put(out, 0, 2, err) || put(out, 0, 2, err) || put(out, 0, 2, err) ||
           put(out, FIRST_DAY, 2, err) || put(out, sum, 4, err) || put(out, narrow(zip, m->bytes), 4, err) ||
           put(out, narrow(zip, m->bytes), 4, err) || put(out, strlen(m->name), 2, err) ? -1 : 0;
}

/* Writes a member's local header: the sizes, if large also as 64-bit fields, and padding. */
static int put_local(struct zip_writer *zip, struct err *err)
{
    static const uint8_t zeros[ZIP_ALIGNMENT];
    const struct member *m = &zip->member;
    struct text *out = &zip->header;
    const bool wide = m->bytes >= zip->large;
    const size_t sizes = wide ? FIELD_BYTES + 16 : 0, name = strlen(m->name);
    const size_t padding = (size_t)(-(zip->at + LOCAL_BYTES + name + sizes + FIELD_BYTES) % ZIP_ALIGNMENT);
    text_clear(out);
    if (put(out, LOCAL_SIGNATURE, 4, err) || put_facts(zip, out, m, wide, 0, err) ||
        put(out, sizes + FIELD_BYTES + padding, 2, err) || text_put(out, m->name, name, err) ||
        (wide && (put(out, FIELD64, 2, err) || put(out, 16, 2, err) || put(out, m->bytes, 8, err) ||
                  put(out, m->bytes, 8, err))))
        return -1;
    return put(out, FIELD_PADDING, 2, err) || put(out, padding, 2, err) || text_put(out, zeros, padding, err) ? -1 : 0;
}

static int put_entry(struct zip_writer *zip, struct err *err)
{
    const struct member *m = &zip->member;
    struct text *out = &zip->directory;
    const bool far = m->offset >= zip->large, wide = m->bytes >= zip->large;
    const size_t extra = (wide ? 16u : 0u) + (far ? 8u : 0u);
    if (put(out, ENTRY_SIGNATURE, 4, err) || put(out, VERSION64, 2, err) ||
        put_facts(zip, out, m, wide || far, zip->checksum, err) || put(out, extra ? FIELD_BYTES + extra : 0, 2, err) ||
        put(out, 0, 2, err) || put(out, 0, 4, err) || put(out, 0, 4, err) ||           /* no comment, one disk, no attributes */
        put(out, narrow(zip, m->offset), 4, err) || text_puts(out, m->name, err))
        return -1;
    if (extra && (put(out, FIELD64, 2, err) || put(out, extra, 2, err)))
        return -1;
    if (wide && (put(out, m->bytes, 8, err) || put(out, m->bytes, 8, err)))
        return -1;
    return far ? put(out, m->offset, 8, err) : 0;
}

/* ---- the file ---- */

static int write_out(struct zip_writer *zip, const void *data, size_t bytes, struct err *err)
{
    zip->at += bytes;
    return output_write(zip->file, data, bytes, err);
}

int zip_open(struct zip_writer **out, struct output *file, uint32_t large, struct err *err)
{
    struct zip_writer *zip = mem_alloc(1, sizeof *zip, err);
    if (!zip)
        return -1;
    zip->file = file;
    zip->large = large;
    *out = zip;
    return 0;
}

int zip_member(struct zip_writer *zip, const char *name, uint64_t bytes, struct err *err)
{
    struct member *m = &zip->member;
    if (strlen(name) >= sizeof m->name)
        return err_set(err, ERR_INPUT, "%.40s...: the name is too long for a member of a zip file", name);
    memcpy(m->name, name, strlen(name) + 1);
    m->offset = zip->at;
    m->bytes = m->missing = bytes;
    zip->checksum = 0;
    return put_local(zip, err) || write_out(zip, zip->header.data, zip->header.length, err) ? -1 : 0;
}

int zip_put(struct zip_writer *zip, const void *data, size_t bytes, struct err *err)
{
    if (bytes > zip->member.missing)
        return err_set(err, ERR_INPUT, "%s: more bytes were written than declared", zip->member.name);
    zip->member.missing -= bytes;
    zip->checksum = lzma_crc32(data, bytes, zip->checksum);
    return write_out(zip, data, bytes, err);
}

int zip_member_end(struct zip_writer *zip, struct err *err)
{
    uint8_t sum[4];
    if (zip->member.missing)
        return err_set(err, ERR_INPUT, "%s: fewer bytes were written than declared", zip->member.name);
    for (int i = 0; i < 4; i++)
        sum[i] = (uint8_t)(zip->checksum >> 8 * i);
    zip->count++;
    return output_write_at(zip->file, zip->member.offset + LOCAL_CHECKSUM, sum, sizeof sum, err) ||
           put_entry(zip, err) ? -1 : 0;
}

static int put_end64(const struct zip_writer *zip, struct text *out, uint64_t bytes, struct err *err)
{
    if (put(out, END64_SIGNATURE, 4, err) || put(out, END64_BYTES - 12, 8, err) || put(out, VERSION64, 2, err) ||
        put(out, VERSION64, 2, err) || put(out, 0, 4, err) || put(out, 0, 4, err) || put(out, zip->count, 8, err) ||
        put(out, zip->count, 8, err) || put(out, bytes, 8, err) || put(out, zip->at, 8, err))
        return -1;
    return put(out, LOCATOR_SIGNATURE, 4, err) || put(out, 0, 4, err) || put(out, zip->at + bytes, 8, err) ||
           put(out, 1, 4, err) ? -1 : 0;
}

int zip_end(struct zip_writer *zip, struct err *err)
{
    struct text *out = &zip->directory;
    const uint64_t bytes = out->length, count = zip->count < UINT16_MAX ? zip->count : UINT16_MAX;
    const bool wide = count == UINT16_MAX || bytes >= zip->large || zip->at >= zip->large;
    if ((wide && put_end64(zip, out, bytes, err)) || put(out, END_SIGNATURE, 4, err) || put(out, 0, 4, err) ||
        put(out, count, 2, err) || put(out, count, 2, err) || put(out, narrow(zip, bytes), 4, err) ||
        put(out, narrow(zip, zip->at), 4, err) || put(out, 0, 2, err))
        return -1;
    return write_out(zip, out->data, out->length, err);
}

void zip_free(struct zip_writer **zip)
{
    if (*zip) {
        text_free(&(*zip)->directory);
        text_free(&(*zip)->header);
    }
    mem_free(zip);
}
