#include "common/checkpoint/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/checkpoint/coding_gguf.h"
#include "common/checkpoint/digest.h"
#include "common/checkpoint/frame.h"
#include "common/tokenizer/config.h"
#include "common/tokenizer/tiktoken.h"
#include "common/tokenizer/tokenizer.h"

/* Values read at once: some rows, or one row of the maximal width. */
enum { CHUNK_VALUES = 1 << 18, SCRATCH_VALUES = WIDTH_MAX };
_Static_assert((int)SCRATCH_VALUES >= (int)CHUNK_VALUES, "a chunk must fit");

static const char *const ROLES[] = {[PART_ROWS] = "rows", [PART_GATE] = "gate", [PART_UP] = "up", [PART_DOWN] = "down"};

/* ---- the plan ---- */

static void shape_text(char *out, size_t room, const int64_t *dims, int count)
{
    size_t used = (size_t)snprintf(out, room, "%s", count ? "" : "[]");
    for (int i = 0; i < count && used + 24 < room; i++)
        used += (size_t)snprintf(out + used, room - used, "[%lld]", (long long)dims[i]);
}

static const char *config_name(const struct checkpoint *cp) { return cp->config_name ? cp->config_name : "config.json"; }

static bool is_head(const struct conversion *c) { return c->facts.head.kind != HEAD_NONE; }

/* Writes "model of family olmoe" or "draft head (eagle1)" to `out` and returns it. */
static const char *kind_and_family(const struct conversion *c, char out[64])
{
    snprintf(out, 64, is_head(c) ? "draft head (%s)" : "model of family %s", c->facts.shape.family);
    return out;
}

/* Compares shapes without dims of 1, which GGUF files may add or omit. */
static bool same_shape(const struct source_tensor *source, const struct part *part)
{
    int i = 0, j = 0;
    for (;; i++, j++) {
        while (i < source->dim_count && source->dims[i] == 1)
            i++;
        while (j < part->dim_count && part->dims[j] == 1)
            j++;
        if (i == source->dim_count || j == part->dim_count)
            return i == source->dim_count && j == part->dim_count;
        if (source->dims[i] != part->dims[j])
            return false;
    }
}

/* Finds the source tensor of a part and checks its shape. */
static struct source_tensor *bind(const struct conversion *c, const struct tensor *t, const struct part *part, struct err *err)
{
    struct source_tensor *source = checkpoint_find(c->checkpoint, part->name);
    char what[64];
    if (!source) {
        err_set(err, ERR_INPUT, "tensor %s is missing; in a %s it is the source of %s; convert the complete checkpoint",
                part->name, kind_and_family(c, what), t->name);
        return NULL;
    }
    const char *file = c->checkpoint->files[source->file].name;
    if (!same_shape(source, part)) {
        char is[SOURCE_DIMS * 24], should[SOURCE_DIMS * 24];
        shape_text(is, sizeof is, source->dims, source->dim_count);
        shape_text(should, sizeof should, part->dims, part->dim_count);
        err_set(err, ERR_INPUT, "%s: tensor %s has shape %s, but %s requires %s; the files belong to different models", file,
                part->name, is,
                is_head(c) ? "config.json or the target" : config_name(c->checkpoint), should);
        return NULL;
    }
    if (!source->coding) {
        err_set(err, ERR_INPUT, "%s: tensor %s has dtype %s; supported are %s%s", file, part->name, source->dtype_name,
                c->checkpoint->config_name ? coding_gguf_names : "F32, F16 and BF16",
                c->checkpoint->config_name ? ", so convert the GGUF file to one of these" : "");
        return NULL;
    }
    source->used = true;
    return source;
}

/* Returns whether a part belongs to the rows that may have a format of their own (v of a qkv, down of an expert). */
static bool in_last(const struct tensor *t, const struct part *part)
{
    return part->role == PART_DOWN || (t->last > 0 && part->first >= t->outputs - t->last);
}

/* Fills the parts of a block of a tensor and returns their number. */
static int parts_of(const struct conversion *c, const struct tensor *t, int block, struct part parts[PARTS_MAX])
{
    const bool predictor = c->ahead && t->layer >= c->facts.shape.layers;
    return arch_parts(predictor ? c->ahead : c->naming, &c->facts.shape, t, block, parts);
}

