#include "common/model/model_index.h"

#include <stddef.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/model/index_values.h"

/* One table reads and writes the hparams. */
#define FIELD(key, member) INDEX_FIELD(struct hparams, key, member)
static const struct index_field FIELDS[] = {
    FIELD("vocab", vocab),
    FIELD("hidden", hidden),
    FIELD("max_positions", max_positions),
    FIELD("norm_epsilon", norm_epsilon),
    FIELD("tied", tied),
    FIELD("bos", bos),
    FIELD("pad", pad),
    FIELD("heads", attention.heads),
    FIELD("kv_heads", attention.kv_heads),
    FIELD("head_dim", attention.head_dim),
    FIELD("value_dim", attention.value_dim),
    FIELD("q_rank", attention.q_rank),
    FIELD("kv_rank", attention.kv_rank),
    FIELD("latent_epsilon", attention.latent_epsilon),
    FIELD("qk_norm", attention.qk_norm),
    FIELD("sinks", attention.sinks),
    FIELD("router_bias", router.bias),
    FIELD("expert_bias", expert_bias),
    FIELD("glu_limit", glu_limit),
    FIELD("glu_alpha", glu_alpha),
    FIELD("qkv_bias", attention.qkv_bias),
    FIELD("out_bias", attention.out_bias),
    FIELD("clip_qkv", attention.clip_qkv),
    FIELD("attention_scale", attention.scale),
    FIELD("rope_kind", rope.kind),
    FIELD("rope_rotary", rope.rotary),
    FIELD("rope_theta", rope.theta),
    FIELD("rope_factor", rope.factor),
    FIELD("rope_low_factor", rope.low_factor),
    FIELD("rope_high_factor", rope.high_factor),
    FIELD("rope_original_positions", rope.original_positions),
    FIELD("router_kind", router.kind),
    FIELD("experts", router.experts),
    FIELD("top_k", router.top_k),
    FIELD("renormalise", router.renormalise),
    FIELD("router_scale", router.scale),
    FIELD("expert_inner", expert_inner),
    FIELD("dense_inner", dense_inner),
    FIELD("shared_inner", shared_inner),
    FIELD("shared_gate", shared_gate),
    FIELD("router_correction", router.correction),
    FIELD("groups", router.groups),
    FIELD("groups_kept", router.groups_kept),
    FIELD("group_rank", router.group_rank),
    FIELD("router_jitter", router.jitter),
    FIELD("layer_norm", layer_norm),
    FIELD("head_bias", head_bias),
    FIELD("rope_beta_fast", rope.beta_fast),
    FIELD("rope_beta_slow", rope.beta_slow),
    FIELD("rope_truncate", rope.truncate),
    FIELD("rope_amplitude", rope.amplitude),
    FIELD("rope_long_amplitude", rope.long_amplitude),
    FIELD("embed_scale", embed_scale),
    FIELD("residual_scale", residual_scale),
    FIELD("logit_divisor", logit_divisor),
};
enum { FIELD_COUNT = sizeof FIELDS / sizeof *FIELDS };

/* Fields of few families. A file contains only those that are not 0, in one map, so that files of other models do not
 * change. */
