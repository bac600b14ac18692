/* Acceptance rules: every rule with every shape of draft is compared with its exact distribution, known mistakes must fail
 * the same comparison, and single steps are tested by themselves. tests/long/test_distribution.c runs the same grid with
 * more samples. */
#include "tests/unit/distribution.h"

#include "common/draft/tree.h"
#include "kernels/plain/overlap.h"
#include "kernels/plain/typical.h"

enum { SAMPLES = 10000 };

static struct world world;

static int make_world(void **state)
{
    (void)state;
    world_make(&world, 7);
    return 0;
}

static void every_rule_gives_its_distribution(void **state)
{
    (void)state;
    if (unit_brief())
        skip();
    for (int number = 0; number < CELLS; number++) {
        struct grid_point point = grid_point(number);
        struct tally tally;
        char name[160];
        grid_run(&point, &world, GRID_RULE, SAMPLES, &tally);
        if (grid_sees(&tally))
            fail_msg("%s: z %.2f, %ld impossible, %ld other than without a draft", grid_name(&point, name, sizeof name),
                     tally.z, tally.impossible, tally.other);
    }
}

static void known_mistakes_are_seen(void **state)
{
    (void)state;
    if (unit_brief())
        skip();
    for (int number = 0; number < MISTAKES; number++) {
        struct tally tally;
        int seen = 0;
        for (int t = 0; t < TEMPERATURES; t++) {
            struct grid_point point = grid_mistake(number, t);
            grid_run(&point, &world, GRID_PLAIN, SAMPLES, &tally);
            seen += grid_sees(&tally);
            point.mistake = NONE;               /* without the mistake the same code must pass */
            grid_run(&point, &world, GRID_PLAIN, SAMPLES, &tally);
            assert_false(grid_sees(&tally));
        }
        if (seen < 2)
            fail_msg("%s: seen at %d of %d temperatures", grid_mistakes[number].name, seen, TEMPERATURES);
    }
}

/* Three distributions over FEW tokens: the target's and those of two drafters. */
enum { FEW = 4 };
struct mixture { float p[3][FEW]; };

/* Adds the exact distribution of the accepted token, given these children, times `weight`. The acceptance probability of a
 * child is found by bisection; the rest of the weight goes to the next child. */
static void exact_outcome(const struct mixture *mixture, const struct draft_tree *tree, double *out, double weight)
{
    double residual[FEW], total = 1, alive = weight;
    for (int v = 0; v < FEW; v++)
        residual[v] = (double)mixture->p[0][v];
    for (int node = 0; node < tree->nodes; node++) {
        double low = 0, high = 1, copy[FEW], copied;
        for (int i = 0; i < 50; i++) {
            const double middle = (low + high) / 2;
            memcpy(copy, residual, sizeof copy);
            copied = total;
            *(reject_child(copy, FEW, &copied, tree->token[node], tree->proposal[node], middle) ? &low : &high) = middle;
        }
        out[tree->token[node]] += alive * low;
        alive *= 1 - low;
        if (reject_child(residual, FEW, &total, tree->token[node], tree->proposal[node], 1))
            return;
    }
    for (int v = 0; v < FEW; v++)
        out[v] += residual[v] > 0 ? alive * residual[v] / total : 0;
}

struct draws { int token[3]; double weight; };

/* Enumerates all ways to draw `count` tokens without replacement, with their probabilities. */
static int every_draw(const float *p, int count, struct draws *out)
{
    int ways = 0;
    for (int code = 0; code < FEW * FEW * FEW; code++) {
        const int token[3] = {code % FEW, code / FEW % FEW, code / FEW / FEW};
        double weight = 1, rest = 1;
        for (int i = 0; i < count; i++) {
            for (int j = 0; j < i; j++)
                weight *= token[i] != token[j];
            weight *= (double)p[token[i]] / rest;
            rest -= (double)p[token[i]];
        }
        bool more = weight > 0;
        for (int i = count; i < 3; i++)
            more &= token[i] == 0;
        if (more) {
            memcpy(out[ways].token, token, sizeof token);
            out[ways++].weight = weight;
        }
    }
    return ways;
}

