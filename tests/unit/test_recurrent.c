/* Layers with a state (common/engine/recurrent.h) over random tiny models. A node's logits equal those of its path decoded
 * alone, bit by bit, wherever a path crosses a border, also without some of the layers; after a commit the states equal
 * those of a text without drafts; pieces of a prompt, spans and threads change nothing; texts are truncated where states are
 * stored; a forward that fails changes nothing. */
#include "tests/unit/unit.h"

#include <unistd.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"
#include "tests/unit/rig.h"

enum { MAX_NODES = 40, ROWS = 64 };

static const char *tiny_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/moe-test-recurrent-%d.moe", (int)getpid());
    return path;
}

static int kind;                        /* enum recurrence of the models */

/* Writes a model of which at least the first layer has a state. */
static void write_model(uint64_t seed)
{
    struct chance chance = {seed};
    struct err err = {0};
    struct hparams shape = tiny_states(&chance, (enum recurrence)kind, seed);
    if (kind == RECURRENCE_SPACE && seed % 2)
        tiny_halves(&shape, seed % 4 == 1);
    if (kind == RECURRENCE_SPACE && seed % 2 && !shape.expert_bias) {
        shape.glu = GLU_NONE_RELU2;
        shape.glu_limit = 0;
    }
    must(tiny_write(tiny_path(), &shape, FORMAT_F32, seed, &err), &err);
}

static struct stop stop;                /* of all engines here */

/* Opens an engine. cached: it has slots for some experts only, so that prompts are read in spans. */
static void open_rig(struct rig *rig, const char *device, int threads, int max_rows, bool cached)
{
    struct model *model = NULL;
    struct err err = {0};
    must(model_open(&model, tiny_path(), &err), &err);
    const int experts = model_hparams(model)->router.experts, slots = experts < 4 ? experts : 4;
    const struct expert_cache cache = {.slots = hparams_moe_layers(model_hparams(model)) * slots};
    model_close(&model);
    stop = (struct stop){0};
    rig_open_cached(rig, tiny_path(), device, threads, cached && cache.slots ? &cache : NULL);
    rig_engine(rig, (struct engine_setup){.max_rows = max_rows, .max_logit_rows = max_rows, .stop = &stop}, 0);
}

static struct sequence *open_text(struct rig *rig, int capacity)
{
    struct sequence *sequence = NULL;
    must(sequence_open(&sequence, rig->engine, capacity, &rig->err), &rig->err);
    return sequence;
}

static void read_prompt(struct rig *rig, struct sequence *sequence, const int32_t *token, int count)
{
    struct forward out;
    if (count)
        must(engine_prompt(rig->engine, sequence, token, count, NULL, NULL, NULL, &out, &rig->err), &rig->err);
}

/* Reads tokens one by one; logits of each into want [count][vocab] if not NULL. */
static void read_singly(struct rig *rig, struct sequence *sequence, const int32_t *token, int count, float *want)
{
    const size_t vocab = (size_t)model_hparams(rig->model)->vocab;
    struct forward out;
    for (int i = 0; i < count; i++) {
        const struct batch batch = {.rows = 1, .token = &token[i], .logit_rows = 1};
        must(engine_forward(rig->engine, sequence, &batch, &out, &rig->err), &rig->err);
        if (want)
            memcpy(want + (size_t)i * vocab, out.logits, vocab * sizeof *want);
        must(sequence_commit(sequence, (int32_t[]){0}, 1, &rig->err), &rig->err);
    }
}

/* On the host alone: buffers of other devices have no addresses here. */
static void same_row(struct buffer a, int32_t i, struct buffer b, int32_t j, int64_t width)
{
    const size_t floats = (size_t)width;
    assert_memory_equal((const float *)(uintptr_t)a.address + (size_t)i * floats,
                        (const float *)(uintptr_t)b.address + (size_t)j * floats, floats * sizeof(float));
}

