/* Operations whose number of rows is known on the device only (cuda_context.live): live rows get the bits of a call with
 * these rows alone, and other rows are neither read nor written. And attention, whose variant depends on the context's
 * scratch. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include "kernels/cuda/cuda.h"
#include "tests/emu/kernels.h"

enum { ROWS = 7, LIVE = 3, WIDTH = 48, HEADS = 2, HEAD_DIM = 24, EXPERTS = 6, TOP_K = 2, CAPACITY = 300, VOCAB = 33,
    INNER = 20 };

/* Attention's scratch: a chunk of a row in all heads, and a row with its partial results joined so far. */
enum { CHUNKS = (CAPACITY + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK };
static const size_t PART = HEADS * (HEAD_DIM + 2) * sizeof(float), PARTS_OF_A_ROW = (CHUNKS + 1) * PART;

static uint64_t seed;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

template <typename T> static T *at(struct buffer buffer) { return (T *)(uintptr_t)buffer.address; }

/* Device memory, which the emulator filled with 0xff. Outputs keep that pattern; inputs are filled completely, also where
 * nothing may be read, because a NaN might pass through unnoticed. */
static void *taken[256];
static int taken_count;

static struct buffer take(size_t bytes)
{
    void *memory = nullptr;
    assert_true(taken_count < (int)(sizeof taken / sizeof *taken));
    assert_int_equal(dev_alloc(&memory, bytes), 0);
    taken[taken_count++] = memory;
    return buffer{(uint64_t)(uintptr_t)memory, bytes};
}

static void give_back(int kept)
{
    while (taken_count > kept)
        dev_free(taken[--taken_count]);
}

static struct buffer floats(int count, int filled)
{
    struct buffer all = take((size_t)count * sizeof(float));
    for (int i = 0; i < filled; i++)
        at<float>(all)[i] = (float)((double)draw() / 0x1p30 - 1);
    for (int i = filled; filled && i < count; i++)
        at<float>(all)[i] = 1;
    return all;
}

static struct buffer numbers(int count, int filled, uint32_t below)
{
    struct buffer all = take((size_t)count * sizeof(int32_t));
    for (int i = 0; i < filled; i++)
        at<int32_t>(all)[i] = (int32_t)(draw() % below);
    for (int i = filled; filled && i < count; i++)
        at<int32_t>(all)[i] = 0;
    return all;
}

/* An operation that computes out [ROWS][width], of 4 bytes each. It makes its own inputs, with numbers in `filled` rows
 * only. */
struct made {
    struct buffer out;
    int width;
    bool in_place;
};
typedef struct made operation(struct queue *queue, int rows, int filled);

static struct made embed(struct queue *queue, int rows, int filled)
{
    struct embed_args a = {};
    a.format = FORMAT_F32;
    a.table = floats(64 * WIDTH, 64 * WIDTH);
    a.token = numbers(ROWS, filled, VOCAB);
    a.out = floats(ROWS * WIDTH, 0);
    a.rows = rows;
    a.vocab = VOCAB;
    a.hidden = WIDTH;
    cuda_embed(queue, &a);
    return {a.out, WIDTH, false};
}

static struct made norm(struct queue *queue, int rows, int filled)
{
    struct norm_args a = {};
    a.weight = floats(WIDTH, WIDTH);
    a.in = floats(ROWS * WIDTH, filled * WIDTH);
    a.out = floats(ROWS * WIDTH, 0);
    a.epsilon = 1e-5f;
    a.rows = rows;
    a.parts = 1;
    a.width = a.in_stride = a.out_stride = WIDTH;
    cuda_norm(queue, &a);
    return {a.out, WIDTH, false};
}

static struct made clamp(struct queue *queue, int rows, int filled)
{
    struct clamp_args a = {};
    a.x = floats(ROWS * WIDTH, filled * WIDTH);
    a.limit = 0.5f;
    a.rows = rows;
    a.width = a.stride = WIDTH;
    cuda_clamp(queue, &a);
    return {a.x, WIDTH, true};
}

static struct made gather(struct queue *queue, int rows, int filled)
{
    struct gather_args a = {};
    a.in = floats(ROWS * WIDTH, filled * WIDTH);
    a.index = numbers(ROWS, filled, LIVE);
    a.out = floats(ROWS * WIDTH, 0);
    a.rows = a.count = rows;
    a.width = WIDTH;
    cuda_gather(queue, &a);
    return {a.out, WIDTH, false};
}

static struct made linear(struct queue *queue, int rows, int filled)
{
    struct linear_args a = {};
    a.format = FORMAT_F32;
    a.weight = floats(64 * WIDTH, 64 * WIDTH);
    a.in = floats(ROWS * WIDTH, filled * WIDTH);
    a.out = floats(ROWS * VOCAB, 0);
    a.rows = rows;
    a.inputs = a.in_stride = WIDTH;
    a.outputs = a.out_stride = VOCAB;
    cuda_linear(queue, &a);
    return {a.out, VOCAB, false};
}

/* Packed bf16 weights of a unit. */
static struct buffer unit_of_bf16(void)
{
    struct buffer all = take(WIDTH * UNIT_OUTPUTS * sizeof(uint16_t));
    for (int i = 0; i < WIDTH * UNIT_OUTPUTS; i++)
        at<uint16_t>(all)[i] = f32_to_bf16((float)((double)draw() / 0x1p30 - 1));
    return all;
}

/* A norm and a product of bf16 with the rows that it writes. */
static struct norm_linear_args norm_and_product(int rows, int filled, int outputs)
{
    struct norm_linear_args a = {};
    a.norm.in = floats(ROWS * WIDTH, filled * WIDTH);
    a.norm.weight = floats(WIDTH, WIDTH);
    a.norm.out = a.linear.in = floats(ROWS * WIDTH, 0);
    a.norm.epsilon = 1e-5f;
    a.norm.parts = 1;
    a.norm.width = a.norm.in_stride = a.norm.out_stride = WIDTH;
    a.linear.format = FORMAT_BF16;
    a.linear.weight = unit_of_bf16();
    a.linear.out = floats(ROWS * outputs, 0);
    a.norm.rows = a.linear.rows = rows;
    a.linear.inputs = a.linear.in_stride = WIDTH;
    a.linear.outputs = a.linear.out_stride = outputs;
    return a;
}

static struct made norm_linear(struct queue *queue, int rows, int filled)
{
    struct norm_linear_args a = norm_and_product(rows, filled, UNIT_OUTPUTS);
    cuda_norm_linear(queue, &a);
    return {a.linear.out, UNIT_OUTPUTS, false};
}

/* The rows that a norm writes for later operations. */
static struct made norm_before_linear(struct queue *queue, int rows, int filled)
{
    struct norm_linear_args a = norm_and_product(rows, filled, UNIT_OUTPUTS);
    cuda_norm_linear(queue, &a);
    return {a.norm.out, WIDTH, false};
}

static struct made rope(struct queue *queue, int rows, int filled)
{
    struct rope_args a = {};
    a.x = floats(ROWS * WIDTH, filled * WIDTH);
    a.table = floats(CAPACITY * HEAD_DIM, CAPACITY * HEAD_DIM);
    a.position = numbers(ROWS, filled, CAPACITY);
    a.rows = rows;
    a.heads = HEADS;
    a.head_dim = a.rotary = HEAD_DIM;
    a.stride = WIDTH;
    cuda_rope(queue, &a);
    return {a.x, WIDTH, true};
}

static struct made kv_write(struct queue *queue, int rows, int filled)
{
    struct kv_write_args a = {};
    a.in_k = floats(ROWS * WIDTH, filled * WIDTH);
    a.in_v = floats(ROWS * WIDTH, filled * WIDTH);
    a.k = floats(CAPACITY * WIDTH, 0);
    a.v = floats(CAPACITY * WIDTH, 0);
    a.slot = numbers(ROWS, 0, 1);
    for (int row = 0; row < ROWS; row++)
        at<int32_t>(a.slot)[row] = row;
    a.format = CACHE_F32;
    a.rows = rows;
    a.kv_heads = 1;
    a.head_dim = a.value_dim = a.stride = WIDTH;
    a.capacity = CAPACITY;
    cuda_kv_write(queue, &a);
    return {a.v, WIDTH, false};
}

static struct made attention(struct queue *queue, int rows, int filled)
{
    struct attention_args a = {};
    a.q = floats(ROWS * WIDTH, filled * WIDTH);
    a.k = floats(CAPACITY * WIDTH, CAPACITY * WIDTH);
    a.v = floats(CAPACITY * WIDTH, CAPACITY * WIDTH);
    a.prefix = numbers(ROWS, 0, 1);
    a.path_start = numbers(ROWS + 1, 0, 1);
    for (int row = 0; row < ROWS; row++)
        at<int32_t>(a.prefix)[row] = 1 + (int32_t)(draw() % (CAPACITY - 1));
    for (int row = 0; row <= ROWS; row++)
        at<int32_t>(a.path_start)[row] = 0;
    a.path = numbers(1, 0, 1);
    a.out = floats(ROWS * WIDTH, 0);
    a.scale = 0.3f;
    a.format = CACHE_F32;
    a.rows = rows;
    a.heads = a.kv_heads = HEADS;
    a.head_dim = a.value_dim = HEAD_DIM;
    a.capacity = CAPACITY;
    a.stride = WIDTH;
    cuda_attention(queue, &a);
    return {a.out, WIDTH, false};
}

static struct made score(struct queue *queue, int rows, int filled)
{
    struct route_score_args a = {};
    a.logits = floats(ROWS * EXPERTS, filled * EXPERTS);
    a.score = floats(ROWS * EXPERTS, 0);
    a.kind = ROUTER_SOFTMAX_TOPK;
    a.rows = rows;
    a.experts = EXPERTS;
    cuda_route_score(queue, &a);
    return {a.score, EXPERTS, false};
}

static struct made select(struct queue *queue, int rows, int filled)
{
    struct route_select_args a = {};
    a.score = floats(ROWS * EXPERTS, filled * EXPERTS);
    a.wanted = numbers(ROWS * TOP_K, 0, 1);
    a.expert = numbers(ROWS * TOP_K, 0, 1);
    a.weight = floats(ROWS * TOP_K, 0);
    a.kind = ROUTER_SOFTMAX_TOPK;
    a.scale = 1;
    a.rows = rows;
    a.experts = EXPERTS;
    a.top_k = TOP_K;
    cuda_route_select(queue, &a);
    return {a.weight, TOP_K, false};
}

/* A choice of experts in rows that are not live would load these experts. */
static struct made expert_ffn(struct queue *queue, int rows, int filled)
{
    struct expert_ffn_args a = {};
    int each = 2 * 32 * WIDTH + 2 * 32 * INNER;
    struct buffer weights = floats(EXPERTS * each, EXPERTS * each);
    a.in = floats(ROWS * WIDTH, filled * WIDTH);
    a.out = floats(ROWS * WIDTH, filled * WIDTH);
    a.expert = numbers(ROWS * TOP_K, 0, 1);
    for (int i = 0; i < ROWS * TOP_K; i++)
        at<int32_t>(a.expert)[i] = i < filled * TOP_K ? i % 3 : 3 + i % 3;
    a.weight = floats(ROWS * TOP_K, filled * TOP_K);
    a.table = take(EXPERTS * sizeof(uint64_t));
    for (int e = 0; e < EXPERTS; e++)       /* experts of other rows do not exist */
        at<uint64_t>(a.table)[e] = e < 3 ? weights.address + (uint64_t)(e * each) * sizeof(float) : 0;
    a.inner = floats(ROWS * TOP_K * INNER, 0);
    a.partial = floats(ROWS * TOP_K * WIDTH, 1);
    a.group = numbers((int)expert_group_numbers(EXPERTS, ROWS * TOP_K), 0, 1);
    a.format = a.down_format = FORMAT_F32;
    a.rows = rows;
    a.slots = TOP_K;
    a.experts = EXPERTS;
    a.hidden = WIDTH;
    a.inner_width = INNER;
    cuda_expert_ffn(queue, &a);
    return {a.out, WIDTH, true};
}

/* The same with norm, router, scores and choice in one operation. Rows that are not live choose no experts. */
static struct made routed_ffn(struct queue *queue, int rows, int filled)
{
    struct routed_ffn_args a = {};
    int each = 2 * 32 * WIDTH + 2 * 32 * INNER;
    struct buffer weights = floats(EXPERTS * each, EXPERTS * each);
    a.logits = norm_and_product(rows, filled, EXPERTS);
    a.score.logits = a.logits.linear.out;
    a.score.score = a.select.score = floats(ROWS * EXPERTS, 0);
    a.score.kind = a.select.kind = ROUTER_SOFTMAX_TOPK;
    a.score.rows = a.select.rows = a.ffn.rows = rows;
    a.score.experts = a.select.experts = a.ffn.experts = EXPERTS;
    a.select.wanted = numbers(ROWS * TOP_K, 0, 1);
    a.select.expert = a.ffn.expert = numbers(ROWS * TOP_K, 0, 1);
    a.select.weight = a.ffn.weight = floats(ROWS * TOP_K, 0);
    a.select.scale = 1;
    a.select.top_k = a.ffn.slots = TOP_K;
    a.ffn.in = a.logits.linear.in;
    a.ffn.out = floats(ROWS * WIDTH, filled * WIDTH);
    a.ffn.table = take(EXPERTS * sizeof(uint64_t));
    for (int e = 0; e < EXPERTS; e++)
        at<uint64_t>(a.ffn.table)[e] = weights.address + (uint64_t)(e * each) * sizeof(float);
    a.ffn.inner = floats(ROWS * TOP_K * INNER, 0);
    a.ffn.partial = floats(ROWS * TOP_K * WIDTH, 1);
    a.ffn.group = numbers((int)expert_group_numbers(EXPERTS, ROWS * TOP_K), 0, 1);
    a.ffn.format = a.ffn.down_format = FORMAT_F32;
    a.ffn.hidden = WIDTH;
    a.ffn.inner_width = INNER;
    cuda_routed_ffn(queue, &a);
    return {a.ffn.out, WIDTH, true};
}

static struct made activate(struct queue *queue, int rows, int filled)
{
    struct activate_args a = {};
    a.in = floats(ROWS * WIDTH, filled * WIDTH);
    a.add = floats(ROWS * WIDTH, filled * WIDTH);
    a.out = floats(ROWS * WIDTH, 0);
    a.activation = ACTIVATION_GELU;
    a.rows = rows;
    a.width = WIDTH;
    cuda_activate(queue, &a);
    return {a.out, WIDTH, false};
}

static struct made gated(struct queue *queue, int rows, int filled)
{
    struct gated_args a = {};
    a.in = floats(ROWS * WIDTH, filled * WIDTH);
    a.gate = floats(ROWS * WIDTH, filled * WIDTH);
    a.out = floats(ROWS * WIDTH, 0);
    a.rows = rows;
    a.parts = 1;
    a.width = a.in_stride = a.gate_stride = a.out_stride = WIDTH;
    cuda_gated(queue, &a);
    return {a.out, WIDTH, false};
}

/* A layer with a recurrent state, over a chain of rows from the beginning of a text: its three operations.
 * What they pass on is filled, because a NaN might equal an output that was not written. */
template <int KIND> static struct made recurrence(struct queue *queue, int rows, int filled)
{
    enum { KEYS = 6, VALUES = 5, INPUTS = 2 * KEYS + VALUES, DECAYS = KIND == RECURRENCE_SCAN ? VALUES : 1 };
    struct short_conv_args conv = {};
    struct delta_keys_args keys = {};
    struct delta_args rule = {};
    conv.in = floats(ROWS * INPUTS, filled * INPUTS);
    conv.weight = floats(2 * INPUTS, 2 * INPUTS);
    conv.cache = floats(ROWS * INPUTS, 1);
    keys.x = rule.q = conv.out = floats(ROWS * INPUTS, 1);
    rule.v = buffer_part(rule.q, 2 * KEYS * sizeof(float), rule.q.bytes - 2 * KEYS * sizeof(float));
    keys.rate = floats(ROWS, filled);
    keys.step = floats(ROWS * DECAYS, filled * DECAYS);
    keys.step_bias = floats(DECAYS, DECAYS);
    keys.neg_a = rule.neg_a = floats(KEYS * VALUES, KEYS * VALUES);
    rule.skip = floats(VALUES, VALUES);
    keys.key = rule.key = floats(ROWS * KEYS, 1);
    keys.decay = rule.decay = floats(ROWS * DECAYS, 1);
    keys.beta = rule.beta = floats(ROWS, 1);
    rule.correction = floats(ROWS * VALUES, 1);
    conv.slot = keys.slot = numbers(ROWS, ROWS, 1);
    conv.before = keys.parent = numbers(ROWS, ROWS, 1);
    rule.own = numbers(ROWS, ROWS, 1);
    rule.before = numbers(ROWS, ROWS, 1);
    rule.path_start = numbers(ROWS + 1, ROWS + 1, 1);
    rule.path = numbers(ROWS * ROWS, ROWS * ROWS, 1);
    for (int r = 0, used = 0; r < ROWS; r++) {
        at<int32_t>(conv.slot)[r] = r;
        at<int32_t>(conv.before)[r] = r - 1;
        at<int32_t>(rule.own)[r] = DELTA_ZERO;
        at<int32_t>(rule.before)[r] = DELTA_KEPT;
        for (int i = 0; i <= r; i++)
            at<int32_t>(rule.path)[used++] = i;
        at<int32_t>(rule.path_start)[r + 1] = used;
    }
    rule.out = take(ROWS * VALUES * sizeof(float));
    keys.kind = rule.kind = (enum recurrence)KIND;
    conv.rows = keys.rows = rule.rows = rows;
    conv.taps = 2;
    conv.width = conv.in_stride = conv.out_stride = keys.stride = rule.stride = rule.value_stride = INPUTS;
    keys.gate_stride = keys.key_heads = keys.value_heads = rule.key_heads = rule.value_heads = 1;
    keys.step_stride = DECAYS;
    keys.key_dim = rule.key_dim = KEYS;
    keys.value_dim = rule.value_dim = VALUES;
    cuda_short_conv(queue, &conv);
    cuda_delta_keys(queue, &keys);
    cuda_delta(queue, &rule);
    return {rule.out, VALUES, false};
}

static struct made log_add(struct queue *queue, int rows, int filled)
{
    struct log_add_args a = {};
    a.in = floats(ROWS * WIDTH, filled * WIDTH);
    a.add = floats(ROWS * WIDTH, filled * WIDTH);
    a.out = floats(ROWS * WIDTH, 0);
    a.rows = rows;
    a.width = WIDTH;
    cuda_log_add(queue, &a);
    return {a.out, WIDTH, false};
}

static struct made blend(struct queue *queue, int rows, int filled)
{
    struct blend_args a = {};
    a.in = floats(ROWS * WIDTH, filled * WIDTH);
    a.part = floats(ROWS * TOP_K * WIDTH, filled * TOP_K * WIDTH);
    a.weight = floats(ROWS * TOP_K, filled * TOP_K);
    a.out = floats(ROWS * WIDTH, 0);
    a.rows = rows;
    a.slots = TOP_K;
    a.width = WIDTH;
    cuda_blend(queue, &a);
    return {a.out, WIDTH, false};
}

static struct made blend_weights(struct queue *queue, int rows, int filled)
{
    struct blend_weights_args a = {};
    a.logits = floats(ROWS * TOP_K, filled * TOP_K);
    a.weight = floats(ROWS * TOP_K, 0);
    a.rule = BLEND_CONTRAST;
    a.rows = rows;
    a.slots = TOP_K;
    cuda_blend_weights(queue, &a);
    return {a.weight, TOP_K, false};
}

static struct made top(struct queue *queue, int rows, int filled)
{
    struct top_args a = {};
    a.logits = floats(ROWS * VOCAB, filled * VOCAB);
    a.token = numbers(ROWS * TOP_K, 0, 1);
    a.logp = floats(ROWS * TOP_K, 0);
    a.scratch = take(top_scratch_bytes(ROWS, VOCAB, TOP_K));
    a.rows = rows;
    a.vocab = VOCAB;
    a.k = TOP_K;
    cuda_top(queue, &a);
    return {a.logp, TOP_K, false};
}

static struct made choose(struct queue *queue, int rows, int filled)
{
    struct choose_args a = {};
    a.logits = floats(ROWS * VOCAB, filled * VOCAB);
    a.position = numbers(ROWS, filled, 1000);
    a.choice = numbers(ROWS, 0, 1);
    a.filter.temperature = 0.7;
    a.filter.top_p = 0.9;
    a.rows = rows;
    a.vocab = VOCAB;
    cuda_choose(queue, &a);
    return {a.choice, 1, false};
}

/* Blocks of an activation as integers belong to rows. */
static struct made quantise(struct queue *queue, int rows, int filled)
{
    struct buffer in = floats(ROWS * WIDTH, filled * WIDTH);
    int width = (int)(quantised_blocks(WIDTH) * (int64_t)sizeof(struct quantised) / 4);
    struct buffer out = take((size_t)ROWS * (size_t)width * 4);
    cuda_quantise(queue, in, WIDTH, rows, 1, WIDTH, (struct buffer){0, 0}, out);
    return {out, width, false};
}

static void live_rows_alone_are_treated(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        operation *run;
        int rows, live;                 /* 0: ROWS and LIVE */
    } operations[] = {
        {"embed", embed}, {"norm", norm}, {"clamp", clamp}, {"gather", gather}, {"linear", linear}, {"rope", rope},
        {"kv_write", kv_write}, {"attention", attention}, {"route_score", score}, {"route_select", select},
        {"expert_ffn", expert_ffn}, {"routed_ffn", routed_ffn}, {"activate", activate}, {"gated", gated}, {"log_add", log_add},
        {"blend", blend}, {"delta", recurrence<RECURRENCE_DELTA>}, {"scan", recurrence<RECURRENCE_SCAN>},
        {"blend_weights", blend_weights}, {"top", top}, {"choose", choose}, {"quantise", quantise},
        {"attention, some rows at a time", attention}, {"attention, few chunks at a time", attention},
        {"attention, rows share chunks", attention}, {"norm_linear", norm_linear}, {"norm_linear, few rows", norm_linear, 2, 1},
        {"norm before linear", norm_before_linear, 2, 1}, {"routed_ffn, few rows", routed_ffn, 2, 1},
    };
    struct buffer live = numbers(1, 0, 1), scratch = take(1 << 20);
    struct buffer some = take(2 * PARTS_OF_A_ROW), few_chunks = take(3 * PART);
    struct buffer tickets = take(CONTEXT_TICKETS * sizeof(unsigned));
    memset(at<char>(tickets), 0, tickets.bytes);
    const int kept = taken_count;
    int schedule = 0;
    for (const auto &op : operations) {
        const int rows = op.rows ? op.rows : ROWS, alive = op.live ? op.live : LIVE;
        *at<int32_t>(live) = alive;
        struct cuda_context known = {}, device = {};
        struct queue few = {&known}, many = {&device};
        device.live = at<int32_t>(live);
        known.tickets = device.tickets = at<unsigned>(tickets);
        known.scratch = scratch;
        device.scratch = strstr(op.name, "some rows") ? some : strstr(op.name, "few chunks") ? few_chunks : scratch;
        device.blocks = strstr(op.name, "rows share") ? 1 : 0;
        emu_options.schedule = schedule % 3 == 0 ? EMU_FORWARD : schedule % 3 == 1 ? EMU_REVERSE : EMU_RANDOM;
        emu_options.seed = (uint64_t)++schedule;
        seed = 7;
        struct made want = op.run(&few, alive, alive);
        seed = 7;
        struct made got = op.run(&many, rows, alive);
        if (memcmp(at<char>(got.out), at<char>(want.out), (size_t)(alive * want.width) * 4))
            fail_msg("%s: other bits", op.name);
        for (int i = alive * got.width; i < ROWS * got.width; i++)
            if (at<uint32_t>(got.out)[i] != (got.in_place ? float_to_bits(1) : 0xffffffffu))
                fail_msg("%s: row %d was written", op.name, i / got.width);
        give_back(kept);
    }
    give_back(0);
}

