/* Jakiro*'s acceptance as published, through the whole loop: texts have the distribution of the published program, which is
 * implemented here again and enumerated over all draws; this distribution is not the target's. */
#include "tests/unit/loop.h"

#include "common/draft/states.h"
#include "common/head/head.h"
#include "kernels/plain/branches.h"

enum { STAR = 6, CHILDREN = 3, BOTH = 2 * V, TEXTS = 8000 };

static struct loop_world world;
static struct loop_rig rig;
static struct err err;

static int make_world(void **state)
{
    (void)state;
    loop_world_open(&world);
    loop_rig_open(&rig, &world, 1);
    return 0;
}

static int drop_world(void **state)
{
    (void)state;
    loop_rig_close(&rig);
    loop_world_close(&world);
    return 0;
}

/* ---- output of the head's two branches, computed anew for each text ---- */

struct reader {
    struct model *model;
    struct head *head;
    struct states states;
    struct feature_request wanted;
    struct sequence *sequence;
};

static void reader_open(struct reader *reader)
{
    const char *path = strchr(world.head[STAR], '=') + 1;
    loop_must(model_open_head(&reader->model, path, &err), &err);
    const struct head_setup setup = {.model = reader->model, .target = rig.engine, .max_rows = 32, .max_logit_rows = 1};
    loop_must(head_open(&reader->head, &setup, &err), &err);
    loop_must(states_open(&reader->states, rig.device, head_description(reader->head), &reader->wanted, &err), &err);
    loop_must(sequence_open(&reader->sequence, rig.engine, 32, &err), &err);
}

static void reader_close(struct reader *reader)
{
    sequence_close(&reader->sequence);
    states_close(&reader->states);
    head_close(&reader->head);
    model_close(&reader->model);
}

static int keep_states(void *context, const struct forward *piece, int position, struct err *fault)
{
    struct reader *reader = context;
    int32_t row[LOOP_PROMPT + LOOP_TEXT];
    (void)fault;
    for (int i = 0; i < piece->rows; i++)
        row[i] = i;
    states_put(&reader->states, &(struct target_view){
        .forward = piece, .features = &reader->wanted, .position = position, .kept = row, .kept_rows = piece->rows,
        .prompt = true}, 0, piece->rows);
    return 0;
}

/* Computes logits after the prompt and `tokens` more, of which the target has read all but the last. If `drafted` contains a
 * token >= 0, the head continues by itself with that token. */
static void read_branches(struct reader *reader, const int32_t *token, int tokens, int32_t drafted, float out[2][V])
{
    int32_t text[LOOP_PROMPT + LOOP_TEXT], row[LOOP_PROMPT + LOOP_TEXT];
    const int read = LOOP_PROMPT + tokens - 1;
    const struct batch options = {.features = &reader->wanted};
    struct head_forward forward;
    struct forward last;
    memcpy(text, loop_prompt, sizeof loop_prompt);
    memcpy(text + LOOP_PROMPT, token, (size_t)tokens * sizeof *token);
    for (int i = 0; i < read; i++)
        row[i] = i;
    loop_must(sequence_truncate(reader->sequence, 0, &err) || head_begin(reader->head, 32, &err), &err);
    states_clear(&reader->states);
    loop_must(engine_prompt(rig.engine, reader->sequence, text, read, &options, keep_states, reader, &last, &err), &err);
    const struct head_batch known = {.rows = read, .token = text + 1, .state = reader->states.state, .state_rows = STATES_ROOM,
                                     .state_row = row, .logit_row = row + read - 1, .logit_rows = 1, .branches = 2};
    loop_must(head_run(reader->head, &known, &forward, &err), &err);
    const struct head_batch more = {.rows = 1, .token = &drafted, .parent = row + read - 1, .logit_rows = 1, .branches = 2};
    if (drafted >= 0)
        loop_must(head_run(reader->head, &more, &forward, &err), &err);
    for (int branch = 0; branch < 2; branch++)
        memcpy(out[branch], forward.logits[branch], sizeof *out);
}

