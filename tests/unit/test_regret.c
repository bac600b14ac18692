/* Replay over synthetic streams: the loss of adaptive policies against the static draft length that is best for each stream,
 * known only afterwards. Acceptance and cost are constant, drift or switch, and both are noisy; cascade-cost gets the cost
 * table of the stream's beginning, with errors. Results are printed. */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/bench/replay.h"

enum { STREAMS = 200, LENGTH = 8, TEXTS = 6, POSITIONS = 500, LONG = 1000, SHORT = 100 };

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state) { return (double)(next_random(state) >> 11) / 9007199254740992.0; }

static double gauss(uint64_t *state)
{
    return sqrt(-2 * log(1 - uniform(state))) * cos(6.283185307179586 * uniform(state));
}

/* The world of one stream: acceptance probability of a drafted token, how it changes with depth, and the costs of tokens. */
struct world {
    int kind;                           /* 0: constant, 1: random walk, 2: waves, 3: steps */
    double chance, depth, steep, bend, level, silent;       /* silent: positions without a draft */
    double walk_chance, walk_steep, walk_level;
    double noise, draft;
    double first_steep;
};

static double clamp(double value, double min, double max) { return fmax(min, fmin(max, value)); }

static void begin_world(struct world *world, int number, uint64_t *random)
{
    *world = (struct world){
        .kind = number % 4, .chance = uniform(random), .depth = 0.9 + 0.12 * uniform(random),
        .steep = 0.03 + 0.9 * uniform(random) * uniform(random), .bend = 0.6 + 0.4 * uniform(random), .level = 0.01,
        .silent = number % 3 ? 0 : 0.6 * uniform(random), .noise = 0.02 + 0.15 * uniform(random),
        .draft = number % 2 ? 1e-4 : 0.06 * uniform(random)};
    world->first_steep = world->steep;
}

static void move_world(struct world *world, int position, uint64_t *random)
{
    if (world->kind == 1) {
        world->walk_chance += 0.02 * gauss(random);
        world->walk_steep += 0.01 * gauss(random);
        world->walk_level += 0.005 * gauss(random);
        world->walk_chance *= 0.999;
        world->walk_steep *= 0.995;
    } else if (world->kind == 2) {
        world->walk_chance = 0.35 * sin(position / 150.0);
        world->walk_steep = 0.4 * sin(position / 260.0);
        world->walk_level = 0.3 * sin(position / 330.0);
    } else if (world->kind == 3 && uniform(random) < 1 / 400.0) {
        world->walk_chance = uniform(random) - world->chance;
        world->walk_steep = 0.5 * gauss(random);
        world->walk_level = 0.3 * gauss(random);
    }
}

static double cost_of(const struct world *world, double steep, int K)
{
    return world->level * (1 + steep * pow(K, world->bend));
}

static void fill_position(struct recording *all, struct recorded_position *position, const struct world *world, int at,
                          int left,
                       uint64_t *random)
{
    double chance = clamp(world->chance + world->walk_chance, 0, 0.98), steep = world->steep * exp(world->walk_steep);
    double level = exp(world->walk_level);
    bool silent = uniform(random) < world->silent;
    int accepted = 0, room = left - 1;
    double p = chance;
    for (; !silent && accepted < LENGTH && uniform(random) < p; accepted++)
        p = clamp(p * world->depth, 0, 0.98);
    int n = silent ? 1 : 1 + (LENGTH < room ? LENGTH : room);
    *position = (struct recorded_position){
        .n = n, .accepted = accepted < n ? accepted : n - 1, .left = left, .room = room, .row = all->rows};
    all->draft[position - all->position] = (struct recorded_draft){n, position->accepted, position->row};
    for (int k = 0; k < n; k++) {
        size_t row = all->rows++;
        double noise = exp(world->noise * gauss(random));
        all->token[row] = k <= position->accepted ? at + k : -1 - k;
        all->log_probability[row] = NAN;
        all->draft_us[row] = 1e6 * k * world->draft * world->level;
        all->verify_us[row] = 1e6 * level * noise * cost_of(world, steep, k);
        all->bytes[row] = 1000 + 100 * k;
    }
}

