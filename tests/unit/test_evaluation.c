/* How well heads guess (instruments/evaluation.h): every draft equals that of a drafter that reads the text anew up to that
 * point; the counts are computed here independently from these drafts; decoding gives the same counts. */
#include "tests/unit/heads.h"

#include "common/instruments/evaluation.h"
#include "common/decode/grow.h"
#include "common/policy/shape.h"

enum { LENGTH = 4, DEPTH = 4, HIDDEN = 192, NODES = 64, VOCAB = 2048 };
#define TREE "dynamic:total=12,depth=4,topk=3"

static struct heads_rig rig;
static struct err err;

static int open_rig(void **state) { (void)state; heads_open(&rig); return 0; }
static int close_rig(void **state) { (void)state; heads_close(&rig); return 0; }

/* Converts the heads of the fixtures, random and trained, to files in the rig's folder. */
static const char *convert(const char *name)
{
    static const char *const trained[] = {"trained-eagle1", "trained-eagle3", "trained-jakiro", "trained-kangaroo"};
    static char file[64];
    const char *source = heads_published(name);
    char folder[64];
    for (size_t i = 0; i < sizeof trained / sizeof *trained; i++)
        if (!strcmp(trained[i], name)) {
            snprintf(folder, sizeof folder, "heads/%s", name + strlen("trained-"));
            source = heads_path("models/pocket", folder);
        }
    snprintf(file, sizeof file, "%s.moe", name);
    struct model *model = heads_convert(&rig, source, file);
    model_close(&model);
    return unit_path(rig.folder, file);
}

/* ---- a text with its states ---- */

struct stated {
    int32_t token[HEADS_TOKENS];
    uint8_t mask[HEADS_TOKENS];
    int tokens;
    float *state[FEATURES_MAX];
    struct feature_request wanted;
};

static int take_states(void *context, const struct forward *piece, int position, struct err *fault)
{
    struct stated *text = context;
    const size_t row = HIDDEN * sizeof(float), bytes = (size_t)piece->rows * row;
    for (int i = 0; i < text->wanted.count; i++)
        queue_download(rig.device, text->state[i] + (size_t)position * HIDDEN,
                       buffer_part(piece->features, (uint64_t)i * bytes, bytes), bytes);
    return queue_wait(rig.device, fault);
}

static void read_states(struct stated *text, const struct evaluation *evaluation)
{
    const struct batch options = {.features = &text->wanted};
    struct sequence *sequence = NULL;
    struct forward forward;
    text->wanted = *evaluation_states(evaluation);
    for (int i = 0; i < text->wanted.count; i++)
        text->state[i] = calloc(HEADS_TOKENS * HIDDEN, sizeof(float));
    must(sequence_open(&sequence, rig.engine, HEADS_TOKENS, &err), &err);
    must(engine_prompt(rig.engine, sequence, text->token, text->tokens, &options, take_states, text, &forward, &err),
               &err);
    sequence_close(&sequence);
}

static void free_states(struct stated *text)
{
    for (int i = 0; i < text->wanted.count; i++)
        free(text->state[i]);
}

/* ---- drafts from scratch ---- */

struct scratch {
    struct drafters drafters;
    struct feature_request features;
    struct sequence *sequence;
    const int32_t *token;
};

static int show_piece(void *context, const struct forward *piece, int position, struct err *fault)
{
    struct scratch *scratch = context;
    int32_t row[HEADS_TOKENS];
    const struct target_view view = {.forward = piece, .features = &scratch->features, .position = position,
                                     .token = scratch->token + position, .kept = row, .kept_rows = piece->rows, .prompt = true};
    for (int i = 0; i < piece->rows; i++)
        row[i] = i;
    return drafters_observe(&scratch->drafters, &view, fault);
}

