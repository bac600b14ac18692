/* Forwards that leave parts out: a skipped half of a layer contributes nothing; fewer experts, or experts of another file,
 * give the output of a model that has these; rows that resume after a stopped forward have the bits of rows that never
 * stopped. Each is compared with a model file made that way. */
#include "tests/unit/unit.h"

#include <unistd.h>

#include "common/model/model_write.h"
#include "tests/unit/rig.h"

enum { LAYERS = 5, BEFORE = 30, NODES = 20, ROOM = 400 };

/* Returns a random shape of five layers; with experts if requested. */
static struct hparams five_layers(uint64_t *seed, bool experts)
{
    for (;; ++*seed) {
        struct chance chance = {*seed};
        struct hparams shape = tiny_shape(&chance);
        if (experts && (!hparams_moe_layers(&shape) || shape.router.top_k < 2))
            continue;
        shape.predictors = 0;
        for (int n = shape.layers; n < LAYERS; n++)
            shape.layer[n] = shape.layer[n % shape.layers];
        shape.layers = LAYERS;
        return shape;
    }
}

/* Writes the same weights whatever the shape's top_k; routed experts in a format of their own, with the digest of `source`. */
static void write_model(const char *path, const struct hparams *shape, enum weight_format format, enum weight_format experts,
                        uint64_t seed, int source)
{
    struct model_facts facts = {.shape = *shape, .name = "tiny", .producer = "test", .synthetic = true, .seed = seed};
    struct layout layout = {0};
    struct model_writer *writer = NULL;
    struct thread_pool *pool = NULL;
    struct tiny_maker maker = {seed};
    struct err err = {0};
    must(hparams_check(shape, &err) || layout_make(&layout, shape, &err) || thread_pool_new(&pool, 1, &err), &err);
    for (int i = 0; i < layout.count; i++)
        if (layout.tensors[i].kind != TENSOR_VECTOR)
            layout.tensors[i].format = layout.tensors[i].role == ROLE_EXPERTS ? experts : format;
    must(model_writer_open(&writer, path, &layout, &err), &err);
    must(model_writer_fill(writer, &(struct block_maker){tiny_make, &maker}, pool, NULL, &facts.source, &err), &err);
    facts.source.bytes[0] = (unsigned char)source;
    must(model_writer_commit(&writer, &facts, &err), &err);
    layout_free(&layout);
    thread_pool_free(&pool);
}

/* Zeroes a tensor of `path` so that its output is zero: all of it, or (down) the last part of each of its blocks. */
static void silence(const char *path, const char *name, bool down)
{
    struct err err = {0};
    struct model *model = NULL;
    must(model_open(&model, path, &err), &err);
    const struct tensor *found = NULL;
    for (int i = 0; i < model_tensor_count(model); i++)
        if (!strcmp(model_tensor_at(model, i)->name, name))
            found = model_tensor_at(model, i);
    if (found) {
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        for (int block = 0; block < found->count; block++) {
            uint64_t size = found->count > 1 ? found->stride : found->bytes, skip = down ? tensor_last_offset(found) : 0;
            assert_int_equal(fseek(file, (long)(found->offset + (uint64_t)block * found->stride + skip), SEEK_SET), 0);
            for (uint64_t i = skip; i < size; i++)
                fputc(0, file);
        }
        fclose(file);
    }
    model_close(&model);
}

