/* Writes a plan as tables and as JSON lines. */
#include "common/bench/outlook.h"

#include <math.h>
#include <stdio.h>

#include "common/base/json.h"
#include "common/base/numeral.h"
#include "common/report/table.h"

static const char *size(char room[NUMERAL_ROOM], double bytes)
{
    numeral_size(room, bytes > 0 ? (uint64_t)bytes : 0);
    return room;
}

/* ---- text */

static int put_fit(struct text *out, const struct outlook_place *place, const char *whose, struct err *err)
{
    char needed[NUMERAL_ROOM], left[NUMERAL_ROOM];
    size(needed, place->dense + place->experts + place->kv + place->drafters);
    size(left, place->memory);
    if (place->fits)
        return text_printf(out, err, "fits      yes: %s of the %s that %s left\n", needed, left, whose);
    if (!place->runs)
        return text_printf(out, err, "fits      no: it needs %s, and %s %s left; not even the experts of one token fit beside "
                           "the rest: free memory, add ranks, or convert to a smaller --dtype\n", needed, left, whose);
    return text_printf(out, err, "fits      no: it needs %s, and %s %s left; moe-decode --cache-experts auto keeps %lld of "
                       "%lld experts in memory and reads the others when they are wanted\n", needed, left, whose,
                       (long long)place->slots, (long long)place->count);
}

static int put_heading(struct text *out, const struct outlook *o, const struct outlook_setup *setup, struct err *err)
{
    const struct outlook_model *m = setup->model;
    const struct speeds *s = setup->speeds;
    const struct hparams *shape = &m->shape;
    char weights[NUMERAL_ROOM];
    return text_printf(out, err, "model     %s%s: %d layers, %d of %d experts per token, %s of weights; nothing was loaded\n",
                       m->name, m->file ? "" : " (its shape alone)", m->layers, shape->router.top_k, shape->router.experts,
                       size(weights, m->weights)) ||
           text_printf(out, err, "machine   %s%s%s, reads %.1f GB/s\n", s->name, s->gpu ? ", " : "", s->gpu ? s->gpu_name : "",
                       1e-9 * s->read_bandwidth) ||
           put_fit(out, &o->at.place, s->gpu ? "the GPU has" : setup->ranks > 1 ? "each rank has" : "are", err) ? -1 : 0;
}

static int put_row(struct table *table, const char *part, double bytes, const char *where, struct err *err)
{
    char room[NUMERAL_ROOM];
    return bytes > 0 ? table_cell(table, err, "%s", part) || table_cell(table, err, "%s", size(room, bytes)) ||
                       table_cell(table, err, "%s", where) : 0;
}

static int put_places(struct text *out, const struct outlook *o, const struct outlook_setup *setup, struct err *err)
{
    static const char *const titles[] = {"part", "bytes", "lies in"};
    const struct outlook_place *p = &o->at.place;
    const char *near = setup->speeds->gpu ? "GPU memory" : "memory", *below = setup->speeds->gpu ? "host memory" : "disk";
    const double one = p->experts / (double)p->count, all = (double)p->count;
    const double host = fmin((double)p->host_slots, all) - (double)p->slots;
    struct table table;
    table_start(&table, titles, "lrl");
    int rc = put_row(&table, "all but routed experts", p->dense, near, err) ||
             put_row(&table, "routed experts", one * (double)p->slots, near, err);
    if (!rc && p->slots < p->count)
        rc = (setup->speeds->gpu && put_row(&table, "further routed experts", one * fmax(host, 0), below, err)) ||
             put_row(&table, "other routed experts", one * (all - fmax((double)p->slots, (double)p->host_slots)), "disk", err);
    rc = rc || put_row(&table, "keys and values", p->kv, near, err) || put_row(&table, "drafters", p->drafters, near, err) ||
         text_putc(out, '\n', err) || table_write(&table, TABLE_TEXT, out, err) ? -1 : 0;
    table_free(&table);
    return rc;
}

static int put_accept(struct table *table, const struct outlook_drafter *drafter, struct err *err)
{
    const double *a = drafter ? drafter->accept : NULL;
    if (!a)
        return table_cell(table, err, "%s", "");
    return a[0] == a[1] && a[1] == a[2] ? table_cell(table, err, "%g", a[0])
                                        : table_cell(table, err, "%g/%g/%g", a[0], a[1], a[2]);
}