/* As many rows as fit the scratch are processed at a time, or else as many chunks of one row, exact to the byte. The bits
 * are the same. */
static void attention_keeps_to_its_scratch(void **state)
{
    (void)state;
    const int kept = taken_count;
    struct cuda_context all = {}, some = {};
    struct queue whole = {&all}, pieces = {&some};
    all.scratch = take(ROWS * PARTS_OF_A_ROW);
    seed = 7;
    struct made want = attention(&whole, ROWS, ROWS);
    const size_t parts[] = {2, 3, 4, CHUNKS, CHUNKS + 1, 3 * (CHUNKS + 1), ROWS * (CHUNKS + 1)};
    for (size_t fit : parts)
        for (size_t more = 0; more < PART; more += PART - sizeof(float)) {
            some.scratch = take(fit * PART + more + sizeof(float));
            some.scratch.bytes -= sizeof(float);
            some.blocks = more ? 1 : 0;
            emu_options.schedule = more ? EMU_REVERSE : EMU_RANDOM;
            seed = 7;
            struct made got = attention(&pieces, ROWS, ROWS);
            assert_memory_equal(at<char>(got.out), at<char>(want.out), (size_t)(ROWS * want.width) * 4);
            size_t written = 0, last = 0;
            for (size_t i = 0; i <= some.scratch.bytes / 4; i++)
                if (at<uint32_t>(some.scratch)[i] != 0xffffffffu) {
                    written++;
                    last = i;
                }
            assert_true(written > 0 && last * 4 < fit * PART);
        }
    give_back(kept);
}

