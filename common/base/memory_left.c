#include "common/base/memory_left.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the first bytes of a small file; returns false if the file cannot be read. */
static int read_small(const char *root, const char *path, char *out, size_t room)
{
    char name[1024];
    snprintf(name, sizeof name, "%s%s", root, path);
    FILE *file = fopen(name, "re");
    if (!file)
        return 0;
    size_t got = fread(out, 1, room - 1, file);
    out[got] = '\0';
    fclose(file);
    return got > 0;
}

static int64_t read_number(const char *root, const char *folder, const char *name)
{
    char path[768], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!read_small(root, path, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return -1;
    return strtoll(text, NULL, 10);
}

/* Returns the value of a line "NAME VALUE" of memory.stat; -1: no such line. */
static int64_t stat_value(const char *stat, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = stat; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (!strncmp(line, name, length) && line[length] == ' ')
            return strtoll(line + length, NULL, 10);
    return -1;
}

/* Returns the bytes of the page cache that are charged to a group and that the kernel reclaims on demand. memory.stat of
 * version 1 counts the group alone, and its total_ lines include the groups below it, as version 2 does. */
static int64_t group_reclaimable(const char *root, const char *folder)
{
    static const char *const names[][2] = {{"total_active_file", "active_file"}, {"total_inactive_file", "inactive_file"}};
    char path[768], text[16384];
    int64_t bytes = 0;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (!read_small(root, path, text, sizeof text))
        return 0;
    for (int i = 0; i < 2; i++) {
        int64_t value = stat_value(text, names[i][0]);
        value = value < 0 ? stat_value(text, names[i][1]) : value;
        bytes += value > 0 ? value : 0;
    }
    return bytes;
}

struct group_files { const char *top, *limit, *use; };

/* Returns the minimum of `bound` (-1: no bound) and the memory left in `group` and each group above it. */
static int64_t group_left(const char *root, const struct group_files *files, char *group, int64_t bound)
{
    for (;;) {
        char folder[700];
        snprintf(folder, sizeof folder, "%s%s", files->top, group);
        int64_t max = read_number(root, folder, files->limit), used = read_number(root, folder, files->use);
        if (max >= 0 && used >= 0) {
            int64_t reclaimable = group_reclaimable(root, folder);
            int64_t needed = reclaimable < used ? used - reclaimable : 0, left = needed < max ? max - needed : 0;
            bound = bound < 0 || left < bound ? left : bound;
        }
        char *last = strrchr(group, '/');
        if (!last)
            return bound;
        *last = '\0';
    }
}

int64_t memory_left(const char *root)
{
    static const struct group_files
        unified = {"/sys/fs/cgroup", "memory.max", "memory.current"},
        legacy = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"};
    char text[4096], group[512], *rest = NULL;
    int64_t left = -1;
    if (read_small(root, "/proc/meminfo", text, sizeof text)) {
        const char *at = strstr(text, "MemAvailable:");
        left = at ? strtoll(at + strlen("MemAvailable:"), NULL, 10) * 1024 : -1;
    }
    if (!read_small(root, "/proc/self/cgroup", text, sizeof text))
        return left;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second)
            continue;
        snprintf(group, sizeof group, "%s", second + 1);
        *second = '\0';
        if (!first[1])
            left = group_left(root, &unified, group, left);
        else if (!strcmp(first + 1, "memory"))
            left = group_left(root, &legacy, group, left);
    }
    return left;
}
