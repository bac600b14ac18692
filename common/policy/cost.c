#include "common/policy/cost.h"

#include <math.h>
#include <stdint.h>

#include <jansson.h>

#include "common/base/json.h"

enum { FILE_LIMIT = 1 << 20 };

/* Fills seconds[from + 1 .. to] by interpolating linearly from `before` at `from` to `now` at `to`. */
static void draw(struct cost_table *table, int from, double before, int to, double now)
{
    for (int m = from + 1; m <= to; m++)
        table->seconds[m] = before + (now - before) * (m - from) / (to - from);
}

static int read_rows(struct cost_table *table, const json_t *list, struct err *err)
{
    int last = 0, before = 0;
    double seconds = 0, slope = 0;
    size_t at;
    json_t *item;
    if (!json_is_array(list) || !json_array_size(list))
        return err_set(err, ERR_INPUT, "\"cost\": expected a list such as [{\"m\": 1, \"seconds\": 0.01}]");
    json_array_foreach((json_t *)(uintptr_t)list, at, item) {
        const json_t *m = json_object_get(item, "m"), *value = json_object_get(item, "seconds");
        double now = json_number_value(value);
        if (!json_is_integer(m) || json_integer_value(m) <= last || json_integer_value(m) > COST_TOKENS_MAX)
            return err_set(err, ERR_INPUT, "row %d: \"m\": expected a whole number from 1 to %d, larger than in the row "
                           "before", (int)at + 1,
                           COST_TOKENS_MAX);
        if (!json_is_number(value) || !(now > 0 && isfinite(now)))
            return err_set(err, ERR_INPUT, "row %d: \"seconds\": expected a number above 0", (int)at + 1);
        before = last;
        last = (int)json_integer_value(m);
        if (!before && last != 1)
            return err_set(err, ERR_INPUT, "the first row must have \"m\": 1, the cost of one token");
        slope = before ? (now - seconds) / (last - before) : 0;
        draw(table, before, seconds, last, now);
        seconds = now;
    }
    slope = slope > 0 ? slope : 0;
    draw(table, last, seconds, COST_TOKENS_MAX, seconds + slope * (COST_TOKENS_MAX - last));
    return 0;
}

static int read_table(struct cost_table *table, const json_t *map, struct err *err)
{
    const json_t *draft = json_object_get(map, "draft_seconds");
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "expected a JSON object with \"cost\"");
    if (draft && (!json_is_number(draft) || !(json_number_value(draft) >= 0 && isfinite(json_number_value(draft)))))
        return err_set(err, ERR_INPUT, "\"draft_seconds\": expected a number of at least 0");
    table->draft = json_number_value(draft);
    return read_rows(table, json_object_get(map, "cost"), err);
}

int cost_table_read(struct cost_table *out, const char *path, struct err *err)
{
    struct cost_table table = {{0}, 0};
    json_t *map = json_file(path, FILE_LIMIT, "a cost table", err);
    if (!map)
        return -1;
    int rc = read_table(&table, map, err) ? err_at(err, "%s", path) : 0;
    if (!rc)
        *out = table;
    json_decref(map);
    return rc;
}

double cost_growth(const struct cost_table *table, const struct union_predictor *experts, int M)
{
    if (table)
        return fmax(0, table->seconds[M] / table->seconds[1] - 1);
    if (!experts->experts)
        return 0.1 * (M - 1);
    return union_of(experts, M) / union_of(experts, 1) - 1 + 0.02 * (M - 1);
}
