#include "common/report/eval_report.h"

#include <math.h>
#include <string.h>

#include "common/report/table.h"

static int put_positions(const struct train_eval *eval, struct text *out, struct err *err)
{
    static const char *const titles[] = {"position", "accepted", "conditional", "begun"};
    struct table table = {0};
    int rc = 0;
    table_start(&table, titles, "rrrr");
    for (int i = 0; i < eval->positions && !rc; i++)
        rc = table_cell(&table, err, "%d", (int)eval->position[i]) || table_number(&table, eval->acceptance[i], 4, err) ||
             table_number(&table, eval->conditional ? eval->conditional[i] : NAN, 4, err) ||
             table_number(&table, eval->begun ? eval->begun[i] : NAN, 4, err);
    rc = rc || table_write(&table, TABLE_TEXT, out, err);
    table_free(&table);
    return rc ? -1 : 0;
}

static int put_iterations(const struct train_eval *eval, struct text *out, struct err *err)
{
    static const char *const titles[] = {"drafts", "tokens", "iterations", "tokens/iteration"};
    const struct { const char *name; int64_t iterations; double tokens; } rows[] = {
        {"chains", eval->iterations, eval->tokens_per_iteration},
        {"trees", eval->tree_iterations, eval->tree_tokens_per_iteration}};
    struct table table = {0};
    int rc = 0;
    table_start(&table, titles, "lrrr");
    for (int i = 0; i < 2 && !rc; i++)
        if (rows[i].iterations >= 0)
            rc = table_cell(&table, err, "%s", rows[i].name) || table_cell(&table, err, "%lld", (long long)eval->tokens) ||
                 table_cell(&table, err, "%lld", (long long)rows[i].iterations) ||
                 table_number(&table, rows[i].tokens, 4, err);
    rc = rc || table_write(&table, TABLE_TEXT, out, err);
    table_free(&table);
    return rc ? -1 : 0;
}

int eval_report(const char *name, const struct train_run *run, const struct train_eval *eval, struct text *out, struct err *err)
{
    const char *how = !eval->by || !strcmp(eval->by, "text") ? "held against their answers"
                    : !strcmp(eval->by, "answers") ? "held against the model's own answers" : "counted while the model decodes";
    return text_printf(out, err, "%s (%s, %lld numbers): %d text%s, %s\n\n", name, run->arch, (long long)run->parameters,
                       eval->texts, eval->texts == 1 ? "" : "s", how) ||
           (eval->positions && (put_positions(eval, out, err) || text_putc(out, '\n', err))) ||
           put_iterations(eval, out, err) ? -1 : 0;
}
