/* moe-decode: decodes prompts, with drafts that make it faster and leave the text as it is.
 *
 * Reads:  a model; prompts (files, -p, or standard input); a rank stream when a budget asks for one; a decode stream to go on
 *         from
 * Writes: text, or JSON lines with --json; a decode stream with --stream
 * Exit:   0 done, 1 some prompts were passed over (--keep-going), 2 trouble */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "cmd/decode-chat.h"
#include "cmd/decode-convert.h"
#include "cmd/decode-summary.h"
#include "common/base/file.h"
#include "common/base/json.h"
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
    int record, record_length;
    bool json, keep_going, force, convert;
    struct strings files;
};

enum { RECORD_NONE, RECORD_ROUTE, RECORD_DRAFTS };
static const char *const record_words[] = {"none", "route", "drafts", NULL};

static const struct opt options[] = {
    SESSION_OPTIONS(struct decode_args, session),
    CACHING_OPTION_HOT_SET(struct decode_args, session.caching),
    OPT_FLAG(0, "convert", struct decode_args, convert,
             "let --model be a checkpoint, as of moe-convert, and keep what it becomes for later runs"),
    SESSION_PROMPT_OPTIONS(struct decode_args, prompts),
    DECODE_OPTIONS(struct decode_args, settings),
    OPT_GROUP("Output"),
    OPT_OUTPUT(0, "calibration", struct decode_args, calibration,
               "begin with the acceptance estimates of earlier runs, as FILE says, and keep it up to date"),
    OPT_OUTPUT('o', "output", struct decode_args, output, "write the text to FILE"),
    OPT_FLAG(0, "json", struct decode_args, json, "write one JSON object a prompt in place of text"),
    OPT_OUTPUT_KEPT(0, "stream", struct decode_args, stream,
                    "write the decode stream to FILE; - is standard output, without text"),
    OPT_CHOICE(0, "record", struct decode_args, record, record_words, "put this, too, into the stream's iterations"),
    OPT_COUNT(0, "record-length", struct decode_args, record_length, 1, DRAFT_LENGTH_MAX,
              "record drafts of up to N tokens, -K at least; 8, or -K where that is more"),
    OPT_FLAG(0, "keep-going", struct decode_args, keep_going, "pass over prompts that are no good, and go on with the next"),
    OPT_RESUMED(0, "resume", struct decode_args, resume,
                "take finished texts from the decode stream FILE of a run that did not end, and decode the rest"),
    OPT_GROUP("Other options"),
    OPT_FLAG(0, "force", struct decode_args, force, "use a ranking of a model with another tokenizer or vocabulary"),
    OPT_END};

static const struct opt_rule rules[] = {
    {OPT_NEEDS, "record|reference", "stream", "there is no stream to put it into"},
    {OPT_NEEDS, "record-length", "record", "no drafts are recorded"},
    {OPT_EXCLUDES, "record-length", "tree", "trees are recorded in the shape that --tree gives"},
    {OPT_NEEDS, "calibration", "draft|settings", "there is no drafter to estimate"},
    {OPT_NEEDS, "force", "rank", "there is no ranking to use"},
    SESSION_RULES, DECODE_RULES, OPT_RULES_END};

static const struct operand operands[] = {OPERAND_ANY("PROMPTS", struct decode_args, files), OPERAND_END};

static const struct decode_args defaults = {.settings = DECODE_DEFAULTS};

static bool reads_input(const struct decode_args *args) { return !args->files.count && !args->prompts.texts.count; }