/* With many kv heads a row has fewer blocks than chunks, and each block processes several: the bits equal those of each head
 * alone, with a block per chunk. */
static void blocks_take_chunk_after_chunk(void **state)
{
    (void)state;
    enum { MANY = 64, DIM = 8, LENGTH = 700 };
    const int kept = taken_count;
    struct cuda_context context = {};
    struct queue queue = {&context};
    struct attention_args a = {};
    seed = 11;
    context.scratch = take(1 << 20);
    a.q = floats(MANY * DIM, MANY * DIM);
    a.k = floats(MANY * LENGTH * DIM, MANY * LENGTH * DIM);
    a.v = floats(MANY * LENGTH * DIM, MANY * LENGTH * DIM);
    a.prefix = numbers(1, 1, 1);
    a.path_start = numbers(2, 2, 1);
    a.path = numbers(1, 0, 1);
    *at<int32_t>(a.prefix) = LENGTH;
    a.out = floats(MANY * DIM, 0);
    a.scale = 0.3f;
    a.format = CACHE_F32;
    a.rows = 1;
    a.heads = a.kv_heads = MANY;
    a.head_dim = a.value_dim = DIM;
    a.capacity = LENGTH;
    a.stride = MANY * DIM;
    cuda_attention(&queue, &a);
    for (int head = 0; head < MANY; head += 21) {
        struct attention_args one = a;
        const uint64_t cache = (uint64_t)(head * LENGTH * DIM) * sizeof(float), own = (uint64_t)(head * DIM) * sizeof(float);
        one.q.address += own;
        one.k.address += cache;
        one.v.address += cache;
        one.out = floats(DIM, 0);
        one.heads = one.kv_heads = 1;
        cuda_attention(&queue, &one);
        assert_memory_equal(at<float>(a.out) + head * DIM, at<float>(one.out), DIM * sizeof(float));
    }
    give_back(kept);
}