/* Returns how many tokens after the first n a chain, or a tree, drafts correctly at committed length n. */
static int draft_anew(const char *head, const struct stated *text, int n, const char *tree)
{
    char words[1300];
    const char *const list[] = {words};
    const struct drafter_setup setup = {.vocab = VOCAB, .positions = 2048, .target = rig.engine, .choice = DRAFT_COUPLED,
                                        .probabilities = true, .filter = {.top_p = 1}};
    struct scratch scratch = {.token = text->token};
    struct shape *shape = NULL;
    struct policy *policy = NULL;
    struct draft_tree draft = {0};
    struct draft_leaf leaf[NODES + 1];
    struct draft_share share[DRAFTERS_MAX];
    struct forward forward;
    snprintf(words, sizeof words, "head:file=%s", head);
    must(drafters_open(&scratch.drafters, list, 1, &setup, &err), &err);
    must(drafters_features(&scratch.drafters, &scratch.features, &err), &err);
    must(sequence_open(&scratch.sequence, rig.engine, 3 * HEADS_TOKENS, &err), &err);
    must(draft_tree_init(&draft, NODES, &err), &err);
    must(shape_open(&shape, tree, &err), &err);
    const struct policy_setup about = {.drafters = 1, .draft_length = tree ? DEPTH : LENGTH, .max_length = 64, .shape = shape};
    must(policy_open(&policy, "static", &about, &err), &err);
    const struct draft_text begun = {scratch.sequence, 2 * HEADS_TOKENS, {0}};
    const struct batch options = {.features = &scratch.features};
    must(drafters_begin(&scratch.drafters, &begun, text->token, n - 1, &err), &err);
    must(engine_prompt(rig.engine, scratch.sequence, text->token, n - 1, &options, show_piece, &scratch, &forward, &err),
               &err);
    must(drafters_commit(&scratch.drafters, text->token + n - 1, 1, &err), &err);
    const struct growth growth = {&draft, leaf, policy, &scratch.drafters, share};
    if (draft_grow(&growth, 64, &err) < 0)
        fail_msg("%s", err.text);
    int right = 0;
    for (int node = -1, found = 1; found && n + right < text->tokens; right += found) {
        found = 0;
        for (int child = 0; child < draft.nodes && !found; child++)
            if (draft.parent[child] == node && draft.token[child] == text->token[n + right]) {
                node = child;
                found = 1;
            }
    }
    policy_close(&policy);
    shape_close(&shape);
    draft_tree_free(&draft);
    sequence_close(&scratch.sequence);
    drafters_close(&scratch.drafters);
    return right;
}

/* ---- independent counts ---- */

static void same(int64_t is, int64_t should, const char *head, const char *what, int at)
{
    if (is != should)
        fail_msg("%s: %s, position %d: %lld, not %lld", head, what, at + 1, (long long)is, (long long)should);
}

/* Counts the answers [first, end) of the text; right[n]: correct tokens of a draft at committed length n with `left` tokens
 * to come. */
static void count(const struct stated *text, const int *right, bool all, int positions, struct evaluation_drafts *drafts,
                  int64_t *iterations)
{
    for (int first = 1; first < text->tokens; first++) {
        int end = first;
        if (!text->mask[first] || (first > 1 && text->mask[first - 1]))
            continue;
        while (end < text->tokens && text->mask[end])
            end++;
        for (int n = first + 1; n < end; n += all ? 1 : right[n] + 1) {
            const int good = right[n] < end - n ? right[n] : end - n;
            *iterations += 1;
            for (int i = 0; i < positions && n + i < end; i++) {
                drafts->tried[i]++;
                drafts->reached[i] += good >= i;
                drafts->right[i] += good > i;
            }
        }
    }
}

static void check_drafts(const struct evaluation_drafts *is, const struct evaluation_drafts *should, const char *head,
                         const char *what)
{
    for (int i = 0; i < EVALUATION_LENGTH_MAX; i++) {
        same(is->tried[i], should->tried[i], head, what, i);
        same(is->reached[i], should->reached[i], head, what, i);
        same(is->right[i], should->right[i], head, what, i);
    }
}

static struct evaluation *open_evaluation(const char *head, bool decoding, int limit)
{
    const struct evaluation_setup setup = {.engine = rig.engine, .head = head, .length = LENGTH, .tree = TREE, .limit = limit,
                                           .decoding = decoding};
    struct evaluation *evaluation = NULL;
    must(evaluation_open(&evaluation, &setup, &err), &err);
    return evaluation;
}

static void judge(const char *head, struct stated *text, struct evaluation_counts *counts)
{
    struct evaluation *evaluation = open_evaluation(head, false, 0);
    read_states(text, evaluation);
    const struct evaluation_text one = {text->token, text->mask, text->tokens, (const float *const *)text->state};
    *counts = (struct evaluation_counts){0};
    must(evaluation_text(evaluation, &one, counts, &err), &err);
    free_states(text);
    evaluation_close(&evaluation);
}