static void silence_layer(const char *path, int n, bool attention)
{
    static const struct { const char *name; bool attention, down; } all[] = {
        {"layers.%d.attention.out", true, false}, {"layers.%d.attention.out_bias", true, false},
        {"layers.%d.dense", false, true}, {"layers.%d.experts", false, true}, {"layers.%d.shared", false, true},
        {"layers.%d.experts_down_bias", false, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].attention == attention) {
            char name[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(name, sizeof name, all[i].name, n);
#pragma GCC diagnostic pop
            silence(path, name, all[i].down);
        }
}

struct passage {
    int32_t before[BEFORE], token[NODES], parent[NODES];
};

static struct passage random_text(uint64_t seed, int vocab)
{
    struct chance chance = {seed + 99};
    struct passage text;
    for (int i = 0; i < BEFORE; i++)
        text.before[i] = chance_range(&chance, 0, vocab - 1);
    for (int i = 0; i < NODES; i++) {
        text.token[i] = chance_range(&chance, 0, vocab - 1);
        text.parent[i] = i ? chance_range(&chance, i < 4 ? 0 : i - 4, i - 1) : -1;
    }
    return text;
}

static void open_rig(struct rig *rig, const char *path, uint64_t seed, const struct passage *text)
{
    static const char *const devices[] = {"host", "ref"};
    struct forward out;
    rig_open(rig, path, device_name(devices[seed % 2]));
    bool narrow = device_info(rig->device)->narrow_cache;
    const uint64_t formats = device_info(rig->device)->q8_cache ? CACHE_FORMATS : CACHE_Q8;
    rig_engine(rig, (struct engine_setup){.max_rows = 64, .max_logit_rows = 64,
                                          .cache = narrow ? (enum cache_format)(seed / 2 % formats) : CACHE_F32}, ROOM);
    must(engine_prompt(rig->engine, rig->sequence, text->before, BEFORE, NULL, NULL, NULL, &out, &rig->err), &rig->err);
}

static float *copied(const float *from, size_t count)
{
    float *copy = malloc(count * sizeof *copy);
    assert_non_null(copy);
    return memcpy(copy, from, count * sizeof *copy);
}

/* Computes logits of all nodes of the tree in two forwards. */
static float *tree_logits(struct rig *rig, const struct passage *text, const struct forward_part *part)
{
    size_t vocab = (size_t)engine_hparams(rig->engine)->vocab;
    float *logits = calloc(NODES * vocab, sizeof *logits);
    for (int first = 0, rows = 7; first < NODES; first += rows, rows = NODES - 7) {
        struct forward out;
        struct batch batch = {.rows = rows, .token = text->token + first, .parent = text->parent + first, .logit_rows = rows,
                              .part = part};
        must(engine_forward(rig->engine, rig->sequence, &batch, &out, &rig->err), &rig->err);
        memcpy(logits + (size_t)first * vocab, out.logits, (size_t)rows * vocab * sizeof *logits);
    }
    sequence_rollback(rig->sequence);
    return logits;
}

/* Frees both. */
static void same_logits(float *got, float *want, const struct rig *rig, const char *what)
{
    size_t count = NODES * (size_t)engine_hparams(rig->engine)->vocab;
    for (size_t i = 0; i < count; i++)
        if (memcmp(got + i, want + i, sizeof *got))
            fail_msg("%s: logit %zu is %a, not %a", what, i, (double)got[i], (double)want[i]);
    free(got);
    free(want);
}

/* With an empty context: what a silenced layer computes for committed tokens is seen by all layers above it. */
static void a_skipped_half_is_one_that_adds_nothing(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "a.moe"), *mute = unit_path(folder, "b.moe");
    for (uint64_t seed = 1, round = 0; round < (unit_brief() ? 3 : 8); seed++, round++) {
        struct hparams shape = five_layers(&seed, round > 1);
        struct passage text = random_text(seed, shape.vocab);
        uint8_t skip_attention[LAYERS], skip_ffn[LAYERS];
        struct chance chance = {seed + 7};
        struct rig rig, other;
        write_model(path, &shape, FORMAT_F32, FORMAT_F32, seed, 1);
        write_model(mute, &shape, FORMAT_F32, FORMAT_F32, seed, 1);
        for (int n = 0; n < LAYERS; n++) {
            if ((skip_attention[n] = (uint8_t)chance_range(&chance, 0, 1)))
                silence_layer(mute, n, true);
            if ((skip_ffn[n] = (uint8_t)chance_range(&chance, 0, 1)))
                silence_layer(mute, n, false);
        }
        open_rig(&rig, path, seed, &text);
        open_rig(&other, mute, seed, &text);
        must(sequence_truncate(rig.sequence, 0, &rig.err), &rig.err);
        must(sequence_truncate(other.sequence, 0, &other.err), &other.err);
        const struct forward_part part = {.skip_attention = skip_attention, .skip_ffn = skip_ffn}, none = {.top_k = 0};
        same_logits(tree_logits(&rig, &text, &none), tree_logits(&rig, &text, NULL), &rig, "nothing left out");
        same_logits(tree_logits(&rig, &text, &part), tree_logits(&other, &text, NULL), &rig, "halves left out");
        rig_close(&rig);
        rig_close(&other);
    }
    unit_remove(folder);
}

