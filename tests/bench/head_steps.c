/* Cost of a draft head's step compared with a forward of its target in the same run. The text grows by one token per
 * iteration, which the target reads in a forward of one row and the head then reads, too; alternately the head drafts one
 * token, a step, and the full cost of a tree of 60 (dynamic:total=60,depth=6,topk=10): 10 children of the root, then 10 of
 * each of 10 nodes on five further levels. A tree that can be finished earlier costs less; a random head, which finds all
 * tokens about equally likely, would finish after two levels, so the leaves are prescribed here. Between any two
 * measurements the processor's caches are filled with other data, or the second one would find there what the first has
 * read.
 *
 * Prints a row of a Markdown table: bytes and bytes per second of the target's forward; bytes and bytes per second of a
 * step,
 * and its time divided by that of its bytes at the target's rate in the same iteration (1 if time is proportional to bytes);
 * bytes of a tree, its time divided by that of its bytes, the least possible value of this ratio, and its time divided by
 * that
 * of a forward. Medians of PAIRS. The least value is the time of its products alone at the rate at which registers multiply
 * (1 if a level's ten rows need no more time than its bytes): with fast memory a level of floats is bound by products.
 *
 *     head_steps MODEL HEAD [PAIRS] [THREADS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/draft/drafters.h"
#include "common/engine/engine.h"
#include "kernels/cpu/cpu.h"

enum { BEFORE = 64, PAIRS_MAX = 1000, WARM = 2, TOKENS_MAX = BEFORE + 2 * (WARM + PAIRS_MAX) + 2, DEPTH = 6, TOPK = 10,
       NODES = TOPK + (DEPTH - 1) * TOPK * TOPK };

static const size_t EVICT = (size_t)1 << 29;

struct bench {
    struct model *model;
    struct device *device;
    struct expert_source *experts;
    struct engine *engine;
    struct sequence *sequence;
    struct drafters drafters;
    struct feature_request features;
    struct draft_tree tree;
    int32_t *text;                      /* [TOKENS_MAX] */
    int length, pairs, threads;
    unsigned char *evict;               /* [EVICT] */
    unsigned sum;                       /* sum of what was read, so that the reads are not optimised away */
    double weight_bytes;                /* of the head's matrices, on average */
    double multiplied;                  /* operations per second of all threads from registers: */
    bool integers;                      /* of q8 and q4 */
    double second;                      /* weights of the output head, which Jakiro's second branch uses again */
};

struct cost {
    double seconds;
    int64_t bytes;
    double least;                       /* seconds of its products, or of its bytes where those take longer */
};

static int open_target(struct bench *bench, const char *path, struct err *err)
{
    if (model_open(&bench->model, path, err) ||
        device_open(&bench->device, &(struct device_setup){.name = "host", .threads = bench->threads}, err) ||
        (hparams_moe_layers(model_hparams(bench->model)) &&
         expert_source_open(&bench->experts, bench->model, bench->device, err)))
        return -1;
    const struct engine_setup setup = {.model = bench->model, .device = bench->device, .experts = bench->experts,
                                       .max_rows = BEFORE, .max_logit_rows = 1};
    return engine_open(&bench->engine, &setup, err);
}

static int open_head(struct bench *bench, const char *path, struct err *err)
{
    char name[1200];
    const char *const drafts[] = {name};
    const struct drafter_setup setup = {.vocab = model_hparams(bench->model)->vocab, .positions = TOKENS_MAX,
                                        .target = bench->engine, .choice = DRAFT_BEST, .probabilities = true,
                                        .filter = {.temperature = 0, .top_p = 1}};
    snprintf(name, sizeof name, "head:file=%s", path);
    return drafters_open(&bench->drafters, drafts, 1, &setup, err) ||
           drafters_features(&bench->drafters, &bench->features, err) || draft_tree_init(&bench->tree, NODES, err) ? -1 : 0;
}

static int show(void *context, const struct forward *piece, int position, struct err *err)
{
    struct bench *bench = context;
    int32_t row[BEFORE];
    const struct target_view view = {.forward = piece, .features = &bench->features, .position = position,
                                     .token = bench->text + position, .kept = row, .kept_rows = piece->rows, .prompt = true};
    for (int i = 0; i < piece->rows; i++)
        row[i] = i;
    return drafters_observe(&bench->drafters, &view, err);
}

