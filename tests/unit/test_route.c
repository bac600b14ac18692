/* Counts, rankings, coverage and merging of route streams, compared with plain sums. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/route/coverage.h"
#include "common/route/input.h"
#include "common/route/made_alike.h"
#include "common/route/merge.h"
#include "common/route/neighbours.h"
#include "common/stream/rank.h"
#include "common/stream/reader.h"
#include "common/stream/writer.h"

enum { LAYERS = 3, EXPERTS = 10, TOP_K = 2, SEQUENCES = 12, ROWS_MAX = 9, TOKENS_MAX = 4096 };

static const struct stream_model model = { .name = "tiny", .layers = LAYERS + 1, .moe_layers = LAYERS, .experts = EXPERTS,
                                           .top_k = TOP_K, .vocab = 50, .hidden = 8 };

/* All tokens of all texts as a plain table; `kept` marks those that are part of the text. */
struct world {
    int tokens, sequence[TOKENS_MAX], record[TOKENS_MAX];
    bool kept[TOKENS_MAX], prompt[TOKENS_MAX];
    int16_t expert[TOKENS_MAX][LAYERS][TOP_K];
    float probs[TOKENS_MAX][LAYERS][EXPERTS];
};

static unsigned draw(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static void draw_token(struct world *world, unsigned *state)
{
    int t = world->tokens;
    for (int l = 0; l < LAYERS; l++) {
        float sum = 0;
        for (int e = 0; e < EXPERTS; e++)
            sum += world->probs[t][l][e] = 1 + (float)draw(state, 1000) / (float)(1 + e + l);
        for (int e = 0; e < EXPERTS; e++)
            world->probs[t][l][e] /= sum;
        int first = 0, second = -1;
        for (int e = 1; e < EXPERTS; e++)
            if (world->probs[t][l][e] > world->probs[t][l][first])
                first = e;
        for (int e = 0; e < EXPERTS; e++)
            if (e != first && (second < 0 || world->probs[t][l][e] > world->probs[t][l][second]))
                second = e;
        world->expert[t][l][0] = (int16_t)first;
        world->expert[t][l][1] = (int16_t)second;
    }
    world->tokens++;
}

/* Texts of a few prompt records and then verified drafts, of which some rows were not accepted. */
static struct world *world_make(unsigned seed)
{
    struct world *world = calloc(1, sizeof *world);
    unsigned state = seed;
    int record = 0;
    for (int s = 0; s < SEQUENCES; s++)
        for (int r = 0; r < 12; r++, record++) {
            int rows = 1 + (int)draw(&state, ROWS_MAX);
            for (int i = 0; i < rows; i++) {
                int t = world->tokens;
                world->sequence[t] = s;
                world->record[t] = record;
                world->prompt[t] = r < 3;
                world->kept[t] = r < 3 || i == 0 || draw(&state, 2);
                draw_token(world, &state);
            }
        }
    return world;
}

enum detail { PLAIN = 0, WITH_MASS = 1, WITH_PROBS = 2, NO_END = 4 };

static void write_record(struct writer *out, const struct world *world, int from, int rows, int64_t sequence, int detail)
{
    static const int32_t tokens[ROWS_MAX];
    static const float weights[ROWS_MAX * LAYERS * TOP_K];
    double mass[LAYERS][EXPERTS] = {{0}};
    uint8_t accepted[ROWS_MAX];
    for (int i = 0; i < rows; i++) {
        accepted[i] = world->kept[from + i];
        if (accepted[i])
            route_mass_add(mass[0], world->probs[from + i][0], LAYERS * EXPERTS);
    }
    struct route_tokens record = { .sequence = sequence, .pos = from, .n = rows,
                                   .phase = world->prompt[from] ? PHASE_PROMPT : PHASE_VERIFY, .tokens = tokens,
                                   .accepted = world->prompt[from] ? NULL : accepted, .experts = world->expert[from][0],
                                   .weights = weights, .mass = detail & WITH_MASS ? mass[0] : NULL,
                                   .probs = detail & WITH_PROBS ? world->probs[from][0] : NULL };
    assert_int_equal(writer_record(out, &route_tokens_kind, &record, NULL), 0);
}

/* Writes the texts s with s % shards == shard, as moe-profile --shard does. */
static void write_routes(const char *path, const struct world *world, int shard, int shards, int detail,
                         const struct stream_model *as)
{
    struct err err = {0};
    struct header header = {0};
    struct writer *out = NULL;
    assert_int_equal(header_init(&header, STREAM_ROUTE, "test", "0", 0, NULL, &err), 0);
    header.has_model = true;
    header.model = *as;
    assert_int_equal(writer_open(&out, path, &header, &err), 0);
    for (int s = shard, number = 0; s < SEQUENCES; s += shards, number++) {
        struct route_begin begin = { .sequence = number, .id = "a", .prompt_tokens = 3 };
        struct route_end end = { .sequence = number };
        assert_int_equal(writer_record(out, &route_begin_kind, &begin, &err), 0);
        for (int t = 0, rows; t < world->tokens; t += rows) {
            for (rows = 1; t + rows < world->tokens && world->record[t + rows] == world->record[t]; rows++)
                ;
            if (world->sequence[t] == s)
                write_record(out, world, t, rows, number, detail);
        }
        assert_int_equal(writer_record(out, &route_end_kind, &end, &err), 0);
    }
    assert_int_equal(writer_close(&out, &err), 0);
    header_free(&header);
}

struct gathered {
    struct route_counts *counts;
    struct route_spool *spool;
    const char *folder;
};

static int gather_open(void *context, const struct stream_model *of, struct err *err)
{
    struct gathered *g = context;
    return route_counts_open(&g->counts, of, err) || route_spool_open(&g->spool, of, SPOOL_MEMORY, g->folder, err);
}

static int gather_tokens(void *context, const struct route_tokens *record, struct err *err)
{
    struct gathered *g = context;
    return route_counts_add(g->counts, record, err) || route_spool_add(g->spool, record, err);
}

static int gather(struct gathered *g, const char *const *paths, int count, int phases, struct err *err)
{
    struct header header = {0};
    struct text note = {0};
    struct route_input input = { .paths = paths, .count = count, .phases = phases };
    struct route_consumer consumer = { .context = g, .open = gather_open, .tokens = gather_tokens };
    int rc = header_init(&header, STREAM_RANK, "test", "0", 0, NULL, err) ||
             route_input_read(&input, &consumer, &header, &note, err) ? -1 : 0;
    header_free(&header);
    text_free(&note);
    return rc;
}

static void gathered_free(struct gathered *g)
{
    route_counts_free(&g->counts);
    route_spool_close(&g->spool);
}

static void test_counts(void **unused)
{
    (void)unused;
    char *folder = unit_folder();
    struct world *world = world_make(7);
    for (int detail = WITH_MASS; detail <= WITH_PROBS; detail++)
        for (int phases = ROUTE_ALL; phases <= ROUTE_DECODE; phases++) {
            const char *path = unit_path(folder, "r.moes");
            struct gathered g = { .folder = folder };
            struct err err = {0};
            int64_t tokens = 0, selected[LAYERS][EXPERTS] = {{0}};
            double mass[LAYERS * EXPERTS] = {0};
            write_routes(path, world, 0, 1, detail, &model);
            assert_int_equal(gather(&g, &path, 1, phases, &err), 0);
            for (int t = 0; t < world->tokens; t++) {
                if (!world->kept[t] || (phases != ROUTE_ALL && world->prompt[t] != (phases == ROUTE_PROMPT)))
                    continue;
                tokens++;
                for (int l = 0; l < LAYERS; l++) {
                    for (int k = 0; k < TOP_K; k++)
                        selected[l][world->expert[t][l][k]]++;
                    for (int e = 0; e < EXPERTS; e++)
                        mass[l * EXPERTS + e] += (double)world->probs[t][l][e];
                }
            }
            assert_true(tokens > 50);
            assert_int_equal(g.counts->tokens, tokens);
            assert_false(g.counts->lacks_mass);
            assert_memory_equal(g.counts->selected, selected, sizeof selected);
            for (int i = 0; i < LAYERS * EXPERTS; i++)
                assert_true(fabs((double)g.counts->mass[i] / ROUTE_MASS_STEPS - mass[i]) < (double)tokens * 1e-9);
            gathered_free(&g);
        }
    free(world);
    unit_remove(folder);
}

/* The same tokens in other records, other streams and another order add up to the same integers. */
static void test_any_grouping(void **unused)
{
    (void)unused;
    char *folder = unit_folder();
    struct world *world = world_make(11);
    struct gathered whole = { .folder = folder }, parts = { .folder = folder };
    struct err err = {0};
    const char *all = unit_path(folder, "all");
    write_routes(all, world, 0, 1, WITH_PROBS, &model);
    assert_int_equal(gather(&whole, &all, 1, ROUTE_ALL, &err), 0);

    const char *shards[3] = { unit_path(folder, "2"), unit_path(folder, "0"), unit_path(folder, "1") };
    write_routes(shards[0], world, 2, 3, WITH_MASS, &model);
    write_routes(shards[1], world, 0, 3, WITH_MASS, &model);
    write_routes(shards[2], world, 1, 3, WITH_MASS, &model);
    assert_int_equal(gather(&parts, shards, 3, ROUTE_ALL, &err), 0);
    assert_int_equal(whole.counts->tokens, parts.counts->tokens);
    assert_memory_equal(whole.counts->mass, parts.counts->mass, LAYERS * EXPERTS * sizeof(int64_t));
    assert_memory_equal(whole.counts->selected, parts.counts->selected, LAYERS * EXPERTS * sizeof(int64_t));
    gathered_free(&whole);
    gathered_free(&parts);
    free(world);
    unit_remove(folder);
}

static void test_ranking(void **unused)
{
    (void)unused;
    int64_t selected[2 * 4] = { 5, 9, 5, 0, 1, 1, 1, 1 }, mass[2 * 4] = { 1, 2, 3, 4, 40, 30, 20, 10 };
    struct route_counts counts = { .moe_layers = 2, .experts = 4, .top_k = 2, .tokens = 10, .selected = selected,
                                   .mass = mass };
    struct ranking *ranking = NULL;
    struct err err = {0};
    static const int32_t frequency[8] = { 1, 0, 2, 3, 0, 1, 2, 3 }, by_mass[8] = { 3, 2, 1, 0, 0, 1, 2, 3 };
    assert_int_equal(ranking_make(&ranking, &counts, RANKING_FREQUENCY, &err), 0);
    assert_memory_equal(ranking->order, frequency, sizeof frequency);
    assert_true(ranking->score[0] == 9 && ranking->score[3] == 0 && ranking->budget[1] == -1);
    ranking_recommend(ranking, 0.75);
    assert_int_equal(ranking->budget[0], 3);    /* 9 + 5 of 19 are 0.74 */
    assert_int_equal(ranking->budget[1], 3);    /* 3 of 4 are 0.75 */
    ranking_free(&ranking);
    assert_int_equal(ranking_make(&ranking, &counts, RANKING_MASS, &err), 0);
    assert_memory_equal(ranking->order, by_mass, sizeof by_mass);
    ranking_free(&ranking);

    counts.lacks_mass = true;
    assert_int_equal(ranking_make(&ranking, &counts, RANKING_MASS, &err), -1);
    assert_non_null(strstr(err.text, "moe-profile"));
    err_clear(&err);
    counts.tokens = 0;
    assert_int_equal(ranking_make(&ranking, &counts, RANKING_FREQUENCY, &err), -1);
    assert_null(ranking);
}

static void test_budget_parse(void **unused)
{
    (void)unused;
    static const char *const bad[] = { "", "0", "-1", "+1", " 1", "1 ", "1,", ",1", "8x", "1,2", "1,2,3,4", "1,,3", "0x4",
                                       "1e2", "1x2x3", "1 2 3" };
    int32_t size[3];
    struct err err = {0};
    assert_int_equal(budget_parse(size, "12", 3, 32, NULL, &err), 0);
    assert_true(size[0] == 12 && size[1] == 12 && size[2] == 12);
    assert_int_equal(budget_parse(size, "1,99999999999999999999,32", 3, 32, NULL, &err), 0);
    assert_true(size[0] == 1 && size[1] == 32 && size[2] == 32);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err_clear(&err);
        assert_int_equal(budget_parse(size, bad[i], 3, 32, NULL, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
    }
}

static void write_ranking(const char *path, const struct ranking *ranking, int skip, int twice)
{
    struct header header = {0};
    struct writer *out = NULL;
    assert_int_equal(header_init(&header, STREAM_RANK, "test", "0", 0, NULL, NULL), 0);
    header.has_model = true;
    header.model = model;
    assert_int_equal(writer_open(&out, path, &header, NULL), 0);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int n = layer == skip ? 0 : layer == twice ? 2 : 1; n > 0; n--) {
            struct rank_layer record = { .layer = layer, .method = ranking->method, .budget = ranking->budget[layer],
                                         .order = ranking->order + layer * EXPERTS, .score = ranking->score + layer * EXPERTS };
            assert_int_equal(writer_record(out, &rank_layer_kind, &record, NULL), 0);
        }
    assert_int_equal(writer_close(&out, NULL), 0);
    header_free(&header);
}

static int read_ranking(struct ranking **out, const char *path, struct err *err)
{
    struct reader *in = NULL;
    int rc = reader_open(&in, path, STREAM_RANK, NULL, err) || ranking_read(out, in, err) ? -1 : 0;
    reader_close(&in);
    return rc;
}

static void test_ranking_stream(void **unused)
{
    (void)unused;
    char *folder = unit_folder();
    struct world *world = world_make(3);
    struct gathered g = { .folder = folder };
    struct ranking *made = NULL, *read = NULL;
    struct err err = {0};
    const char *routes = unit_path(folder, "routes"), *path = unit_path(folder, "rank");
    write_routes(routes, world, 0, 1, WITH_MASS, &model);
    assert_int_equal(gather(&g, &routes, 1, ROUTE_ALL, &err), 0);
    assert_int_equal(ranking_make(&made, g.counts, RANKING_MASS, &err), 0);
    made->budget[1] = 4;
    write_ranking(path, made, -1, -1);
    assert_int_equal(read_ranking(&read, path, &err), 0);
    assert_memory_equal(read->order, made->order, LAYERS * EXPERTS * sizeof *made->order);
    assert_memory_equal(read->score, made->score, LAYERS * EXPERTS * sizeof *made->score);
    assert_memory_equal(read->budget, made->budget, LAYERS * sizeof *made->budget);
    assert_string_equal(read->method, "mass");
    ranking_free(&read);

    write_ranking(path, made, 1, -1);
    assert_int_equal(read_ranking(&read, path, &err), -1);
    assert_non_null(strstr(err.text, "2 of 3"));
    err_clear(&err);
    write_ranking(path, made, -1, 2);
    assert_int_equal(read_ranking(&read, path, &err), -1);
    assert_non_null(strstr(err.text, "twice"));
    err_clear(&err);
    strcpy(made->method, "by \"luck\"");
    write_ranking(path, made, -1, -1);
    assert_int_equal(read_ranking(&read, path, &err), -1);
    assert_null(read);
    ranking_free(&made);
    gathered_free(&g);
    free(world);
    unit_remove(folder);
}

static void test_coverage(void **unused)
{
    (void)unused;
    char *folder = unit_folder();
    struct world *world = world_make(5);
    struct gathered g = { .folder = folder };
    struct ranking *ranking = NULL;
    struct coverage *coverage = NULL;
    struct err err = {0};
    const char *routes = unit_path(folder, "routes");
    write_routes(routes, world, 0, 1, WITH_MASS, &model);
    assert_int_equal(gather(&g, &routes, 1, ROUTE_ALL, &err), 0);
    assert_int_equal(ranking_make(&ranking, g.counts, RANKING_FREQUENCY, &err), 0);
    assert_int_equal(coverage_make(&coverage, g.counts, g.spool, ranking, &err), 0);
    for (int l = 0; l < LAYERS; l++)
        for (int b = 1; b <= EXPERTS; b++) {
            bool in[EXPERTS] = {false};
            double mass = 0, all = 0;
            int served = 0, tokens = 0;
            for (int i = 0; i < b; i++)
                in[ranking->order[l * EXPERTS + i]] = true;
            for (int t = 0; t < world->tokens; t++) {
                if (!world->kept[t])
                    continue;
                tokens++;
                served += in[world->expert[t][l][0]] && in[world->expert[t][l][1]];
                for (int e = 0; e < EXPERTS; e++) {
                    mass += in[e] ? (double)world->probs[t][l][e] : 0;
                    all += (double)world->probs[t][l][e];
                }
            }
            assert_true(fabs(coverage->mass[l * EXPERTS + b - 1] - mass / all) < 1e-7);
            assert_true(fabs(coverage->served[l * EXPERTS + b - 1] - (double)served / tokens) < 1e-12);
        }
    assert_true(coverage->served[EXPERTS - 1] == 1 && coverage->mass[EXPERTS - 1] == 1);
    coverage_free(&coverage);
    ranking_free(&ranking);
    gathered_free(&g);
    free(world);
    unit_remove(folder);
}

/* Counts windows and pairs one by one. Sequences are interleaved, as a stream may have them. Expert numbers are `apart` from
 * each other, so that the experts of a token lie in several words. */
static void check_neighbours(int apart)
{
    struct stream_model spread = model;
    enum { TEXTS = 5, LONG = 150 };
    static int16_t expert[TEXTS][LONG][LAYERS][TOP_K];
    int length[TEXTS] = { 150, 1, 64, 2, 70 }, at[TEXTS] = { 0 }, left = 0;
    const struct analysis_setup setup = {0};
    struct analysis *n = NULL;
    struct neighbour_width of[NEIGHBOUR_WIDTHS];
    struct err err = {0};
    unsigned state = 4;
    spread.experts = EXPERTS * apart;
    assert_int_equal(analysis_open(&n, &union_analysis, &setup, &spread, &err), 0);
    for (int t = 0; t < TEXTS; t++)
        for (int i = 0; i < length[t]; i++, left++)
            for (int l = 0; l < LAYERS; l++) {
                expert[t][i][l][0] = (int16_t)draw(&state, EXPERTS / 2);        /* the two experts always differ */
                if (draw(&state, 100) < 90)
                    expert[t][i][l][1] = (int16_t)(EXPERTS / 2 + i / 40);
                else
                    expert[t][i][l][1] = (int16_t)(EXPERTS / 2 + (int)draw(&state, EXPERTS / 2));
            }
    while (left) {
        int t = (int)draw(&state, TEXTS), rows = 1 + (int)draw(&state, 5);
        int16_t row[6 * LAYERS * TOP_K] = {0};
        uint8_t accepted[6] = {0};
        rows = at[t] + rows > length[t] ? length[t] - at[t] : rows;
        if (!rows)
            continue;
        memcpy(row + LAYERS * TOP_K, expert[t][at[t]], (size_t)rows * sizeof expert[t][0]);
        for (int i = 0; i < (rows + 1) * LAYERS * TOP_K; i++)
            row[i] = (int16_t)(row[i] * apart);
        memset(accepted + 1, 1, (size_t)rows);          /* the row before was not accepted */
        struct route_tokens record = { .sequence = t, .n = rows + 1, .experts = row, .accepted = accepted };
        assert_int_equal(n->class->tokens(n, &record, &err), 0);
        at[t] += rows;
        left -= rows;
        if (at[t] == length[t])
            n->class->end(n, t);
    }
    for (int l = 0; l < LAYERS; l++) {
        neighbours_layer(n, l, of);
        for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
            int width = 1 << i;
            int64_t windows = 0, distinct = 0, pairs = 0, common = 0;
            for (int t = 0; t < TEXTS; t++)
                for (int first = 0; first < length[t]; first++) {
                    bool seen[EXPERTS] = {false};
                    if (first + width < length[t]) {
                        pairs++;
                        for (int a = 0; a < TOP_K; a++)
                            for (int b = 0; b < TOP_K; b++)
                                common += expert[t][first][l][a] == expert[t][first + width][l][b];
                    }
                    if (first + width > length[t])
                        continue;
                    windows++;
                    for (int j = first; j < first + width; j++)
                        for (int k = 0; k < TOP_K; k++) {
                            distinct += !seen[expert[t][j][l][k]];
                            seen[expert[t][j][l][k]] = true;
                        }
                }
            assert_int_equal(of[i].windows, windows);
            assert_int_equal(of[i].pairs, pairs);
            assert_true(fabs(of[i].distinct - (double)distinct / (double)windows) < 1e-9);
            assert_true(fabs(of[i].common - (double)common / (double)(pairs * TOP_K)) < 1e-9);
        }
        if (apart > 1)
            continue;
        /* 1 token: its own two; 2 tokens: 10 (1 - 0.8 x 0.8) */
        assert_true(fabs(of[0].distinct - 2) < 1e-9 && fabs(of[1].distinct_alike - 3.6) < 1e-9);
        assert_true(fabs(of[0].common_alike - 0.2) < 1e-9 && of[0].common_independent > 0.2);
        assert_true(of[3].distinct_independent < of[3].distinct_alike);
    }
    analysis_free(&n);
}

