/* moe-draft-train: trains a draft head for a model, from the model's own states, and evaluates heads.
 *
 * Reads:  model, feature streams or texts with answers, a head or a checkpoint to continue from
 * Writes: head file, checkpoints, and train streams
 * Exit:   0 done, 2 trouble */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/draft-train-data.h"
#include "cmd/draft-train-eval.h"
#include "cmd/draft-train-inputs.h"
#include "cmd/job-ranks.h"
#include "cmd/draft-train-stream.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/cli/command.h"
#include "common/cli/signals.h"
#include "common/decode/decode.h"
#include "common/train/start.h"
#include "common/train/trainer.h"

enum { NOT_GIVEN = -1 };

struct train_args {
    struct session_options session;
    struct train_data_options data;
    struct start_options start;
    struct loss_settings loss;
    const char *output, *from, *name, *stream, *checkpoint, *best, *layers;
    double rate, beta1, beta2, decay, clip, epochs, warmup, noise, minutes;
    int ranks, arch, clipping, schedule, batch, micro, steps, evaluate, dtype;
    bool resume, fold;
};

static const char *const arch_words[] = {"eagle1", "eagle3", "medusa", "hydra", "kangaroo", "jakiro", "jakiro_star", NULL};
static const char *const clip_words[] = {"none", "element", "norm", NULL};
static const char *const schedule_words[] = {"constant", "linear", "cosine", NULL};
static const char *const second_words[] = {"contrast", "sum", "none", NULL};      /* in the order of enum head_second */
static const char *const dtype_words[] = {"f32", "bf16", NULL};
static const enum weight_format formats[] = {FORMAT_F32, FORMAT_BF16};

