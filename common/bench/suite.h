/* A suite: what moe-bench run compares, read from JSON.
 *
 *   {
 *     "models":      {"small": "pocket.moe", ...}      or "model": "pocket.moe"
 *     "prompts":     ["heldout.jsonl", ...]            or one name
 *     "settings":    [{"name": "none"}, {"name": "K4", "draft": "ngram", "draft-length": 4, "model": "small"}, ...]
 *     "options":     {"max-tokens": 64, ...}           for all settings that do not say otherwise
 *     "reference":   "none"                            what ratios and texts are compared with
 *     "repetitions": 1, "order": "interleaved" | "random" | "blocked", "warm-up": 1
 *     "draws":       "same" | "fresh"                  random numbers of repetitions; all settings have the same ones
 *     "limits":      {"prompts": N, "prompts-per-task": N, "max-tokens": N}
 *     "tasks":       ["math", ...]                     only these
 *     "grade":       {"math": "number", "code": "exact", "long": "none"}      or one rule for all
 *     "gate": [{"setting": "K4", "task": "math", "figure": "ratio_low", "least": 1}]      see gate.h
 *     "chat": true, "chat-template": "vicuna.jinja", "field": "text", "measure-seconds": 1
 *     "vary":        {"temperature": [0, 1]}           see suite_vary.h
 *   }
 *
 * Models, prompts and settings must be there. What a setting may say besides name and model are moe-decode's options by
 * their long names (session/settings.h); and for moe-bench identity, which compares these too, "threads", "device", "isa" and
 * "order" (of the prompts: "given", "reversed", "shuffled:SEED"). Names of files, those in the settings too, are relative to
 * the suite's folder; the suite resolves them. A setting without a model takes the first. Without "reference" each model's
 * first setting that neither drafts nor keeps a budget is the reference of that model's settings; of variants of the
 * reference it is the one with the same values of what the suite varies. Anything unknown is an error. */
#ifndef MOE_BENCH_SUITE_H
#define MOE_BENCH_SUITE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/cli/opt.h"
#include "common/stream/bench.h"

enum suite_order {
    SUITE_INTERLEAVED,          /* every prompt under all settings, in an order that is turned by one from prompt to prompt */
    SUITE_RANDOM,               /* the same, in an order drawn anew for each prompt (Philox, so the same every time) */
    SUITE_BLOCKED               /* all prompts under one setting, then under the next */
};

enum suite_draws { SUITE_SAME, SUITE_FRESH };           /* random numbers of repetitions */
extern const char *const suite_draw_words[];            /* "same", "fresh", NULL */

/* In which order one setting takes the prompts, where that may differ from setting to setting. */
enum suite_walk { SUITE_GIVEN, SUITE_REVERSED, SUITE_SHUFFLED };

enum { SUITE_SETTINGS_MAX = BENCH_SETTINGS_MAX, SUITE_MODELS_MAX = 64, SUITE_FILES_MAX = 1024 };

struct suite_model { char *name, *path; };

struct suite_setting {
    char *name;
    int model, reference;       /* reference: -1: none */
    json_t *options;            /* a map for decode_settings_from_json */
    char *device, *isa;         /* NULL: not given */
    int threads, walk;          /* 0: not given; enum suite_walk */
    uint64_t walk_seed;
    int entry;                  /* its index in the suite's list: variants of one setting have the same */
    json_t *shared;             /* what the suite's "vary" gave it */
};

struct suite_grade { char *task; int rule; };           /* task NULL: all tasks; enum grade_rule */

struct suite_gate {
    char *setting, *task;       /* task: NULL: all tasks together */
    int figure;                 /* of summary_columns */
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
    int repetitions, order, draws, warm_up;             /* warm_up: prompts that are run first and not recorded */
    int limit_prompts, limit_task_prompts, limit_tokens;        /* 0: no limit */
    int reference;                                      /* entry of the setting that was named as such; -1: none was */
    double measure_seconds;                             /* for the read bandwidth, at both ends; 0: not measured */
    bool chat;
};

/* Reads path ("-": standard input, relative names are then as they are). Errors name the file and the position in it. */
int suite_read(struct suite **out, const char *path, struct err *err);
/* The same of the object itself, whose relative names are as they are. */
int suite_from_json(struct suite **out, const json_t *root, struct err *err);
void suite_free(struct suite **suite);

/* Hands each file that a run of the suite reads to `see`: models, prompts, the chat template, what settings name. */
int suite_inputs(const struct suite *suite, opt_see_input *see, void *context, struct err *err);

/* Neither drafts nor keeps a budget. */
bool suite_plain(const struct suite_setting *setting);

/* The rule (enum grade_rule) of an answer of the task whose right answer is `expected`; both may be NULL. */
int suite_grade_rule(const struct suite *suite, const char *task, const char *expected);

/* Fills order[setting_count] with the settings as prompt number `prompt` takes them in this repetition. */
void suite_turn(const struct suite *suite, int prompt, int repeat, int *order);

#endif
