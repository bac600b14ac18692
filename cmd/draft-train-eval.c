#include "cmd/draft-train-eval.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cmd/draft-train-inputs.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/instruments/evaluation.h"
#include "common/instruments/examples.h"
#include "common/report/eval_report.h"
#include "common/report/record_report.h"
#include "common/stream/writer.h"
#include "common/train/source_stream.h"
#include "common/train/source_target.h"

#define TREE_DEFAULT "dynamic:total=25,depth=6,topk=4"

const struct opt eval_options[] = {
    SESSION_OPTIONS(struct eval_args, session),
    OPT_GROUP("Evaluation"),
    OPT_COUNT('K', "draft-length", struct eval_args, length, 1, EVALUATION_LENGTH_MAX, "draft chains of N tokens"),
    OPT_STRING(0, "tree", struct eval_args, tree, "none|static:file=FILE|static:width=N,depth=N|dynamic:total=N,depth=N,topk=N",
               "also draft trees of this shape; " TREE_DEFAULT " if not given"),
    OPT_STRING(0, "drafting", struct eval_args, drafting, "stop=P,parallel=0|1,contrast=0|1,scaled=0|1",
               "use these settings of the drafter `head'"),
    OPT_COUNT('n', "max-tokens", struct eval_args, max_tokens, 1, 1 << 24,
              "generate an answer of up to N tokens for each prompt; the texts' own answers are ignored"),
    OPT_FLAG(0, "decode", struct eval_args, decode, "also decode the answers with the head, and count iterations"),
    OPT_FLAG(0, "validation", struct eval_args, validation, "use only the validation texts of a feature stream"),
    OPT_GROUP("Training"),
    OPT_COUNT(0, "cut", struct eval_args, cut, 2, 1 << 20, "use only the first N tokens of a text"),
    SESSION_PROMPT_OPTIONS(struct eval_args, prompts),
    OPT_GROUP("Evaluation"),
    OPT_FLAG(0, "text", struct eval_args, text, "write a table; the default on a terminal"),
    OPT_FLAG(0, "json", struct eval_args, json, "write JSON lines"),
    OPT_FLAG(0, "csv", struct eval_args, csv, "write CSV, one line per position"),
    OPT_OUTPUT('o', "output", struct eval_args, output, "write to FILE, not standard output"),
    OPT_END };

const struct opt_rule eval_rules[] = {
    {OPT_EXCLUSIVE, "text|json|csv", NULL, NULL}, {OPT_NEEDS, "decode", "max-tokens", "no answers are generated"},
    SESSION_RULES, OPT_RULES_END};

const struct operand eval_operands[] = {
    OPERAND_ONE("HEAD", struct eval_args, head), OPERAND_ANY("TEXTS", struct eval_args, inputs), OPERAND_END };

const struct eval_args eval_defaults = {.length = 5, .cut = 2048};

enum form { FORM_STREAM, FORM_TEXT, FORM_JSON, FORM_CSV };

struct eval {
    const struct eval_args *args;
    const struct console *console;
    struct session *session;
    struct evaluation *evaluation;
    struct train_texts *texts;
    struct train_source source;
    struct head_states points;
    struct evaluation_counts counts;
    struct stream_model target;
    const char *stream;                 /* the last feature stream; NULL: texts */
    int64_t without_answer;             /* texts without an answer */
    enum form form;
    struct progress bar;
};

static void close_eval(struct eval *e)
{
    evaluation_close(&e->evaluation);
    train_source_close(&e->source);
    train_texts_free(&e->texts);
    session_close(&e->session);
}

/* ---- texts ---- */

static int take_text(void *context, const struct example *text, struct err *err)
{
    struct eval *e = context;
    return train_texts_add(e->texts, text->token, text->mask, text->tokens, text->where, err);
}

static int read_texts(struct eval *e, struct err *err)
{
    struct session_prompts options = e->args->prompts;
    struct decode_settings settings = DECODE_DEFAULTS;
    const struct examples_setup setup = {.session = e->session, .settings = &settings,
                                         .cut = evaluation_limit(e->evaluation)};
    struct examples *examples = NULL;
    struct prompts *prompts = NULL;
    bool ended;
    settings.max_tokens = e->args->max_tokens;
    options.answers = e->args->max_tokens ? PROMPTS_ASK_AGAIN : PROMPTS_ANSWERED;
    int rc = train_texts_new(&e->texts, err) ||
             session_open_prompts(&prompts, e->session, &options, &e->args->inputs, NULL, e->console, err) ||
             examples_open(&examples, &setup, err) || examples_check(examples, prompts, err) ||
             examples_run(examples, prompts, take_text, e, &ended, err) ? -1 : 0;
    if (!rc)
        e->without_answer = examples_totals(examples)->left_out;
    examples_close(&examples);
    prompts_close(&prompts);
    return rc;
}

