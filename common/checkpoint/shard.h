/* Names of files that form one checkpoint: STEM-00001-of-00003.safetensors and so on. */
#ifndef MOE_CHECKPOINT_SHARD_H
#define MOE_CHECKPOINT_SHARD_H

#include <stdbool.h>
#include <stddef.h>

#include "common/checkpoint/checkpoint.h"

enum { SHARDS_MAX = 4096, SHARD_PART = 15 };        /* SHARD_PART: length of "-00001-of-00003" */

/* Returns the number of files in the set that `name` belongs to, 0 if it is not a shard name. *number: index of this file, from
 * 1. */
int shard_count(const char *name, int *number);

/* Writes the name of file `number` of the set that `name` belongs to. */
void shard_name(char out[SOURCE_NAME], const char *name, int number);

/* Fails if the shard `name` is not at `path`. by: the file whose text or name refers to this shard. */
int shard_check(const char *path, const char *name, const char *by, struct err *err);

/* Searches the names of a folder or archive for exactly one set of shards. */
struct shard_search {
    const char *begin, *ending;         /* prefix and suffix of all names of weights */
    char first[SOURCE_NAME];            /* name of the first shard; empty: none found */
    bool others;                        /* other weights or a second set were found, too; then the set is not used */
};
void shard_offer(struct shard_search *search, const char *name);

#endif
