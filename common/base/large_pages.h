/* Memory in large pages (2 MiB) where the system supports them: into pages of 4 KiB some disks read at half the speed, because
 * a read is split into many pieces, and products read weights more slowly. */
#ifndef MOE_BASE_LARGE_PAGES_H
#define MOE_BASE_LARGE_PAGES_H

#include <stddef.h>

/* Returns `bytes` bytes of zeros; NULL: no memory. Released by large_pages_free. */
void *large_pages_alloc(size_t bytes);

/* Frees the memory. Takes the ADDRESS of a pointer, as mem_free does; NULL is no error. */
void large_pages_free(void *pointer, size_t bytes);

#endif
