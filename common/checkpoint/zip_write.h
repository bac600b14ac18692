/* Writes a zip file as torch.save does: members are not compressed, their data begin at multiples of 64 bytes of the file, so
 * that a reader may map them, and headers have sizes and checksums, so that one may read the file from front to back. (Padding
 * is what libarchive cannot be asked for.) Numbers of more than 32 bits are in the 64-bit forms: PKWARE's APPNOTE.TXT, 4.3.9.2,
 * 4.3.14 and 4.5.3; a member may have any size. Dates are all the first that there is: equal contents are equal bytes.
 *
 *     zip_open, { zip_member, zip_put ..., zip_member_end } ..., zip_end, zip_free
 *
 * The output is a file, for the checksum is written into a header when the data have come. It stays the caller's. */
#ifndef MOE_CHECKPOINT_ZIP_WRITE_H
#define MOE_CHECKPOINT_ZIP_WRITE_H

#include "common/base/file.h"

enum { ZIP_ALIGNMENT = 64 };

struct zip_writer;

/* large: numbers from here on are written in the 64-bit forms; UINT32_MAX, or less where a test wants these of a small file. */
int zip_open(struct zip_writer **out, struct output *file, uint32_t large, struct err *err);

/* The next member, of exactly so many bytes; its name in ASCII. */
int zip_member(struct zip_writer *zip, const char *name, uint64_t bytes, struct err *err);
int zip_put(struct zip_writer *zip, const void *data, size_t bytes, struct err *err);
int zip_member_end(struct zip_writer *zip, struct err *err);

int zip_end(struct zip_writer *zip, struct err *err);               /* the directory */
void zip_free(struct zip_writer **zip);

#endif
