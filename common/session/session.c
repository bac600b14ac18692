#include "common/session/session.h"

#include <stdio.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/engine/kv.h"
#include "common/engine/second.h"
#include "common/route/placement.h"
#include "common/session/cache_pins.h"
#include "common/stream/reader.h"

const char *const session_cache_words[] = {[CACHE_F32] = "f32", [CACHE_F16] = "f16", [CACHE_BF16] = "bf16",
                                          [CACHE_Q8] = "q8", NULL};
const char *const session_activation_words[] = {"auto", "f32", "bf16", NULL};

static int open_tokenizer(struct session *session, struct err *err)
{
    size_t bytes = 0;
    const char *json = model_tokenizer_json(session->model, &bytes);
    if (json && tokenizer_new(&session->tokenizer, json, bytes, err))
        return err_at(err, "tokenizer");
    const char *source = model_chat_template(session->model, &bytes);
    /* An invalid template matters only to chats, so the command reports it, not this function. */
    if (json && source && template_new(&session->chat, source, bytes, &session->chat_fault) &&
        session->chat_fault.code == ERR_MEMORY)
        return err_memory(err);
    return 0;
}

/* Makes the object of special tokens, by the names that templates use. */
static int make_trusted(struct session *session, struct err *err)
{
    const struct hparams *shape = model_hparams(session->model);
    const struct { const char *name; int id; } known[] = {
        {"bos_token", shape->bos}, {"eos_token", shape->eos_count ? shape->eos[0] : -1}, {"pad_token", shape->pad}};
    session->trusted = json_object();
    if (!session->trusted)
        return err_memory(err);
    for (size_t i = 0; session->tokenizer && i < sizeof known / sizeof *known; i++) {
        size_t count = 0;
        const char *bytes = NULL;
        if (known[i].id >= 0)
            bytes = (const char *)tokenizer_token_bytes(session->tokenizer, known[i].id, &count);
        if (bytes && json_object_set_new(session->trusted, known[i].name, json_stringn(bytes, count)))
            return err_set(err, ERR_INPUT, "%s: token %d is not valid UTF-8", known[i].name, known[i].id);
    }
    return 0;
}

uint64_t session_kv_bytes(const struct hparams *shape, int context, enum cache_format format, bool slabs)
{
    int tokens = shape->max_positions < 8192 ? shape->max_positions : 8192;
    tokens = context && context < shape->max_positions ? context : tokens;
    return sequence_state_bytes(shape, slabs) +
           (uint64_t)kv_token_bytes(shape, format) * (uint64_t)tokens;
}

/* Returns the bytes of memory that keys, values and other models will use. */
static uint64_t taken_bytes(const struct session *session, const struct session_options *options)
{
    const uint64_t texts = options->texts > 1 ? (uint64_t)options->texts : 1;
    return session_kv_bytes(model_hparams(session->model), options->context, (enum cache_format)options->cache,
                            device_info(session->device)->slabs) * texts + options->beside;
}

/* Opens the experts: all in memory, or in slots, once the engine's use of the device's memory is known. */
static int open_experts(struct session *session, const struct session_options *options, struct err *err)
{
    struct expert_cache cache = {.stop = options->stop, .policy = caching_policy(&session->caching),
                                 .draft_length = options->draft_length ? options->draft_length : 8};
    struct cache_pins pins = {0};
    struct stream_model model;
    if (!caching_wanted(&session->caching))
        return model_identity(session->model)->moe_layers
            ? expert_source_open(&session->experts, session->model, session->device, err) : 0;
    session_stream_model(session, &model);
    if (caching_split(&cache.split, &session->caching, err) ||
        caching_slots(&cache, &session->caching, session->model, session->device,
                      taken_bytes(session, options), err) ||
        cache_pins_read(&pins, &session->caching, &model, &session->notes, err))
        return -1;
    cache.pins = pins.key;
    cache.pin_weight = pins.weight;
    cache.pinned = pins.count;
    cache.ranked = pins.ranked;
    int rc = expert_source_cached(&session->experts, session->model, session->device, &cache, err);
    cache_pins_free(&pins);
    return rc;
}

/* Opens the host's processor as a second device if experts are split between host and device. */
static int open_second(struct session *session, const struct session_options *options, struct err *err)
{
    struct second_setup setup = {
        .model = session->model, .device = session->device, .experts = session->experts,
        .draft_length = options->draft_length ? options->draft_length : 8,
        .host = {.threads = options->threads, .isa = options->isa, .pin = options->pin,
                 .bf16_activations = options->activations == ACTIVATIONS_BF16}};
    if (caching_split(&setup.rule, &session->caching, err))
        return -1;
    return setup.rule.kind != SPLIT_NONE ? second_open(&session->second, &setup, err) : 0;
}

