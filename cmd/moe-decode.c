/* moe-decode: decodes prompts, with drafts that make it faster and leave the text as it is.
 *
 * Reads:  a model; prompts (files, -p, or standard input); a rank stream when a budget asks for one
 * Writes: text, or JSON lines with --json; a decode stream with --stream
 * Exit:   0 done, 2 trouble */
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/progress.h"
#include "common/base/text.h"
#include "common/cli/command.h"
#include "common/decode/budget.h"
#include "common/decode/decode.h"
#include "common/decode/probe.h"
#include "common/decode/prompts.h"
#include "common/decode/record.h"
#include "common/decode/session.h"
#include "common/decode/settings.h"
#include "common/stream/writer.h"

struct decode_args {
    struct session_options session;
    struct session_prompts prompts;
    struct decode_settings settings;
    const char *output, *stream;
    int record, record_length;
    bool json, force;
    struct strings files;
};

enum { RECORD_NONE, RECORD_ROUTE, RECORD_DRAFTS };
static const char *const record_words[] = {"none", "route", "drafts", NULL};

static const struct opt options[] = {
    SESSION_OPTIONS(struct decode_args, session),
    SESSION_PROMPT_OPTIONS(struct decode_args, prompts),
    DECODE_OPTIONS(struct decode_args, settings),
    OPT_OUTPUT('o', "output", struct decode_args, output, "write the text to FILE"),
    OPT_FLAG(0, "json", struct decode_args, json, "write one JSON object a prompt in place of text"),
    OPT_OUTPUT(0, "stream", struct decode_args, stream, "write the decode stream to FILE; - is standard output, without text"),
    OPT_CHOICE(0, "record", struct decode_args, record, record_words, "put this, too, into the stream's iterations"),
    OPT_COUNT(0, "record-length", struct decode_args, record_length, 1, DRAFT_LENGTH_MAX,
              "record drafts of up to N tokens, -K at least; 8, or -K where that is more"),
    OPT_FLAG(0, "force", struct decode_args, force, "use a ranking of a model with another tokenizer or vocabulary"),
    OPT_END};

static const struct operand operands[] = {OPERAND_ANY("PROMPTS", struct decode_args, files), OPERAND_END};

static const struct decode_args defaults = {.settings = DECODE_DEFAULTS};

/* One run of the command: what is open, and the prompt that is being decoded. */
struct run {
    const struct decode_args *args;
    const struct console *console;
    struct session *session;
    struct prompts *prompts;
    struct budget *budget;
    const char *departure;                  /* decode_departure's */
    struct text why;
    struct decoder *decoder;
    struct probe *probe;                    /* NULL: drafts are not recorded */
    struct output *text;                    /* NULL: standard output holds the stream */
    struct decode_recorder recorder;        /* without a writer: no stream was asked for */
    struct progress bar;
    struct prompt prompt;
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
    if (!failed && prompt->turns > 1)
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
    return decode_record_draft(&((struct run *)context)->recorder, draft, err);
}

/* What comes when an answer is complete. */
static int finish(struct run *run, const struct decode_prompt *prompt, const struct decode_result *result, struct err *err)
{
    if (run->probe && probe_run(run->probe, prompt, result, see_draft, run, err))
        return -1;
    if (run->recorder.writer && decode_record_done(&run->recorder, &run->prompt, result, err))
        return -1;
    run->recorder.sequence++;
    if (!run->text)
        return 0;
    if ((run->args->json && write_json(run, result, err)) || (!run->args->json && !result->text && write_ids(run, result, err)))
        return -1;
    return output_write(run->text, "\n", 1, err) || output_flush(run->text, err) ? -1 : 0;
}

/* All turns of one prompt. */
static int decode_prompt(struct run *run, struct err *err)
{
    const struct decode_sink sink = {.context = run, .begin = see_begin, .iteration = see_iteration, .text = see_text};
    struct decode_result result;
    int more;
    do {
        const struct decode_prompt prompt = {.token = run->prompt.tokens.ids, .tokens = run->prompt.tokens.n,
                                             .max_tokens = run->prompt.max_tokens, .sequence = run->recorder.sequence,
                                             .task = run->prompt.task};
        if (decoder_run(run->decoder, &prompt, &sink, &result, err))
            return err->code == ERR_INPUT ? err_at(err, "%s", run->prompt.place) : -1;
        if (finish(run, &prompt, &result, err))
            return -1;
        more = result.text ? prompt_next_turn(run->prompts, &run->prompt, result.text, result.text_bytes, err) : 0;
    } while (more > 0);
    return more;
}

static int decode_prompts(struct run *run, struct err *err)
{
    bool terminal = run->text && output_is_terminal(run->text);
    int more, rc = 0;
    if (!terminal || run->console->progress == PROGRESS_ALWAYS)
        console_progress(run->console, &run->bar, "tokens", 0);
    while (!rc && (more = prompts_next(run->prompts, &run->prompt, err)) != 0) {
        rc = more < 0 || decode_prompt(run, err) ? -1 : 0;
        if (more > 0)
            prompt_free(&run->prompt);
    }
    progress_end(&run->bar);
    return rc;
}

/* Of the longest drafts that are recorded: the policy of the run must be one that can be replayed over them. */
static int record_length(const struct decode_args *args)
{
    if (args->record_length)
        return args->record_length;
    return args->settings.draft_length > PROBE_LENGTH_DEFAULT ? args->settings.draft_length : PROBE_LENGTH_DEFAULT;
}

