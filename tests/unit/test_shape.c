/* Shapes of drafts without a model: over made-up probabilities a dynamic tree equals the choice from all candidates at the
 * end; a static tree is the file's, as far as there are tokens. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/base/text.h"
#include "common/policy/shape.h"

enum { POOL = 6000, DEPTH = 8, WIDTH = 12 };

static struct shape *open_shape(const char *text)
{
    struct shape *shape = NULL;
    struct err err = {0};
    if (shape_open(&shape, text, &err))
        fail_msg("%s", err.text);
    return shape;
}

/* Returns the log-probability of the child of this rank after these ranks: it falls with the rank. */
static float made_up(unsigned seed, const uint8_t *path, int length, int rank)
{
    unsigned hash = seed * 2654435761u;
    double total = 0, chosen = 0;
    for (int i = 0; i < length; i++)
        hash = (hash ^ path[i]) * 16777619u + 97;
    for (int r = 0; r < WIDTH; r++) {
        double weight = exp(-r * (0.2 + (double)((hash >> 7) % 100) / 60.0)) * (1 + 1e-3 * (double)((hash >> r) % 977) / 977);
        total += weight;
        if (r == rank)
            chosen = weight;
    }
    return (float)log(chosen / total);
}

static float (*log_probability_of)(unsigned seed, const uint8_t *path, int length, int rank) = made_up;

static int path_of(const struct draft_tree *tree, int node, uint8_t *path)
{
    int32_t token[DEPTH];
    int length = draft_tree_path(tree, node, token, DEPTH);
    for (int i = 0; i < length; i++)
        path[i] = (uint8_t)token[i];
    return length;
}

/* Grows a tree as a loop does, with a drafter that proposes at most `width` tokens; tokens are ranks. Returns the number of
 * proposed tokens. */
static int grow(struct shape *shape, struct draft_tree *tree, unsigned seed, int depth, int room, int width)
{
    struct draft_view view = {.tree = tree, .room = room};
    int proposed = 0;
    draft_tree_clear(tree);
    for (;; view.steps++) {
        struct step step = shape->class->next(shape, &view, depth);
        assert_true(view.steps < 200);
        if (step.kind == STEP_STOP)
            break;
        if (step.kind == STEP_KEEP) {
            assert_int_equal(draft_tree_keep(tree, step.keep, step.kept), 0);
            continue;
        }
        assert_int_equal(step.tokens, 1);
        for (int at = 0; at < step.leaves; at++) {
            uint8_t path[DEPTH];
            int length = path_of(tree, step.leaf[at].node, path);
            assert_true(length < depth && length < room);
            for (int rank = 0; rank < step.leaf[at].siblings && rank < width; rank++) {
                int nodes = tree->nodes;
                float value = log_probability_of(seed, path, length, rank);
                assert_int_equal(draft_tree_add(tree, step.leaf[at].node, rank, value, 0), nodes);
                proposed++;
            }
        }
    }
    return proposed;
}

struct candidate {
    uint8_t path[DEPTH];
    int length, age;
    float value;
};

static int by_value(const void *a, const void *b)
{
    const struct candidate *left = a, *right = b;
    return left->value != right->value ? (left->value > right->value ? -1 : 1) : left->age - right->age;
}

/* Chooses from all candidates of all levels at the end; nothing is dropped before. */
static int naive(struct candidate *pool, unsigned seed, int total, int depth, int topk)
{
    struct candidate *beam = calloc((size_t)topk, sizeof *beam), *level = calloc((size_t)(topk * topk + topk), sizeof *level);
    int count = 0, beams = 1;
    beam[0] = (struct candidate){.length = 0};
    for (int d = 0; d < depth; d++) {
        int found = 0;
        for (int b = 0; b < beams; b++)
            for (int rank = 0; rank < topk && rank < WIDTH; rank++) {
                struct candidate *made = &level[found];
                *made = beam[b];
                made->path[made->length] = (uint8_t)rank;
                made->value += made_up(seed, beam[b].path, beam[b].length, rank);
                made->length++;
                made->age = count + found++;
            }
        memcpy(pool + count, level, (size_t)found * sizeof *level);
        count += found;
        assert_true(count < POOL - topk * topk);
        qsort(level, (size_t)found, sizeof *level, by_value);
        beams = found < topk ? found : topk;
        memcpy(beam, level, (size_t)beams * sizeof *beam);
    }
    free(beam);
    free(level);
    qsort(pool, (size_t)count, sizeof *pool, by_value);
    return count < total - 1 ? count : total - 1;
}