/* Binds all parts of a tensor and chooses its format. v and down may keep quantised dtypes of their own. Other parts become
 * f32 if their dtypes differ, or if the rows are not whole blocks of the dtype. */
int conversion_bind(struct conversion *c, struct tensor *t, const struct format_choice *choice, struct err *err)
{
    struct kept {
        bool seen, scaled, differs;
        enum weight_format format;
    } kept[2] = {{0}};                                              /* [1]: the parts for which in_last is true */
    for (int block = 0; block < t->count; block++) {
        struct part parts[PARTS_MAX];
        int count = parts_of(c, t, block, parts);
        for (int i = 0; i < count; i++) {
            const struct source_tensor *source = bind(c, t, &parts[i], err);
            if (!source)
                return -1;
            enum weight_format own = source->coding->format;
            struct kept *k = &kept[in_last(t, &parts[i])];
            const bool wide = own == FORMAT_F32 && strcmp(source->coding->name, "F32");
            k->scaled |= format_scaled(own) || wide;
            k->differs |= (k->seen && own != k->format) || !format_fits(own, parts[i].columns) ||
                          (parts[i].across && format_scaled(own)) || wide;
            k->format = own;
            k->seen = true;
        }
    }
    for (int i = 0; i < 2; i++)
        kept[i].format = kept[i].differs ? FORMAT_F32 : kept[i].format;
    if (!kept[1].seen)
        kept[1] = kept[0];
    const bool mixed = kept[0].format != kept[1].format, apart = mixed && (kept[0].scaled || kept[1].scaled);
    const enum weight_format whole = mixed && !apart ? FORMAT_F32 : kept[0].format;
    t->format = tensor_format(&c->layout, t, choice->keep ? whole : choice->format, whole);
    t->mixed = choice->keep && apart && t->kind != TENSOR_VECTOR;
    t->last_format = kept[1].format;
    bool widened = (kept[0].scaled && kept[0].differs) || (kept[1].scaled && kept[1].differs);
    if (widened && t->kind != TENSOR_VECTOR && (choice->keep || t->format != choice->format) && c->widened++ == 0)
        c->widened_first = t->name;
    return 0;
}

/* Returns whether a name matches a pattern. {n} matches a number, a final * any rest. */
static bool matches(const char *name, const char *pattern)
{
    const char *number = strstr(pattern, "{n}");
    if (number) {
        const size_t before = (size_t)(number - pattern);
        const size_t digits = strncmp(name, pattern, before) ? 0 : strspn(name + before, "0123456789");
        return digits > 0 && matches(name + before + digits, number + 3);
    }
    const char *rest = strchr(pattern, '*');
    return rest ? strncmp(name, pattern, (size_t)(rest - pattern)) == 0 : strcmp(name, pattern) == 0;
}

static int compare_tied(const struct conversion *c, const struct source_tensor *embed, const struct source_tensor *head,
                        struct err *err)
{
    char a[8192], b[sizeof a];
    bool same = embed->bytes == head->bytes && embed->coding == head->coding;
    for (uint64_t at = 0; same && at < head->bytes; at += sizeof a) {
        size_t bytes = head->bytes - at < sizeof a ? (size_t)(head->bytes - at) : sizeof a;
        if (checkpoint_read(c->checkpoint, embed, at, a, bytes, err) || checkpoint_read(c->checkpoint, head, at, b, bytes, err))
            return -1;
        same = memcmp(a, b, bytes) == 0;
    }
    return same ? 0 : err_set(err, ERR_INPUT, "%s: tensor %s differs from the embedding, but config.json has "
                              "tie_word_embeddings = true; set it to false",
                              c->checkpoint->files[head->file].name, head->name);
}

/* Sets *zero if a tensor is a bias of zeros only. Some quantisers add such a bias to each module of a model that has none. */
static int find_zero_bias(const struct conversion *c, const struct source_tensor *t, bool *zero, struct err *err)
{
    struct source_reading reading = {0};
    bool bias = text_ends(t->name, ".bias") && t->coding && t->dim_count == 1 && t->dims[0] <= WIDTH_MAX;
    float *values = bias ? mem_alloc((size_t)t->dims[0] + 1, sizeof *values, err) : NULL;
    int rc = 0;
    *zero = bias;
    if (bias && !c->checkpoint->headers_only)
        rc = values ? t->coding->read(c->checkpoint, t, 0, t->dims[0], &reading, values, err) : -1;
    for (int64_t i = 0; bias && !rc && values && i < t->dims[0]; i++)
        *zero &= !(fabsf(values[i]) > 0) && !isnan(values[i]);
    source_reading_free(&reading);
    mem_free(&values);
    return rc;
}

