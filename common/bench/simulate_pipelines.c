#include "common/bench/simulate_pipelines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/report/svg.h"
#include "common/report/table.h"

/* The systems that are drawn; all of them draft. Those that the machine cannot run are left out. */
static const char *const systems[] = {"lru-fetch", "sp-moe", "static-split-draft", "utility", "utility-released", "lru",
                                      "ahead-greedy"};
static const char *const lanes[SIMULATED_LANES] = {"fast", "slow", "link"};

enum { SYSTEMS = sizeof systems / sizeof *systems, LAYERS_DRAWN = 4 };

struct pipelines {
    const struct simulation *simulation;
    int count;
    const char *system[SYSTEMS];        /* [count], as in the following arrays */
    struct simulated_trace trace[SYSTEMS];
    size_t step;
    int first, layers;                  /* range of layers that is drawn */
    double zero[SYSTEMS];               /* start time of these layers */
    double longest;                     /* seconds that the slowest system takes for them */
};

static void pipelines_free(struct pipelines *p)
{
    for (int i = 0; i < SYSTEMS; i++) {
        mem_free(&p->trace[i].span);
        mem_free(&p->trace[i].layer_end);
    }
}

static int run_all(struct pipelines *p, struct err *err)
{
    const struct simulated_routes *routes = p->simulation->drafted;
    p->step = routes->steps / 2;
    p->layers = routes->layers < LAYERS_DRAWN ? routes->layers : LAYERS_DRAWN;
    p->first = (routes->layers - p->layers) / 2;
    for (int i = 0; i < SYSTEMS; i++) {
        struct err why = {0};
        if (!simulate_possible(p->simulation, systems[i], &why))
            p->system[p->count++] = systems[i];
    }
    for (int i = 0; i < p->count; i++) {
        struct simulation with = *p->simulation;
        struct simulated_result result;
        with.trace = &p->trace[i];
        p->trace[i].step = p->step;
        p->trace[i].layer_end = mem_alloc((size_t)routes->layers, sizeof *p->trace[i].layer_end, err);
        if (!p->trace[i].layer_end || simulate_run(&result, &with, p->system[i], err))
            return -1;
        p->zero[i] = p->first ? p->trace[i].layer_end[p->first - 1] : 0;
        p->longest = fmax(p->longest, p->trace[i].layer_end[p->first + p->layers - 1] - p->zero[i]);
    }
    return 0;
}

/* ---- busy times ---- */

