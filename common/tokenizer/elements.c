#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"

static const char *get_type(const json_t *element)
{
    const char *type = json_string_value(json_object_get(element, "type"));
    return type ? type : json_is_null(element) ? "null" : "(no type)";
}

/* Each kind of element is one row of a table; `load` reads its settings. */
struct element {
    const char *type;
    int (*load)(struct tokenizer *t, const json_t *element, struct err *err);
};

/* Finds the row of an element and loads it. A Sequence loads its members; null loads nothing. */
static int load_element(struct tokenizer *t, const json_t *element, const char *where, const char *members,
                        const struct element *rows, int depth, struct err *err)
{
    const char *type = get_type(element);
    if (!element || json_is_null(element))
        return 0;
    if (!strcmp(type, "Sequence")) {
        const json_t *list = json_object_get(element, members), *member;
        size_t i;
        if (!json_is_array(list) || depth > 4)
            return err_set(err, ERR_INPUT, "%s: a Sequence must have a list \"%s\", not nested deeper than 4", where, members);
        json_array_foreach(list, i, member)
            if (load_element(t, member, where, members, rows, depth + 1, err))
                return -1;
        return 0;
    }
    for (; rows->type; rows++)
        if (!strcmp(type, rows->type))
            return rows->load(t, element, err) ? err_at(err, "%s %s", where, type) : 0;
    return err_set(err, ERR_INPUT, "%s: \"%.60s\" is not supported", where, type);
}

static int too_many(const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "the tokenizer has more than %d %s, the maximum", TOKENIZER_STEPS, what);
}