static const struct index_field FURTHER[] = {
    FIELD("norms", norms),
    FIELD("norm_unbiased", norm_unbiased),
    FIELD("parallel", parallel),
    FIELD("turn_first", attention.rope_before_norm),
    FIELD("plain_norm", attention.plain_norm),
    FIELD("still_scale", attention.no_rope_scale),
    FIELD("still_floor", attention.no_rope_floor),
    FIELD("aligned_windows", attention.aligned),
    FIELD("router_weigh_input", router.weigh_input),
    FIELD("zero_experts", router.zero_experts),
    FIELD("shortcut", shortcut),
    FIELD("latent_scale", attention.latent_scale),
    FIELD("index_heads", index.heads),
    FIELD("index_dim", index.dim),
    FIELD("index_top_k", index.top_k),
    FIELD("attention_gate", attention.gate),
    FIELD("shared_scale", shared_scale),
    FIELD("value_scale", attention.value_scale),
    FIELD("value_norm", attention.value_norm),
    FIELD("rope_turning", rope.rotated_pairs),
    FIELD("other_kv_heads", other.kv_heads),
    FIELD("other_head_dim", other.head_dim),
    FIELD("other_value_dim", other.value_dim),
    FIELD("other_sinks", other.sinks),
    FIELD("other_value_is_key", other.value_is_key),
    FIELD("other_rope_kind", other.rope.kind),
    FIELD("other_rope_rotary", other.rope.rotary),
    FIELD("other_rope_turning", other.rope.rotated_pairs),
    FIELD("other_rope_theta", other.rope.theta),
    FIELD("other_rope_factor", other.rope.factor),
    FIELD("other_rope_low_factor", other.rope.low_factor),
    FIELD("other_rope_high_factor", other.rope.high_factor),
    FIELD("other_rope_original_positions", other.rope.original_positions),
    FIELD("other_rope_beta_fast", other.rope.beta_fast),
    FIELD("other_rope_beta_slow", other.rope.beta_slow),
    FIELD("other_rope_truncate", other.rope.truncate),
    FIELD("other_rope_amplitude", other.rope.amplitude),
    FIELD("other_rope_long_amplitude", other.rope.long_amplitude),
    FIELD("glu", glu),
    FIELD("shared_apart", shared_apart),
    FIELD("router_norm", router.norm),
    FIELD("router_logit_scale", router.logit_scale),
    FIELD("router_expert_scale", router.expert_scale),
    FIELD("layer_scale", layer_scale),
    FIELD("logit_cap", logit_cap),
    FIELD("delta_key_heads", delta.key_heads),
    FIELD("delta_value_heads", delta.value_heads),
    FIELD("delta_key_dim", delta.key_dim),
    FIELD("delta_value_dim", delta.value_dim),
    FIELD("delta_taps", delta.taps),
    FIELD("delta_tiled", delta.tiled),
    FIELD("delta_kind", delta.kind),
    FIELD("delta_norm_groups", delta.norm_groups),
    FIELD("delta_conv_bias", delta.conv_bias),
    FIELD("delta_gate_rank", delta.gate_rank),
    FIELD("delta_floor", delta.floor),
    FIELD("head_gate", attention.head_gate),
};
enum { FURTHER_COUNT = sizeof FURTHER / sizeof *FURTHER };

_Static_assert(FIELD_COUNT + 9 <= 64, "fields seen are kept as bits");

/* ---- first page ---- */