/* On keys and values that the whole model computed for a prompt: leaving out parts of the last layer changes no keys. */
static void the_committed_text_is_the_whole_models(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "a.moe"), *mute = unit_path(folder, "b.moe");
    for (uint64_t seed = 20, round = 0; round < 4; seed++, round++) {
        struct hparams shape = five_layers(&seed, false);
        struct passage text = random_text(seed, shape.vocab);
        const uint8_t last[LAYERS] = {[LAYERS - 1] = 1};
        const struct forward_part part = {.skip_attention = last, .skip_ffn = last};
        struct rig rig, other;
        write_model(path, &shape, FORMAT_F32, FORMAT_F32, seed, 1);
        write_model(mute, &shape, FORMAT_F32, FORMAT_F32, seed, 1);
        silence_layer(mute, LAYERS - 1, true);
        silence_layer(mute, LAYERS - 1, false);
        open_rig(&rig, path, seed, &text);
        open_rig(&other, mute, seed, &text);
        same_logits(tree_logits(&rig, &text, &part), tree_logits(&other, &text, NULL), &rig, "the last layer");
        const struct forward_part stop = {.layers = LAYERS - 1};
        same_logits(tree_logits(&rig, &text, &stop), tree_logits(&other, &text, NULL), &rig, "stopped before the last layer");
        rig_close(&rig);
        rig_close(&other);
    }
    unit_remove(folder);
}

static void fewer_experts_are_a_model_of_fewer(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "a.moe"), *few = unit_path(folder, "b.moe");
    for (uint64_t seed = 40, round = 0; round < 4; seed++, round++) {
        struct hparams shape = five_layers(&seed, true), fewer = shape;
        struct passage text = random_text(seed, shape.vocab);
        struct rig rig, other;
        fewer.router.top_k = shape.router.top_k - 1;
        write_model(path, &shape, FORMAT_BF16, FORMAT_BF16, seed, 1);
        write_model(few, &fewer, FORMAT_BF16, FORMAT_BF16, seed, 1);
        open_rig(&rig, path, seed, &text);
        open_rig(&other, few, seed, &text);
        must(sequence_truncate(rig.sequence, 0, &rig.err), &rig.err);
        must(sequence_truncate(other.sequence, 0, &other.err), &other.err);
        const struct forward_part part = {.top_k = fewer.router.top_k};
        same_logits(tree_logits(&rig, &text, &part), tree_logits(&other, &text, NULL), &rig, "fewer experts");
        rig_close(&rig);
        rig_close(&other);
    }
    unit_remove(folder);
}

