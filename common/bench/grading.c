#include "common/bench/grading.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/bench/judge.h"
#include "common/report/grade.h"
#include "common/report/table.h"
#include "common/stream/bench.h"
#include "common/stream/decode.h"
#include "common/stream/reader.h"
#include "common/stream/writer.h"

/* A text whose last record has not been read yet. */
struct open_text {
    int64_t sequence;
    int setting;
    char *task, *id;
};

struct work {
    const struct grading_options *options;
    struct grading *grading;
    struct text *out;
    struct writer *writer;              /* NULL: no stream is written */
    char *settings[BENCH_SETTINGS_MAX];
    bool forced[BENCH_SETTINGS_MAX];    /* routes or texts were forced, so they are not the model's: nothing is graded */
    int setting_count, next_setting;    /* next_setting: setting of the next sequence */
    struct open_text *open;
    size_t open_count, open_room;
    bool *rule_used, *command_used;     /* [rule_count], [command_count]: some text has the task */
    struct text found;
};

/* Returns whether an option "TASK=VALUE" is for this task. */
static bool is_for(const char *option, const char *task)
{
    size_t bytes = strlen(task);
    return !strchr(option, '=') || (!strncmp(option, task, bytes) && option[bytes] == '=');
}

/* Returns the value of the last option for this task, else of the last option for all tasks; NULL: none. */
static const char *for_task(const char *const *list, int count, const char *task)
{
    const char *for_all = NULL;
    for (int i = count - 1; i >= 0; i--) {
        const char *equals = strchr(list[i], '=');
        if (equals && is_for(list[i], task))
            return equals + 1;
        if (!equals && !for_all)
            for_all = list[i];
    }
    return for_all;
}

static void note_used(bool *used, const char *const *list, int count, const char *task)
{
    for (int i = 0; i < count; i++)
        used[i] |= is_for(list[i], task);
}

static int check_used(const bool *used, const char *const *list, int count, const char *option, const char *stream,
                      struct err *err)
{
    for (int i = 0; i < count; i++)
        if (!used[i])
            return err_set(err, ERR_INPUT, "%s: no text of %s has the task '%.*s'; `moe-bench report` lists the tasks of a "
                           "stream", option,
                           stream, (int)strcspn(list[i], "="), list[i]);
    return 0;
}

static int rule_named(const char *name)
{
    for (int i = 0; grade_rule_names[i]; i++)
        if (!strcmp(grade_rule_names[i], name))
            return i;
    return -1;
}

static int check_options(const struct grading_options *options, struct err *err)
{
    for (int i = 0; i < options->rule_count; i++) {
        const char *equals = strchr(options->rules[i], '=');
        if (rule_named(equals ? equals + 1 : options->rules[i]) < 0)
            return err_set(err, ERR_INPUT, "--rule: '%s' is neither RULE nor TASK=RULE; rules are " GRADE_RULE_WORDS,
                           options->rules[i]);
    }
    for (int i = 0; i < options->command_count; i++) {
        const char *equals = strchr(options->commands[i], '=');
        if (!equals || !equals[1 + strspn(equals + 1, " \t\n")])      /* an empty command would accept every answer */
            return err_set(err, ERR_INPUT, "--command: expected TASK=COMMAND, not '%s'", options->commands[i]);
    }
    return 0;
}

static int by_task(const void *a, const void *b)
{
    const struct graded_row *x = a, *y = b;
    return x->task_number != y->task_number ? x->task_number - y->task_number : x->setting_number - y->setting_number;
}

static int row_of(struct work *work, int number, const char *task, struct graded_row **out, struct err *err)
{
    struct grading *grading = work->grading;
    const char *setting = work->settings[number];
    int task_number = 0;
    bool known = false;
    for (size_t i = 0; i < grading->count; i++) {
        struct graded_row *row = &grading->rows[i];
        bool same = !strcmp(row->task, task);
        if (same && row->setting_number == number) {
            *out = row;
            return 0;
        }
        if (same)
            task_number = row->task_number;
        else if (!known && row->task_number >= task_number)
            task_number = row->task_number + 1;
        known |= same;
    }
    if (mem_grow(&grading->rows, &grading->room, grading->count + 1, sizeof *grading->rows, err))
        return -1;
    struct graded_row *row = &grading->rows[grading->count++];
    *row = (struct graded_row){ .setting_number = number, .task_number = task_number };
    *out = row;
    return (row->setting = mem_string(setting, err)) && (row->task = mem_string(task, err)) ? 0 : -1;
}

static int ask(const struct work *work, const char *command, const struct reference *reference, const char *text,
               bool *correct, struct err *err)
{
    struct text input = {0};
    int rc = json_line(&input, json_pack("{s:s, s:s, s:s, s:s}", "id", reference->id, "task", reference->task, "text", text,
                                        "expected", reference->answer), err) ||
             judge_ask(command, input.data, work->options->seconds, work->options->folder, correct, err) ? -1 : 0;
    text_free(&input);
    return rc;
}

