/* Memory and sizes: every allocation of the project goes through here, and every size that comes from outside is
 * computed with these checked operations. */
#ifndef MOE_BASE_MEM_H
#define MOE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* Compute *out = a op b; return false and leave *out unchanged on overflow. */
static inline bool size_add(size_t a, size_t b, size_t *out)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

static inline bool size_mul(size_t a, size_t b, size_t *out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

/* Returns value rounded up to a multiple of step (a power of two); value must be at most SIZE_MAX - step. */
static inline size_t size_align(size_t value, size_t step) { return (value + step - 1) & ~(step - 1); }

/* Allocates count x size bytes of zeros, at least one byte; returns NULL with err set if there is no such memory. Freed by
 * mem_free. */
void *mem_alloc(size_t count, size_t size, struct err *err);

/* Allocates the same, aligned to 64 bytes (a cache line, one AVX-512 register). Freed by mem_free. */
void *mem_alloc_aligned(size_t count, size_t size, struct err *err);

/* Makes room for at least `need` elements in the growing array *array (capacity *room, element size `size`), doubling so
 * that appending is linear. New elements are zero. On failure the array is untouched. */
int mem_grow(void *array, size_t *room, size_t need, size_t size, struct err *err);

/* Resizes *array to exactly this many elements, at least 1. Existing elements stay; new ones are undefined and take no memory
 * until they are written. */
int mem_resize(void *array, size_t count, size_t size, struct err *err);

/* Copies `bytes` bytes, or a string, and appends a NUL. */
void *mem_copy(const void *data, size_t bytes, struct err *err);
char *mem_string(const char *text, struct err *err);

/* Takes the ADDRESS of a pointer (declared void * so that any type fits); frees the memory and sets the pointer to NULL. */
void mem_free(void *pointer);

#endif