static void experts_of_a_copy_are_those_of_a_mixed_file(void **state)
{
    static const enum weight_format formats[] = {FORMAT_Q8, FORMAT_BF16, FORMAT_Q4, FORMAT_F32};
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "a.moe"), *copy = unit_path(folder, "b.moe"), *mixed = unit_path(folder, "c.moe");
    for (uint64_t seed = 60, round = 0; round < 4; seed++, round++) {
        struct hparams shape = five_layers(&seed, true);
        struct passage text = random_text(seed, shape.vocab);
        struct rig rig, other;
        struct err err = {0};
        struct experts_copy *experts = NULL;
        enum weight_format own = round == 3 ? FORMAT_Q4 : FORMAT_F32;
        write_model(path, &shape, own, own, seed, 1);
        write_model(copy, &shape, formats[round], formats[round], seed, 1);
        write_model(mixed, &shape, own, formats[round], seed, 1);
        open_rig(&rig, path, seed, &text);
        open_rig(&other, mixed, seed, &text);
        must(sequence_truncate(rig.sequence, 0, &rig.err), &rig.err);
        must(sequence_truncate(other.sequence, 0, &other.err), &other.err);
        must(experts_copy_open(&experts, rig.engine, copy, &rig.err), &rig.err);
        const struct forward_part part = {.experts = experts};
        same_logits(tree_logits(&rig, &text, &part), tree_logits(&other, &text, NULL), &rig, "experts of a copy");
        struct forward of_part, of_mixed;
        struct batch batch = {.rows = NODES, .token = text.token, .parent = text.parent, .logit_rows = 1, .part = &part};
        must(engine_forward(rig.engine, rig.sequence, &batch, &of_part, &rig.err), &rig.err);
        batch.part = NULL;
        must(engine_forward(other.engine, other.sequence, &batch, &of_mixed, &other.err), &other.err);
        assert_int_equal(of_part.bytes, of_mixed.bytes);
        assert_int_equal(of_part.expert_bytes, of_mixed.expert_bytes);
        experts_copy_close(&experts);
        write_model(copy, &shape, FORMAT_Q8, FORMAT_Q8, seed, 2);
        assert_int_equal(experts_copy_open(&experts, rig.engine, copy, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        assert_non_null(strstr(err.text, "not a copy of"));
        rig_close(&rig);
        rig_close(&other);
    }
    unit_remove(folder);
}

/* Compares all facts of two forwards about their rows, except for what was read. */
static void same_facts(const struct forward *got, const struct forward *want, const struct rig *rig)
{
    size_t logits = (size_t)got->logit_rows * (size_t)got->vocab, slots = (size_t)got->rows * (size_t)got->moe_layers *
                                                                         (size_t)got->top_k;
    assert_int_equal(got->rows, want->rows);
    assert_int_equal(got->top_k, want->top_k);
    for (size_t i = 0; i < logits; i++)
        if (memcmp(got->logits + i, want->logits + i, sizeof *got->logits))
            fail_msg("logit %zu is %a, not %a", i, (double)got->logits[i], (double)want->logits[i]);
    if (!hparams_moe_layers(engine_hparams(rig->engine)))
        return;
    assert_memory_equal(got->expert, want->expert, slots * sizeof *got->expert);
    assert_memory_equal(got->wanted, want->wanted, slots * sizeof *got->wanted);
    assert_memory_equal(got->weight, want->weight, slots * sizeof *got->weight);
    assert_memory_equal(got->distinct_wanted, want->distinct_wanted, (size_t)got->moe_layers * sizeof *got->distinct_wanted);
}

/* Some of the tree's nodes are drafted in forwards that stop after some layer, with other nodes between them that are not in
 * the tree. Then the whole tree is verified. */
struct drafted {
    const struct passage *text;
    struct forward_part part[2];
    int32_t node[2][NODES];             /* node in each sequence; -1: not drafted there */
    int32_t order[NODES];               /* order of the tree's nodes among the rows of the verification */
};

static void draft_stopped(struct rig *rig, struct drafted *drafted, int which, struct chance *chance)
{
    const struct passage *text = drafted->text;
    for (int i = 0; i < NODES; i++)
        drafted->node[which][i] = -1;
    for (int i = 0; i < NODES; i++) {
        int32_t parent = text->parent[i] < 0 ? -1 : drafted->node[which][text->parent[i]];
        if ((text->parent[i] >= 0 && parent < 0) || (i && chance_range(chance, 0, 3) == 0))
            continue;
        int32_t token[2] = {text->token[i], 1}, parents[2] = {parent, parent};
        struct forward out;
        struct batch batch = {.rows = chance_range(chance, 1, 2), .token = token, .parent = parents, .logit_rows = 1,
                              .part = &drafted->part[which]};
        must(engine_forward(rig->engine, rig->sequence, &batch, &out, &rig->err), &rig->err);
        drafted->node[which][i] = out.node[0];
    }
}

static void going_on_has_the_bits_of_never_stopping(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "a.moe");
    for (uint64_t seed = 80, round = 0; round < (unit_brief() ? 6 : 24); seed++, round++) {
        enum weight_format format = tiny_format(round);
        struct hparams shape = five_layers(&seed, round % 4 != 0);
        struct passage text = random_text(seed, shape.vocab);
        struct chance chance = {seed + 3};
        struct rig rig;
        struct forward got, want;
        struct drafted drafted = {.text = &text, .part = {{.layers = chance_range(&chance, 1, LAYERS - 1)},
                                                          {.layers = chance_range(&chance, 1, LAYERS - 1)}}};
        write_model(path, &shape, format, format, seed, 1);
        open_rig(&rig, path, round, &text);
        struct batch batch = {.rows = NODES, .token = text.token, .parent = text.parent, .logit_rows = NODES};
        must(engine_forward(rig.engine, rig.sequence, &batch, &want, &rig.err), &rig.err);
        size_t slots = (size_t)NODES * (size_t)want.moe_layers * (size_t)want.top_k;
        struct forward whole = want;
        float *logits = copied(want.logits, NODES * (size_t)want.vocab);
        whole.logits = logits;
        void *kept[4] = {NULL};
        if (want.moe_layers) {
            whole.expert = kept[0] = copied((const float *)want.expert, slots);
            whole.wanted = kept[1] = copied((const float *)want.wanted, slots);
            whole.weight = kept[2] = copied(want.weight, slots);
            whole.distinct_wanted = kept[3] = copied((const float *)want.distinct_wanted, (size_t)want.moe_layers);
        }
        sequence_rollback(rig.sequence);
        draft_stopped(&rig, &drafted, 0, &chance);
        draft_stopped(&rig, &drafted, 1, &chance);
        batch.resume = true;
        must(engine_forward(rig.engine, rig.sequence, &batch, &got, &rig.err), &rig.err);
        same_facts(&got, &whole, &rig);
        assert_true(got.bytes <= whole.bytes + 200 * (int64_t)1024);
        int resumed = 0;
        for (int row = 0; row < NODES; row++) {
            bool first = drafted.node[0][row] == got.node[row], second = drafted.node[1][row] == got.node[row];
            assert_true(first || second || (drafted.node[0][row] < 0 && drafted.node[1][row] < 0) || got.node[row] >= 0);
            resumed += first || second;
        }
        assert_true(resumed > 0);
        /* After a commit, decoding continues with the bits of a text that was read token by token. */
        int32_t rows[NODES], path_node[NODES], next = 2, count = 0;
        for (int at = chance_range(&chance, 0, NODES - 1); at >= 0; at = text.parent[at])
            rows[count++] = at;
        for (int i = 0; i < count; i++)
            path_node[i] = got.node[rows[count - 1 - i]];
        must(sequence_commit(rig.sequence, path_node, count, &rig.err), &rig.err);
        batch = (struct batch){.rows = 1, .token = &next, .logit_rows = 1, .resume = true};
        must(engine_forward(rig.engine, rig.sequence, &batch, &got, &rig.err), &rig.err);
        float *after = copied(got.logits, (size_t)got.vocab);
        must(sequence_truncate(rig.sequence, BEFORE, &rig.err), &rig.err);
        for (int i = 0; i <= count; i++) {
            int32_t token = i < count ? text.token[rows[count - 1 - i]] : next;
            batch = (struct batch){.rows = 1, .token = &token, .logit_rows = 1};
            must(engine_forward(rig.engine, rig.sequence, &batch, &got, &rig.err), &rig.err);
            must(sequence_commit(rig.sequence, (int32_t[]){0}, 1, &rig.err), &rig.err);
        }
        assert_memory_equal(after, got.logits, (size_t)got.vocab * sizeof *after);
        free(after);
        free(logits);
        for (int i = 0; i < 4; i++)
            free(kept[i]);
        rig_close(&rig);
    }
    unit_remove(folder);
}