static const struct opt train_options[] = {
    SESSION_OPTIONS(struct train_args, session),
    OPT_GROUP("The head"),
    OPT_CHOICE(0, "arch", struct train_args, arch, arch_words, "train a new head of this kind"),
    OPT_INPUT(0, "from", struct train_args, from, "continue with the draft head FILE"),
    OPT_OUTPUT('o', "output", struct train_args, output, "write the head to FILE"),
    OPT_CHOICE(0, "dtype", struct train_args, dtype, dtype_words, "write the head's matrices in this format"),
    OPT_STRING(0, "name", struct train_args, name, "NAME", "give the head this name; that of its kind if not given"),
    OPT_GROUP("Training"),
    OPT_FLOAT(0, "epochs", struct train_args, epochs, 0.001, 1e6, "N", "train on all texts N times"),
    OPT_COUNT(0, "steps", struct train_args, steps, 1, INT32_MAX, "make N steps, instead of a number of epochs"),
    OPT_COUNT('b', "batch", struct train_args, batch, 1, 4096, "texts per step"),
    OPT_COUNT(0, "micro-batch", struct train_args, micro, 1, 4096, "compute N texts of a step at once, and sum their "
              "gradients"),
    OPT_COUNT(0, "cut", struct train_args, data.cut, 2, 1 << 20, "use only the first N tokens of a text"),
    OPT_FLOAT(0, "rate", struct train_args, rate, 0, 1, "R", "the highest learning rate"),
    OPT_FLOAT(0, "warmup", struct train_args, warmup, 0, 1, "SHARE", "share of the steps in which the learning rate rises "
              "(warm-up)"),
    OPT_CHOICE(0, "schedule", struct train_args, schedule, schedule_words,
               "change the learning rate in this way after the warm-up; as the published program does if not given"),
    OPT_FLOAT(0, "beta1", struct train_args, beta1, 0, 0.9999999, "B", "AdamW's beta of the first moment"),
    OPT_FLOAT(0, "beta2", struct train_args, beta2, 0, 0.9999999, "B", "AdamW's beta of the second moment"),
    OPT_FLOAT(0, "decay", struct train_args, decay, 0, 1, "D", "AdamW's weight decay"),
    OPT_CHOICE(0, "clipping", struct train_args, clipping, clip_words,
               "clip each element of the gradient, or scale the gradient by its norm"),
    OPT_FLOAT(0, "clip", struct train_args, clip, 0, 1e9, "C", "threshold of --clipping"),
    OPT_FLOAT(0, "noise", struct train_args, noise, 0, 1000, "SIZE",
              "add uniform noise of this size to the states that the head reads; EAGLE uses 0.2"),
    OPT_FLOAT(0, "token-weight", struct train_args, loss.token_weight, 0, 1e6, "W",
              "weight of the loss on tokens relative to that on states"),
    OPT_FLOAT(0, "const-feature", struct train_args, loss.const_feature, 0, 1e6, "W",
              "jakiro: weight of the contrast's loss on states; 1 in equation 14 of the paper"),
    OPT_FLOAT(0, "const-token", struct train_args, loss.const_token, 0, 1e6, "W",
              "jakiro: weight of the contrast's loss on tokens"),
    OPT_COUNT(0, "ttt-steps", struct train_args, loss.steps, 1, LEARN_STEPS_MAX - 1,
              "eagle3: train with N steps on the head's own outputs (training-time test)"),
    OPT_FLOAT(0, "ttt-decay", struct train_args, loss.decay, 0, 1, "D", "eagle3: weight each of these steps by D times the "
              "step before"),
    OPT_GROUP("The head"),
    OPT_COUNT(0, "draft-vocab", struct train_args, start.draft_vocab, 1, VOCAB_MAX,
              "eagle3: use a draft vocabulary of the N tokens that are most frequent in answers"),
    OPT_STRING(0, "layers", struct train_args, layers, "N,...", "eagle3: read the states after these layers"),
    OPT_COUNT(0, "exit", struct train_args, start.exit_layer, 1, LAYERS_MAX, "kangaroo: read the state after N layers"),
    OPT_COUNT(0, "inner", struct train_args, start.inner, 1, WIDTH_MAX,
              "inner width of the head's layer; that of a token's experts in the model if not given"),
    OPT_COUNT(0, "heads", struct train_args, start.heads, 1, HEADS_MAX, "number of attention heads; the model's if not given"),
    OPT_COUNT(0, "kv-heads", struct train_args, start.kv_heads, 1, HEADS_MAX, "number of key and value heads; as many as "
              "attention heads if not given"),
    OPT_FLOAT(0, "theta", struct train_args, start.theta, 1, 1e12, "T", "base (theta) of the rotary embedding"),
    OPT_FLOAT(0, "epsilon", struct train_args, start.epsilon, 0, 1, "E", "epsilon of the norms"),
    OPT_FLAG(0, "no-bias", struct train_args, start.no_bias, "eagle1, jakiro, jakiro_star: join embedding and state without a "
             "bias"),
    OPT_COUNT(0, "guesses", struct train_args, start.guesses, 1, HEAD_HEADS_MAX, "medusa, hydra: number of guessing heads, "
              "one per token ahead"),
    OPT_COUNT(0, "blocks", struct train_args, start.blocks, 1, HEAD_BLOCKS_MAX, "medusa, hydra: number of blocks per guessing "
              "head"),
    OPT_FLAG(0, "prefix", struct train_args, start.prefix, "hydra: add a prefix layer before the guessing heads"),
    OPT_COUNT(0, "experts", struct train_args, start.experts, 2, HEAD_EXPERTS_MAX, "jakiro: number of experts"),
    OPT_COUNT(0, "experts-used", struct train_args, start.used, 1, HEAD_EXPERTS_MAX,
              "jakiro: number of experts per token"),
    OPT_CHOICE(0, "second", struct train_args, start.second, second_words,
               "jakiro: form of the second branch: the paper's contrast, a plain sum, or none"),
    OPT_COUNT(0, "ahead", struct train_args, start.ahead, 1, 2, "jakiro: predict the token N positions ahead in the second "
              "branch"),
    OPT_FLAG(0, "scaled", struct train_args, start.scaled, "jakiro_star: draft by equation 4 of the paper as printed"),
    OPT_GROUP("Training"),
    OPT_GROUP("Checkpoints"),
    OPT_OUTPUT(0, "checkpoint", struct train_args, checkpoint, "write the checkpoint to FILE, not next to the head"),
    OPT_FLOAT(0, "every", struct train_args, minutes, 0, 1e6, "MINUTES", "write a checkpoint every MINUTES"),
    OPT_FLAG(0, "resume", struct train_args, resume, "resume from the checkpoint, if there is one"),
    OPT_OUTPUT_KEPT(0, "stream", struct train_args, stream, "write the train stream to FILE"),
    OPT_GROUP("Validation"),
    OPT_FLOAT(0, "validation", struct train_args, data.validation, 0, 1, "SHARE",
              "use about SHARE of the texts for validation"),
    OPT_COUNT(0, "validate-every", struct train_args, evaluate, 1, INT32_MAX,
              "validate every N steps; after each epoch if not given"),
    OPT_OUTPUT(0, "best", struct train_args, best, "write the best head so far to FILE, not next to the last one"),
    OPT_GROUP("Training"),
    OPT_COUNT('n', "max-tokens", struct train_args, data.settings.max_tokens, 0, 1 << 24,
              "first generate an answer of up to N tokens for each text; the texts' own answers are ignored"),
    DECODE_TEXT_OPTIONS(struct train_args, data.settings),
    SESSION_PROMPT_OPTIONS(struct train_args, data.prompts),
    OPT_GROUP("Several processes"),
    OPT_CHOICE(0, "ranks", struct train_args, ranks, ranks_words,
               "divide each step over the processes that mpirun started"),
    OPT_FLAG(0, "fold", struct train_args, fold,
             "sum gradients in a fixed order, so that any number of processes gives the same bytes"),
    OPT_GROUP("Other options"),
    OPT_FLAG(0, "force", struct train_args, data.force, "accept a head that was made for other weights of this shape"),
    OPT_END };

static const struct opt_rule train_rules[] = {
    {OPT_NEEDS, "fold", "micro-batch", "adds up small batches"}, {OPT_EXCLUSIVE, "epochs|steps", NULL, NULL},
    {OPT_NEEDS, "temperature|stop|ignore-eos|draft|draft-length|" SAMPLING_FILTERS, "max-tokens", "no answers are generated"},
    SESSION_RULES, DECODE_TEXT_RULES_BUT_SEED, OPT_RULES_END};