static void put_u64(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_u64(const uint8_t *at)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

enum { HEAD_VERSION = 8, HEAD_OFFSET = 16, HEAD_BYTES = 24, HEAD_DIGEST = 32, HEAD_END = 64 };

void model_head_write(uint8_t page[MODEL_PAGE], const struct model_head *head)
{
    memset(page, 0, MODEL_PAGE);
    memcpy(page, MODEL_MAGIC, 8);
    put_u64(page + HEAD_VERSION, MODEL_VERSION);
    put_u64(page + HEAD_OFFSET, head->index_offset);
    put_u64(page + HEAD_BYTES, head->index_bytes);
    memcpy(page + HEAD_DIGEST, &head->index, sizeof head->index);
}

int model_head_read(struct model_head *head, const uint8_t *data, size_t file_bytes, struct err *err)
{
    if (file_is_pointer(data, file_bytes))
        return err_set(err, ERR_INPUT, FILE_POINTER_FAULT);
    if (file_bytes < 8 || memcmp(data, MODEL_MAGIC, 8))
        return err_set(err, ERR_INPUT, "is not a model file; make one with moe-convert");
    if (file_bytes < MODEL_PAGE)
        return err_set(err, ERR_INPUT, "the file is truncated within its first page; convert again");
    if (get_u64(data + HEAD_VERSION) != MODEL_VERSION)
        return err_set(err, ERR_INPUT, "has version %llu of the model format, but this program reads version %d; convert again",
                       (unsigned long long)get_u64(data + HEAD_VERSION), MODEL_VERSION);
    uint64_t offset = get_u64(data + HEAD_OFFSET), bytes = get_u64(data + HEAD_BYTES);
    if (offset < MODEL_PAGE || offset > file_bytes || bytes != file_bytes - offset)
        return err_set(err, ERR_INPUT, "its index should be at bytes %llu to %llu, but the file has %zu bytes; it is "
                       "truncated or damaged, so convert again", (unsigned long long)offset,
                       (unsigned long long)(offset + bytes), file_bytes);
    for (size_t i = HEAD_END; i < MODEL_PAGE; i++)
        if (data[i])
            return err_set(err, ERR_INPUT, "byte %zu of the first page is not zero; the file is damaged, so convert again", i);
    head->index_offset = offset;
    head->index_bytes = bytes;
    memcpy(&head->index, data + HEAD_DIGEST, sizeof head->index);
    return 0;
}

/* ---- facts ---- */

void model_facts_free(struct model_facts *facts)
{
    text_free(&facts->tokenizer_json);
    text_free(&facts->tokenizer_config);
    text_free(&facts->chat_template);
    head_free(&facts->head);
    mem_free(&facts->sources);
    facts->source_count = facts->source_room = 0;
}

void model_facts_name(struct model_facts *facts, const char *name)
{
    size_t used = 0;
    for (; *name && used + 1 < sizeof facts->name; name++)
        facts->name[used++] = *name > ' ' && *name < 0x7f ? *name : '_';
    facts->name[used] = '\0';
}

int model_facts_copy(struct model_facts *out, const struct model_facts *facts, struct err *err)
{
    struct model_facts copy = *facts;
    memset(&copy.tokenizer_json, 0, sizeof copy.tokenizer_json);
    memset(&copy.tokenizer_config, 0, sizeof copy.tokenizer_config);
    memset(&copy.chat_template, 0, sizeof copy.chat_template);
    copy.head.target_id = NULL;
    copy.sources = NULL;
    copy.source_room = 0;
    if (head_copy(&copy.head, &facts->head, err) ||
        text_put(&copy.tokenizer_json, facts->tokenizer_json.data, facts->tokenizer_json.length, err) ||
        text_put(&copy.tokenizer_config, facts->tokenizer_config.data, facts->tokenizer_config.length, err) ||
        text_put(&copy.chat_template, facts->chat_template.data, facts->chat_template.length, err) ||
        mem_grow(&copy.sources, &copy.source_room, facts->source_count, sizeof *copy.sources, err)) {
        model_facts_free(&copy);
        return -1;
    }
    if (facts->source_count)
        memcpy(copy.sources, facts->sources, facts->source_count * sizeof *copy.sources);
    *out = copy;
    return 0;
}

/* ---- writing ---- */

struct sink {
    struct text text;
    struct err *err;
    int failed;
};

static int put_bytes(void *data, const char *bytes, size_t count)
{
    struct sink *sink = data;
    if (!sink->failed)
        sink->failed = text_put(&sink->text, bytes, count, sink->err);
    return sink->failed;
}

/* Written only for models with predictors: files of other models stay readable by programs that do not know the key. */
static void put_predictors(msgpack_packer *to, const struct hparams *shape)
{
    if (!shape->predictors)
        return;
    index_put_text(to, "predictors");
    msgpack_pack_array(to, (size_t)shape->predictors);
    for (int i = 0; i < shape->predictors; i++) {
        const struct layer_shape *layer = &shape->layer[shape->layers + i];
        msgpack_pack_array(to, 4);
        msgpack_pack_int(to, layer->ffn);
        msgpack_pack_int(to, layer->window);
        msgpack_pack_int(to, shape->predictor[i].embed);
        msgpack_pack_int(to, shape->predictor[i].head);
    }
}

/* Returns whether a layer has a flag: a member of struct layer_shape at `offset`. The layers include those of predictors. */
static bool layer_flag(const struct hparams *shape, int layer, size_t offset)
{
    return *((const char *)&shape->layer[layer] + offset) != 0;
}

static int flagged_layers(const struct hparams *shape, size_t offset)
{
    int count = 0;
    for (int i = 0; i < shape->layers + shape->predictors; i++)
        count += layer_flag(shape, i, offset);
    return count;
}

static void put_flags(msgpack_packer *to, const struct hparams *shape, const char *key, size_t offset)
{
    const int count = flagged_layers(shape, offset);
    if (!count)
        return;
    index_put_text(to, key);
    msgpack_pack_array(to, (size_t)count);
    for (int i = 0; i < shape->layers + shape->predictors; i++)
        if (layer_flag(shape, i, offset))
            msgpack_pack_int(to, i);
}

enum {
    NO_ROPE = offsetof(struct layer_shape, no_rope), OTHER = offsetof(struct layer_shape, other),
    STATES = offsetof(struct layer_shape, state), SHARES_INDEX = offsetof(struct layer_shape, shares_index),
    FFN_ALONE = offsetof(struct layer_shape, ffn_alone)
};

static bool has_limits(const struct hparams *shape)
{
    for (int i = 0; i < shape->layers + shape->predictors; i++)
        if (shape->layer[i].expert_limit > 0 || shape->layer[i].shared_limit > 0)
            return true;
    return false;
}

/* Writes both limits of each layer, including those of predictors. */
static void put_limits(msgpack_packer *to, const struct hparams *shape)
{
    const int layers = shape->layers + shape->predictors;
    if (!has_limits(shape))
        return;
    index_put_text(to, "layer_limits");
    msgpack_pack_array(to, 2 * (size_t)layers);
    for (int i = 0; i < layers; i++) {
        msgpack_pack_double(to, (double)shape->layer[i].expert_limit);
        msgpack_pack_double(to, (double)shape->layer[i].shared_limit);
    }
}

/* Returns the number of keys of "further". */
static int further_fields(const struct hparams *shape)
{
    int count = 0;
    for (int i = 0; i < FURTHER_COUNT; i++)
        count += index_field_is_set(shape, &FURTHER[i]);
    return count + (flagged_layers(shape, SHARES_INDEX) > 0) + (flagged_layers(shape, FFN_ALONE) > 0) + has_limits(shape);
}

static void put_further(msgpack_packer *to, const struct hparams *shape)
{
    const int count = further_fields(shape);
    if (!count)
        return;
    index_put_text(to, "further");
    msgpack_pack_map(to, (size_t)count);
    for (int i = 0; i < FURTHER_COUNT; i++)
        if (index_field_is_set(shape, &FURTHER[i]))
            index_put_field(to, shape, &FURTHER[i]);
    put_flags(to, shape, "shares_index", SHARES_INDEX);
    put_flags(to, shape, "ffn_alone", FFN_ALONE);
    put_limits(to, shape);
}

static void put_shape(msgpack_packer *to, const struct hparams *shape)
{
    msgpack_pack_map(to, FIELD_COUNT + 4 + (shape->predictors > 0) + (flagged_layers(shape, NO_ROPE) > 0) +
                         (flagged_layers(shape, OTHER) > 0) + (flagged_layers(shape, STATES) > 0) +
                         (further_fields(shape) > 0));
    index_put_text(to, "family");
    index_put_text(to, shape->family);
    index_put_text(to, "eos");
    msgpack_pack_array(to, (size_t)shape->eos_count);
    for (int i = 0; i < shape->eos_count; i++)
        msgpack_pack_int(to, shape->eos[i]);
    int pairs = shape->rope.kind == ROPE_STRETCHED ? shape->rope.rotary / 2 : 0;
    index_put_text(to, "rope_stretch");
    msgpack_pack_array(to, (size_t)pairs);
    for (int i = 0; i < pairs; i++)
        msgpack_pack_double(to, shape->rope.stretch[i]);
    index_put_text(to, "layers");
    msgpack_pack_array(to, (size_t)shape->layers);
    for (int i = 0; i < shape->layers; i++) {
        msgpack_pack_array(to, 2);
        msgpack_pack_int(to, shape->layer[i].ffn);
        msgpack_pack_int(to, shape->layer[i].window);
    }
    put_predictors(to, shape);
    put_flags(to, shape, "still", NO_ROPE);
    put_flags(to, shape, "other", OTHER);
    put_flags(to, shape, "states", STATES);
    put_further(to, shape);
    for (int i = 0; i < FIELD_COUNT; i++)
        index_put_field(to, shape, &FIELDS[i]);
}

static void put_sources(msgpack_packer *to, const struct model_facts *facts)
{
    msgpack_pack_array(to, facts->source_count);
    for (size_t i = 0; i < facts->source_count; i++) {
        msgpack_pack_array(to, 3);
        index_put_text(to, facts->sources[i].name);
        msgpack_pack_uint64(to, facts->sources[i].bytes);
        index_put_blob(to, &facts->sources[i].digest, sizeof facts->sources[i].digest);
    }
}

static void put_tensors(msgpack_packer *to, const struct layout *layout)
{
    msgpack_pack_array(to, (size_t)layout->count);
    for (int i = 0; i < layout->count; i++) {
        const struct tensor *t = &layout->tensors[i];
        uint8_t digest[16];
        char format[FORMAT_TEXT];
        tensor_format_write(t, format);
        put_u64(digest, t->digest.low);
        put_u64(digest + 8, t->digest.high);
        msgpack_pack_array(to, 10);
        index_put_text(to, t->name);
        msgpack_pack_int(to, (int)t->kind);
        index_put_text(to, format);
        msgpack_pack_int(to, t->outputs);
        msgpack_pack_int(to, t->inputs);
        msgpack_pack_int(to, t->count);
        msgpack_pack_uint64(to, t->offset);
        msgpack_pack_uint64(to, t->stride);
        msgpack_pack_uint64(to, t->bytes);
        index_put_blob(to, digest, sizeof digest);
    }
}

enum index_key {
    INDEX_NAME, INDEX_PRODUCER, INDEX_SYNTHETIC, INDEX_SEED, INDEX_INFLATED, INDEX_SOURCE, INDEX_SOURCES, INDEX_HPARAMS,
    INDEX_TENSORS, INDEX_TOKENIZER, INDEX_TOKENIZER_JSON, INDEX_TOKENIZER_CONFIG, INDEX_CHAT_TEMPLATE, INDEX_HEAD,
    INDEX_KEYS, OPTIONAL_KEYS = 1         /* number of optional keys, which are the last */
};

int model_index_write(struct text *out, const struct model_facts *facts, const struct layout *layout, struct err *err)
{
    struct sink sink = {.err = err};
    msgpack_packer to;
    msgpack_packer_init(&to, &sink, put_bytes);
    msgpack_pack_map(&to, INDEX_KEYS - (facts->head.kind == HEAD_NONE));
    index_put_text(&to, "name");
    index_put_text(&to, facts->name);
    index_put_text(&to, "producer");
    index_put_text(&to, facts->producer);
    index_put_text(&to, "synthetic");
    facts->synthetic ? msgpack_pack_true(&to) : msgpack_pack_false(&to);
    index_put_text(&to, "seed");
    msgpack_pack_uint64(&to, facts->seed);
    index_put_text(&to, "inflated_from");
    msgpack_pack_int(&to, facts->inflated_from);
    index_put_text(&to, "source");
    index_put_blob(&to, &facts->source, sizeof facts->source);
    index_put_text(&to, "sources");
    put_sources(&to, facts);
    if (facts->head.kind != HEAD_NONE) {
        index_put_text(&to, "head");
        index_put_head(&to, &facts->head);
    }
    index_put_text(&to, "hparams");
    put_shape(&to, &facts->shape);
    index_put_text(&to, "tensors");
    put_tensors(&to, layout);
    index_put_text(&to, "tokenizer");
    index_put_blob(&to, &facts->tokenizer, sizeof facts->tokenizer);
    index_put_text(&to, "tokenizer_json");
    index_put_blob(&to, facts->tokenizer_json.data, facts->tokenizer_json.length);
    index_put_text(&to, "tokenizer_config");
    index_put_blob(&to, facts->tokenizer_config.data, facts->tokenizer_config.length);
    index_put_text(&to, "chat_template");
    index_put_blob(&to, facts->chat_template.data, facts->chat_template.length);
    int rc = sink.failed ? -1 : text_put(out, sink.text.data, sink.text.length, err);
    text_free(&sink.text);
    return rc;
}

/* ---- reading ---- */

struct index_reader {
    struct cursor cursor;
    struct model_facts *facts;
    struct layout *layout;
    uint64_t data_end;
    bool have_shape;
    struct layer_shape further[PREDICTORS_MAX];     /* layers of the predictors, until the number of layers is known */
};

static int take_eos(struct index_reader *r, struct err *err)
{
    size_t count;
    if (index_count(&r->cursor, EOS_MAX, &count, err))
        return -1;
    for (size_t i = 0; i < count; i++)
        if (index_int32(&r->cursor, &r->facts->shape.eos[i], err))
            return -1;
    r->facts->shape.eos_count = (int)count;
    return 0;
}

static int take_layers(struct index_reader *r, struct err *err)
{
    size_t count;
    if (index_count(&r->cursor, LAYERS_MAX, &count, err))
        return -1;
    for (size_t i = 0; i < count; i++) {
        int64_t ffn;
        if (index_list_of(&r->cursor, 2, err) || index_int(&r->cursor, 0, FFN_NONE, &ffn, err) ||
            index_int32(&r->cursor, &r->facts->shape.layer[i].window, err))
            return -1;
        r->facts->shape.layer[i].ffn = (uint8_t)ffn;
    }
    r->facts->shape.layers = (int)count;
    return 0;
}

static int take_predictors(struct index_reader *r, struct err *err)
{
    size_t count;
    if (index_count(&r->cursor, PREDICTORS_MAX, &count, err))
        return -1;
    for (size_t i = 0; i < count; i++) {
        int64_t ffn, embed, head;
        if (index_list_of(&r->cursor, 4, err) || index_int(&r->cursor, 0, FFN_EXPERTS, &ffn, err) ||
            index_int32(&r->cursor, &r->further[i].window, err) ||
            index_int(&r->cursor, 0, 1, &embed, err) || index_int(&r->cursor, 0, 1, &head, err))
            return -1;
        r->further[i].ffn = (uint8_t)ffn;
        r->facts->shape.predictor[i] = (struct predictor_shape){embed != 0, head != 0};
    }
    r->facts->shape.predictors = (int)count;
    return 0;
}

/* Sets a flag of the listed layers. The list may precede that of the layers, which leaves flags unchanged. */
static int take_flags(struct index_reader *r, size_t offset, struct err *err)
{
    size_t count;
    if (index_count(&r->cursor, LAYERS_MAX, &count, err))
        return -1;
    for (size_t i = 0; i < count; i++) {
        int64_t layer;
        if (index_int(&r->cursor, 0, LAYERS_MAX - 1, &layer, err))
            return -1;
        *((bool *)((char *)&r->facts->shape.layer[layer] + offset)) = true;
    }
    return 0;
}

static int take_no_rope(struct index_reader *r, struct err *err) { return take_flags(r, NO_ROPE, err); }
static int take_other(struct index_reader *r, struct err *err) { return take_flags(r, OTHER, err); }
static int take_states(struct index_reader *r, struct err *err) { return take_flags(r, STATES, err); }

static int take_shares_index(struct index_reader *r, struct err *err) { return take_flags(r, SHARES_INDEX, err); }
static int take_ffn_alone(struct index_reader *r, struct err *err) { return take_flags(r, FFN_ALONE, err); }

static int take_limits(struct index_reader *r, struct err *err)
{
    struct wire_value value;
    size_t count;
    if (index_count(&r->cursor, 2 * LAYERS_MAX, &count, err))
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct layer_shape *layer = &r->facts->shape.layer[i / 2];
        if (index_take(&r->cursor, WIRE_REAL, &value, err))
            return -1;
        *(i % 2 ? &layer->shared_limit : &layer->expert_limit) = (float)value.real;
    }
    return 0;
}

