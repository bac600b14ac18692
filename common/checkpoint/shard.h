/* Names of files that are one checkpoint together: STEM-00001-of-00003.safetensors and so on. */
#ifndef MOE_CHECKPOINT_SHARD_H
#define MOE_CHECKPOINT_SHARD_H

#include <stdbool.h>
#include <stddef.h>

#include "common/checkpoint/checkpoint.h"

enum { SHARDS_MAX = 4096, SHARD_PART = 15 };        /* SHARD_PART: the length of "-00001-of-00003" */

/* The number of files that `name` says there are; 0: it is not such a name. *number: which of them it is, from 1. */
int shard_count(const char *name, int *number);

/* The name of another file of the same checkpoint. */
void shard_name(char out[SOURCE_NAME], const char *name, int number);

/* Looks through the names of a folder or archive for one set of shards with a common ending. */
struct shard_search {
    const char *begin, *ending;         /* what the names of all weights have */
    char first[SOURCE_NAME];            /* the set's first name; empty: none was offered */
    bool others;                        /* other weights were offered, too, or a second set: then no set is the checkpoint */
};
void shard_offer(struct shard_search *search, const char *name);

#endif
