/* Model files: a written model is read back, with any number of threads; truncated, damaged and contradictory files are
 * rejected; inflating changes only the width. */
#include <fcntl.h>
#include <limits.h>
#include <math.h>

#include "common/arch/arch.h"
#include "common/base/file.h"
#include "common/model/model_write.h"
#include "common/model/step.h"
#include "common/model/synthetic.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/folder.h"

static struct hparams shape;

static void write_model(const char *path, int threads, enum weight_format dense, enum weight_format experts, uint64_t seed)
{
    struct err err = {0};
    struct thread_pool *pool = NULL;
    struct synthetic_options options = {.dense = dense, .experts = experts, .seed = seed, .name = "tiny", .producer = "test"};
    assert_int_equal(thread_pool_new(&pool, threads, &err), 0);
    if (synthetic_write(path, &shape, &options, pool, NULL, &err))
        fail_msg("%s", err.text);
    thread_pool_free(&pool);
}

static int make_files(void **state)
{
    struct err err = {0};
    make_folder(state);
    assert_int_equal(arch_read_text(TINY_OLMOE, strlen(TINY_OLMOE), 0, &shape, &err), 0);
    write_model(unit_path(folder, "a.moe"), 1, FORMAT_BF16, FORMAT_F32, 7);
    return 0;
}

static struct text read_file(const char *path)
{
    struct err err = {0};
    struct text text = {0};
    assert_int_equal(file_read(&text, path, SIZE_MAX / 2, &err), 0);
    return text;
}

static struct model *open_model(const char *path)
{
    struct err err = {0};
    struct model *model = NULL;
    if (model_open(&model, path, &err))
        fail_msg("%s", err.text);
    return model;
}

static void reads_back_what_was_written(void **state)
{
    (void)state;
    struct err err = {0};
    struct model *model = open_model(unit_path(folder, "a.moe"));
    const struct model_identity *id = model_identity(model);
    size_t bytes = 1;
    assert_memory_equal(model_hparams(model), &shape, sizeof shape);
    assert_string_equal(id->name, "tiny");
    assert_string_equal(id->dtype, "bf16, experts f32");
    assert_true(id->synthetic);
    assert_int_equal(id->inflated_from, 0);
    assert_int_equal(id->moe_layers, TINY_LAYERS);
    assert_int_equal(id->experts, TINY_EXPERTS);
    assert_int_equal(model_facts(model)->seed, 7);
    assert_null(model_tokenizer_json(model, &bytes));
    assert_int_equal(bytes, 0);
    assert_int_equal(model_tensor_count(model), 3 + TINY_LAYERS * 8);
    const struct tensor *experts = model_tensor(model, &err, "layers.%d.experts", 1);
    assert_non_null(experts);
    assert_int_equal(experts->count, TINY_EXPERTS);
    assert_int_equal(experts->outputs, TINY_HIDDEN);
    assert_int_equal(experts->inputs, TINY_INNER);
    assert_int_equal(experts->offset % MODEL_PAGE, 0);
    assert_int_equal(experts->stride % MODEL_PAGE, 0);
    assert_int_equal(experts->layer, 1);
    const struct tensor *norm = model_tensor(model, &err, "final_norm");
    assert_non_null(norm);
    const float *values = model_data(model, norm);
    for (int i = 0; i < TINY_HIDDEN; i++)
        assert_float_equal(values[i], 1, 0);
    assert_null(model_tensor(model, &err, "layers.2.router"));
    assert_non_null(strstr(err.text, "has no tensor layers.2.router"));
    err_clear(&err);
    assert_int_equal(model_verify(model, &err), 0);
    model_close(&model);
    assert_null(model);
    model_close(&model);
}

