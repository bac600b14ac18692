#include "common/model/resident.h"

#include <sys/mman.h>
#include <unistd.h>

#include "common/base/mem.h"

static size_t page_bytes(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return page > DIRECT_STEP ? page : DIRECT_STEP;
}

static size_t room_of(const struct resident *resident) { return size_align(resident->bytes + 1, page_bytes()); }

int resident_open(struct resident *out, const char *path, struct err *err)
{
    struct resident resident = {.data = NULL};
    if (direct_open(&resident.file, path, err))
        return -1;
    resident.bytes = (size_t)resident.file.bytes;
    void *data = resident.file.bytes > SIZE_MAX / 2 ? MAP_FAILED
               : mmap(NULL, room_of(&resident), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        err_errno(err, "%s: %zu bytes of address space cannot be reserved", path, resident.bytes);
        direct_close(&resident.file);
        return -1;
    }
    resident.data = data;
    *out = resident;
    return 0;
}

int resident_read(const struct resident *resident, uint64_t offset, uint64_t bytes, struct err *err)
{
    size_t page = page_bytes(), begin = (size_t)offset & ~(page - 1), end = size_align((size_t)(offset + bytes), page);
    if (!bytes)
        return 0;
    if (mprotect(resident->data + begin, end - begin, PROT_READ | PROT_WRITE))
        return err_errno(err, "%s: there is not enough memory for %zu bytes of the model", resident->file.path, end - begin);
    madvise(resident->data + begin, end - begin, MADV_HUGEPAGE);        /* a wish */
    return direct_read(&resident->file, resident->data + begin, begin, (size_t)(offset + bytes) - begin, err);
}

void resident_drop(struct resident *resident, uint64_t offset, uint64_t bytes)
{
    size_t page = page_bytes(), begin = size_align((size_t)offset, page), end = size_align((size_t)(offset + bytes), page);
    if (begin < end) {
        madvise(resident->data + begin, end - begin, MADV_DONTNEED);
        mprotect(resident->data + begin, end - begin, PROT_NONE);
    }
}

void resident_close(struct resident *resident)
{
    if (resident->data)
        munmap(resident->data, room_of(resident));
    direct_close(&resident->file);
    *resident = (struct resident){.data = NULL};
}