static void a_dynamic_tree_is_the_best_of_all_candidates(void **state)
{
    struct candidate *pool = calloc(POOL, sizeof *pool);
    int trimmed = 0, whole = 0;
    (void)state;
    srand(5);
    for (int round = 0; round < 1500; round++) {
        int total = 2 + rand() % (round % 5 ? 80 : 400), depth = 1 + rand() % DEPTH, topk = 1 + rand() % WIDTH;
        unsigned seed = (unsigned)rand();
        struct draft_tree tree = {0};
        char text[80];
        snprintf(text, sizeof text, "dynamic:total=%d,depth=%d,topk=%d", total, depth, topk);
        struct shape *shape = open_shape(text);
        assert_int_equal(shape->depth, depth);
        assert_int_equal(shape->nodes, total - 1);
        assert_int_equal(draft_tree_init(&tree, shape->room, NULL), 0);
        int levels = round % 3 ? depth : 1 + rand() % depth;        /* cut by a draft length, or by the end of the text */
        int proposed = grow(shape, &tree, seed, round % 2 ? depth : levels, round % 2 ? levels : 100, WIDTH);
        int want = naive(pool, seed, total, levels, topk);
        assert_int_equal(tree.nodes, want);
        for (int node = 0; node < tree.nodes; node++) {
            uint8_t path[DEPTH];
            int length = path_of(&tree, node, path), found = 0;
            assert_true(tree.parent[node] < node);
            assert_int_equal(tree.depth[node], length);
            for (int i = 0; i < want; i++)
                found += pool[i].length == length && memcmp(pool[i].path, path, (size_t)length) == 0;
            assert_int_equal(found, 1);
        }
        trimmed += proposed > want;
        whole += proposed == want;
        draft_tree_free(&tree);
        shape_close(&shape);
    }
    assert_true(trimmed > 500 && whole > 50);
    free(pool);
}

/* Ties, missing probabilities and drafters without proposals still give a valid tree, within its limits. */
static void a_dynamic_tree_takes_what_there_is(void **state)
{
    struct shape *shape = open_shape("dynamic:total=9,depth=4,topk=3");
    struct draft_tree tree = {0};
    struct values values = {0};
    (void)state;
    assert_int_equal(draft_tree_init(&tree, shape->room, NULL), 0);
    assert_int_equal(grow(shape, &tree, 1, 4, 100, 0), 0);
    assert_int_equal(tree.nodes, 0);
    assert_int_equal(grow(shape, &tree, 1, 4, 0, 3), 0);
    grow(shape, &tree, 1, 4, 100, 1);                           /* one token a node: a chain */
    assert_int_equal(tree.nodes, 4);
    for (int node = 0; node < 4; node++)
        assert_int_equal(tree.parent[node], node - 1);
    for (int which = 0; which < 2; which++) {
        struct draft_view view = {.tree = &tree, .room = 100};
        draft_tree_clear(&tree);
        for (;; view.steps++) {
            struct step step = shape->class->next(shape, &view, 4);
            if (step.kind == STEP_STOP)
                break;
            if (step.kind == STEP_KEEP)
                assert_int_equal(draft_tree_keep(&tree, step.keep, step.kept), 0);
            for (int at = 0; step.kind == STEP_EXTEND && at < step.leaves; at++)
                for (int rank = 0; rank < step.leaf[at].siblings; rank++)
                    draft_tree_add(&tree, step.leaf[at].node, rank, which ? NAN : 0, 0);
        }
        assert_int_equal(tree.nodes, 8);
    }
    shape->class->state(shape, &values);
    assert_int_equal(values_number(&values, "total", -1), 9);
    assert_int_equal(values_number(&values, "topk", -1), 3);
    grow(shape, &tree, 1, 7, 100, 1);                           /* no deeper than its own limit, whatever the policy requests */
    assert_int_equal(tree.nodes, 4);
    draft_tree_free(&tree);
    shape_close(&shape);
}