/* One run of the command: what is open, and the prompt that is being decoded. */
struct run {
    struct decode_args *args;
    struct auto_drafts drafts;
    const struct console *console;
    struct session *session;
    struct prompts *prompts;
    struct budget *budget;
    const char *departure;                  /* decode_lossless_label's */
    struct text why;
    struct decoder *decoder;
    struct probe *probe;                    /* NULL: drafts are not recorded */
    struct output *text;                    /* NULL: standard output holds the stream */
    struct decode_recorder recorder;        /* without a writer: no stream was asked for */
    struct progress bar;
    struct prompt prompt;
    struct text options;                    /* decode_options */
    struct decode_described machine;
    struct decode_resume *resume;           /* NULL: none */
    struct text resumed;                    /* the file that it is read from */
    bool in_place;                          /* the stream of this run replaces the one that is resumed */
    int decoded;                            /* texts that were begun here, not taken over */
    const struct stop *stop;
    int texts, failed;                      /* finished texts; prompts that were passed over */
    bool chat;                              /* a conversation at the terminal */
    struct decode_summary summary;
};

static int see_begin(void *context, double prefill_s, struct err *err)
{
    struct run *run = context;
    return run->recorder.writer ? decode_record_begin(&run->recorder, &run->prompt, prefill_s, err) : 0;
}

static int see_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    struct run *run = context;
    progress_step(&run->bar, (uint64_t)iteration->n_emitted);
    decode_summary_iteration(&run->summary, iteration);
    return run->recorder.writer ? decode_record_iteration(&run->recorder, iteration, err) : 0;
}

static int see_text(void *context, const char *bytes, size_t count, struct err *err)
{
    struct run *run = context;
    if (!run->text || run->args->json)
        return 0;
    return output_write(run->text, bytes, count, err) || output_flush(run->text, err) ? -1 : 0;
}

/* NULL: no memory. */
static json_t *result_to_json(const struct prompt *prompt, const struct decode_result *result)
{
    static const char *const reasons[] = {[FINISH_STOP] = "stop", [FINISH_LENGTH] = "length", [FINISH_ABORT] = "abort"};
    json_t *tokens = json_array();
    json_t *object = json_pack("{s:s, s:s*, s:i, s:o*}", "id", prompt->id, "task", prompt->task, "prompt_tokens",
                               prompt->tokens.n, "tokens", tokens);
    int failed = !tokens || !object;
    for (int i = 0; !failed && i < result->tokens; i++)
        failed = json_array_append_new(tokens, json_integer(result->token[i]));
    if (!failed && result->text)
        failed = json_object_set_new(object, "text", json_stringn(result->text, result->text_bytes));
    if (!failed && prompt->turns != 1)
        failed = json_object_set_new(object, "turn", json_integer(prompt->turn));
    json_t *counts = json_pack("{s:s, s:i, s:i, s:i, s:i}", "finish_reason", reasons[result->finish], "iterations",
                               result->iterations, "num_drafts", result->drafts, "num_draft_tokens", result->draft_tokens,
                               "num_accepted_tokens", result->accepted_tokens);
    if (failed || !counts || json_object_update(object, counts)) {
        json_decref(object);
        object = NULL;
    }
    json_decref(counts);
    return object;
}

static int write_json(struct run *run, const struct decode_result *result, struct err *err)
{
    json_t *object = result_to_json(&run->prompt, result);
    char *line = object ? json_text(object, JSON_COMPACT, err) : NULL;
    int rc = line ? output_write(run->text, line, strlen(line), err) : err_memory(err);
    mem_free(&line);
    json_decref(object);
    return rc;
}

/* Without a tokenizer the answer is ids. */
static int write_ids(struct run *run, const struct decode_result *result, struct err *err)
{
    struct text line = {0};
    int rc = 0;
    for (int i = 0; !rc && i < result->tokens; i++)
        rc = text_printf(&line, err, i ? " %d" : "%d", (int)result->token[i]);
    if (!rc && line.length)
        rc = output_write(run->text, line.data, line.length, err);
    text_free(&line);
    return rc;
}

static int see_draft(void *context, const struct decode_draft *draft, struct err *err)
{
    if (stop_asked(((struct run *)context)->stop))
        return err_set(err, ERR_SIGNAL, "interrupted");
    return decode_record_draft(&((struct run *)context)->recorder, draft, err);
}

