#include "common/bench/gate.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/report/svg.h"
#include "common/report/table.h"

static const char *figure_of(const struct suite_gate *gate) { return summary_columns[gate->figure].key; }

/* Returns the figure of a gate. With a single task the summary has no row for all tasks, so that task's row is used. */
static double value_of(const struct suite_gate *gate, const struct measurements *all, const struct summary *summary)
{
    double value = NAN;
    for (size_t i = 0; i < summary->count; i++) {
        const struct summary_row *row = &summary->rows[i];
        bool task = gate->task ? row->task >= 0 && !strcmp(all->tasks[row->task], gate->task)
                               : row->task < 0 || all->task_count == 1;
        if (task && !strcmp(all->settings[row->setting].name, gate->setting))
            value = summary_value(row, &summary_columns[gate->figure]);
    }
    return value;
}

int gates_make(struct gates *out, const struct suite *suite, const struct measurements *all, const struct summary *summary,
               struct err *err)
{
    struct gates made = {.suite = suite};
    if (!suite->gate_count)
        return err_set(err, ERR_INPUT, "the suite has no \"gate\", the list of limits to check; moe-bench(1) shows an example");
    if (!(made.values = mem_alloc((size_t)suite->gate_count, sizeof *made.values, err)) ||
        !(made.verdicts = mem_alloc((size_t)suite->gate_count, sizeof *made.verdicts, err))) {
        gates_free(&made);
        return -1;
    }
    for (int i = 0; i < suite->gate_count; i++) {
        const struct suite_gate *gate = &suite->gates[i];
        double value = made.values[i] = value_of(gate, all, summary);
        bool within = value >= gate->min && value <= gate->max;
        made.verdicts[i] = isnan(value) ? GATE_UNCLEAR : within ? GATE_PASSES : GATE_FAILS;
        made.passed += made.verdicts[i] == GATE_PASSES;
        made.failed += made.verdicts[i] == GATE_FAILS;
        made.unclear += made.verdicts[i] == GATE_UNCLEAR;
    }
    *out = made;
    return 0;
}

void gates_free(struct gates *gates)
{
    mem_free(&gates->values);
    mem_free(&gates->verdicts);
    *gates = (struct gates){0};
}

/* Appends the limits as text: "at least 1.1, at most 3". */
static int put_limits(struct text *out, const struct suite_gate *gate, struct err *err)
{
    bool both = isfinite(gate->min) && isfinite(gate->max);
    if (isfinite(gate->min) && text_printf(out, err, "at least %.10g%s", gate->min, both ? ", " : ""))
        return -1;
    return isfinite(gate->max) ? text_printf(out, err, "at most %.10g", gate->max) : 0;
}

static int put_row(struct table *table, const struct gates *gates, int i, struct err *err)
{
    static const char *const words[] = {"passes", "fails", "unclear"};
    const struct suite_gate *gate = &gates->suite->gates[i];
    struct text limits = {0};
    int rc = put_limits(&limits, gate, err);
    if (!rc)
        rc = table_cell(table, err, "%s", gate->setting) || table_cell(table, err, "%s", gate->task ? gate->task : "all") ||
             table_cell(table, err, "%s", figure_of(gate)) || table_cell(table, err, "%s", limits.data) ||
             (isnan(gates->values[i]) ? table_cell(table, err, "%s", "") : table_cell(table, err, "%.6g", gates->values[i])) ||
             table_cell(table, err, "%s", words[gates->verdicts[i]]) ? -1 : 0;
    text_free(&limits);
    return rc;
}

int gates_text(struct text *out, const struct gates *gates, struct err *err)
{
    static const char *const titles[] = {"setting", "task", "figure", "limit", "value", "verdict"};
    struct table table;
    int rc = -1;
    table_start(&table, titles, "llllrl");
    for (int i = 0; i < gates->suite->gate_count; i++)
        if (put_row(&table, gates, i, err))
            goto done;
    rc = table_write(&table, TABLE_TEXT, out, err);
done:
    table_free(&table);
    return rc;
}

static int put_case(struct text *out, const struct gates *gates, int i, struct err *err)
{
    const struct suite_gate *gate = &gates->suite->gates[i];
    if (text_puts(out, "    <testcase classname=\"", err) || svg_escape(out, gate->setting, err) ||
        text_puts(out, "\" name=\"", err) || svg_escape(out, gate->task ? gate->task : "all", err) ||
        text_printf(out, err, ": %s ", figure_of(gate)) || put_limits(out, gate, err) || text_puts(out, "\"", err))
        return -1;
    if (gates->verdicts[i] == GATE_FAILS)
        return text_printf(out, err, ">\n      <failure message=\"%s is %.10g\"/>\n    </testcase>\n", figure_of(gate),
                           gates->values[i]);
    if (gates->verdicts[i] == GATE_UNCLEAR)
        return text_printf(out, err, ">\n      <skipped message=\"%s cannot be had from the stream\"/>\n    </testcase>\n",
                           figure_of(gate));
    return text_puts(out, "/>\n", err);
}

int gates_junit(struct text *out, const struct gates *gates, struct err *err)
{
    if (text_printf(out, err, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"moe-bench gate\" "
                    "tests=\"%d\" failures=\"%d\" errors=\"0\" skipped=\"%d\">\n", gates->suite->gate_count, gates->failed,
                    gates->unclear))
        return -1;
    for (int i = 0; i < gates->suite->gate_count; i++)
        if (put_case(out, gates, i, err))
            return -1;
    return text_puts(out, "  </testsuite>\n</testsuites>\n", err);
}

int gates_answer(const struct gates *gates, struct err *err)
{
    if (gates->failed)
        return err_set(err, ERR_ANSWER_NO, "%d of the suite's %d gates failed", gates->failed, gates->suite->gate_count);
    if (gates->unclear)
        return err_set(err, ERR_NO_ANSWER, "%d of the suite's %d gates cannot be judged, because the stream lacks their "
                       "figures",
                       gates->unclear, gates->suite->gate_count);
    return 0;
}
