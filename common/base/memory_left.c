#include "common/base/memory_left.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first bytes of a small file; false when it cannot be read. */
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

/* What a group of its own and those above it leave: pages of files that are in its use go when they must. */
static int64_t group_left(const char *root, const char *top, char *group, const char *limit, const char *use, int64_t min)
{
    for (;;) {
        char folder[700];
        snprintf(folder, sizeof folder, "%s%s", top, group);
        int64_t max = read_number(root, folder, limit), used = read_number(root, folder, use);
        if (max >= 0 && used >= 0) {
            int64_t left = used < max ? max - used : 0;
            min = min < 0 || left < min ? left : min;
        }
        char *last = strrchr(group, '/');
        if (!last)
            return min;
        *last = '\0';
    }
}

int64_t memory_left(const char *root)
{
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
            left = group_left(root, "/sys/fs/cgroup", group, "memory.max", "memory.current", left);
        else if (!strcmp(first + 1, "memory"))
            left = group_left(root, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes", left);
    }
    return left;
}
