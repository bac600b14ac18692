/* GGUF files: the same weights in a Hugging Face folder and in a GGUF file give the same model, for each difference between
 * the two; values of block types follow their definitions; errors are named. */
#include <math.h>
#include <sys/stat.h>

#include "common/base/mem.h"
#include "common/checkpoint/convert.h"
#include "common/checkpoint/gguf.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/gguf.h"

static char *folder;

static int setup(void **state)
{
    (void)state;
    folder = unit_folder();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unit_remove(folder);
    return 0;
}

/* ---- the same weights twice ---- */

/* How a GGUF file stores a tensor of the folder. */
enum way {
    SAME,
    PAIRED,         /* rows of `heads` heads, the two halves of each interleaved */
    GATHERED,       /* experts' tensors stacked; {e} in the folder's name is the expert */
    KEYS, VALUES,   /* the part of kv_b with keys (transposed) or values, of `heads` heads */
    EVEN, ODD,      /* columns of [experts][inputs][2 outputs], transposed */
    TURNED          /* [experts][inputs][outputs], transposed */
};

struct pair {
    const char *published, *gguf;   /* # is the layer; gguf NULL: another part of the previous one */
    enum way way;
    int dims[3];                    /* dims of the folder's tensor; 0: none */
};

static void fill(char *out, size_t room, const char *pattern, int layer, int expert)
{
    size_t used = 0;
    for (; *pattern && used + 12 < room; pattern++) {
        if (*pattern == '#' || *pattern == '@')
            used += (size_t)snprintf(out + used, room - used, "%d", *pattern == '#' ? layer : expert);
        else
            out[used++] = *pattern;
    }
    out[used] = '\0';
}

enum {
    HEADS = 2, KV_HEADS = 1, HEAD = 8, HIDDEN = 24, INNER = 20, EXPERTS = 3, VOCAB = 37, RANK = 12, OWN = 6, ROTARY = 4,
    WIDE = 10
};

static size_t element_count(const struct pair *p)
{
    size_t count = 1;
    for (int i = 0; i < 3 && p->dims[i]; i++)
        count *= (size_t)p->dims[i];
    return count;
}

/* Returns element i of the GGUF tensor and its dims, slowest first. */
static int gguf_element(const struct pair *p, const char *name, int index, int dims[3], int *count, float *value)
{
    const int *d = p->dims, rows = d[0], columns = d[1] ? d[1] : 1, heads = strstr(name, "k_proj") ? KV_HEADS : HEADS;
    int at = index, r = index / columns, c = index % columns;
    *count = d[2] ? 3 : d[1] ? 2 : 1;
    memcpy(dims, d, 3 * sizeof *dims);
    switch (p->way) {
    case PAIRED: {
        int width = rows / heads, head = r / width, i = r % width;
        at = (head * width + i % 2 * (width / 2) + i / 2) * columns + c;
        break;
    }
    case KEYS:
        dims[0] = HEADS, dims[1] = RANK, dims[2] = OWN, *count = 3;
        at = (index / (RANK * OWN) * (OWN + WIDE) + index % OWN) * RANK + index / OWN % RANK;
        break;
    case VALUES:
        dims[0] = HEADS, dims[1] = WIDE, dims[2] = RANK, *count = 3;
        at = (index / (RANK * WIDE) * (OWN + WIDE) + OWN + index / RANK % WIDE) * RANK + index % RANK;
        break;
    case EVEN:
    case ODD:
    case TURNED: {
        int outputs = d[2] ? d[2] : d[1], inputs = d[2] ? d[1] : 1, step = p->way == TURNED ? 1 : 2, odd = p->way == ODD;
        dims[1] = outputs / step, dims[2] = d[2] ? inputs : 0;
        int e = index / (inputs * dims[1]), out = index / inputs % dims[1], in = index % inputs;
        at = (e * inputs + in) * outputs + out * step + odd;
        break;
    }
    default:
        break;
    }
    size_t total = 1;
    for (int i = 0; i < *count; i++)
        total *= (size_t)dims[i];
    if ((size_t)index >= total)
        return 0;
    *value = weights_value(name, (size_t)at);
    return 1;
}

static void put_pair(struct gguf_file *g, struct weights *w, const struct pair *p, int layer)
{
    char name[128], other[128];
    struct text data = {0};
    int dims[3] = {0}, count = 0, sizes[4], n = 0, experts = p->way == GATHERED ? EXPERTS : 1;
    float value;
    for (int e = 0; e < experts; e++) {
        fill(name, sizeof name, p->published, layer, e);
        if (p->way != VALUES && p->way != ODD)          /* further parts of a tensor that exists already */
            weights_add(w, name, "F32", p->dims[2] ? p->dims[0] : 0, p->dims[2] ? p->dims[1] : p->dims[0],
                        p->dims[2] ? p->dims[2] : p->dims[1]);
        for (int i = 0; (size_t)i < element_count(p) && gguf_element(p, name, i, dims, &count, &value); i++)
            text_put(&data, &value, sizeof value, NULL);
    }
    for (int i = count; i-- > 0;)
        sizes[n++] = dims[i];
    if (p->way == GATHERED)
        sizes[n++] = EXPERTS;
    fill(other, sizeof other, p->gguf, layer, 0);
    gguf_put_tensor(g, other, 0, n, sizes, data.data, data.length);
    text_free(&data);
}

