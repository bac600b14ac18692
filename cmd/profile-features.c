#include "cmd/profile-features.h"

#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/cli/signals.h"
#include "common/instruments/features.h"
#include "common/instruments/profile.h"

static const char *const dtype_words[] = { "bf16", "f32", NULL };
static const enum dtype dtypes[] = { DTYPE_BF16, DTYPE_F32 };

enum { MASK_ANSWERS, MASK_ALL };
static const char *const mask_words[] = { "answers", "all", NULL };

enum { TURNS_WHOLE, TURNS_EACH };
static const char *const turns_words[] = { "whole", "each", NULL };

const struct opt features_options[] = {
    SESSION_OPTIONS(struct features_args, session),
    OPT_GROUP("States for training draft heads"),
    OPT_STRING(0, "layers", struct features_args, layers, "N,...,final|KIND",
               "record the states after these layers and after the final norm, or those that a head of this kind is trained "
               "on"),
    OPT_INPUT(0, "for", struct features_args, head, "record the states that the draft head FILE is trained on"),
    OPT_CHOICE(0, "dtype", struct features_args, dtype, dtype_words, "write states in this format"),
    OPT_GROUP("What to record"),
    OPT_COUNT('n', "max-tokens", struct features_args, settings.max_tokens, 0, 1 << 24,
              "generate an answer of up to N tokens for each prompt; the texts' own answers are ignored"),
    OPT_GROUP("States for training draft heads"),
    OPT_CHOICE(0, "mask", struct features_args, mask, mask_words, "mark these tokens for training: those of answers, or all"),
    OPT_CHOICE(0, "turns", struct features_args, turns, turns_words,
               "make a conversation with several answers one text, or one text per answer, which ends with that answer"),
    OPT_COUNT(0, "cut", struct features_args, cut, 1, 1 << 24, "use only the first N tokens of a text"),
    OPT_FLOAT(0, "validation", struct features_args, validation, 0, 1, "SHARE",
              "use about SHARE of the prompts for validation"),
    OPT_GROUP("What to record"),
    SESSION_SHARD_OPTION(struct features_args, prompts),
    DECODE_TEXT_OPTIONS(struct features_args, settings),
    SESSION_PROMPT_OPTIONS(struct features_args, prompts),
    OPT_GROUP("What to record"),
    OPT_FLAG(0, "text", struct features_args, text, "print the amount of data as a table, and compute no states; the default "
             "on a terminal"),
    OPT_OUTPUT('o', "output", struct features_args, output, "write the stream to FILE, not standard output"),
    OPT_GROUP("Other options"),
    OPT_FLAG(0, "force", struct features_args, force, "accept a head that was made for other weights of this shape"),
    OPT_END };

const struct opt_rule features_rules[] = {
    {OPT_NEEDS, "draft|draft-length|stop|ignore-eos|temperature|" SAMPLING_FILTERS, "max-tokens", "no answers are generated"},
    {OPT_EXCLUSIVE, "layers|for", NULL, NULL}, {OPT_NEEDS, "force", "for", "no head is named"},
    SESSION_RULES, DECODE_TEXT_RULES, OPT_RULES_END };

const struct operand features_operands[] = { OPERAND_ANY("TEXTS", struct features_args, inputs), OPERAND_END };

const struct features_args features_defaults = {.settings = DECODE_DEFAULTS_OF(0)};

/* Selects the states named by --layers or --for. */
static int choose_states(struct head_states *out, const struct features_args *args, const struct model *target,
                         struct err *err)
{
    const int layers = model_hparams(target)->layers;
    struct model *head = NULL;
    if (!args->head)
        return head_states_parse(out, args->layers ? args->layers : "final", layers, err) ? err_at(err, "--layers") : 0;
    enum head_kind kind;
    if (model_open_head(&head, args->head, err)) {
        if (!head_kind_by_name(args->head, &kind))
            return -1;
        err_clear(err);
        return err_set(err, ERR_INPUT, "--for %s: expected the file of a head; to record the states that any head of this "
                       "kind reads, give --layers %s",
                       args->head,
                       args->head);
    }
    int rc = head_check_target(model_head(head), model_identity(target), args->force, err)
                 ? err_at(err, "%s", args->head) : 0;
    if (!rc)
        head_states_of(out, model_head(head));
    model_close(&head);
    return rc;
}

/* Appends a description such as "after layer 2 and the final norm". */
static int put_totals(struct text *out, const struct feature_profile_setup *setup, const struct examples_totals *totals,
                      struct err *err)
{
    const struct hparams *shape = model_hparams(setup->examples.session->model);
    const double bytes = (double)totals->tokens * setup->states.count * shape->hidden * (double)array_dtype_size(setup->dtype);
    if (text_printf(out, err, "%lld text%s, %lld for validation, of %lld tokens, %lld to be learnt; states ",
                    (long long)totals->texts, totals->texts == 1 ? "" : "s", (long long)totals->validation,
                    (long long)totals->tokens, (long long)totals->learnt) ||
        head_states_text(&setup->states, shape->layers, out, err) ||
        text_printf(out, err, " in %s: %.1f MB", array_dtype_name(setup->dtype), bytes / 1e6))
        return -1;
    return totals->left_out ? text_printf(out, err, "; left out, as cut before anything to be learnt: %lld",
                                          (long long)totals->left_out) : 0;
}