/* The nodes of a tree, each of which sees itself after PREFIX positions: if the device has enough blocks, up to eight nodes
 * share one pass over the chunks before the draft. */
static void nodes_share_the_chunks_before_them(void **state)
{
    (void)state;
    enum { NODES = 13, PREFIX = 250, WHOLE = PREFIX / ATTENTION_CHUNK, NUMBER = 2 };
    const int kept = taken_count;
    struct cuda_context context = {};
    struct queue queue = {&context};
    struct attention_args a = {};
    struct buffer out[4];
    size_t copied[4], chunk = 2 * HEADS * HEAD_DIM * NUMBER;
    seed = 13;
    context.scratch = take(1 << 20);
    a.q = floats(NODES * WIDTH, NODES * WIDTH);
    a.k = numbers(CAPACITY * WIDTH * NUMBER / 4, CAPACITY * WIDTH * NUMBER / 4, 0x3c003c00);
    a.v = numbers(CAPACITY * WIDTH * NUMBER / 4, CAPACITY * WIDTH * NUMBER / 4, 0x3c003c00);
    a.prefix = numbers(NODES, 0, 1);
    a.path_start = numbers(NODES + 1, 0, 1);
    a.path = numbers(NODES, 0, 1);
    for (int node = 0; node < NODES; node++) {
        at<int32_t>(a.prefix)[node] = PREFIX;
        at<int32_t>(a.path_start)[node] = node;
        at<int32_t>(a.path)[node] = PREFIX + node;
    }
    at<int32_t>(a.path_start)[NODES] = NODES;
    a.scale = 0.3f;
    a.format = CACHE_F16;
    a.rows = NODES;
    a.heads = a.kv_heads = HEADS;
    a.head_dim = a.value_dim = HEAD_DIM;
    a.capacity = CAPACITY;
    a.stride = WIDTH;
    for (int way = 0; way < 4; way++) {                  /* off; blocks for all rows; for two at a time; for eight at a time */
        context.off = way == 0 ? CUDA_TREE : 0;
        context.blocks = way == 1 ? 1000 : way == 2 ? 7 * HEADS * (WHOLE + 2) : 1;
        a.out = out[way] = floats(NODES * WIDTH, 0);
        copied[way] = emu_copied();
        cuda_attention(&queue, &a);
        copied[way] = emu_copied() - copied[way];
        assert_memory_equal(at<char>(a.out), at<char>(out[0]), a.out.bytes);
    }
    const size_t own = (size_t)NODES * (PREFIX % ATTENTION_CHUNK + 1) * chunk;
    assert_int_equal(copied[0], own + (size_t)NODES * WHOLE * ATTENTION_CHUNK * chunk);
    assert_int_equal(copied[1], copied[0]);
    assert_int_equal(copied[2], own + 7 * WHOLE * ATTENTION_CHUNK * chunk);
    assert_int_equal(copied[3], own + 2 * WHOLE * ATTENTION_CHUNK * chunk);
    give_back(kept);
}