static void convert(const char *source, const char *target)
{
    struct checkpoint *cp = NULL;
    struct conversion plan;
    struct thread_pool *pool = NULL;
    struct err err = {0};
    struct convert_options options = {.dense.keep = true, .experts.keep = true, .name = "x", .producer = "test"};
    if (checkpoint_open(&cp, source, target, &err) || conversion_plan(&plan, cp, &options, &err) || thread_pool_new(&pool, 2,
                                                                                                                    &err) ||
        conversion_write(&plan, target, pool, NULL, &err))
        fail_msg("%s", err.text);
    thread_pool_free(&pool);
    conversion_free(&plan);
    checkpoint_close(&cp);
}

static void check_same(const char *one, const char *other)
{
    struct model *a = NULL, *b = NULL;
    struct err err = {0};
    assert_int_equal(model_open(&a, one, &err), 0);
    assert_int_equal(model_open(&b, other, &err), 0);
    assert_int_equal(model_tensor_count(a), model_tensor_count(b));
    for (int i = 0; i < model_tensor_count(a); i++) {
        const struct tensor *x = model_tensor_at(a, i), *y = model_tensor_at(b, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->bytes, y->bytes);
        if (memcmp(model_data(a, x), model_data(b, y), x->bytes))
            fail_msg("%s differs", x->name);
    }
    struct hparams left = *model_hparams(a), right = *model_hparams(b);
    assert_memory_equal(&left, &right, sizeof left);
    model_close(&a);
    model_close(&b);
}

#define OUTSIDE \
    {"model.embed_tokens.weight", "token_embd.weight", SAME, {VOCAB, HIDDEN}}, \
    {"lm_head.weight", "output.weight", SAME, {VOCAB, HIDDEN}}, \
    {"model.norm.weight", "output_norm.weight", SAME, {HIDDEN}}
#define LAYER "model.layers.#."
#define ATTENTION(way) \
    {LAYER "self_attn.q_proj.weight", "blk.#.attn_q.weight", way, {HEADS * HEAD, HIDDEN}}, \
    {LAYER "self_attn.k_proj.weight", "blk.#.attn_k.weight", way, {KV_HEADS * HEAD, HIDDEN}}, \
    {LAYER "self_attn.v_proj.weight", "blk.#.attn_v.weight", SAME, {KV_HEADS * HEAD, HIDDEN}}, \
    {LAYER "self_attn.o_proj.weight", "blk.#.attn_output.weight", SAME, {HIDDEN, HEADS * HEAD}}
#define BIASES(way) \
    {LAYER "self_attn.q_proj.bias", "blk.#.attn_q.bias", way, {HEADS * HEAD}}, \
    {LAYER "self_attn.k_proj.bias", "blk.#.attn_k.bias", way, {KV_HEADS * HEAD}}, \
    {LAYER "self_attn.v_proj.bias", "blk.#.attn_v.bias", SAME, {KV_HEADS * HEAD}}, \
    {LAYER "self_attn.o_proj.bias", "blk.#.attn_output.bias", SAME, {HIDDEN}}
#define NORMS(second) \
    {LAYER "input_layernorm.weight", "blk.#.attn_norm.weight", SAME, {HIDDEN}}, \
    {LAYER "post_attention_layernorm.weight", "blk.#." second ".weight", SAME, {HIDDEN}}
#define MERGED(name) \
    {LAYER "mlp.experts.@.gate_proj.weight", "blk.#.ffn_gate_exps.weight", GATHERED, {INNER, HIDDEN}}, \
    {LAYER "mlp.experts.@.up_proj.weight", "blk.#.ffn_up_exps.weight", GATHERED, {INNER, HIDDEN}}, \
    {LAYER "mlp.experts.@.down_proj.weight", "blk.#.ffn_down_exps.weight", GATHERED, {HIDDEN, INNER}}, \
    {LAYER "mlp.gate.weight", "blk.#.ffn_gate_inp.weight", SAME, {EXPERTS, HIDDEN}}

static int blocks = 2;          /* layers of the file, including predictors */

/* Writes the keys that all architectures have. */
static void put_shape(struct gguf_file *g, const char *arch, int heads, int kv_heads)
{
    const struct { const char *key; int value; } numbers[] = {
        {"block_count", blocks}, {"context_length", 64}, {"embedding_length", HIDDEN}, {"feed_forward_length", INNER}};
    char key[96];
    gguf_put_text(g, "general.architecture", arch);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, numbers[i].key);
        gguf_put_int(g, key, (uint32_t)numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.head_count", arch);
    gguf_put_int(g, key, (uint32_t)heads);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", arch);
    gguf_put_int(g, key, (uint32_t)kv_heads);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_put_float(g, key, 1e-5f);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    gguf_put_float(g, key, 5000);
}

static void put_number(struct gguf_file *g, const char *arch, const char *name, int value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    gguf_put_int(g, key, (uint32_t)value);
}

#define SHAPE "\"hidden_size\":24,\"num_hidden_layers\":2,\"vocab_size\":37,\"max_position_embeddings\":64," \
    "\"rms_norm_eps\":9.9999997473787516e-06,\"rope_theta\":5000,"