static const struct operand train_operands[] = { OPERAND_ANY("TEXTS", struct train_args, data.inputs), OPERAND_END };

static const struct train_args train_defaults = {
    .start = {.theta = 10000, .epsilon = 1e-6, .exit_layer = 2, .guesses = 4, .blocks = 1, .experts = 2, .used = 2, .ahead = 2},
    .loss = {.token_weight = 0.1, .const_feature = 0.5, .const_token = 0.5, .steps = 7, .decay = 0.8},
    .arch = NOT_GIVEN, .rate = NOT_GIVEN, .beta1 = NOT_GIVEN, .beta2 = NOT_GIVEN, .decay = NOT_GIVEN, .clip = NOT_GIVEN,
    .clipping = NOT_GIVEN, .schedule = NOT_GIVEN, .epochs = 1, .warmup = 0.05, .batch = 4, .minutes = 5,
    .data = {.cut = 2048, .settings = DECODE_DEFAULTS_OF(0)}};

struct training {
    const struct train_args *args;
    const struct console *console;
    struct console silent;              /* for all processes except the first */
    struct ranks *ranks;
    struct share *share;                /* NULL: there is only one process */
    bool first;                         /* this process prints and writes */
    struct session_options target;
    struct session *session;
    struct thread_pool *pool;
    struct head_reading reading;        /* of a new head */
    struct head_states points;
    struct train_data data;
    struct weights *weights;
    struct network *network;
    struct trainer *trainer;
    struct train_settings settings;
    int64_t every;              /* steps between evaluations; 0: there are no validation texts */
    struct writer *writer;
    struct text recipe, checkpoint, best;
    struct progress bar;
    double started, saved, before;      /* before: seconds of training in earlier processes of this run */
    char from[17];              /* identifies the initial head; "": a new head */
};

static void close_training(struct training *t)
{
    trainer_close(&t->trainer);
    share_close(&t->share);
    network_close(&t->network);
    weights_free(&t->weights);
    train_data_close(&t->data);
    head_reading_free(&t->reading);
    thread_pool_free(&t->pool);
    session_close(&t->session);
    text_free(&t->recipe);
    text_free(&t->checkpoint);
    text_free(&t->best);
    ranks_close(&t->ranks);
}

/* ---- the head ---- */

static int parse_layers(struct start_options *start, const char *words, struct err *err)
{
    for (const char *at = words; at; at = *at ? at + 1 : NULL) {
        int number, length = 0;
        if (start->layer_count == HEAD_STATES_MAX || sscanf(at, "%d%n", &number, &length) != 1 || number < 0 ||
            (at[length] && at[length] != ','))
            return err_set(err, ERR_INPUT, "--layers %s: expected up to %d layer numbers, separated by commas", words,
                           HEAD_STATES_MAX);
        start->layers[start->layer_count++] = number;
        at += length;
        if (!*at)
            break;
    }
    return 0;
}

static int begin_from(struct training *t, struct err *err)
{
    struct model *file = NULL;
    char hex[65];
    if (model_open_head(&file, t->args->from, err))
        return -1;
    int rc = head_check_target(model_head(file), model_identity(t->session->model), t->args->data.force, err) ||
             weights_make(&t->weights, model_head(file), model_hparams(file), err) ? -1 : 0;
    if (rc) {
        err_at(err, "%s", t->args->from);
    } else {
        sha256_hex(&model_identity(file)->index, hex);
        snprintf(t->from, sizeof t->from, "%.16s", hex);
        weights_read(t->weights, file);
        head_states_of(&t->points, model_head(file));
    }
    model_close(&file);
    return rc;
}

/* Sets the properties of a new head that do not depend on texts. */
static int describe_start(struct training *t, struct err *err)
{
    struct start_options start = t->args->start;
    head_kind_by_name(arch_words[t->args->arch], &start.kind);
    if (start.kind == HEAD_JAKIRO && start.second == HEAD_SECOND_NONE && start.ahead != train_defaults.start.ahead)
        return err_set(err, ERR_INPUT, "--ahead: configures the second branch, but --second none leaves that branch out; "
                       "leave one of the two options out");
    if ((t->args->layers && parse_layers(&start, t->args->layers, err)) ||
        start_head(&t->reading, &start, t->session->model, err))
        return -1;
    head_states_of(&t->points, &t->reading.head);
    return 0;
}

static int start_training(struct training *t, struct err *err)
{
    return start_words(&t->reading.head, t->data.count, err) ||
           weights_make(&t->weights, &t->reading.head, &t->reading.shape, err) ||
           weights_start(t->weights, t->session->model, t->args->data.settings.seed, err) ? -1 : 0;
}

/* ---- options that only some heads have ---- */