static const struct shape_list { const char *key; int (*take)(struct index_reader *, struct err *); } FURTHER_LISTS[] = {
    {"shares_index", take_shares_index}, {"ffn_alone", take_ffn_alone}, {"layer_limits", take_limits}};
enum { FURTHER_KEYS = FURTHER_COUNT + sizeof FURTHER_LISTS / sizeof *FURTHER_LISTS };
_Static_assert(FURTHER_KEYS <= 64, "fields seen are kept as bits");

static const char *further_key(int key)
{
    return key < FURTHER_COUNT ? FURTHER[key].key : FURTHER_LISTS[key - FURTHER_COUNT].key;
}

static int take_further_key(void *context, int key, struct err *err)
{
    struct index_reader *r = context;
    return key < FURTHER_COUNT ? index_take_field(&r->cursor, &r->facts->shape, &FURTHER[key], err)
                               : FURTHER_LISTS[key - FURTHER_COUNT].take(r, err);
}

static int take_further(struct index_reader *r, struct err *err)
{
    return index_map(&r->cursor, further_key, FURTHER_KEYS, 0, INDEX_REFUSE, take_further_key, r, err);
}

static int take_stretch(struct index_reader *r, struct err *err)
{
    struct wire_value value;
    size_t count;
    if (index_count(&r->cursor, HEAD_DIM_MAX / 2, &count, err))
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (index_take(&r->cursor, WIRE_REAL, &value, err))
            return -1;
        r->facts->shape.rope.stretch[i] = value.real;
    }
    return 0;
}

