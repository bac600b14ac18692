/* moe-decode: decodes prompts, with drafts that speed up decoding without changing the text.
 *
 * Reads:  a model; prompts (files, -p, or standard input); a rank stream for some budgets; a decode stream to resume from
 * Writes: text, or JSON lines with --json; a decode stream with --stream
 * Exit:   0 done, 1 some prompts were skipped (--keep-going), 2 trouble */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/convert-source.h"
#include "cmd/decode-chat.h"
#include "cmd/decode-convert.h"
#include "cmd/decode-ranks.h"
#include "cmd/decode-summary.h"
#include "cmd/decode-texts.h"
#include "cmd/job-ranks.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/progress.h"
#include "common/base/text.h"
#include "common/cli/again.h"
#include "common/cli/command.h"
#include "common/cli/signals.h"
#include "common/decode/budget.h"
#include "common/decode/decode.h"
#include "common/instruments/probe.h"
#include "common/instruments/record.h"
#include "common/instruments/resume.h"
#include "common/prompts/prompts.h"
#include "common/session/session.h"
#include "common/session/drafts.h"
#include "common/session/settings.h"
#include "common/stream/leftover.h"
#include "common/stream/writer.h"

struct decode_args {
    struct session_options session;
    struct session_prompts prompts;
    struct decode_settings settings;
    const char *output, *stream, *resume, *calibration;
    int record, record_length, parallel, ranks;
    bool json, keep_going, force, convert;
    struct strings files;
};

enum { RECORD_NONE, RECORD_ROUTE, RECORD_DRAFTS };
static const char *const record_words[] = {"none", "route", "drafts", NULL};

static const struct opt options[] = {
    SESSION_OPTIONS(struct decode_args, session),
    CACHING_OPTION_HOT_SET(struct decode_args, session.caching),
    OPT_FLAG(0, "convert", struct decode_args, convert,
             "accept a checkpoint as --model, convert it, and keep the converted model for later runs"),
    SESSION_PROMPT_OPTIONS(struct decode_args, prompts),
    DECODE_OPTIONS(struct decode_args, settings),
    OPT_GROUP("Several texts"),
    SESSION_SHARD_OPTION(struct decode_args, prompts),
    OPT_COUNT(0, "parallel", struct decode_args, parallel, 1, DECODERS_MAX,
              "decode N texts at once, in shared forwards; the texts are the same as with one at a time"),
    OPT_GROUP("Several processes"),
    OPT_CHOICE(0, "ranks", struct decode_args, ranks, ranks_words,
               "distribute the experts of one model over the processes that mpirun started"),
    OPT_INPUT(0, "placement", struct decode_args, session.placement,
              "distribute experts over processes so that each has an equal share of the scores in the rank stream FILE"),
    OPT_GROUP("Output"),
    OPT_OUTPUT(0, "calibration", struct decode_args, calibration,
               "start with the acceptance estimates of earlier runs, stored in FILE, and update FILE at the end"),
    OPT_OUTPUT('o', "output", struct decode_args, output, "write the text to FILE"),
    OPT_FLAG(0, "json", struct decode_args, json, "write one JSON object per prompt instead of text"),
    OPT_OUTPUT_KEPT(0, "stream", struct decode_args, stream,
                    "write the decode stream to FILE; with -, to standard output instead of the text"),
    OPT_CHOICE(0, "record", struct decode_args, record, record_words, "also record these data in the stream"),
    OPT_COUNT(0, "record-length", struct decode_args, record_length, 1, DRAFT_LENGTH_MAX,
              "record drafts of up to N tokens, at least -K; the larger of 8 and -K if not given"),
    OPT_FLAG(0, "keep-going", struct decode_args, keep_going, "skip invalid prompts, and continue with the next"),
    OPT_RESUMED(0, "resume", struct decode_args, resume,
                "continue the interrupted run of the decode stream FILE: reuse its finished texts, and decode the others"),
    OPT_GROUP("Other options"),
    OPT_FLAG(0, "force", struct decode_args, force, "accept a ranking of a model with another tokenizer or vocabulary"),
    OPT_END};