static double positive(double value) { return value > 0 ? value : NAN; }

static int put_result(struct table *table, const struct outlook_result *r, const struct outlook_result *none, int texts,
                      struct err *err)
{
    const double seconds = outlook_seconds(&r->time), per = 1e-6 / (r->tokens * texts);
    return table_cell(table, err, "%d", r->length) || table_number(table, r->tokens, 2, err) ||
           table_number(table, 1e3 * seconds, 2, err) || table_number(table, r->tokens_per_second, 2, err) ||
           table_number(table, r->tokens_per_second / none->tokens_per_second, 2, err) ||
           table_cell(table, err, "%s", isnan(seconds) ? "" : outlook_bounds[outlook_bound(&r->time)]) ||
           table_number(table, per * r->tiers.memory, 1, err) || table_number(table, positive(per * r->tiers.link), 1, err) ||
           table_number(table, positive(per * r->tiers.disk), 1, err);
}

static int put_results(struct text *out, const struct outlook *o, const struct outlook_setup *setup, struct err *err)
{
    static const char *const titles[] = {"drafts", "accept", "K", "tokens/iteration", "ms/iteration", "tokens/s", "gain",
                                         "bound by", "MB/token", "by the link", "from disk"};
    struct table table;
    table_start(&table, titles, "lrrrrrrlrrr");
    int rc = 0;
    for (int d = -1; !rc && d < setup->drafters; d++) {
        const struct outlook_drafter *drafter = d < 0 ? NULL : &setup->drafter[d];
        rc = table_cell(&table, err, "%s", drafter ? drafter->text : "none") || put_accept(&table, drafter, err) ||
             put_result(&table, &o->at.result[1 + d], &o->at.result[0], o->at.texts, err);
    }
    rc = rc || text_putc(out, '\n', err) || table_write(&table, TABLE_TEXT, out, err) ? -1 : 0;
    table_free(&table);
    return rc;
}

static int put_curve(struct text *out, const struct outlook_point *curve, int count, bool by_ranks,
                     const struct outlook_setup *setup, struct err *err)
{
    const char *titles[4 + 2 * PLAN_DRAFTERS_MAX] = {by_ranks ? "ranks" : "texts", "bytes each", "in memory", "none"};
    char align[sizeof titles / sizeof *titles + 1] = "rrrr", room[NUMERAL_ROOM];
    struct table table;
    titles[1] = by_ranks ? "bytes of a rank" : "bytes";
    for (int d = 0; d < setup->drafters; d++) {
        titles[4 + 2 * d] = setup->drafter[d].text;
        titles[5 + 2 * d] = "K";
        snprintf(align + 4 + 2 * d, 3, "rr");
    }
    table_start(&table, titles, align);
    int rc = 0, known = 0;              /* known: texts or ranks of the last point with tokens/s */
    for (int i = 0; !rc && i < count; i++) {
        const struct outlook_place *p = &curve[i].place;
        rc = table_cell(&table, err, "%d", by_ranks ? curve[i].ranks : curve[i].texts) ||
             table_cell(&table, err, "%s", size(room, p->dense + p->experts + p->kv + p->drafters)) ||
             (p->fits ? table_cell(&table, err, "all") : !p->runs ? table_cell(&table, err, "too little")
              : table_cell(&table, err, "%.0f %% of experts", 100.0 * (double)p->slots / (double)p->count)) ||
             table_number(&table, curve[i].result[0].tokens_per_second, 2, err);
        for (int d = 1; !rc && d <= setup->drafters; d++)
            rc = table_number(&table, curve[i].result[d].tokens_per_second, 2, err) ||
                 (isnan(curve[i].result[d].tokens_per_second) ? table_cell(&table, err, "%s", "")
                                                              : table_cell(&table, err, "%d", curve[i].result[d].length));
    }
    rc = rc || text_printf(out, err, "\ntokens/s of all texts, by %s\n", by_ranks ? "ranks, experts shared out among them"
                                                                              : "texts that share forwards") ||
         table_write(&table, TABLE_TEXT, out, err) ? -1 : 0;
    table_free(&table);
    for (int i = 0; i < count; i++)
        known = curve[i].result[0].tokens_per_second > 0 ? by_ranks ? curve[i].ranks : curve[i].texts : known;
    for (int d = 0; !rc && d < setup->drafters; d++) {
        const int stops = outlook_break_even(curve, count, d, by_ranks);
        const char *text = setup->drafter[d].text, *unit = by_ranks ? "ranks" : "texts";
        rc = !known ? 0 : stops == 1 ? text_printf(out, err, "%s: drafts do not pay\n", text)
             : stops ? text_printf(out, err, "%s: drafts do not pay from %d %s on\n", text, stops, unit)
                     : text_printf(out, err, "%s: drafts pay at %d %s, too\n", text, known, unit);
    }
    return rc ? -1 : 0;
}

