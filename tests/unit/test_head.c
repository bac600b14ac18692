/* Draft heads in files: conversion keeps the description, a head belongs to its target, and contradictory descriptions and
 * forged indexes are rejected. */
#include "common/base/file.h"
#include "common/checkpoint/convert_head.h"
#include "common/model/synthetic.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/folder.h"

enum { WORDS = 9, INNER = 11 };

#define EAGLE3 \
    "{\"model_type\":\"llama\",\"hidden_size\":24,\"intermediate_size\":11,\"num_hidden_layers\":1,\"num_attention_heads\":3," \
    "\"num_key_value_heads\":1,\"rms_norm_eps\":0.25,\"rope_theta\":77.0,\"vocab_size\":37,\"draft_vocab_size\":9," \
    "\"norm_before_residual\":true,\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[1,0,1,0]}}"

static const int ids[WORDS] = {0, 3, 4, 9, 17, 18, 30, 35, 36};
static struct model *target;

static void write_target(const char *path, int layers, const char *name)
{
    struct err err = {0};
    struct thread_pool *pool = NULL;
    struct hparams own;
    struct synthetic_options options = {.dense = FORMAT_BF16, .experts = FORMAT_BF16, .seed = 3, .name = name,
                                        .producer = "test"};
    assert_int_equal(arch_read_text(TINY_OLMOE, strlen(TINY_OLMOE), layers, &own, &err), 0);
    assert_int_equal(thread_pool_new(&pool, 1, &err), 0);
    assert_int_equal(synthetic_write(path, &own, &options, pool, NULL, &err), 0);
    thread_pool_free(&pool);
}

static void put_map(struct weights *w)
{
    unsigned char offsets[WORDS * 8] = {0}, marks[TINY_VOCAB] = {0};
    for (int i = 0; i < WORDS; i++) {
        offsets[i * 8] = (unsigned char)(ids[i] - i);
        marks[ids[i]] = 1;
    }
    weights_put(w, "d2t", "I64", "[9]", offsets, sizeof offsets);
    weights_put(w, "t2d", "BOOL", "[37]", marks, sizeof marks);
}

static void write_source(void)
{
    static const struct { const char *name; int rows, columns; } parts[] = {
        {"fc.weight", 24, 96}, {"lm_head.weight", WORDS, 24}, {"norm.weight", 24, 0}, {"midlayer.hidden_norm.weight", 24, 0},
        {"midlayer.input_layernorm.weight", 24, 0}, {"midlayer.post_attention_layernorm.weight", 24, 0},
        {"midlayer.self_attn.q_proj.weight", 24, 48}, {"midlayer.self_attn.k_proj.weight", 8, 48},
        {"midlayer.self_attn.v_proj.weight", 8, 48}, {"midlayer.self_attn.o_proj.weight", 24, 24},
        {"midlayer.mlp.gate_proj.weight", INNER, 24}, {"midlayer.mlp.up_proj.weight", INNER, 24},
        {"midlayer.mlp.down_proj.weight", 24, INNER}};
    struct weights w = {0};
    assert_int_equal(mkdir(unit_path(folder, "source"), 0777), 0);
    write_string(unit_path(folder, "source/config.json"), EAGLE3);
    put_map(&w);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        weights_add(&w, parts[i].name, "BF16", 0, parts[i].rows, parts[i].columns);
    weights_write(&w, unit_path(folder, "source/model.safetensors"));
}

static int convert(const char *source, const char *path, struct err *err)
{
    const struct head_options options = {.format = {.keep = true}, .producer = "test"};
    struct checkpoint *cp = NULL;
    struct conversion plan = {0};
    struct thread_pool *pool = NULL;
    struct text notes = {0};
    int rc = checkpoint_open(&cp, source, path, err) || conversion_plan_head(&plan, cp, target, &options, &notes, err) ||
             thread_pool_new(&pool, 1, err) || conversion_write(&plan, path, pool, NULL, err) ? -1 : 0;
    thread_pool_free(&pool);
    conversion_free(&plan);
    checkpoint_close(&cp);
    text_free(&notes);
    return rc;
}

static int make_files(void **state)
{
    struct err err = {0};
    make_folder(state);
    write_target(unit_path(folder, "target.moe"), 0, "tiny");
    assert_int_equal(model_open(&target, unit_path(folder, "target.moe"), &err), 0);
    write_source();
    if (convert(unit_path(folder, "source"), unit_path(folder, "head.moe"), &err))
        fail_msg("%s", err.text);
    return 0;
}

static int remove_files(void **state)
{
    model_close(&target);
    return remove_folder(state);
}