/* Writes the tensors with # in their names once per layer. */
static void check_family(struct gguf_file *g, const char *config, const struct pair *pairs, size_t count)
{
    struct weights w = {0};
    for (size_t i = 0; i < count; i++)
        for (int layer = 0; layer < (strchr(pairs[i].published, '#') ? blocks : 1); layer++)
            put_pair(g, &w, &pairs[i], layer);
    char *checkpoint = strdup(unit_path(folder, "hf"));
    mkdir(checkpoint, 0777);
    write_string(unit_path(checkpoint, "config.json"), config);
    weights_write(&w, unit_path(checkpoint, "model.safetensors"));
    gguf_write(g, unit_path(folder, "m.gguf"));
    convert(checkpoint, unit_path(folder, "a.moe"));
    convert(unit_path(folder, "m.gguf"), unit_path(folder, "b.moe"));
    check_same(unit_path(folder, "a.moe"), unit_path(folder, "b.moe"));
    free(checkpoint);
}
#define CHECK_FAMILY(g, config, pairs) check_family(g, config, pairs, sizeof (pairs) / sizeof *(pairs))

static void test_olmoe(void **state)
{
    static const struct pair pairs[] = {
        OUTSIDE, ATTENTION(SAME), NORMS("ffn_norm"), MERGED(x),
        {LAYER "self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", SAME, {HEADS * HEAD}},
        {LAYER "self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", SAME, {KV_HEADS * HEAD}}};
    struct gguf_file g = {{0}};
    (void)state;
    put_shape(&g, "olmoe", HEADS, KV_HEADS);
    put_number(&g, "olmoe", "expert_count", EXPERTS);
    put_number(&g, "olmoe", "expert_used_count", 2);
    put_number(&g, "olmoe", "attention.key_length", HEAD);
    put_number(&g, "olmoe", "attention.value_length", HEAD);
    gguf_put_float(&g, "olmoe.attention.clamp_kqv", 0.75f);
    CHECK_FAMILY(&g, "{\"model_type\":\"olmoe\"," SHAPE "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,"
                 "\"num_experts\":3,\"num_experts_per_tok\":2,\"intermediate_size\":20,\"clip_qkv\":0.75}", pairs);
}

static void test_llama(void **state)
{
    static const struct pair pairs[] = {
        OUTSIDE, ATTENTION(PAIRED), BIASES(PAIRED), NORMS("ffn_norm"),
        {LAYER "mlp.gate_proj.weight", "blk.#.ffn_gate.weight", SAME, {INNER, HIDDEN}},
        {LAYER "mlp.up_proj.weight", "blk.#.ffn_up.weight", SAME, {INNER, HIDDEN}},
        {LAYER "mlp.down_proj.weight", "blk.#.ffn_down.weight", SAME, {HIDDEN, INNER}}};
    static const float stretch[HEAD / 2] = {1, 1.5f, 4, 8};
    const int pair_count = HEAD / 2;
    struct gguf_file g = {{0}};
    (void)state;
    put_shape(&g, "llama", HEADS, KV_HEADS);
    put_number(&g, "llama", "attention.key_length", HEAD);
    put_number(&g, "llama", "attention.value_length", HEAD);
    put_number(&g, "llama", "rope.dimension_count", HEAD);
    gguf_put_tensor(&g, "rope_freqs.weight", 0, 1, &pair_count, stretch, sizeof stretch);
    CHECK_FAMILY(&g, "{\"model_type\":\"llama\"," SHAPE "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,"
                 "\"intermediate_size\":20,\"attention_bias\":true,"
                 "\"rope_scaling\":{\"rope_type\":\"stretched\",\"stretch\":[1,1.5,4,8]}}", pairs);
    /* The key of old files, without a type. */
    put_shape(&g, "llama", HEADS, KV_HEADS);
    put_number(&g, "llama", "attention.key_length", HEAD);
    put_number(&g, "llama", "attention.value_length", HEAD);
    put_number(&g, "llama", "rope.dimension_count", HEAD);
    gguf_put_float(&g, "llama.rope.scale_linear", 4);
    CHECK_FAMILY(&g, "{\"model_type\":\"llama\"," SHAPE "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,"
                 "\"intermediate_size\":20,\"attention_bias\":true,"
                 "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4}}", pairs);
}

/* Latent attention with keys and values in two tensors, yarn with its score factor, expert groups, dense first layers,
 * shared experts. */
