/* The address space of a file of which parts are read into memory: what a map of the file shows, as far as it was read, and
 * without pages of the file in the system's cache. What was not read cannot be touched. Private to model/. */
#ifndef MOE_MODEL_RESIDENT_H
#define MOE_MODEL_RESIDENT_H

#include "common/base/direct.h"

struct resident {
    struct direct_file file;         /* stays open */
    uint8_t *data;
    size_t bytes;                    /* of the file */
};

int resident_open(struct resident *out, const char *path, struct err *err);
/* Bytes offset .. offset+bytes-1 of the file, which has so many, and what lies with them in a page. */
int resident_read(const struct resident *resident, uint64_t offset, uint64_t bytes, struct err *err);
void resident_drop(struct resident *resident, uint64_t offset, uint64_t bytes);       /* they are not needed any more */
void resident_close(struct resident *resident);

#endif