/* Compares the data that both keep of their last tokens: at least what the next token reads. */
static void same_states(const struct rig *rig, const struct sequence *a, const struct sequence *b)
{
    const struct recurrent_plan *p = &a->recurrent.now, *q = &b->recurrent.now;
    const struct delta_shape *d = &model_hparams(rig->model)->delta;
    const struct delta_widths w = hparams_delta_widths(model_hparams(rig->model));
    const int values = d->value_heads * d->value_dim;
    int states = 0;
    assert_int_equal(p->length, q->length);
    assert_int_equal(a->kv.length, p->length);
    for (int back = 1; device_info(rig->device)->host_memory && back <= p->tail_count && back <= q->tail_count; back++) {
        const struct recurrent_node *i = &p->tail[p->tail_count - back], *j = &q->tail[q->tail_count - back];
        for (int n = 0; n < model_hparams(rig->model)->layers; n++) {
            const struct recurrent_layer *x = &a->recurrent.layer[n], *y = &b->recurrent.layer[n];
            if (!model_hparams(rig->model)->layer[n].state)
                continue;
            same_row(x->conv, i->slot, y->conv, j->slot, w.conv);
            states += i->own >= 0 && j->own >= 0;
            if (d->kind == RECURRENCE_NONE)
                continue;
            same_row(x->key, i->slot, y->key, j->slot, w.keys);
            same_row(x->decay, i->slot, y->decay, j->slot, w.steps);
            same_row(x->correction, i->slot, y->correction, j->slot, values);
            if (i->own >= 0 && j->own >= 0)
                same_row(x->state, i->own, y->state, j->own, (int64_t)values * d->key_dim);
        }
    }
    if (device_info(rig->device)->host_memory && p->length > DELTA_BORDER)
        assert_true(states > 0);
}

/* Slots and states in use are exactly those that the text needs: none leaks. */
static void check_uses(const struct sequence *sequence)
{
    const struct recurrent *r = &sequence->recurrent;
    int slots = 0, states = 0;
    for (int i = 0; i < r->slots; i++)
        slots += r->slot_used[i];
    for (int i = 0; i < r->states; i++)
        states += r->state_used[i];
    assert_int_equal(slots, r->now.tail_count);
    assert_in_range(states, 0, 3);
}

/* States take at most the memory that is planned for them. */
static void check_planned(const struct sequence *sequence)
{
    const struct hparams *shape = sequence->engine->shape;
    uint64_t bytes = 0;
    for (int n = 0; n < shape->layers; n++) {
        const struct recurrent_layer *at = &sequence->recurrent.layer[n];
        bytes += at->conv.bytes + at->key.bytes + at->decay.bytes + at->correction.bytes + at->state.bytes;
    }
    assert_in_range(bytes, 1, sequence_state_bytes(shape, false));
}

/* ---- trees ---- */

struct tree {
    int count;
    int32_t token[MAX_NODES], parent[MAX_NODES];
};

static void draw_tree(struct tree *tree, struct chance *chance, int vocab)
{
    const int reach = chance_range(chance, 1, 4);
    tree->count = chance_range(chance, 1, MAX_NODES);
    for (int i = 0; i < tree->count; i++) {
        tree->token[i] = chance_range(chance, 0, vocab - 1);
        tree->parent[i] = chance_range(chance, i - reach < -1 ? -1 : i - reach, i - 1);
    }
}

static int path_of(const struct tree *tree, int node, int32_t *path)
{
    int count = 0, at = node;
    for (int i = node; i >= 0; i = tree->parent[i])
        count++;
    for (int i = count; i-- > 0; at = tree->parent[at])
        path[i] = at;
    return count;
}

static void run_tree(struct rig *rig, struct sequence *sequence, const struct tree *tree, const struct forward_part *part,
                     struct chance *chance, float *got)
{
    const size_t vocab = (size_t)model_hparams(rig->model)->vocab;
    struct forward out;
    for (int done = 0, rows; done < tree->count; done += rows) {
        rows = chance_range(chance, 1, tree->count - done);
        const struct batch batch = {.rows = rows, .token = tree->token + done, .parent = tree->parent + done,
                                    .logit_rows = rows, .part = part};
        must(engine_forward(rig->engine, sequence, &batch, &out, &rig->err), &rig->err);
        memcpy(got + (size_t)done * vocab, out.logits, (size_t)rows * vocab * sizeof *got);
    }
}

/* The offsets in a segment from which a draft has crossed a border. */
static bool crossed[DELTA_BORDER];

static void note_crossed(const struct tree *tree, const struct sequence *sequence)
{
    const int inside = sequence_length(sequence) % DELTA_BORDER;
    int32_t path[MAX_NODES];
    for (int i = 0; i < tree->count; i++)
        crossed[inside] |= inside + path_of(tree, i, path) > DELTA_BORDER;
}

/* Drafts a tree after `text` and commits one of its paths: logits of its nodes, and then the states, are compared with the
 * path alone. */