/* Loads a needle, {"Regex": ...} or {"String": ...}. */
static int load_needle(const json_t *element, struct needle *needle, struct err *err)
{
    const json_t *pattern = json_object_get(element, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex"), *literal = json_object_get(pattern, "String");
    if (json_is_string(regex))
        return regex_compile(&needle->regex, json_string_value(regex), json_string_length(regex), err);
    if (!json_is_string(literal) || !json_string_length(literal))
        return err_set(err, ERR_INPUT, "the pattern must be a Regex, or a String that is not empty");
    needle->literal_bytes = json_string_length(literal);
    needle->literal = mem_copy(json_string_value(literal), needle->literal_bytes, err);
    return needle->literal ? 0 : -1;
}

static int load_content(const json_t *element, const char *key, char **content, size_t *bytes, struct err *err)
{
    const json_t *value = json_object_get(element, key);
    if (!json_is_string(value) || json_string_length(value) > TOKENIZER_ADDED_BYTES)
        return err_set(err, ERR_INPUT, "\"%s\" must be a string of at most %d bytes", key, TOKENIZER_ADDED_BYTES);
    *bytes = json_string_length(value);
    *content = mem_copy(json_string_value(value), *bytes, err);
    return *content ? 0 : -1;
}

/* Loads a member that must be one character. */
static int load_character(const json_t *element, const char *key, const char *fallback, char **out, size_t *bytes,
                          struct err *err)
{
    const json_t *value = json_object_get(element, key);
    const char *text = value ? json_string_value(value) : fallback;
    *bytes = !text ? 0 : value ? json_string_length(value) : strlen(text);
    if (!*bytes || (size_t)utf8_next(text, *bytes, NULL) != *bytes)
        return err_set(err, ERR_INPUT, "\"%s\" must be one character", key);
    *out = mem_copy(text, *bytes, err);
    return *out ? 0 : -1;
}

/* ---- normalisers ---- */

static int add_normalizer(struct tokenizer *t, normalizer_apply *apply, struct normalizer_step **out, struct err *err)
{
    if (t->n_normalizers == TOKENIZER_STEPS)
        return too_many("normalizers", err);
    *out = &t->normalizers[t->n_normalizers++];
    (*out)->apply = apply;
    return 0;
}

static int load_form(struct tokenizer *t, const json_t *element, struct err *err)
{
    const char *type = get_type(element);
    struct normalizer_step *step;
    if (add_normalizer(t, normalize_form, &step, err))
        return -1;
    step->compatible = type[2] == 'K';
    step->composed = type[strlen(type) - 1] == 'C';
    return 0;
}

static int load_prepend(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct normalizer_step *step;
    return add_normalizer(t, normalize_prepend, &step, err) ||
           load_content(element, "prepend", &step->content, &step->content_bytes, err) ? -1 : 0;
}

static int load_replace(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct normalizer_step *step;
    return add_normalizer(t, normalize_replace, &step, err) || load_needle(element, &step->needle, err) ||
           load_content(element, "content", &step->content, &step->content_bytes, err) ? -1 : 0;
}

static const struct element normalizers[] = {
    { "NFC", load_form }, { "NFD", load_form }, { "NFKC", load_form }, { "NFKD", load_form },
    { "Prepend", load_prepend }, { "Replace", load_replace }, { NULL, NULL }
};

int load_normalizer(struct tokenizer *t, const json_t *root, struct err *err)
{
    return load_element(t, json_object_get(root, "normalizer"), "normalizer", "normalizers", normalizers, 0, err);
}

/* ---- pre-tokenisers ---- */

static int add_split(struct tokenizer *t, split_apply *apply, struct split_step **out, struct err *err)
{
    if (t->n_splits == TOKENIZER_STEPS)
        return too_many("pre-tokenizers", err);
    *out = &t->splits[t->n_splits++];
    (*out)->apply = apply;
    return 0;
}

static int load_behavior(const json_t *element, const char *fallback, enum split_behavior *out, struct err *err)
{
    static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
    const json_t *value = json_object_get(element, "behavior");
    const char *behavior = value ? json_string_value(value) : fallback;
    for (int i = 0; behavior && i < 5; i++)
        if (!strcmp(behavior, names[i])) {
            *out = (enum split_behavior)i;
            return 0;
        }
    return err_set(err, ERR_INPUT, "the behavior \"%.40s\" is not supported", behavior ? behavior : "");
}

static int load_split(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct split_step *step;
    return add_split(t, split_pattern, &step, err) || load_behavior(element, NULL, &step->behavior, err) ||
           load_bool(element, "Split", "invert", false, &step->invert, err) ||
           load_needle(element, &step->needle, err) ? -1 : 0;
}

static int load_byte_level(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct split_step *step;
    if (add_split(t, split_byte_level, &step, err) ||
        load_bool(element, "ByteLevel", "add_prefix_space", true, &step->add_prefix_space, err) ||
        load_bool(element, "ByteLevel", "use_regex", true, &step->use_regex, err))
        return -1;
    step->behavior = SPLIT_ISOLATED;
    return step->use_regex ?
           regex_compile(&step->needle.regex, split_byte_level_pattern, strlen(split_byte_level_pattern), err) : 0;
}

static int load_digits(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct split_step *step;
    bool individual = false;
    if (add_split(t, split_characters, &step, err) ||
        load_bool(element, "Digits", "individual_digits", false, &individual, err))
        return -1;
    step->is = is_numeric;
    step->behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    return 0;
}

static int load_punctuation(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct split_step *step;
    if (add_split(t, split_characters, &step, err) || load_behavior(element, "Isolated", &step->behavior, err))
        return -1;
    step->is = is_punctuation;
    return 0;
}

static int load_white_space(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct split_step *step;
    (void)element;
    if (add_split(t, split_characters, &step, err))
        return -1;
    step->is = is_space;
    step->behavior = SPLIT_REMOVED;
    return 0;
}

static int load_words(struct tokenizer *t, const json_t *element, struct err *err)
{
    static const char pattern[] = "[\\w\\x{200C}\\x{200D}]+|[^\\w\\s\\x{200C}\\x{200D}]+";
    struct split_step *step;
    (void)element;
    if (add_split(t, split_pattern, &step, err))
        return -1;
    step->behavior = SPLIT_REMOVED;
    step->invert = true;
    return regex_compile(&step->needle.regex, pattern, sizeof pattern - 1, err);
}

/* prepend_scheme (always, first, never); older files have add_prefix_space instead. */
static int load_scheme(const json_t *element, bool *always, bool *first, struct err *err)
{
    const json_t *value = json_object_get(element, "prepend_scheme");
    const char *scheme = value ? json_string_value(value) : "always";
    bool prefix;
    if (load_bool(element, "Metaspace", "add_prefix_space", true, &prefix, err))
        return -1;
    if (!value && !prefix)
        scheme = "never";
    if (!scheme || (strcmp(scheme, "always") && strcmp(scheme, "first") && strcmp(scheme, "never")))
        return err_set(err, ERR_INPUT, "\"prepend_scheme\" must be \"always\", \"first\" or \"never\"");
    if (!prefix && strcmp(scheme, "never"))
        return err_set(err, ERR_INPUT, "\"add_prefix_space\" contradicts \"prepend_scheme\"");
    *always = strcmp(scheme, "never") != 0;
    *first = !strcmp(scheme, "first");
    return 0;
}

static int load_metaspace(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct split_step *step;
    return add_split(t, split_metaspace, &step, err) ||
           load_character(element, "replacement", "\xE2\x96\x81", &step->needle.literal, &step->needle.literal_bytes, err) ||
           load_scheme(element, &step->add_prefix_space, &step->first_only, err) ||
           load_bool(element, "Metaspace", "split", true, &step->use_regex, err) ? -1 : 0;
}

static const struct element pre_tokenizers[] = {
    { "Split", load_split }, { "ByteLevel", load_byte_level }, { "Digits", load_digits }, { "Metaspace", load_metaspace },
    { "Punctuation", load_punctuation }, { "Whitespace", load_words }, { "WhitespaceSplit", load_white_space }, { NULL, NULL }
};

int load_pre_tokenizer(struct tokenizer *t, const json_t *root, struct err *err)
{
    return load_element(t, json_object_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers", pre_tokenizers, 0, err);
}

/* ---- decoders ---- */

/* Only rewrites of single tokens can be prepared per token. The other decoders must therefore come in the order
 * [Replace, Strip, Metaspace], ByteFallback, Fuse, Strip, each at most once. */
static int add_decoder(struct tokenizer *t, decoder_apply *apply, struct decoder_step **out, struct err *err)
{
    if (t->decoding.byte_tokens || t->decoding.fused)
        return err_set(err, ERR_INPUT, "not supported after ByteFallback, Fuse or ByteLevel");
    if (t->decoding.first_drops)
        return err_set(err, ERR_INPUT, "not supported after Metaspace");
    if (t->n_decoders == TOKENIZER_STEPS)
        return too_many("decoders", err);
    *out = &t->decoders[t->n_decoders++];
    (*out)->apply = apply;
    return 0;
}

static int load_decode_byte_level(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct decoder_step *step;
    (void)element;
    if (add_decoder(t, decode_byte_level, &step, err))
        return -1;
    step->skips_added = t->decoding.fused = t->decoding.raw = true;
    return 0;
}

static int load_decode_replace(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct decoder_step *step;
    return add_decoder(t, decode_replace, &step, err) || load_needle(element, &step->needle, err) ||
           load_content(element, "content", &step->content, &step->content_bytes, err) ? -1 : 0;
}

static int load_byte_fallback(struct tokenizer *t, const json_t *element, struct err *err)
{
    (void)element;
    if (t->decoding.fused)
        return err_set(err, ERR_INPUT, "not supported after Fuse or ByteLevel");
    t->decoding.byte_tokens = t->decoding.whole_runs = true;
    return 0;
}

static int load_fuse(struct tokenizer *t, const json_t *element, struct err *err)
{
    (void)element, (void)err;
    t->decoding.fused = true;
    return 0;
}

static int load_decode_strip(struct tokenizer *t, const json_t *element, struct err *err)
{
    const json_t *start = json_object_get(element, "start"), *stop = json_object_get(element, "stop");
    struct decoder_step *step = NULL, whole = {0};
    if (!json_is_integer(start) || !json_is_integer(stop) || json_integer_value(start) < 0 || json_integer_value(stop) < 0)
        return err_set(err, ERR_INPUT, "\"start\" and \"stop\" must be numbers from 0");
    if (!t->decoding.fused && add_decoder(t, decode_strip, &step, err))
        return -1;
    if (!step)
        step = &whole;
    if (load_character(element, "content", NULL, &step->needle.literal, &step->needle.literal_bytes, err))
        return -1;
    step->left = json_integer_value(start);
    step->right = json_integer_value(stop);
    if (step != &whole)
        return 0;
    memcpy(t->decoding.stripped, whole.needle.literal, whole.needle.literal_bytes + 1);
    needle_free(&whole.needle);
    if (whole.right || t->decoding.strip)
        return err_set(err, ERR_INPUT, "\"stop\" and a second Strip are not supported after Fuse");
    t->decoding.strip = whole.left;
    return 0;
}

static int load_decode_metaspace(struct tokenizer *t, const json_t *element, struct err *err)
{
    struct decoder_step *step;
    bool first, plain = !t->n_decoders;
    if (add_decoder(t, decode_replace, &step, err) ||
        load_character(element, "replacement", "\xE2\x96\x81", &step->needle.literal, &step->needle.literal_bytes, err) ||
        load_scheme(element, &t->decoding.first_drops, &first, err))
        return -1;
    memcpy(t->decoding.dropped, step->needle.literal, step->needle.literal_bytes + 1);
    step->content = mem_string(" ", err);
    step->content_bytes = 1;
    if (t->decoding.first_drops && !plain)
        return err_set(err, ERR_INPUT, "not supported after another decoder");
    return step->content ? 0 : -1;
}

static const struct element decoders[] = {
    { "ByteLevel", load_decode_byte_level }, { "Replace", load_decode_replace }, { "ByteFallback", load_byte_fallback },
    { "Fuse", load_fuse }, { "Strip", load_decode_strip }, { "Metaspace", load_decode_metaspace }, { NULL, NULL }
};

int load_decoder(struct tokenizer *t, const json_t *root, struct err *err)
{
    const json_t *decoder = json_object_get(root, "decoder");
    if (!decoder || json_is_null(decoder))
        return err_set(err, ERR_INPUT, "the decoder is missing; expected a JSON object");
    return load_element(t, decoder, "decoder", "decoders", decoders, 0, err);
}

/* ---- post-processors ---- */

/* ByteLevel only moves offsets, which are not used here. */
static int load_no_effect(struct tokenizer *t, const json_t *element, struct err *err)
{
    (void)t, (void)element, (void)err;
    return 0;
}

static int load_template_token(struct tokenizer *t, const json_t *element, const json_t *piece, struct tokens *side,
                               struct err *err)
{
    const char *name = json_string_value(json_object_get(piece, "id"));
    const json_t *known = json_object_get(json_object_get(element, "special_tokens"), name ? name : "");
    const json_t *ids = json_object_get(known, "ids"), *id;
    size_t i;
    if (!name || !json_is_array(ids))
        return err_set(err, ERR_INPUT, "a SpecialToken is missing from \"special_tokens\"");
    json_array_foreach(ids, i, id) {
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= t->bpe.size || !t->bpe.entries[value].used)
            return err_set(err, ERR_INPUT, "special token \"%.40s\" has an id that is not in the vocabulary", name);
        if (tokens_put(side, (int32_t)value, err))
            return -1;
    }
    return 0;
}

static int load_template(struct tokenizer *t, const json_t *element, struct err *err)
{
    const json_t *single = json_object_get(element, "single"), *piece;
    struct tokens *side = &t->before;
    bool seen = false;
    size_t i;
    if (!json_is_array(single) || t->before.n || t->after.n)
        return err_set(err, ERR_INPUT, "the post-processor must have one TemplateProcessing with a list \"single\"");
    json_array_foreach(single, i, piece) {
        const json_t *special = json_object_get(piece, "SpecialToken"), *sequence = json_object_get(piece, "Sequence");
        const char *name = json_string_value(json_object_get(sequence, "id"));
        if (special) {
            if (load_template_token(t, element, special, side, err))
                return -1;
        } else if (name && !strcmp(name, "A") && !seen) {
            seen = true;
            side = &t->after;
        } else {
            return err_set(err, ERR_INPUT, "\"single\" must contain special tokens and exactly one Sequence A");
        }
    }
    return seen ? 0 : err_set(err, ERR_INPUT, "\"single\" must contain a Sequence A");
}

static const struct element post_processors[] = {
    { "TemplateProcessing", load_template }, { "ByteLevel", load_no_effect }, { NULL, NULL }
};

int load_post_processor(struct tokenizer *t, const json_t *root, struct err *err)
{
    return load_element(t, json_object_get(root, "post_processor"), "post_processor", "processors", post_processors, 0, err);
}