static void test_neighbours(void **unused)
{
    (void)unused;
    check_neighbours(1);
    check_neighbours(13);
}

/* Blocks of the spool are read back in the order of writing; with more tokens than one block holds, narrow and wide numbers,
 * in memory, in the file, and partly in both. */
static void collect(void *context, int layer, const int16_t *expert, int tokens)
{
    uint64_t *sum = (uint64_t *)context + layer;
    for (int i = 0; i < tokens * 2; i++)
        *sum = *sum * 31 + (uint64_t)expert[i];
}

static void test_spool(void **unused)
{
    (void)unused;
    char *folder = unit_folder();
    for (int round = 0; round < 6; round++) {
        struct stream_model shape = { .moe_layers = 2, .experts = round % 2 ? 300 : 254, .top_k = 2 };
        struct route_spool *spool = NULL;
        struct err err = {0};
        uint64_t sum[2] = {0}, back[2] = {0};
        unsigned state = 1;
        assert_int_equal(route_spool_open(&spool, &shape, (size_t)(round / 2) << 18, folder, &err), 0);
        for (int r = 0; r < 20000; r++) {
            int16_t expert[10 * 4];
            uint8_t accepted[10];
            for (int i = 0; i < 40; i++)
                expert[i] = (int16_t)((int)draw(&state, (unsigned)shape.experts + 1) - 1);
            for (int i = 0; i < 10; i++) {
                accepted[i] = draw(&state, 4) > 0;
                for (int layer = 0; accepted[i] && layer < 2; layer++)
                    collect(sum, layer, expert + i * 4 + layer * 2, 1);
            }
            struct route_tokens record = { .n = 10, .accepted = accepted, .experts = expert };
            assert_int_equal(route_spool_add(spool, &record, &err), 0);
        }
        assert_int_equal(route_spool_replay(spool, 0, 1, collect, back, &err), 0);
        assert_true(sum[0] == back[0] && sum[0] && !back[1]);
        assert_int_equal(route_spool_replay(spool, 1, 2, collect, back, &err), 0);
        assert_true(sum[0] == back[0] && sum[1] == back[1]);
        route_spool_close(&spool);
        int16_t expert[4] = {0};
        struct route_tokens record = { .n = 1, .experts = expert };
        assert_int_equal(route_spool_open(&spool, &shape, 0, "/nowhere", &err), 0);
        assert_int_equal(route_spool_add(spool, &record, &err), -1);
        assert_non_null(strstr(err.text, "TMPDIR"));
        route_spool_close(&spool);
    }
    unit_remove(folder);
}

