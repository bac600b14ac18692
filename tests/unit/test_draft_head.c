/* A draft head as drafter: its chains and trees equal those of an independent program (tests/golden/heads), however the text
 * was built; every proposal equals the output of its network after reading everything anew; decoding with the trained heads
 * takes as many iterations as that program counted. */
#include "tests/unit/heads.h"

#include "common/decode/decode.h"
#include "common/decode/grow.h"
#include "common/draft/states.h"
#include "common/head/head.h"
#include "common/policy/shape.h"
#include "common/train/weights.h"
#include "kernels/plain/propose.h"
#include "tests/unit/tiny.h"

enum { NODES = 120, VOCAB = 2048, NUMBER = 3, LONG = 700 };

/* A drafter on a text that the target reads as in decoding. */
struct session {
    struct drafters drafters;
    struct sequence *sequence;
    struct feature_request features;
    struct draft_tree tree;
    struct draft_leaf leaf[NODES + 1];
    struct draft_share share[DRAFTERS_MAX];
    int32_t text[LONG];
    int length;
};

static struct err err;

static void session_open(struct session *session, const char *const *drafts, int count, enum draft_choice choice,
                         bool proposals, const struct sample_filter *filter)
{
    const struct drafter_setup setup = {.vocab = VOCAB, .positions = 2048, .target = rig.engine, .choice = choice,
                                        .proposals = proposals, .probabilities = true, .filter = *filter};
    memset(session, 0, sizeof *session);
    must(drafters_open(&session->drafters, drafts, count, &setup, &err), &err);
    must(drafters_features(&session->drafters, &session->features, &err), &err);
    must(sequence_open(&session->sequence, rig.engine, LONG + 2 * HEADS_TOKENS, &err), &err);
    must(draft_tree_init(&session->tree, NODES, &err), &err);
}

static void session_close_all(struct session *session)
{
    draft_tree_free(&session->tree);
    sequence_close(&session->sequence);
    drafters_close(&session->drafters);
}

static int show_piece(void *context, const struct forward *piece, int position, struct err *fault)
{
    struct session *session = context;
    int32_t row[HEADS_TOKENS];
    const struct target_view view = {.forward = piece, .features = &session->features, .position = position,
                                     .token = session->text + position, .kept = row, .kept_rows = piece->rows, .prompt = true};
    for (int i = 0; i < piece->rows; i++)
        row[i] = i;
    return drafters_observe(&session->drafters, &view, fault);
}

/* Starts a new text of these tokens; all but the last are the prompt. */
static void session_begin(struct session *session, const int32_t *token, int count, uint64_t key)
{
    const struct draft_text text = {session->sequence, LONG, {.key = key}};
    const struct batch options = {.features = session->features.count ? &session->features : NULL};
    struct forward forward;
    memcpy(session->text, token, (size_t)count * sizeof *token);
    session->length = count;
    draft_tree_clear(&session->tree);
    must(sequence_truncate(session->sequence, 0, &err), &err);
    must(drafters_begin(&session->drafters, &text, token, count - 1, &err), &err);
    must(engine_prompt(rig.engine, session->sequence, token, count - 1, &options, show_piece, session, &forward, &err),
               &err);
    must(drafters_commit(&session->drafters, token + count - 1, 1, &err), &err);
}

/* Verifies the root and keeps `accepted` of the next tokens; rows between them are dropped. */
static void session_go_on(struct session *session, const int32_t *next, int accepted, struct chance *chance)
{
    int32_t token[HEADS_TOKENS], parent[HEADS_TOKENS], kept[HEADS_TOKENS], node[HEADS_TOKENS];
    int rows = 0, count = 0, last = -1;
    struct forward forward;
    for (int at = 0; at <= accepted; at++) {
        for (int i = at ? chance_range(chance, 0, 2) : 0; i > 0; i--) {
            token[rows] = chance_range(chance, 0, VOCAB - 1);
            parent[rows++] = last;
        }
        token[rows] = at ? next[at - 1] : session->text[session->length - 1];
        parent[rows] = last;
        last = kept[count++] = rows++;
    }
    const struct batch batch = {.rows = rows, .token = token, .parent = parent, .logit_rows = rows, .resume = true,
                                .features = session->features.count ? &session->features : NULL};
    const struct target_view view = {.forward = &forward, .features = &session->features, .position = session->length - 1,
                                     .token = token, .kept = kept, .kept_rows = count};
    must(engine_forward(rig.engine, session->sequence, &batch, &forward, &err), &err);
    must(drafters_observe(&session->drafters, &view, &err), &err);
    for (int i = 0; i < count; i++)
        node[i] = forward.node[kept[i]];
    must(sequence_commit(session->sequence, node, count, &err), &err);
    must(drafters_commit(&session->drafters, next, accepted + 1, &err), &err);
    for (int i = 0; i <= accepted; i++)
        session->text[session->length++] = next[i];
    draft_tree_clear(&session->tree);
}