/* More experts than the grouping block has threads, and more pairs than it processes at a time: the result equals that of
 * merging equal experts. */
static void many_experts_are_grouped(void **state)
{
    (void)state;
    enum { MANY = 1008, DISTINCT = 24, SLOTS = 8, PAIRS = 40 * SLOTS, EACH = 2 * 32 * WIDTH + 2 * 32 * INNER };
    const int kept = taken_count;
    struct cuda_context context = {};
    struct queue queue = {&context};
    struct buffer out[2], weights = floats(DISTINCT * EACH, DISTINCT * EACH);
    for (int way = 0; way < 2; way++) {
        struct expert_ffn_args a = {};
        seed = 7;
        a.experts = way ? MANY : DISTINCT;
        a.in = floats(PAIRS / SLOTS * WIDTH, PAIRS / SLOTS * WIDTH);
        a.out = out[way] = floats(PAIRS / SLOTS * WIDTH, PAIRS / SLOTS * WIDTH);
        a.weight = floats(PAIRS, PAIRS);
        a.expert = numbers(PAIRS, 0, 1);
        for (int i = 0; i < PAIRS; i++)
            at<int32_t>(a.expert)[i] = i % 11 ? (i / SLOTS * 113 + i % SLOTS * 25) % a.experts : -1;
        a.table = take((size_t)a.experts * sizeof(uint64_t));
        for (int e = 0; e < a.experts; e++)
            at<uint64_t>(a.table)[e] = weights.address + (uint64_t)(e % DISTINCT * EACH) * sizeof(float);
        a.inner = floats(PAIRS * INNER, 0);
        a.partial = floats(PAIRS * WIDTH, 0);
        a.group = numbers((int)expert_group_numbers((size_t)a.experts, PAIRS), 0, 1);
        a.format = a.down_format = FORMAT_F32;
        a.rows = PAIRS / SLOTS;
        a.slots = SLOTS;
        a.hidden = WIDTH;
        a.inner_width = INNER;
        cuda_expert_ffn(&queue, &a);
    }
    assert_memory_equal(at<char>(out[1]), at<char>(out[0]), out[0].bytes);
    give_back(kept);
}