static int take_family(struct index_reader *r, struct err *err)
{
    return index_text(&r->cursor, r->facts->shape.family, sizeof r->facts->shape.family, err);
}

static const struct shape_list SHAPE_LISTS[] = {
    {"family", take_family}, {"eos", take_eos}, {"rope_stretch", take_stretch}, {"layers", take_layers},
    {"predictors", take_predictors}, {"still", take_no_rope}, {"other", take_other}, {"states", take_states},
    {"further", take_further}};
enum { SHAPE_LIST_COUNT = sizeof SHAPE_LISTS / sizeof *SHAPE_LISTS, OPTIONAL_LISTS = 5 };    /* number of optional lists,
                                                                                              * which are the last */

static const char *shape_key(int key)
{
    return key < FIELD_COUNT ? FIELDS[key].key : SHAPE_LISTS[key - FIELD_COUNT].key;
}

static int take_shape_key(void *context, int key, struct err *err)
{
    struct index_reader *r = context;
    return key < FIELD_COUNT ? index_take_field(&r->cursor, &r->facts->shape, &FIELDS[key], err)
                             : SHAPE_LISTS[key - FIELD_COUNT].take(r, err);
}

static int take_shape(struct index_reader *r, struct err *err)
{
    struct hparams *shape = &r->facts->shape;
    int keys = FIELD_COUNT + SHAPE_LIST_COUNT;
    if (index_map(&r->cursor, shape_key, keys, keys - OPTIONAL_LISTS, INDEX_REFUSE, take_shape_key, r, err))
        return -1;
    for (int i = 0; i < shape->predictors && shape->layers + i < LAYERS_MAX; i++) {
        shape->layer[shape->layers + i].ffn = r->further[i].ffn;
        shape->layer[shape->layers + i].window = r->further[i].window;
    }
    const struct head_params *head = r->facts->head.kind != HEAD_NONE ? &r->facts->head : NULL;
    if (head ? head_check(head, shape, err) : hparams_check(shape, err))
        return -1;
    r->have_shape = true;
    return head ? layout_make_head(r->layout, head, shape, err) : layout_make(r->layout, shape, err);
}