/* A chain that was drafted completely up to layer L reads L layers less when it is verified, and none of their experts. */
static void what_is_gone_on_from_is_not_read_again(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "a.moe");
    uint64_t seed = 200;
    struct hparams shape = five_layers(&seed, true);
    struct passage text = random_text(seed, shape.vocab);
    struct rig rig;
    struct forward part, rest, whole;
    write_model(path, &shape, FORMAT_F32, FORMAT_F32, seed, 1);
    for (int layers = 1; layers < LAYERS; layers++) {
        open_rig(&rig, path, 0, &text);
        const struct forward_part stop = {.layers = layers};
        struct batch batch = {.rows = 6, .token = text.token, .logit_rows = 6};
        must(engine_forward(rig.engine, rig.sequence, &batch, &whole, &rig.err), &rig.err);
        int64_t all = whole.bytes;
        sequence_rollback(rig.sequence);
        batch.part = &stop;
        batch.logit_rows = 0;
        must(engine_forward(rig.engine, rig.sequence, &batch, &part, &rig.err), &rig.err);
        int64_t before = part.bytes;
        batch.part = NULL;
        batch.logit_rows = 6;
        batch.resume = true;
        must(engine_forward(rig.engine, rig.sequence, &batch, &rest, &rig.err), &rig.err);
        assert_true(before > 0 && rest.bytes > 0);
        assert_int_equal(before + rest.bytes, all);
        for (int row = 0; row < 6; row++)
            assert_int_equal(rest.node[row], row);
        /* If a request needs facts that stopped rows lack, all layers run. */
        sequence_rollback(rig.sequence);
        batch.part = &stop;
        batch.resume = false;
        must(engine_forward(rig.engine, rig.sequence, &batch, &part, &rig.err), &rig.err);
        batch.part = NULL;
        batch.resume = batch.want_hidden = true;
        must(engine_forward(rig.engine, rig.sequence, &batch, &rest, &rig.err), &rig.err);
        assert_int_equal(rest.bytes, all);
        assert_int_equal(sequence_pending(rig.sequence), 6);
        rig_close(&rig);
    }
    unit_remove(folder);
}