enum {
    EAGLE_LIKE = 1 << HEAD_EAGLE1 | 1 << HEAD_JAKIRO | 1 << HEAD_JAKIRO_STAR,
    GUESSING = 1 << HEAD_MEDUSA | 1 << HEAD_HYDRA,
    WITH_FFN = EAGLE_LIKE | 1 << HEAD_EAGLE3,
    WITH_ATTENTION = WITH_FFN | 1 << HEAD_KANGAROO,
};

struct own_option { const char *name; bool given, anew; int kinds; };

/* Refuses options without effect on this kind of head. */
static int check_options(struct training *t, struct err *err)
{
    const struct train_args *a = t->args, *d = &train_defaults;
    const struct start_options *s = &a->start, *u = &d->start;
    const int prefix = s->prefix << HEAD_HYDRA;
    const int kind = t->args->from ? (int)t->weights->head.kind : (int)t->reading.head.kind;
    const struct own_option options[] = {
        {"token-weight", a->loss.token_weight != d->loss.token_weight, false, EAGLE_LIKE},
        {"const-feature", a->loss.const_feature != d->loss.const_feature, false, 1 << HEAD_JAKIRO},
        {"const-token", a->loss.const_token != d->loss.const_token, false, 1 << HEAD_JAKIRO},
        {"ttt-steps", a->loss.steps != d->loss.steps, false, 1 << HEAD_EAGLE3},
        {"ttt-decay", a->loss.decay != d->loss.decay, false, 1 << HEAD_EAGLE3},
        {"draft-vocab", s->draft_vocab != u->draft_vocab, true, 1 << HEAD_EAGLE3},
        {"layers", a->layers != NULL, true, 1 << HEAD_EAGLE3},
        {"exit", s->exit_layer != u->exit_layer, true, 1 << HEAD_KANGAROO},
        {"inner", s->inner != u->inner, true, (WITH_FFN & ~(1 << HEAD_JAKIRO)) | prefix},
        {"heads", s->heads != u->heads, true, WITH_ATTENTION | prefix},
        {"kv-heads", s->kv_heads != u->kv_heads, true, WITH_ATTENTION | prefix},
        {"theta", s->theta < u->theta || s->theta > u->theta, true, WITH_ATTENTION | prefix},
        {"epsilon", s->epsilon < u->epsilon || s->epsilon > u->epsilon, true, WITH_ATTENTION | prefix},
        {"no-bias", s->no_bias, true, EAGLE_LIKE},
        {"guesses", s->guesses != u->guesses, true, GUESSING},
        {"blocks", s->blocks != u->blocks, true, GUESSING},
        {"prefix", s->prefix, true, 1 << HEAD_HYDRA},
        {"experts", s->experts != u->experts, true, 1 << HEAD_JAKIRO},
        {"experts-used", s->used != u->used, true, 1 << HEAD_JAKIRO},
        {"second", s->second != u->second, true, 1 << HEAD_JAKIRO},
        {"ahead", s->ahead != u->ahead, true, 1 << HEAD_JAKIRO},
        {"scaled", s->scaled, true, 1 << HEAD_JAKIRO_STAR},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const struct own_option *o = &options[i];
        if (o->given && !(o->kinds >> kind & 1))
            return err_set(err, ERR_INPUT, "--%s: does not apply to %s heads; leave it out", o->name,
                           head_kind_name((enum head_kind)kind));
        if (o->given && o->anew && a->from)
            return err_set(err, ERR_INPUT, "--%s: sets the shape of a new head, but %s is an existing head; leave it out",
                           o->name,
                           a->from);
    }
    return 0;
}

/* ---- settings ---- */

static void choose_settings(struct training *t, int64_t texts)
{
    const struct train_args *a = t->args;
    const enum head_kind kind = t->weights->head.kind;
    static const double rates[HEAD_KINDS] = {
        [HEAD_EAGLE1] = 3e-5, [HEAD_EAGLE3] = 5e-5, [HEAD_MEDUSA] = 1e-3, [HEAD_HYDRA] = 1e-3, [HEAD_KANGAROO] = 5e-5,
        [HEAD_JAKIRO] = 9e-5, [HEAD_JAKIRO_STAR] = 9e-5};
    struct optimiser_settings *o = &t->settings.optimiser;
    optimiser_defaults(o, kind);
    o->rate = a->rate >= 0 ? a->rate : rates[kind];
    o->beta1 = a->beta1 >= 0 ? a->beta1 : o->beta1;
    o->beta2 = a->beta2 >= 0 ? a->beta2 : o->beta2;
    o->decay = a->decay >= 0 ? a->decay : o->decay;
    o->clipping = a->clipping >= 0 ? (enum clipping)a->clipping : o->clipping;
    o->bound = a->clip >= 0 ? a->clip : o->bound;
    o->schedule = a->schedule >= 0 ? (enum schedule)a->schedule : o->schedule;
    const double all = a->epochs * (double)train_epoch_steps(texts, a->batch);
    o->steps = a->steps ? a->steps : all < 1 ? 1 : all < 9e15 ? (int64_t)(all + 0.5) : (int64_t)9e15;
    o->warmup = (int64_t)(a->warmup * (double)o->steps + 0.5);
    t->every = !t->data.validation.texts ? 0 : a->evaluate ? a->evaluate : train_epoch_steps(texts, a->batch);
    t->settings.batch = a->batch;
    t->settings.micro = a->micro;
    t->settings.longest = a->data.cut;
    t->settings.seed = a->data.settings.seed;
    t->settings.noise = a->noise;
}

