#include "cmd/draft-train-data.h"

#include <string.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/cli/signals.h"
#include "common/instruments/examples.h"
#include "common/train/source_joined.h"
#include "common/train/source_stream.h"
#include "common/train/source_target.h"

int train_data_check(const struct train_data_options *options, const struct session_options *target, const char *stream,
                     struct err *err)
{
    const struct session_prompts *p = &options->prompts;
    const struct { const char *name; bool given; } of_texts[] = {
        {"max-tokens", options->settings.max_tokens > 0}, {"validation", options->validation > 0}, {"field", p->field},
        {"chat", p->chat}, {"whole", p->whole}, {"parse-special", p->parse_special}, {"chat-template", p->chat_template},
        {"template-arg", p->template_args.count > 0}, {"context", target->context > 0}, {"kv-dtype", target->cache > 0},
        {"activations", target->activations > 0}, {"cache-experts", target->caching.experts}};
    for (size_t i = 0; stream && i < sizeof of_texts / sizeof *of_texts; i++)
        if (of_texts[i].given)
            return err_set(err, ERR_INPUT, "--%s: applies to files of texts, and %s is a feature stream; leave it out",
                           of_texts[i].name, strcmp(stream, "-") ? stream : "standard input");
    return examples_check_settings(&options->settings, err) ||
           caching_check_drafts(&target->caching, &options->settings.draft, false, err) ? -1 : 0;
}

static int count_words(struct train_data *data, int cut, struct err *err)
{
    for (int64_t i = 0; i < data->learnt.texts; i++) {
        struct train_text text;
        if (data->learnt.outline(data->learnt.self, i, cut, &text, err) < 0)
            return -1;
        for (int t = 0; t < text.tokens; t++)
            data->count[text.token[t]] += text.mask[t];
    }
    return 0;
}

static void note_unanswered(const struct train_data_setup *setup, const char *from, int64_t texts)
{
    if (texts)
        console_note(setup->console, "%s%s%lld text%s no answer within the first %d tokens; such texts are left out", from,
                     from[0] ? ": " : "",
                     (long long)texts, texts == 1 ? " has" : "s have", setup->options->cut);
}

/* ---- a stream ---- */

/* Returns the folder of the output head, for temporary copies of input that is not a file. */
static int folder_of(char **out, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == path ? 1 : slash ? (size_t)(slash - path) : 1;
    if (!(*out = mem_copy(slash ? path : ".", length, err)))
        return -1;
    return 0;
}

/* Opens one stream: its texts for training, and those kept for validation. */
static int open_shard(struct train_data *data, const struct train_data_setup *setup, const char *path,
                      struct train_source *learnt, struct train_source *apart, struct digest128 *digest, struct err *err)
{
    struct text note = {0};
    struct feature_source *features = NULL, *kept;
    const struct feature_source_setup source = {
        .path = path, .target = &data->target, .force = setup->options->force, .states = data->points.count,
        .state = data->points.state, .cut = setup->options->cut, .part = FEATURES_ALL, .folder = data->folder};
    int rc = feature_source_open(&features, &source, &note, err);
    console_notes(setup->console, &note);
    text_free(&note);
    kept = features;
    if (rc || source_stream_open(learnt, &features, true, err) || source_stream_validation(apart, learnt, err))
        return -1;
    note_unanswered(setup, path, feature_source_bare(kept));
    *digest = feature_source_digest(kept);
    data->rounded |= feature_source_rounded(kept);
    return 0;
}

/* Opens the shards in order. Several shards are identified by the digest of their digests. */
static int open_streams(struct train_data *data, const struct train_data_setup *setup, const char *only, struct err *err)
{
    const struct strings *inputs = &setup->options->inputs;
    const int count = inputs->count > 1 ? inputs->count : 1;
    struct train_source *learnt = mem_alloc((size_t)count, sizeof *learnt, err);
    struct train_source *apart = mem_alloc((size_t)count, sizeof *apart, err);
    struct digest128 *digest = mem_alloc((size_t)count, sizeof *digest, err);
    int rc = learnt && apart && digest && !folder_of(&data->folder, setup->output, err) ? 0 : -1;
    session_stream_model(setup->session, &data->target);
    data->points = setup->points;
    for (int i = 0; !rc && i < count; i++)
        rc = open_shard(data, setup, count > 1 ? inputs->items[i] : only, &learnt[i], &apart[i], &digest[i], err);
    if (!rc)
        rc = source_joined_open(&data->validation, apart, count, err) || source_joined_open(&data->learnt, learnt, count, err)
             ? -1 : 0;
    if (!rc)
        digest128_hex(count > 1 ? hash_xxh3(digest, (size_t)count * sizeof *digest) : digest[0], data->digest);
    for (int i = 0; apart && i < count; i++)
        train_source_close(&apart[i]);
    for (int i = 0; learnt && i < count; i++)
        train_source_close(&learnt[i]);
    mem_free(&digest);
    mem_free(&apart);
    mem_free(&learnt);
    return rc;
}