static void test_deepseek(void **state)
{
    static const struct pair pairs[] = {
        OUTSIDE, NORMS("ffn_norm"),
        {LAYER "self_attn.q_proj.weight", "blk.#.attn_q.weight", SAME, {HEADS * (OWN + ROTARY), HIDDEN}},
        {LAYER "self_attn.kv_a_proj_with_mqa.weight", "blk.#.attn_kv_a_mqa.weight", SAME, {RANK + ROTARY, HIDDEN}},
        {LAYER "self_attn.kv_a_layernorm.weight", "blk.#.attn_kv_a_norm.weight", SAME, {RANK}},
        {LAYER "self_attn.kv_b_proj.weight", "blk.#.attn_k_b.weight", KEYS, {HEADS * (OWN + WIDE), RANK}},
        {LAYER "self_attn.kv_b_proj.weight", "blk.#.attn_v_b.weight", VALUES, {HEADS * (OWN + WIDE), RANK}},
        {LAYER "self_attn.o_proj.weight", "blk.#.attn_output.weight", SAME, {HIDDEN, HEADS * WIDE}}, MERGED(x),
        {LAYER "mlp.gate.e_score_correction_bias", "blk.#.exp_probs_b.bias", SAME, {EXPERTS}},
        {LAYER "mlp.shared_experts.gate_proj.weight", "blk.#.ffn_gate_shexp.weight", SAME, {INNER, HIDDEN}},
        {LAYER "mlp.shared_experts.up_proj.weight", "blk.#.ffn_up_shexp.weight", SAME, {INNER, HIDDEN}},
        {LAYER "mlp.shared_experts.down_proj.weight", "blk.#.ffn_down_shexp.weight", SAME, {HIDDEN, INNER}}};
    static const struct { const char *name; int value; } numbers[] = {
        {"attention.key_length", RANK + ROTARY}, {"attention.value_length", RANK}, {"attention.key_length_mla", OWN + ROTARY},
        {"attention.value_length_mla", WIDE}, {"attention.kv_lora_rank", RANK}, {"rope.dimension_count", ROTARY},
        {"expert_count", EXPERTS}, {"expert_used_count", 2}, {"expert_shared_count", 1}, {"expert_feed_forward_length", INNER},
        {"leading_dense_block_count", 0}, {"expert_gating_func", 2}, {"rope.scaling.original_context_length", 32}};
    struct gguf_file g = {{0}};
    (void)state;
    put_shape(&g, "deepseek2", HEADS, 1);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_number(&g, "deepseek2", numbers[i].name, numbers[i].value);
    gguf_put_bool(&g, "deepseek2.expert_weights_norm", true);
    gguf_put_float(&g, "deepseek2.expert_weights_scale", 2.5f);
    gguf_put_text(&g, "deepseek2.rope.scaling.type", "yarn");
    gguf_put_float(&g, "deepseek2.rope.scaling.factor", 4);
    gguf_put_float(&g, "deepseek2.rope.scaling.yarn_log_multiplier", 0.125f);
    CHECK_FAMILY(&g, "{\"model_type\":\"deepseek_v3\"," SHAPE "\"num_attention_heads\":2,\"kv_lora_rank\":12,"
                 "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"v_head_dim\":10,\"n_routed_experts\":3,"
                 "\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"moe_intermediate_size\":20,\"first_k_dense_replace\":0,"
                 "\"routed_scaling_factor\":2.5,\"norm_topk_prob\":true,\"n_group\":1,\"topk_group\":1,"
                 "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":32,\"mscale\":1.25,"
                 "\"mscale_all_dim\":1.25}}", pairs);
}

static void test_gpt_oss(void **state)
{
    static const struct pair pairs[] = {
        OUTSIDE, ATTENTION(SAME), BIASES(SAME), NORMS("post_attention_norm"),
        {LAYER "self_attn.sinks", "blk.#.attn_sinks.weight", SAME, {HEADS}},
        {LAYER "mlp.router.weight", "blk.#.ffn_gate_inp.weight", SAME, {EXPERTS, HIDDEN}},
        {LAYER "mlp.router.bias", "blk.#.ffn_gate_inp.bias", SAME, {EXPERTS}},
        {LAYER "mlp.experts.gate_up_proj", "blk.#.ffn_gate_exps.weight", EVEN, {EXPERTS, HIDDEN, 2 * INNER}},
        {LAYER "mlp.experts.gate_up_proj", "blk.#.ffn_up_exps.weight", ODD, {EXPERTS, HIDDEN, 2 * INNER}},
        {LAYER "mlp.experts.down_proj", "blk.#.ffn_down_exps.weight", TURNED, {EXPERTS, INNER, HIDDEN}},
        {LAYER "mlp.experts.gate_up_proj_bias", "blk.#.ffn_gate_exps.bias", EVEN, {EXPERTS, 2 * INNER}},
        {LAYER "mlp.experts.gate_up_proj_bias", "blk.#.ffn_up_exps.bias", ODD, {EXPERTS, 2 * INNER}},
        {LAYER "mlp.experts.down_proj_bias", "blk.#.ffn_down_exps.bias", SAME, {EXPERTS, HIDDEN}}};
    struct gguf_file g = {{0}};
    (void)state;
    put_shape(&g, "gpt-oss", HEADS, KV_HEADS);
    put_number(&g, "gpt-oss", "expert_count", EXPERTS);
    put_number(&g, "gpt-oss", "expert_used_count", 2);
    put_number(&g, "gpt-oss", "attention.key_length", HEAD);
    put_number(&g, "gpt-oss", "attention.value_length", HEAD);
    put_number(&g, "gpt-oss", "attention.sliding_window", 7);
    gguf_put_text(&g, "gpt-oss.rope.scaling.type", "yarn");
    gguf_put_float(&g, "gpt-oss.rope.scaling.factor", 32);
    put_number(&g, "gpt-oss", "rope.scaling.original_context_length", 16);
    CHECK_FAMILY(&g, "{\"model_type\":\"gpt_oss\"," SHAPE "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,"
                 "\"num_local_experts\":3,\"num_experts_per_tok\":2,\"intermediate_size\":20,\"sliding_window\":7,"
                 "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32,\"original_max_position_embeddings\":16,"
                 "\"truncate\":false}}", pairs);
}

