/* moe-profile: records the experts that prompts and answers use, a model's states for training heads (profile-features.h), and
 * the layers that a model may skip when it drafts for itself.
 *
 * Reads:  model, prompts, and with --budget a rank stream
 * Writes: route stream; a table on a terminal or with --text; a skip file (skip)
 * Exit:   0 done, 2 trouble */
#include <string.h>
#include <unistd.h>

#include "cmd/profile-features.h"
#include "common/base/file.h"
#include "common/cli/command.h"
#include "common/cli/signals.h"
#include "common/decode/budget.h"
#include "common/instruments/profile.h"
#include "common/instruments/skip.h"
#include "common/report/coact_report.h"

struct profile_args {
    struct session_options session;
    struct session_prompts prompts;
    struct decode_settings settings;
    struct strings inputs;
    const char *record, *output;
    int parallel;
    bool text, force;
};

static const struct opt profile_options[] = {
    SESSION_OPTIONS(struct profile_args, session),
    CACHING_OPTION_HOT_SET(struct profile_args, session.caching),
    OPT_GROUP("What to record"),
    OPT_COUNT('n', "max-tokens", struct profile_args, settings.max_tokens, 0, 1 << 24,
              "also generate N tokens after each prompt, and record their routes"),
    OPT_STRING(0, "record", struct profile_args, record, "WORDS", "record route[,probs][,logits][,hidden] of every token"),
    SESSION_SHARD_OPTION(struct profile_args, prompts),
    OPT_COUNT(0, "parallel", struct profile_args, parallel, 1, DECODERS_MAX,
              "decode N texts at once, in shared forwards; the records are the same as with one at a time"),
    DECODE_OPTIONS_BUT_LENGTH(struct profile_args, settings),
    SESSION_PROMPT_OPTIONS(struct profile_args, prompts),
    OPT_GROUP("What to record"),
    OPT_FLAG(0, "text", struct profile_args, text, "write a table instead of the stream; the default on a terminal"),
    OPT_OUTPUT('o', "output", struct profile_args, output, "write the stream to FILE, not standard output"),
    OPT_GROUP("Other options"),
    OPT_FLAG(0, "force", struct profile_args, force, "accept a ranking made with another tokenizer or vocabulary"),
    OPT_END };

static const struct opt_rule profile_rules[] = {
    {OPT_NEEDS, "draft|draft-length|accept|tree|policy|budget|temperature|stop|ignore-eos", "max-tokens",
     "nothing is decoded after prompts"},
    {OPT_NEEDS, "parallel", "max-tokens", "prompts are read one at a time; only answers share forwards"},
    {OPT_NEEDS, "force", "rank", "there is no ranking to use"},
    SESSION_RULES, DECODE_RULES, OPT_RULES_END };

static const struct operand profile_operands[] = { OPERAND_ANY("PROMPTS", struct profile_args, inputs), OPERAND_END };

static const struct profile_args profile_defaults = {
    .settings = DECODE_DEFAULTS_OF(0), .record = "route", .parallel = 1 };

/* Prints a summary: the number of tokens, and the most used experts. */
static int write_table(const struct profile *profile, const char *path, struct err *err)
{
    const struct route_counts *counts = profile_counts(profile);
    struct ranking *ranking = NULL;
    struct text body = {0};
    int rc = text_printf(&body, err, "%d texts, ", profile_texts(profile)) ||
             ranking_make(&ranking, counts, RANKING_FREQUENCY, err) || ranking_text(&body, ranking, counts->tokens, err) ||
             output_whole(path, &body, err) ? -1 : 0;
    ranking_free(&ranking);
    text_free(&body);
    return rc;
}

static int open_writer(struct writer **out, const struct session *session, const struct budget *budget,
                       const struct profile_args *args, const struct console *console, const char *path, struct err *err)
{
    struct header header = {0};
    struct text why = {0};
    const char *key = NULL;
    int rc = decode_lossless_label(&args->settings, budget, &session->caching, &key, &why, err) ||
             session_header(session, STREAM_ROUTE, console, args->settings.seed, &header, err) ||
             session_header_part(&header, args->prompts.shard, err) ||
             (budget && budget->source.kind == STREAM_RANK && header_derive(&header, &budget->source, err)) ||
             (key && header_label(&header, key, why.data, err)) ||
             writer_open(out, path, &header, err) ? -1 : 0;
    header_free(&header);
    text_free(&why);
    return rc;
}

static int open_budget(struct budget **out, const struct session *session, const struct profile_args *args,
                       const struct console *console, struct err *err)
{
    struct stream_model model;
    struct text note = {0};
    session_stream_model(session, &model);
    int rc = budget_open(out, &args->settings, args->force, &model, &note, err);
    console_notes(console, &note);
    text_free(&note);
    return rc;
}

