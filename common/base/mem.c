#include "common/base/mem.h"

#include <stdlib.h>
#include <string.h>

void *mem_alloc(size_t count, size_t size, struct err *err)
{
    void *data = calloc(count ? count : 1, size ? size : 1);
    if (!data)
        err_memory(err);
    return data;
}

void *mem_alloc_aligned(size_t count, size_t size, struct err *err)
{
    size_t bytes;
    void *data = NULL;
    if (size_mul(count, size, &bytes) && bytes <= SIZE_MAX - 64)
        data = aligned_alloc(64, size_align(bytes ? bytes : 1, 64));
    if (!data) {
        err_memory(err);
        return NULL;
    }
    memset(data, 0, bytes);
    return data;
}

int mem_grow(void *array, size_t *room, size_t need, size_t size, struct err *err)
{
    void *old, *data;
    size_t wanted = *room, bytes;
    if (need <= *room)
        return 0;
    if (!size_mul(wanted, 2, &wanted) || wanted < need)
        wanted = need;
    if (wanted < 8)
        wanted = 8;
    if (!size_mul(wanted, size, &bytes))
        return err_memory(err);
    memcpy(&old, array, sizeof old);
    data = realloc(old, bytes);
    if (!data)
        return err_memory(err);
    memset((char *)data + *room * size, 0, bytes - *room * size);
    memcpy(array, &data, sizeof data);
    *room = wanted;
    return 0;
}

int mem_resize(void *array, size_t count, size_t size, struct err *err)
{
    void *old, *data;
    size_t bytes;
    memcpy(&old, array, sizeof old);
    if (!size_mul(count, size, &bytes) || !(data = realloc(old, bytes)))
        return err_memory(err);
    memcpy(array, &data, sizeof data);
    return 0;
}

void *mem_copy(const void *data, size_t bytes, struct err *err)
{
    char *copy = bytes < SIZE_MAX ? mem_alloc(bytes + 1, 1, err) : NULL;
    if (copy && bytes)
        memcpy(copy, data, bytes);
    return copy;
}

char *mem_string(const char *text, struct err *err)
{
    return mem_copy(text, strlen(text), err);
}

void mem_free(void *pointer)
{
    void *data, *none = NULL;
    memcpy(&data, pointer, sizeof data);
    free(data);
    memcpy(pointer, &none, sizeof none);
}