static int open_stream(struct eval *e, const char *path, struct err *err)
{
    struct feature_source *features = NULL;
    struct text note = {0};
    session_stream_model(e->session, &e->target);
    const struct feature_source_setup setup = {
        .path = path, .target = &e->target, .states = e->points.count, .state = e->points.state,
        .cut = evaluation_limit(e->evaluation), .part = e->args->validation ? FEATURES_VALIDATION : FEATURES_ALL};
    int rc = feature_source_open(&features, &setup, &note, err);
    console_notes(e->console, &note);
    text_free(&note);
    return rc || source_stream_open(&e->source, &features, false, err) ? -1 : 0;
}

/* ---- counting ---- */

static int count_source(struct eval *e, struct err *err)
{
    const int limit = evaluation_limit(e->evaluation);
    struct train_text text;
    int more = 1;
    for (int64_t i = 0; e->source.texts < 0 || i < e->source.texts; i++) {
        if ((more = e->source.read(e->source.self, i, limit, &text, err)) <= 0)
            return more;
        const struct evaluation_text one = {text.token, text.mask, text.tokens, text.state};
        if (!memchr(text.mask, 1, (size_t)text.tokens))
            e->without_answer++;
        else if (evaluation_text(e->evaluation, &one, &e->counts, err))
            return err_at(err, "%s", text.name);
        progress_step(&e->bar, 1);
    }
    return 0;
}

/* Reads the streams in order, as if they were one. */
static int count_streams(struct eval *e, struct err *err)
{
    const struct strings *inputs = &e->args->inputs;
    for (int i = 0; i < (inputs->count ? inputs->count : 1); i++) {
        train_source_close(&e->source);
        if (open_stream(e, inputs->count ? inputs->items[i] : e->stream, err) || count_source(e, err))
            return -1;
    }
    return 0;
}

static int count_decoding(struct eval *e, struct err *err)
{
    for (int64_t i = 0; i < train_texts_count(e->texts); i++) {
        struct train_text text;
        int prompt = 0;
        train_texts_at(e->texts, i, &text);
        while (prompt < text.tokens && !text.mask[prompt])
            prompt++;
        if (evaluation_prompt(e->evaluation, text.token, prompt, e->args->max_tokens, &e->counts, err))
            return err_at(err, "%s", text.name);
        progress_step(&e->bar, 1);
    }
    return 0;
}

static int count_all(struct eval *e, struct err *err)
{
    if (!e->stream && read_texts(e, err))
        return -1;
    console_progress(e->console, &e->bar, "texts", e->stream ? 0 : (uint64_t)train_texts_count(e->texts));
    if (!e->stream && !e->args->decode &&
        source_target_open(&e->source, &e->texts, e->session->engine, &e->points, err))
        return -1;
    if (e->args->decode ? count_decoding(e, err) : e->stream ? count_streams(e, err) : count_source(e, err))
        return -1;
    progress_end(&e->bar);
    if (e->without_answer)
        console_note(e->console, "%lld text%s no answer within the first %d tokens; such texts are left out",
                     (long long)e->without_answer,
                     e->without_answer == 1 ? " has" : "s have", evaluation_limit(e->evaluation));
    return e->counts.texts ? 0 : err_set(err, ERR_INPUT, "there are no texts with answers to evaluate on; give texts that "
                                         "have answers");
}

/* ---- output ---- */

static int put_writer(void *writer, const struct record_kind *kind, const void *body, struct err *err)
{
    return writer_record(writer, kind, body, err);
}

static int write_stream(const struct header *header, const struct train_run *run, const struct train_eval *eval,
                        const char *path, struct err *err)
{
    struct writer *out = NULL;
    int rc = writer_open(&out, path, header, err) || put_writer(out, &train_run_kind, run, err) ||
             put_writer(out, &train_eval_kind, eval, err) || writer_close(&out, err) ? -1 : 0;
    writer_abort(&out, err);
    return rc;
}

/* Writes the records; with CSV only the evaluation, because a table has the columns of one kind of record. */
static int write_records(const struct header *header, const struct train_run *run, const struct train_eval *eval,
                         const char *path, enum show_form form, struct err *err)
{
    struct record_report report = {.header = header, .layer = -1};
    int rc = show_open(&report.show, path, form, err) ||
             (form == SHOW_JSON && record_report_put(&report, &train_run_kind, run, err)) ||
             record_report_put(&report, &train_eval_kind, eval, err) || show_close(&report.show, err) ? -1 : 0;
    show_discard(&report.show);
    return rc;
}

static int write_table(const char *name, const struct train_run *run, const struct train_eval *eval, const char *path,
                       struct err *err)
{
    struct text body = {0};
    int rc = eval_report(name, run, eval, &body, err) || output_whole(path, &body, err) ? -1 : 0;
    text_free(&body);
    return rc;
}

