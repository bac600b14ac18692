#include "common/bench/speeds.h"

#include <math.h>
#include <stdio.h>

#include "common/base/json.h"
#include "common/cli/keys.h"

enum { FILE_LIMIT = 1 << 20 };

static const double max = 1e18;         /* bytes, and bytes a second */

static int get_points(struct product_speed *out, const json_t *list, struct err *err)
{
    size_t at;
    json_t *pair;
    if (!json_array_size(list) || json_array_size(list) > SPEEDS_POINTS)
        return err_set(err, ERR_INPUT, "expected 1 to %d pairs [rows, bytes/s]", SPEEDS_POINTS);
    json_array_foreach(list, at, pair) {
        const double speed = json_number_value(json_array_get(pair, 1));
        const json_int_t rows = json_integer_value(json_array_get(pair, 0));
        const json_int_t before = at ? out->point[at - 1].rows : 0;
        if (json_array_size(pair) != 2 || rows <= before || (!at && rows != 1) || rows > 1 << 20 || !(speed >= 1) ||
            !(speed <= max))
            return err_set(err, ERR_INPUT, "pair %d: expected [rows, bytes/s], with more rows than in the pair before, and 1 "
                           "to %g bytes/s",
                           (int)at + 1, max);
        out->point[at].rows = (int)rows;
        out->point[at].bytes_per_second = speed;
    }
    out->points = (int)json_array_size(list);
    return 0;
}

static int get_products(struct speeds *s, const json_t *products, struct err *err)
{
    const char *names[FORMAT_COUNT + 1] = {NULL};
    for (int f = 0; f < FORMAT_COUNT; f++)
        names[f] = format_name((enum weight_format)f);
    if (products && !json_is_object(products))
        return err_set(err, ERR_INPUT, "expected a JSON object of formats, each with a list of pairs [rows, bytes/s]");
    if (products && keys_known(products, names, err))
        return -1;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const json_t *value = json_object_get(products, names[f]);
        if (json_is_array(value) ? get_points(&s->product[f], value, err)
            : keys_real(products, names[f], 0, 0, max, &s->product[f].rows_bytes, err))
            return err_at(err, "\"%s\"", names[f]);
    }
    return 0;
}

static int get_transfer(struct transfer_speed *out, const json_t *map, const char *key, struct err *err)
{
    static const char *const keys[] = {"bytes_per_second", "latency_us", NULL};
    const json_t *found;
    if (keys_object(map, key, keys, false, &found, err))
        return -1;
    if (found && (keys_real(found, "bytes_per_second", 0, 1, max, &out->bytes_per_second, err) ||
                  keys_microseconds(found, "latency_us", 0, &out->latency_s, err)))
        return err_at(err, "\"%s\"", key);
    return 0;
}

static int get_gpu(struct speeds *s, const json_t *map, struct err *err)
{
    static const char *const keys[] = {"name", "bytes", "bytes_per_second", NULL};
    const json_t *gpu;
    if (keys_object(map, "gpu", keys, false, &gpu, err))
        return -1;
    s->gpu = gpu;
    if (gpu && (keys_text(gpu, "name", s->gpu_name, sizeof s->gpu_name, err) ||
                keys_real(gpu, "bytes", 0, 1, max, &s->gpu_memory, err) ||
                keys_real(gpu, "bytes_per_second", 0, 1, max, &s->read_bandwidth, err)))
        return err_at(err, "\"gpu\"");
    return 0;
}

static int get_all(struct speeds *s, const json_t *map, struct err *err)
{
    static const char *const keys[] = {
        "machine", "cpu", "memory", "available", "read_bandwidth", "products", "operation_us", "disk", "gpu", "link", "network",
        "type", "source", "notes", "sockets", "cores", "threads", "nodes", "caches", "gpus", "kernel", "device", "isa",
        "read_threads", "read_bandwidth_one_thread", NULL};
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "expected the JSON object that `moe-bench machine --products --json` writes");
    if (json_object_get(map, "fast"))
        return err_set(err, ERR_INPUT, "is a description for `moe-bench simulate`; give the output of `moe-bench machine "
                       "--products --json` on that machine");
    const char *name = json_object_get(map, "machine") ? "machine" : "cpu";
    const char *memory = json_object_get(map, "available") ? "available" : "memory";
    if (keys_known(map, keys, err) || keys_text(map, name, s->name, sizeof s->name, err) ||
        keys_real(map, memory, 0, 1, max, &s->memory, err) || get_gpu(s, map, err) ||
        (!s->gpu && keys_real(map, "read_bandwidth", 0, 1, max, &s->read_bandwidth, err)))
        return -1;
    if (get_products(s, json_object_get(map, "products"), err))
        return err_at(err, "\"products\"");
    return keys_microseconds(map, "operation_us", 0, &s->operation_s, err) || get_transfer(&s->disk, map, "disk", err) ||
           get_transfer(&s->link, map, "link", err) || get_transfer(&s->network, map, "network", err) ? -1 : 0;
}

/* Minimises the sum of squares of (a + b bytes) / seconds - 1 with a >= 0 and b >= 0. */
void speeds_fit(struct transfer_speed *out, const double *bytes, const double *seconds, int count)
{
    double ww = 0, wx = 0, xx = 0, w = 0, x = 0;
    for (int i = 0; i < count; i++) {
        const double one = 1 / seconds[i], size = bytes[i] / seconds[i];
        ww += one * one;
        wx += one * size;
        xx += size * size;
        w += one;
        x += size;
    }
    const double determinant = ww * xx - wx * wx;
    double a = (w * xx - x * wx) / determinant, b = (x * ww - w * wx) / determinant;
    if (a < 0 || b <= 0) {                  /* the minimum is at the bound: a or b is 0 */
        const bool latency = b <= 0;
        a = latency ? w / ww : 0;
        b = latency ? 0 : x / xx;
    }
    out->latency_s = a;
    out->bytes_per_second = b > 0 ? 1 / b : 1e18;
}