static void check_text(const char *name, struct stated *text)
{
    const char *head = convert(name);
    struct evaluation_counts counts, should = {0};
    int chain[HEADS_TOKENS] = {0}, tree[HEADS_TOKENS] = {0};
    int64_t places = 0;
    const int positions = !strcmp(name, "medusa") ? 2 : !strcmp(name, "hydra_prefix") ? 1 : LENGTH;   /* by its heads */
    judge(head, text, &counts);
    for (int n = 2; n < text->tokens; n++)
        if (text->mask[n] && text->mask[n - 1]) {
            chain[n] = draft_anew(head, text, n, NULL);
            tree[n] = draft_anew(head, text, n, TREE);
        }
    count(text, chain, true, positions, &should.all, &places);
    count(text, chain, false, positions, &should.chain.begun, &should.chain.iterations);
    count(text, tree, false, DEPTH, &should.tree.begun, &should.tree.iterations);
    check_drafts(&counts.all, &should.all, name, "all");
    check_drafts(&counts.chain.begun, &should.chain.begun, name, "chains");
    check_drafts(&counts.tree.begun, &should.tree.begun, name, "trees");
    same(counts.chain.iterations, should.chain.iterations, name, "iterations", 0);
    same(counts.tree.iterations, should.tree.iterations, name, "iterations with trees", 0);
    same(counts.tokens, places, name, "tokens", 0);
    same(counts.texts, 1, name, "texts", 0);
}

static void text_of(struct stated *text, const struct heads_text *from, int answer)
{
    *text = (struct stated){.tokens = from->prompt + answer};
    memcpy(text->token, from->token, (size_t)text->tokens * sizeof *text->token);
    memset(text->mask + from->prompt, 1, (size_t)answer);
}

static void text_counts_the_drafts_that_a_new_drafter_makes(void **state)
{
    static const char *const names[] = {"trained-eagle1", "trained-jakiro", "trained-kangaroo", "medusa", "hydra_prefix"};
    struct stated text;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i += unit_brief() ? 2 : 1) {
        text_of(&text, &rig.text[i % HEADS_TEXTS], unit_brief() ? 5 : 12);
        check_text(names[i], &text);
    }
}

/* Tokens between two answers are read, not drafted; an answer of one token starts no draft; an answer at the very beginning
 * is drafted from its second token on, because one token must have been read. */
static void answers_are_walked_one_by_one(void **state)
{
    struct stated text;
    (void)state;
    const int at = rig.text[1].prompt, answer = unit_brief() ? 4 : 8;
    text_of(&text, &rig.text[1], 2 * answer + 4);
    text.mask[at + answer] = text.mask[at + answer + 1] = text.mask[at + answer + 3] = 0;
    check_text("trained-eagle3", &text);
    if (!unit_brief())
        check_text("trained-kangaroo", &text);
    text_of(&text, &rig.text[0], 0);
    text.tokens = 8;
    memset(text.mask, 1, 8);
    check_text("trained-eagle1", &text);
}

static void decoding_counts_the_same(void **state)
{
    static const char *const names[] = {"trained-eagle1", "trained-eagle3", "trained-jakiro", "trained-kangaroo",
                                        "eagle1_nobias", "jakiro_star", "medusa", "hydra", "hydra_prefix"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i += unit_brief() ? 2 : 1) {
        const struct heads_text *from = &rig.text[i % HEADS_TEXTS];
        const int answer = unit_brief() ? 8 : from->tokens - from->prompt;
        const char *head = convert(names[i]);
        struct evaluation *decoding = open_evaluation(head, true, 0);
        struct evaluation_counts by_text, counts = {0};
        struct stated text;
        text_of(&text, from, answer);
        judge(head, &text, &by_text);
        must(evaluation_prompt(decoding, text.token, from->prompt, answer, &counts, &err), &err);
        check_drafts(&counts.chain.begun, &by_text.chain.begun, names[i], "chains");
        check_drafts(&counts.tree.begun, &by_text.tree.begun, names[i], "trees");
        same(counts.chain.iterations, by_text.chain.iterations, names[i], "iterations", 0);
        same(counts.tree.iterations, by_text.tree.iterations, names[i], "iterations with trees", 0);
        same(counts.tokens, by_text.tokens, names[i], "tokens", 0);
        evaluation_close(&decoding);
    }
}