/* Rows that resume from layer L still provide the output of layer L - 1, beside rows that ran it now; if an earlier layer is
 * requested, all rows run from the beginning. */
static void what_is_gone_on_from_is_still_seen(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "a.moe");
    uint64_t seed = 220;
    struct hparams shape = five_layers(&seed, true);
    struct passage text = random_text(seed, shape.vocab);
    struct rig rig;
    struct forward got;
    write_model(path, &shape, FORMAT_F32, FORMAT_F32, seed, 1);
    for (int layers = 1; layers < LAYERS; layers++)
        for (int stopped = 1; stopped <= 6; stopped += 5) {
            const struct forward_part stop = {.layers = layers};
            const struct feature_request last = {2, {layers - 1, LAYERS}}, earlier = {1, {layers - 2}};
            struct batch batch = {.rows = 6, .token = text.token, .logit_rows = 1, .features = &last};
            const size_t values = 6 * (size_t)shape.hidden, bytes = values * sizeof(float);
            float *want = malloc(2 * bytes), *seen = malloc(2 * bytes);
            open_rig(&rig, path, 0, &text);
            must(engine_forward(rig.engine, rig.sequence, &batch, &got, &rig.err), &rig.err);
            const int64_t all = got.bytes;
            queue_download(rig.device, want, got.features, 2 * bytes);
            must(queue_wait(rig.device, &rig.err), &rig.err);
            for (int more = 0; more < (layers > 1 ? 2 : 1); more++) {
                sequence_rollback(rig.sequence);
                /* Features of the earlier whole forward must not be mistaken for those of the current one. */
                const struct batch other = {.rows = 6, .token = text.token + 1, .features = &last};
                must(engine_forward(rig.engine, rig.sequence, &other, &got, &rig.err), &rig.err);
                sequence_rollback(rig.sequence);
                const struct batch before = {.rows = stopped, .token = text.token, .part = &stop};
                must(engine_forward(rig.engine, rig.sequence, &before, &got, &rig.err), &rig.err);
                batch.resume = true;
                batch.features = more ? &earlier : &last;
                must(engine_forward(rig.engine, rig.sequence, &batch, &got, &rig.err), &rig.err);
                assert_true(more ? got.bytes == all : stopped < 6 || got.bytes < all);
                queue_download(rig.device, seen, got.features, (more ? 1 : 2) * bytes);
                must(queue_wait(rig.device, &rig.err), &rig.err);
                if (!more)
                    assert_memory_equal(seen, want, 2 * bytes);
            }
            free(want);
            free(seen);
            rig_close(&rig);
        }
    unit_remove(folder);
}

