/* Layers with a state (kernels/delta.h) over random trees: compared with the reference and with the rule computed step by
 * step; each path has the bits of that path alone. */
#include "tests/kernel/support.h"

enum { NODES = 72, TAPS = 4 };

struct shape {
    int key_heads, value_heads, key_dim, value_dim, taps;
    bool tiled;
    enum recurrence kind;
    float floor;
};

static int keys_of(const struct shape *s) { return s->key_heads * s->key_dim; }
static int values_of(const struct shape *s) { return s->value_heads * s->value_dim; }
static int decays_of(const struct shape *s)
{
    return s->value_heads * recurrence_decays(s->kind, s->key_dim, s->value_dim);
}
static int slopes_of(const struct shape *s) { return s->kind == RECURRENCE_SCAN ? values_of(s) * s->key_dim : s->value_heads; }
static int skips_of(const struct shape *s) { return s->kind == RECURRENCE_SCAN ? values_of(s) : s->value_heads; }
static int width_of(const struct shape *s) { return 2 * keys_of(s) + values_of(s); }

/* A text of `committed` tokens, and nodes after it. The state for the segment after a node has the node's number. */
struct forest {
    int count, parent[NODES], depth[NODES];
};

static void forest_draw(struct forest *f, int committed, int nodes, uint64_t *seed)
{
    f->count = committed + nodes;
    for (int i = 0; i < f->count; i++) {
        int back = i < committed || draw_below(seed, 3) ? 1 : 1 + draw_below(seed, 6);
        f->parent[i] = i - back < committed - 1 ? (i < committed ? i - 1 : committed - 1) : i - back;
        f->depth[i] = f->parent[i] < 0 ? 0 : f->depth[f->parent[i]] + 1;
    }
}

/* Inputs by node, and stored values by slot. */
struct layer {
    const struct shape *shape;
    struct arena arena;
    struct buffer in, rate, step, weight, bias, neg_a, step_bias, skip;
    struct buffer conv, key, decay, correction, state;
};

static void layer_open(struct layer *layer, const struct shape *s, uint64_t seed)
{
    const size_t heads = (size_t)s->value_heads, width = (size_t)width_of(s), decays = (size_t)decays_of(s);
    *layer = (struct layer){.shape = s};
    arena_open(&layer->arena);
    struct arena *arena = &layer->arena;
    layer->in = draw_floats(arena, NODES * width, 2, &seed);
    layer->rate = draw_floats(arena, NODES * heads, 3, &seed);
    layer->step = draw_floats(arena, NODES * decays, 3, &seed);
    layer->weight = draw_floats(arena, (size_t)s->taps * width, 1, &seed);
    layer->neg_a = draw_floats(arena, (size_t)slopes_of(s), 0.5f, &seed);
    layer->step_bias = draw_floats(arena, decays, 1, &seed);
    if (recurrence_skips(s->kind)) {
        layer->bias = draw_floats(arena, width, 1, &seed);
        layer->skip = draw_floats(arena, (size_t)skips_of(s), 1, &seed);
    }
    for (int h = 0; h < slopes_of(s); h++)
        ((float *)at(layer->neg_a))[h] = -0.02f - fabsf(((float *)at(layer->neg_a))[h]);
    layer->conv = arena_take(arena, NODES * width * sizeof(float));
    layer->key = arena_take(arena, NODES * (size_t)keys_of(s) * sizeof(float));
    layer->decay = arena_take(arena, NODES * decays * sizeof(float));
    layer->correction = arena_take(arena, NODES * (size_t)values_of(s) * sizeof(float));
    layer->state = arena_take(arena, NODES * (size_t)values_of(s) * (size_t)s->key_dim * sizeof(float));
}

/* Forgets all tokens. */
static void layer_clear(struct layer *layer)
{
    poison(layer->conv);
    poison(layer->key);
    poison(layer->decay);
    poison(layer->correction);
    poison(layer->state);
}

