/* Grades the texts of a saved decode or bench stream anew, against the answers in files of prompts (references.h).
 *
 * How a task is graded: by its command, else by its rule, else by the rule for all, else as suites do (grade_rule_of). A
 * command is given to /bin/sh with one JSON object on standard input, {"id", "task", "text", "expected"}, and exits with 0 for
 * right and 1 for wrong; anything else is an error. It is killed with its whole process group after `seconds`, and then the
 * text is wrong.
 *
 * Counts are by setting and task. A text is found by its task and id; one without a reference is counted as such. */
#ifndef MOE_BENCH_GRADING_H
#define MOE_BENCH_GRADING_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/references.h"

struct grading_options {
    const struct references *references;
    const char *const *rules;           /* "TASK=RULE", rules as in grade.h; "RULE": for tasks without one */
    const char *const *commands;        /* "TASK=COMMAND" */
    int rule_count, command_count;
    double seconds;
    const char *folder;                 /* for what a command reads */
    const char *stream;                 /* write the stream with these grades in place of its own there; NULL: nowhere */
    bool lines;                         /* a JSON line an answer goes to the output, before those of the rows */
};

struct graded_row {
    char *setting, *task;
    int setting_number, task_number;    /* in order of appearance */
    int graded, correct, lacking;       /* lacking: texts without a reference */
    unsigned rules;                     /* set of enum grade_rule by which its texts were graded; 1 << GRADE_NONE: a command */
    bool scored;                        /* by a rule that scores: none is right or wrong */
    double score;                       /* summed over the graded */
};

struct grading {
    struct graded_row *rows;            /* by task in order of appearance, then by setting */
    size_t count, room;
};

/* Appends JSON lines to *out where they are wanted. Errors: a stream that is not whole or of another kind; no text with a
 * reference; a rule or command that is none, or of a task that no text has. */
int grading_run(struct grading *grading, const char *path, const struct grading_options *options, struct text *out,
                struct err *err);
void grading_free(struct grading *grading);                 /* and back to {0} */

int grading_text(struct text *out, const struct grading *grading, struct err *err);
int grading_json(struct text *out, const struct grading *grading, struct err *err);

#endif
