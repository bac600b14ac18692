/* A range of addresses as large as a file, into which parts of the file are read. Unlike a mapping of the file, it uses no
 * page cache of the system. Parts that were not read must not be accessed. Private to model/. */
#ifndef MOE_MODEL_RESIDENT_H
#define MOE_MODEL_RESIDENT_H

#include "common/base/direct.h"

struct resident {
    struct direct_file file;         /* stays open */
    uint8_t *data;
    size_t bytes;                    /* of the file */
};

int resident_open(struct resident *out, const char *path, struct err *err);
/* Reads the pages that contain bytes offset .. offset+bytes-1; the file must contain these bytes. */
int resident_read(const struct resident *resident, uint64_t offset, uint64_t bytes, struct err *err);
void resident_drop(struct resident *resident, uint64_t offset, uint64_t bytes);       /* releases the memory of these pages */
void resident_close(struct resident *resident);

#endif