static void try_tree(struct rig *rig, struct sequence *text, struct sequence *plain, struct chance *chance)
{
    const size_t vocab = (size_t)model_hparams(rig->model)->vocab;
    static float got[MAX_NODES * 100], want[MAX_NODES * 100];
    int32_t path[MAX_NODES], token[MAX_NODES];
    struct tree tree;
    assert_true(vocab <= 100);
    draw_tree(&tree, chance, model_hparams(rig->model)->vocab);
    run_tree(rig, text, &tree, NULL, chance, got);
    note_crossed(&tree, text);
    const int kept = path_of(&tree, chance_range(chance, 0, tree.count - 1), path);
    for (int i = 0; i < kept; i++)
        token[i] = tree.token[path[i]];
    if (chance_range(chance, 0, 4) == 0) {                     /* rejected, and drafted again */
        sequence_rollback(text);
        check_uses(text);
        run_tree(rig, text, &tree, NULL, chance, got);
    }
    must(sequence_commit(text, path, kept, &rig->err), &rig->err);
    read_singly(rig, plain, token, kept, want);
    for (int i = 0; i < kept; i++)
        assert_memory_equal(got + (size_t)path[i] * vocab, want + (size_t)i * vocab, vocab * sizeof *got);
    same_states(rig, text, plain);
    check_uses(text);
}

typedef void try_function(struct rig *rig, struct sequence *text, struct sequence *plain, struct chance *chance);

/* 200 drafts after texts of 20 random models, whose layers with a state are of one kind. */
static void try_often(try_function *try, int of_kind)
{
    kind = of_kind;
    memset(crossed, 0, sizeof crossed);
    for (uint64_t seed = 1; seed <= 20; seed += unit_brief() ? 7 : 1) {
        struct chance chance = {seed + 1000};
        struct rig rig;
        int32_t prompt[40];
        write_model(seed);
        open_rig(&rig, seed % 5 ? "host" : "ref", 1 + (int)(seed % 2), ROWS, false);
        for (int i = 0; i < 40; i++)
            prompt[i] = chance_range(&chance, 0, model_hparams(rig.model)->vocab - 1);
        const int before = chance_range(&chance, 0, 40);
        struct sequence *text = open_text(&rig, 700), *plain = open_text(&rig, 700);
        read_prompt(&rig, text, prompt, before);
        read_singly(&rig, plain, prompt, before, NULL);
        for (int i = 0; i < 10; i++)
            try(&rig, text, plain, &chance);
        sequence_close(&text);
        sequence_close(&plain);
        rig_close(&rig);
    }
    for (int inside = 0; inside < DELTA_BORDER; inside++)
        assert_true(unit_brief() || crossed[inside]);
}

static void trees_do_not_show(void **state)
{
    (void)state;
    for (int each = RECURRENCE_DELTA; each <= RECURRENCE_SCAN; each++)
        try_often(try_tree, each);
}

/* ---- forwards that leave layers out ---- */

/* Skips random halves of layers, or the last layers. */
static void draw_part(struct forward_part *part, uint8_t *skip, struct chance *chance, int layers)
{
    const bool exits = layers > 1 && chance_range(chance, 0, 1);
    for (int i = 0; i < 2 * layers; i++)
        skip[i] = (uint8_t)chance_range(chance, 0, 1);
    *part = (struct forward_part){.layers = exits ? chance_range(chance, 1, layers - 1) : 0};
    if (!exits || chance_range(chance, 0, 2) == 0) {
        part->skip_attention = skip;
        part->skip_ffn = skip + layers;
    }
}

/* Compares one path of a draft by such a part with the same path drafted alone. The verification then drops the draft and
 * continues the text with the whole model. */