static void test_refusals(void **unused)
{
    (void)unused;
    char *folder = unit_folder();
    struct world *world = world_make(2);
    const char *paths[2] = { unit_path(folder, "a"), unit_path(folder, "b") };
    struct stream_model other = model;
    struct err err = {0};
    struct gathered g = { .folder = folder };
    write_routes(paths[0], world, 0, 1, PLAIN, &model);
    assert_int_equal(gather(&g, paths, 1, ROUTE_ALL, &err), 0);
    assert_true(g.counts->lacks_mass);
    gathered_free(&g);

    other.vocab = 51;
    write_routes(paths[1], world, 0, 1, PLAIN, &other);
    assert_int_equal(gather(&g, paths, 2, ROUTE_ALL, &err), -1);
    assert_non_null(strstr(err.text, "vocabulary"));
    gathered_free(&g);

    double mass[LAYERS * EXPERTS] = { 0 };
    int16_t expert[LAYERS * TOP_K] = { 0 };
    struct route_tokens record = { .n = 1, .experts = expert, .mass = mass };
    static const double bad[] = { -1e-9, 2, 1e300, NAN, INFINITY };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct route_counts *counts = NULL;
        mass[4] = bad[i];
        err_clear(&err);
        assert_int_equal(route_counts_open(&counts, &model, &err), 0);
        assert_int_equal(route_counts_add(counts, &record, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        route_counts_free(&counts);
    }
    struct route_counts *counts = NULL;
    struct stream_model huge = { .moe_layers = 1 << 20, .experts = 30000, .top_k = 2 }, dense = { .layers = 4 };
    assert_int_equal(route_counts_open(&counts, &huge, &err), -1);
    assert_int_equal(route_counts_open(&counts, &dense, &err), -1);
    free(world);
    unit_remove(folder);
}

static int merge_to(const char *output, const char *const *paths, int count, struct err *err)
{
    static const struct opt none[] = { OPT_END };
    struct text note = {0};
    struct merge merge = { .paths = paths, .count = count, .output = output, .settings = none, .tool = "test",
                           .version = "0" };
    int rc = streams_merge(&merge, &note, err);
    text_free(&note);
    return rc;
}

static void test_merge(void **unused)
{
    (void)unused;
    char *folder = unit_folder();
    struct world *world = world_make(9);
    const char *parts[2] = { unit_path(folder, "a"), unit_path(folder, "b") }, *merged = unit_path(folder, "m");
    struct err err = {0};
    struct reader *in = NULL;
    const struct record *record;
    int more;
    write_routes(parts[0], world, 0, 2, WITH_MASS, &model);
    write_routes(parts[1], world, 1, 2, WITH_MASS, &model);
    assert_int_equal(merge_to(merged, parts, 2, &err), 0);
    assert_int_equal(reader_open(&in, merged, STREAM_ROUTE, NULL, &err), 0);
    assert_int_equal(reader_header(in)->source_count, 2);
    int64_t begun = 0, ended = 0, tokens = 0;
    while ((more = reader_next(in, &record, &err)) > 0)
        if (record->kind == &route_begin_kind)
            assert_int_equal(((const struct route_begin *)record->body)->sequence, begun++);
        else if (record->kind == &route_end_kind)
            assert_int_equal(((const struct route_end *)record->body)->sequence, ended++);
        else
            tokens += ((const struct route_tokens *)record->body)->n;
    assert_int_equal(more, 0);
    reader_close(&in);
    assert_int_equal(begun, SEQUENCES);
    assert_int_equal(ended, SEQUENCES);
    assert_int_equal(tokens, world->tokens);

    /* A truncated input leaves no output. */
    const char *cut = unit_path(folder, "cut"), *never = unit_path(folder, "never");
    FILE *file = fopen(parts[1], "rb");
    static char bytes[1 << 20];
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    unit_write(cut, bytes, size - 1);
    parts[1] = cut;
    assert_int_equal(merge_to(never, parts, 2, &err), -1);
    assert_int_equal(access(never, F_OK), -1);
    free(world);
    unit_remove(folder);
}

/* A table of any length is compared to its end, and the table of other options after it. */
static void test_made_alike(void **unused)
{
    enum { OPTIONS = 90 };
    static char names[OPTIONS][16], *made[] = { (char *)"moe-profile", (char *)"--option-89=1", (char *)"-c", (char *)"64" };
    struct opt settings[OPTIONS + 1] = {{0}};
    struct header one = {0}, other = {0};
    struct text why = {0};
    struct err err = {0};
    (void)unused;
    for (int i = 0; i < OPTIONS; i++) {
        snprintf(names[i], sizeof names[i], "option-%d", i);
        settings[i] = (struct opt){ .kind = OPT_KIND_COUNT, .name = names[i] };
    }
    assert_int_equal(header_init(&one, STREAM_ROUTE, "moe-profile", "0", 0, NULL, &err), 0);
    assert_int_equal(header_init(&other, STREAM_ROUTE, "moe-profile", "0", 4, made, &err), 0);
    assert_int_equal(made_alike(settings, &one, &other, &why, &err), 0);
    assert_string_equal(why.data, "without --option-89, not with 1; without --context, not with 64");
    header_free(&other);
    header_free(&one);
    text_free(&why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts), cmocka_unit_test(test_any_grouping), cmocka_unit_test(test_ranking),
        cmocka_unit_test(test_budget_parse), cmocka_unit_test(test_ranking_stream), cmocka_unit_test(test_coverage),
        cmocka_unit_test(test_spool), cmocka_unit_test(test_neighbours), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_merge), cmocka_unit_test(test_made_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