/* Log-probabilities in few steps, as trained heads have them: certain children (probability 1) and exact ties. */
static float scripted(unsigned seed, const uint8_t *path, int length, int rank)
{
    unsigned hash = seed * 2654435761u + 12345;
    float value = 0;
    for (int i = 0; i < length; i++)
        hash = (hash ^ path[i]) * 16777619u + 97;
    for (int r = 0; r <= rank; r++) {                                   /* best first */
        hash = hash * 1664525u + 1013904223u;
        static const float steps[] = {0, 0, 0, -0.25f, -0.5f, -1, -1e-9f, -3e-8f};
        value += steps[hash >> 29] + (r ? -0.25f * (float)(hash >> 27 & 1) : 0);
    }
    return value;
}

struct pooled { float score; int32_t parent, token, depth; uint8_t path[DEPTH]; };

/* EAGLE-2's tree as in its authors' code, where no node is dropped: a pool of topk + levels x topk x topk nodes, row by row;
 * scores are sums of floats; the beam consists of the best children of the last iteration, ties by their order; nodes chosen
 * from the pool are sorted by their position in it. Returns their number; parents are indices of chosen nodes. */
static int pool_tree(struct pooled *pool, unsigned seed, int total, int depth, int topk)
{
    int *order = calloc(POOL, sizeof *order), *number = calloc(POOL, sizeof *number);
    int beam[WIDTH] = {-1}, beams = 1, count = 0;
    for (int level = 1; level <= depth; level++) {
        int first = count;
        for (int row = 0; row < beams; row++)
            for (int column = 0; column < topk; column++) {
                const struct pooled *above = beam[row] < 0 ? &(struct pooled){.depth = 0} : &pool[beam[row]];
                struct pooled *made = &pool[count++];
                *made = *above;
                made->score = above->score + scripted(seed, above->path, above->depth, column);
                made->parent = beam[row];
                made->token = made->path[above->depth] = (uint8_t)column;
                made->depth = level;
            }
        beams = count - first < topk ? count - first : topk;
        for (int i = 0; i < beams; i++) {
            int best = -1;
            for (int at = first; at < count; at++) {
                bool taken = false;
                for (int j = 0; j < i; j++)
                    taken |= beam[j] == at;
                if (!taken && (best < 0 || pool[at].score > pool[best].score))
                    best = at;
            }
            beam[i] = best;
        }
    }
    int chosen = 0;
    while (chosen < total - 1 && chosen < count) {
        int best = -1;
        for (int at = 0; at < count; at++)
            if (!order[at] && (best < 0 || pool[at].score > pool[best].score))
                best = at;
        order[best] = 1;
        chosen++;
    }
    chosen = 0;
    for (int at = 0; at < count; at++)
        if (order[at]) {
            number[at] = chosen;
            pool[chosen] = pool[at];
            pool[chosen].parent = pool[at].parent < 0 ? -1 : number[pool[at].parent];
            chosen++;
        }
    free(order);
    free(number);
    return chosen;
}

static void a_dynamic_tree_is_that_of_eagle_with_its_order(void **state)
{
    struct pooled *pool = calloc(POOL, sizeof *pool);
    int ties = 0, cut = 0;
    (void)state;
    srand(23);
    for (int round = 0; round < 600; round++) {
        /* The trees of the published heads, whose levels are EAGLE's depth plus one, then random ones. */
        static const int known[][3] = {{25, 6, 4}, {60, 6, 10}, {60, 8, 10}};
        int total = 2 + rand() % 90, depth = 1 + rand() % DEPTH, topk = 1 + rand() % 10;
        if (round < 300) {
            total = known[round % 3][0];
            depth = known[round % 3][1];
            topk = known[round % 3][2];
        }
        struct draft_tree tree = {0};
        char text[80];
        snprintf(text, sizeof text, "dynamic:total=%d,depth=%d,topk=%d", total, depth, topk);
        struct shape *shape = open_shape(text);
        assert_int_equal(draft_tree_init(&tree, shape->room, NULL), 0);
        log_probability_of = scripted;
        cut += grow(shape, &tree, (unsigned)round, depth, 100, WIDTH) > total - 1;
        log_probability_of = made_up;
        int want = pool_tree(pool, (unsigned)round, total, depth, topk);
        assert_int_equal(tree.nodes, want);
        for (int node = 0; node < want; node++) {
            assert_int_equal(tree.parent[node], pool[node].parent);
            assert_int_equal(tree.token[node], pool[node].token);
            assert_int_equal(tree.depth[node], pool[node].depth);
            ties += node && pool[node].score == pool[node - 1].score;
        }
        draft_tree_free(&tree);
        shape_close(&shape);
    }
    assert_true(ties > 3000 && cut > 400);
    free(pool);
}