static int put_head(struct training *t, struct err *err)
{
    const struct head_params *head = &t->weights->head;
    const struct hparams *s = &t->weights->shape;
    if (text_printf(&t->recipe, err, "{\"arch\":\"%s\",\"from\":\"%s\",\"heads\":%d,\"kv_heads\":%d,\"theta\":%.17g,"
                    "\"epsilon\":%.9g,\"words\":%d,\"states\":[", head_kind_name(head->kind), t->from, s->attention.heads,
                    s->attention.kv_heads, s->rope.theta, (double)s->norm_epsilon, head->draft_vocab))
        return -1;
    for (int i = 0; i < head->states; i++)
        if (text_printf(&t->recipe, err, "%s%d", i ? "," : "", head->state[i]))
            return -1;
    if (text_puts(&t->recipe, "]", err))
        return -1;
    if (head->kind == HEAD_JAKIRO)
        return text_printf(&t->recipe, err, ",\"experts\":%d,\"experts_used\":%d,\"second\":\"%s\",\"ahead\":%d",
                           s->router.experts, s->router.top_k, head_second_name((enum head_second)head->second),
                           head->second_next ? 1 : 2);
    return head->scaled ? text_puts(&t->recipe, ",\"scaled\":true", err) : 0;
}

/* Lists all settings that determine the weights, apart from the texts' states. A checkpoint can be resumed only with the same
 * settings. */
static int put_settings(struct training *t, struct err *err)
{
    const struct optimiser_settings *o = &t->settings.optimiser;
    const struct loss_settings *l = &t->args->loss;
    char target[65];
    sha256_hex(&model_identity(t->session->model)->index, target);
    return put_head(t, err) ||
           text_printf(&t->recipe, err, ",\"target\":\"%.16s\",\"texts\":\"%.16s\",\"states_in\":\"%s\","
                       "\"seed\":%" PRIu64 ",\"batch\":%d,\"micro_batch\":%d,"
                       "\"cut\":%d,\"noise\":%.17g,\"rate\":%.17g,\"beta1\":%.17g,\"beta2\":%.17g,\"decay\":%.17g,"
                       "\"clipping\":\"%s\",\"clip\":%.17g,\"schedule\":\"%s\",\"warmup\":%" PRId64
                       ",\"steps\":%" PRId64 ",\"token_weight\":%.17g,\"const_feature\":%.17g,\"const_token\":%.17g,"
                       "\"ttt_steps\":%d,\"ttt_decay\":%.17g,\"validate_every\":%" PRId64 ",\"fold\":%s}",
                       target, t->data.digest, t->data.rounded ? "bf16" : "f32", t->settings.seed, t->settings.batch,
                       t->settings.micro, t->settings.longest, t->settings.noise, o->rate, o->beta1, o->beta2, o->decay,
                       clip_words[o->clipping], o->bound, schedule_words[o->schedule], o->warmup, o->steps,
                       l->token_weight, l->const_feature,
                       l->const_token, l->steps, l->decay, t->every, t->args->fold ? "true" : "false") ? -1 : 0;
}

/* ---- the run ---- */

static int open_stream(struct training *t, struct err *err)
{
    struct header header = {0};
    const int64_t steps = t->settings.optimiser.steps;
    const struct train_run run = {head_kind_name(t->weights->head.kind), (int64_t)t->weights->floats,
                                  steps < INT32_MAX ? (int)steps : INT32_MAX, t->recipe.data};
    if (!t->args->stream || !t->first)
        return 0;
    struct draft_train_past past = {.steps = trainer_steps(t->trainer), .evaluated = trainer_best(t->trainer)->evaluated};
    int rc = session_header(t->session, STREAM_TRAIN, t->console, t->args->data.settings.seed, &header, err) ||
             draft_train_stream_open(&t->writer, t->args->stream, &header, &run, &past, err) ? -1 : 0;
    t->before = past.seconds;
    header_free(&header);
    return rc;
}

static int write_step(struct training *t, const struct train_report *r, struct err *err)
{
    struct train_step step = {
        .step = (int)r->step, .epoch = r->epoch, .loss = r->losses.total, .lr = r->optimiser.rate,
        .gradient_norm = r->optimiser.norm, .tokens = r->tokens, .seconds = clock_seconds() - t->started,
        .clipped = t->settings.optimiser.clipping == CLIP_ELEMENT ? r->optimiser.clipped : -1};
    for (int i = 0; i < r->losses.count; i++)
        values_real(&step.parts, r->losses.part[i].name, r->losses.part[i].value);
    return t->writer ? writer_record(t->writer, &train_step_kind, &step, err) : 0;
}