struct asked { int first, known, second; };         /* numbers of tokens; known: a token that was not drawn, -1: none */

/* Builds the children of one node: first drafter, a known token without proposal, second drafter, then the first drafter
 * again with all its tokens. last: a token that both drew gets the second drafter's proposal, which is a mistake. */
static void draw_children(struct draft_tree *tree, const struct mixture *mixture, const struct asked *asked, const int *first,
                          const int *second, bool last)
{
    int token[1 + 3 * 3], drafter[1 + 3 * 3], count = 0;
    for (int i = 0; i < asked->first; i++, count++) {
        token[count] = first[i];
        drafter[count] = 1;
    }
    token[count] = asked->known;
    drafter[count++] = 0;
    for (int i = 0; i < asked->second; i++, count++) {
        token[count] = second[i];
        drafter[count] = 2;
    }
    for (int i = 0; i < 3; i++, count++) {
        token[count] = first[i];
        drafter[count] = 1;
    }
    draft_tree_clear(tree);
    for (int i = 0; i < count; i++) {
        const int nodes = tree->nodes, node = token[i] < 0 ? -1 : draft_tree_add(tree, -1, token[i], 0, drafter[i]);
        if (node >= 0 && drafter[i] && (node == nodes || (last && drafter[i] == 2)))
            tree->proposal[node] = mixture->p[drafter[i]];
    }
}

static void mixture_draw(struct mixture *mixture)
{
    for (int i = 0; i < 3; i++) {
        float total = 0;
        for (int v = 0; v < FEW; v++)
            total += mixture->p[i][v] = (float)(1 + rand() % 9);
        for (int v = 0; v < FEW; v++)
            mixture->p[i][v] /= total;
    }
}

/* A token that two drafters drew below one node is one child with the first drafter's proposal; the second drafter's other
 * tokens count as drawn without it. The output must have the target's distribution over all ways to draw. */
static void what_two_drafters_draw_below_one_node_is_judged_rightly(void **state)
{
    struct draws first[FEW * FEW * FEW], second[FEW * FEW * FEW];
    struct draft_tree tree = {0};
    double most_wrong = 0;
    (void)state;
    srand(3);
    assert_int_equal(draft_tree_init(&tree, 16, NULL), 0);
    for (int round = 0; round < 120; round++) {
        const struct asked asked = {1 + rand() % 2, round % 3 ? -1 : rand() % FEW, 1 + rand() % 3};
        const bool last = round % 2;
        struct mixture mixture;
        double out[FEW] = {0};
        mixture_draw(&mixture);
        const int ways = every_draw(mixture.p[1], 3, first), others = every_draw(mixture.p[2], asked.second, second);
        for (int a = 0; a < ways; a++)
            for (int b = 0; b < others; b++) {
                draw_children(&tree, &mixture, &asked, first[a].token, second[b].token, last);
                exact_outcome(&mixture, &tree, out, first[a].weight * second[b].weight);
            }
        for (int v = 0; v < FEW; v++) {
            const double off = fabs(out[v] - (double)mixture.p[0][v]);
            most_wrong = last && off > most_wrong ? off : most_wrong;
            assert_true(last || off < 1e-6);
        }
    }
    assert_true(most_wrong > 0.05);
    draft_tree_free(&tree);
}

/* Children without proposals are judged correctly, whichever children were dropped. */
static void any_choice_of_children_is_right_without_proposals(void **state)
{
    (void)state;
    for (int t = 0; t < TEMPERATURES; t++) {
        struct grid_point point = {'r', DROPPED_AS_FIXED, TREE_DRAWN, t, TOP_P};
        struct tally tally;
        grid_run(&point, &world, GRID_PLAIN, SAMPLES, &tally);
        assert_false(grid_sees(&tally));
    }
}