static char *write_tree(const char *folder, const char *json)
{
    static char spec[400];
    unit_write(unit_path(folder, "tree.json"), json, strlen(json));
    snprintf(spec, sizeof spec, "static:file=%s", unit_path(folder, "tree.json"));
    return spec;
}

static void a_static_tree_is_that_of_its_file(void **state)
{
    static const char *json = "[[1],[0,0],[0],[2],[0,1],\n[1,0],[0,0,0],[0,0,1],[1,0,0],[2,0]]";
    static const struct { int parent, rank; } want[] = {
        {-1, 0}, {-1, 1}, {-1, 2}, {0, 0}, {0, 1}, {1, 0}, {2, 0}, {3, 0}, {3, 1}, {5, 0}};
    char *folder = unit_folder();
    struct shape *shape = open_shape(write_tree(folder, json));
    struct draft_tree tree = {0};
    (void)state;
    assert_int_equal(shape->nodes, 10);
    assert_int_equal(shape->depth, 3);
    assert_int_equal(draft_tree_init(&tree, shape->room, NULL), 0);
    for (int depth = 0; depth <= 4; depth++)
        for (int room = 0; room <= 4; room++) {
            int levels = depth < room ? depth : room;
            int nodes = levels >= 3 ? 10 : levels == 2 ? 7 : levels ? 3 : 0;
            assert_int_equal(grow(shape, &tree, 1, depth, room, 8), nodes);
            assert_int_equal(tree.nodes, nodes);
            for (int node = 0; node < nodes; node++) {
                assert_int_equal(tree.parent[node], want[node].parent);
                assert_int_equal(tree.token[node], want[node].rank);
            }
        }
    assert_int_equal(grow(shape, &tree, 1, 3, 9, 1), 3);        /* one token per node: the chain within the tree */
    assert_int_equal(draft_tree_depth(&tree), 3);
    assert_int_equal(grow(shape, &tree, 1, 3, 9, 2), 8);        /* without nodes at or below rank 2 */
    draft_tree_free(&tree);
    shape_close(&shape);
    unit_remove(folder);
}

static void levels_stand_below_the_likeliest_node_of_each(void **state)
{
    struct shape *shape = open_shape("static:width=3,depth=4");
    struct draft_tree tree = {0};
    (void)state;
    assert_int_equal(shape->nodes, 12);
    assert_int_equal(shape->depth, 4);
    assert_int_equal(draft_tree_init(&tree, shape->room, NULL), 0);
    assert_int_equal(grow(shape, &tree, 1, 4, 100, WIDTH), 12);
    for (int node = 0; node < 12; node++) {
        assert_int_equal(tree.parent[node], node < 3 ? -1 : node / 3 * 3 - 3);
        assert_int_equal(tree.token[node], node % 3);
    }
    draft_tree_free(&tree);
    shape_close(&shape);
}

/* A rank that the file leaves out is drafted, because a drafter proposes the best first, and dropped before the next level.
 * Compared with paths chosen at random, by brute force. */
