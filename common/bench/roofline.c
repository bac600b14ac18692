#include "common/bench/roofline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    double speed = device_read_bandwidth(device, bytes, seconds, err);
    if (speed < 0)
        return -1;
    *bytes_per_second = speed > 0 ? speed : NAN;
    return 0;
}

static int measure_with(const struct device_setup *setup, size_t bytes, double seconds, struct roofline *out, double *speed,
                        struct err *err)
{
    struct device *device = NULL;
    if (device_open(&device, setup, err))
        return -1;
    roofline_describe(device, out);
    int rc = roofline_measure(device, bytes, seconds, speed, err);
    device_close(&device);
    return rc;
}

int roofline_make(const struct device_setup *setup, size_t bytes, double seconds, struct roofline *out, struct err *err)
{
    struct roofline made = {.one_thread = NAN}, one;
    struct device_setup single = *setup;
    single.threads = 1;
    if (measure_with(setup, bytes, seconds, &made, &made.bytes_per_second, err))
        return -1;
    if (isnan(made.bytes_per_second))
        return err_set(err, ERR_INPUT, "device %s: has no measure of its read bandwidth; use host", made.device);
    made.one_thread = made.bytes_per_second;
    if (made.threads > 1 && measure_with(&single, bytes, seconds, &one, &made.one_thread, err))
        return -1;
    *out = made;
    return 0;
}

int roofline_text(struct text *out, const struct roofline *roofline, size_t bytes, struct err *err)
{
    double all = 1e-9 * roofline->bytes_per_second;
    return text_printf(out, err, "%s %s, reading %zu MiB\n%3d thread%s  %6.1f GB/s, %.1f GB/s each\n  1 thread   %6.1f GB/s\n",
                       roofline->device, roofline->isa, bytes >> 20, roofline->threads, roofline->threads == 1 ? " " : "s", all,
                       all / roofline->threads, 1e-9 * roofline->one_thread);
}

int roofline_json(struct text *out, const struct roofline *roofline, size_t bytes, struct err *err)
{
    return text_printf(out, err, "{\"type\":\"roofline\",\"device\":\"%s\",\"isa\":\"%s\",\"threads\":%d,\"bytes\":%zu,"
                       "\"read_bandwidth\":%.17g,\"read_bandwidth_one_thread\":%.17g}\n", roofline->device, roofline->isa,
                       roofline->threads, bytes, roofline->bytes_per_second, roofline->one_thread);
}