static void labels_say_what_is_lossless(void **state)
{
    (void)state;
    for (size_t pair = 0; pair < PAIRS; pair++) {
        struct grid_point point = {grid_pairs[pair].family, NONE, grid_pairs[pair].shape, 1, NO_FILTER};
        struct acceptance *rule = grid_rule(&point);
        struct tally tally;
        assert_non_null(rule);
        grid_run(&point, &world, GRID_TARGET, SAMPLES, &tally);
        assert_int_equal(tally.z < GRID_LIMIT && !tally.impossible, rule->class->same_distribution);
        assert_int_equal(rule->class->same_text, point.family == 'c');
        acceptance_close(&rule);
    }
}

static void at_temperature_0_every_rule_gives_the_best_tokens(void **state)
{
    static const char *const rules[] = {"coupled", "rejection", "typical", "typical:epsilon=1,delta=1", "typical:epsilon=0"};
    struct cell *cell = calloc(1, sizeof *cell);
    (void)state;
    assert_non_null(cell);
    cell->world = &world;
    cell->filter = (struct sample_filter){1, 1, 0, 0};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        for (int s = 0; s <= TREE_SMALL; s++) {
            struct acceptance_setup setup = {V, DRAFT_MAX, {0, 0.5, 0.5, 2}};
            struct acceptance *rule = NULL;
            assert_int_equal(acceptance_open(&rule, rules[r], &setup, NULL), 0);
            cell->shape = grid_shapes[s];
            cell_prepare(cell);
            for (int round = 0; round < 50; round++) {
                struct sample_draw draw = {(uint64_t)round, 9, 0, 0};
                int32_t path[DRAFT_MAX], emitted[DRAFT_MAX + 1];
                struct draft draft;
                int at = -1, child;
                draft_make(cell, &draft, 0, V);
                int accepted = acceptance_accept(rule, &draft.view, draft.logits, &draw, path, emitted, NULL);
                for (int i = 0; i <= accepted; i++) {
                    assert_int_equal(emitted[i], sample_best(draft.logits + (at + 1) * V, V));
                    for (child = 0; child < draft.view.nodes; child++)
                        if (draft.parent[child] == at && draft.token[child] == emitted[i])
                            break;
                    if (i < accepted)
                        assert_int_equal(path[i], child);
                    else if (r < 3)
                        assert_int_equal(child, draft.view.nodes);      /* the correct rule was never rejected */
                    at = child;
                }
            }
            acceptance_close(&rule);
        }
    free(cell);
}

/* Returns the acceptance rate of a chain of one token drawn from q. */
static double acceptance_rate(const char *name, const float *q, const float *target, const float *source, bool shared,
                              int trials)
{
    struct acceptance_setup setup = {V, 1, {1, 1, 0, 0}};
    struct acceptance *rule = NULL;
    const float *proposal[1] = {q};
    const int32_t parent[1] = {-1};
    float logits[2 * V];
    int accepted = 0;
    memcpy(logits, target, V * sizeof *logits);
    memcpy(logits + V, target, V * sizeof *logits);
    assert_int_equal(acceptance_open(&rule, name, &setup, NULL), 0);
    for (int trial = 0; trial < trials; trial++) {
        int32_t kept[V], token[1], path[1], emitted[2];
        double value[V];
        struct sample_draw draw = {(uint64_t)trial, 5, 1, 2}, ahead = {(uint64_t)trial + !shared, 6, 1, 2};
        struct reject_draft draft = {1, token, parent, proposal};
        assert_int_equal(propose_tokens(source, V, &setup.filter, &ahead, 1, kept, value, token, NULL), 1);
        accepted += acceptance_accept(rule, &draft, logits, &draw, path, emitted, NULL);
    }
    acceptance_close(&rule);
    return (double)accepted / trials;
}

/* Rejection reaches the upper bound. Coupled: draft and target choose v together with probability 1 / sum over w of max(p(w)
 * / p(v), q(w) / q(v)); Daliri et al. bound the sum by (1 - TV) / (1 + TV). */
