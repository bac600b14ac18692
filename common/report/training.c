#include "common/report/training.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/report/training_internal.h"
#include "common/stream/train.h"

/* ---- reading ---- */

static int find_part(struct training *run, const char *name, struct err *err)
{
    for (int i = 0; i < run->parts; i++)
        if (!strcmp(run->part_name[i], name))
            return i;
    if (run->parts == TRAINING_PARTS)
        return err_set(err, ERR_INPUT, "its losses have more than %d parts; the stream is damaged", TRAINING_PARTS);
    memcpy(run->part_name[run->parts], name, strlen(name) + 1);
    for (size_t i = 0; i < run->step_count; i++)
        run->steps[i].part[run->parts] = NAN;
    return run->parts++;
}

static int take_step(struct training *run, const struct train_step *record, struct err *err)
{
    if (run->step_count && record->step <= run->steps[run->step_count - 1].step)
        return err_set(err, ERR_INPUT, "step %d follows step %d; the stream is damaged", record->step,
                       run->steps[run->step_count - 1].step);
    if (mem_grow(&run->steps, &run->step_room, run->step_count + 1, sizeof *run->steps, err))
        return -1;
    struct training_step *step = &run->steps[run->step_count];
    *step = (struct training_step){
        .step = record->step, .epoch = record->epoch, .loss = record->loss, .lr = record->lr,
        .gradient_norm = record->gradient_norm, .clipped = record->clipped < 0 ? NAN : (double)record->clipped,
        .tokens = (double)record->tokens, .seconds = record->seconds};
    for (int i = 0; i < TRAINING_PARTS; i++)
        step->part[i] = NAN;
    for (int i = 0; i < record->parts.count; i++) {
        int part = find_part(run, record->parts.items[i].key, err);
        if (part < 0)
            return -1;
        step->part[part] = values_number(&record->parts, record->parts.items[i].key, NAN);
    }
    run->step_count++;
    return 0;
}

static int take_eval(struct training *run, const struct train_eval *record, struct err *err)
{
    if (mem_grow(&run->evals, &run->eval_room, run->eval_count + 1, sizeof *run->evals, err))
        return -1;
    struct training_eval *eval = &run->evals[run->eval_count++];
    *eval = (struct training_eval){
        .step = record->step, .texts = record->texts, .loss = record->loss, .best = record->best, .seconds = record->seconds,
        .tokens_per_iteration = record->tokens_per_iteration, .tree_tokens_per_iteration = record->tree_tokens_per_iteration};
    for (int i = 0; i < TRAINING_POSITIONS; i++)
        eval->acceptance[i] = NAN;
    for (int i = 0; i < record->positions; i++)
        if (record->position[i] <= TRAINING_POSITIONS)
            eval->acceptance[record->position[i] - 1] = record->acceptance[i];
    return 0;
}

static int take(struct training *run, const struct record *record, struct err *err)
{
    const struct train_run *about = record->body;
    if (record->kind == &train_run_kind) {
        if (run->arch)
            return err_set(err, ERR_INPUT, "a second training begins, but a train stream must contain one only; the stream is "
                           "damaged");
        run->parameters = (double)about->parameters;
        run->planned = about->steps;
        return (run->arch = mem_string(about->arch, err)) ? 0 : -1;
    }
    if (!record->kind)
        return 0;
    if (!run->arch)
        return err_set(err, ERR_INPUT, "a record precedes the begin record; the stream is damaged");
    return record->kind == &train_step_kind ? take_step(run, record->body, err) : take_eval(run, record->body, err);
}

int trainings_read(struct trainings *all, struct reader *in, struct err *err)
{
    const struct record *record;
    int more;
    if (mem_grow(&all->items, &all->room, all->count + 1, sizeof *all->items, err))
        return -1;
    struct training *run = &all->items[all->count++];
    *run = (struct training){.name = mem_string(reader_name(in), err)};
    if (!run->name)
        return -1;
    while ((more = reader_next(in, &record, err)) > 0)
        if (take(run, record, err)) {
            record_error_at(record, err);
            return -1;
        }
    if (more < 0)
        return -1;
    if (!run->step_count && !run->eval_count)
        return err_set(err, ERR_INPUT, "%s: contains no training step; let the training finish at least one", reader_name(in));
    return 0;
}

void trainings_free(struct trainings *all)
{
    for (size_t i = 0; i < all->count; i++) {
        mem_free(&all->items[i].name);
        mem_free(&all->items[i].arch);
        mem_free(&all->items[i].steps);
        mem_free(&all->items[i].evals);
    }
    mem_free(&all->items);
    *all = (struct trainings){0};
}

/* ---- tables ---- */