static void try_part(struct rig *rig, struct sequence *text, struct sequence *plain, struct chance *chance)
{
    const size_t vocab = (size_t)model_hparams(rig->model)->vocab;
    static float drafted[MAX_NODES * 100], want[MAX_NODES * 100];
    uint8_t skip[2 * LAYERS_MAX];
    int32_t path[MAX_NODES], token[MAX_NODES];
    struct forward_part part;
    struct forward out;
    struct tree tree;
    draw_part(&part, skip, chance, model_hparams(rig->model)->layers);
    draw_tree(&tree, chance, model_hparams(rig->model)->vocab);
    run_tree(rig, text, &tree, &part, chance, drafted);
    note_crossed(&tree, text);
    const int kept = path_of(&tree, chance_range(chance, 0, tree.count - 1), path);
    for (int i = 0; i < kept; i++) {
        token[i] = tree.token[path[i]];
        const struct batch one = {.rows = 1, .token = &token[i], .logit_rows = 1, .part = &part};
        must(engine_forward(rig->engine, plain, &one, &out, &rig->err), &rig->err);
        assert_memory_equal(drafted + (size_t)path[i] * vocab, out.logits, vocab * sizeof *drafted);
    }
    sequence_rollback(plain);
    check_uses(plain);
    const struct batch all = {.rows = tree.count, .token = tree.token, .parent = tree.parent, .logit_rows = tree.count,
                              .resume = true};
    must(engine_forward(rig->engine, text, &all, &out, &rig->err), &rig->err);
    memcpy(drafted, out.logits, (size_t)tree.count * vocab * sizeof *drafted);
    for (int i = 0; i < kept; i++)
        path[i] = out.node[path[i]];
    must(sequence_commit(text, path, kept, &rig->err), &rig->err);
    read_singly(rig, plain, token, kept, want);
    for (int i = 0; i < kept; i++)
        assert_memory_equal(drafted + (size_t)path[i] * vocab, want + (size_t)i * vocab, vocab * sizeof *want);
    same_states(rig, text, plain);
    check_uses(text);
}

static void drafts_without_some_layers_do_not_show(void **state)
{
    (void)state;
    for (int each = RECURRENCE_DELTA; each <= RECURRENCE_SCAN; each++)
        try_often(try_part, each);
}

/* ---- prompts ---- */

static void prompts_do_not_show(void **state)
{
    (void)state;
    static const int lengths[] = {1, 15, 16, 17, 63, 64, 65, 1000};
    static const struct { const char *device; int threads, rows; bool cached; } ways[] = {
        {"host", 1, 7, false}, {"host", 2, 16, false}, {"host", 1, 64, false}, {"host", 2, 512, false}, {"host", 1, 33, true}};
    for (uint64_t seed = 41; seed <= 45; seed++) {
        int32_t token[1000 + 20];
        struct chance chance = {seed};
        struct rig rig, other;
        kind = (int)(seed % 5);
        write_model(seed);
        open_rig(&rig, "host", 1, ROWS, false);
        for (int i = 0; i < 1020; i++)
            token[i] = chance_range(&chance, 0, model_hparams(rig.model)->vocab - 1);
        const size_t floats = 20 * (size_t)model_hparams(rig.model)->vocab;
        float *want = mem_alloc(floats, sizeof *want, NULL), *got = mem_alloc(floats, sizeof *got, NULL);
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            struct sequence *plain = open_text(&rig, 1020);
            read_singly(&rig, plain, token, lengths[l], NULL);
            for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
                if (unit_brief() && w != l % 5 && lengths[l] > 65)
                    continue;
                open_rig(&other, ways[w].device, ways[w].threads, ways[w].rows, ways[w].cached);
                struct sequence *text = open_text(&other, 1020);
                const int first = lengths[l] / 3;
                read_prompt(&other, text, token, first);
                read_prompt(&other, text, token + first, lengths[l] - first);
                same_states(&rig, text, plain);
                check_uses(text);
                check_planned(text);
                if (w == l % 5) {
                    read_singly(&other, text, token + lengths[l], 20, got);
                    struct sequence *copy = open_text(&rig, 1020);
                    must(sequence_copy(copy, plain, lengths[l], &rig.err), &rig.err);
                    read_singly(&rig, copy, token + lengths[l], 20, want);
                    assert_memory_equal(got, want, floats * sizeof *got);
                    sequence_close(&copy);
                }
                sequence_close(&text);
                rig_close(&other);
            }
            sequence_close(&plain);
        }
        mem_free(&want);
        mem_free(&got);
        rig_close(&rig);
    }
}

/* ---- truncation ---- */