static int take_head(struct index_reader *r, struct err *err)
{
    if (r->have_shape)
        return err_set(err, ERR_INPUT, "must precede hparams");
    return index_take_head(&r->cursor, &r->facts->head, err);
}

static int take_sources(struct index_reader *r, struct err *err)
{
    size_t count;
    if (index_count(&r->cursor, 100000, &count, err) ||
        mem_grow(&r->facts->sources, &r->facts->source_room, count, sizeof *r->facts->sources, err))
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct model_source *source = &r->facts->sources[i];
        int64_t bytes;
        if (index_list_of(&r->cursor, 3, err) || index_text(&r->cursor, source->name, sizeof source->name, err) ||
            index_int(&r->cursor, 0, INT64_MAX, &bytes, err) ||
            index_blob(&r->cursor, &source->digest, sizeof source->digest, err))
            return -1;
        source->bytes = (uint64_t)bytes;
    }
    r->facts->source_count = count;
    return 0;
}

/* Reads a tensor's entry and checks that it matches the shape. */
static int take_tensor(struct index_reader *r, struct tensor *t, uint64_t *data_at, struct err *err)
{
    char name[64], format[FORMAT_TEXT];
    uint8_t digest[16];
    int64_t kind, outputs, inputs, count, offset, stride, bytes;
    if (index_list_of(&r->cursor, 10, err) || index_text(&r->cursor, name, sizeof name, err) ||
        index_int(&r->cursor, 0, TENSOR_EXPERTS, &kind, err) ||
        index_text(&r->cursor, format, sizeof format, err) || index_int(&r->cursor, 0, INT32_MAX, &outputs, err) ||
        index_int(&r->cursor, 0, INT32_MAX, &inputs, err) || index_int(&r->cursor, 0, INT32_MAX, &count, err) ||
        index_int(&r->cursor, 0, INT64_MAX, &offset, err) || index_int(&r->cursor, 0, INT64_MAX, &stride, err) ||
        index_int(&r->cursor, 0, INT64_MAX, &bytes, err) || index_blob(&r->cursor, digest, sizeof digest, err))
        return -1;
    if (strcmp(name, t->name))
        return err_set(err, ERR_INPUT, "the tensor %s must be here, not %s", t->name, name);
    if (kind != (int64_t)t->kind || outputs != t->outputs || inputs != t->inputs || count != t->count)
        return err_set(err, ERR_INPUT, "tensor %s: the shape must be %d x [%d][%d], not %lld x [%lld][%lld]", name, t->count,
                       t->outputs, t->inputs, (long long)count, (long long)outputs, (long long)inputs);
    if (!tensor_format_read(t, format))
        return err_set(err, ERR_INPUT, "tensor %s: format %s is not supported", name, format);
    if (tensor_measure(t, err))
        return -1;
    if ((uint64_t)stride != t->stride || (uint64_t)bytes != t->bytes)
        return err_set(err, ERR_INPUT, "tensor %s: each of its matrices must have %llu bytes, and all together %llu", name,
                       (unsigned long long)t->stride,
                       (unsigned long long)t->bytes);
    if (offset % MODEL_PAGE || (uint64_t)offset < *data_at || (uint64_t)offset > r->data_end ||
        t->bytes > r->data_end - (uint64_t)offset)
        return err_set(err, ERR_INPUT, "tensor %s: its data at byte %lld must begin at a page boundary, after the previous "
                       "tensor", name,
                       (long long)offset);
    t->offset = (uint64_t)offset;
    t->digest = (struct digest128){get_u64(digest), get_u64(digest + 8)};
    *data_at = t->offset + t->bytes;
    return 0;
}

