/* Drafts of several drafters, recorded one by one, are rebuilt as they were live: policies that use drafters in turn, let
 * one review another, or grow branches get the same tokens wherever the text has the preceding ones, and the same tokens are
 * accepted. */
#include "tests/unit/rig.h"

#include "common/bench/recorded.h"
#include "common/decode/grow.h"
#include "common/decode/internal.h"
#include "common/instruments/probe.h"
#include "common/instruments/record.h"
#include "common/policy/shape.h"

enum { TOKENS = 60, PROMPT = 30, DRAFTED = 16, LIVE = 200 };

/* ---- policies that follow a fixed list of steps ---- */

struct script { int kind, drafter, below, tokens, siblings; };  /* below -2: the newest node; tokens 0: a review */

/* In LOOKS_UP one drafter looks up text and does not treat drafted tokens as text, so its recording is exact at the root
 * alone. Scripts from BRANCHES on make trees, and trees are recorded for them. */
enum { SCRIPTS = 9, LOOKS_UP = 5, BRANCHES = 6, BRANCHES_WIDTH = 3 };

static const struct script scripts[SCRIPTS][4] = {
    {{STEP_EXTEND, 0, -1, 2}, {STEP_EXTEND, 1, -2, 2}, {STEP_EXTEND, 0, -2, 1}},
    {{STEP_EXTEND, 1, -1, 3}, {STEP_EXTEND, 0, -2, 3}, {STEP_EXTEND, 1, -2, 1}},
    {{STEP_EXTEND, 0, -1, 4}, {STEP_REVIEW, 1, -1, 0}, {STEP_EXTEND, 1, -2, 2}},
    {{STEP_EXTEND, 1, -1, 3}, {STEP_REVIEW, 0, 0, 0}, {STEP_REVIEW, 1, -1, 0}},
    {{STEP_EXTEND, 0, -1, 1}, {STEP_EXTEND, 1, -1, 2}, {STEP_EXTEND, 0, -2, 2}, {STEP_EXTEND, 1, 0, 2}},
    {{STEP_EXTEND, 0, -1, 4}, {STEP_REVIEW, 1, -1, 0}, {STEP_EXTEND, 1, -2, 2}},
    {{STEP_EXTEND, 0, -1, 2, 2}, {STEP_EXTEND, 1, -1, 1, 3}, {STEP_EXTEND, 1, 0, 2, 2}, {STEP_EXTEND, 0, -2, 1, 2}},
    {{STEP_EXTEND, 1, -1, 1, 3}, {STEP_EXTEND, 0, 1, 2, 2}, {STEP_EXTEND, 1, 2, 3, 1}, {STEP_EXTEND, 0, 0, 1, 3}},
    {{STEP_EXTEND, 1, -1, 2, 3}, {STEP_REVIEW, 0, -1, 0}, {STEP_EXTEND, 1, -2, 2, 2}, {STEP_EXTEND, 0, -1, 1, 3}}};

struct scripted {
    struct policy base;
    const struct script *script;
    struct draft_leaf leaf;
};

static struct step next(struct policy *policy, const struct draft_view *view)
{
    struct scripted *mine = (struct scripted *)policy;
    const struct script *script = &mine->script[view->steps];
    if (view->steps > 3 || !script->kind)
        return (struct step){.kind = STEP_STOP};
    mine->leaf = (struct draft_leaf){script->below == -2 ? view->tree->nodes - 1 : script->below,
                                     script->siblings && script->tokens ? script->siblings : 1};
    mine->leaf.node = mine->leaf.node >= view->tree->nodes ? -1 : mine->leaf.node;
    return (struct step){.kind = (enum step_kind)script->kind, .drafter = script->drafter, .tokens = script->tokens,
                         .leaf = &mine->leaf, .leaves = 1};
}

static int length(const struct policy *policy) { return (void)policy, 0; }
static void state(const struct policy *policy, struct values *out) { values_text(out, "name", policy->class->name); }
static void free_nothing(struct policy *policy) { (void)policy; }

static const struct policy_class scripted_class = {
    .name = "scripted", .next = next, .length = length, .state = state, .free = free_nothing};

/* ---- the live run ---- */

struct live { int at, nodes, accepted, token[DRAFTED], parent[DRAFTED], drafter[DRAFTED], reviewer[DRAFTED]; };

struct run {
    struct decode_recorder recorder;
    struct live live[LIVE];
    int lives;
};