/* Places experts on processes by the rank stream. *owner: the caller frees it; NULL: none is given. */
static int place_experts(const struct session *session, const struct session_options *options, int32_t **owner,
                         struct text *note, struct err *err)
{
    struct stream_model model;
    struct ranking *ranking = NULL;
    struct reader *in = NULL;
    *owner = NULL;
    if (!options->placement)
        return 0;
    session_stream_model(session, &model);
    int rc = reader_open(&in, options->placement, STREAM_RANK, NULL, err) ||
             ranking_check_model(in, &model, false, note, err) || ranking_read(&ranking, in, err) ||
             !(*owner = mem_alloc((size_t)model.moe_layers * (size_t)model.experts, sizeof **owner, err)) ||
             placement_make(*owner, ranking, options->peers ? options->peers->size : 1, err) ? -1 : 0;
    ranking_free(&ranking);
    reader_close(&in);
    if (rc)
        mem_free(owner);
    return rc ? err_at(err, "--placement") : 0;
}

static int open_peers(struct session *session, const struct session_options *options, struct err *err)
{
    int32_t *owner;
    int rc = place_experts(session, options, &owner, &session->notes, err);
    session->link = options->peers;
    if (!rc && options->peers)
        rc = peers_open(&session->peers, options->peers, owner, session->model, session->device, err);
    mem_free(&owner);
    return rc;
}

static int open_engine(struct session *session, const struct session_options *options, int rows, int logit_rows,
                       const struct prefetching *prefetching, struct err *err)
{
    const bool cached = caching_wanted(&session->caching);
    if (open_peers(session, options, err))
        return -1;
    const struct engine_setup engine = {
        .model = session->model, .device = session->device, .experts = session->experts, .experts_later = cached,
        .peers = session->peers, .stop = options->stop,
        .max_positions = options->context, .cache = (enum cache_format)options->cache,
        .look_ahead = prefetching->kind == PREFETCH_NEXT_LAYER, .forecast_forced = prefetching->kind == PREFETCH_FORCED,
        .slab_rows = ENGINE_SLAB_ROWS, .max_rows = rows ? rows : ENGINE_ROWS_MAX,
        .max_logit_rows = logit_rows ? logit_rows : 1 + DRAFT_LENGTH_MAX};
    if (engine_open(&session->engine, &engine, err))
        return err_at(err, "%s", options->model);
    if (options->context > engine_max_positions(session->engine) &&
        text_printf(&session->notes, err, "-c %d: the model has %d positions; prompt and answer have at most as many tokens\n",
                    options->context, engine_max_positions(session->engine)))
        return -1;
    if (cached && open_experts(session, options, err))
        return -1;
    if (cached)
        engine_set_experts(session->engine, session->experts,
                           prefetching->kind == PREFETCH_DRAFT ? session->experts : NULL);
    if (open_second(session, options, err))
        return -1;
    engine_set_second(session->engine, session->second);
    return 0;
}

int session_check_model(const struct session_options *options, const struct strings *prompts, struct err *err)
{
    for (int i = 0; !options->model && i < prompts->count; i++) {
        const char *name = prompts->items[i], *ending = strrchr(name, '.');
        if (ending && !strcmp(ending, ".moe"))
            return err_set(err, ERR_INPUT, "%s: is a model, not a file of prompts; give -m %s", name, name);
    }
    if (options->model && !strcmp(options->model, "-"))
        return err_set(err, ERR_INPUT, "-m -: a model file cannot be read from standard input, because it is mapped; name a "
                       "file");
    return options->model ? 0 : err_set(err, ERR_INPUT, "no model is given; name one with -m FILE");
}

int session_check_shard(const struct session_prompts *prompts, const struct strings *files, struct err *err)
{
    const int given = prompts->texts.count;
    struct shard shard;
    int64_t first, end;
    if (shard_parse(&shard, prompts->shard, err))
        return -1;
    shard_range(shard, given, &first, &end);
    if (!files->count && given && first == end)
        return err_set(err, ERR_INPUT, "--shard %s: this part of the %d prompts given with -p is empty; leave --shard out, or "
                       "give prompts as a file", prompts->shard, given);
    return 0;
}

/* Opens the file and the device. Experts are mapped or cached as requested; by default the device's memory decides. */
static int open_model(struct session *session, const struct session_options *options, const struct device_setup *device,
                      struct err *err)
{
    const bool cached = caching_wanted(&session->caching);
    if ((cached ? model_open_dense : model_open)(&session->model, options->model, err) ||
        device_open(&session->device, device, err))
        return -1;
    if (cached || options->no_engine)
        return 0;
    if (caching_choose(&session->caching, session->model, session->device, taken_bytes(session, options), &session->notes, err))
        return -1;
    if (!caching_wanted(&session->caching))
        return 0;
    model_close(&session->model);
    return model_open_dense(&session->model, options->model, err);
}