/* Partial rotary embedding, expert groups, and a predictor after the layers. */
static void test_glm(void **state)
{
    static const struct pair pairs[] = {
        OUTSIDE, ATTENTION(SAME), NORMS("post_attention_norm"), MERGED(x),
        {LAYER "mlp.gate.e_score_correction_bias", "blk.#.exp_probs_b.bias", SAME, {EXPERTS}},
        {LAYER "mlp.shared_experts.gate_proj.weight", "blk.#.ffn_gate_shexp.weight", SAME, {INNER, HIDDEN}},
        {LAYER "mlp.shared_experts.up_proj.weight", "blk.#.ffn_up_shexp.weight", SAME, {INNER, HIDDEN}},
        {LAYER "mlp.shared_experts.down_proj.weight", "blk.#.ffn_down_shexp.weight", SAME, {HIDDEN, INNER}},
        {"model.layers.2.eh_proj.weight", "blk.2.nextn.eh_proj.weight", SAME, {HIDDEN, 2 * HIDDEN}},
        {"model.layers.2.enorm.weight", "blk.2.nextn.enorm.weight", SAME, {HIDDEN}},
        {"model.layers.2.hnorm.weight", "blk.2.nextn.hnorm.weight", SAME, {HIDDEN}},
        {"model.layers.2.embed_tokens.weight", "blk.2.nextn.embed_tokens.weight", SAME, {VOCAB, HIDDEN}},
        {"model.layers.2.shared_head.head.weight", "blk.2.nextn.shared_head_head.weight", SAME, {VOCAB, HIDDEN}},
        {"model.layers.2.shared_head.norm.weight", "blk.2.nextn.shared_head_norm.weight", SAME, {HIDDEN}}};
    static const struct { const char *name; int value; } numbers[] = {
        {"attention.key_length", HEAD}, {"attention.value_length", HEAD}, {"rope.dimension_count", HEAD / 2},
        {"expert_count", EXPERTS}, {"expert_used_count", 2}, {"expert_shared_count", 1}, {"expert_feed_forward_length", INNER},
        {"leading_dense_block_count", 0}, {"nextn_predict_layers", 1}};
    struct gguf_file g = {{0}};
    (void)state;
    blocks = 3;
    put_shape(&g, "glm4moe", HEADS, KV_HEADS);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_number(&g, "glm4moe", numbers[i].name, numbers[i].value);
    gguf_put_bool(&g, "glm4moe.expert_weights_norm", true);
    gguf_put_float(&g, "glm4moe.expert_weights_scale", 1.5f);
    CHECK_FAMILY(&g, "{\"model_type\":\"glm4_moe\"," SHAPE "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,"
                 "\"n_routed_experts\":3,\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"moe_intermediate_size\":20,"
                 "\"first_k_dense_replace\":0,\"routed_scaling_factor\":1.5,\"norm_topk_prob\":true,"
                 "\"partial_rotary_factor\":0.5}", pairs);
    blocks = 2;
}

/* ---- block types ---- */

/* Returns a random f16 that is not NaN and not large. */
static uint16_t random_half(void) { return f32_to_f16((float)(rand() % 4001 - 2000) / 512); }

static double half(const uint8_t *at) { return (double)f16_to_f32((uint16_t)(at[0] | at[1] << 8)); }