/* Returns the settings of the evaluation as JSON. */
static char *options_text(const struct eval *e, const struct model *head, struct err *err)
{
    const struct eval_args *a = e->args;
    char hex[65];
    sha256_hex(&model_identity(head)->index, hex);
    hex[16] = '\0';
    json_t *map = json_pack("{s:s, s:s, s:i, s:s, s:s, s:i, s:i}", "head", model_identity(head)->name, "index", hex,
                            "draft_length", a->length, "tree", a->tree ? a->tree : TREE_DEFAULT,
                            "drafting", a->drafting ? a->drafting : "", "cut", a->cut, "max_tokens", a->max_tokens);
    char *text = map ? json_text(map, JSON_COMPACT, err) : (err_memory(err), NULL);
    json_decref(map);
    return text;
}

static int64_t numbers_of(const struct model *head)
{
    int64_t numbers = 0;
    for (int i = 0; i < model_tensor_count(head); i++) {
        const struct tensor *tensor = model_tensor_at(head, i);
        numbers += (int64_t)tensor->outputs * tensor->inputs * tensor->count * (tensor->kind == TENSOR_EXPERTS ? 3 : 1);
    }
    return numbers;
}

static int write_result(struct eval *e, struct err *err)
{
    const struct eval_args *a = e->args;
    const char *path = a->output ? a->output : "-";
    struct evaluation_shares shares;
    struct train_eval eval = {.loss = NAN, .best = true,
                              .by = a->decode ? "decoding" : a->max_tokens ? "answers" : "text"};
    struct header header = {0};
    struct model *head = NULL;
    char *options = NULL;
    int rc = -1;
    if (model_open_head(&head, a->head, err) || !(options = options_text(e, head, err)) ||
        session_header(e->session, STREAM_TRAIN, e->console, 0, &header, err))
        goto done;
    const struct train_run run = {head_kind_name(model_head(head)->kind), numbers_of(head), 0, options};
    evaluation_record(e->evaluation, &e->counts, &shares, &eval);
    rc = e->form == FORM_STREAM ? write_stream(&header, &run, &eval, path, err)
       : e->form == FORM_TEXT ? write_table(a->head, &run, &eval, path, err)
       : write_records(&header, &run, &eval, path, e->form == FORM_JSON ? SHOW_JSON : SHOW_CSV, err);
done:
    header_free(&header);
    mem_free(&options);
    model_close(&head);
    return rc;
}

/* ---- the command ---- */

static int check_args(struct eval *e, struct err *err)
{
    const struct eval_args *a = e->args;
    const bool screen = !a->output && isatty(STDOUT_FILENO);
    if (!a->session.model)
        return err_set(err, ERR_INPUT, "no model is given; name the target model with -m FILE");
    e->form = a->json ? FORM_JSON : a->csv ? FORM_CSV : a->text || screen ? FORM_TEXT : FORM_STREAM;
    if (inputs_find_stream(&a->inputs, &a->prompts.texts, &e->stream, err))
        return -1;
    if (e->stream && a->max_tokens)
        return err_set(err, ERR_INPUT, "-n: %s is a feature stream, which already contains answers; leave -n out, or make a "
                       "stream of the model's own answers with moe-profile features -n", e->stream);
    return a->validation && !e->stream
        ? err_set(err, ERR_INPUT, "--validation: only feature streams mark validation texts, and the inputs are texts; leave "
                  "it out") : 0;
}

static int open_evaluation(struct eval *e, struct err *err)
{
    const struct eval_args *a = e->args;
    const char *tree = !a->tree ? TREE_DEFAULT : strcmp(a->tree, "none") ? a->tree : NULL;
    int rows;
    if (evaluation_rows(tree, &rows, err) || session_open(&e->session, &a->session, 0, rows, err))
        return -1;
    session_print(e->session, e->console);
    const struct evaluation_setup setup = {
        .engine = e->session->engine, .tokenizer = e->session->tokenizer, .head = a->head, .drafting = a->drafting,
        .length = a->length, .tree = tree, .limit = a->cut, .decoding = a->decode};
    if (evaluation_open(&e->evaluation, &setup, err))
        return -1;
    const struct feature_request *states = evaluation_states(e->evaluation);
    e->points.count = states->count;
    memcpy(e->points.state, states->layer, (size_t)states->count * sizeof *states->layer);
    return 0;
}

int draft_train_eval(const void *arguments, const struct console *console, struct err *err)
{
    struct eval e = {.args = arguments, .console = console};
    int rc = check_args(&e, err) || open_evaluation(&e, err) || count_all(&e, err) || write_result(&e, err) ? -1 : 0;
    progress_end(&e.bar);
    close_eval(&e);
    return rc;
}