static void random_values_are_spread_as_promised(void **state)
{
    (void)state;
    struct err err = {0};
    struct model *model = open_model(unit_path(folder, "a.moe"));
    const struct tensor *t = model_tensor(model, &err, "layers.0.experts");
    const unsigned char *data = model_data(model, t);
    double sum = 0, squares = 0;
    int count = 0;
    for (int e = 0; e < t->count; e++)
        for (int i = 0; i < t->inputs; i++)
            for (int k = 0; k < t->outputs; k++, count++) {
                double up = (double)expert_up_at(t->format, data + e * t->stride, t->outputs, t->inputs, i, k);
                double gate = (double)expert_gate_at(t->format, data + e * t->stride, t->outputs, t->inputs, i, k);
                assert_true(up != gate);
                sum += up;
                squares += up * up;
            }
    assert_float_equal(sum / count, 0, 0.02);
    assert_float_equal(squares / count * TINY_HIDDEN, 1, 0.1);
    model_close(&model);
}

static void threads_do_not_show(void **state)
{
    (void)state;
    struct text one = read_file(unit_path(folder, "a.moe"));
    for (int threads = 2; threads <= 7; threads += 5) {
        write_model(unit_path(folder, "b.moe"), threads, FORMAT_BF16, FORMAT_F32, 7);
        struct text other = read_file(unit_path(folder, "b.moe"));
        assert_int_equal(one.length, other.length);
        assert_memory_equal(one.data, other.data, one.length);
        text_free(&other);
    }
    write_model(unit_path(folder, "b.moe"), 1, FORMAT_BF16, FORMAT_F32, 8);
    struct text other = read_file(unit_path(folder, "b.moe"));
    assert_memory_not_equal(one.data + MODEL_PAGE, other.data + MODEL_PAGE, MODEL_PAGE / 4);
    text_free(&other);
    text_free(&one);
}

/* Makes earlier blocks slower than later ones; blocks from *context on fail. */
static int make_late(void *context, int member, struct block_job *job, struct err *err)
{
    (void)member;
    usleep((useconds_t)(job->tensor->count - job->block) * 300);
    memset(job->packed, job->block + 1, job->tensor->stride);
    job->digest = hash_xxh3(&job->block, sizeof job->block);
    return job->block < *(int *)context ? 0 : err_set(err, ERR_INPUT, "%s, block %d", job->tensor->name, job->block);
}

static int write_late(const char *path, int threads, int failing, struct err *err)
{
    struct model_facts facts = {.shape = shape, .name = "tiny", .producer = "test"};
    struct layout layout = {0};
    struct model_writer *writer = NULL;
    struct thread_pool *pool = NULL;
    assert_int_equal(layout_make(&layout, &shape, err), 0);
    assert_int_equal(thread_pool_new(&pool, threads, err), 0);
    assert_int_equal(model_writer_open(&writer, path, &layout, err), 0);
    int rc = model_writer_fill(writer, &(struct block_maker){make_late, &failing}, pool, NULL, &facts.source, err);
    if (!rc)
        rc = model_writer_commit(&writer, &facts, err);
    model_writer_discard(&writer);
    thread_pool_free(&pool);
    return rc;
}

/* The file does not depend on the number of threads, and the first block that cannot be made is the one that is reported. */
static void blocks_that_are_ready_early_wait_for_their_turn(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(write_late(unit_path(folder, "one.moe"), 1, INT_MAX, &err), 0);
    assert_int_equal(write_late(unit_path(folder, "six.moe"), 6, INT_MAX, &err), 0);
    struct text one = read_file(unit_path(folder, "one.moe")), six = read_file(unit_path(folder, "six.moe"));
    assert_int_equal(one.length, six.length);
    assert_memory_equal(one.data, six.data, one.length);
    text_free(&one);
    text_free(&six);
    assert_int_equal(write_late(unit_path(folder, "bad.moe"), 6, 2, &err), -1);
    assert_string_equal(err.text, "layers.0.experts, block 2");
    assert_int_not_equal(access(unit_path(folder, "bad.moe"), F_OK), 0);
}

static void flip(int fd, size_t at, unsigned char mask)
{
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= mask;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
}