static void acceptance_is_as_high_as_theory_allows(void **state)
{
    enum { TRIALS = 60000 };
    (void)state;
    for (int last = 0; last < 6; last++) {
        const float *target = world.target[0][last], *source = world.draft[0][last];
        const struct sample_filter filter = {1, 1, 0, 0};
        double p[V], exact = 0, chance = 0, room = 4.5 * sqrt(0.25 / TRIALS), value[V], kept_p[V];
        float q[V];
        int32_t kept[V];
        plain_distribution(target, &filter, p);
        plain_distribution(source, &filter, value);
        for (int v = 0; v < V; v++)
            q[v] = (float)value[v];
        assert_true(sample_probabilities(target, V, &filter, kept, kept_p) >= V - 1);
        for (int v = 0; v < V; v++) {
            double sum = 0;
            assert_float_equal(kept_p[v], p[v], 1e-12);
            for (int w = 0; w < V && p[v] > 0; w++)
                sum += fmax(p[w] / p[v], (double)q[w] / (double)q[v]);
            exact += p[v] > 0 ? 1 / sum : 0;
            chance += p[v] * (double)q[v];
        }
        double bound = overlap_mass(p, q, V);
        assert_true(exact < bound && exact > bound / (2 - bound) && chance < exact - 0.1);
        assert_float_equal(acceptance_rate("rejection", q, target, source, true, TRIALS), bound, room);
        assert_float_equal(acceptance_rate("coupled", q, target, source, true, TRIALS), exact, room);
        assert_float_equal(acceptance_rate("coupled", q, target, source, false, TRIALS), chance, room);
    }
}

/* The first proposed token equals the sampled one. If all tokens are requested, all tokens of positive probability are
 * proposed. At temperature 0 they are ordered by logit. */
static void coupled_drafts_begin_with_the_choice(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct sample_filter filter = {round % 5 * 0.4, round % 3 ? 1 : 0.8, round % 2 ? 0 : 0.05, round % 4};
        struct sample_draw draw = {(uint64_t)round, (uint32_t)round, 3, 4};
        const float *logit = world.draft[round % POSITIONS][round % V];
        int32_t kept[V], token[V];
        double value[V], proposal[V];
        int seen = 0, count = 1 + round % V;
        int found = propose_tokens(logit, V, &filter, &draw, count, kept, value, token, NULL);
        assert_in_range(found, 1, count);
        assert_int_equal(token[0], sample_token(logit, V, &filter, &draw, kept));
        for (int i = 0; i < found; i++) {
            assert_false(seen >> token[i] & 1);
            seen |= 1 << token[i];
            if (i && !(filter.temperature > 0))
                assert_true(logit[token[i - 1]] >= logit[token[i]]);
        }
        if (count == V && filter.temperature > 0) {
            sample_probabilities(logit, V, &filter, kept, proposal);
            for (int v = 0; v < V; v++)
                assert_int_equal(proposal[v] > 0, seen >> v & 1);
        }
    }
}

static void equal_distributions_are_always_accepted(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        const struct sample_filter filter = {1, 1, 0, 0};
        const float *logit = world.draft[round % POSITIONS][round % V];
        const int32_t parent[2] = {-1, 0};
        int32_t kept[V], token[2], path[2], emitted[3];
        double value[V], residual[V];
        float q[V], logits[3 * V];
        const float *proposal[2] = {q, q};
        struct reject_draft draft = {2, token, parent, proposal};
        for (int i = 0; i < 3; i++)
            memcpy(logits + i * V, logit, V * sizeof *logits);
        for (uint32_t i = 0; i < 2; i++) {
            struct sample_draw ahead = {(uint64_t)round, 2 + i, 0, 0};
            assert_int_equal(propose_tokens(logit, V, &filter, &ahead, 1, kept, value, token + i, NULL), 1);
        }
        sample_probabilities(logit, V, &filter, kept, value);
        for (int v = 0; v < V; v++)
            q[v] = (float)value[v];
        struct sample_draw draw = {(uint64_t)round, 1, 0, 0};
        /* q is p rounded to f32: a refusal has a probability below 1e-7 */
        assert_int_equal(reject_walk(&draft, logits, V, &filter, &draw, kept, residual, path, emitted), 2);
        assert_in_range(emitted[2], 0, V - 1);
    }
}