/* Stopped nodes leave too little room for the other rows: then all rows are read from the beginning. */
static void stopped_nodes_give_way_to_a_verification(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "a.moe");
    uint64_t seed = 210;
    struct hparams shape = five_layers(&seed, true);
    struct passage text = random_text(seed, shape.vocab);
    const struct forward_part stop = {.layers = 2};
    struct rig rig;
    struct forward got, want;
    write_model(path, &shape, FORMAT_F32, FORMAT_F32, seed, 1);
    open_rig(&rig, path, 0, &text);
    struct batch batch = {.rows = 6, .token = text.token, .logit_rows = 6};
    must(engine_forward(rig.engine, rig.sequence, &batch, &want, &rig.err), &rig.err);
    const size_t logits = 6 * (size_t)want.vocab;
    float *whole = copied(want.logits, logits);
    for (int left = 6; left >= 0; left--) {
        sequence_rollback(rig.sequence);
        struct batch drafted = {.rows = 1, .token = text.token, .part = &stop};
        while (BEFORE + sequence_pending(rig.sequence) < sequence_capacity(rig.sequence) - left)
            must(engine_forward(rig.engine, rig.sequence, &drafted, &got, &rig.err), &rig.err);
        batch.resume = true;
        must(engine_forward(rig.engine, rig.sequence, &batch, &got, &rig.err), &rig.err);
        assert_memory_equal(got.logits, whole, logits * sizeof *whole);
        assert_int_equal(sequence_pending(rig.sequence), left >= 5 ? sequence_capacity(rig.sequence) - BEFORE - left + 5 : 6);
    }
    free(whole);
    rig_close(&rig);
    unit_remove(folder);
}

