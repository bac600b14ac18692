/* Trimming of drafts (kernels/plain/trim.h) compared with all sets of nodes that contain their parents, and the policies
 * that use it over made-up drafts: nodes that do not pay are not verified, and later not drafted. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/policy/shape.h"
#include "kernels/plain/trim.h"
#include "kernels/plain/trim_experts.h"

enum { NODES = 9, TREES = 10000 };

static uint64_t random_state = 88172645463325252u;

static double uniform(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 0x1p53;
}

struct made_up {
    int nodes;
    int32_t parent[NODES], order[NODES];
    double chance[NODES], score[NODES], cost[NODES + 1];
};

static void make(struct made_up *tree)
{
    tree->nodes = (int)(uniform() * (NODES + 1));
    for (int node = 0; node < tree->nodes; node++) {
        tree->parent[node] = (int32_t)(uniform() * (node + 1)) - 1;
        tree->chance[node] = uniform() < 0.1 ? 1 : uniform();
    }
    tree->cost[0] = 0.5 + uniform();
    for (int k = 1; k <= tree->nodes; k++)              /* with steps, like the costs of tiles */
        tree->cost[k] = tree->cost[k - 1] + (uniform() < 0.3 ? 0 : 0.4 * uniform());
    trim_scores(tree->score, tree->chance, tree->parent, tree->nodes);
    trim_order(tree->order, tree->score, tree->nodes);
}

static bool holds_parents(const struct made_up *tree, unsigned set)
{
    for (int node = 0; node < tree->nodes; node++)
        if (set >> node & 1 && tree->parent[node] >= 0 && !(set >> tree->parent[node] & 1))
            return false;
    return true;
}

/* Finds the best rate, and the best value at a threshold, over all sets. */
static void search(const struct made_up *tree, double threshold, double *rate, double *value)
{
    *rate = *value = -INFINITY;
    for (unsigned set = 0; set < 1u << tree->nodes; set++) {
        double gain = 1;
        int k = 0;
        for (int node = 0; node < tree->nodes; node++)
            if (set >> node & 1) {
                gain += tree->score[node];
                k++;
            }
        if (holds_parents(tree, set)) {
            *rate = fmax(*rate, gain / tree->cost[k]);
            *value = fmax(*value, gain - threshold * tree->cost[k]);
        }
    }
}

static double gain_of(const struct made_up *tree, int k)
{
    double gain = 1;
    for (int at = 0; at < k; at++)
        gain += tree->score[tree->order[at]];
    return gain;
}

static void no_set_of_nodes_is_better(void **state)
{
    int none = 0, all = 0;
    (void)state;
    for (int i = 0; i < TREES; i++) {
        struct made_up tree;
        double rate, value, threshold = 2 * uniform();
        make(&tree);
        search(&tree, threshold, &rate, &value);
        int k = trim_by_rate(tree.order, tree.score, tree.cost, tree.nodes);
        int at_threshold = trim_by_threshold(tree.order, tree.score, tree.cost, tree.nodes, threshold);
        int rising = trim_while_rising(tree.order, tree.score, tree.cost, tree.nodes);
        assert_true(fabs(gain_of(&tree, k) / tree.cost[k] - rate) < 1e-12);
        assert_true(fabs(gain_of(&tree, at_threshold) - threshold * tree.cost[at_threshold] - value) < 1e-12);
        assert_true(rising <= k || gain_of(&tree, rising) / tree.cost[rising] <= rate + 1e-12);
        unsigned set = 0;
        for (int at = 0; at < tree.nodes; at++) {
            set |= 1u << tree.order[at];
            assert_true(holds_parents(&tree, set));
        }
        none += tree.nodes && !k;
        all += tree.nodes && k == tree.nodes;
    }
    assert_true(none > 100 && all > 100);
}

/* Draws experts for root and nodes: 2 layers of 16, 2 per token in each; tokens often share some. */
static void make_experts(uint64_t *bits, int rows)
{
    for (int row = 0; row < rows; row++) {
        bits[row] = 0;
        for (int layer = 0; layer < 2; layer++)
            while (trim_count_bits(bits[row] >> (16 * layer) & 0xffff) < 2)
                bits[row] |= (uint64_t)1 << (16 * layer + (int)(16 * uniform() * uniform()));
    }
}