/* A text as it goes to standard output or its file, with its newline; what was already written of it is left out. */
static int write_answer(struct run *run, const struct decode_result *result, bool written, struct err *err)
{
    int rc = 0;
    if (!run->text)
        return 0;
    if (run->args->json)
        rc = write_json(run, result, err);
    else if (!result->text)
        rc = write_ids(run, result, err);
    else if (!written)
        rc = output_write(run->text, result->text, result->text_bytes, err);
    return rc || output_write(run->text, "\n", 1, err) || output_flush(run->text, err) ? -1 : 0;
}

/* What comes when an answer is complete, or was ended before that. */
static int finish(struct run *run, const struct decode_prompt *prompt, const struct decode_result *result, struct err *err)
{
    struct decode_result written = *result;
    struct err fault = {0};
    if (run->probe && result->finish != FINISH_ABORT && probe_run(run->probe, prompt, result, see_draft, run, &fault)) {
        if (fault.code != ERR_SIGNAL) {
            *err = fault;
            return -1;
        }
        written.finish = FINISH_ABORT;             /* without all its drafts the text is not done, as far as the stream goes */
    }
    if (run->recorder.writer && (decode_record_done(&run->recorder, &run->prompt, &written, err) ||
                                 (written.finish != FINISH_ABORT && writer_keep(run->recorder.writer, err))))
        return -1;
    run->recorder.sequence++;
    run->texts += written.finish != FINISH_ABORT;
    decode_summary_add(&run->summary, run->prompt.tokens.n, result);
    return write_answer(run, result, true, err);
}

static struct decode_prompt text_of(const struct run *run)
{
    return (struct decode_prompt){.token = run->prompt.tokens.ids, .tokens = run->prompt.tokens.n,
                                  .max_tokens = run->prompt.max_tokens, .sequence = run->recorder.sequence,
                                  .task = run->prompt.task};
}

static int decode_text(struct run *run, struct decode_result *result, struct err *err)
{
    const struct decode_sink sink = {.context = run, .begin = see_begin, .iteration = see_iteration, .text = see_text};
    const struct decode_prompt prompt = text_of(run);
    run->decoded++;
    if (decoder_run(run->decoder, &prompt, &sink, result, err))
        return err->code == ERR_INPUT ? err_at(err, "%s", run->prompt.where) : -1;
    return finish(run, &prompt, result, err);
}

/* A text that the stream of an earlier run has. */
static int take_text(struct run *run, struct decode_result *result, struct err *err)
{
    const struct decode_prompt prompt = text_of(run);
    struct decode_taken taken;
    bool flush = run->recorder.flush;
    run->recorder.flush = false;
    if (decode_resume_take(run->resume, &run->prompt, &run->recorder, &taken, err))
        return -1;
    run->recorder.flush = flush;
    if (decoder_replay(run->decoder, &prompt, taken.token, taken.tokens, result, err))
        return err_at(err, "%s: %s", run->resumed.data, run->prompt.where);
    result->iterations = taken.iterations;
    result->drafts = taken.drafts;
    result->draft_tokens = taken.draft_tokens;
    result->accepted_tokens = taken.accepted_tokens;
    run->recorder.sequence++;
    run->texts++;
    /* Where the old stream is on the disk until this one replaces it, a signal need not spare a copy of its beginning. */
    if (run->recorder.writer && !run->in_place && writer_keep(run->recorder.writer, err))
        return -1;
    return write_answer(run, result, false, err);
}

/* A prompt that is no good, or a turn of one: an error, or passed over. */
static int pass_over(struct run *run, const char *id, struct err *err)
{
    if (!run->args->keep_going || err->code != ERR_INPUT)
        return -1;
    const struct err fault = *err;
    err_clear(err);
    run->failed++;
    console_fault(run->console, &fault);
    if (run->recorder.writer && decode_record_failed(&run->recorder, id, fault.text, err))
        return -1;
    if (!run->text || !run->args->json)
        return 0;
    struct text line = {0};
    int rc = json_line(&line, json_pack("{s:s*, s:s, s:s}", "id", id, "finish_reason", "error", "error", fault.text), err) ||
             output_write(run->text, line.data, line.length, err) || output_flush(run->text, err) ? -1 : 0;
    text_free(&line);
    return rc;
}