/* Room for all positions, filled anew for each stream. */
static struct recording *new_recording(void)
{
    size_t positions = (size_t)TEXTS * POSITIONS, rows = positions * (LENGTH + 1);
    struct recording *all = mem_alloc(1, sizeof *all, NULL);
    all->length = LENGTH;
    all->drafters = 1;
    all->draft = mem_alloc(positions, sizeof *all->draft, NULL);
    all->match = mem_alloc(rows, sizeof *all->match, NULL);
    all->text = mem_alloc(TEXTS, sizeof *all->text, NULL);
    all->position = mem_alloc(positions, sizeof *all->position, NULL);
    all->token = mem_alloc(rows, sizeof *all->token, NULL);
    all->log_probability = mem_alloc(rows, sizeof *all->log_probability, NULL);
    all->draft_us = mem_alloc(rows, sizeof *all->draft_us, NULL);
    all->verify_us = mem_alloc(rows, sizeof *all->verify_us, NULL);
    all->draft_bytes = mem_alloc(rows, sizeof *all->draft_bytes, NULL);
    all->bytes = mem_alloc(rows, sizeof *all->bytes, NULL);
    all->experts_loaded = mem_alloc(rows, sizeof *all->experts_loaded, NULL);
    for (int t = 0; t < TEXTS; t++) {
        struct recorded_text *text = &all->text[t];
        *text = (struct recorded_text){.sequence = t, .tokens = POSITIONS + 1, .position = (size_t)t * POSITIONS};
        text->token = mem_alloc(LONG + 1, sizeof *text->token, NULL);
        for (int i = 0; i <= LONG; i++)
            text->token[i] = i;
    }
    all->texts = TEXTS;
    all->positions = positions;
    return all;
}

static void make_stream(struct recording *all, const char *table, int number)
{
    uint64_t random = (uint64_t)number * 1000003 + 17;
    struct world world;
    begin_world(&world, number, &random);
    all->rows = 0;
    for (int t = 0; t < TEXTS; t++)
        for (int i = 0; i < POSITIONS; i++) {
            move_world(&world, t * POSITIONS + i, &random);
            fill_position(all, &all->position[(size_t)t * POSITIONS + (size_t)i], &world, i, POSITIONS - i, &random);
        }
    FILE *file = fopen(table, "w");
    double wrong = exp(0.15 * gauss(&random));
    fprintf(file, "{\"cost\": [");
    for (int m = 1; m <= LENGTH + 1; m++)
        fprintf(file, "%s{\"m\": %d, \"seconds\": %.9g}", m > 1 ? ", " : "", m,
                cost_of(&world, m > 1 ? world.first_steep * wrong : 0, m - 1));
    fprintf(file, "]}");
    fclose(file);
}

/* Runs one text whose drafts are all correct or all wrong; a drafted token costs `draft` iterations. */
static void make_extreme(struct recording *all, bool right, double draft, float says, int positions)
{
    static const double forward[LENGTH + 1] = {1, 1.7, 2.4, 2.9, 3.4, 3.8, 4.1, 4.4, 4.7};
    all->rows = 0;
    all->texts = 1;
    all->text[0].tokens = positions + 1;
    for (int i = 0; i < positions; i++) {
        int room = positions - i - 1, n = 1 + (LENGTH < room ? LENGTH : room);
        all->position[i] = (struct recorded_position){
            .n = n, .accepted = right ? n - 1 : 0, .left = positions - i, .room = room, .row = all->rows};
        all->draft[i] = (struct recorded_draft){n, all->position[i].accepted, all->rows};
        for (int k = 0; k < n; k++, all->rows++) {
            all->token[all->rows] = right || !k ? i + k : -1 - k;
            all->log_probability[all->rows] = says;
            all->draft_us[all->rows] = 1e4 * k * draft;
            all->verify_us[all->rows] = 1e4 * forward[k];
        }
    }
}

