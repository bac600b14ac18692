#include "common/checkpoint/shard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int shard_count(const char *name, int *number)
{
    const char *dot = strrchr(name, '.');
    int count = 0;
    char end;
    if (!dot || dot - name <= SHARD_PART || sscanf(dot - SHARD_PART, "-%5d-of-%5d%c", number, &count, &end) != 3 || end != '.')
        return 0;
    return *number >= 1 && *number <= count && count <= SHARDS_MAX ? count : 0;
}

void shard_name(char out[SOURCE_NAME], const char *name, int number)
{
    const char *dot = strrchr(name, '.');
    int other, count = shard_count(name, &other);
    snprintf(out, SOURCE_NAME, "%.*s-%05d-of-%05d%s", (int)(dot - name) - SHARD_PART, name, number, count, dot);
}

int shard_check(const char *path, const char *name, const char *by, struct err *err)
{
    if (!access(path, F_OK) || errno != ENOENT)
        return 0;
    return err_set(err, ERR_INPUT, "%s is missing, although %s names it; download it, too", name, by);
}

void shard_offer(struct shard_search *search, const char *name)
{
    char first[SOURCE_NAME];
    int number;
    if (strlen(name) >= SOURCE_NAME || strncmp(name, search->begin, strlen(search->begin)) || !text_ends(name, search->ending))
        return;
    if (!shard_count(name, &number)) {
        search->others = true;
        return;
    }
    shard_name(first, name, 1);
    search->others |= *search->first && strcmp(search->first, first);
    memcpy(search->first, first, sizeof first);
}