static int see_iteration(void *context, const struct decode_iteration *it, struct err *err)
{
    struct run *run = context;
    struct live *live = &run->live[run->lives++];
    *live = (struct live){.at = it->position - PROMPT, .nodes = it->tree->nodes, .accepted = it->record.accepted};
    assert_true(it->tree->nodes <= DRAFTED);
    for (int node = 0; node < it->tree->nodes; node++) {
        live->token[node] = it->tree->token[node];
        live->parent[node] = it->tree->parent[node];
        live->drafter[node] = it->tree->drafter[node];
        live->reviewer[node] = it->tree->reviewer[node];
    }
    return decode_record_iteration(&run->recorder, it, err);
}

static int put_draft(void *context, const struct decode_draft *draft, struct err *err)
{
    return decode_record_draft(context, draft, err);
}

static void record(struct rig *rig, const char *folder, const struct script *script, double temperature, struct run *run)
{
    char model[1200], other[1200], tree[40];
    const char *named[] = {script == scripts[LOOKS_UP] ? "ngram:n=2" : other, model};
    struct decode_settings settings = DECODE_DEFAULTS;
    const struct decoder_setup setup = {.engine = rig->engine, .settings = &settings, .want_drafts = true};
    int32_t tokens[PROMPT];
    struct prompt prompt = {.tokens = {.ids = tokens, .n = PROMPT}, .id = (char[]){"0"}};
    const struct decode_prompt asked = {.token = tokens, .tokens = PROMPT};
    const struct decode_sink sink = {.context = run, .iteration = see_iteration};
    const struct hparams *shape = engine_hparams(rig->engine);
    struct scripted policy = {.base = {&scripted_class}, .script = script};
    struct decode_result result;
    struct decoder *decoder = NULL;
    struct probe *probe = NULL;
    struct header header = {0};
    struct err err = {0};
    for (int i = 0; i < PROMPT; i++)
        tokens[i] = rig->token[i % 12];
    snprintf(model, sizeof model, "model:file=%s", unit_path(folder, "draft.moe"));
    snprintf(tree, sizeof tree, "static:width=%d,depth=4", BRANCHES_WIDTH);
    snprintf(other, sizeof other, "model:file=%s", unit_path(folder, "other.moe"));
    settings.max_tokens = TOKENS;
    settings.filter.temperature = temperature;
    settings.ignore_eos = true;
    settings.draft = (struct strings){named, 2};
    settings.tree = script >= scripts[BRANCHES] ? tree : NULL;
    must(header_init(&header, STREAM_DECODE, "test", "1", 0, NULL, &err), &err);
    header.has_model = true;
    header.model = (struct stream_model){.layers = shape->layers, .moe_layers = hparams_moe_layers(shape),
                                         .experts = hparams_moe_layers(shape) ? shape->router.experts : 0,
                                         .top_k = hparams_moe_layers(shape) ? shape->router.top_k : 0, .vocab = shape->vocab,
                                         .hidden = shape->hidden};
    must(writer_open(&run->recorder.writer, unit_path(folder, "r.moes"), &header, &err), &err);
    must(decoder_open(&decoder, &setup, &err), &err);
    policy_close(&decoder->policy);
    decoder->policy = &policy.base;
    must(probe_open(&probe, decoder, &setup, 8, &err), &err);
    must(decode_record_begin(&run->recorder, &prompt, 0, &err), &err);
    must(decoder_run(decoder, &asked, &sink, &result, &err), &err);
    assert_int_equal(result.tokens, TOKENS);
    must(probe_run(probe, decoder, &asked, &result, put_draft, &run->recorder, &err), &err);
    must(decode_record_done(&run->recorder, &prompt, &result, &err), &err);
    must(writer_close(&run->recorder.writer, &err), &err);
    probe_close(&probe);
    decoder_close(&decoder);
    header_free(&header);
}

/* ---- the same without a model ---- */

struct tally { long exact, guessed, accepted, reviewed; };

static void compare(const struct live *live, const struct draft_tree *tree, const int32_t *text, struct tally *tally)
{
    bool right[DRAFTED + 1] = {true}, all = true;       /* all tokens before it are in the text */
    int accepted = 0;
    for (int node = 0; node < live->nodes; node++) {
        if (!right[1 + live->parent[node]]) {
            tally->guessed++;
            all = false;
            continue;
        }
        if (all)
            assert_true(node < tree->nodes);
        /* the number differs if guessed nodes come before it */
        int same = -1;
        for (int other = 0; other < tree->nodes; other++) {
            int32_t way[DRAFTED], live_way[DRAFTED];
            int depth = draft_tree_path(tree, other, way, DRAFTED), live_depth = 0;
            for (int at = node; at >= 0; at = live->parent[at])
                live_depth++;
            for (int at = node, i = live_depth; at >= 0; at = live->parent[at])
                live_way[--i] = live->token[at];
            if (depth == live_depth && !memcmp(way, live_way, (size_t)depth * sizeof *way))
                same = other;
        }
        assert_true(same >= 0);
        assert_int_equal(tree->drafter[same], live->drafter[node]);
        assert_int_equal(tree->reviewer[same], live->reviewer[node]);
        int depth = tree->depth[same];
        right[1 + node] = live->at + depth < TOKENS && live->token[node] == text[live->at + depth];
        accepted += right[1 + node];
        tally->exact++;
        tally->reviewed += live->reviewer[node] >= 0;
    }
    if (live->at + live->accepted < TOKENS - 1)
        assert_int_equal(accepted, live->accepted);
    tally->accepted += accepted;
}