/* Ends after a signal: complete records and counts are kept. */
static int close_early(struct writer **writer, const struct profile *profile, const struct session *session, const char *path,
                       struct err *err)
{
    struct err reason = {0};
    err_clear(err);
    err_set(&reason, ERR_SIGNAL, "ended by %s within text %d", signals_name(), profile_texts(profile));
    if ((*writer ? writer_close_early(writer, reason.text, err)
         : profile_counts(profile)->tokens ? write_table(profile, path, err) : 0) ||
        session_keep_hot_set(session, err))
        return -1;
    *err = reason;
    return -1;
}

static int run(const void *arguments, const struct console *console, struct err *err)
{
    const struct profile_args *args = arguments;
    const char *path = args->output ? args->output : "-";
    bool table = args->text || (!strcmp(path, "-") && isatty(STDOUT_FILENO));
    struct progress bar = {0};
    struct profile_setup setup = { .settings = &args->settings, .bar = &bar, .stop = signals_stop(),
                                   .texts = args->parallel };
    struct session_options opening = args->session;
    struct session *session = NULL;
    struct budget *budget = NULL;
    struct prompts *prompts = NULL;
    struct writer *writer = NULL;
    struct profile *profile = NULL;
    bool ended;
    int rows, rc = -1;
    opening.draft_length = decode_gamma(&args->settings);
    opening.texts = args->parallel;
    opening.stop = setup.stop;
    if (args->settings.rank && !strcmp(args->settings.rank, "-") && !args->inputs.count && !args->prompts.texts.count) {
        err_set(err, ERR_INPUT, "--rank -: standard input is already read as the ranking; give the prompts as a file");
        goto done;
    }
    if (args->parallel > 1 && !args->settings.max_tokens) {
        err_set(err, ERR_INPUT, "--parallel: prompts are read one at a time, and -n 0 decodes no answers that could share "
                "forwards; give -n a number above 0, or leave --parallel out");
        goto done;
    }
    if (session_check_model(&args->session, &args->inputs, err) || profile_parse_record(&setup, args->record, err) ||
        session_check_shard(&args->prompts, &args->inputs, err) ||
        decode_rows(&args->settings, false, &rows, err) ||
        session_open(&session, &opening, 0, decode_rows_of_texts(rows, args->parallel), err) ||
        open_budget(&budget, session, args, console, err) ||
        session_open_prompts(&prompts, session, &args->prompts, &args->inputs, setup.stop, console, err))
        goto done;
    session_print(session, console);
    setup.session = session;
    setup.budget = budget;
    if (decode_settings_print(&args->settings, console, err))
        goto done;
    if (!table && open_writer(&writer, session, budget, args, console, path, err))
        goto done;
    setup.writer = writer;
    console_progress(console, &bar, "tokens", 0);
    if (profile_open(&profile, &setup, err) || profile_check(profile, prompts, err))
        goto done;
    signals_gentle();
    session_note_terminal(&args->prompts, &args->inputs, console);
    if (profile_run(profile, prompts, &ended, err))
        goto done;
    progress_end(&bar);
    rc = ended ? close_early(&writer, profile, session, path, err)
       : table ? write_table(profile, path, err) : writer_close(&writer, err);
    if (!rc)
        rc = session_keep_hot_set(session, err);
done:
    signals_harsh();
    progress_end(&bar);
    writer_abort(&writer, err);
    profile_close(&profile);
    prompts_close(&prompts);
    budget_close(&budget);
    session_close(&session);
    return rc;
}

struct skip_args {
    struct session_options session;
    struct session_prompts prompts;
    struct strings inputs;
    struct skip_search_setup search;
    double ratio;
    int window;
    const char *output;
};

static const struct opt skip_options[] = {
    SESSION_OPTIONS(struct skip_args, session),
    OPT_GROUP("Parts that drafts can skip"),
    OPT_FLOAT(0, "ratio", struct skip_args, ratio, 0, 1, "R", "skip the share R of the parts that may be skipped"),
    OPT_COUNT(0, "window", struct skip_args, window, 1, ENGINE_ROWS_MAX, "generate N tokens per prompt, and count matches "
              "among them"),
    OPT_COUNT(0, "iterations", struct skip_args, search.iterations, 1, 100000, "stop after N candidates"),
    OPT_COUNT(0, "patience", struct skip_args, search.patience, 1, 100000, "stop when N candidates in a row brought no "
              "improvement"),
    OPT_FLOAT(0, "max-score", struct skip_args, search.max_score, 0, 1, "S", "stop when more than the share S of the tokens "
              "match"),
    OPT_COUNT(0, "bayes-interval", struct skip_args, search.bayes_interval, 0, 100000,
              "choose every N-th candidate by the Gaussian process, the others at random; 0: all at random"),
    OPT_SEED(struct skip_args, search.seed),
    SESSION_PROMPT_OPTIONS(struct skip_args, prompts),
    OPT_GROUP("What to record"),
    OPT_OUTPUT('o', "output", struct skip_args, output, "write the skip file to FILE, not standard output"),
    OPT_END };