static void draw_draft(struct session *session, const char *tree, int length)
{
    struct shape *shape = NULL;
    struct policy *policy = NULL;
    must(shape_open(&shape, tree, &err), &err);
    const struct policy_setup setup = {.drafters = 1, .draft_length = length, .max_length = DRAFT_LENGTH_MAX, .shape = shape,
                                       .experts = 32, .top_k = 4};
    must(policy_open(&policy, "static", &setup, &err), &err);
    const struct growth growth = {&session->tree, session->leaf, policy, &session->drafters, session->share};
    if (draft_grow(&growth, 64, &err) < 0)
        fail_msg("%s", err.text);
    policy_close(&policy);
    shape_close(&shape);
}

static void check_chain(const struct session *session, const json_t *chain, const char *token_key, const char *logp_key)
{
    const json_t *tokens = json_object_get(chain, token_key), *logp = json_object_get(chain, logp_key);
    assert_int_equal(session->tree.nodes, json_array_size(tokens));
    for (int at = 0; at < session->tree.nodes; at++) {
        assert_int_equal(session->tree.parent[at], at - 1);
        assert_int_equal(session->tree.token[at], json_integer_value(json_array_get(tokens, (size_t)at)));
        assert_true(fabs((double)session->tree.log_probability[at] -
                         json_number_value(json_array_get(logp, (size_t)at))) < 1e-3);
    }
}

/* The tree has exactly the golden's nodes; a dynamic tree has them in the same order. */
static void check_tree(const struct session *session, const json_t *golden)
{
    const json_t *tokens = json_object_get(golden, "tokens"), *parents = json_object_get(golden, "parents");
    const bool dynamic = strcmp(json_string_value(json_object_get(golden, "kind")), "static") != 0;
    const int count = (int)json_array_size(tokens);
    const struct draft_tree *tree = &session->tree;
    int position[NODES + 1] = {-1};
    double sum[NODES + 1] = {0};
    assert_int_equal(tree->nodes, count);
    for (int i = 0; i < count; i++) {
        const int32_t token = (int32_t)json_integer_value(json_array_get(tokens, (size_t)i));
        const int parent = (int)json_integer_value(json_array_get(parents, (size_t)i));
        int node = 0;
        while (node < count && (tree->parent[node] != position[parent] || tree->token[node] != token))
            node++;
        assert_true(node < count);
        if (dynamic)
            assert_int_equal(node, i);
        position[1 + i] = node;
        sum[1 + i] = sum[parent] + (double)tree->log_probability[node];
        assert_true(fabs(sum[1 + i] - json_number_value(json_array_get(json_object_get(golden, "logp"), (size_t)i))) < 3e-3);
    }
}

static const char *static_tree(const json_t *golden, char *room, size_t bytes)
{
    json_t *paths = json_object_get(golden, "static_paths");
    snprintf(room, bytes, "static:file=%s", unit_path(rig.folder, "tree.json"));
    assert_int_equal(paths ? json_dump_file(paths, unit_path(rig.folder, "tree.json"), 0) : 0, 0);
    return room;
}

/* Reads the text up to this length: as a prompt, or in steps. */
static void come_to(struct session *session, const json_t *golden, struct chance *chance)
{
    const struct heads_text *text = heads_find_text(&rig, json_string_value(json_object_get(golden, "text")));
    const int length = (int)json_integer_value(json_object_get(golden, "length"));
    if (!chance || session->length > length || session->length < text->prompt ||
        memcmp(session->text, text->token, (size_t)session->length * sizeof *text->token))
        session_begin(session, text->token, chance ? text->prompt + 1 : length, 1);
    while (session->length < length) {
        const int max = length - session->length - 1;
        session_go_on(session, text->token + session->length, chance_range(chance, 0, max < 6 ? max : 6), chance);
    }
}

/* As prompts (chance NULL), or one text after another: then earlier drafts must leave no trace. */
static void check_goldens(const char *name, bool parallel, struct chance *chance)
{
    static const struct sample_filter greedy = {0, 1, 0, 0};
    char path[1300], folder[200], room[1300];
    snprintf(path, sizeof path, "head:file=%s%s", unit_path(rig.folder, "head.moe"), parallel ? "" : ",parallel=0");
    snprintf(folder, sizeof folder, "%s/golden.json", name);
    struct model *model = heads_convert(&rig, heads_published(name), "head.moe");
    json_t *golden = heads_json(heads_path("golden/heads", folder)), *trees = json_object_get(golden, "tree");
    const char *drafts[] = {path}, *paths = static_tree(golden, room, sizeof room);
    const json_t *chains = json_object_get(golden, "chain");
    struct session session;
    session_open(&session, drafts, 1, DRAFT_BEST, false, &greedy);
    const size_t each = unit_brief() ? 3 : 1;
    for (size_t i = 0; i < json_array_size(chains); i += each) {
        const json_t *chain = json_array_get(chains, i);
        come_to(&session, chain, chance);
        if (chance && chance_range(chance, 0, 1))
            draw_draft(&session, "dynamic:total=12,depth=3,topk=3", DRAFT_LENGTH_NONE);
        draw_draft(&session, NULL, (int)json_array_size(json_object_get(chain, "tokens")));
        check_chain(&session, chain, parallel ? "parallel_tokens" : "tokens", parallel ? "parallel_logp" : "logp");
    }
    for (size_t i = 0; i < json_array_size(trees); i += each) {
        const json_t *tree = json_array_get(trees, i);
        const char *kind = json_string_value(json_object_get(tree, "kind"));
        const bool dynamic = strcmp(kind, "static") != 0;
        if (dynamic && parallel != (strcmp(kind, "dynamic") != 0))
            continue;
        come_to(&session, tree, chance);
        draw_draft(&session, dynamic ? "dynamic:total=25,depth=6,topk=4" : paths, DRAFT_LENGTH_NONE);
        check_tree(&session, tree);
    }
    session_close_all(&session);
    json_decref(golden);
    model_close(&model);
}

