/* Prints systems side by side, as a table and as JSON lines; each line says that it is simulated. */
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/bench/simulate.h"
#include "common/report/table.h"

void simulated_table_free(struct simulated_table *table)
{
    mem_free(&table->result);
    table->count = 0;
}

int simulate_compare(struct simulated_table *out, const struct simulation *simulation, const char *const *systems, int count,
                     struct err *err)
{
    struct simulated_table table = {.count = count, .reference = -1};
    int rc = (table.result = mem_alloc(count, sizeof *table.result, err)) ? 0 : -1;
    for (int i = 0; !rc && i < count; i++) {
        rc = simulate_run(&table.result[i], simulation, systems[i], err);
        if (!strcmp(systems[i], "static-split-draft"))
            table.reference = i;
    }
    for (int i = 0; !rc && i < 4; i++)
        rc = simulate_belady(&table.belady[i / 2][i % 2], simulation, i / 2, i % 2, err);
    if (rc)
        simulated_table_free(&table);
    else
        *out = table;
    return rc;
}

static double rate(const struct simulated_result *it) { return it->tokens / it->seconds; }

static double share(double part, double whole) { return whole > 0 ? 100 * part / whole : NAN; }

int simulate_text(struct text *out, const struct simulation *simulation, const struct simulated_table *all, bool markdown,
                  struct err *err)
{
    static const char *const titles[] = {"system (simulated)", "tok/s", "x static split", "tok/step", "hits", "MB/token",
                                         "fetched early", "wasted", "waiting", "drafting"};
    const struct simulated_machine *m = simulation->machine;
    struct table table = {0};
    int rc = -1;
    table_start(&table, titles, "lrrrrrrrrr");
    for (int i = 0; i < all->count; i++) {
        const struct simulated_result *it = &all->result[i];
        double ratio = all->reference < 0 ? NAN : rate(it) / rate(&all->result[all->reference]);
        if (table_cell(&table, err, "%s", it->system) || table_number(&table, rate(it), 2, err) ||
            table_number(&table, ratio, 3, err) || table_number(&table, (double)it->tokens / it->forwards, 2, err) ||
            table_cell(&table, err, "%.1f %%", share(it->hits, it->wanted)) ||
            table_number(&table, 1e-6 * m->expert_bytes * (it->fetched + it->prefetched) / it->tokens, 0, err) ||
            table_number(&table, (double)it->prefetched / it->forwards, 0, err) ||
            (it->prefetched ? table_cell(&table, err, "%.1f %%", share(it->wasted, it->prefetched))
                            : table_cell(&table, err, "%s", "")) ||
            table_cell(&table, err, "%.1f %%", share(it->stall_s, it->seconds)) ||
            table_cell(&table, err, "%.1f %%", share(it->draft_s, it->seconds)))
            goto done;
    }
    const char *recorded = simulation->drafted->model;
    if (text_printf(out, err, "SIMULATED: %s%s%s on %s, %.1f %% of experts in fast memory; %s\n"
                              "hits by Belady, bringing in what is wanted: %.1f %%, without drafts %.1f %%; bringing in what "
                              "it likes of that: %.1f %%, %.1f %%\n\n", recorded, *recorded ? " at the costs of " : "",
                    m->model, m->name, 100 * m->cached, simulation->drafted->name, 100 * all->belady[1][0],
                    100 * all->belady[0][0], 100 * all->belady[1][1], 100 * all->belady[0][1]))
        goto done;
    rc = table_write(&table, markdown ? TABLE_MARKDOWN : TABLE_TEXT, out, err);
done:
    table_free(&table);
    return rc;
}

int simulate_json(struct text *out, const struct simulation *simulation, const struct simulated_table *all, struct err *err)
{
    const struct simulated_machine *m = simulation->machine;
    for (int i = 0; i < all->count; i++) {
        const struct simulated_result *it = &all->result[i];
        json_t *object = json_pack(
            "{s:s, s:b, s:s, s:s, s:s, s:s, s:f, s:s, s:s, s:f, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, "
            "s:f, s:f, s:f, s:f, s:f, s:f}", "type", "simulate", "simulated", 1, "machine", m->name, "model",
            *simulation->drafted->model ? simulation->drafted->model : m->model, "costs_of", m->model, "routes",
            simulation->drafted->name, "cached", it->cached, "system", it->system, "source", it->source, "tokens_per_second",
            rate(it), "ratio_to_static_split_draft",
            json_finite(all->reference < 0 ? NAN : rate(it) / rate(&all->result[all->reference])), "tokens",
            (json_int_t)it->tokens, "forwards", (json_int_t)it->forwards, "wanted", (json_int_t)it->wanted, "hits",
            (json_int_t)it->hits, "fetched", (json_int_t)it->fetched, "prefetched", (json_int_t)it->prefetched, "wasted",
            (json_int_t)it->wasted, "seconds", it->seconds, "draft_seconds", it->draft_s, "stall_seconds", it->stall_s,
            "fast_seconds", it->fast_s, "slow_seconds", it->slow_s, "belady_hits", all->belady[1][0],
            "belady_hits_undrafted", all->belady[0][0], "belady_bypass_hits", all->belady[1][1],
            "belady_bypass_hits_undrafted", all->belady[0][1], "decide_us", it->decide_us);
        if (json_line(out, object, err))
            return -1;
    }
    return 0;
}