int conversion_check_left_over(struct conversion *c, struct err *err)
{
    for (size_t i = 0; i < c->checkpoint->tensor_count; i++) {
        const struct source_tensor *source = &c->checkpoint->tensors[i];
        bool ignored = source->used;
        for (int k = 0; k < 5 && !ignored && c->naming->ignored[k]; k++) {
            ignored = matches(source->name, c->naming->ignored[k]);
            if (ignored && strchr(c->naming->ignored[k], '*') && !c->skipped++)
                c->first_skipped = source->name;
        }
        if (ignored)
            continue;
        if (c->facts.shape.tied && strcmp(source->name, c->naming->slot[SLOT_HEAD]) == 0) {
            const struct source_tensor *embed = checkpoint_find(c->checkpoint, c->naming->slot[SLOT_EMBED]);
            if (!c->checkpoint->headers_only && compare_tied(c, embed, source, err))
                return -1;
            continue;
        }
        if (find_zero_bias(c, source, &ignored, err))
            return -1;
        if (ignored)
            continue;
        const char *file = c->checkpoint->files[source->file].name;
        if (is_head(c))
            return err_set(err, ERR_INPUT, "%s: tensor %.200s is not part of a draft head of kind %s; the file is of another "
                           "kind, or has unsupported parts", file, source->name, c->facts.shape.family);
        return err_set(err, ERR_INPUT, "%s: tensor %.200s is not part of a model with %d layers of family %s; %s belongs to "
                       "another model, or the model has unsupported parts", file, source->name,
                       c->facts.shape.layers, c->facts.shape.family, config_name(c->checkpoint));
    }
    return 0;
}

static bool has_tensor(const void *context, const char *name) { return checkpoint_find(context, name) != NULL; }

static int read_shape(struct conversion *c, const struct arch **arch, struct err *err)
{
    const struct text *text = c->checkpoint->texts;
    json_t *config = NULL, *generation = NULL;
    int rc = -1;
    if (!text[TEXT_CONFIG].length) {
        err_set(err, ERR_INPUT, text[TEXT_CONFIG].data ? "config.json is empty; download it again"
                                : "has no config.json, which describes the model's shape; add it");
        goto done;
    }
    if (config_parse(&config, text[TEXT_CONFIG].data, text[TEXT_CONFIG].length, err)) {
        err_at(err, "config.json");
        goto done;
    }
    if (text[TEXT_GENERATION].length &&
        config_parse(&generation, text[TEXT_GENERATION].data, text[TEXT_GENERATION].length, err)) {
        err_at(err, "generation_config.json");
        goto done;
    }
    rc = arch_read(config, generation, &c->facts.shape, arch, err);
    if (!rc) {
        c->naming = arch_naming(*arch, &c->facts.shape, has_tensor, c->checkpoint);
        rc = arch_state_layers(config, *arch, c->naming, &c->facts.shape, has_tensor, c->checkpoint, err);
    }
    if (rc && c->checkpoint->config_name)
        err_at(err, "%s", c->checkpoint->config_name);
done:
    json_decref(config);
    json_decref(generation);
    return rc;
}

static int hash_tokenizer(const struct text *json, struct sha256 *out, char **frame, const struct tokenizer_config *config,
                          struct err *err)
{
    struct tokenizer *tokenizer = NULL;
    int rc = tokenizer_new(&tokenizer, json->data, json->length, err);
    if (!rc) {
        tokenizer_hash(tokenizer, out);
        rc = frame ? frame_make(frame, tokenizer, config, err) : 0;
    }
    tokenizer_free(&tokenizer);
    return rc;
}

/* Copies the tokenizer from the first of these files that exists. The tokenizer is loaded here, so that a model file never
 * contains one that no command can use. It is loaded before its text is copied, because both may be large. */