static int take_tensors(struct index_reader *r, struct err *err)
{
    uint64_t data_at = MODEL_PAGE;
    if (!r->have_shape)
        return err_set(err, ERR_INPUT, "must follow hparams");
    if (index_list_of(&r->cursor, (size_t)r->layout->count, err))
        return -1;
    for (int i = 0; i < r->layout->count; i++)
        if (take_tensor(r, &r->layout->tensors[i], &data_at, err))
            return err_at(err, "entry %d", i);
    return 0;
}

static const char *const INDEX_NAMES[INDEX_KEYS] = {
    "name", "producer", "synthetic", "seed", "inflated_from", "source", "sources", "hparams",
    "tensors", "tokenizer", "tokenizer_json", "tokenizer_config", "chat_template", "head"};

static const char *index_name(int key) { return INDEX_NAMES[key]; }

static int take_index_key(void *context, int key, struct err *err)
{
    struct index_reader *r = context;
    struct model_facts *facts = r->facts;
    struct wire_value value;
    switch ((enum index_key)key) {
    case INDEX_NAME:
        return index_text(&r->cursor, facts->name, sizeof facts->name, err);
    case INDEX_PRODUCER:
        return index_text(&r->cursor, facts->producer, sizeof facts->producer, err);
    case INDEX_SYNTHETIC:
        return index_flag(&r->cursor, &facts->synthetic, err);
    case INDEX_SEED:
        if (index_take(&r->cursor, WIRE_INT, &value, err))
            return -1;
        facts->seed = value.integer;
        return value.negative ? err_set(err, ERR_INPUT, "must not be negative") : 0;
    case INDEX_INFLATED:
        return index_int32(&r->cursor, &facts->inflated_from, err);
    case INDEX_SOURCE:
        return index_blob(&r->cursor, &facts->source, sizeof facts->source, err);
    case INDEX_SOURCES:
        return take_sources(r, err);
    case INDEX_HEAD:
        return take_head(r, err);
    case INDEX_HPARAMS:
        return take_shape(r, err);
    case INDEX_TENSORS:
        return take_tensors(r, err);
    case INDEX_TOKENIZER:
        return index_blob(&r->cursor, &facts->tokenizer, sizeof facts->tokenizer, err);
    case INDEX_TOKENIZER_JSON:
        return index_long_text(&r->cursor, &facts->tokenizer_json, err);
    case INDEX_TOKENIZER_CONFIG:
        return index_long_text(&r->cursor, &facts->tokenizer_config, err);
    default:
        return index_long_text(&r->cursor, &facts->chat_template, err);
    }
}