static int begin(struct bench *bench, struct err *err)
{
    const struct batch options = {.features = &bench->features};
    struct forward forward;
    if (!(bench->text = mem_alloc(TOKENS_MAX, sizeof *bench->text, err)) || !(bench->evict = mem_alloc(EVICT, 1, err)) ||
        sequence_open(&bench->sequence, bench->engine, TOKENS_MAX + 1, err))
        return -1;
    for (int i = 0; i < TOKENS_MAX; i++)
        bench->text[i] = i * 131 % model_hparams(bench->model)->vocab;
    bench->length = BEFORE;
    const struct draft_text text = {.target = bench->sequence, .tokens = TOKENS_MAX};
    return drafters_begin(&bench->drafters, &text, bench->text, BEFORE - 1, err) ||
           engine_prompt(bench->engine, bench->sequence, bench->text, BEFORE - 1, &options, show, bench, &forward, err) ||
           drafters_commit(&bench->drafters, bench->text + BEFORE - 1, 1, err) ? -1 : 0;
}

static void bench_close(struct bench *bench)
{
    draft_tree_free(&bench->tree);
    drafters_close(&bench->drafters);
    sequence_close(&bench->sequence);
    engine_close(&bench->engine);
    expert_source_close(&bench->experts);
    device_close(&bench->device);
    model_close(&bench->model);
    mem_free(&bench->evict);
    mem_free(&bench->text);
}

static void evict(struct bench *bench)
{
    for (size_t i = 0; i < EVICT; i += 64)
        bench->sum += bench->evict[i]++;
}

/* The target reads the newest token and chooses the next one. */
static int read_token(struct bench *bench, struct cost *out, struct err *err)
{
    const int32_t kept = 0;
    const struct batch batch = {.rows = 1, .token = bench->text + bench->length - 1, .logit_rows = 1,
                                .features = &bench->features};
    struct forward forward;
    const struct target_view view = {.forward = &forward, .features = &bench->features, .position = bench->length - 1,
                                     .token = batch.token, .kept = &kept, .kept_rows = 1};
    evict(bench);
    const double began = clock_seconds();
    if (engine_forward(bench->engine, bench->sequence, &batch, &forward, err))
        return -1;
    *out = (struct cost){clock_seconds() - began, forward.bytes, 0};
    if (drafters_observe(&bench->drafters, &view, err) || sequence_commit(bench->sequence, forward.node, 1, err) ||
        drafters_commit(&bench->drafters, bench->text + bench->length, 1, err))
        return -1;
    bench->length++;
    return 0;
}

static void multiply(void *argument, int member, int members)
{
    _Alignas(64) float sink[16] = {1, 0.5f, 3};
    struct bench *bench = argument;
    (void)members;
    const double products = cpu_isas()[0]->multiply(bench->integers, 200000, sink);
    if (!member)
        bench->multiplied = products;
}

/* Measures how fast all threads multiply the format of the head's products; the best of several rounds. */
static int measure_products(struct bench *bench, const char *path, struct err *err)
{
    struct model *head = NULL;
    struct thread_pool *pool = NULL;
    enum weight_format format = FORMAT_F32;
    double best = 0;
    if (model_open_head(&head, path, err))
        return -1;
    for (int i = 0; i < model_tensor_count(head) && format == FORMAT_F32; i++)
        format = model_tensor_at(head, i)->format;
    const struct head_params *params = model_head(head);
    if (params->kind == HEAD_JAKIRO && params->second != HEAD_SECOND_NONE)
        bench->second = (double)params->draft_vocab * model_hparams(head)->hidden;
    model_close(&head);
    bench->weight_bytes = (double)unit_bytes(format, 256) / (256 * UNIT_OUTPUTS);
    bench->integers = format_quantised(format);
    if (thread_pool_new(&pool, bench->threads ? bench->threads : thread_pool_cores(), err))
        return -1;
    for (int turn = 0; turn < 20; turn++) {
        const double began = clock_seconds();
        thread_pool_run(pool, multiply, bench);
        const double speed = bench->multiplied * thread_pool_size(pool) / (clock_seconds() - began);
        best = speed > best ? speed : best;
    }
    thread_pool_free(&pool);
    bench->multiplied = best;
    return 0;
}