/* The integer arguments of a call: slots of its rows and what each row sees. `slot` of a node; made: nodes whose state
 * exists. */
struct rows {
    int count;
    int32_t slot[NODES], parent[NODES], own[NODES], before[NODES], start[NODES + 1], past[NODES * (TAPS - 1)];
    int32_t path[NODES * 2 * DELTA_BORDER];
};

static void rows_fill(struct rows *rows, const struct shape *s, const struct forest *f, const int *node, int count,
                      const int32_t *slot, bool *made)
{
    int used = 0;
    rows->count = count;
    for (int r = 0; r < count; r++) {
        int inside = f->depth[node[r]] % DELTA_BORDER, before = DELTA_KEPT, last = f->parent[node[r]], past = last, steps;
        for (int i = 0; i < inside; i++)
            last = f->parent[last];
        rows->slot[r] = slot[node[r]];
        rows->parent[r] = inside ? slot[f->parent[node[r]]] : -1;
        rows->own[r] = last < 0 ? DELTA_ZERO : last;
        for (int t = s->taps - 2; t >= 0; t--, past = past < 0 ? past : f->parent[past])
            rows->past[r * (s->taps - 1) + t] = past < 0 ? -1 : slot[past];
        steps = inside + 1;
        if (last >= 0 && !made[last]) {
            made[last] = true;
            before = last;
            for (int i = 0; i < DELTA_BORDER; i++)
                before = f->parent[before];
            steps += DELTA_BORDER;
        }
        rows->before[r] = before;               /* the number of a state, or -1: DELTA_ZERO */
        rows->start[r] = used;
        for (int i = steps - 1, at_node = node[r]; i >= 0; i--, at_node = f->parent[at_node])
            rows->path[used + i] = slot[at_node];
        used += steps;
    }
    rows->start[count] = used;
}

/* Calls each operation once, over rows that are these nodes; out by node. */
static void layer_run(struct layer *layer, const struct device_ops *ops, struct queue queue, const struct forest *f,
                      const int *node, int count, const int32_t *slot, bool *made, float *out)
{
    const struct shape *s = layer->shape;
    const int width = width_of(s), keys = keys_of(s), values = values_of(s), heads = s->value_heads;
    const int decays = decays_of(s), gates_width = heads + decays;
    const int pieces = layer->arena.count;
    struct rows rows;
    struct arena *arena = &layer->arena;
    rows_fill(&rows, s, f, node, count, slot, made);
    struct buffer in = arena_take(arena, (size_t)(count * width) * sizeof(float)), x = arena_copy(arena, in);
    struct buffer gates = arena_take(arena, (size_t)(count * gates_width) * sizeof(float));
    struct buffer beta = arena_take(arena, (size_t)(count * heads) * sizeof(float));
    struct buffer o = arena_take(arena, (size_t)(count * values) * sizeof(float));
    struct buffer slots = take_integers(arena, rows.slot, (size_t)count);
    struct buffer parent = take_integers(arena, rows.parent, (size_t)count);
    for (int r = 0; r < count; r++) {
        memcpy((float *)at(in) + r * width, (float *)at(layer->in) + node[r] * width, (size_t)width * sizeof(float));
        float *own = (float *)at(gates) + r * gates_width;
        memcpy(own, (float *)at(layer->rate) + node[r] * heads, (size_t)heads * sizeof(float));
        memcpy(own + heads, (float *)at(layer->step) + node[r] * decays, (size_t)decays * sizeof(float));
    }
    ops->short_conv(&queue, &(struct short_conv_args){
        .in = in, .weight = layer->weight, .bias = layer->bias, .cache = layer->conv, .slot = slots, .out = x, .silu = true,
        .rows = count,
        .before = take_integers(arena, rows.past, (size_t)(count * (s->taps - 1))), .width = width, .taps = s->taps,
        .in_stride = width, .out_stride = width});
    ops->delta_keys(&queue, &(struct delta_keys_args){
        .x = x, .rate = gates, .step = buffer_part(gates, (size_t)heads * 4, gates.bytes - (size_t)heads * 4), .slot = slots,
        .neg_a = layer->neg_a, .step_bias = layer->step_bias, .parent = parent, .key = layer->key, .decay = layer->decay,
        .beta = beta, .kind = s->kind, .epsilon = 1e-6f, .floor = s->floor, .rows = count, .key_heads = s->key_heads,
        .value_heads = heads, .key_dim = s->key_dim, .value_dim = s->value_dim,
        .stride = width, .gate_stride = gates_width, .step_stride = gates_width});
    ops->delta(&queue, &(struct delta_args){
        .q = x, .v = buffer_part(x, (size_t)(2 * keys) * 4, x.bytes - (size_t)(2 * keys) * 4), .beta = beta, .key = layer->key,
        .decay = layer->decay, .correction = layer->correction, .state = layer->state, .out = o, .skip = layer->skip,
        .neg_a = layer->neg_a, .kind = s->kind,
        .own = take_integers(arena, rows.own, (size_t)count), .before = take_integers(arena, rows.before, (size_t)count),
        .path_start = take_integers(arena, rows.start, (size_t)count + 1),
        .path = take_integers(arena, rows.path, (size_t)rows.start[count]), .rows = count, .key_heads = s->key_heads,
        .value_heads = heads, .key_dim = s->key_dim, .value_dim = s->value_dim, .stride = width, .value_stride = width,
        .tiled = s->tiled});
    for (int r = 0; r < count; r++)
        memcpy(out + node[r] * values, (float *)at(o) + r * values, (size_t)values * sizeof(float));
    arena_check(arena);
    while (arena->count > pieces)
        arena_give_back(arena);
}

