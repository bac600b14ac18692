/* moe-profile: which experts prompts and answers use.
 *
 * Reads:  model, prompts, and with --budget a rank stream
 * Writes: route stream; a table on a terminal or with --text
 * Exit:   0 done, 2 trouble */
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/cli/command.h"
#include "common/cli/signals.h"
#include "common/decode/budget.h"
#include "common/decode/profile.h"
#include "common/report/route_report.h"

struct profile_args {
    struct session_options session;
    struct session_prompts prompts;
    struct decode_settings settings;
    struct strings inputs;
    const char *record, *shard, *output;
    bool text, force;
};

static const struct opt profile_options[] = {
    SESSION_OPTIONS(struct profile_args, session),
    OPT_COUNT('n', "max-tokens", struct profile_args, settings.max_tokens, 0, 1 << 24,
              "decode N new tokens behind each prompt, too, and record where they are routed"),
    OPT_STRING(0, "record", struct profile_args, record, "WORDS", "record route[,probs][,logits][,hidden] of every token"),
    OPT_STRING(0, "shard", struct profile_args, shard, "I/N", "take every N-th prompt, beginning with number I"),
    DECODE_OPTIONS_BUT_LENGTH(struct profile_args, settings),
    SESSION_PROMPT_OPTIONS(struct profile_args, prompts),
    OPT_FLAG(0, "text", struct profile_args, text, "write a table, as on a terminal, not the stream"),
    OPT_OUTPUT('o', "output", struct profile_args, output, "write the stream to FILE, not standard output"),
    OPT_FLAG(0, "force", struct profile_args, force, "take a ranking made with another tokenizer or vocabulary"),
    OPT_END };

static const struct operand profile_operands[] = { OPERAND_ANY("PROMPTS", struct profile_args, inputs), OPERAND_END };

static const struct profile_args profile_defaults = {
    .settings = {.top_p = 1, .draft_length = DRAFT_LENGTH_NONE, .budget_mode = BUDGET_SUBSTITUTE}, .record = "route" };

/* What a person wants to see: how much was read, and which experts it used most. */
static int write_table(const struct profile *profile, const char *path, struct err *err)
{
    const struct route_counts *counts = profile_counts(profile);
    struct ranking *ranking = NULL;
    struct output *out = NULL;
    struct text body = {0};
    int rc = -1;
    if (text_printf(&body, err, "%d texts, ", profile_texts(profile)) ||
        ranking_make(&ranking, counts, RANKING_FREQUENCY, err) || ranking_text(&body, ranking, counts->tokens, err) ||
        output_open(&out, path, err) ||
        output_write(out, body.data, body.length, err) || output_commit(&out, err))
        goto done;
    rc = 0;
done:
    output_discard(&out);
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
    int rc = decode_departure(&args->settings, budget, &key, &why, err) ||
             session_header(session, STREAM_ROUTE, console, args->settings.seed, &header, err) ||
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
    struct budget_options options = budget_options_of(&args->settings, args->force);
    struct stream_model model;
    struct text note = {0};
    session_stream_model(session, &model);
    int rc = budget_open(out, &options, &model, &note, err);
    console_notes(console, &note);
    text_free(&note);
    return rc;
}

/* A signal came: what was recorded, or counted, stays. */
static int close_early(struct writer **writer, const struct profile *profile, const char *path, struct err *err)
{
    struct err told = {0};
    err_clear(err);
    err_set(&told, ERR_SIGNAL, "ended by %s amid text %d", signals_name(), profile_texts(profile));
    if (*writer ? writer_close_early(writer, told.text, err) : write_table(profile, path, err))
        return -1;
    *err = told;
    return -1;
}

static int run(const void *arguments, const struct console *console, struct err *err)
{
    const struct profile_args *args = arguments;
    const char *path = args->output ? args->output : "-";
    bool table = args->text || (!strcmp(path, "-") && isatty(STDOUT_FILENO));
    struct progress bar = {0};
    struct profile_setup setup = { .settings = &args->settings, .shard = 1, .shards = 1, .bar = &bar, .stop = signals_stop() };
    struct session *session = NULL;
    struct budget *budget = NULL;
    struct prompts *prompts = NULL;
    struct writer *writer = NULL;
    struct profile *profile = NULL;
    bool ended;
    int rows, rc = -1;
    if (args->settings.rank && !strcmp(args->settings.rank, "-") && !args->inputs.count && !args->prompts.texts.count) {
        err_set(err, ERR_INPUT, "--rank -: standard input holds the ranking, not the prompts, too; name a file of prompts");
        goto done;
    }
    if (profile_parse_record(&setup, args->record, err) || (args->shard && profile_parse_shard(&setup, args->shard, err)) ||
        decode_rows(&args->settings, false, &rows, err) || session_open(&session, &args->session, 0, rows, err) ||
        open_budget(&budget, session, args, console, err) ||
        session_open_prompts(&prompts, session, &args->prompts, &args->inputs, setup.stop, err))
        goto done;
    session_tell(session, console);
    setup.session = session;
    setup.budget = budget;
    if (!table && open_writer(&writer, session, budget, args, console, path, err))
        goto done;
    setup.writer = writer;
    console_progress(console, &bar, "tokens", 0);
    if (profile_open(&profile, &setup, err) || profile_check(profile, prompts, err))
        goto done;
    signals_gentle();
    if (profile_run(profile, prompts, &ended, err))
        goto done;
    progress_end(&bar);
    rc = ended ? close_early(&writer, profile, path, err)
       : table ? write_table(profile, path, err) : writer_close(&writer, err);
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

static const struct subcommand subcommands[] = {
    { .summary = "record which experts prompts and answers use", .options = profile_options, .operands = profile_operands,
      .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct profile_args), .defaults = &profile_defaults,
      .run = run },
    { .run = NULL },
};

static const struct command moe_profile = { "moe-profile", "record which experts prompts and answers use", subcommands };

int main(int argc, char **argv) { return cli_main(argc, argv, &moe_profile); }