/* The head reads the new token and drafts `levels` levels, each with the given children per node. A byte takes `byte_s`. */
static int draft(struct bench *bench, int levels, int topk, double byte_s, struct cost *out, struct err *err)
{
    struct drafter *drafter = bench->drafters.item[0];
    struct draft_tree *tree = &bench->tree;
    struct draft_leaf leaf[TOPK] = {{-1, topk}};
    draft_tree_clear(tree);
    drafters_reset(&bench->drafters);
    evict(bench);
    const double began = clock_seconds();
    double least = 0;
    for (int level = 0, leaves = 1; level < levels; level++) {
        const int before = tree->nodes;
        const int64_t read = drafter->bytes;
        tree->levels = levels - level;
        const int added = drafter->class->propose(drafter, tree, leaf, leaves, 1, err);
        if (added < 0)
            return -1;
        if (added != leaves * topk)
            return err_set(err, ERR_INPUT, "level %d has %d nodes, not %d", level, added, leaves * topk);
        const double bytes = (double)(drafter->bytes - read), second = tree->levels == 2 ? bench->second : 0;
        const double products = (bytes / bench->weight_bytes + second) * leaves;
        least += fmax(bytes * byte_s, products / bench->multiplied);
        for (leaves = 0; leaves < topk; leaves++)
            leaf[leaves] = (struct draft_leaf){before + leaves, topk};
    }
    *out = (struct cost){clock_seconds() - began, drafter->bytes, least};
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *value, int count)
{
    qsort(value, (size_t)count, sizeof *value, ascending);
    return (value[(count - 1) / 2] + value[count / 2]) / 2;
}

enum figure { TARGET_BYTES, TARGET_RATE, STEP_BYTES, STEP_RATE, STEP_OVER_BYTES, TREE_BYTES, TREE_OVER_BYTES, TREE_AT_LEAST,
              TREE_OF_FORWARD, FIGURES };

static double rate(const struct cost *cost) { return (double)cost->bytes / cost->seconds; }

static int measure(struct bench *bench, double figure[FIGURES][PAIRS_MAX], struct err *err)
{
    for (int pair = -WARM; pair < bench->pairs; pair++) {
        struct cost first, second, step, whole;
        if (read_token(bench, &first, err) || draft(bench, 1, 1, 1 / rate(&first), &step, err) ||
            read_token(bench, &second, err) || draft(bench, DEPTH, TOPK, 1 / rate(&second), &whole, err))
            return -1;
        if (pair < 0)
            continue;
        figure[TARGET_BYTES][pair] = (double)first.bytes;
        figure[TARGET_RATE][pair] = rate(&first);
        figure[STEP_BYTES][pair] = (double)step.bytes;
        figure[STEP_RATE][pair] = rate(&step);
        figure[STEP_OVER_BYTES][pair] = rate(&first) / rate(&step);
        figure[TREE_BYTES][pair] = (double)whole.bytes;
        figure[TREE_OVER_BYTES][pair] = rate(&second) / rate(&whole);
        figure[TREE_AT_LEAST][pair] = whole.least * rate(&second) / (double)whole.bytes;
        figure[TREE_OF_FORWARD][pair] = whole.seconds / second.seconds;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static double figure[FIGURES][PAIRS_MAX];
    struct bench bench = {.pairs = argc > 3 ? atoi(argv[3]) : 30, .threads = argc > 4 ? atoi(argv[4]) : 0};
    struct err err = {0};
    double of[FIGURES];
    if (argc < 3 || bench.pairs < 1 || bench.pairs > PAIRS_MAX) {
        fprintf(stderr, "usage: head_steps MODEL HEAD [PAIRS] [THREADS]\n");
        return 2;
    }
    int rc = open_target(&bench, argv[1], &err) || open_head(&bench, argv[2], &err) || begin(&bench, &err) ||
             measure_products(&bench, argv[2], &err) || measure(&bench, figure, &err) ? 2 : 0;
    for (int i = 0; !rc && i < FIGURES; i++)
        of[i] = median(figure[i], bench.pairs);
    if (rc)
        fprintf(stderr, "head_steps: %s\n", err.text);
    else
        printf("| %.1f | %.2f | %.1f | %.2f | %.3f | %.1f | %.3f | %.3f | %.3f |\n",
               of[TARGET_BYTES] / 1e6, of[TARGET_RATE] / 1e9,
               of[STEP_BYTES] / 1e6, of[STEP_RATE] / 1e9, of[STEP_OVER_BYTES], of[TREE_BYTES] / 1e6, of[TREE_OVER_BYTES],
               of[TREE_AT_LEAST], of[TREE_OF_FORWARD]);
    bench_close(&bench);
    return rc;
}