static int by_start(const void *a, const void *b)
{
    const struct simulated_span *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* Returns the busy seconds of a lane between two times; overlapping spans count once. Spans are ordered by start. */
static double busy(const struct simulated_trace *trace, enum simulated_lane lane, double from, double to)
{
    double sum = 0, until = from;
    for (size_t i = 0; i < trace->count; i++) {
        const struct simulated_span *span = &trace->span[i];
        const double begin = fmax(span->from, until), end = fmin(span->to, to);
        if (span->lane != lane || end <= begin)
            continue;
        sum += end - begin;
        until = end;
    }
    return sum;
}

static int write_table(struct text *out, struct pipelines *p, bool markdown, struct err *err)
{
    static const char *const titles[] = {"system (simulated)", "drafting ms", "ms after it", "of the first", "fast busy",
                                         "slow busy", "link busy", "link busy while drafting"};
    struct table table = {0};
    int rc = 0;
    table_start(&table, titles, "lrrrrrrr");
    for (int i = 0; !rc && i < p->count; i++) {
        const struct simulated_trace *trace = &p->trace[i];
        rc = table_cell(&table, err, "%s", p->system[i]) || table_number(&table, -1e3 * trace->began, 2, err) ||
             table_number(&table, 1e3 * trace->end, 2, err) ||
             table_number(&table, trace->end / p->trace[0].end, 3, err) ? -1 : 0;
        for (int lane = 0; !rc && lane < SIMULATED_LANES; lane++)
            rc = table_cell(&table, err, "%.1f %%", 100 * busy(trace, (enum simulated_lane)lane, 0, trace->end) / trace->end);
        rc = rc || (trace->began < 0 ? table_cell(&table, err, "%.1f %%",
                                                  -100 * busy(trace, LANE_LINK, trace->began, 0) / trace->began)
                                     : table_cell(&table, err, "%s", "")) ? -1 : 0;
    }
    rc = rc || table_write(&table, markdown ? TABLE_MARKDOWN : TABLE_TEXT, out, err) ? -1 : 0;
    table_free(&table);
    return rc;
}

static int write_lines(struct text *out, const struct pipelines *p, struct err *err)
{
    for (int i = 0; i < p->count; i++)
        for (size_t at = 0; at < p->trace[i].count; at++) {
            const struct simulated_span *span = &p->trace[i].span[at];
            json_t *line = json_pack("{s:s, s:b, s:s, s:s, s:s, s:I, s:s, s:s, s:o, s:f, s:f}", "type", "figure", "simulated",
                                     1, "figure", "pipelines", "machine", p->simulation->machine->name, "routes",
                                     p->simulation->drafted->name, "forward", (json_int_t)p->step, "system", p->system[i],
                                     "lane", lanes[span->lane], "layer",
                                     span->layer < 0 ? json_null() : json_integer(span->layer), "from_ms", 1e3 * span->from,
                                     "to_ms", 1e3 * span->to);
            if (json_line(out, line, err))
                return -1;
        }
    return 0;
}

/* ---- drawing ---- */

enum { LEFT = 150, WIDTH = 760, TOP = 64, LANE = 16, SYSTEM = SIMULATED_LANES * LANE + 14, BOTTOM = 64 };

struct scale { double from, to; };      /* seconds since the start of the drawn layers */

static double x_of(const struct scale *scale, double at)
{
    return LEFT + WIDTH * (at - scale->from) / (scale->to - scale->from);
}

/* Draws a span. Layers differ in shade; other layers and drafting are white. */
static int put_span(struct text *out, const struct pipelines *p, const struct scale *scale, const struct simulated_span *span,
                    double zero, double top, struct err *err)
{
    static const char *const shades[LAYERS_DRAWN] = {"#555", "#aaa", "#777", "#ddd"};
    const double from = x_of(scale, fmax(span->from - zero, scale->from));
    const double to = x_of(scale, fmin(span->to - zero, scale->to));
    const bool drawn = span->layer >= p->first && span->layer < p->first + p->layers;
    char name[16];
    if (to <= from)
        return 0;
    if (text_printf(out, err, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" stroke=\"#000\" "
                    "stroke-width=\"0.3\"/>\n", from, top + span->lane * LANE + 1, to - from, LANE - 2,
                    drawn ? shades[span->layer - p->first] : "#fff"))
        return -1;
    snprintf(name, sizeof name, span->layer < 0 ? "draft" : "%d", span->layer + 1);
    return to - from < (span->layer < 0 ? 30 : 14) ? 0
         : svg_text(out, (from + to) / 2, top + span->lane * LANE + 12, "middle", 9,
                    drawn && (span->layer - p->first) % 2 == 0 ? " fill=\"#fff\"" : "", name, err);
}

static int put_system(struct text *out, const struct pipelines *p, int number, const struct scale *scale, struct err *err)
{
    const struct simulated_trace *trace = &p->trace[number];
    const double top = TOP + number * SYSTEM, end = trace->layer_end[p->first + p->layers - 1] - p->zero[number];
    char took[64];
    if (svg_text(out, LEFT - 44, top + 1.5 * LANE + 4, "end", 12, "", p->system[number], err))
        return -1;
    for (int lane = 0; lane < SIMULATED_LANES; lane++)
        if (svg_text(out, LEFT - 8, top + lane * LANE + 12, "end", 10, "", lanes[lane], err) ||
            text_printf(out, err, "<path d=\"M%d %.1fh%d\" stroke=\"#ccc\" stroke-width=\"0.6\"/>\n", LEFT,
                        top + (lane + 1) * LANE, WIDTH))
            return -1;
    for (size_t i = 0; i < trace->count; i++)
        if (put_span(out, p, scale, &trace->span[i], p->zero[number], top, err))
            return -1;
    snprintf(took, sizeof took, "%.2f ms", 1e3 * end);
    return text_printf(out, err, "<path d=\"M%.1f %.1fv%d\" stroke=\"#000\" stroke-width=\"1.6\"/>\n", x_of(scale, end),
                       top - 3, SIMULATED_LANES * LANE + 6) ||
           svg_text(out, x_of(scale, end) + 4, top + SIMULATED_LANES * LANE + 9, "start", 10, "", took, err) ? -1 : 0;
}

static int put_axis(struct text *out, const struct pipelines *p, const struct scale *scale, struct err *err)
{
    const double bottom = TOP + p->count * SYSTEM, step = svg_step(1e3 * (scale->to - scale->from));
    char label[32];
    for (int i = (int)ceil(1e3 * scale->from / step); i * step <= 1e3 * scale->to; i++) {
        const double x = x_of(scale, 1e-3 * i * step);
        snprintf(label, sizeof label, "%g", i * step);
        if (text_printf(out, err, "<path d=\"M%.1f %.1fv5\" stroke=\"#000\"/>\n", x, bottom) ||
            svg_text(out, x, bottom + 18, "middle", 11, "", label, err))
            return -1;
    }
    return text_printf(out, err, "<path d=\"M%d %.1fh%d\" stroke=\"#000\"/>\n<path d=\"M%.1f %dV%.1f\" stroke=\"#000\" "
                       "stroke-width=\"0.8\" stroke-dasharray=\"3 3\"/>\n", LEFT, bottom, WIDTH, x_of(scale, 0), TOP - 6,
                       bottom) ||
           svg_text(out, LEFT + WIDTH / 2.0, bottom + 38, "middle", 12, "",
                    "milliseconds since these layers began; numbers are layers, white is of others", err) ? -1 : 0;
}

static int write_svg(struct text *out, const struct pipelines *p, const char *note, struct err *err)
{
    const struct scale scale = {-0.12 * p->longest, 1.08 * p->longest};
    char title[96];
    snprintf(title, sizeof title, "SIMULATED: layers %d to %d of one verification, by system", p->first + 1,
             p->first + p->layers);
    int rc = svg_head(out, LEFT + WIDTH + 30, TOP + p->count * SYSTEM + BOTTOM, title, note, err);
    for (int i = 0; !rc && i < p->count; i++)
        rc = put_system(out, p, i, &scale, err);
    return rc || put_axis(out, p, &scale, err) || text_puts(out, "</svg>\n", err) ? -1 : 0;
}

int simulate_pipelines(struct text *out, const struct simulation *simulation, enum simulated_form form, struct err *err)
{
    struct pipelines p = {.simulation = simulation};
    struct text note = {0};
    int rc = run_all(&p, err) ||
             simulate_figure_note(&note, simulation, err) ||
             text_printf(&note, err, "; forward %zu of %zu", p.step + 1, simulation->drafted->steps) ? -1 : 0;
    for (int i = 0; !rc && i < p.count; i++)
        qsort(p.trace[i].span, p.trace[i].count, sizeof *p.trace[i].span, by_start);
    if (!rc && form == SIMULATED_JSON)
        rc = write_lines(out, &p, err);
    else if (!rc && form == SIMULATED_SVG)
        rc = write_svg(out, &p, note.data, err);
    else if (!rc)
        rc = text_printf(out, err, "SIMULATED: %s\n\n", note.data) || write_table(out, &p, form == SIMULATED_MARKDOWN, err)
           ? -1 : 0;
    text_free(&note);
    pipelines_free(&p);
    return rc;
}