static const struct opt_rule rules[] = {
    {OPT_NEEDS, "record-length", "record", "has no effect without recorded drafts"},
    {OPT_EXCLUDES, "record-length", "tree", "trees are recorded in the shape that --tree gives"},
    {OPT_NEEDS, "calibration", "draft|settings", "there is no drafter to estimate"},
    {OPT_NEEDS, "force", "rank", "there is no ranking to use"},
    {OPT_NEEDS, "placement", "ranks", "there is one process, which has all experts"},
    SESSION_RULES, DECODE_RULES,
    {OPT_NEEDS, "record|reference|forecasts|overlap|reconstruction", "stream", "it is recorded in a stream"},
    OPT_RULES_END};

static const struct operand operands[] = {OPERAND_ANY("PROMPTS", struct decode_args, files), OPERAND_END};

static const struct decode_args defaults = {.settings = DECODE_DEFAULTS, .parallel = 1, .ranks = RANKS_NONE};

static bool reads_input(const struct decode_args *args) { return !args->files.count && !args->prompts.texts.count; }

/* The open objects of one run of the command. */
struct run {
    struct decode_args *args;
    struct auto_drafts drafts;
    const struct console *console;
    struct console silent;                  /* for processes that do not write */
    struct decode_ranks ranks;
    struct session *session;
    struct budget *budget;
    const char *departure;                  /* result of decode_lossless_label */
    struct text why;
    struct texts texts;                     /* owns the objects that struct texts borrows; its decoders are alike */
    struct text options;                    /* decode_options */
    struct decode_described machine;
    struct text resumed;                    /* the file from which texts.resume reads */
    const struct stop *stop;
    bool chat;                              /* a conversation at the terminal */
    struct prompt prompt;                   /* with chat: the conversation */
    int longest;                            /* tokens of the longest text and its prompt, as far as prompts are known */
};

static int decode_prompts(struct run *run, bool *ended, struct err *err)
{
    const bool terminal = run->texts.text && output_is_terminal(run->texts.text);
    if (!terminal || run->console->progress == PROGRESS_ALWAYS)
        console_progress(run->console, &run->texts.bar, "tokens", 0);
    const int rc = texts_decode(&run->texts, ended, err);
    progress_end(&run->texts.bar);
    return rc;
}

static int check_turn(void *context, struct err *err)
{
    struct run *run = context;
    return texts_check_turn(&run->texts, &run->prompt, err);
}

static int answer_turn(void *context, struct decode_result *result, struct err *err)
{
    struct run *run = context;
    return texts_answer_turn(&run->texts, &run->prompt, result, err);
}

static int converse(struct run *run, bool *ended, struct err *err)
{
    const struct chat chat = {
        .console = run->console, .stop = run->stop, .prompts = run->texts.prompts, .prompt = &run->prompt,
        .positions = engine_max_positions(run->session->engine), .max_tokens = run->args->settings.max_tokens,
        .context = run, .check = check_turn, .answer = answer_turn};
    int rc = chat_run(&chat, ended, err);
    prompt_free(&run->prompt);
    return rc;
}

/* Returns the length of the longest recorded drafts; it must suffice to replay the policy of the run. */
static int record_length(const struct decode_args *args)
{
    if (args->record_length)
        return args->record_length;
    return args->settings.draft_length > PROBE_LENGTH_DEFAULT ? args->settings.draft_length : PROBE_LENGTH_DEFAULT;
}

static int open_drafts(struct run *run, struct err *err)
{
    return auto_drafts_attach(&run->args->settings, &run->drafts, run->args->session.model, err) ||
           auto_drafts_inputs(&run->drafts, claims_see, &run->console->claims, err) ? -1 : 0;
}

/* Refuses options that --parallel does not support. */
static int check_parallel(const struct run *run, const struct decoder_setup *setup, struct err *err)
{
    const struct decode_args *args = run->args;
    const char *why = run->chat ? "a conversation is one text at a time; leave it out"
                    : decoder_alone(setup);
    return why && args->parallel > 1 ? err_set(err, ERR_INPUT, "--parallel: %s", why) : 0;
}