/* The same cut by text length and by limit. */
static void a_limit_cuts_texts_and_not_drafts(void **state)
{
    const struct heads_text *from = &rig.text[2];
    const char *head = convert("trained-jakiro");
    struct evaluation *short_one = open_evaluation(head, true, from->prompt + 9), *long_one = open_evaluation(head, true, 0);
    struct evaluation_counts cut = {0}, given = {0}, by_text;
    struct stated text;
    (void)state;
    assert_int_equal(evaluation_limit(short_one), from->prompt + 9);
    text_of(&text, from, 9);
    judge(head, &text, &by_text);
    must(evaluation_prompt(short_one, from->token, from->prompt, 24, &cut, &err), &err);
    must(evaluation_prompt(long_one, from->token, from->prompt, 9, &given, &err), &err);
    assert_memory_equal(&cut, &given, sizeof cut);
    check_drafts(&cut.chain.begun, &by_text.chain.begun, "jakiro", "chains");
    check_drafts(&cut.tree.begun, &by_text.tree.begun, "jakiro", "trees");
    same(cut.tokens, 8, "jakiro", "tokens", 0);
    assert_int_equal(evaluation_prompt(short_one, from->token, from->prompt, 24, &cut, &err), 0);
    same(cut.texts, 2, "jakiro", "texts", 0);
    evaluation_close(&short_one);
    evaluation_close(&long_one);
    short_one = open_evaluation(head, true, from->prompt);
    assert_int_equal(evaluation_prompt(short_one, from->token, from->prompt, 24, &cut, &err), -1);
    assert_non_null(strstr(err.text, "so no answer fits"));
    same(cut.texts, 2, "jakiro", "texts", 0);
    err_clear(&err);
    evaluation_close(&short_one);
}

static void shares_follow_from_counts(void **state)
{
    struct evaluation *evaluation = open_evaluation(convert("medusa"), false, 0);
    struct evaluation_counts counts = {
        .texts = 3, .tokens = 30, .all = {{20, 16}, {20, 10}, {10, 4}}, .chain = {12, {{12, 10}, {12, 6}, {6, 3}}},
        .tree = {10, {{10}, {10}, {7}}}};
    struct evaluation_shares shares;
    struct train_eval eval = {0};
    (void)state;
    evaluation_record(evaluation, &counts, &shares, &eval);
    assert_int_equal(eval.texts, 3);
    assert_int_equal(eval.positions, 2);
    assert_int_equal(eval.position[1], 2);
    assert_true(fabs(eval.acceptance[0] - 0.5) < 1e-12 && fabs(eval.acceptance[1] - 0.25) < 1e-12);
    assert_true(fabs(eval.conditional[0] - 0.5) < 1e-12 && fabs(eval.conditional[1] - 0.4) < 1e-12);
    assert_true(fabs(eval.begun[0] - 0.5) < 1e-12 && fabs(eval.begun[1] - 0.3) < 1e-12);
    assert_true(fabs(eval.tokens_per_iteration - 2.5) < 1e-12 && fabs(eval.tree_tokens_per_iteration - 3) < 1e-12);
    assert_int_equal(eval.iterations, 12);
    assert_int_equal(eval.tree_iterations, 10);
    counts = (struct evaluation_counts){.texts = 1};            /* answers of one token: no drafts */
    evaluation_record(evaluation, &counts, &shares, &eval);
    assert_int_equal(eval.positions, 0);
    assert_true(isnan(eval.tokens_per_iteration));
    evaluation_close(&evaluation);
}

static void what_cannot_be_judged_is_said(void **state)
{
    const char *head = convert("trained-eagle1");
    struct evaluation *evaluation = open_evaluation(head, false, 0);
    struct evaluation_counts counts = {.texts = 5};
    struct evaluation_setup setup = {.engine = rig.engine, .head = head, .length = 4, .tree = "bush"};
    const int32_t wrong[] = {5, 6, VOCAB};
    const uint8_t mask[] = {0, 1, 1};
    struct evaluation *none = NULL;
    (void)state;
    const struct evaluation_text text = {wrong, mask, 3, NULL};
    assert_int_equal(evaluation_text(evaluation, &text, &counts, &err), -1);
    assert_non_null(strstr(err.text, "token 2048 is outside the vocabulary"));
    assert_int_equal(counts.texts, 5);
    err_clear(&err);
    assert_int_equal(evaluation_open(&none, &setup, &err), -1);
    assert_non_null(strstr(err.text, "--tree"));
    err_clear(&err);
    setup.tree = NULL;
    setup.head = rig.path;
    assert_int_equal(evaluation_open(&none, &setup, &err), -1);
    assert_null(none);
    err_clear(&err);
    evaluation_close(&evaluation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_counts_the_drafts_that_a_new_drafter_makes),
        cmocka_unit_test(answers_are_walked_one_by_one),
        cmocka_unit_test(decoding_counts_the_same),
        cmocka_unit_test(a_limit_cuts_texts_and_not_drafts),
        cmocka_unit_test(shares_follow_from_counts),
        cmocka_unit_test(what_cannot_be_judged_is_said),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