/* All turns of one prompt; ended: the run is to end before the last of them. */
static int decode_prompt(struct run *run, bool *ended, struct err *err)
{
    struct decode_result result;
    int more;
    do {
        const struct decode_prompt prompt = text_of(run);
        bool has = false;
        if (decoder_check(run->decoder, &prompt, err)) {
            err_at(err, "%s", run->prompt.where);
            return pass_over(run, run->prompt.id, err);
        }
        if (run->resume && decode_resume_has(run->resume, &run->prompt, &has, err))
            return -1;
        if ((has ? take_text : decode_text)(run, &result, err)) {
            *ended = err->code == ERR_SIGNAL;           /* amid the prompt */
            return *ended ? 0 : -1;
        }
        if ((*ended = result.finish == FINISH_ABORT))
            return 0;
        more = result.text ? prompt_next_turn(run->prompts, &run->prompt, result.text, result.text_bytes, err) : 0;
        if ((*ended = more > 0 && stop_asked(run->stop)))
            return 0;
    } while (more > 0);
    return more ? pass_over(run, run->prompt.id, err) : 0;
}

/* Until there are no more prompts, or the run is to end: then *ended. */
static int decode_prompts(struct run *run, bool *ended, struct err *err)
{
    bool terminal = run->text && output_is_terminal(run->text);
    int more = 1, rc = 0;
    *ended = false;
    if (!terminal || run->console->progress == PROGRESS_ALWAYS)
        console_progress(run->console, &run->bar, "tokens", 0);
    while (!rc && more && !*ended) {
        more = prompts_next(run->prompts, &run->prompt, err);
        if (more > 0 && stop_asked(run->stop))
            *ended = true;
        else if (more > 0)
            rc = decode_prompt(run, ended, err);
        else if (more < 0 && err->code == ERR_SIGNAL)
            *ended = true;
        else if (more < 0)
            rc = prompts_fault(run->prompts) ? pass_over(run, prompts_fault(run->prompts)->id, err) : -1;
        if (more > 0)
            prompt_free(&run->prompt);
    }
    progress_end(&run->bar);
    return rc;
}

static int check_turn(void *context, struct err *err)
{
    struct run *run = context;
    const struct decode_prompt prompt = text_of(run);
    return decoder_check(run->decoder, &prompt, err);
}

static int answer_turn(void *context, struct decode_result *result, struct err *err)
{
    return decode_text(context, result, err);
}

static int converse(struct run *run, bool *ended, struct err *err)
{
    const struct chat chat = {
        .console = run->console, .stop = run->stop, .prompts = run->prompts, .prompt = &run->prompt,
        .positions = engine_max_positions(run->session->engine), .max_tokens = run->args->settings.max_tokens,
        .context = run, .check = check_turn, .answer = answer_turn};
    int rc = chat_run(&chat, ended, err);
    prompt_free(&run->prompt);
    return rc;
}

/* Of the longest drafts that are recorded: the policy of the run must be one that can be replayed over them. */
static int record_length(const struct decode_args *args)
{
    if (args->record_length)
        return args->record_length;
    return args->settings.draft_length > PROBE_LENGTH_DEFAULT ? args->settings.draft_length : PROBE_LENGTH_DEFAULT;
}

/* The files attached to the model, which are inputs of this run. */
static int open_drafts(struct run *run, struct err *err)
{
    const struct attached *attached = &run->drafts.attached;
    if (auto_drafts_attach(&run->args->settings, &run->drafts, run->args->session.model, err) ||
        (attached->path && console_reads(run->console, "attached drafters", attached->path, err)))
        return -1;
    for (int i = 0; i < attached->count; i++)
        if (console_reads(run->console, "attached drafter", attached->file[i], err))
            return -1;
    return 0;
}