/* Grades one text and counts it. The order of precedence is command, rule of the task, default rule (grade_rule_of). */
static int grade(struct work *work, const struct open_text *open, const char *text, struct err *err)
{
    const struct grading_options *options = work->options;
    const struct reference *reference = references_find(options->references, open->task, open->id);
    const char *command = for_task(options->commands, options->command_count, open->task);
    const char *rule = for_task(options->rules, options->rule_count, open->task);
    const char *setting = work->settings[open->setting];
    struct graded_row *row;
    bool correct = false;
    double score;
    enum grade_rule by = rule ? (enum grade_rule)rule_named(rule)
                               : grade_rule_of(open->task, reference ? reference->answer : NULL);
    if ((by == GRADE_NONE && !command) || work->forced[open->setting])
        return 0;
    if (row_of(work, open->setting, open->task, &row, err))
        return -1;
    if (!reference || !text) {
        row->lacking++;
        return 0;
    }
    text_clear(&work->found);
    if (command ? ask(work, command, reference, text, &correct, err)
                : grade_answer(by, text, reference->answer, &correct, &score, &work->found, err))
        return err_at(err, "task '%s', prompt '%s'", open->task, open->id);
    score = command ? correct : score;
    row->graded++;
    row->rules |= 1u << (command ? GRADE_NONE : by);
    row->scored = grade_scores(command ? "command" : grade_rule_names[by]);
    row->correct += correct;
    row->score += score;
    const struct bench_grade record = { .sequence = open->sequence, .correct = correct, .score = score,
                                        .rule = command ? "command" : grade_rule_names[by], .expected = reference->answer,
                                        .answer = command ? NULL : work->found.length ? work->found.data : "" };
    if (work->writer && writer_record(work->writer, &bench_grade_kind, &record, err))
        return -1;
    if (!options->lines)
        return 0;
    return json_line(work->out, json_pack("{s:s, s:s, s:s, s:s, s:o, s:f, s:s, s:s, s:s?}", "type", "answer", "setting",
                                          setting, "task", open->task, "id", open->id, "correct",
                                          row->scored ? json_null() : json_boolean(correct), "score", score, "rule",
                                          record.rule, "expected", record.expected, "answer", record.answer), err);
}

static int take_begin(struct work *work, const struct decode_begin *begin, struct err *err)
{
    if (mem_grow(&work->open, &work->open_room, work->open_count + 1, sizeof *work->open, err))
        return -1;
    struct open_text *open = &work->open[work->open_count++];
    *open = (struct open_text){ .sequence = begin->sequence, .setting = work->next_setting };
    note_used(work->rule_used, work->options->rules, work->options->rule_count, begin->task ? begin->task : "");
    note_used(work->command_used, work->options->commands, work->options->command_count, begin->task ? begin->task : "");
    return (open->task = mem_string(begin->task ? begin->task : "", err)) &&
           (open->id = mem_string(begin->id ? begin->id : "", err)) ? 0 : -1;
}

static int take_done(struct work *work, const struct decode_done *done, struct err *err)
{
    for (size_t i = work->open_count; i-- > 0; )
        if (work->open[i].sequence == done->sequence) {
            struct open_text open = work->open[i];
            work->open[i] = work->open[--work->open_count];
            int rc = done->finish_reason == FINISH_ABORT ? 0 : grade(work, &open, done->text, err);
            mem_free(&open.task);
            mem_free(&open.id);
            return rc;
        }
    return 0;                           /* the reader has already rejected texts without a beginning */
}

static int add_setting(struct work *work, const char *name, bool forced, struct err *err)
{
    if (work->setting_count == BENCH_SETTINGS_MAX)
        return err_set(err, ERR_INPUT, "the stream has more than %d settings; grade fewer at a time", BENCH_SETTINGS_MAX);
    if (!(work->settings[work->setting_count] = mem_string(name, err)))
        return -1;
    work->forced[work->setting_count++] = forced;
    return 0;
}

static int take_sample(struct work *work, const struct bench_sample *sample, struct err *err)
{
    if (sample->setting >= work->setting_count)
        return err_set(err, ERR_INPUT, "setting %d has no setting record; the stream is damaged", sample->setting);
    work->next_setting = sample->setting;
    return 0;
}

/* Drops old grade records, and adds new ones after their texts; copies all other records. */
static int take(struct work *work, const struct record *record, struct err *err)
{
    if (record->kind == &bench_grade_kind)
        return 0;
    if (work->writer && writer_copy(work->writer, record, err))
        return -1;
    if (record->kind == &bench_setting_kind) {
        const struct bench_setting *setting = record->body;
        return add_setting(work, setting->name, setting->label && strstr(setting->label, "forced:"), err);
    }
    if (record->kind == &bench_sample_kind)
        return take_sample(work, record->body, err);
    if (record->kind == &decode_begin_kind)
        return take_begin(work, record->body, err);
    return record->kind == &decode_done_kind ? take_done(work, record->body, err) : 0;
}

static void work_free(struct work *work)
{
    for (int i = 0; i < work->setting_count; i++)
        mem_free(&work->settings[i]);
    for (size_t i = 0; i < work->open_count; i++) {
        mem_free(&work->open[i].task);
        mem_free(&work->open[i].id);
    }
    mem_free(&work->open);
    mem_free(&work->rule_used);
    mem_free(&work->command_used);
    text_free(&work->found);
}

