/* A suite: the settings and prompts that moe-bench run compares, read from JSON.
 *
 *   {
 *     "models":      {"small": "pocket.moe", ...}      or "model": "pocket.moe"
 *     "prompts":     ["heldout.jsonl", ...]            or one name
 *     "settings":    [{"name": "none"}, {"name": "K4", "draft": "ngram", "draft-length": 4, "model": "small"}, ...]
 *     "options":     {"max-tokens": 64, ...}           for all settings that do not say otherwise
 *     "reference":   "none"                            setting that ratios and texts are compared with
 *     "repetitions": 1, "order": "interleaved" | "random" | "blocked", "warm-up": 1
 *     "draws":       "same" | "fresh"                  random numbers of repetitions; all settings use the same ones
 *     "limits":      {"prompts": N, "prompts-per-task": N, "max-tokens": N}
 *     "tasks":       ["math", ...]                     use only these
 *     "grade":       {"math": "number", "code": "exact", "long": "none"}      or one rule for all
 *     "gate": [{"setting": "K4", "task": "math", "figure": "ratio_low", "least": 1}]      see gate.h
 *     "chat": true, "chat-template": "vicuna.jinja", "field": "text", "measure-seconds": 1
 *     "vary":        {"temperature": [0, 1]}           see suite_vary.h
 *   }
 *
 * Models, prompts and settings are required. Besides name and model, a setting may contain moe-decode's options by their
 * long names (session/settings.h); "parallel", the number of concurrent texts, in a blocked order; and for moe-bench identity
 * also "threads", "device", "isa" and "order" (of the prompts: "given", "reversed", "shuffled:SEED"). File names, also those
 * in settings, are relative to the suite's folder; reading the
 * suite resolves them. A setting without a model uses the first one. Without "reference", the reference of a model's
 * settings is the model's first setting that neither drafts nor has a budget; among variants of the reference it is the one
 * with the same varied values. Unknown keys are errors. */
#ifndef MOE_BENCH_SUITE_H
#define MOE_BENCH_SUITE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/cli/opt.h"
#include "common/session/settings.h"
#include "common/stream/bench.h"

enum suite_order {
    SUITE_INTERLEAVED,          /* every prompt under all settings, in an order rotated by one from prompt to prompt */
    SUITE_RANDOM,               /* the same, in a random order for each prompt (Philox, so reproducible) */
    SUITE_BLOCKED               /* all prompts under one setting, then under the next */
};

enum suite_draws { SUITE_SAME, SUITE_FRESH };           /* random numbers of repetitions: the same, or fresh ones */
extern const char *const suite_draw_words[];            /* "same", "fresh", NULL */

/* Order of the prompts of one setting, if settings may differ in it. */
enum suite_walk { SUITE_GIVEN, SUITE_REVERSED, SUITE_SHUFFLED };

enum { SUITE_PARALLEL_MAX = 128, SUITE_SETTINGS_MAX = BENCH_SETTINGS_MAX, SUITE_MODELS_MAX = 64, SUITE_FILES_MAX = 1024 };

struct suite_model { char *name, *path; };

struct suite_setting {
    char *name;
    int model, reference;       /* reference: its index; -1: none */
    json_t *options;            /* options of the setting, with resolved file names */
    struct decode_settings settings;        /* `options`, parsed */
    struct decode_settings_store *store;
    char *device, *isa;         /* NULL: not given */
    int threads, walk;          /* threads: 0: not given; walk: enum suite_walk */
    int parallel;               /* concurrent texts */
    uint64_t walk_seed;
    int entry;                  /* index in the suite's list; variants of one setting share it */
    json_t *shared;             /* values set by the suite's "vary" */
};

struct suite_grade { char *task; int rule; };           /* task NULL: all tasks; rule: enum grade_rule */

struct suite_gate {
    char *setting, *task;       /* task NULL: all tasks together */
    int figure;                 /* index in summary_columns */
    double min, max;            /* infinite: not given */
};

struct suite {
    struct suite_model *models;
    struct suite_setting *settings;
    struct suite_grade *grades;
    struct suite_gate *gates;
    char **prompts, **tasks;
    char *field, *chat_template;                        /* NULL: not given */
    int model_count, setting_count, grade_count, gate_count, prompt_count, task_count;
    int repetitions, order, draws, warm_up;             /* warm_up: prompts that are run first without recording */
    int limit_prompts, limit_task_prompts, limit_tokens;        /* 0: no limit */
    int reference;                                      /* entry of the setting named as reference; -1: none */
    double measure_seconds;                             /* seconds of measuring the read bandwidth before and after; 0: not
                                                         * measured */
    bool chat;
};

/* Fails if `path`, which is to name prompts, is a suite. */
int suite_refuse(const char *path, struct err *err);

/* Reads the suite `path` ("-": standard input, with relative names unchanged). Errors name the file and the position in it. */
int suite_read(struct suite **out, const char *path, struct err *err);
/* Reads a suite from a JSON object, with relative names unchanged. */
int suite_from_json(struct suite **out, const json_t *root, struct err *err);
void suite_free(struct suite **suite);

/* Passes each file that a run of the suite reads to `visit`: models, prompts, the chat template, files named in settings. */
int suite_inputs(const struct suite *suite, opt_visitor *visit, const void *context, struct err *err);

/* Returns whether a setting neither drafts nor has a budget. */
bool suite_plain(const struct suite_setting *setting);

/* Returns the rule (enum grade_rule) for an answer of `task` whose right answer is `expected`; both may be NULL. */
int suite_grade_rule(const struct suite *suite, const char *task, const char *expected);

/* Fills order[setting_count] with the order of settings for prompt number `prompt` in this repetition. */
void suite_turn(const struct suite *suite, int prompt, int repeat, int *order);

#endif
