#include "common/bench/roofline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"

void roofline_describe(const struct device *device, struct roofline *out)
{
    const struct device_info *info = device_info(device);
    size_t word = strcspn(info->name, " ");
    snprintf(out->device, sizeof out->device, "%.*s", (int)word, info->name);
    snprintf(out->isa, sizeof out->isa, "%s", info->name + word + (info->name[word] == ' '));
    out->threads = info->threads;
}

int roofline_measure(struct device *device, size_t bytes, double seconds, double *bytes_per_second, struct err *err)
{
    double speed = device_read_bandwidth(device, NULL, bytes, seconds, err);
    if (speed < 0)
        return -1;
    *bytes_per_second = speed > 0 ? speed : NAN;
    return 0;
}

static int measure_with(const struct device_setup *setup, const struct file_map *map, double seconds, struct roofline *out,
                        double *speed, struct err *err)
{
    struct device *device = NULL;
    if (device_open(&device, setup, err))
        return -1;
    roofline_describe(device, out);
    *speed = device_read_bandwidth(device, map->data, map->bytes, seconds, err);
    device_close(&device);
    return *speed < 0 ? -1 : 0;
}

static int measure_both(const struct device_setup *setup, const struct file_map *map, double seconds, struct roofline *out,
                        struct err *err)
{
    struct device_setup single = *setup;
    struct roofline one;
    single.threads = 1;
    if (measure_with(setup, map, seconds, out, &out->bytes_per_second, err))
        return -1;
    if (out->bytes_per_second == 0)
        return err_set(err, ERR_INPUT, "device %s: cannot measure %s; use host", out->device,
                       map->data ? "the reading of a file" : "its read bandwidth");
    out->one_thread = out->bytes_per_second;
    return out->threads > 1 ? measure_with(&single, map, seconds, &one, &out->one_thread, err) : 0;
}

int roofline_make(const struct device_setup *setup, const char *file, size_t bytes, double seconds, struct roofline *out,
                  struct err *err)
{
    struct roofline made = {.bytes = bytes};
    struct file_map map = {NULL, bytes};
    if (file && file_map_open(&map, file, err))
        return -1;
    made.bytes = map.bytes;
    int rc = file && !map.bytes ? err_set(err, ERR_INPUT, "is empty; name a file with data") : measure_both(setup, &map,
                                                                                                            seconds, &made,
                                                                                                            err);
    if (rc && file)
        err_at(err, "%s", file);
    if (file)
        file_map_close(&map);
    if (!rc)
        *out = made;
    return rc;
}

int roofline_text(struct text *out, const struct roofline *roofline, struct err *err)
{
    double all = 1e-9 * roofline->bytes_per_second;
    return text_printf(out, err, "%s %s, reading %zu MiB\n%3d thread%s  %6.1f GB/s, %.1f GB/s each\n  1 thread   %6.1f GB/s\n",
                       roofline->device, roofline->isa, roofline->bytes >> 20, roofline->threads,
                       roofline->threads == 1 ? " " : "s", all, all / roofline->threads, 1e-9 * roofline->one_thread);
}

int roofline_json(struct text *out, const struct roofline *roofline, struct err *err)
{
    json_t *object = json_pack("{s:s, s:s, s:s, s:i, s:I, s:f, s:f}", "type", "roofline", "device", roofline->device, "isa",
                               roofline->isa, "threads", roofline->threads, "bytes", (json_int_t)roofline->bytes,
                               "read_bandwidth", roofline->bytes_per_second, "read_bandwidth_one_thread",
                               roofline->one_thread);
    return json_line(out, object, err);
}