static int take_tokenizer(struct model_facts *facts, const struct checkpoint *cp, const struct tokenizer_config *config,
                          struct err *err)
{
    static const enum source_text order[] = {TEXT_TOKENIZER, TEXT_TOKENIZER_MODEL, TEXT_TIKTOKEN, TEXT_TIKTOKEN_HUNYUAN};
    size_t at = 0;
    while (at + 1 < sizeof order / sizeof *order && !cp->texts[order[at]].length)
        at++;
    const enum source_text which = order[at];
    const struct text *source = &cp->texts[which];
    struct text *json = &facts->tokenizer_json, made = {0};
    char *frame = NULL;
    int rc = 0;
    if (!source->length)
        return 0;
    if (which == TEXT_TIKTOKEN || which == TEXT_TIKTOKEN_HUNYUAN) {
        rc = tiktoken_json(&made, which == TEXT_TIKTOKEN ? TIKTOKEN_KIMI : TIKTOKEN_HUNYUAN, source,
                           &cp->texts[TEXT_TOKENIZER_CONFIG], err);
        source = &made;
    }
    if (!rc)
        rc = hash_tokenizer(source, &facts->tokenizer, which == TEXT_TOKENIZER_MODEL ? NULL : &frame, config, err);
    if (!rc && frame)
        rc = frame_put(json, source, frame, err) || hash_tokenizer(json, &facts->tokenizer, NULL, NULL, err) ? -1 : 0;
    else if (!rc)
        rc = text_put(json, source->data, source->length, err);
    mem_free(&frame);
    text_free(&made);
    return rc ? err_at(err, "%s", source_text_kinds[which].name) : 0;
}

static int take_texts(struct model_facts *facts, const struct checkpoint *cp, struct err *err)
{
    const struct text *source = &cp->texts[TEXT_TOKENIZER_CONFIG], *jinja = &cp->texts[TEXT_CHAT_TEMPLATE];
    struct tokenizer_config config = {0};
    int rc = -1;
    if (source->length && tokenizer_config_read(&config, source->data, source->length, err))
        return err_at(err, "tokenizer_config.json");
    if (take_tokenizer(facts, cp, &config, err) ||
        (source->length && text_put(&facts->tokenizer_config, source->data, source->length, err)))
        goto done;
    if (jinja->length)
        rc = text_put(&facts->chat_template, jinja->data, jinja->length, err);
    else
        rc = config.chat_template ? text_puts(&facts->chat_template, config.chat_template, err) : 0;
done:
    tokenizer_config_free(&config);
    return rc;
}

int conversion_plan(struct conversion *out, struct checkpoint *checkpoint, const struct convert_options *options,
                    struct err *err)
{
    struct conversion c = {.checkpoint = checkpoint};
    const struct arch *arch = NULL;
    if (read_shape(&c, &arch, err))
        goto failed;
    c.ahead = arch_naming_ahead(arch, c.naming, &c.facts.shape, has_tensor, checkpoint);
    if (arch_predictors(c.naming, &c.facts.shape, has_tensor, checkpoint, err) || layout_make(&c.layout, &c.facts.shape, err))
        goto failed;
    for (int i = 0; i < c.layout.count; i++) {
        struct tensor *t = &c.layout.tensors[i];
        bool routed = t->role == ROLE_EXPERTS;
        if (conversion_bind(&c, t, routed ? &options->experts : &options->dense, err))
            goto failed;
    }
    if (conversion_check_left_over(&c, err) || take_texts(&c.facts, checkpoint, err))
        goto failed;
    model_facts_name(&c.facts, options->name ? options->name : *checkpoint->name ? checkpoint->name : c.facts.shape.family);
    snprintf(c.facts.producer, sizeof c.facts.producer, "%s", options->producer);
    *out = c;
    return 0;
failed:
    conversion_free(&c);
    return err_at(err, "%s", checkpoint->path);
}

void conversion_free(struct conversion *c)
{
    model_facts_free(&c->facts);
    layout_free(&c->layout);
}

/* ---- making blocks ---- */

struct scratch {
    struct source_reading reading;
    float *values;
    unsigned char *block;           /* grows; rows of an `across` source: floats or coded values */
    unsigned char *coded;           /* grows */
    size_t block_room, coded_room;
};

struct maker {
    const struct conversion *conversion;
    struct scratch scratch[THREAD_POOL_MAX];
};

/* Checks that values are finite and within the format's range: a value that is not finite would spread to every logit, and a
 * value out of range would become infinite. */