/* Checks before training that the outputs can be written. */
static int check_output(const char *path, struct err *err)
{
    struct output *out = NULL;
    if (output_open(&out, path, err))
        return -1;
    int rc = output_in_place(out) ? err_set(err, ERR_INPUT, "%s: is not a regular file, which the head must be written to; "
                                            "name a file on disk",
                                            strcmp(path, "-") ? path : "standard output") : 0;
    output_discard(&out);
    return rc;
}

/* Forms "head.best.moe" from "head.moe". */
static int name_best(struct text *out, const char *path, struct err *err)
{
    const size_t length = strlen(path), tail = length > 4 && !strcmp(path + length - 4, ".moe") ? 4 : 0;
    return text_printf(out, err, "%.*s.best%s", (int)(length - tail), path, path + length - tail);
}

/* Checks the default outputs that no option names, as opt_parse has checked the others. */
static int check_names(const struct training *t, struct err *err)
{
    static const struct subcommand inputs = {.options = train_options, .operands = train_operands};
    const struct train_args *a = t->args;
    struct claims claims = t->console->claims;
    return (!a->checkpoint && claims_output(&claims, "the checkpoint", t->checkpoint.data, true, err)) ||
           (!a->best && claims_output(&claims, "the best head", t->best.data, false, err)) ||
           opt_inputs(&inputs, a, claims_see, &claims, err) ? -1 : 0;
}

static int check_outputs(struct training *t, struct err *err)
{
    const struct train_args *a = t->args;
    if ((a->checkpoint ? text_puts(&t->checkpoint, a->checkpoint, err)
                       : text_printf(&t->checkpoint, err, "%s.checkpoint", a->output)) ||
        (a->best ? text_puts(&t->best, a->best, err) : name_best(&t->best, a->output, err)) || check_names(t, err))
        return -1;
    if (!t->first)
        return 0;
    if (check_output(a->output, err) || check_output(t->checkpoint.data, err) || check_output(t->best.data, err))
        return -1;
    return a->resume || access(t->checkpoint.data, F_OK) ? 0 :
           err_set(err, ERR_INPUT, "%s: a checkpoint of an earlier training exists; continue from it with --resume, or remove "
                   "it", t->checkpoint.data);
}

/* Resumes from the checkpoint, if it exists. */
static int resume_training(struct training *t, struct err *err)
{
    const struct train_args *a = t->args;
    if (!a->resume || access(t->checkpoint.data, F_OK))
        return 0;
    if (trainer_resume(t->trainer, t->checkpoint.data, t->recipe.data, err))
        return -1;
    if (trainer_best(t->trainer)->step >= 0 && access(t->best.data, F_OK))
        return err_set(err, ERR_INPUT, "%s: the best head of the earlier training is missing; restore it, or remove %s to "
                       "start again", t->best.data,
                       t->checkpoint.data);
    console_note(t->console, "continues after step %lld", (long long)trainer_steps(t->trainer));
    return 0;
}

/* Opens the processes. Only the first process prints and writes. */
static int open_ranks(struct training *t, struct err *err)
{
    if (job_ranks_open(&t->ranks, t->args->ranks, err))
        return -1;
    t->first = ranks_rank(t->ranks) == 0;
    if (!t->first) {
        t->silent = *t->console;
        t->silent.quiet = true;
        t->console = &t->silent;
    }
    t->target = t->args->session;
    t->target.device_turn = ranks_here(t->ranks);
    return job_ranks_check(t->ranks, &t->args->data.inputs, !t->args->data.prompts.texts.count, err) ||
           job_ranks_threads(&t->target, t->ranks, err) ? -1 : 0;
}

static int open_network(struct training *t, struct err *err)
{
    const struct session *s = t->session;
    const struct engine_ends ends = s->engine ? engine_ends(s->engine) : (struct engine_ends){.scale = 0};
    return network_open(&t->network, t->weights, s->model, s->engine ? &ends : NULL, &t->args->loss, t->args->data.cut, err);
}

static int open_trainer(struct training *t, struct err *err)
{
    if ((ranks_size(t->ranks) > 1 || t->args->fold) && share_open(&t->share, t->ranks, t->weights, err))
        return -1;
    const struct trainer_setup setup = {t->weights, t->network, &t->data.learnt, t->points, &t->settings, t->share};
    return trainer_open(&t->trainer, &setup, err) || (t->first && resume_training(t, err)) ||
           trainer_scatter(t->trainer, err) ? -1 : 0;
}

/* Returns the library that computes large matrix products on the device. */
static const char *products_of(const struct device_info *device)
{
    return device->host_memory ? "OpenBLAS" : device->slabs ? "cuBLAS" : device->no_slabs[0] ? "a kernel, as there is no cuBLAS"
                                                                                            : "the reference";
}