static int write_totals(const struct feature_profile_setup *setup, const struct feature_profile *profile, const char *path,
                        struct err *err)
{
    struct text body = {0};
    int rc = put_totals(&body, setup, feature_profile_totals(profile), err) || text_putc(&body, '\n', err) ||
             output_whole(path, &body, err) ? -1 : 0;
    text_free(&body);
    return rc;
}

static int print_totals(const struct console *console, const struct feature_profile_setup *setup,
                        const struct feature_profile *profile, struct err *err)
{
    struct text body = {0};
    int rc = put_totals(&body, setup, feature_profile_totals(profile), err);
    if (!rc)
        console_note(console, "%s", body.data);
    text_free(&body);
    return rc;
}

static int open_writer(struct writer **out, const struct session *session, const struct features_args *args,
                       const struct console *console, const char *path, struct err *err)
{
    struct header header = {0};
    int rc = session_header(session, STREAM_FEATURE, console, args->settings.seed, &header, err) ||
             session_header_part(&header, args->prompts.shard, err) ||
             writer_open(out, path, &header, err) ? -1 : 0;
    header_free(&header);
    return rc;
}

/* Ends after a signal: complete texts and counts are kept. */
static int close_early(struct writer **writer, const struct feature_profile_setup *setup, const struct feature_profile *profile,
                       const char *path, struct err *err)
{
    struct err reason = {0};
    err_clear(err);
    err_set(&reason, ERR_SIGNAL, "ended by %s after %lld texts", signals_name(),
            (long long)feature_profile_totals(profile)->texts);
    if (*writer ? writer_close_early(writer, reason.text, err) : write_totals(setup, profile, path, err))
        return -1;
    *err = reason;
    return -1;
}

static int open_texts(struct prompts **out, const struct session *session, const struct features_args *args,
                      const struct stop *stop, const struct console *console, struct err *err)
{
    struct session_prompts options = args->prompts;
    options.answers = args->settings.max_tokens ? PROMPTS_ASK_AGAIN : PROMPTS_ANSWERED;
    options.unanswered = args->mask == MASK_ALL;
    options.each = args->turns == TURNS_EACH;
    return session_open_prompts(out, session, &options, &args->inputs, stop, console, err);
}

int profile_features(const void *arguments, const struct console *console, struct err *err)
{
    const struct features_args *args = arguments;
    const char *path = args->output ? args->output : "-";
    bool printed = args->text || (!strcmp(path, "-") && isatty(STDOUT_FILENO));
    struct progress bar = {0};
    struct feature_profile_setup setup = {
        .examples = {.settings = &args->settings, .all = args->mask == MASK_ALL, .cut = args->cut,
                     .validation = args->validation, .stop = signals_stop()},
        .dtype = dtypes[args->dtype], .bar = &bar};
    struct session *session = NULL;
    struct prompts *prompts = NULL;
    struct writer *writer = NULL;
    struct feature_profile *profile = NULL;
    bool ended;
    int rows, rc = -1;
    if (session_check_model(&args->session, &args->inputs, err) ||
        caching_check_drafts(&args->session.caching, &args->settings.draft, false, err) ||
        session_check_shard(&args->prompts, &args->inputs, err) ||
        decode_rows(&args->settings, false, &rows, err) || session_open(&session, &args->session, 0, rows, err) ||
        choose_states(&setup.states, args, session->model, err) ||
        open_texts(&prompts, session, args, setup.examples.stop, console, err))
        goto done;
    session_print(session, console);
    setup.examples.session = session;
    if (decode_settings_print(&args->settings, console, err))
        goto done;
    if (!printed && open_writer(&writer, session, args, console, path, err))
        goto done;
    setup.writer = writer;
    console_progress(console, &bar, "tokens", 0);
    if (feature_profile_open(&profile, &setup, err) || feature_profile_check(profile, prompts, err))
        goto done;
    signals_gentle();
    session_note_terminal(&args->prompts, &args->inputs, console);
    if (feature_profile_run(profile, prompts, &ended, err))
        goto done;
    progress_end(&bar);
    rc = ended ? close_early(&writer, &setup, profile, path, err)
       : printed ? write_totals(&setup, profile, path, err) : writer_close(&writer, err);
    if (!rc && !printed)
        rc = print_totals(console, &setup, profile, err);
done:
    signals_harsh();
    progress_end(&bar);
    writer_abort(&writer, err);
    feature_profile_close(&profile);
    prompts_close(&prompts);
    session_close(&session);
    return rc;
}