static const struct { const char *name; bool parallel; } HEADS[] = {
    {"eagle1", false}, {"eagle1_nobias", false}, {"eagle3", false}, {"eagle3_default", false}, {"jakiro", false},
    {"jakiro", true}, {"jakiro_star", false}, {"kangaroo", false}, {"medusa", false},
    {"hydra", false}};

static void chains_and_trees_are_those_that_were_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof HEADS / sizeof *HEADS; i++) {
        struct chance chance = {i + 1};
        if (!unit_brief() || i % 3 == 1)
            check_goldens(HEADS[i].name, HEADS[i].parallel, NULL);
        if (!unit_brief() || i % 3 == 2)
            check_goldens(HEADS[i].name, HEADS[i].parallel, &chance);
    }
}

/* Copies head.moe to another file with a changed description. */
static void write_as(const char *name, void (*change)(struct head_params *))
{
    struct model *model = NULL;
    struct weights *weights = NULL;
    struct thread_pool *pool = NULL;
    must(model_open_head(&model, unit_path(rig.folder, "head.moe"), &err), &err);
    struct head_params params = *model_head(model);
    change(&params);
    must(weights_make(&weights, &params, model_hparams(model), &err), &err);
    weights_read(weights, model);
    must(thread_pool_new(&pool, 1, &err), &err);
    const struct weights_file file = {unit_path(rig.folder, name), "other", "test", FORMAT_BF16};
    must(weights_write(weights, &file, pool, &err), &err);
    thread_pool_free(&pool);
    weights_free(&weights);
    model_close(&model);
}

static void guess_next(struct head_params *params) { params->second_next = true; }
static void take_sum(struct head_params *params) { params->second = HEAD_SECOND_SUM; }
static void scale(struct head_params *params) { params->scaled = true; }

enum { CHAINS = 8 };
struct drawn_chain { int32_t token[8]; double logp[8]; };

/* Returns how many of them are drawn. */
static size_t chains_drawn(void) { return unit_brief() ? 3 : CHAINS; }

/* Compares chains of this length, if the golden has some. */
static void draw_chains(struct drawn_chain *out, const char *file, const char *settings, const json_t *golden, int tokens,
                        bool logits)
{
    static const struct sample_filter greedy = {0, 1, 0, 0};
    const json_t *chains = json_object_get(golden, "chain");
    char spec[1300];
    struct session session;
    snprintf(spec, sizeof spec, "head:file=%s%s", unit_path(rig.folder, file), settings);
    session_open(&session, (const char *[]){spec}, 1, DRAFT_BEST, logits, &greedy);
    for (size_t i = 0; i < chains_drawn(); i++) {
        come_to(&session, json_array_get(chains, i), NULL);
        draw_draft(&session, NULL, tokens);
        assert_int_equal(session.tree.nodes, tokens);
        for (int at = 0; at < tokens; at++) {
            out[i].token[at] = session.tree.token[at];
            out[i].logp[at] = (double)session.tree.log_probability[at];
        }
    }
    session_close_all(&session);
}

static void expect_token(const struct drawn_chain *chain, int at, const json_t *golden, const char *key, int from)
{
    char logp[32];
    snprintf(logp, sizeof logp, "%s", key);
    memcpy(strstr(logp, "tokens"), "logp", 5);
    assert_int_equal(chain->token[at], json_integer_value(json_array_get(json_object_get(golden, key), (size_t)from)));
    assert_true(fabs(chain->logp[at] - json_number_value(json_array_get(json_object_get(golden, logp), (size_t)from))) < 1e-3);
}

/* Table 4 of the paper: if the second branch guesses the next token, it gives the last node but one; the golden has the
 * result of a forward's contrast, which gives its last token here. */