static int check_values(const float *values, size_t count, size_t columns, enum weight_format format, struct err *err)
{
    float limit = format_limit(format);
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(values[i]) < limit)) {
            if (!isfinite(values[i]))
                return err_set(err, ERR_INPUT, "element [%zu][%zu] is not a finite number; the checkpoint is damaged",
                               i / columns, i % columns);
            return err_set(err, ERR_INPUT, "element [%zu][%zu] is %g, too large for %s; use --dtype bf16 or f32", i / columns,
                           i % columns, (double)values[i], format_name(format));
        }
    return 0;
}

/* Returns the format of a part's rows. */
static enum weight_format part_format(const struct tensor *t, const struct part *part)
{
    return in_last(t, part) ? tensor_last_format(t) : t->format;
}

/* Returns the offset, in elements of the source, of row `row` of a part. row_target returns the row's index in the tensor;
 * rows_together the number of rows from `row` on, at most `max`, that are contiguous in both. */
static int64_t row_source(const struct part *part, int row)
{
    int64_t from = row;
    if (part->run)
        from = (int64_t)(row / part->run) * part->from_group + (int64_t)(row % part->run) * part->from_step;
    return part->skip + from * (part->across ? 1 : part->columns);
}

static int row_target(const struct part *part, int row)
{
    return !part->run ? row : row / part->run * part->to_group + row % part->run;
}

static int rows_together(const struct part *part, int row, int max)
{
    int left = part->rows - row < max ? part->rows - row : max;
    if (!part->run)
        return left;
    int run = part->across || part->from_step == 1 ? part->run - row % part->run : 1;
    return left < run ? left : run;
}

/* Packs rows of a part into the block, from floats or from coded rows (the other pointer is NULL). Down, and v of a mixed
 * qkv, are matrices of their own at tensor_last_offset. */
static void pack(const struct block_job *job, const struct part *part, int first, int rows, const float *values,
                 const unsigned char *coded)
{
    const struct tensor *t = job->tensor;
    const enum weight_format format = part_format(t, part);
    unsigned char *packed = job->packed;
    first += part->first;
    if (t->kind == TENSOR_VECTOR) {
        memcpy((float *)job->packed + (size_t)first * (size_t)part->columns, values,
               (size_t)rows * (size_t)part->columns * sizeof *values);
        return;
    }
    if (part->role == PART_DOWN || (t->mixed && in_last(t, part))) {
        packed += tensor_last_offset(t);
        first -= part->role == PART_DOWN ? 0 : t->outputs - t->last;
    }
    const bool up_alone = part->role == PART_UP && t->ungated;
    const bool gate_up = part->role == PART_GATE || (part->role == PART_UP && !up_alone);
    const int inputs = up_alone ? t->outputs : t->inputs;
    if (gate_up && coded)
        expert_pack_gate_up_coded(format, packed, t->outputs, part->role == PART_UP, first, rows, coded);
    else if (gate_up)
        expert_pack_gate_up(format, packed, t->outputs, part->role == PART_UP, first, rows, values);
    else if (coded)
        matrix_pack_coded(format, packed, inputs, first, rows, coded);
    else
        matrix_pack(format, packed, inputs, first, rows, values);
}

static int err_at_source(const struct conversion *c, const struct source_tensor *source, struct err *err)
{
    err_at(err, "%s: tensor %s", c->checkpoint->files[source->file].name, source->name);
    return err_at(err, "%s", c->checkpoint->path);
}

/* Reads rows that are columns of the source, as floats or as coded values, to `out`. The whole source block (of the part, or
 * of one of its runs) is read with its first row and cached for its other rows. */
static int read_across(const struct conversion *c, struct scratch *scratch, const struct part *part,
                       const struct source_tensor *source, int row, int rows, bool coded, void *out, struct err *err)
{
    enum { TILE = 16 };
    const int64_t width = part->across, begin = row_source(part, row) / (width * part->columns) * (width * part->columns);
    const int64_t count = width * part->columns;
    const size_t size = coded ? format_coded_bytes(source->coding->format, 1) : sizeof(float);
    const size_t columns = (size_t)part->columns;
    if (row == 0 || (part->run && row % part->run == 0)) {
        if (mem_grow(&scratch->block, &scratch->block_room, (size_t)count * size, 1, err))
            return -1;
        if (coded ? source->coding->read_coded(c->checkpoint, source, begin, count, &scratch->reading, scratch->block, err)
                  : source->coding->read(c->checkpoint, source, begin, count, &scratch->reading,
                                         (float *)(void *)scratch->block, err))
            return -1;
    }
    for (size_t at = 0; at < columns; at += TILE)
        for (int i = 0; i < rows; i++) {
            const unsigned char *from = scratch->block + (size_t)(row_source(part, row + i) - begin) * size;
            unsigned char *to = (unsigned char *)out + (size_t)i * columns * size;
            for (size_t k = at; k < columns && k < at + TILE; k++)
                memcpy(to + k * size, from + k * (size_t)width * size, size);
        }
    return 0;
}

