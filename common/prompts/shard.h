/* Divides a run's prompts into parts for separate processes, for example jobs of a Slurm array.
 *
 * Part I of N is a contiguous range of the prompts, in their order; the first parts have one prompt more if N does not divide
 * the number of prompts. So outputs that are concatenated in the order of the parts have the order of the whole run. */
#ifndef MOE_PROMPTS_SHARD_H
#define MOE_PROMPTS_SHARD_H

#include <stdint.h>

#include "common/base/err.h"

struct shard { int part, parts; };      /* part: 1 .. parts; parts 0: not divided */

/* Reads "I/N"; NULL: not divided. */
int shard_parse(struct shard *out, const char *text, struct err *err);

/* Sets the range [*first, *end) of `count` prompts that belongs to the part; empty if there are fewer prompts than parts. */
void shard_range(struct shard shard, int64_t count, int64_t *first, int64_t *end);

#endif