static const struct figure_column run_columns[] = {
    {"run", FIGURE_WORD}, {"head", FIGURE_WORD}, {"parameters", 0}, {"steps", 0}, {"planned", 0}, {"epochs", 2}, {"tokens", 0},
    {"seconds", 1}, {"tokens_per_s", 1}, {"loss_first", 4}, {"loss_last", 4}, {"gradient_norm", 3}, {"clipped", 1}, {NULL, 0},
};
static const struct figure_column part_columns[] = {
    {"run", FIGURE_WORD}, {"head", FIGURE_WORD}, {"part", FIGURE_WORD}, {"loss_first", 4}, {"loss_last", 4}, {NULL, 0},
};
static const struct figure_column eval_columns[] = {
    {"run", FIGURE_WORD}, {"head", FIGURE_WORD}, {"step", 0}, {"best", 0}, {"texts", 0}, {"loss", 4},
    {"tokens_per_iteration", 3}, {"tree_tokens_per_iteration", 3}, {"accepted_1", 3}, {"accepted_2", 3}, {"accepted_3", 3},
    {"accepted_4", 3}, {"accepted_5", 3}, {"accepted_6", 3}, {"accepted_7", 3}, {"accepted_8", 3}, {NULL, 0},
};
static const struct figure_column spread_columns[] = {
    {"head", FIGURE_WORD}, {"figure", FIGURE_WORD}, {"runs", 0}, {"mean", 3}, {"least", 3}, {"greatest", 3}, {NULL, 0},
};
static const struct figure_column curve_columns[] = {
    {"run", FIGURE_WORD}, {"head", FIGURE_WORD}, {"curve", FIGURE_WORD}, {"step", 0}, {"value", 6}, {NULL, 0},
};

/* Indices of the members of a step that a curve can show; parts of the loss come first. */
enum { OF_LOSS = TRAINING_PARTS, OF_LR, OF_GRADIENT, OF_CLIPPED };

static double of_step(const struct training_step *step, int what)
{
    return what < TRAINING_PARTS ? step->part[what] : what == OF_LOSS ? step->loss : what == OF_LR ? step->lr
         : what == OF_GRADIENT ? step->gradient_norm : step->clipped;
}

/* Returns the mean over those of the steps from .. to that have the value; NaN: none has the value. */
static double mean_of(const struct training *run, size_t from, size_t to, int what)
{
    double sum = 0, count = 0;
    for (size_t i = from; i < to; i++)
        if (!isnan(of_step(&run->steps[i], what))) {
            sum += of_step(&run->steps[i], what);
            count++;
        }
    return count > 0 ? sum / count : NAN;
}

static size_t window_of(const struct training *run)
{
    size_t half = (run->step_count + 1) / 2;
    return half < TRAINING_WINDOW ? half : TRAINING_WINDOW;
}

static int add_run(struct figure_table *table, const struct training *run, struct err *err)
{
    const size_t window = window_of(run), n = run->step_count;
    const struct training_step *last = n ? &run->steps[n - 1] : NULL;
    double tokens = 0;
    for (size_t i = 0; i < n; i++)
        tokens += run->steps[i].tokens;
    const double values[] = {
        run->parameters, (double)n, run->planned, last ? last->epoch : NAN, last ? tokens : NAN, last ? last->seconds : NAN,
        last && last->seconds > 0 ? tokens / last->seconds : NAN, mean_of(run, 0, window, OF_LOSS),
        mean_of(run, n - window, n, OF_LOSS), mean_of(run, 0, n, OF_GRADIENT), mean_of(run, 0, n, OF_CLIPPED)};
    return figure_row_add(table, run->name, run->arch, NULL, values, sizeof values, err) ? 0 : -1;
}

static int add_parts(struct figure_table *table, const struct training *run, struct err *err)
{
    const size_t window = window_of(run), n = run->step_count;
    for (int part = 0; part < run->parts; part++) {
        const double values[] = {mean_of(run, 0, window, part), mean_of(run, n - window, n, part)};
        if (!figure_row_add(table, run->name, run->arch, run->part_name[part], values, sizeof values, err))
            return -1;
    }
    return 0;
}

static int add_evals(struct figure_table *table, const struct training *run, struct err *err)
{
    for (size_t i = 0; i < run->eval_count; i++) {
        const struct training_eval *eval = &run->evals[i];
        double values[EVAL_ACCEPTED + TRAINING_POSITIONS] = {
            eval->step, eval->best, eval->texts, eval->loss, eval->tokens_per_iteration, eval->tree_tokens_per_iteration};
        memcpy(values + EVAL_ACCEPTED, eval->acceptance, sizeof eval->acceptance);
        if (!figure_row_add(table, run->name, run->arch, NULL, values, sizeof values, err))
            return -1;
    }
    return 0;
}