/* Runs all nodes in calls of up to `most` rows. */
static void run_all(struct layer *layer, const struct device_ops *ops, struct queue queue, const struct forest *f, int most,
                    uint64_t seed, float *out)
{
    bool made[NODES] = {false};
    int32_t slot[NODES];
    int node[NODES];
    layer_clear(layer);
    for (int i = 0; i < f->count; i++)
        slot[i] = node[i] = i;
    for (int i = 0, rows; i < f->count; i += rows) {
        rows = 1 + draw_below(&seed, most);
        rows = rows < f->count - i ? rows : f->count - i;
        layer_run(layer, ops, queue, f, node + i, rows, slot, made, out);
    }
}

/* One step of RECURRENCE_SCAN, from the convolved x. */
static void scan_step(const struct layer *layer, int node, const double *x, double *state, double *out)
{
    const struct shape *s = layer->shape;
    const double *q = x, *k = x + s->key_dim, *v = x + 2 * s->key_dim;
    for (int h = 0; h < s->value_heads; h++)
        for (int j = 0; j < s->value_dim; j++) {
            const int own = h * s->value_dim + j;
            const double step = (double)((float *)at(layer->step))[node * values_of(s) + own];
            const double t = log1p(exp(step + (double)((float *)at(layer->step_bias))[own]));
            out[own] = (double)((float *)at(layer->skip))[own] * v[own];
            for (int i = 0; i < s->key_dim; i++) {
                const int at_float = (h * s->key_dim + i) * s->value_dim + j;
                const double decay = exp((double)((float *)at(layer->neg_a))[at_float] * t);
                state[at_float] = decay * state[at_float] + k[i] * t * v[own];
                out[own] += q[i] * state[at_float];
            }
        }
}