/* A child that would be rejected by rounding alone is accepted, because no token would be left to draw afterwards. */
static void rounding_refuses_nothing(void **state)
{
    const float half[2] = {0.5f, 0.5f};
    double last[2] = {-1, 5e-324}, total = 5e-324, same[2] = {0.5, 0.5}, more = 1 + 1e-9;
    (void)state;
    assert_int_equal(reject_child(last, 2, &total, 1, NULL, 0.9), 1);
    assert_int_equal(reject_child(same, 2, &more, 0, half, 1 - 1e-12), 1);
    assert_int_equal(reject_draw((const double[3]){0, 0.25, -1}, 3, 0.5, 0.9), 1);
}

/* A token that a rejected sibling rules out, or that the proposal cannot produce, is rejected. */
static void what_cannot_have_been_drawn_is_refused(void **state)
{
    const float half[3] = {0.5f, 0.5f, 0};
    double residual[3] = {-1, 0.2, 0.8}, total = 1;
    (void)state;
    assert_int_equal(reject_child(residual, 3, &total, 0, NULL, 1e-9), 0);
    assert_int_equal(reject_child(residual, 3, &total, 0, half, 1e-9), 0);
    assert_int_equal(reject_child(residual, 3, &total, 2, half, 1e-9), 0);
    assert_true(residual[1] == 0.2 && residual[2] == 0.8 && total == 1);
}