static int prepare(struct training *t, struct err *err)
{
    const struct train_args *a = t->args;
    const char *stream;
    int rows = 1;
    if (check_outputs(t, err) || inputs_find_stream(&a->data.inputs, &a->data.prompts.texts, &stream, err) ||
        train_data_check(&a->data, &a->session, stream, err) ||
        (a->data.settings.max_tokens && decode_rows(&a->data.settings, false, &rows, err)))
        return -1;
    t->target.no_engine = stream != NULL;       /* the stream contains the model's states */
    if (session_open(&t->session, &t->target, 0, rows, err) || thread_pool_new(&t->pool, t->target.threads, err) ||
        (a->from ? begin_from(t, err) : describe_start(t, err)) || check_options(t, err))
        return -1;
    session_print(t->session, t->console);
    const struct train_data_setup data = {&a->data, &a->session, t->session, t->console, a->output, t->points,
                                          t->reading.head.target_id != NULL};
    if (decode_settings_print(&a->data.settings, t->console, err) || train_data_open(&t->data, &data, stream, err) ||
        (!a->from && start_training(t, err)))
        return -1;
    if ((a->evaluate || a->best) && !t->data.validation.texts)
        return err_set(err, ERR_INPUT, "--%s: there are no validation texts; select some with --validation SHARE, for a "
                       "feature stream when moe-profile features writes it", a->evaluate ? "validate-every" : "best");
    choose_settings(t, t->data.learnt.texts);
    if (t->console->verbose)
        console_note(t->console, "training runs on %s; matrix products are computed by %s",
                     device_info(t->session->device)->name,
                     products_of(device_info(t->session->device)));
    if (put_settings(t, err) || weights_place(t->weights, t->session->device, err) ||
        open_network(t, err))
        return -1;
    return open_trainer(t, err);
}

static int save(struct training *t, struct err *err)
{
    const int kept = t->writer ? writer_keep(t->writer, err) : 0;       /* the stream keeps all steps up to the checkpoint */
    struct err *first = kept ? NULL : err;
    t->saved = clock_seconds();
    return trainer_gather(t->trainer, first) ||
           (t->first && trainer_save(t->trainer, t->checkpoint.data, t->recipe.data, first)) ? -1 : kept;
}

/* After a failed write, saves a checkpoint if there is room for one, so that the steps are not lost. */
static int save_after(struct training *t, struct err *err)
{
    const struct err first = *err;
    if (save(t, NULL))
        return -1;
    err_clear(err);
    return err_set(err, first.code, "%s; --resume continues after step %lld", first.text, (long long)trainer_steps(t->trainer));
}

/* Agrees with the other processes on the result of a write by the first process. If it failed, all processes end. rc: the
 * result in this process. */
static int written(struct training *t, int rc, struct err *err)
{
    struct err other = {0};
    bool failed;
    if (ranks_agree(t->ranks, rc != 0, &failed, &other)) {
        if (!rc)
            *err = other;
        return -1;
    }
    if (!failed)
        return 0;
    if (!rc)
        err_set(err, ERR_IO, "process 0 could not write the checkpoint; its message states why");
    return save_after(t, err);
}

/* Ends after a signal; saves a checkpoint first. */
static int end_after_signal(struct training *t, struct err *err)
{
    const char *signal = signals_name();
    return save(t, err) ? -1 : err_set(err, ERR_SIGNAL, "ended by %s after step %lld; --resume continues",
                                       signal ? signal : "a signal", (long long)trainer_steps(t->trainer));
}

enum next { NEXT_STEP, NEXT_SAVE, NEXT_STOP };

/* Agrees on the next action of all processes: a signal to any process ends all, and the first process's clock decides when a
 * checkpoint is due. */
static int choose_next(struct training *t, enum next *next, struct err *err)
{
    const bool stop = stop_asked(signals_stop()), due = t->first && clock_seconds() - t->saved >= t->args->minutes * 60;
    bool asked, stops;
    if (ranks_agree(t->ranks, stop || due, &asked, err) || (asked && ranks_agree(t->ranks, stop, &stops, err)))
        return -1;
    *next = !asked ? NEXT_STEP : stops ? NEXT_STOP : NEXT_SAVE;
    return 0;
}

static int write_head(const struct training *t, const char *path, struct err *err)
{
    const char *name = t->args->name ? t->args->name : head_kind_name(t->weights->head.kind);
    const struct weights_file file = {path, name, "moe-draft-train " MOE_VERSION, formats[t->args->dtype]};
    return weights_write(t->weights, &file, t->pool, err);
}

/* Returns whether an evaluation is due; after the last step it always is. */
static bool is_due(const struct training *t)
{
    const int64_t made = trainer_steps(t->trainer);
    return t->every && made && trainer_best(t->trainer)->evaluated < made &&
           (made % t->every == 0 || made == t->settings.optimiser.steps);
}

/* Evaluates the head. The best head is written before the checkpoint that refers to it. */
static int evaluate(struct training *t, struct err *err)
{
    double loss;
    const int done = trainer_evaluate(t->trainer, &t->data.validation, ranks_size(t->ranks) == 1 ? signals_stop() : NULL, &loss,
                                      err);
    if (done <= 0)
        return done ? -1 : end_after_signal(t, err);
    const bool best = trainer_is_best(t->trainer, loss);
    if (best && written(t, t->first && write_head(t, t->best.data, err) ? -1 : 0, err))
        return -1;
    trainer_evaluated(t->trainer, loss);
    const struct train_eval eval = {
        .step = (int)trainer_steps(t->trainer), .texts = (int)t->data.validation.texts, .loss = loss, .positions = 0,
        .position = &(int32_t){0}, .acceptance = &(double){0},      /* empty arrays: no drafts are tried */
        .tokens_per_iteration = NAN, .tree_tokens_per_iteration = NAN, .best = best, .seconds = clock_seconds() - t->started};
    return written(t, t->writer && writer_record(t->writer, &train_eval_kind, &eval, err) ? -1 : 0, err);
}