/* Refuses options that --ranks does not support. */
static int check_ranks(const struct run *run, struct err *err)
{
    const struct decode_args *args = run->args;
    const char *why = NULL;
    if (!decode_ranks_several(&run->ranks))
        return 0;
    if (caching_wanted(&args->session.caching))
        why = "each process maps its own experts; leave --cache-experts out";
    else if (args->record == RECORD_DRAFTS)
        why = "--record drafts is for one process; leave one of the two out";
    else if (args->settings.reconstruction)
        why = "--reconstruction looks at the outputs of experts that other processes compute; leave one of the two out";
    else if (args->convert)
        why = "each process would convert the checkpoint; make a model file first with moe-convert";
    return why ? err_set(err, ERR_INPUT, "--ranks: %s", why)
               : job_ranks_check(run->ranks.ranks, &args->files, !args->prompts.texts.count, err);
}

/* Joins the other processes of the job, if there are any. Only the first one prints and writes. */
static int open_ranks(struct run *run, struct err *err)
{
    struct decode_args *args = run->args;
    if (decode_ranks_open(&run->ranks, args->ranks, &args->session, &run->stop, err))
        return -1;
    run->texts.stop = run->stop;
    if (!decode_ranks_writes(&run->ranks)) {
        run->silent = *run->console;
        run->silent.quiet = run->silent.silent = true;
        run->console = run->texts.console = &run->silent;
    }
    return check_ranks(run, err);
}

/* Returns the reason why prompts cannot name policies other than the run's; NULL: they can. */
static const char *one_policy(const struct run *run)
{
    const struct decode_args *args = run->args;
    if (!args->settings.draft.count)
        return "there is nothing to draft with; add --draft ngram";
    if (decoder_copies_drafts(&run->texts.pool.setup))
        return "a draft model would be copied to the device once for each policy; choose another drafter";
    return args->record == RECORD_DRAFTS ? "--record drafts records for one policy; leave one of the two out"
         : args->calibration ? "--calibration keeps the estimates of one policy; leave one of the two out" : NULL;
}

static int read_calibration(const struct run *run, const char *model, struct err *err)
{
    struct decoder *decoder[DECODERS_MAX];
    int rc = 0;
    pool_decoders(&run->texts.pool, decoder);
    for (int i = 0; !rc && i < run->texts.pool.texts; i++)
        rc = decoder_read_calibration(decoder[i], run->args->calibration, model, err);
    return rc;
}

static int open_model(struct run *run, struct err *err)
{
    struct decode_args *args = run->args;
    struct session_options session = args->session;
    struct stream_model model;
    struct text note = {0};
    int rows;
    if (open_drafts(run, err))
        return -1;
    session.beside = caching_files(&args->settings.draft);
    session.draft_length = decode_gamma(&args->settings);
    session.texts = args->parallel;
    session.stop = run->stop;
    if (caching_check(&session.caching, err) ||
        caching_check_drafts(&session.caching, &args->settings.draft, args->settings.force_routes, err) ||
        decode_rows(&args->settings, args->record == RECORD_DRAFTS, &rows, err) ||
        session_open(&run->session, &session, 0, decode_rows_of_texts(rows, args->parallel), err) ||
        auto_drafts_expand(&args->settings, &run->drafts, run->session->model, err))
        return -1;
    session_print(run->session, run->console);
    if (decode_settings_print(&args->settings, run->console, err))
        return -1;
    if (run->session->chat_fault.code && !args->prompts.chat_template)
        console_note(run->console, "%s: the chat template cannot be used: %s", args->session.model,
                     run->session->chat_fault.text);
    session_stream_model(run->session, &model);
    int rc = budget_open(&run->budget, &args->settings, args->force, &model, &note, err);
    console_notes(run->console, &note);
    text_free(&note);
    if (rc || decode_lossless_label(&args->settings, run->budget, &run->session->caching, &run->departure, &run->why, err))
        return -1;
    if (run->departure && (run->console->verbose || isatty(STDERR_FILENO)))
        console_note(run->console, "%s: %s", run->departure, run->why.data);
    struct decoder_setup setup = {.engine = run->session->engine, .tokenizer = run->session->tokenizer,
                                  .settings = &args->settings, .budget = run->budget, .caching = &run->session->caching,
                                  .on_device = true, .shares_forwards = args->parallel > 1, .stop = run->stop,
                                  .keep = run->chat, .want_drafts = args->record == RECORD_DRAFTS};
    if (check_parallel(run, &setup, err) || decode_ranks_check_budget(&run->ranks, run->budget, err))
        return -1;
    run->texts.pool.setup = setup;
    run->texts.pool.one_policy = one_policy(run);
    if (pool_open(&run->texts.pool, err))
        return -1;
    struct decoder *decoder = pool_first(&run->texts.pool);
    if (args->calibration && read_calibration(run, model.source_sha256, err))
        return err_at(err, "--calibration");
    console_notes(run->console, decoder_notes(decoder));
    if (decoder_loop_device(decoder))
        console_detail(run->console, "iterations: %s", decoder_loop_device(decoder));
    for (int drafter = 0; drafter < args->settings.draft.count; drafter++)
        if (decoder_drafter_detail(decoder, drafter))
            console_detail(run->console, "%s: %s", args->settings.draft.items[drafter],
                           decoder_drafter_detail(decoder, drafter));
    if (args->record == RECORD_DRAFTS && probe_open(&run->texts.probe, decoder, &setup, record_length(args), err))
        return err_at(err, "--record drafts");
    return 0;
}