/* Makes rows from a source whose coding has the tensor's format: the coded rows are packed unchanged. */
static int make_coded(const struct conversion *c, struct scratch *scratch, struct block_job *job, const struct part *part,
                      const struct source_tensor *source, int row, int rows, struct err *err)
{
    const enum weight_format format = part_format(job->tensor, part);
    const size_t bytes = format_coded_bytes(format, part->columns);
    const int64_t at = row_source(part, row), count = (int64_t)rows * part->columns;
    if (mem_grow(&scratch->coded, &scratch->coded_room, bytes * (size_t)rows, 1, err))
        return -1;
    if (part->across ? read_across(c, scratch, part, source, row, rows, true, scratch->coded, err)
                     : source->coding->read_coded(c->checkpoint, source, at, count, &scratch->reading, scratch->coded, err))
        return -1;
    for (int i = 0; i < rows; i++) {
        int bad = format_coded_check(format, part->columns, scratch->coded + bytes * (size_t)i);
        if (bad < 0)
            continue;
        err_set(err, ERR_INPUT, "element [%d][%d]%s is not a finite number; the checkpoint is damaged", row + i, bad,
                format_scaled(format) ? " or its scale" : "");
        return err_at_source(c, source, err);
    }
    pack(job, part, row_target(part, row), rows, NULL, scratch->coded);
    return 0;
}

static void change_values(float *values, size_t count, enum part_value change)
{
    for (size_t i = 0; i < count; i++)
        values[i] = change == VALUE_PLUS_ONE ? 1 + values[i] : -expf(values[i]);
}

static int make_values(const struct conversion *c, struct scratch *scratch, struct block_job *job, const struct part *part,
                       const struct source_tensor *source, int row, int rows, struct err *err)
{
    const size_t columns = (size_t)part->columns, count = (size_t)rows * columns;
    const int64_t at = row_source(part, row);
    if (part->across ? read_across(c, scratch, part, source, row, rows, false, scratch->values, err)
                     : source->coding->read(c->checkpoint, source, at, (int64_t)count, &scratch->reading, scratch->values, err))
        return -1;
    if (part->value != VALUE_SAME)
        change_values(scratch->values, count, part->value);
    if (check_values(scratch->values, count, columns, part_format(job->tensor, part), err)) {
        err_at(err, "rows from %d on", row);
        return err_at_source(c, source, err);
    }
    pack(job, part, row_target(part, row), rows, scratch->values, NULL);
    return 0;
}

static int make_part(const struct conversion *c, struct scratch *scratch, struct block_job *job, const struct part *part,
                     struct xxh3_stream *digest, struct err *err)
{
    const struct source_tensor *source = checkpoint_find(c->checkpoint, part->name);
    int step = part->columns > CHUNK_VALUES ? 1 : CHUNK_VALUES / part->columns;
    char line[256];
    int length = snprintf(line, sizeof line, "%s %d %s %s %dx%d\n", job->tensor->name, job->block, ROLES[part->role],
                          source->dtype_name, part->rows, part->columns);
    xxh3_stream_put(digest, line, (size_t)length);
    scratch->reading.digest = digest;
    const enum weight_format format = part_format(job->tensor, part);
    bool coded = job->tensor->kind != TENSOR_VECTOR && source->coding->read_coded && source->coding->format == format &&
                 format_fits(format, part->columns) && !(part->across && format_scaled(format));
    for (int row = 0, rows; row < part->rows; row += rows) {
        rows = rows_together(part, row, step);
        if ((coded ? make_coded : make_values)(c, scratch, job, part, source, row, rows, err))
            return -1;
    }
    return 0;
}

