#include "common/bench/machine.h"

#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/numeral.h"

enum { FILE_BYTES = 1 << 16, PAIRS_MAX = 4096 };

/* Reads the first bytes of a small system file; "" if it cannot be read. Control characters become spaces, because they
 * could move a terminal's cursor. */
static void read_small(const char *root, const char *path, char *out, size_t room)
{
    char name[512];
    size_t got = 0;
    snprintf(name, sizeof name, "%s%s", root, path);
    FILE *file = fopen(name, "re");
    if (file) {
        got = fread(out, 1, room - 1, file);
        fclose(file);
    }
    out[got] = '\0';
    for (size_t i = 0; i < got; i++)
        if ((unsigned char)out[i] < ' ' && out[i] != '\n')
            out[i] = ' ';
}

static void put_line(char *out, size_t room, const char *from)
{
    size_t length = strcspn(from, "\n");
    while (length && from[length - 1] == ' ')
        length--;
    snprintf(out, room, "%.*s", (int)(length < room ? length : room - 1), from);
}

/* Returns the value in the first line "key <spaces> : value" from `at` on; NULL: no such line. *next: where to continue the
 * search. */
static const char *value_of(const char *at, const char *key, const char **next)
{
    size_t bytes = strlen(key);
    for (; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        const char *colon = at + bytes;
        if (strncmp(at, key, bytes))
            continue;
        colon += strspn(colon, " \t");
        if (*colon != ':')
            continue;
        colon++;
        if (next)
            *next = colon;
        return colon + strspn(colon, " \t");
    }
    return NULL;
}

static void find_memory(struct machine *out, const char *root)
{
    char text[4096];
    const char *value;
    read_small(root, "/proc/meminfo", text, sizeof text);
    if ((value = value_of(text, "MemTotal", NULL)))
        out->memory = strtoll(value, NULL, 10) * 1024;
    if ((value = value_of(text, "MemAvailable", NULL)))
        out->available = strtoll(value, NULL, 10) * 1024;
}

/* Distinct pairs of socket and core id. */
struct cores {
    int socket[PAIRS_MAX], core[PAIRS_MAX], count, sockets;
};

static void add_core(struct cores *cores, int socket, int core)
{
    bool known = false;
    for (int i = 0; i < cores->count; i++) {
        if (cores->socket[i] == socket && cores->core[i] == core)
            return;
        known |= cores->socket[i] == socket;
    }
    if (cores->count == PAIRS_MAX)
        return;
    cores->sockets += !known;
    cores->socket[cores->count] = socket;
    cores->core[cores->count++] = core;
}

static int find_processors(struct machine *out, const char *root, struct err *err)
{
    struct cores *cores = mem_alloc(1, sizeof *cores, err);
    char path[128], text[64], *list = mem_alloc(FILE_BYTES, 1, err);
    int rc = cores && list ? 0 : -1;
    if (rc)
        goto done;
    read_small(root, "/proc/cpuinfo", list, FILE_BYTES);
    const char *name = value_of(list, "model name", NULL);
    put_line(out->cpu, sizeof out->cpu, name ? name : "");
    for (const char *at = list; value_of(at, "processor", &at); )
        out->processors++;
    for (int i = 0; i < PAIRS_MAX; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        read_small(root, path, text, sizeof text);
        if (!*text)
            break;
        int socket = atoi(text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", i);
        read_small(root, path, text, sizeof text);
        add_core(cores, socket, atoi(text));
        out->processors = i + 1 > out->processors ? i + 1 : out->processors;
    }
    out->cores = cores->count;
    out->sockets = cores->sockets;
    while (out->nodes < PAIRS_MAX) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", out->nodes);
        read_small(root, path, text, sizeof text);
        if (!*text)
            break;
        out->nodes++;
    }
done:
    mem_free(&cores);
    mem_free(&list);
    return rc;
}

/* Returns how many processors a list names: 5 for "0-3,8". */
static int list_length(const char *list)
{
    int count = 0;
    while (*list >= '0' && *list <= '9') {
        char *end;
        long from = strtol(list, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        count += to >= from && to - from < PAIRS_MAX ? (int)(to - from + 1) : 0;
        list = *end == ',' ? end + 1 : end;
    }
    return count;
}

static void find_caches(struct machine *out, const char *root)
{
    for (int i = 0; i < MACHINE_CACHES; i++) {
        static const char *const files[] = { "level", "type", "size", "shared_cpu_list" };
        char text[4][256], path[128], *unit;
        for (int f = 0; f < 4; f++) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i, files[f]);
            read_small(root, path, text[f], sizeof text[f]);
        }
        if (!*text[0])
            break;
        struct machine_cache *cache = &out->caches[out->cache_count++];
        cache->level = atoi(text[0]);
        put_line(cache->type, sizeof cache->type, text[1]);
        cache->bytes = strtoll(text[2], &unit, 10);
        cache->bytes *= *unit == 'K' ? 1 << 10 : *unit == 'M' ? 1 << 20 : 1;
        cache->shared = list_length(text[3]);
    }
}