static int open_model(struct run *run, struct err *err)
{
    struct decode_args *args = run->args;
    const struct budget_options options_of_budget = budget_options_of(&args->settings, args->force);
    struct session_options session = args->session;
    struct stream_model model;
    struct text note = {0};
    int rows;
    if (open_drafts(run, err))
        return -1;
    session.beside = caching_files(&args->settings.draft);
    session.draft_length = decode_gamma(&args->settings);
    session.stop = run->stop;
    if (caching_check(&session.caching, err) ||
        caching_check_drafts(&session.caching, &args->settings.draft, args->settings.force_routes, err) ||
        decode_rows(&args->settings, args->record == RECORD_DRAFTS, &rows, err) ||
        session_open(&run->session, &session, 0, rows, err) ||
        auto_drafts_expand(&args->settings, &run->drafts, run->session->model, err))
        return -1;
    session_print(run->session, run->console);
    if (run->session->chat_fault.code && !args->prompts.chat_template)
        console_note(run->console, "%s: no chat: %s", args->session.model, run->session->chat_fault.text);
    session_stream_model(run->session, &model);
    int rc = budget_open(&run->budget, &options_of_budget, &model, &note, err);
    console_notes(run->console, &note);
    text_free(&note);
    if (rc || decode_lossless_label(&args->settings, run->budget, &run->session->caching, &run->departure, &run->why, err))
        return -1;
    if (run->departure && (run->console->verbose || isatty(STDERR_FILENO)))
        console_note(run->console, "%s: %s", run->departure, run->why.data);
    const struct decoder_setup setup = {.engine = run->session->engine, .tokenizer = run->session->tokenizer,
                                        .settings = &args->settings, .budget = run->budget,
                                         .caching = &run->session->caching, .on_device = true, .stop = run->stop,
                                         .keep = run->chat,
                                        .want_drafts = args->record == RECORD_DRAFTS};
    if (decoder_open(&run->decoder, &setup, err))
        return -1;
    if (args->calibration && decoder_read_calibration(run->decoder, args->calibration, model.source_sha256, err))
        return err_at(err, "--calibration");
    console_notes(run->console, decoder_notes(run->decoder));
    if (decoder_loop_device(run->decoder))
        console_detail(run->console, "iterations: %s", decoder_loop_device(run->decoder));
    for (int drafter = 0; drafter < args->settings.draft.count; drafter++)
        if (decoder_drafter_detail(run->decoder, drafter))
            console_detail(run->console, "%s: %s", args->settings.draft.items[drafter], decoder_drafter_detail(run->decoder,
                                                                                                               drafter));
    if (args->record == RECORD_DRAFTS && probe_open(&run->probe, run->decoder, &setup, record_length(args), err))
        return err_at(err, "--record drafts");
    return 0;
}

/* How far the stream of an earlier run is of use here. A stream that this run writes itself need not be there yet, so that one
 * command line serves the first run and all later ones. */
static int open_resume(struct run *run, struct header *header, struct err *err)
{
    const char *path = run->args->resume;
    if (leftover_find(&run->resumed, path, err))
        return -1;
    const bool found = run->resumed.length;
    run->in_place = run->args->stream && !strcmp(run->args->stream, path);
    if (!found && run->in_place) {
        console_note(run->console, "%s: no run left any finished text of it; all are decoded", path);
        return 0;
    }
    if (decode_resume_open(&run->resume, found ? run->resumed.data : path, header, &run->machine.machine, err))
        return -1;
    console_note(run->console, "%s: %d finished texts are taken over", path, decode_resume_count(run->resume));
    return !run->in_place && decode_resume_header(run->resume) ? header_derive(header, decode_resume_header(run->resume), err)
                                                               : 0;
}

static int judge(void *context, const struct prompt *prompt, struct err *err)
{
    struct run *run = context;
    const struct decode_prompt text = {.token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                       .max_tokens = prompt->max_tokens};
    if (run->resume && decode_resume_expect(run->resume, prompt, err))
        return -1;
    return decoder_check(run->decoder, &text, err);
}