static void typical_keeps_what_the_formula_says(void **state)
{
    const float logit[V] = {logf(0.5f), logf(0.3f), logf(0.2f), -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    const double p[V] = {0.5, 0.3, 0.2};
    /* H = 1.0297 nats, exp(-H) = 0.3571 */
    static const struct { const char *rule; double threshold; int kept; } cases[] = {
        {"typical", 0.09, 3}, {"typical:epsilon=0.3,delta=0.6", 0.21427, 2}, {"typical:epsilon=0.25,delta=0.9", 0.25, 2},
        {"typical:epsilon=0.9,delta=0.9", 0.3214, 1},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct acceptance_setup setup = {V, 1, {1, 1, 0, 0}};
        struct acceptance *rule = NULL;
        struct sample_draw draw = {0};
        assert_int_equal(acceptance_open(&rule, cases[c].rule, &setup, NULL), 0);
        assert_float_equal(typical_threshold(p, V, rule->epsilon, rule->delta), cases[c].threshold, 1e-4);
        for (int32_t token = 0; token < 4; token++) {
            const int32_t parent = -1;
            int32_t path, emitted[2];
            float logits[2 * V];
            struct reject_draft draft = {1, &token, &parent, NULL};
            for (int v = 0; v < V; v++) {
                logits[v] = logit[v];
                logits[V + v] = v == 5;
            }
            int accepted = acceptance_accept(rule, &draft, logits, &draw, &path, emitted, NULL);
            assert_int_equal(accepted, token < cases[c].kept);
            assert_int_equal(emitted[0], accepted ? token : 0);
            if (accepted)
                assert_int_equal(emitted[1], 5);
        }
        acceptance_close(&rule);
    }
}

/* Two paths of one length and probability: the first one drafted is accepted. */
static void typical_prefers_the_first_of_equal_paths(void **state)
{
    const int32_t token[2] = {4, 1}, parent[2] = {-1, -1};
    const float logits[3 * V] = {0};
    const struct acceptance_setup setup = {V, 2, {1, 1, 0, 0}};
    const struct reject_draft draft = {2, token, parent, NULL};
    const struct sample_draw draw = {0};
    struct acceptance *rule = NULL;
    int32_t path[2], emitted[3];
    (void)state;
    assert_int_equal(acceptance_open(&rule, "typical", &setup, NULL), 0);
    assert_int_equal(acceptance_accept(rule, &draft, logits, &draw, path, emitted, NULL), 1);
    assert_int_equal(path[0], 0);
    assert_int_equal(emitted[0], 4);
    acceptance_close(&rule);
}

static void what_is_not_finite_is_named(void **state)
{
    static const char *const rules[] = {"coupled", "rejection", "typical"};
    static const int32_t token[2] = {1, 1}, parent[2] = {-1, 0};
    (void)state;
    for (int r = 0; r < 3; r++)
        for (int bad = 0; bad < 3; bad++) {
            struct acceptance_setup setup = {V, 2, {1, 1, 0, 0}};
            struct sample_draw draw = {.position = 40};
            struct reject_draft draft = {2, token, parent, NULL};
            struct acceptance *rule = NULL;
            int32_t path[2], emitted[3];
            float logits[3 * V] = {0};
            char expected[80];
            struct err err = {0};
            for (int row = 0; row < 3; row++) {
                logits[row * V + 1] = 90;               /* so certain that every rule accepts token 1 */
                for (int v = 0; v < V && row == bad; v++)
                    logits[row * V + v] = NAN;
            }
            assert_int_equal(acceptance_open(&rule, rules[r], &setup, &err), 0);
            assert_int_equal(acceptance_accept(rule, &draft, logits, &draw, path, emitted, &err), -1);
            snprintf(expected, sizeof expected, "the logits at position %d are not finite", 41 + bad);
            assert_memory_equal(err.text, expected, strlen(expected));
            acceptance_close(&rule);
        }
}

static void rules_are_opened_by_name(void **state)
{
    static const struct { const char *text, *message; } bad[] = {
        {"rejections", "'rejections' is not an acceptance rule; did you mean rejection?"},
        {"xyz", "'xyz' is not an acceptance rule; there are coupled, rejection, typical and jakiro-star"},
        {"typical:epsilon=2", "typical"}, {"typical:delta=x", "typical"}, {"typical:gamma=1", "typical"},
        {"coupled:n=1", "coupled"}, {"", ""},
    };
    struct acceptance_setup setup = {V, 0, {1, 1, 0, 0}};
    struct acceptance *rule = NULL;
    (void)state;
    for (const struct acceptance_class *const *class = acceptance_classes; *class; class++) {
        assert_int_equal(acceptance_open(&rule, (*class)->name, &setup, NULL), 0);
        assert_ptr_equal(rule->class, *class);
        acceptance_close(&rule);
        assert_null(rule);
    }
    assert_int_equal(acceptance_open(&rule, NULL, &setup, NULL), 0);
    assert_ptr_equal(rule->class, &acceptance_coupled);
    acceptance_close(&rule);
    acceptance_close(&rule);
    assert_int_equal(acceptance_open(&rule, "typical:epsilon=0.2,delta=0.7", &setup, NULL), 0);
    assert_true(rule->epsilon == 0.2 && rule->delta == 0.7);
    acceptance_close(&rule);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err err = {0};
        assert_int_equal(acceptance_open(&rule, bad[i].text, &setup, &err), -1);
        assert_null(rule);
        assert_int_equal(err.code, ERR_INPUT);
        assert_memory_equal(err.text, bad[i].message, strlen(bad[i].message));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_gives_its_distribution),
        cmocka_unit_test(known_mistakes_are_seen),
        cmocka_unit_test(what_two_drafters_draw_below_one_node_is_judged_rightly),
        cmocka_unit_test(any_choice_of_children_is_right_without_proposals),
        cmocka_unit_test(labels_say_what_is_lossless),
        cmocka_unit_test(at_temperature_0_every_rule_gives_the_best_tokens),
        cmocka_unit_test(acceptance_is_as_high_as_theory_allows),
        cmocka_unit_test(coupled_drafts_begin_with_the_choice),
        cmocka_unit_test(equal_distributions_are_always_accepted),
        cmocka_unit_test(rounding_refuses_nothing),
        cmocka_unit_test(what_cannot_have_been_drawn_is_refused),
        cmocka_unit_test(typical_keeps_what_the_formula_says),
        cmocka_unit_test(typical_prefers_the_first_of_equal_paths),
        cmocka_unit_test(what_is_not_finite_is_named),
        cmocka_unit_test(rules_are_opened_by_name),
    };
    return cmocka_run_group_tests(tests, make_world, NULL);
}
