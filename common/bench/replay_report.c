/* Prints the results of replay as a table and as JSON lines. */
#include "common/bench/replay.h"

#include <math.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/report/table.h"

static double rate(const struct replay_result *result) { return (double)result->tokens / result->seconds; }

/* Returns the fastest static draft length. */
static const struct replay_result *best_static(const struct replay_table *table)
{
    const struct replay_result *best = &table->result[0];
    for (int i = 1; i < table->statics; i++)
        if (table->result[i].seconds < best->seconds)
            best = &table->result[i];
    return best;
}

int replay_text(struct text *out, const struct replay_table *all, struct err *err)
{
    static const char *const titles[] = {"policy", "tok/s", "x none", "x best static", "tok/step", "accept", "drafted",
                                         "drafting", "same as live"};
    const struct replay_result *best = best_static(all);
    struct table table = {0};
    int rc = -1;
    table_start(&table, titles, "lrrrrrrrr");
    for (int i = 0; i < all->count; i++) {
        const struct replay_result *it = &all->result[i];
        if (table_cell(&table, err, "%s", it->policy) || table_cell(&table, err, "%.1f", rate(it)) ||
            table_cell(&table, err, "%.3f", rate(it) / rate(&all->result[0])) ||
            table_cell(&table, err, "%.3f", rate(it) / rate(best)) ||
            table_cell(&table, err, "%.2f", (double)it->tokens / (double)it->iterations) ||
            (it->drafts ? table_cell(&table, err, "%.2f", 1 + (double)it->accepted / (double)it->drafts)
                        : table_cell(&table, err, "%s", "")) ||
            table_cell(&table, err, "%lld", (long long)it->drafted) ||
            table_cell(&table, err, "%.1f %%", 100 * it->draft_seconds / it->seconds) ||
            table_cell(&table, err, "%lld of %lld", (long long)it->same, (long long)it->live))
            goto done;
    }
    rc = table_write(&table, TABLE_TEXT, out, err);
done:
    table_free(&table);
    return rc;
}

int replay_json(struct text *out, const struct replay_table *all, struct err *err)
{
    const struct replay_result *best = best_static(all);
    for (int i = 0; i < all->count; i++) {
        const struct replay_result *it = &all->result[i];
        json_t *object = json_pack(
            "{s:s, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:I}", "type", "replay", "policy", it->policy,
            "seconds", it->seconds, "draft_seconds", it->draft_seconds, "tokens", (json_int_t)it->tokens, "iterations",
            (json_int_t)it->iterations, "drafts", (json_int_t)it->drafts, "draft_tokens", (json_int_t)it->drafted,
            "accepted_tokens", (json_int_t)it->accepted, "ratio_to_none", rate(it) / rate(&all->result[0]),
            "ratio_to_best_static", rate(it) / rate(best), "live_iterations", (json_int_t)it->live, "same_as_live",
            (json_int_t)it->same);
        if (json_line(out, object, err))
            return -1;
    }
    return 0;
}

static json_t *values_json(const struct values *values)
{
    json_t *map = json_object();
    for (int i = 0; map && i < values->count; i++) {
        const struct value *value = &values->items[i];
        json_t *item = value->type == VALUE_INT ? json_integer(value->integer)
                     : value->type == VALUE_TEXT ? json_string(value->text)
                     : isfinite(value->real) ? json_real(value->real) : json_null();
        if (!item || json_object_set_new(map, value->key, item)) {
            json_decref(map);
            return NULL;
        }
    }
    return map;
}

int replay_iteration_json(struct text *out, const struct replay_iteration *iteration, struct err *err)
{
    const struct outcome *outcome = &iteration->outcome;
    json_t *policy = values_json(&iteration->policy);
    json_t *object = policy ? json_pack("{s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:o}", "type", "iter", "sequence",
                                        (json_int_t)iteration->text->sequence, "pos", iteration->position, "K", iteration->K,
                                        "nodes", 1 + outcome->drafted, "accepted", outcome->accepted, "emitted",
                                        outcome->emitted, "seconds", outcome->iteration_s, "draft_seconds", outcome->draft_s,
                                        "policy", policy) : NULL;
    return json_line(out, object, err);
}