/* Finds the best rate over all sets of nodes, counting the experts of each set anew. */
static double best_rate_of_experts(const struct made_up *tree, const struct trim_experts *trim)
{
    double best = -INFINITY;
    for (unsigned set = 0; set < 1u << tree->nodes; set++) {
        uint64_t joined = *trim->set[0];
        double gain = 1;
        int k = 0, pairs = 0;
        for (int node = 0; node < tree->nodes; node++)
            if (set >> node & 1) {
                joined |= *trim->set[1 + node];
                gain += tree->score[node];
                k++;
            }
        for (int pair = 0; pair < 32; pair++)
            pairs += joined >> pair & 1;
        double usual = trim->average[k] - trim->each;
        double cost = trim->base + trim->steepness * trim->growth[k] * (usual > 0 ? (pairs - trim->each) / usual : 1);
        if (holds_parents(tree, set))
            best = fmax(best, gain / cost);
    }
    return best;
}

static void greedy_by_experts_is_near_the_best_set(void **state)
{
    double sum = 0, worst = 1, by_size = 0;
    int best = 0, none = 0;
    (void)state;
    for (int i = 0; i < TREES; i++) {
        struct made_up tree;
        uint64_t bits[1 + NODES], joined;
        const uint64_t *set[1 + NODES];
        double growth[1 + NODES], average[1 + NODES], cost[1 + NODES];
        uint8_t taken[NODES];
        int32_t order[NODES];
        make(&tree);
        make_experts(bits, 1 + tree.nodes);
        for (int row = 0; row <= tree.nodes; row++) {
            set[row] = &bits[row];
            average[row] = 32 * (1 - pow(1 - 2.0 / 16, 1 + row));
            growth[row] = average[row] / 4 - 1 + 0.02 * row;
        }
        const struct trim_experts trim = {
            .parent = tree.parent, .score = tree.score, .nodes = tree.nodes, .max = NODES, .set = set, .words = 1, .all = 32,
            .each = 4, .growth = growth, .average = average, .base = 1 + 0.2 * uniform(), .steepness = 0.2 + uniform()};
        assert_int_equal(trim_order_by_experts(&trim, order, cost, &joined, taken), tree.nodes);
        const double rate = best_rate_of_experts(&tree, &trim);
        int k = trim_by_rate(order, tree.score, cost, tree.nodes);
        double gain = 1;
        unsigned chosen = 0;
        for (int at = 0; at < k; at++) {
            gain += tree.score[order[at]];
            chosen |= 1u << order[at];
            assert_true(holds_parents(&tree, chosen));
        }
        const double share = gain / cost[k] / rate;
        assert_true(share <= 1 + 1e-12);
        sum += share;
        worst = fmin(worst, share);
        best += share > 1 - 1e-12;
        none += tree.nodes && !k;
        /* The order by score alone, as in evict, with the same costs. */
        double plain = 1, plain_best = 1 / cost[0];
        uint64_t all = bits[0];
        for (int at = 0; at < tree.nodes; at++) {
            plain += tree.score[tree.order[at]];
            all |= bits[1 + tree.order[at]];
            plain_best = fmax(plain_best, plain / trim_experts_cost(&trim, at + 1, trim_count_bits(all)));
        }
        by_size += plain_best / rate;
    }
    print_message("# share of the best rate: mean %.5f, worst %.3f, the best set in %d of %d; by score alone: mean %.5f\n",
                  sum / TREES, worst, best, TREES, by_size / TREES);
    assert_true(sum / TREES > 0.995 && worst > 0.8 && sum > by_size && none > 100);
}

static struct policy *open_policy(const char *text, struct shape **shape)
{
    struct policy *policy = NULL;
    struct err err = {0};
    if (shape_open(shape, NULL, &err))
        fail_msg("%s", err.text);
    const struct policy_setup setup = {.drafters = 1, .draft_length = DRAFT_LENGTH_NONE, .max_length = 64, .shape = *shape};
    if (policy_open(&policy, text, &setup, &err))
        fail_msg("%s", err.text);
    return policy;
}

struct play { int verified, drafted, made; };

/* Iterations with chains of 8 tokens, whose drafter reports the given probability; the first `right` tokens are correct. A
 * row of a forward costs `row` of a forward over one token, a drafted token `draft`. */