/* Returns the evaluation that a run is judged by: the last one marked best; if none is marked, the last. */
static const struct training_eval *best_of(const struct training *run)
{
    for (size_t i = run->eval_count; i-- > 0;)
        if (run->evals[i].best)
            return &run->evals[i];
    return run->eval_count ? &run->evals[run->eval_count - 1] : NULL;
}

/* Names of the figures whose spread is shown, by index; acceptance by position first. */
static const char *const spread_names[] = {
    "accepted_1", "accepted_2", "accepted_3", "accepted_4", "accepted_5", "accepted_6", "accepted_7", "accepted_8",
    "tokens_per_iteration", "tree_tokens_per_iteration", "loss_last",
};
enum { SPREAD_TOKENS = TRAINING_POSITIONS, SPREAD_TREE, SPREAD_LOSS, SPREADS };
_Static_assert(sizeof spread_names / sizeof *spread_names == SPREADS, "a name for each");

static double spread_value(const struct training *run, int which)
{
    const struct training_eval *best = best_of(run);
    if (which == SPREAD_LOSS)
        return mean_of(run, run->step_count - window_of(run), run->step_count, OF_LOSS);
    return !best ? NAN : which == SPREAD_TOKENS ? best->tokens_per_iteration
         : which == SPREAD_TREE ? best->tree_tokens_per_iteration : best->acceptance[which];
}

/* Adds the spread over heads of one kind, if several were trained. */
static int add_spread(struct figure_table *table, const struct trainings *all, size_t first, struct err *err)
{
    const char *arch = all->items[first].arch;
    for (size_t i = 0; i < first; i++)
        if (!strcmp(all->items[i].arch, arch))
            return 0;
    for (int which = 0; which < SPREADS; which++) {
        double sum = 0, min = INFINITY, greatest = -INFINITY;
        int runs = 0;
        for (size_t i = first; i < all->count; i++) {
            double value = strcmp(all->items[i].arch, arch) ? NAN : spread_value(&all->items[i], which);
            if (isnan(value))
                continue;
            sum += value;
            min = fmin(min, value);
            greatest = fmax(greatest, value);
            runs++;
        }
        if (runs < 2)
            continue;
        const double values[] = {runs, sum / runs, min, greatest};
        if (!figure_row_add(table, arch, spread_names[which], NULL, values, sizeof values, err))
            return -1;
    }
    return 0;
}

static int add_curve(struct figure_table *table, const struct training *run, const char *name, int what, struct err *err)
{
    const size_t block = (run->step_count + TRAINING_POINTS - 1) / TRAINING_POINTS;
    for (size_t from = 0; from < run->step_count; from += block) {
        size_t to = from + block < run->step_count ? from + block : run->step_count;
        double mean = mean_of(run, from, to, what);
        if (isnan(mean))
            continue;
        const double values[] = {run->steps[to - 1].step, mean};
        if (!figure_row_add(table, run->name, run->arch, name, values, sizeof values, err))
            return -1;
    }
    return 0;
}

static int add_curves(struct figure_table *table, const struct training *run, struct err *err)
{
    if (add_curve(table, run, "loss", OF_LOSS, err))
        return -1;
    for (int part = 0; part < run->parts; part++)
        if (add_curve(table, run, run->part_name[part], part, err))
            return -1;
    return add_curve(table, run, "lr", OF_LR, err) || add_curve(table, run, "gradient_norm", OF_GRADIENT, err) ? -1 : 0;
}

int training_report(struct figure *out, const struct trainings *all, struct err *err)
{
    struct figure made = {
        .tables = TABLES,
        .table = {
            [TABLE_RUN] = {.type = "run", .columns = run_columns,
                           .heading = "Runs: loss over the first and the last 100 steps, or halves"},
            [TABLE_PART] = {.type = "part", .columns = part_columns, .heading = "Parts of the loss, before they are weighted"},
            [TABLE_EVAL] = {.type = "eval", .columns = eval_columns,
                            .heading = "Evaluations: accepted_N is the share of drafts that are right up to token N"},
            [TABLE_SPREAD] = {.type = "spread", .columns = spread_columns,
                              .heading = "Heads that were trained more than once, at their best"},
            [TABLE_CURVE] = {.type = "curve", .columns = curve_columns}}};
    for (size_t i = 0; i < all->count; i++)
        if (add_run(&made.table[TABLE_RUN], &all->items[i], err) || add_parts(&made.table[TABLE_PART], &all->items[i], err) ||
            add_evals(&made.table[TABLE_EVAL], &all->items[i], err) ||
            add_spread(&made.table[TABLE_SPREAD], all, i, err) ||
            add_curves(&made.table[TABLE_CURVE], &all->items[i], err)) {
            figure_free(&made);
            return -1;
        }
    *out = made;
    return 0;
}