/* Returns weight i of a block by the definitions in coding_gguf.h, in double; the caller rounds to f32. */
static double block_weight(int type, const uint8_t *b, int i)
{
    static const double e2m1[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    int code, j = i / 32, k = i % 32;
    switch (type) {
    case 2: return half(b) * ((i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4) - 8);
    case 3: return half(b) * (i < 16 ? b[4 + i] & 15 : b[4 + i - 16] >> 4) + half(b + 2);
    case 6: return half(b) * (((i < 16 ? b[6 + i] & 15 : b[6 + i - 16] >> 4) | (b[2 + i / 8] >> i % 8 & 1) * 16) - 16);
    case 7: return half(b) * ((i < 16 ? b[8 + i] & 15 : b[8 + i - 16] >> 4) | (b[4 + i / 8] >> i % 8 & 1) * 16) + half(b + 2);
    case 8: return half(b) * (int8_t)b[2 + i];
    case 12:
    case 13: {
        const uint8_t *s = b + 4, *q = b + (type == 12 ? 16 : 48);
        int scale = j < 4 ? s[j] % 64 : s[j + 4] % 16 + s[j - 4] / 64 * 16;
        int min = j < 4 ? s[j + 4] % 64 : s[j + 4] / 16 + s[j] / 64 * 16;
        code = (j % 2 ? q[j / 2 * 32 + k] >> 4 : q[j / 2 * 32 + k] & 15) + (type == 13 ? (b[16 + k] >> j & 1) * 16 : 0);
        return half(b) * scale * code - half(b + 2) * min;
    }
    case 14: {
        int h = i / 128, t = j % 4;
        int low = b[64 * h + k + t % 2 * 32], high = b[128 + 32 * h + k] >> 2 * t & 3;
        code = (t < 2 ? low & 15 : low >> 4) | high << 4;
        return half(b + 208) * (int8_t)b[192 + i / 16] * (code - 32);
    }
    default:
        code = i < 16 ? b[1 + i] & 15 : b[1 + i - 16] >> 4;
        return ldexp(e2m1[code & 7], b[0] - 127) * (code & 8 ? -1 : 1);
    }
}

static void random_block(int type, int bytes, uint8_t *b)
{
    for (int i = 0; i < bytes; i++)
        b[i] = (uint8_t)rand();
    uint16_t d = random_half(), m = random_half();
    if (type == 39)
        b[0] = (uint8_t)(120 + rand() % 16);
    else
        memcpy(b + (type == 14 ? 208 : 0), &d, sizeof d);
    if (type == 3 || type == 7 || type == 12 || type == 13)
        memcpy(b + 2, &m, sizeof m);
}

static void test_blocks(void **state)
{
    static const struct { int type, block, bytes; } types[] = {
        {2, 32, 18}, {3, 32, 20}, {6, 32, 22}, {7, 32, 24}, {8, 32, 34}, {12, 256, 144}, {13, 256, 176}, {14, 256, 210},
        {39, 32, 17}};
    enum { ROWS = 5, COLUMNS = 512 };
    (void)state;
    srand(3);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const int block = types[t].block, bytes = types[t].bytes, count = ROWS * COLUMNS / block;
        const int sizes[2] = {COLUMNS, ROWS};
        static uint8_t data[ROWS * COLUMNS / 32 * 34];
        static float values[ROWS * COLUMNS], kept[COLUMNS];
        static unsigned char coded[COLUMNS * 2];
        struct gguf_file g = {{0}};
        struct source_reading reading = {0};
        struct err err = {0};
        struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
        struct gguf read = {0};
        for (int i = 0; i < count; i++)
            random_block(types[t].type, bytes, data + i * bytes);
        gguf_put_tensor(&g, "t", (uint32_t)types[t].type, 2, sizes, data, (size_t)(count * bytes));
        gguf_write(&g, unit_path(folder, "t.gguf"));
        must(checkpoint_add_opened(cp, unit_path(folder, "t.gguf"), "t.gguf", &err), &err);
        if (gguf_read(&read, cp, 0, &err) || checkpoint_finish(cp, &err))
            fail_msg("%s", err.text);
        const struct source_tensor *tensor = &cp->tensors[0];
        assert_int_equal(tensor->coding->read(cp, tensor, COLUMNS, 3 * COLUMNS, &reading, values, &err), 0);
        for (int i = 0; i < 3 * COLUMNS; i++)
            if (values[i] != (float)block_weight(types[t].type, data + (i + COLUMNS) / block * bytes, i % block))
                fail_msg("%s: value %d is %g", tensor->dtype_name, i, (double)values[i]);
        if (tensor->coding->read_coded) {
            assert_int_equal(tensor->coding->read_coded(cp, tensor, 2 * COLUMNS, COLUMNS, &reading, coded, &err), 0);
            format_coded_values(tensor->coding->format, COLUMNS, coded, kept);
            assert_memory_equal(kept, values + COLUMNS, sizeof kept);
        }
        source_reading_free(&reading);
        gguf_free(&read);
        checkpoint_close(&cp);
    }
}

/* ---- damaged files ---- */

static int read_bytes(const struct text *file, struct err *err)
{
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
    struct gguf read = {0};
    FILE *opened = tmpfile();
    if (file->length)
        assert_int_equal(fwrite(file->data, 1, file->length, opened), file->length);
    fflush(opened);
    struct source_file *source = checkpoint_add_file(cp, "v.gguf", NULL);
    source->fd = dup(fileno(opened));
    source->bytes = file->length;
    int rc = gguf_read(&read, cp, 0, err) || checkpoint_finish(cp, err) ? -1 : 0;
    gguf_free(&read);
    checkpoint_close(&cp);
    fclose(opened);
    return rc;
}

static struct text small_file(uint32_t version)
{
    static const int sizes[2] = {32, 2};
    static const char data[68];
    struct gguf_file g = {{0}};
    gguf_put_text(&g, "general.architecture", "llama");
    gguf_put_int(&g, "llama.block_count", 1);
    gguf_put_tensor(&g, "first", 8, 2, sizes, data, 68);
    gguf_put_tensor(&g, "second", 8, 2, sizes, data, 68);
    return gguf_join(&g, version);
}

static void expect_bad(struct text *file, const char *part)
{
    struct err err = {0};
    assert_int_equal(read_bytes(file, &err), -1);
    assert_int_equal(err.code, ERR_INPUT);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    text_free(file);
}

static size_t find_bytes(const struct text *file, const char *what)
{
    char *at = memmem(file->data, file->length, what, strlen(what));
    assert_non_null(at);
    return (size_t)(at - file->data) + strlen(what);
}