static const struct opt_rule skip_rules[] = {SESSION_RULES, OPT_RULES_END};

static const struct operand skip_operands[] = { OPERAND_ANY("PROMPTS", struct skip_args, inputs), OPERAND_END };

static const struct skip_args skip_defaults = {.ratio = 0.45, .window = SKIP_WINDOW, .search = SKIP_SEARCH_SWIFT};

static int search(struct skip_profile *profile, struct prompts *prompts, const struct console *console, int iterations,
                  struct skip_set *best, struct skip_found *found, struct err *err)
{
    struct progress bar = {0};
    console_progress(console, &bar, "prompts", 0);
    int rc = skip_profile_read(profile, prompts, &bar, err);
    progress_end(&bar);
    if (rc)
        return -1;
    console_progress(console, &bar, "candidates", (uint64_t)iterations);
    rc = skip_profile_search(profile, &bar, best, found, err);
    progress_end(&bar);
    return rc;
}

/* Prints the best set on one line. */
static void print_found(const struct console *console, const struct skip_set *best, const struct skip_found *found)
{
    int left_out = 0;
    for (int part = 0; part < skip_parts(best->layers); part++)
        left_out += skip_part(best, part);
    console_note(console, "without %d of its %d parts the model predicts %.1f %% of the tokens of %d texts; of %d candidates "
                 "%d were proposed by the Gaussian process, and %d improved the best one; the search ended by %s", left_out,
                 skip_parts(best->layers), 100 * found->matchness,
                 found->search.texts, found->search.candidates, found->search.bayesian,
                 found->search.kept, found->search.ended);
}

static int run_skip(const void *arguments, const struct console *console, struct err *err)
{
    const struct skip_args *args = arguments;
    struct skip_profile_setup setup = {
        .search = args->search, .ratio = args->ratio, .window = args->window, .stop = signals_stop()};
    struct session *session = NULL;
    struct prompts *prompts = NULL;
    struct skip_profile *profile = NULL;
    struct skip_set best;
    struct skip_found found;
    int rows, rc = -1;
    if ((args->output && output_check_folder(args->output, err)) ||
        session_check_model(&args->session, &args->inputs, err) || skip_profile_rows(args->window, &rows, err) ||
        session_open(&session, &args->session, 0, rows, err) ||
        session_open_prompts(&prompts, session, &args->prompts, &args->inputs, setup.stop, console, err))
        goto done;
    session_print(session, console);
    setup.session = session;
    if (skip_profile_open(&profile, &setup, err))
        goto done;
    signals_gentle();
    session_note_terminal(&args->prompts, &args->inputs, console);
    if (search(profile, prompts, console, args->search.iterations, &best, &found, err) ||
        skip_file_write(args->output ? args->output : "-", &best, &found, model_identity(session->model), err))
        goto done;
    print_found(console, &best, &found);
    rc = signals_name() ? err_set(err, ERR_SIGNAL, "ended by %s after %d candidates", signals_name(),
                                  found.search.candidates) : 0;
done:
    signals_harsh();
    skip_profile_close(&profile);
    prompts_close(&prompts);
    session_close(&session);
    return rc;
}

static const struct subcommand subcommands[] = {
    { .name = "record", .summary = "record which experts prompts and answers use", .options = profile_options,
      .rules = profile_rules, .operands = profile_operands, .implied = true, .console = CONSOLE_QUIET | CONSOLE_PROGRESS,
      .args_bytes = sizeof(struct profile_args), .defaults = &profile_defaults, .run = run },
    { .name = "features", .summary = "record texts with a model's states, for training draft heads",
      .options = features_options, .rules = features_rules, .operands = features_operands,
      .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct features_args), .defaults = &features_defaults,
      .run = profile_features },
    { .name = "skip", .summary = "find what a model may leave out when it drafts for itself", .options = skip_options,
      .rules = skip_rules, .operands = skip_operands, .console = CONSOLE_QUIET | CONSOLE_PROGRESS,
      .args_bytes = sizeof(struct skip_args), .defaults = &skip_defaults, .run = run_skip },
    { .run = NULL },
};

static const struct command moe_profile = { "moe-profile", "record which experts prompts and answers use", subcommands };

int main(int argc, char **argv) { return cli_main(argc, argv, &moe_profile); }
