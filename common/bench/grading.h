/* Grades the texts of a saved decode or bench stream again, by the answers in files of prompts (references.h).
 *
 * A task is graded by its command, else by its rule, else by the rule for all tasks, else as in suites (grade_rule_of). A
 * command is run by /bin/sh with one JSON object on standard input, {"id", "task", "text", "expected"}, and exits with 0 for
 * right and 1 for wrong; any other status is an error. It is killed with its whole process group after `seconds`; the text
 * is then wrong.
 *
 * Results are counted by setting and task. A text is identified by its task and id; texts without a reference are counted
 * separately. */
#ifndef MOE_BENCH_GRADING_H
#define MOE_BENCH_GRADING_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/references.h"

struct grading_options {
    const struct references *references;
    const char *const *rules;           /* "TASK=RULE", rules as in grade.h; "RULE": for all other tasks */
    const char *const *commands;        /* "TASK=COMMAND" */
    int rule_count, command_count;
    double seconds;
    const char *folder;                 /* folder for files with the standard input of commands */
    const char *stream;                 /* path for a copy of the stream with these grades in place of its own; NULL: none */
    bool lines;                         /* print one JSON line per answer, before the lines of the rows */
};

struct graded_row {
    char *setting, *task;
    int setting_number, task_number;    /* numbers in order of first appearance */
    int graded, correct, lacking;       /* lacking: texts without a reference */
    unsigned rules;                     /* set of enum grade_rule used for its texts; bit GRADE_NONE: a command */
    bool scored;                        /* graded by a rule with scores: no text is right or wrong */
    double score;                       /* sum over the graded texts */
};

struct grading {
    struct graded_row *rows;            /* ordered by first appearance of the task, then by setting */
    size_t count, room;
};

/* Grades the stream `path`; appends JSON lines to *out if requested. Errors: a stream that is incomplete or of another kind;
 * no text with a reference; an unknown rule, or a rule or command for a task that no text has. */
int grading_run(struct grading *grading, const char *path, const struct grading_options *options, struct text *out,
                struct err *err);
void grading_free(struct grading *grading);                 /* *grading is {0} afterwards */

int grading_text(struct text *out, const struct grading *grading, struct err *err);
int grading_json(struct text *out, const struct grading *grading, struct err *err);

#endif
