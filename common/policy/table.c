/* Draft length by table: a function of the answer's present length, given by the user.
 *
 *     table:rows=0:4/64:6/512:0       K = 4 from the start, 6 from the 64th new token on, 0 from the 512th on
 *
 * Before the first row's position nothing is drafted. */
#include "common/policy/shape.h"

#include <stdlib.h>

#include "common/base/mem.h"

enum { ROWS_MAX = 64 };

struct table_policy {
    struct policy base;
    struct shape *shape;
    long from[ROWS_MAX];                /* ascending */
    int length[ROWS_MAX], rows;
    int64_t tokens;                     /* number of tokens of the answer so far */
};

static int parse_rows(struct table_policy *table, const char *text, int max, struct err *err)
{
    for (const char *at = text;; at++) {
        char *end, *colon;
        long from = strtol(at, &colon, 10), length = *colon == ':' ? strtol(colon + 1, &end, 10) : -1;
        if (colon == at || *colon != ':' || end == colon + 1 || (*end && *end != '/') || from < 0 || length < 0 ||
            length > max || table->rows == ROWS_MAX || (table->rows && from <= table->from[table->rows - 1]))
            return err_set(err, ERR_INPUT, "table: rows=%s: expected up to %d rows POSITION:LENGTH, separated by slashes, "
                           "with ascending positions and lengths from 0 to %d, as in 0:4/64:6/512:0", text, ROWS_MAX, max);
        table->from[table->rows] = from;
        table->length[table->rows++] = (int)length;
        at = end;
        if (!*end)
            return 0;
    }
}

static int table_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    const char *rows;
    if (spec_text(spec, "rows", NULL, &rows, err))
        return -1;
    if (!rows)
        return err_set(err, ERR_INPUT, "table: no rows are given; write table:rows=POSITION:LENGTH/POSITION:LENGTH/...");
    struct table_policy *table = mem_alloc(1, sizeof *table, err);
    if (!table)
        return -1;
    if (parse_rows(table, rows, setup->draft_length >= 0 ? setup->draft_length : setup->max_length, err)) {
        mem_free(&table);
        return -1;
    }
    table->shape = setup->shape;
    *out = &table->base;
    return 0;
}

static void table_begin(struct policy *policy, const struct policy_text *text)
{
    (void)text;
    ((struct table_policy *)policy)->tokens = 1;        /* the prompt's forward emits the first token */
}

static int table_length(const struct policy *policy)
{
    const struct table_policy *table = (const struct table_policy *)policy;
    int row = table->rows;
    while (row > 0 && table->from[row - 1] > table->tokens)
        row--;
    return row ? table->length[row - 1] : 0;
}

static struct step table_next(struct policy *policy, const struct draft_view *view)
{
    struct table_policy *table = (struct table_policy *)policy;
    int K = table_length(policy);
    return K ? shape_next(table->shape, view, K) : (struct step){.kind = STEP_STOP};
}

static void table_observe(struct policy *policy, const struct outcome *outcome)
{
    ((struct table_policy *)policy)->tokens += outcome->emitted;
}

static void table_state(const struct policy *policy, struct values *out)
{
    values_text(out, "name", policy->class->name);
    values_int(out, "K", table_length(policy));
    values_int(out, "tokens", ((const struct table_policy *)policy)->tokens);
}

static void table_free(struct policy *policy) { mem_free(&policy); }

const struct policy_class policy_table = {
    .name = "table",
    .summary = "a draft length by how long the answer is",
    .settings = "rows=POSITION:LENGTH/...",
    .open = table_open,
    .begin = table_begin,
    .next = table_next,
    .length = table_length,
    .observe = table_observe,
    .state = table_state,
    .free = table_free,
};