static void bad_parts_are_refused(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "a.moe");
    uint64_t seed = 300;
    struct hparams shape = five_layers(&seed, true);
    struct passage text = random_text(seed, shape.vocab);
    const uint8_t some[LAYERS] = {0, 1};
    const struct forward_part skips = {.skip_ffn = some}, stops = {.layers = 2};
    const struct forward_part wrong[] = {{.layers = -1}, {.layers = LAYERS + 1}, {.top_k = -1},
                                         {.top_k = shape.router.top_k + 1}};
    const struct feature_request third = {1, {2}}, beyond = {1, {LAYERS + 1}}, final = {1, {LAYERS}};
    struct rig rig;
    struct forward out;
    struct err err = {0};
    write_model(path, &shape, FORMAT_F32, FORMAT_F32, seed, 1);
    open_rig(&rig, path, 0, &text);
    struct batch batch = {.rows = 2, .token = text.token, .logit_rows = 2};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        batch.part = &wrong[i];
        assert_int_equal(engine_forward(rig.engine, rig.sequence, &batch, &out, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        assert_int_equal(sequence_pending(rig.sequence), 0);
    }
    struct batch refused[] = {
        {.rows = 1, .token = text.token, .part = &stops, .features = &third},
        {.rows = 1, .token = text.token, .part = &stops, .features = &final},
        {.rows = 1, .token = text.token, .features = &beyond},
        {.rows = 1, .token = text.token, .part = &skips, .resume = true},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(engine_forward(rig.engine, rig.sequence, &refused[i], &out, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
    }
    batch.part = &skips;
    must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
    batch.part = NULL;                                      /* after nodes that have no output of the second layer */
    assert_int_equal(engine_forward(rig.engine, rig.sequence, &batch, &out, &err), -1);
    batch.part = &stops;
    assert_int_equal(engine_forward(rig.engine, rig.sequence, &batch, &out, &err), -1);
    assert_int_equal(sequence_pending(rig.sequence), 2);
    batch.parent = (int32_t[]){-1, 2};                      /* but beside them */
    must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
    assert_int_equal(out.node[1], 3);
    rig_close(&rig);
    unit_remove(folder);
}

/* Features are the states of want_hidden, and the last of them is the head's input. */
static void features_are_the_residual_stream(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "a.moe");
    for (uint64_t seed = 400, round = 0; round < 4; seed++, round++) {
        struct hparams shape = five_layers(&seed, false);
        struct passage text = random_text(seed, shape.vocab);
        const struct feature_request request = {3, {3, 0, LAYERS}}, early = {1, {0}};
        const size_t width = (size_t)shape.hidden;
        struct rig rig;
        struct forward out;
        struct model *model = NULL;
        write_model(path, &shape, FORMAT_F32, FORMAT_F32, seed, 1);
        open_rig(&rig, path, round, &text);
        must(model_open(&model, path, &rig.err), &rig.err);
        for (int pass = 0; pass < 2; pass++) {              /* fewer rows at first: the second pass needs a larger buffer */
            const int rows = pass ? NODES : 3;
            struct batch batch = {.rows = rows, .token = text.token, .parent = text.parent,
                                  .features = pass ? &request : &early, .want_hidden = true};
            must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
            float *got = calloc(3 * (size_t)rows * width, sizeof *got);
            queue_download(rig.device, got, out.features, (pass ? 3 : 1) * (size_t)rows * width * sizeof *got);
            must(queue_wait(rig.device, &rig.err), &rig.err);
            for (int row = 0; row < rows; row++) {
                const float *hidden = out.hidden + (size_t)row * LAYERS * width, *own = got + (size_t)row * width;
                assert_memory_equal(own, hidden + (pass ? 3 : 0) * width, width * sizeof *own);
                if (!pass)
                    continue;
                assert_memory_equal(own + (size_t)rows * width, hidden, width * sizeof *own);
                const float *last = hidden + (LAYERS - 1) * width, *normed = own + 2 * (size_t)rows * width;
                const float *weight = model_data(model, model_tensor(model, &rig.err, "final_norm"));
                const float *bias = !shape.layer_norm ? NULL
                    : model_data(model, model_tensor(model, &rig.err, "final_norm_bias"));
                double mean = 0, square = 0;
                for (size_t i = 0; bias && i < width; i++)
                    mean += (double)last[i] / (double)width;
                for (size_t i = 0; i < width; i++)
                    square += ((double)last[i] - mean) * ((double)last[i] - mean) / (double)width;
                for (size_t i = 0; i < width; i++) {
                    double want = ((double)last[i] - mean) / sqrt(square + (double)shape.norm_epsilon) * (double)weight[i] +
                                  (bias ? (double)bias[i] : 0);
                    assert_true(fabs((double)normed[i] - want) < 1e-5 * (1 + fabs(want)));
                }
            }
            free(got);
            sequence_rollback(rig.sequence);
        }
        model_close(&model);
        rig_close(&rig);
    }
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skipped_half_is_one_that_adds_nothing),
        cmocka_unit_test(the_committed_text_is_the_whole_models),
        cmocka_unit_test(fewer_experts_are_a_model_of_fewer),
        cmocka_unit_test(experts_of_a_copy_are_those_of_a_mixed_file),
        cmocka_unit_test(going_on_has_the_bits_of_never_stopping),
        cmocka_unit_test(what_is_gone_on_from_is_not_read_again),
        cmocka_unit_test(what_is_gone_on_from_is_still_seen),
        cmocka_unit_test(stopped_nodes_give_way_to_a_verification),
        cmocka_unit_test(bad_parts_are_refused),
        cmocka_unit_test(features_are_the_residual_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