/* Returns the time of cascade-cost divided by that of the best static length. */
static double extreme(struct recording *all, bool right, double draft, double says, int positions)
{
    static const char *const policies[] = {"cascade-cost"};
    const struct replay_setup setup = {.recording = all, .draft_length = DRAFT_LENGTH_NONE};
    struct replay_table table;
    struct err err = {0};
    double best = INFINITY, ours;
    make_extreme(all, right, draft, (float)log(says), positions);
    if (replay_compare(&table, &setup, policies, 1, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < table.statics; i++)
        best = fmin(best, table.result[i].seconds);
    ours = table.result[table.statics].seconds / best;
    print_message("# %s drafts at %g, which say %g: %d tokens take %.4f of the best\n", right ? "perfect" : "useless", draft,
                  says, positions, ours);
    replay_table_free(&table);
    return ours;
}

/* The first text, long and short. No real drafter is certain of wrong tokens: it costs the trials until its probabilities
 * are distrusted. */
static void extremes_are_bounded(void **state)
{
    static const double drafts[] = {1e-5, 0.02, 0.2}, says[] = {0.05, 0.9, NAN};
    struct recording *all = new_recording();
    (void)state;
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 3; s++) {
            assert_true(extreme(all, false, drafts[d], says[s], LONG) < 1.02);
            assert_true(extreme(all, false, drafts[d], says[s], SHORT) < 1.05);
        }
    for (int d = 0; d < 3; d++) {
        assert_true(extreme(all, true, drafts[d], 0.95, LONG) < 1.03);
        assert_true(extreme(all, true, drafts[d], NAN, LONG) < 1.03);
    }
    all->texts = TEXTS;
    recording_free(&all);
}

struct loss { double mean, worst; int worst_at; };

static void add_loss(struct loss *loss, const struct replay_table *table, int which, int number)
{
    double best = INFINITY;
    for (int i = 0; i < table->statics; i++)
        best = fmin(best, table->result[i].seconds);
    double now = table->result[table->statics + which].seconds / best - 1;
    loss->mean += now / STREAMS;
    if (now > loss->worst) {
        loss->worst = now;
        loss->worst_at = number;
    }
}

static void losses_are_small(void **state)
{
    struct recording *all = new_recording();
    struct loss ours = {.worst = -1}, published = {.worst = -1};
    char path[] = "/tmp/moe-regret-XXXXXX", policy[64];
    struct err err = {0};
    int file = mkstemp(path);
    (void)state;
    assert_true(file >= 0);
    close(file);
    snprintf(policy, sizeof policy, "cascade-cost:cost=%s", path);
    const char *const policies[] = {policy, "cascade"};
    for (int number = 0; number < STREAMS; number++) {
        make_stream(all, path, number);
        const struct replay_setup setup = {.recording = all, .draft_length = DRAFT_LENGTH_NONE};
        struct replay_table table;
        if (replay_compare(&table, &setup, policies, 2, &err))
            fail_msg("%s", err.text);
        add_loss(&ours, &table, 0, number);
        add_loss(&published, &table, 1, number);
        replay_table_free(&table);
    }
    unlink(path);
    recording_free(&all);
    print_message("# cascade-cost loses %.2f %% on average, %.2f %% at worst (stream %d); "
                  "cascade %.2f %%, %.2f %% (stream %d)\n", 100 * ours.mean, 100 * ours.worst, ours.worst_at,
                  100 * published.mean, 100 * published.worst, published.worst_at);
    assert_true(ours.mean < 0.03);
    assert_true(ours.worst < 0.08);
    assert_true(ours.mean < published.mean && ours.worst < published.worst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_small), cmocka_unit_test(extremes_are_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