static struct model *open_head(void)
{
    struct err err = {0};
    struct model *model = NULL;
    if (model_open_head(&model, unit_path(folder, "head.moe"), &err))
        fail_msg("%s", err.text);
    return model;
}

static void what_was_converted_is_read_back(void **state)
{
    (void)state;
    struct err err = {0};
    struct model *model = open_head();
    const struct head_params *head = model_head(model);
    const struct hparams *s = model_hparams(model);
    assert_int_equal(head->kind, HEAD_EAGLE3);
    assert_string_equal(head->target.name, "tiny");
    assert_memory_equal(&head->target.source, &model_identity(target)->source, sizeof head->target.source);
    assert_int_equal(head->target.layers, TINY_LAYERS);
    assert_int_equal(head->target.hidden, TINY_HIDDEN);
    assert_int_equal(head->target.vocab, TINY_VOCAB);
    assert_int_equal(head->states, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(head->state[i], i % 2 == 0);
    assert_int_equal(head->draft_vocab, WORDS);
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(head->target_id[i], ids[i]);
    assert_true(head->normed_residual && !head->normed_output && !head->embed && !head->states_norm && !head->state_norms);
    assert_int_equal(s->attention.heads, 3);
    assert_int_equal(s->attention.kv_heads, 1);
    assert_int_equal(s->attention.head_dim, 8);
    assert_int_equal(s->dense_inner, INNER);
    assert_true(s->rope.theta == 77.0 && s->norm_epsilon == 0.25f);
    const struct tensor *qkv = model_tensor(model, &err, "layers.0.attention.qkv");
    for (int column = 0; column < 48; column++) {
        assert_true(matrix_at(qkv->format, model_data(model, qkv), 48, 23, column) ==
                    weights_value("midlayer.self_attn.q_proj.weight", (size_t)(23 * 48 + column)));
        assert_true(matrix_at(qkv->format, model_data(model, qkv), 48, 24 + 8 + 3, column) ==
                    weights_value("midlayer.self_attn.v_proj.weight", (size_t)(3 * 48 + column)));
    }
    assert_int_equal(model_verify(model, &err), 0);
    model_close(&model);
}

static void a_head_is_no_model_and_a_model_no_head(void **state)
{
    (void)state;
    struct err err = {0};
    struct model *model = NULL;
    assert_int_equal(model_open(&model, unit_path(folder, "head.moe"), &err), -1);
    assert_non_null(strstr(err.text, "is a draft head (eagle3) for tiny, not a model"));
    err_clear(&err);
    assert_int_equal(model_open_head(&model, unit_path(folder, "target.moe"), &err), -1);
    assert_non_null(strstr(err.text, "is a model, not a draft head"));
    assert_null(model_head(target));
    err_clear(&err);
    assert_int_equal(model_open_any(&model, unit_path(folder, "head.moe"), &err), 0);
    model_close(&model);
}

static void refuse_target(const struct head_params *head, struct model_identity other, bool force, const char *says)
{
    struct err err = {0};
    assert_int_equal(head_check_target(head, &other, force, &err), says ? -1 : 0);
    if (says && !strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", err.text, says);
}

static void a_head_belongs_to_its_target(void **state)
{
    (void)state;
    struct model *model = open_head();
    const struct head_params *head = model_head(model);
    const struct model_identity *own = model_identity(target);
    struct model_identity other = *own;
    refuse_target(head, other, false, NULL);
    other.inflated_from = 3;                            /* the same weights, padded: not another target */
    refuse_target(head, other, false, NULL);
    other.source.bytes[5] ^= 1;
    refuse_target(head, other, false, "whose weights come from another source than those of tiny");
    refuse_target(head, other, true, NULL);
    other.tokenizer.bytes[5] ^= 1;
    refuse_target(head, other, true, "whose tokenizer differs from that of tiny");
    other = *own;
    other.layers++;
    refuse_target(head, other, true, "2 layers, hidden width 24, vocabulary 37), but tiny has 3 layers");
    other = *own;
    other.vocab++;
    refuse_target(head, other, true, "vocabulary 38");
    other = *own;
    other.hidden++;
    refuse_target(head, other, true, "hidden width 25");
    model_close(&model);
}

/* Reads an index whose digest was not checked, in a block of its own. */
static int read_index(const void *index, size_t bytes, uint64_t data_end, struct err *err)
{
    struct model_facts facts = {0};
    struct layout layout = {0};
    void *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, index, bytes);
    int rc = model_index_read(&facts, &layout, copy, bytes, data_end, err);
    free(copy);
    layout_free(&layout);
    model_facts_free(&facts);
    return rc;
}

static void refuse_facts(struct model_facts *facts, struct layout *layout, uint64_t end, const char *says)
{
    struct err err = {0};
    struct text text = {0};
    assert_int_equal(model_index_write(&text, facts, layout, &err), 0);
    if (read_index(text.data, text.length, end, &err) != (says ? -1 : 0) || (says && !strstr(err.text, says)))
        fail_msg("'%s' does not say '%s'", err.text, says ? says : "nothing");
    text_free(&text);
}

static void contradictions_are_named(void **state)
{
    (void)state;
    struct err err = {0};
    struct model *model = open_head();
    struct layout layout = {0};
    uint64_t end;
    assert_int_equal(layout_make_head(&layout, model_head(model), model_hparams(model), &err), 0);
    assert_int_equal(layout_arrange(&layout, MODEL_PAGE, &end, &err), 0);
    struct model_facts facts = {0}, kept;
    assert_int_equal(model_facts_copy(&facts, model_facts(model), &err), 0);
    model_close(&model);
    refuse_facts(&facts, &layout, end, NULL);
#define CHANGE(change, says) kept = facts, change, refuse_facts(&facts, &layout, end, says), facts = kept
    CHANGE(facts.head.state[2] = 3, "layer whose state is read is 3, expected 0 to 2");
    CHANGE(facts.head.state[0] = -1, "layer whose state is read is -1");
    CHANGE(facts.head.states = 0, "number of states is 0");
    CHANGE(facts.head.target.vocab = 36, "maps draft id 8 to target id 36, but the target's last id is 35");
    CHANGE(facts.head.target.vocab = 38, "vocabulary is 37, expected 38 to 38");
    CHANGE(facts.head.target.hidden = 25, "a head of another width needs its own embedding");
    CHANGE(facts.head.joint_bias = true, "joint_bias is set, but does not apply to heads of kind eagle3");
    CHANGE(facts.head.prefix = true, "prefix is set, but does not apply to heads of kind eagle3");
    CHANGE(facts.head.heads = 2, "number of heads is 2, expected 0 to 0");
    CHANGE(facts.head.kind = HEAD_EAGLE1, "number of states is 4, expected 1 to 1");
    CHANGE(facts.head.kind = HEAD_MEDUSA, "number of states is 4");
    CHANGE(facts.head.states_norm = true, "elements");
    CHANGE(facts.head.embed = true, "elements");
    CHANGE(facts.shape.layers = 0, "number of layers is 0, expected 1 to 1");
    CHANGE(facts.shape.layer[0].ffn = FFN_NONE, "kind of feed-forward network is 2");
    CHANGE(facts.shape.attention.qk_norm = QK_NORM_HEAD, "kind of q and k norm is 2");
    CHANGE(facts.shape.attention.kv_heads = 2, "3 query heads are not a multiple of 2 key and value heads");
    CHANGE(facts.shape.hidden = WIDTH_MAX, "the hidden width is 1048576, but the target's is 24");
    int32_t *own = facts.head.target_id, changed[WORDS];
    memcpy(changed, own, sizeof changed);
    facts.head.target_id = changed;
    changed[4] = changed[3];
    refuse_facts(&facts, &layout, end, "the vocabulary map maps two draft ids to target id 9");
    changed[4] = -5;
    refuse_facts(&facts, &layout, end, "maps draft id 4 to target id -1");
    facts.head.target_id = NULL;
    refuse_facts(&facts, &layout, end, "the draft vocabulary (9) needs one, because it differs from the target's (37)");
    facts.head.target_id = own;
    facts.head.kind = HEAD_NONE;                        /* a head's shape and tensors instead of a model's */
    refuse_facts(&facts, &layout, end, "elements");
    model_facts_free(&facts);
    layout_free(&layout);
}

/* Index and digest may have been forged to match: every value is checked. */
static void a_forged_index_does_no_harm(void **state)
{
    (void)state;
    struct text file = {0};
    struct model_head head;
    struct err err = {0};
    assert_int_equal(file_read(&file, unit_path(folder, "head.moe"), SIZE_MAX / 2, &err), 0);
    assert_int_equal(model_head_read(&head, (const uint8_t *)file.data, file.length, &err), 0);
    unsigned char *index = (unsigned char *)file.data + head.index_offset;
    assert_int_equal(read_index(index, head.index_bytes, head.index_offset, &err), 0);
    for (size_t bytes = 0; bytes < head.index_bytes; bytes++)
        assert_int_equal(read_index(index, bytes, head.index_offset, NULL), -1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_converted_is_read_back),
        cmocka_unit_test(a_head_is_no_model_and_a_model_no_head),
        cmocka_unit_test(a_head_belongs_to_its_target),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(a_forged_index_does_no_harm),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
