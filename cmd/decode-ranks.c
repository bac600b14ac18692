#include "cmd/decode-ranks.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cmd/job-ranks.h"
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/version.h"

bool decode_ranks_several(const struct decode_ranks *ranks) { return ranks->ranks && ranks_size(ranks->ranks) > 1; }

bool decode_ranks_writes(const struct decode_ranks *ranks) { return !ranks->ranks || ranks_rank(ranks->ranks) == 0; }

/* Exchanges the status; a signal to any process requests the stop in all processes. */
static int agree(struct decode_ranks *ranks, uint64_t fingerprint, struct err *err)
{
    bool asked;
    if (ranks_agree_on(ranks->ranks, fingerprint, stop_asked(ranks->signal), &asked, err))
        return -1;
    if (asked)
        atomic_store(&ranks->stop.signal, SIGTERM);
    return 0;
}

static int share(void *context, uint64_t fingerprint, void *data, const size_t *cut, struct err *err)
{
    struct decode_ranks *ranks = context;
    return agree(ranks, fingerprint, err) || ranks_share_agreed(ranks->ranks, data, cut, err) ? -1 : 0;
}

static int broadcast(void *context, void *data, size_t bytes, struct err *err)
{
    struct decode_ranks *ranks = context;
    return ranks_broadcast(ranks->ranks, data, bytes, err);
}

int decode_ranks_open(struct decode_ranks *ranks, int choice, struct session_options *session, const struct stop **stop,
                      struct err *err)
{
    if (job_ranks_open(&ranks->ranks, choice, err))
        return -1;
    if (!decode_ranks_several(ranks))
        return 0;
    ranks->link = (struct peers_link){.context = ranks, .rank = ranks_rank(ranks->ranks), .size = ranks_size(ranks->ranks),
                                      .here = ranks_on_host(ranks->ranks), .min_bytes = PEERS_MIN_BYTES, .share = share,
                                      .broadcast = broadcast};
    /* Outputs are divided only among processes on one host: they are exchanged several times per layer, and a network would be
     * slow. */
    ranks->link.divides = ranks->link.here == ranks->link.size && !session->placement;
    ranks->signal = *stop;
    ranks->stop.wake = -1;
    *stop = &ranks->stop;
    session->peers = &ranks->link;
    if (!session->caching.experts)
        session->caching.experts = "none";
    return job_ranks_threads(session, ranks->ranks, err);
}

void decode_ranks_close(struct decode_ranks *ranks) { ranks_close(&ranks->ranks); }

int decode_ranks_check_budget(const struct decode_ranks *ranks, const struct budget *budget, struct err *err)
{
    if (!decode_ranks_several(ranks) || !budget ||
        (budget->plan.ranking != PLAN_ORACLE && budget->plan.ranking != PLAN_PRINTED))
        return 0;
    return err_set(err, ERR_INPUT, "--ranks: --rank oracle needs the outputs of all experts, and each process computes only "
                   "some; rank by a rank stream, router or path");
}

/* Properties that must be equal in all processes. */
struct identity {
    char index[65], version[64], device[64];
    struct digest128 settings;
    int texts;
};

static int refuse(const struct ranks *ranks, int rank, const char *what, const char *its, const char *first,
                  const char *remedy, struct err *err)
{
    return err_set(err, ERR_INPUT, "--ranks: process %d of %d %s %s, process 0 %s; %s", rank, ranks_size(ranks), what, its,
                   first, remedy);
}

int decode_ranks_compare(const struct decode_ranks *ranks, const struct session *session, const char *settings, int texts,
                         struct err *err)
{
    const int size = ranks->ranks ? ranks_size(ranks->ranks) : 1, rank = ranks->ranks ? ranks_rank(ranks->ranks) : 0;
    struct identity *all;
    size_t *cut;
    if (size == 1)
        return 0;
    all = mem_alloc((size_t)size, sizeof *all, err);
    cut = mem_alloc((size_t)size + 1, sizeof *cut, err);
    int rc = all && cut ? 0 : -1;
    if (!rc) {
        sha256_hex(&model_identity(session->model)->index, all[rank].index);
        snprintf(all[rank].version, sizeof all[rank].version, "%s", MOE_VERSION);
        snprintf(all[rank].device, sizeof all[rank].device, "%s", device_info(session->device)->name);
        all[rank].texts = texts;
        all[rank].settings = hash_xxh3(settings, strlen(settings));
        for (int i = 0; i <= size; i++)
            cut[i] = (size_t)i * sizeof *all;
        rc = ranks_share(ranks->ranks, all, cut, err);
    }
    for (int i = 1; !rc && i < size; i++) {
        if (strcmp(all[i].version, all[0].version))
            rc = refuse(ranks->ranks, i, "runs moekit", all[i].version, all[0].version, "install one version on all machines",
                        err);
        else if (strcmp(all[i].index, all[0].index))
            rc = refuse(ranks->ranks, i, "has a model file whose index has the digest", all[i].index,
                        all[0].index, "copy one file to all machines", err);
        else if (strcmp(all[i].device, all[0].device))
            rc = refuse(ranks->ranks, i, "computes on", all[i].device, all[0].device,
                        "choose an instruction set that all machines have, such as --isa avx2", err);
        else if (all[i].texts != all[0].texts || memcmp(&all[i].settings, &all[0].settings, sizeof all[i].settings))
            rc = err_set(err, ERR_INPUT, "--ranks: the options of process %d of %d differ from those of process 0; start all "
                         "processes with the same options", i, size);
    }
    mem_free(&all);
    mem_free(&cut);
    return rc;
}

int decode_ranks_meet(const struct decode_ranks *ranks, struct err *err)
{
    return decode_ranks_several(ranks) ? ranks_agree(ranks->ranks, false, NULL, err) : 0;
}

int decode_ranks_end(struct decode_ranks *ranks, int rc, const struct console *console, struct err *err)
{
    /* Skipped prompts are no failure of a single process: all processes skip the same ones, and process 0 reports them. */
    const bool answer_no = rc && err->code == ERR_ANSWER_NO;
    struct err other = {0};
    if (!decode_ranks_several(ranks))
        return rc;
    if (!rc || answer_no) {
        if (!ranks_agree(ranks->ranks, false, NULL, &other))
            return decode_ranks_writes(ranks) ? rc : 0;
        *err = other;
    }
    job_ranks_leave(ranks->ranks, console, err);
    return -1;
}