/* Opens the stream of an earlier run, to reuse its texts. A stream that this run writes itself need not exist yet, so that one
 * command line serves the first run and all later ones. */
static int open_resume(struct run *run, struct header *header, struct err *err)
{
    const char *path = run->args->resume;
    if (leftover_find(&run->resumed, path, err))
        return -1;
    const bool found = run->resumed.length;
    run->texts.resume_path = run->resumed.data;
    run->texts.in_place = run->args->stream && !strcmp(run->args->stream, path);
    if (!found && run->texts.in_place)
        return 0;
    if (decode_resume_open(&run->texts.resume, found ? run->resumed.data : path, header, &run->machine.machine, err))
        return -1;
    console_note(run->console, "%s: reuses the %d texts that the earlier run finished", path,
                 decode_resume_count(run->texts.resume));
    const struct header *origin = decode_resume_header(run->texts.resume);
    return !run->texts.in_place && origin ? header_derive(header, origin, err) : 0;
}

static int judge(void *context, const struct prompt *prompt, struct err *err)
{
    struct run *run = context;
    const struct decode_prompt text = {.token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                       .max_tokens = prompt->max_tokens};
    struct decoder *decoder;
    if ((run->texts.resume && decode_resume_expect(run->texts.resume, prompt, err)) ||
        pool_take(&run->texts.pool, prompt->policy, &decoder, err))
        return -1;
    const int rc = decoder_check(decoder, &text, err);
    const int room = rc ? 0 : prompt->turns > 1 ? INT_MAX : decoder_room(decoder, &text);
    run->longest = room > run->longest ? room : run->longest;
    pool_return(&run->texts.pool, decoder);
    return rc;
}

/* Checks the memory of all concurrent texts. Each is assumed to be as long as the longest, or as long as the whole context if
 * the prompts are not known in advance. */
static int plan_memory(const struct run *run, bool known, struct err *err)
{
    return session_check_texts(run->session, run->args->parallel, known ? run->longest : INT_MAX,
                               budget_caches(run->budget), err)
               ? err_at(err, "--parallel") : 0;
}

/* Checks all prompts before the first one is decoded, because decoding may last hours. With --keep-going, each prompt is
 * checked when it is read. */
static int check_prompts(struct run *run, struct err *err)
{
    bool all;
    if (run->args->keep_going || run->chat)
        return plan_memory(run, false, err);
    if (prompts_check(run->texts.prompts, judge, run, &all, err) || plan_memory(run, all, err))
        return -1;
    return all && run->texts.resume ? decode_resume_checked(run->texts.resume, err) : 0;
}

static int open_stream(struct run *run, const struct header *header, struct err *err)
{
    if (writer_open_kept(&run->texts.recorder.writer, run->args->stream, header, err))
        return -1;
    if (run->texts.in_place && !run->texts.resume)
        console_note(run->console, "%s: contains no finished text of an earlier run, so all prompts are decoded",
                     run->args->stream);
    else if (writer_left(run->texts.recorder.writer) && !run->texts.resume)
        console_note(run->console, "%s: contains finished texts of an interrupted run; to reuse them, stop and start with "
                     "--resume %s",
                     run->args->stream, run->args->stream);
    run->texts.recorder.routes = run->args->record == RECORD_ROUTE;
    run->texts.recorder.steps = run->args->record != RECORD_NONE;
    run->texts.recorder.flush = true;
    return decode_record_machine(&run->texts.recorder, &run->machine, err);
}