static int open_stream(struct work *work, const struct reader *in, struct err *err)
{
    const struct header *source = reader_header(in);
    bool forced = false;
    if (source->kind != STREAM_BENCH && source->kind != STREAM_DECODE)
        return err_set(err, ERR_INPUT, "%s: a %s stream; expected a decode or bench stream", reader_name(in),
                       source->kind_name);
    if (source->kind == STREAM_DECODE && work->options->stream)
        return err_set(err, ERR_INPUT, "%s: is a decode stream, which cannot store grades; leave --stream out, or grade a "
                       "bench stream",
                       reader_name(in));
    for (int i = 0; i < source->label_count; i++)
        forced |= !strcmp(source->labels[i].key, "forced");
    if (source->kind == STREAM_DECODE && add_setting(work, reader_name(in), forced, err))
        return -1;
    if (!(work->rule_used = mem_alloc((size_t)work->options->rule_count, sizeof *work->rule_used, err)) ||
        !(work->command_used = mem_alloc((size_t)work->options->command_count, sizeof *work->command_used, err)))
        return -1;
    return work->options->stream ? writer_open(&work->writer, work->options->stream, source, err) : 0;
}

int grading_run(struct grading *grading, const char *path, const struct grading_options *options, struct text *out,
                struct err *err)
{
    static const struct reader_options all = { .ancillary = true };
    struct grading made = {0};
    struct work work = { .options = options, .grading = &made, .out = out };
    struct reader *in = NULL;
    const struct record *record;
    int rc = -1, more, graded = 0;
    if (check_options(options, err) || reader_open(&in, path, STREAM_ANY, &all, err) || open_stream(&work, in, err))
        goto done;
    while ((more = reader_next(in, &record, err)) > 0)
        if (take(&work, record, err)) {
            record_error_at(record, err);
            goto done;
        }
    if (more < 0 ||
        check_used(work.rule_used, options->rules, options->rule_count, "--rule", reader_name(in), err) ||
        check_used(work.command_used, options->commands, options->command_count, "--command", reader_name(in), err))
        goto done;
    for (size_t i = 0; i < made.count; i++)
        graded += made.rows[i].graded;
    if (!graded) {
        err_set(err, ERR_INPUT, "%s: none of its texts can be graded; give the prompt files with the right answers (texts "
                "with forced routes or tokens are not graded)",
                reader_name(in));
        goto done;
    }
    if (work.writer && writer_close(&work.writer, err))
        goto done;
    qsort(made.rows, made.count, sizeof *made.rows, by_task);
    *grading = made;
    made = (struct grading){0};
    rc = 0;
done:
    writer_abort(&work.writer, err);
    reader_close(&in);
    work_free(&work);
    grading_free(&made);
    return rc;
}

void grading_free(struct grading *grading)
{
    for (size_t i = 0; i < grading->count; i++) {
        mem_free(&grading->rows[i].setting);
        mem_free(&grading->rows[i].task);
    }
    mem_free(&grading->rows);
    *grading = (struct grading){0};
}

int grading_text(struct text *out, const struct grading *grading, struct err *err)
{
    static const char *const titles[] = { "setting", "task", "correct", "of", "share", "score", "rule", "without answer" };
    struct table table;
    int rc = -1;
    table_start(&table, titles, "llrrrrlr");
    for (size_t i = 0; i < grading->count; i++) {
        const struct graded_row *row = &grading->rows[i];
        double of = row->graded ? row->graded : 1;
        if (table_cell(&table, err, "%s", row->setting) || table_cell(&table, err, "%s", row->task) ||
            (row->scored ? table_cell(&table, err, "%s", "") : table_cell(&table, err, "%d", row->correct)) ||
            table_cell(&table, err, "%d", row->graded) ||
            (row->scored ? table_cell(&table, err, "%s", "") : table_cell(&table, err, "%.1f %%", 100 * row->correct / of)) ||
            table_cell(&table, err, "%.3f", row->score / of) || grade_rules_cell(&table, row->rules, err) ||
            (row->lacking ? table_cell(&table, err, "%d", row->lacking) : table_cell(&table, err, "%s", "")))
            goto done;
    }
    rc = table_write(&table, TABLE_TEXT, out, err);
    text_make_printable(out);
done:
    table_free(&table);
    return rc;
}

int grading_json(struct text *out, const struct grading *grading, struct err *err)
{
    for (size_t i = 0; i < grading->count; i++) {
        const struct graded_row *row = &grading->rows[i];
        json_t *score = row->graded ? json_real(row->score / row->graded) : json_null();
        json_t *correct = row->scored ? json_null() : json_integer(row->correct);
        if (json_line(out, json_pack("{s:s, s:s, s:s, s:i, s:o, s:i, s:o}", "type", "row", "setting", row->setting, "task",
                                    row->task, "graded", row->graded, "correct", correct, "without_answer", row->lacking,
                                    "score", score), err))
            return -1;
    }
    return 0;
}