/* ---- the published program, in exact probabilities ---- */

struct said {
    double joint[BOTH];                 /* softmax over the branches' tokens together */
    double even[V];                     /* softmax of the mean of the branches' softmaxes */
};

static void say(const float branch[2][V], const struct sample_filter *filter, struct said *said)
{
    double total = 0, sum = 0, p[2][V];
    for (int b = 0; b < 2; b++)
        plain_distribution(branch[b], filter, p[b]);
    for (int b = 0; b < 2; b++)
        for (int v = 0; v < V; v++)
            total += said->joint[b * V + v] = p[b][v] > 0 ? exp((double)branch[b][v] / filter->temperature) : 0;
    for (int v = 0; v < V; v++)
        sum += said->even[v] = exp((p[0][v] + p[1][v]) / 2);
    for (int v = 0; v < V; v++)
        said->even[v] /= sum;
    for (int i = 0; i < BOTH; i++)
        said->joint[i] /= total;
}

/* chance[rank][x]: probability that x becomes the child of this rank, among distinct ones; rest[x]: that x becomes no child. */
struct outcome_law { double child[CHILDREN][V], rest[V]; };

/* Enumerates the outcomes of judging the children, with the weight of this draw. */
static void judge(const struct said *said, const float *target, const struct sample_filter *filter, const int *drawn, int count,
                  double weight, struct outcome_law *law)
{
    const struct sample_filter none = {1, 1, 0, 0};
    double p[V], before = 0;
    bool adjusted = false, sibling[V] = {false};
    int rank = 0;
    plain_distribution(target, filter, p);
    for (int at = 0; at < count; at++) {
        const int x = drawn[at] % V;
        double recorded = said->joint[V + x] / (1 - before);
        before += said->joint[V + x];
        if (sibling[x])
            continue;
        recorded = recorded > 1 ? 1 : recorded;
        if (recorded > 0) {
            const double kept = p[x] / recorded < 1 ? p[x] / recorded : 1;
            law->child[rank][x] += weight * kept;
            weight *= 1 - kept;
            double q[V], mass = 0, left = 0;
            for (int v = 0; v < V; v++)
                mass += q[v] = sibling[v] ? 0 : said->even[v];
            for (int v = 0; v < V; v++)
                left += p[v] = p[v] > q[v] / mass ? p[v] - q[v] / mass : 0;
            for (int v = 0; v < V; v++)
                p[v] /= left;
            adjusted = true;
        }
        sibling[x] = true;
        rank++;
    }
    if (!adjusted)
        plain_distribution(target, &none, p);
    for (int v = 0; v < V && weight > 0; v++)
        law->rest[v] += weight * p[v];
}

/* Enumerates all ways to draw `count` of the branches' tokens. */
static void expect(const struct said *said, const float *target, const struct sample_filter *filter, int count,
                   struct outcome_law *law)
{
    int ways = 1;
    memset(law, 0, sizeof *law);
    for (int at = 0; at < count; at++)
        ways *= BOTH;
    for (int way = 0; way < ways; way++) {
        int drawn[CHILDREN];
        double weight = 1, rest = 1;
        for (int at = 0, code = way; at < count; at++, code /= BOTH) {
            drawn[at] = code % BOTH;
            for (int i = 0; i < at; i++)
                weight *= drawn[i] != drawn[at];
            weight *= rest > 1e-12 ? said->joint[drawn[at]] / rest : 0;
            rest -= said->joint[drawn[at]];
        }
        if (weight > 0)
            judge(said, target, filter, drawn, count, weight, law);
    }
}