static int label_ranks(const struct run *run, struct header *header, struct err *err)
{
    char label[64];
    snprintf(label, sizeof label, "%d share the experts", ranks_size(run->ranks.ranks));
    return header_label(header, "processes", label, err);
}

/* Makes the stream's header, and opens the interrupted run to resume if there is one, the prompts and the outputs. */
static int open_flows(struct run *run, struct err *err)
{
    const struct decode_args *args = run->args;
    const bool stream_only = args->stream && strcmp(args->stream, "-") == 0 && !args->output;
    const bool writes_text = !stream_only && decode_ranks_writes(&run->ranks);
    struct header header = {0};
    int rc = -1;
    if (decode_options(&run->options, &args->settings, engine_max_positions(run->session->engine), run->departure != NULL,
                       record_words[args->record], args->record == RECORD_DRAFTS ? record_length(args) : 0, err))
        return -1;
    decode_describe(&run->machine, run->session, pool_first(&run->texts.pool), run->options.data);
    if (session_header(run->session, STREAM_DECODE, run->console, args->settings.seed, &header, err))
        return -1;
    if (session_header_part(&header, args->prompts.shard, err) ||
        (run->budget && run->budget->source.kind != STREAM_ANY && header_derive(&header, &run->budget->source, err)) ||
        (run->departure && header_label(&header, run->departure, run->why.data, err)) ||
        (args->resume && open_resume(run, &header, err)) ||
        decode_ranks_compare(&run->ranks, run->session, run->options.data, args->parallel, err) ||
        (decode_ranks_several(&run->ranks) && label_ranks(run, &header, err)) ||
        session_open_prompts(&run->texts.prompts, run->session, &args->prompts, &args->files, run->stop, run->console, err) ||
        (run->chat && prompts_converse(run->texts.prompts, &run->prompt, err)) || check_prompts(run, err) ||
        (args->stream && decode_ranks_writes(&run->ranks) && open_stream(run, &header, err)) ||
        (writes_text && output_open(&run->texts.text, args->output ? args->output : "-", err)))
        goto done;
    rc = 0;
done:
    header_free(&header);
    return rc;
}

/* Returns whether the conversation is interactive: a chat without prompt files, at a terminal. */
static bool is_chat(const struct decode_args *args)
{
    return args->prompts.chat && reads_input(args) && isatty(STDIN_FILENO);
}

static int check_chat(const struct decode_args *args, struct err *err)
{
    const char *ineffective = args->resume ? "resume" : args->keep_going ? "keep-going" : args->prompts.field ? "field"
                            : args->prompts.whole ? "whole" : args->prompts.shard ? "shard" : NULL;
    return ineffective ? err_set(err, ERR_INPUT, "--%s: has no effect in a conversation at the terminal; leave it out, or "
                                 "give prompts in a file", ineffective) : 0;
}

static int check_args(const struct decode_args *args, const struct console *console, struct err *err)
{
    bool from_input = reads_input(args);
    if (args->record_length && args->record != RECORD_DRAFTS)
        return err_set(err, ERR_INPUT, "--record-length: has no effect without recorded drafts; add --record drafts");
    if (args->record_length && args->record_length < args->settings.draft_length)
        return err_set(err, ERR_INPUT, "--record-length %d: is shorter than the draft length %d (-K); give at least that",
                       args->record_length, args->settings.draft_length);
    if (args->json && !args->output && args->stream && strcmp(args->stream, "-") == 0)
        return err_set(err, ERR_INPUT, "--json: standard output already receives the stream; write the JSON to a file with -o "
                       "FILE");
    if (args->resume && strcmp(args->resume, "-") == 0)
        return err_set(err, ERR_INPUT, "--resume: standard input cannot be read twice; name a file");
    if (from_input && args->settings.rank && strcmp(args->settings.rank, "-") == 0)
        return err_set(err, ERR_INPUT, "--rank: standard input is already read as the ranking; give prompts as a file or with "
                       "-p");
    if ((is_chat(args) && check_chat(args, err)) || session_check_model(&args->session, &args->files, err) ||
        session_check_shard(&args->prompts, &args->files, err))
        return -1;
    if (!is_chat(args))
        session_note_terminal(&args->prompts, &args->files, console);
    return 0;
}