/* Computes the rule step by step, in double, along the path to a node. */
static void steps_to(const struct layer *layer, const struct forest *f, int node, double *state, double *out)
{
    const struct shape *s = layer->shape;
    const int keys = keys_of(s), width = width_of(s);
    const bool space = recurrence_skips(s->kind), scan = s->kind == RECURRENCE_SCAN;
    const float *in = at(layer->in), *weight = at(layer->weight);
    double *x = calloc((size_t)width, sizeof *x);
    if (f->parent[node] >= 0)
        steps_to(layer, f, f->parent[node], state, out);
    for (int c = 0; c < width; c++) {
        for (int t = s->taps - 1, from = node; t >= 0 && from >= 0; t--, from = f->parent[from])
            x[c] += (double)weight[t * width + c] * (double)in[from * width + c];
        x[c] += space ? (double)((float *)at(layer->bias))[c] : 0;
        x[c] /= 1 + exp(-x[c]);
    }
    for (int part = 0; !space && part < 2 * s->key_heads; part++) {
        double sum = 1e-6, factor = part < s->key_heads ? 1 / sqrt(s->key_dim) : 1;
        for (int i = 0; i < s->key_dim; i++)
            sum += x[part * s->key_dim + i] * x[part * s->key_dim + i];
        for (int i = 0; i < s->key_dim; i++)
            x[part * s->key_dim + i] *= factor / sqrt(sum);
    }
    if (scan)
        scan_step(layer, node, x, state, out);
    for (int h = 0; h < s->value_heads && !scan; h++) {
        const int key_head = s->tiled ? h % s->key_heads : h / (s->value_heads / s->key_heads);
        const double *q = x + key_head * s->key_dim, *k = q + keys;
        const int each = recurrence_decays(s->kind, s->key_dim, s->value_dim);
        const float *steps = (float *)at(layer->step) + node * decays_of(s) + h * each;
        const float *bias = (float *)at(layer->step_bias) + h * each;
        double step = (double)steps[0] + (double)bias[0];
        double beta = space ? log1p(exp(step)) : 1 / (1 + exp(-(double)((float *)at(layer->rate))[node * s->value_heads + h]));
        for (int j = 0; j < s->value_dim; j++) {
            const double v = x[2 * keys + h * s->value_dim + j];
            double *column = state + h * s->key_dim * s->value_dim + j, seen = 0;
            double sum = space ? (double)((float *)at(layer->skip))[h] * v : 0;
            for (int i = 0; i < s->key_dim; i++) {
                const int own = each > 1 ? i : 0;
                const double t = (double)steps[own] + (double)bias[own], slope = (double)((float *)at(layer->neg_a))[h];
                const double g = s->floor < 0 ? (double)s->floor / (1 + exp(slope * t)) : slope * log1p(exp(t));
                seen += k[i] * (column[i * s->value_dim] *= exp(g));
            }
            seen = beta * (space ? v : v - seen);
            for (int i = 0; i < s->key_dim; i++)
                sum += q[i] * (column[i * s->value_dim] += k[i] * seen);
            out[h * s->value_dim + j] = sum;
        }
    }
    free(x);
}

static void check_steps(const struct layer *layer, const struct forest *f, int node, const float *out)
{
    const struct shape *s = layer->shape;
    double *state = calloc((size_t)(values_of(s) * s->key_dim), sizeof *state);
    double *wanted = calloc((size_t)values_of(s), sizeof *wanted);
    steps_to(layer, f, node, state, wanted);
    for (int i = 0; i < values_of(s); i++) {
        double seen = (double)out[node * values_of(s) + i];
        if (!(fabs(seen - wanted[i]) <= (double)TOLERANCE_DELTA.absolute + (double)TOLERANCE_DELTA.relative * fabs(wanted[i])))
            fail_msg("node %d at position %d, [%d]: %.9g, by steps %.9g", node, f->depth[node], i, seen, wanted[i]);
    }
    free(state);
    free(wanted);
}