static void check_next(const json_t *golden, bool logits)
{
    static struct drawn_chain next[CHAINS], two[CHAINS], one[CHAINS], alone[CHAINS], parallel[CHAINS];
    draw_chains(next, "next.moe", "", golden, 5, logits);
    draw_chains(two, "next.moe", ",parallel=0,contrast=1", golden, 2, logits);
    draw_chains(one, "next.moe", "", golden, 1, logits);
    draw_chains(alone, "next.moe", ",contrast=0", golden, 5, logits);
    draw_chains(parallel, "head.moe", "", golden, 2, logits);
    for (size_t i = 0; i < chains_drawn(); i++) {
        const json_t *chain = json_array_get(json_object_get(golden, "chain"), i);
        for (int at = 0; at < 5; at++)
            expect_token(&alone[i], at, chain, "tokens", at);
        for (int at = 0; at < 3; at++)
            expect_token(&next[i], at, chain, "tokens", at);
        expect_token(&next[i], 3, chain, "parallel_tokens", 4);
        expect_token(&one[i], 0, chain, "tokens", 0);
        assert_int_equal(two[i].token[0], parallel[i].token[1]);
        assert_true(fabs(two[i].logp[0] - parallel[i].logp[1]) < 1e-6);
    }
}

/* Options given with the drafter act as if they were in the file, and change the result. */
static void check_same(const json_t *golden, const char *file, const char *settings, bool logits)
{
    static struct drawn_chain as_file[CHAINS], said[CHAINS], published[CHAINS];
    int others = 0;
    draw_chains(as_file, file, "", golden, 5, logits);
    draw_chains(said, "head.moe", settings, golden, 5, logits);
    draw_chains(published, "head.moe", "", golden, 5, logits);
    for (size_t i = 0; i < chains_drawn(); i++)
        for (int at = 0; at < 5; at++) {
            assert_int_equal(as_file[i].token[at], said[i].token[at]);
            assert_true(fabs(as_file[i].logp[at] - said[i].logp[at]) < 1e-6);
            others += fabs(as_file[i].logp[at] - published[i].logp[at]) > 1e-2;
        }
    assert_true(others >= (unit_brief() ? 1 : 4));
}

static void branches_draft_as_the_head_was_trained_or_as_was_said(void **state)
{
    (void)state;
    struct model *model = heads_convert(&rig, heads_published("jakiro"), "head.moe");
    json_t *golden = heads_json(heads_path("golden/heads", "jakiro/golden.json"));
    write_as("next.moe", guess_next);
    write_as("sum.moe", take_sum);
    for (int logits = unit_brief(); logits < 2; logits++) {
        check_next(golden, logits);
        check_same(golden, "sum.moe", ",contrast=0", logits);
    }
    json_decref(golden);
    model_close(&model);
    model = heads_convert(&rig, heads_published("jakiro_star"), "head.moe");
    golden = heads_json(heads_path("golden/heads", "jakiro_star/golden.json"));
    write_as("scaled.moe", scale);
    check_same(golden, "scaled.moe", ",scaled=1", false);
    json_decref(golden);
    model_close(&model);
}

/* Kangaroo's six tokens, and fewer by its own rule: none after a token less likely than the threshold. */
static void doubtful_tokens_are_the_last(void **state)
{
    static const struct sample_filter greedy = {0, 1, 0, 0};
    char spec[2][1300];
    struct session session;
    int shorter = 0;
    (void)state;
    struct model *model = heads_convert(&rig, heads_published("kangaroo"), "head.moe");
    json_t *golden = heads_json(heads_path("golden/heads", "kangaroo/golden.json")), *chains = json_object_get(golden, "chain");
    snprintf(spec[0], sizeof spec[0], "head:file=%s", unit_path(rig.folder, "head.moe"));
    snprintf(spec[1], sizeof spec[1], "head:file=%s,stop=%g", unit_path(rig.folder, "head.moe"),
             json_number_value(json_object_get(golden, "threshold")));
    for (int stops = 0; stops < 2; stops++) {
        struct chance chance = {11};
        session_open(&session, (const char *[]){spec[stops]}, 1, DRAFT_BEST, false, &greedy);
        for (size_t i = 0; i < json_array_size(chains); i++) {
            const json_t *chain = json_array_get(chains, i);
            const int drafted = (int)json_integer_value(json_object_get(chain, "drafted"));
            come_to(&session, chain, &chance);
            draw_draft(&session, NULL, 6);
            shorter += drafted < 6;
            if (!stops)
                check_chain(&session, chain, "six", "six_logp");
            else
                assert_int_equal(session.tree.nodes, drafted);
        }
        session_close_all(&session);
    }
    assert_true(shorter > 10);
    json_decref(golden);
    model_close(&model);
}

/* Proposes children of the root, on a new tree. */
static void ask_root(struct session *session, int siblings)
{
    struct drafter *drafter = session->drafters.item[0];
    const struct draft_leaf root = {-1, siblings};
    draft_tree_clear(&session->tree);
    assert_int_equal(drafter->class->propose(drafter, &session->tree, &root, 1, 1, &err), siblings);
}