static void find_gpus(struct machine *out, const char *root)
{
    char pattern[512], text[2048];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/proc/driver/nvidia/gpus/*/information", root);
    if (!glob(pattern, 0, NULL, &found))
        for (size_t i = 0; i < found.gl_pathc && out->gpu_count < MACHINE_GPUS; i++) {
            read_small("", found.gl_pathv[i], text, sizeof text);
            const char *model = value_of(text, "Model", NULL);
            put_line(out->gpus[out->gpu_count++], MACHINE_NAME, model ? model : "unknown");
        }
    globfree(&found);
}

int machine_find(struct machine *out, const char *root, struct err *err)
{
    struct machine made = {0};
    char text[256];
    if (find_processors(&made, root, err))
        return -1;
    read_small(root, "/proc/sys/kernel/osrelease", text, sizeof text);
    put_line(made.kernel, sizeof made.kernel, text);
    find_memory(&made, root);
    find_caches(&made, root);
    find_gpus(&made, root);
    *out = made;
    return 0;
}

int machine_text(struct text *out, const struct machine *machine, const struct roofline *measured, const struct speeds *speeds,
                 struct err *err)
{
    double giga = 1 << 30;
    if (text_printf(out, err, "processor  %s\n           %d sockets, %d cores, %d hardware threads, %d memory nodes\n",
                    *machine->cpu ? machine->cpu : "unknown", machine->sockets, machine->cores, machine->processors,
                    machine->nodes) ||
        text_printf(out, err, "memory     %.1f GiB, %.1f GiB of it available\n", (double)machine->memory / giga,
                    (double)machine->available / giga))
        return -1;
    for (int i = 0; i < machine->cache_count; i++) {
        const struct machine_cache *cache = &machine->caches[i];
        if (text_printf(out, err, "cache      L%d %-11s %8.0f KiB, shared by %d thread%s\n", cache->level, cache->type,
                        (double)cache->bytes / 1024, cache->shared, numeral_plural(cache->shared)))
            return -1;
    }
    for (int i = 0; i < machine->gpu_count; i++)
        if (text_printf(out, err, "gpu        %s\n", machine->gpus[i]))
            return -1;
    if ((!machine->gpu_count && text_puts(out, "gpu        none\n", err)) ||
        text_printf(out, err, "kernel     %s\n", machine->kernel))
        return -1;
    if (speeds && speeds_text(out, speeds, err))
        return -1;
    return !measured ? 0 : text_printf(out, err, "reads      %.1f GB/s with %d thread%s, %.1f GB/s with one (%s %s)\n",
                                       1e-9 * measured->bytes_per_second, measured->threads,
                                       numeral_plural(measured->threads), 1e-9 * measured->one_thread, measured->device,
                                       measured->isa);
}

int machine_json(struct text *out, const struct machine *machine, const struct roofline *measured, const struct speeds *speeds,
                 struct err *err)
{
    json_t *caches = json_array(), *gpus = json_array(), *object = NULL;
    char *line = NULL;
    int rc = -1, failed = !caches || !gpus;
    for (int i = 0; i < machine->cache_count; i++) {
        const struct machine_cache *cache = &machine->caches[i];
        failed |= json_array_append_new(caches, json_pack("{s:i, s:s, s:I, s:i}", "level", cache->level, "type", cache->type,
                                                          "bytes", (json_int_t)cache->bytes, "shared", cache->shared));
    }
    for (int i = 0; i < machine->gpu_count; i++)
        failed |= json_array_append_new(gpus, json_string(machine->gpus[i]));
    object = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:O, s:O, s:s}", "type", "machine", "cpu", machine->cpu,
                       "sockets", machine->sockets, "cores", machine->cores, "threads", machine->processors, "nodes",
                       machine->nodes, "memory", (json_int_t)machine->memory, "available", (json_int_t)machine->available,
                       "caches", caches, "gpus", gpus, "kernel", machine->kernel);
    if (object && measured) {
        failed |= json_object_set_new(object, "device", json_string(measured->device));
        failed |= json_object_set_new(object, "isa", json_string(measured->isa));
        failed |= json_object_set_new(object, "read_threads", json_integer(measured->threads));
        failed |= json_object_set_new(object, "read_bandwidth", json_finite(measured->bytes_per_second));
        failed |= json_object_set_new(object, "read_bandwidth_one_thread", json_finite(measured->one_thread));
    }
    if (failed || !object)
        err_memory(err);
    else if (speeds && speeds_json(object, speeds, err))
        rc = -1;
    else if ((line = json_text(object, JSON_COMPACT | JSON_PRESERVE_ORDER, err)))
        rc = text_puts(out, line, err) || text_putc(out, '\n', err) ? -1 : 0;
    mem_free(&line);
    json_decref(object);
    json_decref(caches);
    json_decref(gpus);
    return rc;
}
