#include "common/base/large_pages.h"

#include <string.h>
#include <sys/mman.h>

void *large_pages_alloc(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE);      /* a hint; failure does not matter */
    return memory;
}

void large_pages_free(void *pointer, size_t bytes)
{
    void *memory;
    memcpy(&memory, pointer, sizeof memory);
    if (memory)
        munmap(memory, bytes);
    memset(pointer, 0, sizeof memory);
}