/* The launches of a layer, listed in docs/gpu.md: these and one for qkv (tests/kernel/test_attention.c) are 8. With a part
 * turned off there are more, and the bits are the same. */
static void a_layer_is_eight_launches(void **state)
{
    (void)state;
    static operation *const layer[] = {norm_linear, attention, linear, routed_ffn};
    static const struct { unsigned off; int more; } ways[] = {
        {0, 0}, {CUDA_SUM, 1}, {CUDA_LOGITS, 1}, {CUDA_NORM, 2}, {CUDA_ROUTE, 3}, {CUDA_FEW, 3},
        {CUDA_SUM | CUDA_LOGITS | CUDA_NORM | CUDA_ROUTE, 6}};
    enum { OPERATIONS = sizeof layer / sizeof *layer };
    const int kept = taken_count;
    struct cuda_context context = {};
    struct queue queue = {&context};
    struct buffer tickets = take(CONTEXT_TICKETS * sizeof(unsigned));
    struct made want[OPERATIONS];
    memset(at<char>(tickets), 0, tickets.bytes);
    context.scratch = take(1 << 20);
    context.tickets = at<unsigned>(tickets);
    for (const auto &way : ways) {
        context.off = way.off;
        seed = 17;
        const int before = emu_launches();
        for (int i = 0; i < OPERATIONS; i++) {
            const struct made got = layer[i](&queue, 1, 1);
            want[i] = way.off ? want[i] : got;
            assert_memory_equal(at<char>(got.out), at<char>(want[i].out), (size_t)got.width * 4);
        }
        assert_int_equal(emu_launches() - before, 7 + way.more);
    }
    give_back(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_rows_alone_are_treated),
        cmocka_unit_test(attention_keeps_to_its_scratch),
        cmocka_unit_test(blocks_take_chunk_after_chunk),
        cmocka_unit_test(nodes_share_the_chunks_before_them),
        cmocka_unit_test(many_experts_are_grouped),
        cmocka_unit_test(a_layer_is_eight_launches),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