static void ranks_left_out_are_dropped_again(void **state)
{
    char *folder = unit_folder();
    struct text json = {0};
    int trimmed = 0;
    (void)state;
    srand(11);
    for (int round = 0; round < 200; round++) {
        int wanted[60], nodes = 0, drafted = 0, max = 0, width = 1 + rand() % 6;      /* paths: ranks + 1, in base 8 */
        struct draft_tree tree = {0};
        text_clear(&json);
        for (int tries = 0; tries < 60; tries++) {
            int above = nodes && rand() % 4 ? wanted[rand() % nodes] : 0, known = 0;
            int path = above * 8 + 1 + rand() % (round % 4 ? 6 : 1);
            for (int i = 0; i < nodes; i++)
                known |= wanted[i] == path;
            if (known || path >= 8 * 8 * 8 * 8)
                continue;
            wanted[nodes++] = path;
            assert_int_equal(text_puts(&json, nodes > 1 ? ",[" : "[[", NULL), 0);
            for (int unit = 512, begun = 0; unit; unit /= 8)
                if (path / unit) {
                    assert_int_equal(text_printf(&json, NULL, "%s%d", begun ? "," : "", path / unit % 8 - 1), 0);
                    begun = 1;
                }
            assert_int_equal(text_putc(&json, ']', NULL), 0);
        }
        assert_int_equal(text_putc(&json, ']', NULL), 0);
        struct shape *shape = open_shape(write_tree(folder, json.data));
        assert_int_equal(shape->nodes, nodes);
        for (int i = -1; i < nodes; i++) {              /* number drafted below each node: its largest rank in the file + 1 */
            int above = i < 0 ? 0 : wanted[i], largest = 0;
            for (int j = 0; j < nodes; j++)
                if (wanted[j] / 8 == above && wanted[j] % 8 > largest)
                    largest = wanted[j] % 8;
            drafted += largest;
        }
        assert_int_equal(shape->added, drafted);
        assert_int_equal(shape->trims, drafted > nodes);
        trimmed += shape->trims;
        assert_int_equal(draft_tree_init(&tree, shape->room, NULL), 0);
        grow(shape, &tree, 1, 8, 100, width);
        for (int i = 0; i < nodes; i++) {
            int reached = 1;
            for (int path = wanted[i]; path; path /= 8)
                reached &= path % 8 <= width;
            max += reached;
        }
        assert_int_equal(tree.nodes, max);
        for (int node = 0, before = 0; node < tree.nodes; node++) {
            uint8_t ranks[DEPTH];
            int length = path_of(&tree, node, ranks), path = 0, known = 0;
            for (int i = 0; i < length; i++)
                path = path * 8 + ranks[i] + 1;
            for (int i = 0; i < nodes; i++)
                known |= wanted[i] == path;
            assert_true(known && path > before);        /* by length, then by ranks */
            before = path;
        }
        if (width == 6)
            assert_int_equal(grow(shape, &tree, 1, 8, 100, 6), drafted);
        draft_tree_free(&tree);
        shape_close(&shape);
    }
    assert_true(trimmed > 140 && trimmed <= 150);
    text_free(&json);
    unit_remove(folder);
}

/* The published lists in trees/: nodes of each level, counted in their sources. */
static void published_trees_are_read(void **state)
{
    static const struct { const char *name; int levels[6]; } files[] = {
        {"eagle-1", {4, 8, 8, 3, 2}}, {"jakiro-star", {4, 8, 8, 3, 2, 1}}, {"medusa-mc-sim-7b-63", {10, 28, 23, 2}},
        {"medusa-vicuna-7b-stage1", {10, 32, 20, 1}}, {"medusa-vicuna-7b-stage1-ablation", {10, 21, 25, 7}},
        {"medusa-vicuna-7b-stage2", {10, 23, 23, 7}}, {"medusa-vicuna-13b-stage1", {10, 29, 23, 1}},
        {"medusa-vicuna-13b-stage2", {10, 19, 25, 9}}, {"medusa-vicuna-33b-stage1", {10, 34, 19}},
        {"medusa-vicuna-33b-stage2", {10, 24, 24, 5}}, {"medusa-zephyr-stage2", {10, 27, 23, 3}},
    };
    static const char *const eagle[] = {"0", "1", "2", "3", "00", "01", "02", "10", "11", "20", "21", "30", "000", "001", "002",
                                        "010", "011", "020", "021", "100", "0000", "0001", "0002", "00000", "00001"};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct draft_tree tree = {0};
        char text[200];
        int levels[6] = {0}, nodes = 0;
        snprintf(text, sizeof text, "static:file=trees/%s.json", files[i].name);
        struct shape *shape = open_shape(text);
        assert_int_equal(draft_tree_init(&tree, shape->room, NULL), 0);
        nodes = grow(shape, &tree, 1, shape->depth, 100, WIDTH);
        assert_int_equal(nodes, tree.nodes);
        assert_int_equal(nodes, shape->nodes);
        for (int node = 0; node < nodes; node++)
            levels[tree.depth[node] - 1]++;
        for (int level = 0; level < 6; level++)
            assert_int_equal(levels[level], files[i].levels[level]);
        for (int node = 0; !i && node < nodes; node++) {
            uint8_t path[DEPTH];
            int length = path_of(&tree, node, path);
            assert_int_equal(strlen(eagle[node]), length);
            for (int at = 0; at < length; at++)
                assert_int_equal(eagle[node][at] - '0', path[at]);
        }
        draft_tree_free(&tree);
        shape_close(&shape);
    }
}