static void texts_are_cut_where_states_are_kept(void **state)
{
    (void)state;
    struct chance chance = {7};
    struct rig rig;
    int32_t token[100];
    kind = RECURRENCE_SPACE;
    write_model(61);
    open_rig(&rig, "host", 1, ROWS, false);
    for (int i = 0; i < 100; i++)
        token[i] = chance_range(&chance, 0, model_hparams(rig.model)->vocab - 1);
    for (int length = 1; length <= 80; length += chance_range(&chance, 1, 3)) {
        /* States are kept from the beginning of the previous segment on. */
        const int kept = length % DELTA_BORDER + DELTA_BORDER;
        for (int back = 0, next; back <= 40 && back < length; back = next) {
            next = back + chance_range(&chance, 1, 9);
            next = back < kept && next > kept ? kept : next;
            struct sequence *text = open_text(&rig, 120), *plain = open_text(&rig, 120);
            read_prompt(&rig, text, token, length);
            const int want = length - back, keeps = sequence_keeps(text, want);
            assert_in_range(keeps, 0, want);
            if (back <= kept)
                assert_int_equal(keeps, want);
            if (keeps < want) {
                assert_int_equal(sequence_truncate(text, want, &rig.err), -1);
                assert_non_null(strstr(rig.err.text, "because the recurrent states of that point are no longer stored"));
                assert_int_equal(sequence_length(text), length);
            }
            must(sequence_truncate(text, keeps, &rig.err), &rig.err);
            check_uses(text);
            read_prompt(&rig, text, token + keeps, length - keeps);
            read_prompt(&rig, plain, token, length);
            same_states(&rig, text, plain);
            sequence_close(&text);
            sequence_close(&plain);
        }
    }
    rig_close(&rig);
}

/* ---- failures ---- */

/* Forwards and spans that are interrupted leave the text unchanged; drafted tokens stay drafted. */
static void interruptions_change_nothing(void **state)
{
    (void)state;
    for (int cached = 0; cached <= 1; cached++) {
        struct chance chance = {9};
        struct rig rig;
        int32_t token[300];
        struct forward out;
        kind = cached ? RECURRENCE_DELTA : RECURRENCE_SPACE;
        write_model(41);
        open_rig(&rig, "host", 1, ROWS, cached);
        for (int i = 0; i < 300; i++)
            token[i] = chance_range(&chance, 0, model_hparams(rig.model)->vocab - 1);
        struct sequence *text = open_text(&rig, 400), *plain = open_text(&rig, 400);
        read_prompt(&rig, text, token, 31);
        read_prompt(&rig, plain, token, 31);
        const struct batch draft = {.rows = 4, .token = token + 31, .logit_rows = 1};
        must(engine_forward(rig.engine, text, &draft, &out, &rig.err), &rig.err);
        atomic_store(&stop.signal, 2);
        assert_int_equal(engine_forward(rig.engine, text, &draft, &out, &rig.err), -1);
        assert_int_equal(sequence_pending(text), 4);
        atomic_store(&stop.signal, 0);
        must(sequence_commit(text, (int32_t[]){0, 1, 2, 3}, 4, &rig.err), &rig.err);
        read_singly(&rig, plain, token + 31, 4, NULL);
        same_states(&rig, text, plain);
        atomic_store(&stop.signal, 2);
        assert_int_equal(engine_prompt(rig.engine, text, token + 35, 200, NULL, NULL, NULL, &out, &rig.err), -1);
        atomic_store(&stop.signal, 0);
        check_uses(text);
        same_states(&rig, text, plain);
        read_prompt(&rig, text, token + 35, 200);
        read_singly(&rig, plain, token + 35, 200, NULL);
        same_states(&rig, text, plain);
        /* The first token of a segment: the interrupted forward was to make the state at its beginning. */
        read_prompt(&rig, text, token + 235, 5);
        read_singly(&rig, plain, token + 235, 5, NULL);
        assert_int_equal(sequence_length(text) % DELTA_BORDER, 0);
        atomic_store(&stop.signal, 2);
        assert_int_equal(engine_forward(rig.engine, text, &draft, &out, &rig.err), -1);
        atomic_store(&stop.signal, 0);
        check_uses(text);
        read_singly(&rig, text, token + 240, 4, NULL);
        read_singly(&rig, plain, token + 240, 4, NULL);
        same_states(&rig, text, plain);
        sequence_close(&text);
        sequence_close(&plain);
        rig_close(&rig);
    }
}

static int clear(void **state)
{
    (void)state;
    unlink(tiny_path());
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_do_not_show), cmocka_unit_test(prompts_do_not_show),
        cmocka_unit_test(texts_are_cut_where_states_are_kept), cmocka_unit_test(interruptions_change_nothing),
        cmocka_unit_test(drafts_without_some_layers_do_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, clear);
}