/* Probabilities of a text's first three tokens, with [0], [1], [2], [0,0], [0,1] and [1,0] drafted. */
static void expect_texts(const struct sample_filter *filter, double *chance)
{
    static const int below[CHILDREN] = {2, 1, 0};
    struct reader reader = {0};
    double first[V];
    reader_open(&reader);
    plain_distribution(world.logits[0], filter, first);
    for (int32_t a = 0; a < V; a++) {
        struct outcome_law root;
        struct said said;
        float branch[2][V];
        read_branches(&reader, &a, 1, -1, branch);
        say(branch, filter, &said);
        expect(&said, world.logits[loop_row(1, a)], filter, CHILDREN, &root);
        for (int32_t b = 0; b < V; b++) {
            const float *target = world.logits[loop_row(2, a * V + b)];
            struct outcome_law then;
            read_branches(&reader, &a, 1, b, branch);
            say(branch, filter, &said);
            for (int rank = 0; rank <= CHILDREN; rank++) {
                const double weight = first[a] * (rank < CHILDREN ? root.child[rank][b] : root.rest[b]);
                if (rank == CHILDREN) {                 /* a draft after both, from states that the target has computed */
                    read_branches(&reader, (int32_t[]){a, b}, 2, -1, branch);
                    say(branch, filter, &said);
                }
                expect(&said, target, filter, rank < CHILDREN ? below[rank] : CHILDREN, &then);
                for (int v = 0; v < V; v++)
                    chance[(a * V + b) * V + v] += weight * (then.child[0][v] + then.child[1][v] + then.child[2][v] +
                                                             then.rest[v]);
            }
        }
    }
    reader_close(&reader);
}

static void texts_are_those_of_the_program(void **state)
{
    static const struct { double temperature; int filter; } samplings[] = {{1, NO_FILTER}, {0.6, TOP_K}};
    static const char json[] = "[[0],[1],[2],[0,0],[0,1],[1,0]]";
    char tree[1300];
    (void)state;
    unit_write(unit_path(world.folder, "star.json"), json, sizeof json - 1);
    snprintf(tree, sizeof tree, "static:file=%s/star.json", world.folder);
    for (size_t i = 0; i < sizeof samplings / sizeof *samplings; i++) {
        struct loop_cell cell = {.accept = "jakiro-star", .alone = world.head[STAR], .draft = "head", .tree = tree,
                                 .seed = 40 + i, .temperature = samplings[i].temperature, .filter = samplings[i].filter};
        const struct sample_filter filter = loop_filter(&cell);
        struct loop_law *law = calloc(1, sizeof *law);
        struct loop_seen *seen = calloc(1, sizeof *seen);
        struct loop_tally out = {.drafted = 0};
        struct loop_run run = {.cell = &cell, .world = &world, .law = law, .out = &out};
        struct tally published = {.z = 0}, exact = {.z = 0};
        double *chance = calloc((size_t)V * V * V, sizeof *chance), pair[V * V] = {0};
        expect_texts(&filter, chance);
        loop_law_make(law, &world, &filter);
        if (loop_block(&run, &rig, TEXTS, cell.seed, seen))
            fail_msg("%s", out.err.text);
        tally_compare(chance, seen->three[0], V * V * V, TEXTS, &published);
        for (int code = 0; code < V * V * V; code++)
            pair[code / V] += chance[code];
        tally_compare(pair, seen->two[0], V * V, TEXTS, &published);
        tally_compare(law->three[0], seen->three[0], V * V * V, TEXTS, &exact);
        if (grid_sees(&published) || !grid_sees(&exact) || !out.accepted)
            fail_msg("T %g: z %.2f by the program, %ld impossible; z %.2f by the target; %ld accepted", filter.temperature,
                     published.z, published.impossible, exact.z, out.accepted);
        free(chance);
        free(seen);
        free(law);
    }
}

/* Sampling cannot show single numbers: every recorded probability is compared and, for draws without repeated tokens, every
 * probability after a rejection. */