static void test_damaged(void **state)
{
    struct err err = {0};
    (void)state;
    struct text file = small_file(2);
    assert_int_equal(read_bytes(&file, &err), 0);
    for (size_t cut = 0; cut < file.length; cut++) {            /* truncated anywhere */
        struct text part = {.data = file.data, .length = cut};
        struct err cut_err = {0};
        assert_int_equal(read_bytes(&part, &cut_err), -1);
    }
    text_free(&file);
    file = small_file(1);
    expect_bad(&file, "has GGUF version 1; versions 2 and 3 are supported");
    file = small_file(3u << 24);
    expect_bad(&file, "big-endian");
    file = small_file(3);
    file.data[0] = 'X';
    expect_bad(&file, "does not begin with \"GGUF\"");
    file = small_file(3);
    memset(file.data + 16, 0xFF, 8);
    expect_bad(&file, "entries of metadata");
    file = small_file(3);
    memset(file.data + 8, 0xFF, 8);
    expect_bad(&file, "tensors, more than the limit of");
    file = small_file(3);
    memset(file.data + 24, 0x7F, 8);                            /* length of the first key */
    expect_bad(&file, "the header is longer than");
    file = small_file(3);
    file.data[find_bytes(&file, "llama.block_count")] = 99;
    expect_bad(&file, "llama.block_count has the unknown type 99");
    file = small_file(3);
    file.data[find_bytes(&file, "first")] = 5;
    expect_bad(&file, "tensor first: has 5 dimensions");
    file = small_file(3);
    file.data[find_bytes(&file, "first") + 4] = 33;             /* rows of 33 */
    expect_bad(&file, "Q8_0 stores blocks of 32");
    file = small_file(3);
    memset(file.data + find_bytes(&file, "first") + 4, 0x7F, 16);
    expect_bad(&file, "tensor first: has a dimension of size");
    file = small_file(3);
    file.data[find_bytes(&file, "first") + 20] = 99;            /* the type */
    expect_bad(&file, "tensor first: has the unknown type 99; supported are F32");
    file = small_file(3);
    file.data[find_bytes(&file, "second") + 24] = 97;           /* the offset: 96 */
    expect_bad(&file, "has offset 97, which is not a multiple of the alignment 32");
    file = small_file(3);
    file.data[find_bytes(&file, "second") + 24] = 64;
    expect_bad(&file, "its data begin at offset 64, but the previous tensor ends at 68");
    file = small_file(3);
    memcpy(file.data + find_bytes(&file, "second") - 6, "first\0", 6);
    expect_bad(&file, "has a name that is not UTF-8");
    file = small_file(3);
    memcpy(file.data + find_bytes(&file, "second") - 6, "token_", 6);
    file.length -= 40;
    expect_bad(&file, "truncated or damaged");
}

static void test_twice(void **state)
{
    static const int size = 1;
    static const float value = 1;
    struct gguf_file g = {{0}};
    (void)state;
    gguf_put_int(&g, "b", 1);
    gguf_put_int(&g, "a", 1);
    gguf_put_int(&g, "b", 2);
    struct text file = gguf_join(&g, 3);
    expect_bad(&file, "entry b occurs twice");
    gguf_put_tensor(&g, "t", 0, 1, &size, &value, 4);
    gguf_put_tensor(&g, "t", 0, 1, &size, &value, 4);
    file = gguf_join(&g, 3);
    expect_bad(&file, "tensor t is in v.gguf and in v.gguf");
    gguf_put_int(&g, "general.alignment", 48);
    file = gguf_join(&g, 3);
    expect_bad(&file, "general.alignment is 48; it must be a power of two");
}

/* Returns the config.json that moekit derives from the file, after adding an embedding. */
static json_t *config_of(struct gguf_file *g)
{
    static const int sizes[2] = {HIDDEN, VOCAB};
    static float zeros[HIDDEN * VOCAB];
    struct checkpoint *cp = NULL;
    struct err err = {0};
    gguf_put_tensor(g, "token_embd.weight", 0, 2, sizes, zeros, sizeof zeros);
    gguf_write(g, unit_path(folder, "config.gguf"));
    if (checkpoint_open(&cp, unit_path(folder, "config.gguf"), NULL, &err))
        fail_msg("%s", err.text);
    json_t *config = json_loads(cp->texts[TEXT_CONFIG].data, 0, NULL);
    assert_non_null(config);
    checkpoint_close(&cp);
    return config;
}

