/* A symbolic reader of the pickles in which PyTorch saves weights. No code of a pickle runs: the few opcodes of protocol 2
 * that dictionaries of tensors need build values, and the few globals in such pickles (pickle_globals) are recognised by
 * name. Any other opcode or global is an error with its name and offset.
 *
 * In:   bytes. Out: values that refer to each other by index; texts point into the bytes, which must outlive them.
 * Cost: time linear in the bytes; at most PICKLE_VALUES_MAX values of 16 bytes, and about the same for temporary data. */
#ifndef MOE_CHECKPOINT_PICKLE_H
#define MOE_CHECKPOINT_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum { PICKLE_VALUES_MAX = 1 << 21, PICKLE_STACK_MAX = 1 << 20, PICKLE_BYTES_MAX = 64 << 20 };

enum pickle_kind {
    PICKLE_NONE, PICKLE_BOOL, PICKLE_INTEGER, PICKLE_TEXT, PICKLE_GLOBAL,
    PICKLE_TUPLE,
    PICKLE_LIST, PICKLE_DICT,               /* a linked list of entries */
    PICKLE_STORAGE,                         /* items: its type (global), key (text), device (text), number of elements */
    PICKLE_TENSOR                           /* items: storage, offset, sizes and strides (tuples), ... */
};

struct pickle_value {
    uint8_t kind;
    uint32_t count;                         /* bytes of a text; items of a tuple, storage or tensor; enum pickle_global of a
                                             * global */
    union {
        int64_t integer;                    /* also of a bool; of a text: its offset in the bytes */
        struct { uint32_t first, last; } chain;                 /* index of entries + 1; 0: none */
        uint32_t items;                     /* index of the first item */
    } is;
};

struct pickle_entry { uint32_t key, value, next; };             /* next: index of the next entry + 1; 0: none. A list has no
                                                                 * keys */

struct pickle {
    const uint8_t *data;
    struct pickle_value *values;
    size_t value_count, value_room;
    uint32_t *items;
    size_t item_count, item_room;
    struct pickle_entry *entries;
    size_t entry_count, entry_room;
    uint32_t root;                          /* index of the pickled value */
};

/* Globals that a pickle may use. */
enum pickle_global {
    GLOBAL_ORDERED_DICT, GLOBAL_TENSOR, GLOBAL_PARAMETER,
    GLOBAL_STORAGES, GLOBAL_FLOAT16, GLOBAL_BFLOAT16        /* storage types begin with GLOBAL_STORAGES */
};
/* dtype: as in safetensors; NULL: the global is not a storage type */
struct pickle_known { const char *module, *name, *dtype; int bytes; };
extern const struct pickle_known pickle_globals[];

/* Reads one pickle. *used: number of bytes read. out must be {0}; it is filled only on success. */
int pickle_read(struct pickle *out, const uint8_t *data, size_t bytes, size_t *used, struct err *err);
void pickle_free(struct pickle *pickle);

#endif