/* Before hours go into the first ones. With --keep-going they are judged as they come. */
static int check_prompts(struct run *run, struct err *err)
{
    bool all;
    if (run->args->keep_going || run->chat)
        return 0;
    if (prompts_check(run->prompts, judge, run, &all, err))
        return -1;
    return all && run->resume ? decode_resume_checked(run->resume, err) : 0;
}

static int open_stream(struct run *run, const struct header *header, struct err *err)
{
    if (writer_open_kept(&run->recorder.writer, run->args->stream, header, err))
        return -1;
    if (writer_left(run->recorder.writer) && !run->resume)
        console_note(run->console, "%s: a run that did not end left texts; --resume %s would go on from them",
                     run->args->stream, run->args->stream);
    run->recorder.routes = run->args->record == RECORD_ROUTE;
    run->recorder.steps = run->args->record != RECORD_NONE;
    run->recorder.flush = true;
    return decode_record_machine(&run->recorder, &run->machine, err);
}

/* What this run is, as its stream says it; what an earlier one left; prompts; outputs. */
static int open_flows(struct run *run, struct err *err)
{
    const struct decode_args *args = run->args;
    bool stream_only = args->stream && strcmp(args->stream, "-") == 0 && !args->output;
    struct header header = {0};
    int rc = -1;
    if (decode_options(&run->options, &args->settings, engine_max_positions(run->session->engine), run->departure != NULL,
                       record_words[args->record], args->record == RECORD_DRAFTS ? record_length(args) : 0, err))
        return -1;
    decode_describe(&run->machine, run->session, run->decoder, run->options.data);
    if (session_header(run->session, STREAM_DECODE, run->console, args->settings.seed, &header, err))
        return -1;
    if ((run->budget && run->budget->source.kind != STREAM_ANY && header_derive(&header, &run->budget->source, err)) ||
        (run->departure && header_label(&header, run->departure, run->why.data, err)) ||
        (args->resume && open_resume(run, &header, err)) ||
        session_open_prompts(&run->prompts, run->session, &args->prompts, &args->files, run->stop, run->console, err) ||
        (run->chat && prompts_converse(run->prompts, &run->prompt, err)) || check_prompts(run, err) ||
        (args->stream && open_stream(run, &header, err)) ||
        (!stream_only && output_open(&run->text, args->output ? args->output : "-", err)))
        goto done;
    rc = 0;
done:
    header_free(&header);
    return rc;
}

/* Somebody sits there who can answer, too. */
static bool is_chat(const struct decode_args *args)
{
    return args->prompts.chat && reads_input(args) && isatty(STDIN_FILENO);
}

static int check_chat(const struct decode_args *args, struct err *err)
{
    const char *vain = args->resume ? "resume" : args->keep_going ? "keep-going" : args->prompts.field ? "field"
                     : args->prompts.whole ? "whole" : NULL;
    return vain ? err_set(err, ERR_INPUT, "--%s: of no effect in a conversation at the terminal; leave it out, or name a file",
                          vain) : 0;
}

static int check_args(const struct decode_args *args, const struct console *console, struct err *err)
{
    bool from_input = reads_input(args);
    if (args->record_length && args->record != RECORD_DRAFTS)
        return err_set(err, ERR_INPUT, "--record-length: no drafts are recorded; add --record drafts");
    if (args->record_length && args->record_length < args->settings.draft_length)
        return err_set(err, ERR_INPUT, "--record-length %d: the run itself drafts up to %d tokens (-K); record as many",
                       args->record_length, args->settings.draft_length);
    if (args->json && !args->output && args->stream && strcmp(args->stream, "-") == 0)
        return err_set(err, ERR_INPUT, "--json: standard output holds the stream; add -o FILE");
    if (args->resume && strcmp(args->resume, "-") == 0)
        return err_set(err, ERR_INPUT, "--resume: a stream is read twice; name a file");
    if (from_input && args->settings.rank && strcmp(args->settings.rank, "-") == 0)
        return err_set(err, ERR_INPUT, "--rank: standard input holds the ranking; give prompts as a file or with -p");
    if ((is_chat(args) && check_chat(args, err)) || session_check_model(&args->session, &args->files, err))
        return -1;
    if (from_input && !is_chat(args) && isatty(STDIN_FILENO))
        console_note(console, "reading prompts from the terminal, JSON lines or one text, up to Ctrl-D; -p TEXT gives one");
    return 0;
}