static int open_model(struct run *run, struct err *err)
{
    const struct decode_args *args = run->args;
    const struct budget_options options_of_budget = budget_options_of(&args->settings, args->force);
    struct stream_model model;
    struct text note = {0};
    int rows;
    if (decode_rows(&args->settings, args->record == RECORD_DRAFTS, &rows, err) ||
        session_open(&run->session, &args->session, 0, rows, err))
        return -1;
    session_tell(run->session, run->console);
    if (run->session->chat_fault.code && !args->prompts.chat_template)
        console_note(run->console, "%s: no chat: %s", args->session.model, run->session->chat_fault.text);
    session_stream_model(run->session, &model);
    int rc = budget_open(&run->budget, &options_of_budget, &model, &note, err);
    console_notes(run->console, &note);
    text_free(&note);
    if (rc || decode_departure(&args->settings, run->budget, &run->departure, &run->why, err))
        return -1;
    if (run->departure && isatty(STDERR_FILENO))
        console_note(run->console, "%s: %s", run->departure, run->why.data);
    const struct decoder_setup setup = {.engine = run->session->engine, .tokenizer = run->session->tokenizer,
                                        .settings = &args->settings, .budget = run->budget,
                                        .on_device = true,
                                        .want_drafts = args->record == RECORD_DRAFTS};
    if (decoder_open(&run->decoder, &setup, err))
        return -1;
    if (decoder_place(run->decoder))
        console_detail(run->console, "iterations: %s", decoder_place(run->decoder));
    if (args->record == RECORD_DRAFTS && probe_open(&run->probe, run->decoder, &setup, record_length(args), err))
        return err_at(err, "--record drafts");
    return 0;
}

static int open_stream(struct run *run, struct err *err)
{
    struct header header = {0};
    int rc = -1;
    if (session_header(run->session, STREAM_DECODE, run->console, run->args->settings.seed, &header, err))
        return -1;
    if ((run->budget && run->budget->source.kind != STREAM_ANY && header_derive(&header, &run->budget->source, err)) ||
        (run->departure && header_label(&header, run->departure, run->why.data, err)))
        goto done;
    if (writer_open(&run->recorder.writer, run->args->stream, &header, err))
        goto done;
    run->recorder.routes = run->args->record == RECORD_ROUTE;
    run->recorder.flush = true;
    rc = decode_record_machine(&run->recorder, run->session, run->decoder, err);
done:
    header_free(&header);
    return rc;
}

static int check_args(const struct decode_args *args, const struct console *console, struct err *err)
{
    bool from_input = !args->files.count && !args->prompts.texts.count;
    if (args->record && !args->stream)
        return err_set(err, ERR_INPUT, "--record: there is no stream to put it into; add --stream FILE");
    if (args->record_length && args->record != RECORD_DRAFTS)
        return err_set(err, ERR_INPUT, "--record-length: no drafts are recorded; add --record drafts");
    if (args->record_length && args->settings.tree)
        return err_set(err, ERR_INPUT, "--record-length: trees are recorded in the shape that --tree gives; leave it out");
    if (args->record_length && args->record_length < args->settings.draft_length)
        return err_set(err, ERR_INPUT, "--record-length %d: the run itself drafts up to %d tokens (-K); record as many",
                       args->record_length, args->settings.draft_length);
    if (from_input && args->settings.rank && strcmp(args->settings.rank, "-") == 0)
        return err_set(err, ERR_INPUT, "--rank: standard input holds the ranking; give prompts as a file or with -p");
    if (from_input && isatty(STDIN_FILENO))
        console_note(console, "reading prompts from the terminal, JSON lines or one text, up to Ctrl-D; -p TEXT gives one");
    return 0;
}

static int decode(const void *arguments, const struct console *console, struct err *err)
{
    const struct decode_args *args = arguments;
    struct run run = {.args = args, .console = console};
    bool stream_only = args->stream && strcmp(args->stream, "-") == 0 && !args->output;
    int rc = -1;
    if (check_args(args, console, err) || open_model(&run, err) ||
        session_open_prompts(&run.prompts, run.session, &args->prompts, &args->files, NULL, err) ||
        (args->stream && open_stream(&run, err)) ||
        (!stream_only && output_open(&run.text, args->output ? args->output : "-", err)) || decode_prompts(&run, err))
        goto done;
    if ((run.recorder.writer && writer_close(&run.recorder.writer, err)) || (run.text && output_commit(&run.text, err)))
        goto done;
    rc = 0;
done:
    writer_abort(&run.recorder.writer, err);
    output_discard(&run.text);
    prompts_close(&run.prompts);
    probe_close(&run.probe);
    decoder_close(&run.decoder);
    budget_close(&run.budget);
    text_free(&run.why);
    session_close(&run.session);
    return rc;
}

static const struct subcommand subcommands[] = {
    {.summary = "decode prompts, with drafts that leave the text as it is", .options = options, .operands = operands,
     .console = CONSOLE_QUIET | CONSOLE_VERBOSE | CONSOLE_PROGRESS, .args_bytes = sizeof(struct decode_args),
     .defaults = &defaults, .run = decode},
    {.run = NULL}};

static const struct command command = {"moe-decode", "decode prompts, faster by speculation", subcommands};

int main(int argc, char **argv)
{
    return cli_main(argc, argv, &command);
}