/* Returns the config of a file with these tokens and types, and padding token 4294967295, which old files write for "none". */
static json_t *config_of_tokens(const char *const *tokens, const int *types, size_t count, int eos)
{
    struct gguf_file g = {{0}};
    const char *merges[] = {"a b"};
    put_shape(&g, "llama", HEADS, KV_HEADS);
    gguf_put_text(&g, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(&g, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_texts(&g, "tokenizer.ggml.tokens", tokens, count);
    gguf_put_ints(&g, "tokenizer.ggml.token_type", types, count);
    gguf_put_texts(&g, "tokenizer.ggml.merges", merges, 0);
    gguf_put_int(&g, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    gguf_put_int(&g, "tokenizer.ggml.bos_token_id", (uint32_t)count - 1);
    gguf_put_int(&g, "tokenizer.ggml.padding_token_id", UINT32_MAX);
    return config_of(&g);
}

/* Files of Qwen3 MoE do not state whether weights of experts are renormalised. */
static void test_renormalising(void **state)
{
    static const struct { const char *arch; bool renormalises; } families[] = {
        {"qwen2moe", false}, {"qwen3moe", true}, {"olmoe", false}, {"granitemoe", true}};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof families / sizeof *families; i++) {
        const char *arch = families[i / 2].arch;
        const bool said = i % 2;                                /* a key in the file overrides the family's default */
        struct gguf_file g = {{0}};
        put_shape(&g, arch, HEADS, KV_HEADS);
        put_number(&g, arch, "expert_count", EXPERTS);
        put_number(&g, arch, "expert_used_count", 2);
        put_number(&g, arch, "expert_feed_forward_length", INNER);
        put_number(&g, arch, "expert_shared_feed_forward_length", INNER);
        if (said) {
            char key[96];
            snprintf(key, sizeof key, "%s.expert_weights_norm", arch);
            gguf_put_bool(&g, key, !families[i / 2].renormalises);
        }
        json_t *config = config_of(&g);
        assert_int_equal(json_is_true(json_object_get(config, "norm_topk_prob")), families[i / 2].renormalises != said);
        json_decref(config);
    }
}

static void check_ends(const char *const *tokens, const int *types, size_t count, int eos, const char *expected)
{
    json_t *config = config_of_tokens(tokens, types, count, eos), *wanted = json_loads(expected, 0, NULL);
    if (!json_equal(json_object_get(config, "eos_token_id"), wanted))
        fail_msg("not %s", expected);
    assert_int_equal(json_integer_value(json_object_get(config, "bos_token_id")), (int)count - 1);
    assert_int_equal(json_integer_value(json_object_get(config, "pad_token_id")), -1);
    json_decref(config);
    json_decref(wanted);
}

/* End tokens are those named by keys, and control tokens with a known text; "<|end|>" is not one if "<|return|>" and
 * "<|call|>" exist. */
static void test_ends(void **state)
{
    static const char *const qwen[] = {"a", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "</s>", "x"};
    static const char *const gpt_oss[] = {"<|return|>", "<|end|>", "<|call|>", "<|endoftext|>", "<|channel|>"};
    static const char *const phi[] = {"<|end|>", "<|return|>", "<|endoftext|>"};
    static const char *const many[] = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|endoftext|>", "<EOT>",
                                       "[EOT]", "[EOS]", "</s>", "<eos>"};
    static const int kinds[] = {1, 3, 3, 4, 1, 1}, control[] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
    (void)state;
    check_ends(qwen, kinds, 6, 3, "[3,1]");
    check_ends(qwen, kinds, 6, 1, "[1,3]");
    check_ends(qwen, kinds, 6, 5, "[5,3,1]");
    check_ends(qwen, kinds, 6, VOCAB, "[3,1]");
    check_ends(qwen, kinds, 6, -1, "[3,1]");
    check_ends(gpt_oss, control, 5, 0, "[0,2,3]");
    check_ends(phi, control, 3, 2, "[2,0,1]");
    check_ends(many, control, 10, 9, "[9,0,1,2,3,4,5,6]");
}

static void expect_no_model(struct gguf_file *g, const char *name, const char *part)
{
    struct checkpoint *cp = NULL;
    struct err err = {0};
    gguf_write(g, unit_path(folder, name));
    assert_int_equal(checkpoint_open(&cp, unit_path(folder, name), NULL, &err), -1);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_refused_models(void **state)
{
    static const int sizes[2] = {HIDDEN, VOCAB};
    static float zeros[HIDDEN * VOCAB];
    struct gguf_file g = {{0}};
    (void)state;
    put_shape(&g, "mamba", 2, 1);
    expect_no_model(&g, "m.gguf", "m.gguf: general.architecture is \"mamba\"; supported are llama");
    put_shape(&g, "llama", 2, 1);
    expect_no_model(&g, "m.gguf", "a vocabulary, but no model");
    put_shape(&g, "qwen3moe", 2, 1);
    gguf_put_tensor(&g, "token_embd.weight", 0, 2, sizes, zeros, sizeof zeros);
    expect_no_model(&g, "m.gguf", "qwen3moe.expert_count is missing");
    put_shape(&g, "llama", 2, 1);
    put_number(&g, "llama", "rope.dimension_count", 4);
    gguf_put_tensor(&g, "token_embd.weight", 0, 2, sizes, zeros, sizeof zeros);
    expect_no_model(&g, "m.gguf", "rope.dimension_count is 4; only equal values are supported");
    put_shape(&g, "llama", 2, 1);
    gguf_put_text(&g, "llama.rope.scaling.type", "longrope");
    gguf_put_tensor(&g, "token_embd.weight", 0, 2, sizes, zeros, sizeof zeros);
    expect_no_model(&g, "m.gguf", "llama.rope.scaling.type is \"longrope\"");
    put_shape(&g, "llama", 2, 1);
    put_number(&g, "llama", "split.count", 1);
    gguf_put_int(&g, "split.count", 3);
    gguf_put_tensor(&g, "token_embd.weight", 0, 2, sizes, zeros, sizeof zeros);
    expect_no_model(&g, "m.gguf", "is one of 3 files of a model, but the others are missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_olmoe), cmocka_unit_test(test_llama), cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_gpt_oss), cmocka_unit_test(test_glm), cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_twice), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_renormalising), cmocka_unit_test(test_refused_models)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