/* Runs the path to a node token by token, in other slots: equal bits to the run over the whole tree, states included. */
static void check_alone(struct layer *layer, const struct layer *whole, const struct forest *f, int node, const float *out)
{
    const struct shape *s = layer->shape;
    const size_t values = (size_t)values_of(s), state = values * (size_t)s->key_dim;
    int32_t slot[NODES];
    int path[NODES], count = f->depth[node] + 1;
    bool made[NODES] = {false};
    float *alone = calloc(NODES * values, sizeof *alone);
    layer_clear(layer);
    for (int i = count - 1, n = node; i >= 0; i--, n = f->parent[n]) {
        path[i] = n;
        slot[n] = (i + 5) % (3 * DELTA_BORDER);         /* slots are reused */
    }
    for (int i = 0; i < count; i++)
        layer_run(layer, &cpu_isas()[0]->ops, queue_of(1), f, path + i, 1, slot, made, alone);
    for (int i = 0; i < count; i++) {
        assert_memory_equal(alone + (size_t)path[i] * values, out + (size_t)path[i] * values, values * sizeof *out);
        if (made[path[i]])
            assert_memory_equal((float *)at(layer->state) + (size_t)path[i] * state,
                                (float *)at(whole->state) + (size_t)path[i] * state, state * sizeof *out);
    }
    free(alone);
}

static void check_forest(const struct shape *s, int committed, int nodes, uint64_t seed, bool every)
{
    const size_t numbers = (size_t)(NODES * values_of(s));
    float *first = calloc(numbers, sizeof *first), *next = calloc(numbers, sizeof *next);
    struct forest f;
    struct layer whole, other;
    forest_draw(&f, committed, nodes, &seed);
    layer_open(&whole, s, seed);
    layer_open(&other, s, seed);
    run_all(&whole, host_ops(), queue_of_host(), &f, 24, seed, first);          /* devices have the host's bits */
    run_all(&other, &ref_ops, queue_of_ref(&other.arena), &f, 5, seed, next);
    for (int i = 0; i < f.count * values_of(s); i++)
        if (first_far(&first[i], &next[i], 1, TOLERANCE_DELTA) >= 0)
            fail_msg("[%d] is %.9g, reference %.9g", i, (double)first[i], (double)next[i]);
    FOR_EACH_ISA(isa)
        for (int threads = 1; threads <= (every ? POOLS : 1); threads++) {
            run_all(&other, &isa->ops, queue_of(threads), &f, 3 + threads, seed + (uint64_t)threads, next);
            assert_memory_equal(first, next, (size_t)(f.count * values_of(s)) * sizeof *first);
            assert_true(same_bits(whole.state, other.state) && same_bits(whole.correction, other.correction));
        }
    for (int i = committed ? committed - 1 : 0; i < f.count; i++) {
        bool leaf = true;
        for (int j = i + 1; j < f.count; j++)
            leaf = leaf && f.parent[j] != i;
        if (!leaf)
            continue;
        check_steps(&whole, &f, i, first);
        check_alone(&other, &whole, &f, i, first);
    }
    arena_close(&whole.arena);
    arena_close(&other.arena);
    free(first);
    free(next);
}

/* The root lies at every offset to a border, and trees of 24 nodes extend beyond it. */
static void random_trees_have_the_bits_of_their_paths(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {1, 1, 4, 4, 4, false, RECURRENCE_DELTA, 0}, {2, 4, 16, 8, 4, false, RECURRENCE_DELTA, 0},
        {2, 2, 33, 20, 3, false, RECURRENCE_DELTA, 0}, {1, 3, 7, 40, 1, false, RECURRENCE_DELTA, 0},
        {2, 6, 16, 8, 4, true, RECURRENCE_DELTA, 0}, {1, 3, 33, 7, 4, false, RECURRENCE_SPACE, 0},
        {2, 4, 16, 20, 3, false, RECURRENCE_SPACE, 0}, {2, 2, 33, 20, 4, false, RECURRENCE_CHANNEL, 0},
        {1, 2, 16, 37, 4, false, RECURRENCE_SCAN, 0}, {1, 5, 7, 4, 3, false, RECURRENCE_SCAN, 0},
        {1, 3, 16, 7, 3, false, RECURRENCE_CHANNEL, 0}, {2, 2, 17, 8, 4, false, RECURRENCE_CHANNEL, -3}};
    for (int i = 0; i < (kernel_sample() ? (int)LENGTH(shapes) : kernel_brief() ? 33 : 200); i++)
        check_forest(&shapes[i % LENGTH(shapes)], kernel_sample() ? 25 + i % 6 : i % 48, kernel_sample() ? 10 : 24, (uint64_t)i,
                     i % 16 == 0 && !kernel_sample());
}