/* Notes that device ref ignores an option, because it computes with one thread, in plain C. */
static int note_reference(struct session *session, const struct session_options *options, struct err *err)
{
    const char *name = options->threads > 1 ? "threads" : options->isa ? "isa" : options->pin ? "pin" : NULL;
    if (!name || strncmp(device_info(session->device)->name, "ref", 3))
        return 0;
    return text_printf(&session->notes, err, "--%s: has no effect: device ref computes with one thread, in plain C\n", name);
}

/* Notes that bf16 activations have no effect on a model without bf16 weights. */
static int note_activations(struct session *session, const struct session_options *options, struct err *err)
{
    for (int i = 0; i < model_tensor_count(session->model); i++) {
        const struct tensor *t = model_tensor_at(session->model, i);
        if (t->kind != TENSOR_VECTOR && (t->format == FORMAT_BF16 || tensor_last_format(t) == FORMAT_BF16))
            return 0;
    }
    if (options->activations != ACTIVATIONS_BF16)
        return 0;
    return text_printf(&session->notes, err, "--activations bf16: has no effect: no weights of the model are in bf16\n");
}

int session_open(struct session **out, const struct session_options *options, int rows, int logit_rows, struct err *err)
{
    const struct device_setup device = {options->device ? options->device : "auto", options->threads, options->isa,
                                        options->pin, options->device_turn, options->activations == ACTIVATIONS_BF16,
                                        options->activations == ACTIVATIONS_F32};
    struct prefetching prefetching = {0};
    struct session *session = mem_alloc(1, sizeof *session, err);
    if (!session)
        return -1;
    if (session_check_model(options, &(struct strings){0}, err))
        goto failed;
    session->caching = options->caching;
    if (caching_check(&options->caching, err) || caching_prefetching(&prefetching, &options->caching, err) ||
        open_model(session, options, &device, err))
        goto failed;
    if (note_reference(session, options, err) || note_activations(session, options, err))
        goto failed;
    if (open_tokenizer(session, err) || make_trusted(session, err)) {
        err_at(err, "%s", options->model);
        goto failed;
    }
    if (!options->no_engine && ((!caching_wanted(&session->caching) && open_experts(session, options, err)) ||
                                open_engine(session, options, rows, logit_rows, &prefetching, err)))
        goto failed;
    *out = session;
    prefetching_free(&prefetching);
    return 0;
failed:
    prefetching_free(&prefetching);
    session_close(&session);
    return -1;
}

void session_close(struct session **session)
{
    struct session *s = *session;
    if (!s)
        return;
    engine_close(&s->engine);
    second_close(&s->second);
    peers_close(&s->peers);
    expert_source_close(&s->experts);
    device_close(&s->device);
    template_free(&s->chat);
    tokenizer_free(&s->tokenizer);
    json_decref(s->trusted);
    text_free(&s->notes);
    model_close(&s->model);
    mem_free(session);
}

void session_print(const struct session *session, const struct console *console)
{
    const struct device_info *info = device_info(session->device);
    console_notes(console, &session->notes);
    if (info->no_slabs[0])
        console_note(console, "%s", info->no_slabs);
    if (session->second)
        console_note(console, "%s", second_label(session->second));
    if (console->verbose && expert_source_method(session->experts))
        console_note(console, "experts are read by %s", expert_source_method(session->experts));
}

int session_check_texts(const struct session *session, int texts, int tokens, int copies, struct err *err)
{
    const struct hparams *shape = model_hparams(session->model);
    const bool host = device_info(session->device)->host_memory;
    const int64_t max = (int64_t)engine_max_positions(session->engine) + ENGINE_ROWS_MAX;
    if (texts == 1)
        return 0;
    tokens = tokens < max ? tokens : (int)(max < INT_MAX ? max : INT_MAX);
    const uint64_t each = sequence_state_bytes(shape, device_info(session->device)->slabs) +
                          (uint64_t)kv_token_bytes(shape, engine_config(session->engine)->cache) * (uint64_t)tokens;
    const int64_t all = device_memory_left(session->device);
    const struct peers_link *link = session->link;
    const int64_t weights = host ? caching_kept(session->model, session->experts, link) : 0;
    const int64_t left = all > weights ? all - weights : 0, wanted = (int64_t)each * texts * copies *
                                                                        (link ? link->here : 1);
    char where[64] = "", twice[64] = "";
    if (all < 0 || wanted <= left)
        return 0;
    if (link && link->here > 1)
        snprintf(where, sizeof where, " in each of %d processes of this host", link->here);
    if (copies > 1)
        snprintf(twice, sizeof twice, ", %d caches per text for the automatic budget,", copies);
    return err_set(err, ERR_MEMORY, "the KV caches of %d texts of up to %d tokens%s%s need %lld MiB, but only %lld MiB are "
                   "free beside the weights; give fewer texts, or a smaller --context", texts, tokens, where, twice,
                   (long long)(wanted >> 20), (long long)(left >> 20));
}