int model_index_read(struct model_facts *facts, struct layout *layout, const uint8_t *data, size_t bytes, uint64_t data_end,
                     struct err *err)
{
    static const struct wire_limits limits = {.bytes = SIZE_MAX, .values = 4u << 20};
    struct model_facts read = {0};
    struct layout tensors = {0};
    struct index_reader r = {.cursor = {data, data + bytes}, .facts = &read, .layout = &tensors, .data_end = data_end};
    struct scan scan = {0};
    enum scan_result whole = scan_object(&scan, data, bytes, &limits, err);
    if (whole == SCAN_MORE || (whole == SCAN_WHOLE && scan.at != bytes))
        err_set(err, ERR_INPUT, "must be one complete msgpack object");
    if (whole != SCAN_WHOLE || scan.at != bytes ||
        index_map(&r.cursor, index_name, INDEX_KEYS, INDEX_KEYS - OPTIONAL_KEYS, INDEX_SKIP,
                  take_index_key, &r, err))
        goto failed;
    const bool experts = hparams_moe_layers(&read.shape) > 0;
    const int inner = experts ? read.shape.expert_inner : read.shape.dense_inner;
    if (read.inflated_from < 0 || (read.inflated_from && read.inflated_from > inner)) {
        err_set(err, ERR_INPUT, "inflated_from is %d, but must be below the inner width of %s, %d", read.inflated_from,
                experts ? "experts" : "dense layers", inner);
        goto failed;
    }
    *facts = read;
    *layout = tensors;
    return 0;
failed:
    layout_free(&tensors);
    model_facts_free(&read);
    return err_at(err, "index");
}