/* Writes a chain of `depth` levels, and `nodes` nodes with 64 children per node in the order of nodes. */
static void write_chain(struct text *json, int depth)
{
    text_clear(json);
    for (int length = 1; length <= depth; length++) {
        assert_int_equal(text_puts(json, length > 1 ? ",[0" : "[[0", NULL), 0);
        for (int at = 1; at < length; at++)
            assert_int_equal(text_puts(json, ",0", NULL), 0);
        assert_int_equal(text_putc(json, ']', NULL), 0);
    }
    assert_int_equal(text_putc(json, ']', NULL), 0);
}

static void write_bush(struct text *json, int nodes)
{
    text_clear(json);
    for (int node = 0; node < nodes; node++) {
        const char *open = node ? ",[" : "[[";
        int rc = node < 64 ? text_printf(json, NULL, "%s%d]", open, node)
                           : text_printf(json, NULL, "%s%d,%d]", open, node / 64 - 1, node % 64);
        assert_int_equal(rc, 0);
    }
    assert_int_equal(text_putc(json, ']', NULL), 0);
}

static void the_largest_trees_are_taken_and_larger_ones_refused(void **state)
{
    char *folder = unit_folder();
    struct text json = {0};
    struct shape *shape = NULL;
    struct err err = {0};
    (void)state;
    write_chain(&json, 64);
    shape = open_shape(write_tree(folder, json.data));
    assert_int_equal(shape->depth, 64);
    assert_int_equal(shape->nodes, 64);
    shape_close(&shape);
    write_chain(&json, 65);
    assert_int_equal(shape_open(&shape, write_tree(folder, json.data), &err), -1);
    assert_non_null(strstr(err.text, "path 65: expected a list of 1 to 64 ranks"));
    write_bush(&json, 511);
    shape = open_shape(write_tree(folder, json.data));
    assert_int_equal(shape->depth, 2);
    assert_int_equal(shape->nodes, 511);
    shape_close(&shape);
    write_bush(&json, 512);
    err = (struct err){0};
    assert_int_equal(shape_open(&shape, write_tree(folder, json.data), &err), -1);
    assert_non_null(strstr(err.text, "1 to 511 paths"));
    text_free(&json);
    unit_remove(folder);
}