/* Returns whether a speed that some point needs is not described. */
static bool unknown(const struct outlook *o)
{
    bool found = o->at.place.runs && isnan(o->at.result[0].tokens_per_second);
    for (int i = 0; i < o->texts_count; i++)
        found |= o->texts[i].place.runs && isnan(o->texts[i].result[0].tokens_per_second);
    for (int i = 0; i < o->ranks_count; i++)
        found |= o->ranks[i].place.runs && isnan(o->ranks[i].result[0].tokens_per_second);
    return found;
}

/* Prints assumptions, and the missing parts of the description. */
static int put_notes(struct text *out, const struct outlook *o, const struct outlook_setup *setup, struct err *err)
{
    const struct speeds *s = setup->speeds;
    const struct outlook_model *m = setup->model;
    int rc = text_printf(out, err, "\nnetwork: %.3g us and %.3g GB/s; acceptance is what accept= says, %g if nothing; %d "
                         "tokens of text before\n", 1e6 * s->network.latency_s, 1e-9 * s->network.bytes_per_second,
                         OUTLOOK_ACCEPT, setup->prefix);
    if (!rc && unknown(o) && s->gpu && !(s->link.bytes_per_second > 0))
        rc = text_printf(out, err, "where tokens/s are -, experts are copied to the GPU; the description has no \"link\"\n");
    if (!rc && unknown(o) && !(s->disk.bytes_per_second > 0))
        rc = text_printf(out, err, "where tokens/s are -, experts come from disk; `moe-bench machine --products --disk FILE "
                         "--json` makes a description with its speed\n");
    for (int f = 0; !rc && f < FORMAT_COUNT; f++)
        if ((outlook_multiplies(&m->dense, f) || outlook_multiplies(&m->expert, f)) && !s->product[f].points &&
            !(s->product[f].rows_bytes > 0))
            rc = text_printf(out, err, "products with %s are taken to be as fast as reading: the description has no speed of "
                             "theirs\n", format_name((enum weight_format)f));
    return rc ? -1 : 0;
}

int outlook_text(struct text *out, const struct outlook *o, const struct outlook_setup *setup, struct err *err)
{
    return put_heading(out, o, setup, err) || put_places(out, o, setup, err) || put_results(out, o, setup, err) ||
           put_curve(out, o->texts, o->texts_count, false, setup, err) ||
           put_curve(out, o->ranks, o->ranks_count, true, setup, err) || put_notes(out, o, setup, err) ? -1 : 0;
}

/* ---- JSON */

static int json_place(struct text *out, const struct outlook *o, const struct outlook_setup *setup, struct err *err)
{
    const struct outlook_place *p = &o->at.place;
    const struct outlook_model *m = setup->model;
    return json_line(out, json_pack(
        "{s:s, s:s, s:b, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:b, s:I, s:I, s:I, s:f, s:i, s:i, s:i}",
        "type", "plan", "model", m->name, "loaded", false, "machine", setup->speeds->name, "layers", m->layers, "moe_layers",
        m->moe_layers, "experts", m->shape.router.experts, "top_k", m->shape.router.top_k, "weight_bytes", m->weights,
        "dense_bytes", p->dense, "expert_bytes", p->experts, "kv_bytes", p->kv, "drafter_bytes", p->drafters, "memory",
        p->memory, "fits", p->fits, "runs", p->runs, "expert_count", (json_int_t)p->count, "slots", (json_int_t)p->slots,
        "host_slots", (json_int_t)p->host_slots, "hits", p->hits, "texts", o->at.texts, "ranks", o->at.ranks, "prefix",
        setup->prefix), err);
}