int speeds_read(struct speeds *out, const char *path, struct err *err)
{
    struct speeds made = {.memory = 0};
    json_t *map = json_file(path, FILE_LIMIT, "a machine's description", err);
    if (!map)
        return -1;
    int rc = get_all(&made, map, err) ? err_at(err, "%s", path) : 0;
    json_decref(map);
    speeds_raise(&made);
    if (!rc)
        *out = made;
    return rc;
}

void speeds_pool(struct product_speed *product)
{
    struct { double seconds; int points; } block[SPEEDS_POINTS];
    int blocks = 0, at = 0;
    for (int i = 0; i < product->points; i++) {
        block[blocks].seconds = 1 / product->point[i].bytes_per_second;
        block[blocks++].points = 1;
        for (; blocks > 1 && block[blocks - 1].seconds < block[blocks - 2].seconds; blocks--) {
            const int one = block[blocks - 2].points, other = block[blocks - 1].points;
            block[blocks - 2].seconds = (one * block[blocks - 2].seconds + other * block[blocks - 1].seconds) / (one + other);
            block[blocks - 2].points += other;
        }
    }
    for (int b = 0; b < blocks; b++)
        for (int i = 0; i < block[b].points; i++)
            product->point[at++].bytes_per_second = 1 / block[b].seconds;
}

void speeds_raise(struct speeds *speeds)
{
    for (int f = 0; f < FORMAT_COUNT; f++)
        for (int i = 0; i < speeds->product[f].points; i++)
            speeds->read_bandwidth = fmax(speeds->read_bandwidth, speeds->product[f].point[i].bytes_per_second);
}

static double seconds_at(const struct product_speed *p, double rows)
{
    int after = 1;
    if (!p->points)
        return p->rows_bytes > 0 ? rows / p->rows_bytes : 0;
    if (p->points == 1)
        return rows / p->point[0].bytes_per_second;
    while (after < p->points - 1 && p->point[after].rows < rows)
        after++;
    const double from = p->point[after - 1].rows, to = p->point[after].rows;
    const double low = 1 / p->point[after - 1].bytes_per_second, high = 1 / p->point[after].bytes_per_second;
    const double slope = (high - low) / (to - from);
    return rows <= to ? low + slope * (fmax(rows, 1) - from) : high + fmax(slope, 0) * (rows - to);
}

double speeds_per_byte(const struct speeds *speeds, enum weight_format format, double rows)
{
    return fmax(1 / speeds->read_bandwidth, seconds_at(&speeds->product[format], rows));
}

int speeds_text(struct text *out, const struct speeds *speeds, struct err *err)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const struct product_speed *p = &speeds->product[f];
        if (p->points && text_printf(out, err, "products   %-5s", format_name((enum weight_format)f)))
            return -1;
        for (int i = 0; i < p->points; i++)
            if (text_printf(out, err, "%s%.1f", i ? ", " : " ", 1e-9 * p->point[i].bytes_per_second))
                return -1;
        for (int i = 0; i < p->points; i++)
            if (text_printf(out, err, "%s%d", i ? ", " : " GB/s of weights for ", p->point[i].rows))
                return -1;
        if (p->points && text_puts(out, " rows\n", err))
            return -1;
    }
    if (text_printf(out, err, "operation  %.1f us beside its weights\n", 1e6 * speeds->operation_s))
        return -1;
    if (speeds->network.bytes_per_second > 0 &&
        text_printf(out, err, "network    %.2f GB/s, %.1f us a message\n", 1e-9 * speeds->network.bytes_per_second,
                    1e6 * speeds->network.latency_s))
        return -1;
    return !(speeds->disk.bytes_per_second > 0) ? 0
        : text_printf(out, err, "disk       %.2f GB/s, %.0f us for the first bytes\n", 1e-9 * speeds->disk.bytes_per_second,
                      1e6 * speeds->disk.latency_s);
}

static int put_transfer(json_t *object, const char *key, const struct transfer_speed *way)
{
    return way->bytes_per_second > 0
        ? json_object_set_new(object, key, json_pack("{s:f, s:f}", "bytes_per_second", way->bytes_per_second, "latency_us",
                                                     1e6 * way->latency_s)) : 0;
}

int speeds_json(json_t *object, const struct speeds *speeds, struct err *err)
{
    json_t *products = json_object();
    int failed = !products;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const struct product_speed *p = &speeds->product[f];
        json_t *list = p->points ? json_array() : NULL;
        for (int i = 0; i < p->points; i++)
            failed |= json_array_append_new(list, json_pack("[if]", p->point[i].rows, p->point[i].bytes_per_second));
        if (p->points)
            failed |= json_object_set_new(products, format_name((enum weight_format)f), list);
    }
    failed |= json_object_set_new(object, "products", products);
    failed |= json_object_set_new(object, "operation_us", json_real(1e6 * speeds->operation_s));
    failed |= put_transfer(object, "disk", &speeds->disk) | put_transfer(object, "network", &speeds->network);
    return failed ? err_memory(err) : 0;
}