/* ---- texts ---- */

struct text_sink {
    struct train_texts *learnt, *validation;
    struct xxh3_stream *digest;
    struct progress *bar;
};

static int add_text(void *context, const struct example *text, struct err *err)
{
    struct text_sink *sink = context;
    xxh3_stream_put(sink->digest, text->token, (size_t)text->tokens * sizeof *text->token);
    xxh3_stream_put(sink->digest, text->mask, (size_t)text->tokens);
    xxh3_stream_put(sink->digest, &(uint8_t){text->validation}, 1);
    progress_step(sink->bar, 1);
    return train_texts_add(text->validation ? sink->validation : sink->learnt, text->token, text->mask, text->tokens,
                           text->where, err);
}

/* Adds texts to the training and validation data. The model answers prompts here, before training begins, so a signal ends the
 * command without a checkpoint. */
static int add_texts(struct text_sink *sink, const struct train_data_setup *setup, struct err *err)
{
    const struct train_data_options *options = setup->options;
    const struct examples_setup wanted = {
        .session = setup->session, .settings = &options->settings, .cut = options->cut, .validation = options->validation,
        .stop = signals_stop()};
    struct session_prompts words = options->prompts;
    struct prompts *prompts = NULL;
    struct examples *examples = NULL;
    struct progress bar = {0};
    bool ended = false;
    words.answers = options->settings.max_tokens ? PROMPTS_ASK_AGAIN : PROMPTS_ANSWERED;
    int rc = session_open_prompts(&prompts, setup->session, &words, &options->inputs, wanted.stop, setup->console, err) ||
             examples_open(&examples, &wanted, err) || examples_check(examples, prompts, err) ? -1 : 0;
    if (!rc) {
        console_progress(setup->console, &bar, "texts", 0);
        sink->bar = &bar;
        signals_gentle();
        rc = examples_run(examples, prompts, add_text, sink, &ended, err);
        signals_harsh();
        progress_end(&bar);
    }
    if (ended) {
        err_clear(err);
        rc = err_set(err, ERR_SIGNAL, "ended by %s before the first training step; start again", signals_name());
    }
    if (!rc)
        note_unanswered(setup, "", examples_totals(examples)->left_out);
    examples_close(&examples);
    prompts_close(&prompts);
    return rc;
}

static int open_texts(struct train_data *data, const struct train_data_setup *setup, struct err *err)
{
    struct text_sink sink = {NULL};
    struct engine *engine = setup->session->engine;
    int rc = train_texts_new(&sink.learnt, err) || train_texts_new(&sink.validation, err) ||
             xxh3_stream_new(&sink.digest, err) || add_texts(&sink, setup, err) ? -1 : 0;
    if (!rc)
        digest128_hex(xxh3_stream_digest(sink.digest), data->digest);
    rc = rc || source_target_open(&data->learnt, &sink.learnt, engine, &setup->points, err) ||
         source_target_open(&data->validation, &sink.validation, engine, &setup->points, err) ? -1 : 0;
    train_texts_free(&sink.learnt);
    train_texts_free(&sink.validation);
    xxh3_stream_free(&sink.digest);
    return rc;
}

/* ---- streams and texts ---- */

int train_data_open(struct train_data *out, const struct train_data_setup *setup, const char *stream, struct err *err)
{
    const struct train_data_options *options = setup->options;
    *out = (struct train_data){.rounded = false};
    if (stream ? open_streams(out, setup, stream, err) : open_texts(out, setup, err))
        return -1;
    if (!out->learnt.texts)
        return err_set(err, ERR_INPUT, "%sthere are no texts with answers to train on; give texts that have answers",
                       out->validation.texts ? "--validation selects all texts with answers, so " : "");
    if (options->validation > 0 && !out->validation.texts)
        return err_set(err, ERR_INPUT, "--validation %g: selects none of the %lld texts; give a larger share",
                       options->validation, (long long)out->learnt.texts);
    if (!setup->count)
        return 0;
    if (!(out->count = mem_alloc((size_t)model_hparams(setup->session->model)->vocab, sizeof *out->count, err)))
        return -1;
    return count_words(out, options->cut, err);
}

void train_data_close(struct train_data *data)
{
    train_source_close(&data->validation);
    train_source_close(&data->learnt);
    mem_free(&data->count);
    mem_free(&data->folder);
}