/* Writes the files with which the next run begins. */
static int write_kept_files(struct run *run, struct err *err)
{
    struct decoder *decoder[DECODERS_MAX];
    struct stream_model model;
    if (!decode_ranks_writes(&run->ranks))
        return 0;
    session_stream_model(run->session, &model);
    pool_decoders(&run->texts.pool, decoder);
    if (run->args->calibration &&
        decoders_write_calibration(decoder, run->texts.pool.texts, run->args->calibration, model.source_sha256, err))
        return err_at(err, "--calibration");
    return session_keep_hot_set(run->session, err);
}

/* Returns whether the resumed stream is complete and already contains all texts of this run. */
static bool is_finished(const struct run *run)
{
    const struct texts *texts = &run->texts;
    return texts->in_place && texts->resume && decode_resume_whole(texts->resume) &&
           !strcmp(run->resumed.data, run->args->stream) && !texts->decoded && !texts->failed;
}

/* Closes the outputs after all prompts were decoded or skipped. A failure to write the hot set loses neither texts nor
 * stream. */
static int close_outputs(struct run *run, struct err *err)
{
    if (run->texts.recorder.writer && is_finished(run)) {
        console_note(run->console, "%s: is already complete, so nothing is decoded", run->args->stream);
        writer_abort(&run->texts.recorder.writer, err);
    }
    if ((run->texts.recorder.writer && writer_close(&run->texts.recorder.writer, err)) ||
        (run->texts.text && output_commit(&run->texts.text, err)) || write_kept_files(run, err))
        return -1;
    if (run->texts.resume && decode_resume_left(run->texts.resume))
        console_note(run->console, "%s: %d of its texts match none of the prompts, or the prompts are in another order; these "
                     "texts are not reused",
                     run->args->resume, decode_resume_left(run->texts.resume));
    return run->texts.failed ? err_set(err, ERR_ANSWER_NO, "%d prompt%s skipped, %d text%s finished", run->texts.failed,
                                 run->texts.failed == 1 ? " was" : "s were", run->texts.finished,
                                 run->texts.finished == 1 ? " is" : "s are")
                       : 0;
}

/* Prints a summary of the run, on a terminal or with -v. */
static int summarise(const struct run *run, struct err *err)
{
    bool terminal = isatty(STDERR_FILENO) && isatty(STDOUT_FILENO);
    struct text line = {0};
    int rc = 0;
    if (terminal || run->console->verbose) {
        rc = decode_summary_put(&run->texts.summary, decoder_drafters(pool_first(&run->texts.pool)) != NULL, &line, err);
        if (!rc && line.length)
            console_note(run->console, "%s", line.data);
    }
    text_clear(&line);
    if (!rc && run->drafts.found && run->console->verbose) {
        const struct decode_settings *settings = &run->args->settings;
        rc = decode_summary_choice(&run->texts.summary, &settings->draft, settings->policy ? settings->policy : "static",
                                   &line, err);
        if (!rc)
            console_note(run->console, "%s", line.data);
    }
    text_free(&line);
    return rc;
}

/* Ends the conversation when the user ends it by a signal: the outputs so far are complete. */
static int leave_chat(struct run *run, struct err *err)
{
    return close_outputs(run, err) ? -1 : err_set(err, ERR_SIGNAL, "the conversation was ended by %s", signals_name());
}

/* Appends to the error how to continue from the kept stream. */
static void add_continuation_hint(const struct run *run, struct err *err)
{
    again_hint(err, run->console, 1, run->args->stream, reads_input(run->args) ? ", with the same prompts as input" : "");
}

/* Ends the run after a signal: keeps the outputs so far, and marks the stream as incomplete. */
static int close_early(struct run *run, struct err *err)
{
    bool file = run->texts.recorder.writer && strcmp(run->args->stream, "-");
    struct err reason = {0};
    err_clear(err);
    err_set(&reason, ERR_SIGNAL, "ended by %s after %d texts", signals_name() ? signals_name() : "a signal",
            run->texts.finished);
    if ((run->texts.recorder.writer && writer_close_early(&run->texts.recorder.writer, reason.text, err)) ||
        (run->texts.text && output_commit(&run->texts.text, err)) || write_kept_files(run, err))
        return -1;
    *err = reason;
    if (file)
        add_continuation_hint(run, err);
    return -1;
}