/* Requesting more children later gives the same result as requesting all at once. */
static void the_root_can_be_asked_again(void **state)
{
    static const struct sample_filter greedy = {0, 1, 0, 0};
    static const char *const names[] = {"eagle1", "eagle3", "jakiro", "kangaroo", "medusa", "hydra"};
    enum { CHILDREN = 9 };
    char path[1300];
    const struct heads_text *text = &rig.text[0];
    const char *drafts[] = {path};
    (void)state;
    snprintf(path, sizeof path, "head:file=%s", unit_path(rig.folder, "head.moe"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model *model = heads_convert(&rig, heads_published(names[i]), "head.moe");
        struct session session;
        int32_t token[CHILDREN];
        session_open(&session, drafts, 1, DRAFT_BEST, false, &greedy);
        session_begin(&session, text->token, text->prompt, 1);
        ask_root(&session, CHILDREN);
        memcpy(token, session.tree.token, sizeof token);
        session_begin(&session, text->token, text->prompt, 1);
        ask_root(&session, 1);
        assert_int_equal(session.tree.token[0], token[0]);
        ask_root(&session, CHILDREN);
        assert_memory_equal(session.tree.token, token, sizeof token);
        session_close_all(&session);
        model_close(&model);
    }
}

/* ---- proposals below any node ---- */

/* Runs the network over text and path from the first token on: logits after the last token, in the target's order. */
static void read_anew(struct head *head, const struct session *session, const struct draft_tree *tree, int node, float *logits)
{
    const struct head_params *params = head_description(head);
    struct feature_request wanted = {.count = params->states};
    struct sequence *sequence = NULL;
    struct forward forward;
    struct head_forward made;
    int32_t way[NODES + 1], index[HEADS_TOKENS];
    const int depth = draft_tree_path(tree, node, way, NODES), rows = session->length - 1;
    const int32_t last = rows - 1, root = -1;
    for (int i = 0; i < wanted.count; i++)
        wanted.layer[i] = params->state[i];
    for (int i = 0; i < rows; i++)
        index[i] = i;
    must(sequence_open(&sequence, rig.engine, HEADS_TOKENS, &err), &err);
    must(engine_prompt(rig.engine, sequence, session->text, rows, &(struct batch){.features = &wanted}, NULL, NULL,
                             &forward, &err), &err);
    must(head_begin(head, HEADS_TOKENS, &err), &err);
    const bool guesses = params->heads > 0;
    const struct head_batch text = {.rows = rows, .token = session->text + 1, .state = forward.features, .state_rows = rows,
                                    .state_row = index, .logit_row = &last, .logit_rows = !guesses};
    must(head_run(head, &text, &made, &err) || head_commit(head, index, rows, &err) ? -1 : 0, &err);
    for (int at = 0; at < depth && !guesses; at++) {
        const struct head_batch one = {.rows = 1, .token = way + at, .parent = at ? NULL : &root, .logit_rows = 1};
        must(head_run(head, &one, &made, &err), &err);
    }
    for (int at = depth; at > 0; at--)                          /* the text's newest token, then the path */
        way[at] = way[at - 1];
    way[0] = session->text[session->length - 1];
    assert_true(!guesses || depth < params->heads);
    if (guesses)
        must(head_guess(head, &(struct head_guesses){.first = depth, .heads = 1, .rows = 1, .token = way}, &made, &err),
                   &err);
    for (int v = 0; v < VOCAB; v++)
        logits[v] = params->target_id ? -INFINITY : made.logits[0][v];
    for (int i = 0; params->target_id && i < params->draft_vocab; i++)
        logits[params->target_id[i]] = made.logits[0][i];
    sequence_close(&sequence);
}

/* The key of a node's own random numbers: text, length, drafter, and the tokens on the path. */
static uint64_t own_key(uint64_t key, int length, int number, const int32_t *way, int depth)
{
    for (int step = -2; step < depth; step++) {
        const uint32_t which = (uint32_t)(step == -2 ? length : step == -1 ? number : way[step]);
        const struct philox block = philox((struct philox){{1u << 30, which, 0, 0}}, key);
        key = (uint64_t)block.word[0] << 32 | block.word[1];
    }
    return key;
}

/* Children that this drafter added below a node are correct, each in its order and with its probability. */
static int check_children(struct head *head, const struct session *session, int number, int node, enum draft_choice choice,
                          bool proposals, const struct sample_filter *filter, uint64_t key)
{
    static float logits[VOCAB], log_probability[8];
    static double value[VOCAB];
    static int32_t kept[VOCAB];
    const struct draft_tree *tree = &session->tree;
    int32_t way[NODES], token[8];
    int children[8], count = 0;
    for (int other = 0; other < tree->nodes; other++)
        if (tree->parent[other] == node && tree->drafter[other] == number)
            children[count++] = other;
    if (!count)
        return 0;
    const int depth = draft_tree_path(tree, node, way, NODES);
    struct sample_draw draw = {key, (uint32_t)(session->length + depth), 0, 0};
    if (choice == DRAFT_DRAWN)
        draw.key = own_key(key, session->length, number, way, depth);
    read_anew(head, session, tree, node, logits);
    const int found = propose_tokens(logits, VOCAB, filter, choice == DRAFT_BEST ? NULL : &draw, count, kept, value, token,
                                     log_probability);
    assert_int_equal(found, count);
    if (proposals)
        sample_probabilities(logits, VOCAB, filter, kept, value);
    for (int i = 0; i < count; i++) {
        const int child = children[i];
        const double said = choice == DRAFT_DRAWN ? log(value[token[i]]) : (double)log_probability[i];
        assert_int_equal(tree->token[child], token[i]);
        assert_true(fabs((double)tree->log_probability[child] - said) < 1e-5);
        assert_int_equal(tree->proposal[child] != NULL, proposals);
        for (int v = 0; proposals && v < VOCAB; v++)
            assert_true(tree->proposal[child][v] == (float)value[v] && (logits[v] > -INFINITY || value[v] == 0));
    }
    return count;
}

/* Adds nodes of another drafter, one below the other. */
static void add_strangers(struct session *session, struct chance *chance)
{
    for (int i = chance_range(chance, 0, 4), node = -1; i > 0; i--) {
        const int32_t token = chance_range(chance, 0, VOCAB - 1);
        int below = draft_tree_add(&session->tree, node, token, NAN, NUMBER);
        node = chance_range(chance, 0, 3) ? below : node;
    }
}

static void ask_anywhere(struct session *session, struct chance *chance)
{
    struct draft_leaf leaf[6];
    struct drafter *drafter = session->drafters.item[0];
    int leaves = 0;
    for (int at = 0; at < 8 && leaves < 4; at++) {
        const int node = chance_range(chance, -1, session->tree.nodes - 1);
        bool taken = false;
        for (int i = 0; i < session->tree.nodes; i++)
            taken |= session->tree.parent[i] == node && session->tree.drafter[i] == drafter->number;
        for (int i = 0; i < leaves; i++)
            taken |= leaf[i].node == node;
        for (int i = 0; i < session->tree.nodes; i++)           /* otherwise a child of another drafter may be there already */
            taken |= session->tree.parent[i] == node;
        if (!taken)
            leaf[leaves++] = (struct draft_leaf){node, chance_range(chance, 1, 4)};
    }
    if (drafter->class->propose(drafter, &session->tree, leaf, leaves, chance_range(chance, 1, 2), &err) < 0)
        fail_msg("%s", err.text);
}

static void what_is_proposed_anywhere_is_what_reading_anew_gives(void **state)
{
    static const struct { enum draft_choice choice; bool proposals; struct sample_filter filter; } cases[] = {
        {DRAFT_BEST, false, {0, 1, 0, 0}}, {DRAFT_COUPLED, false, {0.8, 1, 0, 0}}, {DRAFT_COUPLED, true, {1, 0.9, 0, 30}},
        {DRAFT_DRAWN, true, {1.3, 1, 0, 0}}};
    int checked = 0;
    (void)state;
    for (int number = 0; number < (unit_brief() ? 4 : 16); number++) {
        static const char *const names[] = {"eagle1", "eagle3", "medusa", "hydra"};
        const char *name = names[number % 4];
        char path[1300];
        struct chance chance = {(uint64_t)number + 40};
        struct model *model = heads_convert(&rig, heads_published(name), "head.moe");
        struct head *head = NULL;
        struct session session;
        snprintf(path, sizeof path, "head:file=%s", unit_path(rig.folder, "head.moe"));
        const struct head_setup setup = {.model = model, .target = rig.engine, .max_rows = 128, .max_logit_rows = 4};
        const struct sample_filter *filter = &cases[number / 4].filter;
        const enum draft_choice choice = cases[number / 4].choice;
        must(head_open(&head, &setup, &err), &err);
        session_open(&session, (const char *[]){path}, 1, choice, cases[number / 4].proposals, filter);
        session_begin(&session, rig.text[number % 4].token, rig.text[number % 4].prompt, 9);
        for (int step = 0; step < 4; step++) {
            for (int ask = chance_range(&chance, 0, 3); ask > 0; ask--) {
                add_strangers(&session, &chance);
                ask_anywhere(&session, &chance);
            }
            for (int node = -1; node < session.tree.nodes; node++)
                checked += check_children(head, &session, 0, node, choice, cases[number / 4].proposals, filter, 9);
            session_go_on(&session, rig.text[number % 4].token + session.length, chance_range(&chance, 0, 4), &chance);
        }
        session_close_all(&session);
        head_close(&head);
        model_close(&model);
    }
    assert_true(unit_brief() || checked > 300);
}

/* ---- long texts ---- */

/* A head that is not used for 640 tokens reads them meanwhile, and drafts as one that read them as a prompt. */
static void who_is_not_asked_for_long_drafts_the_same(void **state)
{
    static const char *const names[] = {"eagle1", "eagle3", "kangaroo"};
    static const struct sample_filter greedy = {0, 1, 0, 0};
    int32_t text[LONG];
    struct chance chance = {3};
    (void)state;
    for (int i = 0; i < LONG; i++)
        text[i] = chance_range(&chance, 0, VOCAB - 1);
    for (size_t i = 0; i < (unit_brief() ? 1 : sizeof names / sizeof *names); i++) {
        char path[1300];
        struct session session[2];
        struct model *model = heads_convert(&rig, heads_published(names[i]), "head.moe");
        snprintf(path, sizeof path, "head:file=%s", unit_path(rig.folder, "head.moe"));
        for (int which = 0; which < 2; which++) {
            session_open(&session[which], (const char *[]){path}, 1, DRAFT_BEST, false, &greedy);
            session_begin(&session[which], text, which ? 640 : 30, 1);
            session[which].drafters.item[0]->read = 0;
            while (session[which].length < 640) {
                const int left = 639 - session[which].length;
                session_go_on(&session[which], text + session[which].length, left < 20 ? left : 20, &chance);
            }
            assert_true(which || session[which].drafters.item[0]->read > 400);
            draw_draft(&session[which], "dynamic:total=12,depth=4,topk=3", DRAFT_LENGTH_NONE);
        }
        assert_int_equal(session[0].tree.nodes, 11);
        assert_int_equal(session[1].tree.nodes, 11);
        for (int node = 0; node < 11; node++) {
            assert_int_equal(session[0].tree.token[node], session[1].tree.token[node]);
            assert_int_equal(session[0].tree.parent[node], session[1].tree.parent[node]);
            assert_true(session[0].tree.log_probability[node] == session[1].tree.log_probability[node]);
        }
        session_close_all(&session[0]);
        session_close_all(&session[1]);
        model_close(&model);
    }
}

/* States of kept rows are stored in parts, in the order in which the head reads them, and their space is reused afterwards. */
static void states_wait_in_the_order_of_the_head(void **state)
{
    enum { WIDE = 3, ROWS = 6 };
    const struct head_params head = {.states = 3, .state = {5, 1, 5}, .target = {.layers = 6, .hidden = WIDE}};
    const int32_t kept[] = {4, 2, 0, 5, 1};
    float value[2 * ROWS * WIDE], seen[WIDE];
    struct feature_request wanted;
    struct states states;
    struct buffer features;
    (void)state;
    must(states_open(&states, rig.device, &head, &wanted, &err), &err);
    assert_true(wanted.count == 2 && wanted.layer[0] == 1 && wanted.layer[1] == 5);
    for (int i = 0; i < 2 * ROWS * WIDE; i++)
        value[i] = (float)i;
    must(device_alloc(rig.device, sizeof value, &features, &err), &err);
    queue_upload(rig.device, features, value, sizeof value);
    const struct forward forward = {.rows = ROWS, .features = features};
    const struct target_view view = {.forward = &forward, .features = &wanted, .kept = kept, .kept_rows = 5};
    states_put(&states, &view, 0, 2);
    states_put(&states, &view, 2, 3);
    states_drop(&states, 1);
    for (int dropped = 1; dropped < 5; states_drop(&states, 1), dropped++)
        for (int which = 0; which < 3; which++) {
            const uint64_t row = (uint64_t)(which * STATES_ROOM + states.first) * WIDE * sizeof(float);
            queue_download(rig.device, seen, buffer_part(states.state, row, sizeof seen), sizeof seen);
            must(queue_wait(rig.device, &err), &err);
            assert_int_equal(states.count, 5 - dropped);
            assert_memory_equal(seen, value + ((which == 1 ? 0 : ROWS) + kept[dropped]) * WIDE, sizeof seen);
        }
    assert_int_equal(states_room(&states), STATES_ROOM);
    device_free(rig.device, &features);
    states_close(&states);
}

/* ---- the target ---- */

struct logits { const float *golden; double max; };     /* largest difference */

static int compare_logits(void *context, const struct forward *piece, int position, struct err *failure)
{
    struct logits *logits = context;
    (void)failure;
    for (size_t i = 0; i < (size_t)piece->logit_rows * VOCAB; i++)
        logits->max = fmax(logits->max, fabs((double)piece->logits[i] - (double)logits->golden[(size_t)position * VOCAB + i]));
    return 0;
}

/* The first held-out prompts at every position, compared with transformers: heads that learn and draft from a wrong target
 * would still agree with each other. */
static void the_target_computes_the_logits_of_transformers(void **state)
{
    struct heads_golden golden = heads_golden_open(heads_path("models/pocket", "golden-logits.safetensors"));
    char line[1 << 16];
    FILE *file = fopen(heads_path("models/pocket", "golden.jsonl"), "r");
    (void)state;
    assert_non_null(file);
    for (size_t i = 0; i < json_object_size(golden.header); i++) {
        const struct batch every = {.logit_rows = ENGINE_EVERY_ROW};
        struct sequence *sequence = NULL;
        struct forward forward;
        int32_t prompt[HEADS_TOKENS];
        int rows;
        assert_non_null(fgets(line, sizeof line, file));
        json_t *json = json_loads(line, 0, NULL);
        const int count = heads_ints(json_object_get(json, "prompt_tokens"), prompt, HEADS_TOKENS);
        float *logits = heads_tensor(&golden, json_string_value(json_object_get(json, "id")), &rows, VOCAB);
        struct logits compared = {.golden = logits};
        assert_int_equal(rows, count);
        must(sequence_open(&sequence, rig.engine, count, &err), &err);
        must(engine_prompt(rig.engine, sequence, prompt, count, &every, compare_logits, &compared, &forward, &err), &err);
        if (!(compared.max < 2e-4))
            fail_msg("%s: a logit is off by %g", json_string_value(json_object_get(json, "id")), compared.max);
        sequence_close(&sequence);
        json_decref(json);
        free(logits);
    }
    fclose(file);
    heads_golden_close(&golden);
}

/* ---- counts ---- */

/* Returns the iterations of decoding the held-out prompts, texts cut to 128 tokens; *tokens: tokens after the first of each
 * text. */
static int iterations_of(const char *draft, const char *tree, int length, int prompts, int *tokens)
{
    struct decode_settings settings = DECODE_DEFAULTS;
    struct decoder *decoder = NULL;
    char line[1 << 16];
    int iterations = 0;
    FILE *file = fopen(heads_path("models/pocket", "golden.jsonl"), "r");
    assert_non_null(file);
    settings.draft = (struct strings){&draft, 1};
    settings.tree = tree;
    settings.draft_length = length;
    const struct decoder_setup setup = {.engine = rig.engine, .settings = &settings};
    must(decoder_open(&decoder, &setup, &err), &err);
    *tokens = 0;
    for (int i = 0; i < prompts && fgets(line, sizeof line, file); i++) {
        int32_t prompt[HEADS_TOKENS], answer[1024];
        json_t *json = json_loads(line, 0, NULL);
        const int count = heads_ints(json_object_get(json, "prompt_tokens"), prompt, HEADS_TOKENS);
        const int all = heads_ints(json_object_get(json, "tokens"), answer, 1024);
        const struct decode_prompt asked = {.token = prompt, .tokens = count, .max_tokens = HEADS_TOKENS - count};
        struct decode_result result;
        must(decoder_run(decoder, &asked, &(struct decode_sink){0}, &result, &err), &err);
        assert_int_equal(result.tokens, all < HEADS_TOKENS - count ? all : HEADS_TOKENS - count);
        assert_memory_equal(result.token, answer, (size_t)result.tokens * sizeof *answer);
        iterations += result.iterations;
        *tokens += result.tokens - 1;
        json_decref(json);
    }
    fclose(file);
    decoder_close(&decoder);
    return iterations;
}

/* The count over all 240 prompts comes from an independent program; that of the first eight was recorded when all agreed. */
static void trained_heads_take_as_many_iterations_as_they_should(void **state)
{
    static const struct { const char *name, *tree; int length, all, few; const char *settings; } figures[] = {
        {"eagle1", NULL, 5, 2141, 88, NULL}, {"eagle1", "dynamic:total=25,depth=6,topk=4", DRAFT_LENGTH_NONE, 1671, 61, NULL},
        {"eagle3", NULL, 5, 2376, 82, NULL}, {"eagle3", "dynamic:total=25,depth=6,topk=4", DRAFT_LENGTH_NONE, 1748, 58, NULL},
        {"jakiro", NULL, 5, 2120, 82, ",parallel=0"}, {"jakiro", NULL, 5, 2121, 83, NULL},
        {"jakiro", "dynamic:total=25,depth=6,topk=4", DRAFT_LENGTH_NONE, 1620, 60, ",parallel=0"},
        {"jakiro", "dynamic:total=25,depth=6,topk=4", DRAFT_LENGTH_NONE, 1623, 60, NULL},
        {"kangaroo", NULL, 5, 1679, 66, NULL}};
    const bool all = getenv("MOE_LONG") != NULL;
    (void)state;
    for (size_t i = unit_brief() ? 7 : 0; i < sizeof figures / sizeof *figures; i += unit_brief() ? 9 : 1) {
        char path[1300], folder[100];
        int tokens;
        snprintf(folder, sizeof folder, "heads/%s", figures[i].name);
        struct model *model = heads_convert(&rig, heads_path("models/pocket", folder), "head.moe");
        snprintf(path, sizeof path, "head:file=%s%s", unit_path(rig.folder, "head.moe"),
                 figures[i].settings ? figures[i].settings : "");
        const int took = iterations_of(path, figures[i].tree, figures[i].length, all ? 240 : 8, &tokens);
        if (took != (all ? figures[i].all : figures[i].few))
            fail_msg("%s, %s: %d tokens in %d iterations: %.4f", figures[i].name, figures[i].tree ? figures[i].tree : "chain",
                     tokens, took, (double)tokens / took);
        model_close(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_and_trees_are_those_that_were_published),
        cmocka_unit_test(branches_draft_as_the_head_was_trained_or_as_was_said),
        cmocka_unit_test(doubtful_tokens_are_the_last),
        cmocka_unit_test(the_root_can_be_asked_again),
        cmocka_unit_test(what_is_proposed_anywhere_is_what_reading_anew_gives),
        cmocka_unit_test(who_is_not_asked_for_long_drafts_the_same),
        cmocka_unit_test(states_wait_in_the_order_of_the_head),
        cmocka_unit_test(the_target_computes_the_logits_of_transformers),
        cmocka_unit_test(trained_heads_take_as_many_iterations_as_they_should),
    };
    return cmocka_run_group_tests(tests, heads_make_rig, heads_drop_rig);
}