static void grow_again(const char *path, const struct script *script, const struct run *run, struct tally *tally)
{
    struct recording *all = NULL;
    struct recorded_drafter drafter[2];
    struct drafters drafters = {{&drafter[0].base, &drafter[1].base}, 2};
    struct draft_share share[2];
    struct draft_tree tree;
    struct draft_leaf leaf[65];
    struct scripted policy = {.base = {&scripted_class}, .script = script};
    struct err err = {0};
    must(recording_read(&all, path, &err), &err);
    assert_int_equal(all->drafters, 2);
    must(draft_tree_init(&tree, 64, &err), &err);
    const struct growth growth = {&tree, leaf, &policy.base, &drafters, share};
    for (int i = 0; i < run->lives; i++) {
        const struct live *live = &run->live[i];
        const struct recorded_position *position = &all->position[live->at];
        for (int d = 0; d < 2; d++) {
            recorded_open(&drafter[d], all, d);
            drafter[d].guesses = script >= scripts[BRANCHES];
            recorded_begin(&drafter[d], all->text, live->at);
        }
        must(draft_grow(&growth, position->room, &err) < 0 ? -1 : 0, &err);
        compare(live, &tree, all->text->token, tally);
        assert_int_equal(position->nodes, 1 + live->nodes);
        assert_int_equal(position->kept, live->accepted);
        assert_true(position->share > 0);
        for (int d = 0; d < 2; d++) {
            const struct draft_share *was = &all->share[position->share - 1 + (size_t)d];
            int nodes = 0;
            for (int node = 0; node < live->nodes; node++)
                nodes += live->drafter[node] == d;
            assert_int_equal(was->verified, nodes);
            assert_true(recorded_us(&drafter[d]) >= 0 && recorded_bytes(&drafter[d]) >= 0);
            assert_int_equal(recorded_bytes(&drafter[d]) > 0, (d == 1 || script != scripts[LOOKS_UP]) && share[d].steps > 0);
            assert_int_equal(was->steps, share[d].steps);
        }
    }
    draft_tree_free(&tree);
    recording_free(&all);
}

static void drafts_grow_again_as_they_did(void **state)
{
    (void)state;
    for (size_t s = 0; s < SCRIPTS; s++) {
        struct tally tally = {0};
        for (uint64_t seed = 1; seed <= (unit_brief() ? 1 : 4); seed++) {
            char *folder = unit_folder();
            struct chance chance = {seed};
            struct hparams shape = tiny_shape(&chance);
            struct run run = {.lives = 0};
            struct err err = {0};
            struct rig rig;
            must(tiny_write(unit_path(folder, "target.moe"), &shape, FORMAT_F32, seed, &err), &err);
            must(tiny_write(unit_path(folder, "draft.moe"), &shape, FORMAT_Q4, seed, &err), &err);
            must(tiny_write(unit_path(folder, "other.moe"), &shape, FORMAT_FP8, seed, &err), &err);
            rig_open(&rig, unit_path(folder, "target.moe"), device_name("host"));
            rig_engine(&rig, (struct engine_setup){.max_rows = 128, .max_logit_rows = 128}, 8);
            for (int i = 0; i < RIG_TOKENS; i++)
                rig.token[i] %= engine_hparams(rig.engine)->vocab;
            record(&rig, folder, scripts[s], seed % 2 ? 0 : 0.9, &run);
            grow_again(unit_path(folder, "r.moes"), scripts[s], &run, &tally);
            rig_close(&rig);
            unit_remove(folder);
        }
        print_message("# script %zu: %ld nodes exact, %ld after wrong ones, %ld accepted, %ld reviewed\n", s, tally.exact,
                      tally.guessed, tally.accepted, tally.reviewed);
        assert_true(unit_brief() || (tally.exact > 200 && tally.accepted > 50));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_grow_again_as_they_did),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