static int json_result(struct text *out, const struct outlook *o, const struct outlook_setup *setup, int which, struct err *err)
{
    static const char *const names[OUTLOOK_BOUNDS] = {"memory", "products", "link", "disk", "network", "operations",
                                                      "drafting"};
    const struct outlook_result *r = &o->at.result[which];
    const struct outlook_drafter *drafter = which ? &setup->drafter[which - 1] : NULL;
    const double seconds = outlook_seconds(&r->time);
    json_t *parts = json_object();
    json_t *accept = drafter ? json_pack("[fff]", drafter->accept[0], drafter->accept[1], drafter->accept[2]) : json_null();
    int failed = !parts || !accept;
    for (int i = 0; i < OUTLOOK_BOUNDS; i++)
        failed |= json_object_set_new(parts, names[i], json_finite(r->time.seconds[i]));
    json_t *object = failed ? NULL : json_pack(
        "{s:s, s:s?, s:O, s:i, s:f, s:o, s:O, s:s?, s:o, s:f, s:f, s:f, s:f}", "type", "decode", "draft",
        drafter ? drafter->text : NULL, "accept", accept, "length", r->length, "tokens_per_iteration", r->tokens, "seconds",
        json_finite(seconds), "parts", parts, "bound", isnan(seconds) ? NULL : names[outlook_bound(&r->time)],
        "tokens_per_second", json_finite(r->tokens_per_second), "distinct_experts", r->tiers.experts, "memory_bytes",
        r->tiers.memory, "link_bytes", r->tiers.link, "disk_bytes", r->tiers.disk);
    json_decref(parts);
    json_decref(accept);
    return object ? json_line(out, object, err) : err_memory(err);
}

static int json_point(struct text *out, const struct outlook_point *point, const char *by, const struct outlook_setup *setup,
                      struct err *err)
{
    json_t *results = json_array();
    int failed = !results;
    for (int d = 0; d <= setup->drafters; d++)
        failed |= json_array_append_new(results, json_pack(
            "{s:s?, s:i, s:o}", "draft", d ? setup->drafter[d - 1].text : NULL, "length", point->result[d].length,
            "tokens_per_second", json_finite(point->result[d].tokens_per_second)));
    json_t *object = failed ? NULL : json_pack(
        "{s:s, s:s, s:i, s:i, s:b, s:b, s:I, s:I, s:O}", "type", "curve", "by", by, "texts", point->texts, "ranks",
        point->ranks, "fits", point->place.fits, "runs", point->place.runs, "slots", (json_int_t)point->place.slots,
        "expert_count", (json_int_t)point->place.count, "results", results);
    json_decref(results);
    return object ? json_line(out, object, err) : err_memory(err);
}

int outlook_json(struct text *out, const struct outlook *o, const struct outlook_setup *setup, struct err *err)
{
    int rc = json_place(out, o, setup, err);
    for (int d = 0; !rc && d <= setup->drafters; d++)
        rc = json_result(out, o, setup, d, err);
    for (int i = 0; !rc && i < o->texts_count; i++)
        rc = json_point(out, &o->texts[i], "texts", setup, err);
    for (int i = 0; !rc && i < o->ranks_count; i++)
        rc = json_point(out, &o->ranks[i], "ranks", setup, err);
    for (int d = 0; !rc && d < setup->drafters; d++) {
        const int texts = outlook_break_even(o->texts, o->texts_count, d, false);
        const int ranks = outlook_break_even(o->ranks, o->ranks_count, d, true);
        rc = json_line(out, json_pack("{s:s, s:s, s:o, s:o}", "type", "stops", "draft", setup->drafter[d].text, "texts",
                                      texts ? json_integer(texts) : json_null(), "ranks",
                                      ranks ? json_integer(ranks) : json_null()), err);
    }
    return rc;
}