static void a_flip_in_head_or_index_is_refused(void **state)
{
    (void)state;
    const char *path = unit_path(folder, "a.moe");
    struct text file = read_file(path);
    struct model_head head;
    struct err err = {0};
    int fd = open(path, O_RDWR);
    assert_int_equal(model_head_read(&head, (const uint8_t *)file.data, file.length, &err), 0);
    for (size_t at = 0; at < file.length; at += at == MODEL_PAGE - 1 ? head.index_offset - MODEL_PAGE + 1 : 1) {
        struct model *model = NULL;
        if (unit_brief() && at % 7)
            continue;
        flip(fd, at, (unsigned char)(1 << at % 8));
        err_clear(&err);
        assert_int_equal(model_open(&model, path, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        flip(fd, at, (unsigned char)(1 << at % 8));
    }
    close(fd);
    text_free(&file);
}

static void a_flip_in_the_data_is_noticed(void **state)
{
    (void)state;
    const char *path = unit_path(folder, "a.moe");
    struct text file = read_file(path);
    struct model_head head;
    struct err err = {0};
    struct model *model = open_model(path);
    int fd = open(path, O_RDWR);
    assert_int_equal(model_head_read(&head, (const uint8_t *)file.data, file.length, &err), 0);
    for (size_t at = MODEL_PAGE; at < head.index_offset; at += unit_brief() ? 997 : at % 64 < 60 ? 61 : 1) {
        flip(fd, at, 0x10);
        err_clear(&err);
        assert_int_equal(model_verify(model, &err), -1);
        flip(fd, at, 0x10);
    }
    err_clear(&err);
    assert_int_equal(model_verify(model, &err), 0);
    model_close(&model);
    close(fd);
    text_free(&file);
}

static void a_cut_file_is_refused(void **state)
{
    (void)state;
    struct text file = read_file(unit_path(folder, "a.moe"));
    const char *path = unit_path(folder, "cut.moe");
    for (size_t bytes = 0; bytes < file.length; bytes += bytes < 70 || file.length - bytes < 70 ? 1 : 997) {
        struct err err = {0};
        struct model *model = NULL;
        unit_write(path, file.data, bytes);
        assert_int_equal(model_open(&model, path, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
    }
    text_free(&file);
}

static void what_is_no_model_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    struct model *model = NULL;
    write_string(unit_path(folder, "no.moe"), "{\"model_type\":\"llama\"}");
    assert_int_equal(model_open(&model, unit_path(folder, "no.moe"), &err), -1);
    assert_non_null(strstr(err.text, "no.moe: is not a model file"));
    err_clear(&err);
    assert_int_equal(model_open(&model, folder, &err), -1);
    err_clear(&err);
    assert_int_equal(model_open(&model, unit_path(folder, "missing.moe"), &err), -1);
    assert_int_equal(err.code, ERR_IO);
}

/* Reads an index whose digest was not checked. */
static int read_index(const void *index, size_t bytes, uint64_t data_end, struct err *err)
{
    struct model_facts facts = {0};
    struct layout layout = {0};
    void *copy = malloc(bytes ? bytes : 1);         /* a block of its own, so that a read beyond its end is detected */
    memcpy(copy, index, bytes);
    int rc = model_index_read(&facts, &layout, copy, bytes, data_end, err);
    free(copy);
    layout_free(&layout);
    model_facts_free(&facts);
    return rc;
}

/* Index and digest may have been forged to match: every value is checked. */
static void a_forged_index_does_no_harm(void **state)
{
    (void)state;
    struct text file = read_file(unit_path(folder, "a.moe"));
    struct model_head head;
    struct err err = {0};
    assert_int_equal(model_head_read(&head, (const uint8_t *)file.data, file.length, &err), 0);
    unsigned char *index = (unsigned char *)file.data + head.index_offset;
    assert_int_equal(read_index(index, head.index_bytes, head.index_offset, &err), 0);
    assert_int_equal(read_index(index, head.index_bytes, head.index_offset - 1, &err), -1);
    for (size_t bytes = 0; bytes < head.index_bytes; bytes++)
        assert_int_equal(read_index(index, bytes, head.index_offset, &err), -1);
    for (size_t at = 0; at < head.index_bytes; at++)
        for (int value = 0; value < 256; value += value < 16 || value > 0xbf ? 1 : 37) {
            unsigned char before = index[at];
            if (unit_brief() && (at + (size_t)value) % 3)
                continue;
            index[at] = (unsigned char)value;
            read_index(index, head.index_bytes, head.index_offset, NULL);
            index[at] = before;
        }
    text_free(&file);
}

/* Checks an index with some facts and a tensor changed, as a reader does. */
static void refuse_index(struct model_facts *facts, struct layout *layout, uint64_t end, const char *says)
{
    struct err err = {0};
    struct text text = {0};
    assert_int_equal(model_index_write(&text, facts, layout, &err), 0);
    if (read_index(text.data, text.length, end, &err) != -1 || !strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", err.text, says);
    text_free(&text);
}

static void contradictions_are_named(void **state)
{
    (void)state;
    struct err err = {0};
    struct model_facts facts = {.shape = shape};
    struct layout layout = {0};
    struct tensor kept;
    uint64_t end;
    assert_int_equal(layout_make(&layout, &shape, &err), 0);
    assert_int_equal(layout_arrange(&layout, MODEL_PAGE, &end, &err), 0);
#define CHANGE(change, says) \
    kept = layout.tensors[4], change, refuse_index(&facts, &layout, end, says), layout.tensors[4] = kept
    CHANGE(layout.tensors[4].outputs++, "the shape must be 1 x [40][24], not 1 x [41][24]");
    CHANGE(layout.tensors[4].name = "layers.0.attention.out", "the tensor layers.0.attention.qkv must be here");
    CHANGE(layout.tensors[4].name = "a.name.that.is.longer.than.any.that.a.canonical.tensor.could.ever.have",
           "must be a string of less than 64 bytes");
    CHANGE(layout.tensors[4].offset -= MODEL_PAGE, "must begin at a page boundary, after the previous tensor");
    CHANGE(layout.tensors[4].offset += 64, "must begin at a page boundary, after the previous tensor");
    CHANGE(layout.tensors[4].offset = end, "must begin at a page boundary, after the previous tensor");
    CHANGE(layout.tensors[4].bytes -= 128, "each of its matrices must have");
    CHANGE(layout.tensors[4].kind = TENSOR_VECTOR, "the shape must be");
    CHANGE(layout.tensors[4].format = FORMAT_F16, "each of its matrices must have");
    CHANGE((layout.tensors[0].mixed = true, layout.tensors[0].last_format = FORMAT_Q8), "format f32+q8 is not supported");
    layout.tensors[0].mixed = false;
    CHANGE((layout.tensors[4].mixed = true, layout.tensors[4].last_format = FORMAT_F32), "format f32+f32 is not supported");
    CHANGE((layout.tensors[4].mixed = true, layout.tensors[4].last_format = FORMAT_Q8), "each of its matrices must have");
    facts.inflated_from = 20;
    refuse_index(&facts, &layout, end, "inflated_from is 20");
    facts.inflated_from = 0;
    facts.shape.router.top_k = 4;
    refuse_index(&facts, &layout, end, "hparams: experts a token is 4");
    facts.shape = shape;
    facts.shape.layers = 1;
    refuse_index(&facts, &layout, end, "tensors: has 19 elements");
    facts.shape = shape;
    facts.shape.rope.theta = NAN;
    refuse_index(&facts, &layout, end, "rope_theta: is not a finite number");
    layout_free(&layout);
}

/* A key of a later version may change the model's output: only a reader that knows the key may read the file. */
static void unknown_hparams_are_refused(void **state)
{
    (void)state;
    struct err err = {0};
    struct model_facts facts = {.shape = shape};
    struct layout layout = {0};
    struct text text = {0};
    uint64_t end;
    facts.shape.logit_cap = 30;
    assert_int_equal(layout_make(&layout, &shape, &err), 0);
    assert_int_equal(layout_arrange(&layout, MODEL_PAGE, &end, &err), 0);
    assert_int_equal(model_index_write(&text, &facts, &layout, &err), 0);
    assert_int_equal(read_index(text.data, text.length, end, &err), 0);
    char *key = memmem(text.data, text.length, "logit_cap", 9);
    assert_non_null(key);
    memcpy(key, "logit_cup", 9);
    assert_int_equal(read_index(text.data, text.length, end, &err), -1);
    assert_non_null(strstr(err.text, "hparams: further: unknown key logit_cup; update moekit"));
    text_free(&text);
    layout_free(&layout);
}

/* The shape with two predictors: the first has an embedding, the second a head. */
static struct hparams with_predictors(void)
{
    struct hparams more = shape;
    more.predictors = 2;
    more.predictor[0].embed = more.predictor[1].head = true;
    more.layer[shape.layers] = (struct layer_shape){.ffn = FFN_EXPERTS, .window = 5};
    more.layer[shape.layers + 1] = (struct layer_shape){.ffn = FFN_EXPERTS};
    return more;
}

/* Makes an index whose list of predictors has `count` entries, all like the first. */
static void refuse_longer(const struct text *index, int count, const char *says)
{
    struct err err = {0};
    struct text longer = {0};
    const char *list = memmem(index->data, index->length, "predictors", 10), *entry = list + 11;
    int now = entry[-1] & 15;
    assert_non_null(list);
    text_put(&longer, index->data, (size_t)(entry - index->data), NULL);
    longer.data[longer.length - 1] = (char)(0x90 | count);
    for (int i = now; i < count; i++)
        text_put(&longer, entry, 5, NULL);
    text_put(&longer, entry, (size_t)(index->data + index->length - entry), NULL);
    assert_int_equal(read_index(longer.data, longer.length, MODEL_PAGE, &err), -1);
    if (!strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", err.text, says);
    text_free(&longer);
}

static void predictors_are_read_back(void **state)
{
    (void)state;
    struct err err = {0};
    struct text text = {0};
    struct model_facts facts = {.shape = with_predictors()}, read = {0};
    struct layout layout = {0}, again = {0};
    uint64_t end;
    assert_int_equal(hparams_check(&facts.shape, &err), 0);
    assert_int_equal(layout_make(&layout, &facts.shape, &err), 0);
    assert_int_equal(layout.count, 3 + TINY_LAYERS * 8 + 2 * (5 + 8));
    assert_int_equal(layout_arrange(&layout, MODEL_PAGE, &end, &err), 0);
    assert_int_equal(model_index_write(&text, &facts, &layout, &err), 0);
    assert_int_equal(model_index_read(&read, &again, (const uint8_t *)text.data, text.length, end, &err), 0);
    assert_memory_equal(&read.shape, &facts.shape, sizeof shape);
    for (int i = 0; i < layout.count; i++)
        assert_string_equal(again.tensors[i].name, layout.tensors[i].name);
    assert_string_equal(again.tensors[again.count - 1].name, "predict.1.experts");
    assert_int_equal(again.tensors[again.count - 1].layer, TINY_LAYERS + 1);
    layout_free(&again);
    unsigned char *list = memmem(text.data, text.length, "predictors", 10);
    assert_non_null(list);
    for (size_t at = 10; at < 21; at++)
        for (int value = 0; value < 256; value++) {
            unsigned char before = list[at];
            list[at] = (unsigned char)value;
            read_index(text.data, text.length, end, NULL);
            list[at] = before;
        }
    refuse_longer(&text, PREDICTORS_MAX + 1, "predictors: has 9 elements, more than the maximum of 8");
    text_free(&text);

    facts.shape.predictor[1].head = false;
    refuse_index(&facts, &layout, end, "tensors: has 45 elements, more than the maximum of 44");
    facts.shape = with_predictors();
    facts.shape.layer[TINY_LAYERS + 1].ffn = FFN_DENSE;
    refuse_index(&facts, &layout, end, "predictor 1: inner width is 0");
    facts.shape = with_predictors();
    facts.shape.layer[TINY_LAYERS].window = -1;
    refuse_index(&facts, &layout, end, "predictor 0: sliding window is -1");
    layout_free(&layout);
}

static void predictors_count_as_layers(void **state)
{
    (void)state;
    struct err err = {0};
    struct text text = {0};
    struct model_facts facts = {.shape = shape};
    struct layout layout = {0};
    facts.shape.layers = LAYERS_MAX - 1;
    facts.shape.predictors = 1;
    for (int i = 0; i < LAYERS_MAX; i++)
        facts.shape.layer[i].ffn = FFN_EXPERTS;
    assert_int_equal(hparams_check(&facts.shape, &err), 0);
    assert_int_equal(model_index_write(&text, &facts, &layout, &err), 0);
    refuse_longer(&text, 2, "hparams: number of layers and predictors is 513");
    text_free(&text);
}

/* A norm with weights of 0 would make all weights below it ineffective. */
static void random_norms_are_ones(void **state)
{
    (void)state;
    struct err err = {0};
    struct hparams latent = with_predictors();
    const struct synthetic_options options = {.dense = FORMAT_F32, .experts = FORMAT_F32, .name = "latent", .producer = "test"};
    struct thread_pool *pool = NULL;
    latent.attention.kv_heads = latent.attention.heads;
    latent.attention.qk_norm = QK_NORM_NONE;
    latent.attention.clip_qkv = 0;
    latent.attention.q_rank = latent.attention.kv_rank = 12;
    latent.attention.latent_epsilon = 1e-6f;
    latent.rope.rotary = latent.attention.head_dim / 2;
    assert_int_equal(thread_pool_new(&pool, 1, &err), 0);
    if (synthetic_write(unit_path(folder, "latent.moe"), &latent, &options, pool, NULL, &err))
        fail_msg("%s", err.text);
    thread_pool_free(&pool);
    struct model *model = open_model(unit_path(folder, "latent.moe"));
    int norms = 0;
    for (int i = 0; i < model_tensor_count(model); i++) {
        const struct tensor *t = model_tensor_at(model, i);
        const float *values = model_data(model, t);
        if (!strstr(t->name, "norm"))
            continue;
        for (int k = 0; k < t->outputs; k++)
            if (values[k] != 1.0f)
                fail_msg("%s: element %d is %g", t->name, k, (double)values[k]);
        norms++;
    }
    assert_int_equal(norms, 1 + (TINY_LAYERS + 2) * 4 + 2 * 3);
    model_close(&model);
}

static void inflate(const char *from, const char *to, int inner, int threads)
{
    struct err err = {0};
    struct thread_pool *pool = NULL;
    struct model *model = open_model(from);
    assert_int_equal(thread_pool_new(&pool, threads, &err), 0);
    if (inflate_write(to, model, inner, "test", pool, NULL, &err))
        fail_msg("%s", err.text);
    thread_pool_free(&pool);
    model_close(&model);
}

__attribute__((format(printf, 3, 0)))
static void compare_blocks(const struct model *thin, const struct model *wide, const char *name, int layer)
{
    struct err err = {0};
    const struct tensor *a = model_tensor(thin, &err, name, layer), *b = model_tensor(wide, &err, name, layer);
    assert_int_equal(a->format, b->format);
    for (int e = 0; e < a->count; e++) {
        const unsigned char *x = (const unsigned char *)model_data(thin, a) + (size_t)e * a->stride;
        const unsigned char *y = (const unsigned char *)model_data(wide, b) + (size_t)e * b->stride;
        for (int i = 0; i < b->inputs; i++)
            for (int k = 0; k < a->outputs; k++) {
                bool old = i < a->inputs;
                float gate = old ? expert_gate_at(a->format, x, a->outputs, a->inputs, i, k) : 0;
                float up = old ? expert_up_at(a->format, x, a->outputs, a->inputs, i, k) : 0;
                float down = old ? expert_down_at(a->format, x, a->outputs, a->inputs, k, i) : 0;
                assert_true(expert_gate_at(b->format, y, b->outputs, b->inputs, i, k) == gate);
                assert_true(expert_up_at(b->format, y, b->outputs, b->inputs, i, k) == up);
                assert_true(expert_down_at(b->format, y, b->outputs, b->inputs, k, i) == down);
            }
    }
}

static const char DENSE[] =
    "{\"model_type\":\"qwen3\",\"hidden_size\":72,\"intermediate_size\":19,\"num_hidden_layers\":2,\"num_attention_heads\":9,"
    "\"num_key_value_heads\":3,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":64,\"vocab_size\":37,\"head_dim\":8}";

static void dense_layers_are_inflated_where_there_are_no_experts(void **state)
{
    (void)state;
    struct err err = {0};
    struct hparams tiny = shape;
    struct step_bytes bytes;
    assert_int_equal(arch_read_text(DENSE, strlen(DENSE), 0, &shape, &err), 0);
    write_model(unit_path(folder, "d.moe"), 1, FORMAT_BF16, FORMAT_BF16, 3);
    inflate(unit_path(folder, "d.moe"), unit_path(folder, "e.moe"), 45, 2);
    struct model *thin = open_model(unit_path(folder, "d.moe")), *wide = open_model(unit_path(folder, "e.moe"));
    assert_int_equal(model_verify(wide, &err), 0);
    assert_int_equal(model_identity(wide)->inflated_from, 19);
    assert_int_equal(model_hparams(wide)->dense_inner, 45);
    for (int layer = 0; layer < 2; layer++)
        compare_blocks(thin, wide, "layers.%d.dense", layer);
    for (int i = 0; i < model_tensor_count(thin); i++) {
        const struct tensor *t = model_tensor_at(thin, i), *same = model_tensor_at(wide, i);
        if (t->role != ROLE_DENSE)
            assert_memory_equal(model_data(thin, t), model_data(wide, same), t->bytes);
    }
    /* The bytes of every width, and the width nearest to a requested size. */
    step_bytes(&bytes, wide);
    uint64_t wanted = step_bytes_all(&bytes);
    int inner = 0;
    assert_int_equal(inflate_width(&inner, thin, wanted + 100, &err), 0);
    inflate(unit_path(folder, "d.moe"), unit_path(folder, "f.moe"), inner, 1);
    struct model *again = open_model(unit_path(folder, "f.moe"));
    step_bytes(&bytes, again);
    assert_true(step_bytes_all(&bytes) == wanted);          /* blocks are whole pages, so several widths have the same size */
    assert_int_equal(inflate_width(&inner, wide, wanted, &err), -1);
    assert_non_null(strstr(err.text, "already reads"));
    model_close(&thin);
    model_close(&wide);
    model_close(&again);
    shape = tiny;
}

/* Wider than one unit of outputs, and not a multiple of one. */
static const char WIDER[] =
    "{\"model_type\":\"olmoe\",\"hidden_size\":72,\"intermediate_size\":19,\"num_hidden_layers\":2,\"num_attention_heads\":9,"
    "\"num_experts\":3,\"num_experts_per_tok\":2,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":64,\"vocab_size\":37}";

static void inflating_adds_zeros_only(void **state)
{
    (void)state;
    struct hparams tiny = shape;
    assert_int_equal(arch_read_text(WIDER, strlen(WIDER), 0, &shape, NULL), 0);
    static const enum weight_format formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_FP8, FORMAT_Q8, FORMAT_Q4};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        struct err err = {0};
        write_model(unit_path(folder, "thin.moe"), 1, FORMAT_BF16, formats[f], 3);
        inflate(unit_path(folder, "thin.moe"), unit_path(folder, "wide.moe"), 45, 1);
        inflate(unit_path(folder, "thin.moe"), unit_path(folder, "wide2.moe"), 45, 3);
        struct text one = read_file(unit_path(folder, "wide.moe")), other = read_file(unit_path(folder, "wide2.moe"));
        assert_int_equal(one.length, other.length);
        assert_memory_equal(one.data, other.data, one.length);
        text_free(&one);
        text_free(&other);
        struct model *thin = open_model(unit_path(folder, "thin.moe")), *wide = open_model(unit_path(folder, "wide.moe"));
        const struct model_identity *id = model_identity(wide);
        assert_int_equal(model_verify(wide, &err), 0);
        assert_int_equal(id->inflated_from, TINY_INNER);
        assert_int_equal(model_hparams(wide)->expert_inner, 45);
        assert_memory_equal(&id->source, &model_identity(thin)->source, sizeof id->source);
        assert_memory_not_equal(&id->index, &model_identity(thin)->index, sizeof id->index);
        for (int layer = 0; layer < TINY_LAYERS; layer++)
            compare_blocks(thin, wide, "layers.%d.experts", layer);
        for (int i = 0; i < model_tensor_count(thin); i++) {
            const struct tensor *t = model_tensor_at(thin, i), *same = model_tensor_at(wide, i);
            if (t->role != ROLE_EXPERTS)
                assert_memory_equal(model_data(thin, t), model_data(wide, same), t->bytes);
        }
        model_close(&thin);
        model_close(&wide);
    }
    shape = tiny;
}

static void a_damaged_model_is_not_inflated(void **state)
{
    (void)state;
    struct err err = {0};
    struct thread_pool *pool = NULL;
    struct model *model = open_model(unit_path(folder, "a.moe"));
    const struct tensor *norm = model_tensor(model, &err, "final_norm");
    int fd = open(unit_path(folder, "a.moe"), O_RDWR);
    assert_non_null(norm);
    assert_int_equal(thread_pool_new(&pool, 1, &err), 0);
    flip(fd, norm->offset + 1, 0x10);
    assert_int_equal(inflate_write(unit_path(folder, "damaged.moe"), model, 45, "test", pool, NULL, &err), -1);
    assert_non_null(strstr(err.text, "tensor final_norm: the bytes do not match their digest"));
    assert_int_not_equal(access(unit_path(folder, "damaged.moe"), F_OK), 0);
    flip(fd, norm->offset + 1, 0x10);
    close(fd);
    thread_pool_free(&pool);
    model_close(&model);
}

static void inflating_needs_a_larger_width(void **state)
{
    (void)state;
    struct err err = {0};
    struct layout layout = {0};
    struct model *model = open_model(unit_path(folder, "a.moe"));
    assert_int_equal(inflate_plan(&layout, model, TINY_INNER, &err), -1);
    assert_non_null(strstr(err.text, "is already 19"));
    err_clear(&err);
    assert_int_equal(inflate_plan(&layout, model, WIDTH_MAX + 1, &err), -1);
    model_close(&model);
    inflate(unit_path(folder, "a.moe"), unit_path(folder, "w1.moe"), 32, 1);
    inflate(unit_path(folder, "w1.moe"), unit_path(folder, "w2.moe"), 64, 1);
    model = open_model(unit_path(folder, "w2.moe"));
    assert_int_equal(model_identity(model)->inflated_from, TINY_INNER);
    model_close(&model);
}

static void an_output_in_place_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    struct thread_pool *pool = NULL;
    struct synthetic_options options = {.name = "tiny", .producer = "test"};
    assert_int_equal(thread_pool_new(&pool, 1, &err), 0);
    assert_int_equal(synthetic_write("/dev/full", &shape, &options, pool, NULL, &err), -1);
    assert_non_null(strstr(err.text, "name a file on disk"));
    thread_pool_free(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_was_written),
        cmocka_unit_test(random_values_are_spread_as_promised),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(blocks_that_are_ready_early_wait_for_their_turn),
        cmocka_unit_test(a_flip_in_head_or_index_is_refused),
        cmocka_unit_test(a_flip_in_the_data_is_noticed),
        cmocka_unit_test(a_cut_file_is_refused),
        cmocka_unit_test(what_is_no_model_is_refused),
        cmocka_unit_test(a_forged_index_does_no_harm),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(unknown_hparams_are_refused),
        cmocka_unit_test(predictors_are_read_back),
        cmocka_unit_test(predictors_count_as_layers),
        cmocka_unit_test(random_norms_are_ones),
        cmocka_unit_test(inflating_adds_zeros_only),
        cmocka_unit_test(dense_layers_are_inflated_where_there_are_no_experts),
        cmocka_unit_test(inflating_needs_a_larger_width),
        cmocka_unit_test(a_damaged_model_is_not_inflated),
        cmocka_unit_test(an_output_in_place_is_refused),
    };
    return cmocka_run_group_tests(tests, make_files, remove_folder);
}