static struct play play(struct policy *policy, struct shape *shape, int iterations, double said, int right, double row,
                        double draft)
{
    struct draft_tree tree;
    struct play out = {0, 0, 0};
    int32_t text[10];
    assert_int_equal(draft_tree_init(&tree, shape->room, NULL), 0);
    for (int i = 0; i < iterations; i++) {
        struct draft_view view = {.tree = &tree, .room = 100};
        int made = 0, kept;
        draft_tree_clear(&tree);
        for (;; view.steps++) {
            struct step step = policy->class->next(policy, &view);
            view.added = 0;
            if (step.kind == STEP_STOP)
                break;
            if (step.kind == STEP_KEEP) {
                assert_int_equal(draft_tree_keep(&tree, step.keep, step.kept), 0);
                continue;
            }
            for (int k = 0; k < step.tokens; k++)
                made = draft_tree_add(&tree, tree.nodes - 1, 7 + tree.nodes, (float)log(said), 0) + 1;
            view.added = step.tokens;
        }
        kept = tree.nodes < right ? tree.nodes : right;
        for (int k = 0; k <= kept; k++)
            text[k] = k < right ? 7 + k : 1;
        const struct outcome outcome = {
            .drafted = tree.nodes, .accepted = kept, .emitted = kept + 1, .token = text, .draft_s = 1e-3 * draft * made,
            .verify_s = 1e-3 * (1 + row * tree.nodes), .iteration_s = 1e-3 * (draft * made + 1 + row * tree.nodes)};
        assert_int_equal(policy->class->length(policy), tree.nodes);
        policy->class->observe(policy, &outcome);
        out.verified += tree.nodes;
        out.drafted += made > 0;
        out.made = made;
    }
    draft_tree_free(&tree);
    return out;
}

static void what_does_not_pay_is_not_verified(void **state)
{
    static const char *const names[] = {"evict", "evict-experts", "bastion", "threshold"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct shape *shape = NULL;
        struct policy *policy = open_policy(names[i], &shape);
        struct play first = play(policy, shape, 50, 0.95, 8, 0.1, 1e-4);
        assert_true(first.verified >= 50 * 7);          /* nearly certain and cheap: all are verified */
        policy_close(&policy);
        shape_close(&shape);
        policy = open_policy(names[i], &shape);
        play(policy, shape, 100, 0.3, 0, 0.9, 1e-4);
        struct play dear = play(policy, shape, 100, 0.3, 0, 0.9, 1e-4);
        assert_true(dear.verified <= 1);
        assert_true(dear.drafted >= 90);                /* inspecting drafts costs nearly nothing */
        play(policy, shape, 100, 0.3, 0, 0.9, 0.2);
        struct play paused = play(policy, shape, 400, 0.3, 0, 0.9, 0.2);
        assert_int_equal(paused.verified, 0);
        const bool grows = i == 1 || i == 2;        /* trials of one token, 0.2 forwards each; the others 1.6, of 0.005 x 400 */
        assert_true(paused.drafted > 0 && paused.drafted <= (grows ? 11 : 3));
        policy_close(&policy);
        shape_close(&shape);
    }
}

static void stated_probabilities_are_corrected_on_request(void **state)
{
    struct shape *shape = NULL;
    struct policy *printed = NULL, *calibrated = NULL;
    struct shape *other = NULL;
    (void)state;
    printed = open_policy("evict:explore=1", &shape);
    calibrated = open_policy("evict:calibrated=1,explore=1", &other);
    play(printed, shape, 100, 0.9, 0, 0.3, 1e-6);
    play(calibrated, other, 100, 0.9, 0, 0.3, 1e-6);
    assert_true(play(printed, shape, 10, 0.9, 0, 0.3, 1e-6).verified > 0);      /* relies on its drafter */
    assert_int_equal(play(calibrated, other, 10, 0.9, 0, 0.3, 1e-6).verified, 0);
    policy_close(&printed);
    policy_close(&calibrated);
    shape_close(&shape);
    shape_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_set_of_nodes_is_better),
        cmocka_unit_test(greedy_by_experts_is_near_the_best_set),
        cmocka_unit_test(what_does_not_pay_is_not_verified),
        cmocka_unit_test(stated_probabilities_are_corrected_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