static void note_end(const struct training *t, const struct train_report *report)
{
    const int64_t steps = t->settings.optimiser.steps;
    const struct train_best *best = trainer_best(t->trainer);
    if (report->tokens)
        console_note(t->console, "training finished: %lld step%s, loss of the last step %.5g", (long long)steps,
                     steps == 1 ? "" : "s",
                     report->losses.total);
    if (best->step >= 0)
        console_note(t->console, "%s: the best head, from step %lld, with a validation loss of %.5g", t->best.data,
                     (long long)best->step, best->loss);
}

static int make_steps(struct training *t, struct err *err)
{
    const int64_t steps = t->settings.optimiser.steps;
    struct train_report report = {.tokens = 0};
    enum next next;
    t->saved = clock_seconds();
    t->started = t->saved - t->before;
    console_progress(t->console, &t->bar, "steps", (uint64_t)(steps - trainer_steps(t->trainer)));
    for (;;) {
        if (is_due(t) && evaluate(t, err))
            return -1;
        if (trainer_steps(t->trainer) >= steps)
            break;
        if (choose_next(t, &next, err) || (next == NEXT_SAVE && save(t, err)))
            return -1;
        if (next == NEXT_STOP)
            return end_after_signal(t, err);
        if (trainer_step(t->trainer, &report, err) < 0 ||
            (t->args->stream && written(t, write_step(t, &report, err), err)))
            return -1;
        progress_step(&t->bar, 1);
    }
    progress_end(&t->bar);
    note_end(t, &report);
    return 0;
}

static int run_train(const void *arguments, const struct console *console, struct err *err)
{
    const struct train_args *args = arguments;
    struct training t = {.args = args, .console = console};
    int rc = -1;
    if (!args->output)
        return err_set(err, ERR_INPUT, "no output is given; name the head file to write with -o FILE");
    if (!args->session.model)
        return err_set(err, ERR_INPUT, "no model is given; name the target model with -m FILE");
    if (args->arch >= 0 && args->from)
        return err_set(err, ERR_INPUT, "--arch and --from exclude each other, because an existing head has its kind already; "
                       "give one");
    if (args->arch < 0 && !args->from)
        return err_set(err, ERR_INPUT, "no head is given; choose the kind of a new head with --arch, or name an existing head "
                       "with --from");
    if (args->clip >= 0 && args->clipping == CLIP_NONE)
        return err_set(err, ERR_INPUT, "--clip: has no effect with --clipping none; leave one of the two out");
    if (args->micro > args->batch)
        return err_set(err, ERR_INPUT, "--micro-batch %d: is larger than the batch of %d texts (--batch); give at most that",
                       args->micro, args->batch);
    if (open_ranks(&t, err) || prepare(&t, err) || open_stream(&t, err))
        goto done;
    signals_gentle();
    if (make_steps(&t, err))
        goto done;
    const int ended = t.first && (write_head(&t, args->output, err) || (t.writer && writer_close(&t.writer, err))) ? -1 : 0;
    if (written(&t, ended, err))
        goto done;
    if (t.first)
        unlink(t.checkpoint.data);
    rc = 0;
done:
    signals_harsh();
    progress_end(&t.bar);
    if (t.writer && err->code == ERR_SIGNAL) {
        struct err first = *err;
        if (!writer_close_early(&t.writer, first.text, err))
            *err = first;
    }
    writer_abort(&t.writer, err);
    if (rc)
        job_ranks_leave(t.ranks, console, err);
    close_training(&t);
    return rc;
}

static const struct subcommand subcommands[] = {
    { .name = "train", .summary = "train a draft head from a model's own states", .options = train_options,
      .rules = train_rules, .operands = train_operands,
      .console = CONSOLE_QUIET | CONSOLE_VERBOSE | CONSOLE_PROGRESS,
      .args_bytes = sizeof(struct train_args), .defaults = &train_defaults, .run = run_train },
    { .name = "eval", .summary = "evaluate a draft head on held-out texts", .options = eval_options,
      .rules = eval_rules, .operands = eval_operands, .console = CONSOLE_QUIET | CONSOLE_PROGRESS,
      .args_bytes = sizeof(struct eval_args), .defaults = &eval_defaults, .run = draft_train_eval },
    { .run = NULL },
};

static const struct command moe_draft_train = { "moe-draft-train", "train draft heads", subcommands,
                                                job_ranks_leave_fault_to_first };

int main(int argc, char **argv) { return cli_main(argc, argv, &moe_draft_train); }