static int check_folder(const char *option, const char *path, struct err *err)
{
    return path && output_check_folder(path, err) ? err_at(err, "--%s", option) : 0;
}

/* Refuses a checkpoint in place of a model file; the error names --convert. A file of few bytes holds no weights, and the
 * error of opening it names what it is: a pointer of Git LFS. */
static int refuse_checkpoint(const char *path, struct err *err)
{
    enum { FEW_BYTES = 1024 };
    struct stat status;
    const bool named = text_ends(path, ".gguf") || text_ends(path, ".safetensors");
    if (convert_source_is_repository(path))
        return err_set(err, ERR_INPUT, "%s: No such file or directory; if it is a repository of the Hugging Face hub, "
                       "--convert finds it in the local cache", path);
    if (stat(path, &status))
        return 0;
    const bool weights = named && S_ISREG(status.st_mode) && status.st_size >= FEW_BYTES;
    if (!weights && !S_ISDIR(status.st_mode))
        return 0;
    return err_set(err, ERR_INPUT, "%s: is a %s, not a model file; convert the checkpoint with `moe-convert %s -o FILE`, or "
                   "add --convert", path, weights ? "file of weights" : "folder", path);
}

static int decode(const void *arguments, const struct console *console, struct err *err)
{
    struct decode_args mine = *(const struct decode_args *)arguments;
    const struct decode_args *args = &mine;
    struct run run = {.args = &mine, .console = console, .stop = signals_stop(), .chat = is_chat(args)};
    run.texts = (struct texts){.console = console, .stop = run.stop, .json = args->json, .keep_going = args->keep_going,
                               .pool.texts = args->parallel};
    mine.prompts.policies = true;
    bool ended;
    struct text converted = {0};
    int rc = -1;
    if (open_ranks(&run, err) || check_args(args, run.console, err) || check_folder("calibration", args->calibration, err) ||
        check_folder("hot-set", args->session.caching.hot_set, err))
        goto done;
    if (!args->convert && refuse_checkpoint(args->session.model, err))
        goto done;
    if (args->convert) {
        if (decode_convert(&converted, args->session.model, args->session.threads, run.console, err))
            goto done;
        mine.session.model = converted.data;
    }
    if (open_model(&run, err) || open_flows(&run, err))
        goto done;
    signals_gentle();
    rc = (run.chat ? converse : decode_prompts)(&run, &ended, err) || decode_ranks_meet(&run.ranks, err) ? -1
       : summarise(&run, err) ? -1 : ended ? (run.chat ? leave_chat : close_early)(&run, err) : close_outputs(&run, err);
done:
    signals_harsh();
    if (rc && run.texts.recorder.writer && run.texts.finished && strcmp(args->stream, "-")) {
        const struct err fault = *err;
        writer_abort(&run.texts.recorder.writer, &fault);
        add_continuation_hint(&run, err);
    }
    writer_abort(&run.texts.recorder.writer, err);
    output_discard(&run.texts.text);
    rc = decode_ranks_end(&run.ranks, rc, console, err);
    decode_resume_close(&run.texts.resume);
    prompts_close(&run.texts.prompts);
    probe_close(&run.texts.probe);
    texts_free(&run.texts);
    pool_close(&run.texts.pool);
    budget_close(&run.budget);
    auto_drafts_free(&run.drafts);
    text_free(&run.options);
    text_free(&run.resumed);
    text_free(&converted);
    text_free(&run.why);
    session_close(&run.session);
    decode_ranks_close(&run.ranks);
    return rc;
}

static const struct subcommand subcommands[] = {
    {.summary = "decode prompts, with drafts that leave the text as it is", .options = options,
     .rules = rules, .operands = operands,
     .console = CONSOLE_QUIET | CONSOLE_VERBOSE | CONSOLE_PROGRESS, .args_bytes = sizeof(struct decode_args),
     .defaults = &defaults, .run = decode},
    {.run = NULL}};

static const struct command command = {"moe-decode", "decode prompts, faster by speculation", subcommands,
                                      job_ranks_leave_fault_to_first};

int main(int argc, char **argv)
{
    return cli_main(argc, argv, &command);
}