/* Returns whether the weights fill every byte of a block, so that no padding has to be zeroed. */
static bool is_full(const struct tensor *t)
{
    size_t bytes = (size_t)t->outputs * (t->kind == TENSOR_VECTOR ? sizeof(float) : format_coded_bytes(t->format, t->inputs));
    if (t->kind == TENSOR_EXPERTS)
        bytes += (t->ungated ? 1 : 2) * (size_t)t->inputs * format_coded_bytes(t->format, t->outputs);
    return bytes == t->stride && !t->mixed;
}

static int make_block(void *context, int member, struct block_job *job, struct err *err)
{
    struct maker *maker = context;
    struct scratch *scratch = &maker->scratch[member];
    struct xxh3_stream *digest = NULL;
    struct part parts[PARTS_MAX];
    int count = parts_of(maker->conversion, job->tensor, job->block, parts);
    if ((!scratch->values && !(scratch->values = mem_alloc(SCRATCH_VALUES, sizeof(float), err))) ||
        xxh3_stream_new(&digest, err))
        return -1;
    int rc = 0;
    if (!is_full(job->tensor))
        memset(job->packed, 0, job->tensor->stride);
    for (int i = 0; i < count && !rc; i++)
        rc = make_part(maker->conversion, scratch, job, &parts[i], digest, err);
    job->digest = xxh3_stream_digest(digest);
    xxh3_stream_free(&digest);
    return rc;
}

static int compare_source(const void *a, const void *b)
{
    const struct model_source *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Records the source files and their digests, sorted by name, so that provenance does not depend on the order of the files. */
static int take_sources(struct model_facts *facts, const struct checkpoint *cp, struct err *err)
{
    if (mem_grow(&facts->sources, &facts->source_room, cp->file_count, sizeof *facts->sources, err))
        return -1;
    for (size_t i = 0; i < cp->file_count; i++) {
        struct model_source *source = &facts->sources[i];
        snprintf(source->name, sizeof source->name, "%s", cp->files[i].name);
        for (char *at = source->name; *at; at++)
            *at = *at > ' ' && *at < 0x7f ? *at : '_';
        source->bytes = cp->files[i].bytes;
        source->digest = cp->files[i].digest;
    }
    facts->source_count = cp->file_count;
    qsort(facts->sources, facts->source_count, sizeof *facts->sources, compare_source);
    return 0;
}

/* Adds the vocabulary map to the identity of the source, which it is part of like the weights. */
static int add_map(struct model_facts *facts, struct err *err)
{
    struct sha256_stream *stream = NULL;
    int rc = sha256_stream_new(&stream, err) || sha256_stream_put(stream, &facts->source, sizeof facts->source, err) ? -1 : 0;
    for (int i = 0; i < facts->head.draft_vocab && !rc; i++) {
        const uint32_t id = (uint32_t)facts->head.target_id[i];
        const uint8_t bytes[4] = {(uint8_t)id, (uint8_t)(id >> 8), (uint8_t)(id >> 16), (uint8_t)(id >> 24)};
        rc = sha256_stream_put(stream, bytes, sizeof bytes, err);
    }
    rc = rc || sha256_stream_end(&stream, &facts->source, err) ? -1 : 0;
    sha256_stream_free(&stream);
    return rc;
}

int conversion_write(struct conversion *c, const char *path, struct thread_pool *pool, struct progress *bar, struct err *err)
{
    struct model_writer *writer = NULL;
    struct digester *digester = NULL;
    struct maker *maker = mem_alloc(1, sizeof *maker, err);
    int rc = -1;
    if (!maker || model_writer_open(&writer, path, &c->layout, err) ||
        digester_start(&digester, c->checkpoint, thread_pool_size(pool) > 1, err))
        goto done;
    maker->conversion = c;
    if (bar)
        bar->total = model_writer_bytes(writer);
    if (model_writer_fill(writer, &(struct block_maker){make_block, maker}, pool, bar, &c->facts.source, err) ||
        digester_end(&digester, pool, err) || take_sources(&c->facts, c->checkpoint, err) ||
        (c->facts.head.target_id && add_map(&c->facts, err)))
        goto done;
    rc = model_writer_commit(&writer, &c->facts, err);
done:
    digester_stop(&digester);
    model_writer_discard(&writer);
    for (int i = 0; maker && i < THREAD_POOL_MAX; i++) {
        source_reading_free(&maker->scratch[i].reading);
        mem_free(&maker->scratch[i].values);
        mem_free(&maker->scratch[i].block);
        mem_free(&maker->scratch[i].coded);
    }
    mem_free(&maker);
    return rc;
}