static void bad_trees_and_settings_are_refused(void **state)
{
    static const struct { const char *json, *part; } files[] = {
        {"", "not JSON"}, {"[[0],", "not JSON"}, {"{}", "1 to 511 paths"}, {"[]", "1 to 511 paths"},
        {"[0]", "path 1: expected a list of"},
        {"[[0],[]]", "path 2: expected a list of"}, {"[[0],[-1]]", "path 2: each rank"},
        {"[[0],[64]]", "path 2: each rank must be a whole number from 0 to 63"},
        {"[[0],[0.5]]", "path 2: each rank"}, {"[[0],[\"0\"]]", "path 2: each rank"}, {"[[0],[1],[0]]", "twice"},
        {"[[0],[1,0]]", "path 2: the path of its parent node is missing"}, {"[[2],[0],[2]]", "twice"},
        {"[[0],[0,0],[0,0,0],[0,0,1,0]]", "path 4: the path of its parent node is missing"},
    };
    static const struct { const char *text, *part; } texts[] = {
        {"static", "static:file=FILE"}, {"static:width=2", "width=N,depth=N"}, {"static:depth=2", "width=N,depth=N"},
        {"static:width=2,depth=2,file=x", "width=N,depth=N"}, {"static:width=65,depth=2", "width"},
        {"static:width=10,depth=52", "520 nodes, more than the maximum of 511"},
        {"static:file=/nonexistent/tree", "/nonexistent/tree"}, {"dynamic:total=1", "total"},
        {"dynamic:total=513", "total"}, {"dynamic:depth=0", "depth"}, {"dynamic:depth=65", "depth"}, {"dynamic:topk=0", "topk"},
        {"dynamic:topk=65", "topk"}, {"dynamic:width=3", "width"}, {"chain:K=2", "K"}, {"chian", "did you mean chain"},
        {"bush", "not a shape"},
    };
    char *folder = unit_folder();
    struct shape *shape = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct err err = {0};
        assert_int_equal(shape_open(&shape, write_tree(folder, files[i].json), &err), -1);
        assert_null(shape);
        if (!strstr(err.text, files[i].part) || !strstr(err.text, "tree.json"))
            fail_msg("%s", err.text);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct err err = {0};
        assert_int_equal(shape_open(&shape, texts[i].text, &err), -1);
        assert_null(shape);
        assert_non_null(strstr(err.text, texts[i].part));
    }
    unit_remove(folder);
}

static void trees_are_cut_to_trees_only(void **state)
{
    struct draft_tree tree = {0};
    static const int32_t good[] = {0, 2, 3}, orphan[] = {1, 3}, unsorted[] = {2, 0}, twice[] = {0, 0}, beyond[] = {0, 4};
    (void)state;
    assert_int_equal(draft_tree_init(&tree, 4, NULL), 0);
    draft_tree_add(&tree, -1, 5, -1, 0);
    draft_tree_add(&tree, 0, 6, -2, 0);
    draft_tree_add(&tree, 0, 7, -3, 0);
    draft_tree_add(&tree, 2, 8, -4, 0);
    tree.proposal[3] = tree.log_probability;
    tree.match[2] = 9;
    tree.reviewer[3] = 1;
    tree.drafter[3] = 2;
    assert_int_equal(draft_tree_keep(&tree, orphan, 2), -1);
    assert_int_equal(draft_tree_keep(&tree, unsorted, 2), -1);
    assert_int_equal(draft_tree_keep(&tree, twice, 2), -1);
    assert_int_equal(draft_tree_keep(&tree, beyond, 2), -1);
    assert_int_equal(tree.nodes, 4);
    assert_int_equal(draft_tree_keep(&tree, good, 3), 0);
    assert_int_equal(tree.nodes, 3);
    assert_int_equal(tree.parent[1], 0);
    assert_int_equal(tree.parent[2], 1);
    assert_int_equal(tree.token[1], 7);
    assert_int_equal(tree.token[2], 8);
    assert_int_equal(tree.depth[2], 3);
    assert_true(tree.match[1] == 9 && tree.match[2] == 0 && tree.reviewer[2] == 1 && tree.drafter[2] == 2);
    assert_true(tree.log_probability[2] == -4 && tree.proposal[2] == tree.log_probability && !tree.proposal[1]);
    draft_tree_free(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dynamic_tree_is_the_best_of_all_candidates),
        cmocka_unit_test(a_dynamic_tree_takes_what_there_is),
        cmocka_unit_test(a_dynamic_tree_is_that_of_eagle_with_its_order),
        cmocka_unit_test(a_static_tree_is_that_of_its_file),
        cmocka_unit_test(levels_stand_below_the_likeliest_node_of_each),
        cmocka_unit_test(ranks_left_out_are_dropped_again),
        cmocka_unit_test(published_trees_are_read),
        cmocka_unit_test(the_largest_trees_are_taken_and_larger_ones_refused),
        cmocka_unit_test(bad_trees_and_settings_are_refused),
        cmocka_unit_test(trees_are_cut_to_trees_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