static void every_number_is_the_programs(void **state)
{
    const struct sample_filter filter = {0.8, 1, 0, 0}, whole = {1, 1, 0, 0};
    static const int32_t parent[CHILDREN] = {-1, -1, -1};
    struct random random = {3};
    int judged = 0, repeated = 0;
    (void)state;
    for (uint32_t draw = 0; draw < 200; draw++) {
        float branch[2][V], proposal[2 * V], both[BOTH], log_probability[CHILDREN];
        double value[BOTH], r[V], left = 0, mass = 0, before = 0;
        int32_t kept[BOTH], token[CHILDREN], order[CHILDREN];
        const struct sample_draw here = {.key = 9, .position = draw};
        struct said said;
        int child = 0;
        for (int i = 0; i < BOTH; i++)
            branch[i / V][i % V] = (float)(4 * random_uniform(&random));
        say((const float (*)[V])branch, &filter, &said);
        const int found = branches_propose((const float *[]){branch[0], branch[1]}, V, &filter,
                                           &here, CHILDREN, kept, value, both, token, log_probability, proposal, V);
        assert_int_equal(propose_tokens(both, BOTH, &whole, &here, CHILDREN, kept, value, order, NULL), CHILDREN);
        for (int at = 0; at < CHILDREN; before += said.joint[V + order[at++] % V]) {
            const int32_t x = order[at] % V;
            if (child == found || token[child] != x)            /* drawn from both branches */
                continue;
            assert_float_equal(proposal[x], fmin(1, said.joint[V + x] / (1 - before)), 1e-6);
            assert_float_equal(exp((double)log_probability[child++]), said.joint[x] + said.joint[V + x], 1e-6);
        }
        assert_int_equal(child, found);
        repeated += found < CHILDREN && order[CHILDREN - 1] % V == token[found - 1];
        if (found < CHILDREN)
            continue;
        const struct reject_draft draft = {.nodes = CHILDREN, .token = token, .parent = parent};
        for (int v = 0; v < V; v++) {
            assert_float_equal(proposal[V + v], said.even[v], 1e-6);
            r[v] = v == 2 ? 0.4 : 0.1;
            mass += v == token[0] || v == token[1] ? 0 : said.even[v];
        }
        double want[V];
        for (int v = 0; v < V; v++) {
            want[v] = r[v] - (v == token[0] || v == token[1] ? 0 : said.even[v] / mass);
            left += want[v] = want[v] > 0 ? want[v] : 0;
        }
        branches_refuse(&draft, -1, 2, proposal + V, V, r);
        for (int v = 0; v < V; v++)
            assert_float_equal(r[v], want[v] / left, 1e-6);
        judged++;
    }
    assert_true(judged > 20 && repeated > 20);
}

/* The rule needs such heads and untrimmed drafts; others are rejected. */
static void others_are_refused(void **state)
{
    static const struct { const char *draft, *tree, *policy; bool overlap; const char *why; } cases[] = {
        {"ngram:n=2", NULL, NULL, false, "--accept jakiro-star works only with a draft head of kind jakiro_star"},
        {NULL, NULL, NULL, false, "of kind eagle1"},
        {"star", "dynamic:total=6,depth=3,topk=2", NULL, false, "this tree drops some"},
        {"star", NULL, "tr", false, "this policy drops some"},
        {"star", NULL, NULL, true, "--overlap: its bound holds only for rules that preserve the model"},
        {"stop", NULL, NULL, false, "head: stop cannot be combined with --accept jakiro-star"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char stop[1400];
        snprintf(stop, sizeof stop, "%s,stop=0.1", world.head[STAR]);
        const char *draft = !cases[i].draft ? world.head[0] : !strcmp(cases[i].draft, "star") ? world.head[STAR]
                          : !strcmp(cases[i].draft, "stop") ? stop : cases[i].draft;
        struct decode_settings settings = DECODE_DEFAULTS;
        struct decoder *decoder = NULL;
        settings.filter.temperature = 1;
        settings.draft = (struct strings){&draft, 1};
        settings.tree = cases[i].tree;
        settings.policy = cases[i].policy;
        settings.overlap = cases[i].overlap;
        settings.accept = "jakiro-star";
        err = (struct err){0};
        const struct decoder_setup setup = {.engine = rig.engine, .settings = &settings};
        assert_int_equal(decoder_open(&decoder, &setup, &err), -1);
        if (!strstr(err.text, cases[i].why))
            fail_msg("%s", err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_of_the_program),
        cmocka_unit_test(every_number_is_the_programs),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, make_world, drop_world);
}