/* Writes the files that the next run begins with. */
static int keep_files(struct run *run, struct err *err)
{
    struct stream_model model;
    session_stream_model(run->session, &model);
    if (run->args->calibration && decoder_write_calibration(run->decoder, run->args->calibration, model.source_sha256, err))
        return err_at(err, "--calibration");
    return session_keep_hot_set(run->session, err);
}

/* The stream that is resumed is finished, and has all texts of this run already. */
static bool is_finished(const struct run *run)
{
    return run->in_place && run->resume && decode_resume_whole(run->resume) && !strcmp(run->resumed.data, run->args->stream) &&
           !run->decoded && !run->failed;
}

/* All prompts were decoded or passed over. A hot set that cannot be written costs neither texts nor stream. */
static int close_outputs(struct run *run, struct err *err)
{
    if (run->recorder.writer && is_finished(run)) {
        console_note(run->console, "%s: is finished, and stays as it is", run->args->stream);
        writer_abort(&run->recorder.writer, err);
    }
    if ((run->recorder.writer && writer_close(&run->recorder.writer, err)) ||
        (run->text && output_commit(&run->text, err)) || keep_files(run, err))
        return -1;
    if (run->resume && decode_resume_left(run->resume))
        console_note(run->console, "%s: %d of its texts were not among those of these prompts, or not in this order",
                     run->args->resume, decode_resume_left(run->resume));
    return run->failed ? err_set(err, ERR_ANSWER_NO, "%d prompt%s passed over, %d text%s there", run->failed,
                                 run->failed == 1 ? " was" : "s were", run->texts, run->texts == 1 ? " is" : "s are")
                       : 0;
}

/* On a terminal, or with -v: what a person wants to know of the run. */
static int summarise(const struct run *run, struct err *err)
{
    bool terminal = isatty(STDERR_FILENO) && isatty(STDOUT_FILENO);
    struct text line = {0};
    int rc = 0;
    if (terminal || run->console->verbose) {
        rc = decode_summary_put(&run->summary, decoder_drafters(run->decoder) != NULL, &line, err);
        if (!rc && line.length)
            console_note(run->console, "%s", line.data);
    }
    text_clear(&line);
    if (!rc && run->drafts.found && run->console->verbose) {
        const struct decode_settings *settings = &run->args->settings;
        rc = decode_summary_choice(&run->summary, &settings->draft, settings->policy ? settings->policy : "static", &line, err);
        if (!rc)
            console_note(run->console, "%s", line.data);
    }
    text_free(&line);
    return rc;
}

/* A person had enough: the conversation is whole as it is. */
static int leave_chat(struct run *run, struct err *err)
{
    return close_outputs(run, err) ? -1 : err_set(err, ERR_SIGNAL, "the conversation was ended by %s", signals_name());
}

/* Appends to the error how to go on from the stream that is kept. */
static void add_again(const struct run *run, struct err *err)
{
    const char *stream = run->args->stream, *more = reads_input(run->args) ? ", with the same prompts as input" : "";
    struct text line = {0};
    struct err full = {0};
    bool fits = !again_put(&line, run->console, 1, stream, NULL) &&
                strlen(err->text) + line.length + strlen(more) + 64 < sizeof full.text;
    for (size_t i = 0; fits && i < line.length; i++)
        fits = (unsigned char)line.data[i] >= ' ';
    if (fits)
        err_set(&full, err->code, "%s; this goes on from there%s: %s", err->text, more, line.data);
    else
        err_set(&full, err->code, "%.300s; the same command line with --resume %.300s goes on from there%s", err->text, stream,
                more);
    *err = full;
    text_free(&line);
}

