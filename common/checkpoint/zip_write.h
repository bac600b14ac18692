/* Writes a zip file as torch.save does: members are not compressed; their data begin at multiples of 64 bytes of the file,
 * so that a reader may map them; headers contain sizes and checksums, so that the file can be read from front to back.
 * (libarchive cannot write the padding.) Numbers of more than 32 bits are in the 64-bit forms: PKWARE's APPNOTE.TXT,
 * 4.3.9.2, 4.3.14 and 4.5.3; a member may have any size. All dates are the earliest possible, so equal contents give equal
 * bytes.
 *
 *     zip_open, { zip_member, zip_put ..., zip_member_end } ..., zip_end, zip_free
 *
 * The output must be a file, because the checksum is written into a header after the data. The caller owns it. */
#ifndef MOE_CHECKPOINT_ZIP_WRITE_H
#define MOE_CHECKPOINT_ZIP_WRITE_H

#include "common/base/file.h"

enum { ZIP_ALIGNMENT = 64 };

struct zip_writer;

/* Begins a zip file. large: numbers from this one on use the 64-bit forms; UINT32_MAX, or less in tests with small files. */
int zip_open(struct zip_writer **out, struct output *file, uint32_t large, struct err *err);

/* Begins the next member of exactly `bytes` bytes. Its name is ASCII. */
int zip_member(struct zip_writer *zip, const char *name, uint64_t bytes, struct err *err);
int zip_put(struct zip_writer *zip, const void *data, size_t bytes, struct err *err);
int zip_member_end(struct zip_writer *zip, struct err *err);

int zip_end(struct zip_writer *zip, struct err *err);               /* writes the directory */
void zip_free(struct zip_writer **zip);

#endif
