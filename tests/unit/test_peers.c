/* Experts divided over processes: any number of processes compute the bits of one, each without the experts of the others;
 * if one process computes something else, all end. */
#include "tests/unit/rig.h"

#include "common/base/hash.h"
#include "common/engine/peers.h"
#include "tests/unit/ranks_pipes.h"

enum { MODELS = 4, PROMPT = 40, TREE = 9, ROWS = 16, OWNERS = 4096 };

struct job {
    const char *path;
    int stray;                          /* process that reads another prompt; -1: none */
    bool placed;                        /* by owner[][] */
    bool divides;                       /* divides outputs, not whole experts */
    int32_t owner[OWNERS];
    struct digest128 want;              /* digest of all logits, computed by one process */
    struct err err[PIPES_MAX];
};

static int shares;                      /* collectives of this process */

static int share(void *context, uint64_t fingerprint, void *data, const size_t *cut, struct err *err)
{
    shares++;
    return ranks_agree_on(context, fingerprint, false, NULL, err) || ranks_share_agreed(context, data, cut, err) ? -1 : 0;
}

static int broadcast(void *context, void *data, size_t bytes, struct err *err)
{
    return ranks_broadcast(context, data, bytes, err);
}

/* Reads a prompt in pieces, then a tree whose experts are forced, or dropped; returns the digest of the logits. */
static int forwards(struct rig *rig, struct digest128 *out, struct err *err)
{
    const struct hparams *shape = model_hparams(rig->model);
    const int32_t parent[TREE] = {-1, 0, 0, 1, 1, 2, 5, 5, 0};
    const size_t forced = (size_t)(hparams_moe_layers(shape) * TREE * shape->router.top_k);
    int32_t *expert = calloc(forced, sizeof *expert);
    const struct batch tree = {.rows = TREE, .token = rig->token + PROMPT, .parent = parent, .logit_rows = TREE,
                               .forced = expert};
    struct xxh3_stream *digest = NULL;
    struct forward forward;
    for (size_t i = 0; i < forced; i++)
        expert[i] = i % 5 == 0 ? -1 : (int32_t)(i % (size_t)shape->router.experts);
    int rc = xxh3_stream_new(&digest, err) ||
             engine_prompt(rig->engine, rig->sequence, rig->token, PROMPT, NULL, NULL, NULL, &forward, err) ? -1 : 0;
    if (!rc) {
        xxh3_stream_put(digest, forward.logits, (size_t)forward.vocab * sizeof(float));
        rc = engine_forward(rig->engine, rig->sequence, &tree, &forward, err);
    }
    if (!rc) {
        xxh3_stream_put(digest, forward.logits, TREE * (size_t)forward.vocab * sizeof(float));
        *out = xxh3_stream_digest(digest);
    }
    xxh3_stream_free(&digest);
    free(expert);
    return rc;
}

static int compute(struct ranks *ranks, void *argument)
{
    struct job *job = argument;
    const int rank = ranks_rank(ranks), size = ranks_size(ranks);
    const struct peers_link link = {.context = ranks, .rank = rank, .size = size, .here = size, .divides = job->divides,
                                    .share = share, .broadcast = broadcast};
    struct peers *peers = NULL;
    struct digest128 got = {0, 0};
    struct rig rig;
    shares = 0;
    double time[3] = {rank, 10 + rank, 20 + rank};
    rig_open_cached(&rig, job->path, "host", 1, NULL);
    if (size > 1)
        must(peers_open(&peers, &link, job->placed ? job->owner : NULL, rig.model, rig.device, &rig.err), &rig.err);
    rig_engine(&rig, (struct engine_setup){.max_rows = ROWS, .max_logit_rows = ROWS, .peers = peers}, RIG_TOKENS);
    if (rank == job->stray)
        rig.token[0] = !rig.token[0];
    int failed = forwards(&rig, &got, &job->err[rank]);
    if (failed)
        ranks_leave(ranks, &job->err[rank]);
    else if (peers)
        failed = peers_times(peers, time, 3, &rig.err) || time[0] != 0 || time[2] != 20;
    if (size == 1)
        job->want = got;
    failed = failed || memcmp(&got, &job->want, sizeof got);
    /* Three pieces and a tree, each with at least two products of attention and two of experts in a layer. */
    if (size > 1 && job->divides && job->stray < 0)
        failed = failed || shares < 4 * 4 * hparams_moe_layers(model_hparams(rig.model));
    sequence_close(&rig.sequence);
    engine_close(&rig.engine);
    peers_close(&peers);
    rig_close(&rig);
    return failed;
}

static const char *write_model(const char *folder, uint64_t *seed)
{
    static const enum weight_format formats[] = {FORMAT_F32, FORMAT_BF16, FORMAT_Q8, FORMAT_Q4};
    const char *path = unit_path(folder, "model.moe");
    struct err err = {0};
    struct hparams shape;
    do {
        struct chance chance = {++*seed};
        shape = tiny_shape(&chance);
    } while (hparams_moe_layers(&shape) < 2 || shape.router.experts < 5);
    must(tiny_write(path, &shape, formats[*seed % 4], *seed, &err), &err);
    return path;
}

static void any_number_of_processes_has_the_bits_of_one(void **state)
{
    struct job *job = pipes_memory(sizeof *job);
    char *folder = unit_folder();
    uint64_t seed = 1;
    (void)state;
    for (int model = 0; model < MODELS; model++) {
        job->path = write_model(folder, &seed);
        job->stray = -1;
        job->placed = model % 2;
        job->divides = model / 2 % 2;
        for (int size = 1; size <= PIPES_MAX; size++) {
            for (int i = 0; i < OWNERS; i++)
                job->owner[i] = i / 3 % size;
            if (pipes_run(size, compute, job))
                fail_msg("model %d, %d processes: %s", (int)seed, size, job->err[0].text);
        }
    }
    unit_remove(folder);
    munmap(job, sizeof *job);
}

static void a_process_that_computes_something_else_ends_all(void **state)
{
    struct job *job = pipes_memory(sizeof *job);
    char *folder = unit_folder();
    uint64_t seed = 1;
    (void)state;
    job->path = write_model(folder, &seed);
    job->stray = 2;
    for (int divides = 0; divides < 2; divides++) {
        job->divides = divides;
        memset(job->err, 0, sizeof job->err);
        assert_int_equal(pipes_run(3, compute, job), 3);
        assert_int_equal(job->err[0].code, ERR_IO);
        assert_memory_equal(job->err[0].text, "process 2 of 3 (", 16);
        assert_non_null(strstr(job->err[0].text, "): does not compute what process 0 computes; start all processes with"));
        assert_int_equal(job->err[1].code, ERR_REPORTED);
        assert_int_equal(job->err[2].code, ERR_REPORTED);
    }
    unit_remove(folder);
    munmap(job, sizeof *job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_number_of_processes_has_the_bits_of_one),
                                       cmocka_unit_test(a_process_that_computes_something_else_ends_all)};
    return cmocka_run_group_tests_name("peers", tests, NULL, NULL);
}