/* A signal came: what there is stays, and says that it is not all. */
static int close_early(struct run *run, struct err *err)
{
    bool file = run->recorder.writer && strcmp(run->args->stream, "-");
    struct err reason = {0};
    err_clear(err);
    err_set(&reason, ERR_SIGNAL, "ended by %s after %d texts", signals_name(), run->texts);
    if ((run->recorder.writer && writer_close_early(&run->recorder.writer, reason.text, err)) ||
        (run->text && output_commit(&run->text, err)) || keep_files(run, err))
        return -1;
    *err = reason;
    if (file)
        add_again(run, err);
    return -1;
}

/* Refuses a file that is written when all is decoded, if it could not be created then. */
static int check_folder(const char *option, const char *path, struct err *err)
{
    char folder[PATH_MAX];
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash || snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path) >= PATH_MAX)
        return 0;
    return !access(folder, W_OK) ? 0 : err_errno(err, "--%s %s: a file cannot be made in this folder; name another", option,
                                                 path);
}

static bool is_folder(const char *path)
{
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode);
}

static int decode(const void *arguments, const struct console *console, struct err *err)
{
    struct decode_args mine = *(const struct decode_args *)arguments;
    const struct decode_args *args = &mine;
    struct run run = {.args = &mine, .console = console, .stop = signals_stop(), .chat = is_chat(args)};
    bool ended;
    struct text converted = {0};
    int rc = -1;
    if (check_args(args, console, err) || check_folder("calibration", args->calibration, err) ||
        check_folder("hot-set", args->session.caching.hot_set, err))
        goto done;
    if (!args->convert && is_folder(args->session.model)) {
        err_set(err, ERR_INPUT, "%s: is a folder, not a model file; `moe-convert %s -o FILE` makes one of a checkpoint, or "
                "--convert does so here", args->session.model, args->session.model);
        goto done;
    }
    if (args->convert) {
        if (decode_convert(&converted, args->session.model, args->session.threads, console, err))
            goto done;
        mine.session.model = converted.data;
    }
    if (open_model(&run, err) || open_flows(&run, err))
        goto done;
    signals_gentle();
    rc = (run.chat ? converse : decode_prompts)(&run, &ended, err) ? -1
       : summarise(&run, err) ? -1 : ended ? (run.chat ? leave_chat : close_early)(&run, err) : close_outputs(&run, err);
done:
    signals_harsh();
    if (rc && run.recorder.writer && run.texts && strcmp(args->stream, "-")) {
        const struct err fault = *err;
        writer_abort(&run.recorder.writer, &fault);
        add_again(&run, err);
    }
    writer_abort(&run.recorder.writer, err);
    output_discard(&run.text);
    decode_resume_close(&run.resume);
    prompts_close(&run.prompts);
    probe_close(&run.probe);
    decoder_close(&run.decoder);
    budget_close(&run.budget);
    auto_drafts_free(&run.drafts);
    text_free(&run.options);
    text_free(&run.resumed);
    text_free(&converted);
    text_free(&run.why);
    session_close(&run.session);
    return rc;
}

static const struct subcommand subcommands[] = {
    {.summary = "decode prompts, with drafts that leave the text as it is", .options = options,
     .rules = rules, .operands = operands,
     .console = CONSOLE_QUIET | CONSOLE_VERBOSE | CONSOLE_PROGRESS, .args_bytes = sizeof(struct decode_args),
     .defaults = &defaults, .run = decode},
    {.run = NULL}};

static const struct command command = {"moe-decode", "decode prompts, faster by speculation", subcommands};

int main(int argc, char **argv)
{
    return cli_main(argc, argv, &command);
}