int session_keep_hot_set(const struct session *session, struct err *err)
{
    struct stream_model model;
    session_stream_model(session, &model);
    return cache_pins_save(&session->caching, session->experts, &model, err);
}

void session_note_terminal(const struct session_prompts *options, const struct strings *files, const struct console *console)
{
    if (!files->count && !options->texts.count && isatty(STDIN_FILENO))
        console_note(console, "type prompts, as JSON lines or one text, and end with Ctrl-D; or give one with -p TEXT");
}

static void put_note(void *console, const char *text) { console_note(console, "%s", text); }

int session_open_prompts(struct prompts **out, const struct session *session, const struct session_prompts *options,
                         const struct strings *files, const struct stop *stop, const struct console *console,
                         struct err *err)
{
    const struct hparams *shape = model_hparams(session->model);
    struct shard shard;
    if (shard_parse(&shard, options->shard, err))
        return -1;
    const struct prompts_options prompts = {
        .field = options->field, .chat = options->chat, .system = options->system, .whole = options->whole,
        .parse_special = options->parse_special, .words = !options->suite,
        .texts = options->texts.items, .n_texts = (size_t)options->texts.count, .stop = stop,
        .notes = {console ? put_note : NULL, (void *)console},
        .chat_template = session->chat, .template_file = options->chat_template,
        .trusted = session->trusted,
        .template_args = options->template_args.items, .n_template_args = (size_t)options->template_args.count,
        .answers = options->answers, .unanswered = options->unanswered, .policies = options->policies, .each = options->each,
        .ends = shape->eos, .n_ends = shape->eos_count,
        .vocab = shape->vocab, .shard = shard};
    return prompts_open(out, &prompts, files->items, (size_t)files->count, session->tokenizer, err);
}

void session_stream_model(const struct session *session, struct stream_model *out) { stream_model_of(session->model, out); }

void stream_model_of(const struct model *model, struct stream_model *out)
{
    const struct model_identity *identity = model_identity(model);
    static const struct sha256 none;
    *out = (struct stream_model){
        .layers = identity->layers, .moe_layers = identity->moe_layers, .experts = identity->experts, .top_k = identity->top_k,
        .vocab = identity->vocab, .hidden = identity->hidden};
    sha256_hex(&identity->index, out->index_sha256);
    sha256_hex(&identity->source, out->source_sha256);
    if (memcmp(&identity->tokenizer, &none, sizeof none) != 0)
        sha256_hex(&identity->tokenizer, out->tokenizer_sha256);
    snprintf(out->name, sizeof out->name, "%s", identity->name);
}

int session_header_part(struct header *header, const char *shard, struct err *err)
{
    struct shard part;
    if (shard_parse(&part, shard, err))
        return -1;
    header->part = part.part;
    header->parts = part.parts;
    return 0;
}

int session_header(const struct session *session, enum stream_kind kind, const struct console *console, uint64_t seed,
                   struct header *out, struct err *err)
{
    const struct model_identity *identity = model_identity(session->model);
    struct header header = {0};
    const struct hparams *shape = model_hparams(session->model);
    char inflated[64];
    snprintf(inflated, sizeof inflated, "%s inner width %d to %d", identity->moe_layers ? "expert" : "dense",
             identity->inflated_from, identity->moe_layers ? shape->expert_inner : shape->dense_inner);
    if (header_init(&header, kind, console->program, MOE_VERSION, console->argc, console->argv, err) ||
        header_set_dtype(&header, identity->dtype, err) ||
        header_set_device(&header, device_info(session->device)->name, err) ||
        (device_info(session->device)->bf16_activations &&
         header_label(&header, "activations", "rounded to bf16 in products with bf16 weights", err)) ||
        (device_info(session->device)->f32_activations &&
         header_label(&header, "activations", "f32, quantised in products with q8 and q4 weights only", err)) ||
        (identity->synthetic && header_label(&header, "synthetic", "random weights", err)) ||
        (identity->inflated_from && header_label(&header, "inflated", inflated, err)) ||
        (session->second && header_label(&header, "two processors", second_label(session->second), err))) {
        header_free(&header);
        return -1;
    }
    header.has_model = header.has_seed = true;
    header.seed = seed;
    session_stream_model(session, &header.model);
    *out = header;
    return 0;
}