static void heads_of_published_size(void **state)
{
    (void)state;
    static const struct shape delta = {2, 4, 128, 128, 4, false, RECURRENCE_DELTA, 0};
    static const struct shape space = {1, 4, 128, 64, 4, false, RECURRENCE_SPACE, 0};
    static const struct shape channel = {2, 2, 128, 128, 4, false, RECURRENCE_CHANNEL, 0};
    static const struct shape scan = {1, 3, 16, 64, 4, false, RECURRENCE_SCAN, 0};
    if (kernel_sample()) {                  /* two pieces of the state in each dimension (kernels/cuda/delta.cu) */
        static const struct shape wide = {1, 1, 130, 34, 2, false, RECURRENCE_DELTA, 0};
        static const struct shape long_keys = {1, 1, 130, 3, 2, false, RECURRENCE_SCAN, 0};
        check_forest(&wide, 14, 4, 7, false);
        check_forest(&long_keys, 3, 2, 7, false);
        return;
    }
    check_forest(&delta, 30, 12, 7, true);
    check_forest(&channel, 30, 12, 7, true);
    check_forest(&space, 30, 12, 7, true);
    check_forest(&scan, 30, 12, 7, true);
}

/* Every row is copied to its slot unchanged, and without `silu` the sum is not written. */
static void convolutions_by_hand(void **state)
{
    (void)state;
    enum { WIDTH = 21, ROWS = 3 };
    uint64_t seed = 3;
    struct arena arena;
    arena_open(&arena);
    const int32_t slot[ROWS] = {4, 0, 2}, before[ROWS][2] = {{-1, 1}, {1, 4}, {1, 4}};
    struct short_conv_args a = {.rows = ROWS, .width = WIDTH, .taps = 3, .in_stride = WIDTH + 2, .out_stride = WIDTH};
    a.in = draw_floats(&arena, ROWS * (WIDTH + 2), 1, &seed);
    a.weight = draw_floats(&arena, 3 * WIDTH, 1, &seed);
    a.cache = draw_floats(&arena, 5 * WIDTH, 1, &seed);
    a.slot = take_integers(&arena, slot, ROWS);
    a.before = take_integers(&arena, before[0], 2 * ROWS);
    a.out = arena_take(&arena, ROWS * WIDTH * sizeof(float));
    const float *in = at(a.in), *weight = at(a.weight), *cache = at(a.cache), *out = at(a.out);
    FOR_EACH_ISA(isa) {
        struct queue queue = queue_of(2);
        poison(a.out);
        isa->ops.short_conv(&queue, &a);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < WIDTH; c++) {
                float own = in[r * (WIDTH + 2) + c], next = in[c], old = cache[WIDTH + c];
                float sum = r ? fmaf(weight[WIDTH + c], next, fmaf(weight[c], old, 0)) : fmaf(weight[WIDTH + c], old, 0);
                sum = fmaf(weight[2 * WIDTH + c], own, sum);
                assert_memory_equal(&out[r * WIDTH + c], &sum, sizeof sum);
                assert_memory_equal(&cache[slot[r] * WIDTH + c], &own, sizeof own);
            }
    }
    arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_trees_have_the_bits_of_their_paths),
        cmocka_unit_test(heads_of_published_size),
        cmocka_unit_test(convolutions_by_hand),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
