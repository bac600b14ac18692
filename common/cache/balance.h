/* Which experts are to be resident, so that the fast processor computes them: those of a utility of at least tau. The slow one
 * computes all that are not resident when their layer has its turn. tau is chosen for each layer and step so that both end at
 * the same time (MoE-SpAc section 3.3 and appendix C).
 *
 *     cpu(tau) = r_c(tau) gamma k T_cpu                       (eq. 7)    slow: one (token, expert) pair after the other
 *     gpu(tau) = r_g(tau) b T_gpu                             (eq. 8)    fast: one expert after the other, its tokens at once
 *     min over tau of |cpu(tau) - gpu(tau)|                   (eq. 9)
 *     T_io n(tau) <= max(cpu, gpu)(tau) + gamma T_draft / L   (eq. 10)   what is fetched comes in time
 *     W n(tau) <= left                                        (eq. 11)   and has room
 *     0 < tau <= K, a whole number                            (eq. 12)
 *
 * No feasible tau: tau = K. r_c is the share of the step's pairs whose expert is below tau, r_g the share of its distinct
 * experts that are not; both are learned (balance_learn), as they hardly change within a layer (figure 9a). Equal differences
 * go to the smaller tau. Times are seconds. Plain functions over plain arrays; nothing can fail. */
#ifndef MOE_CACHE_BALANCE_H
#define MOE_CACHE_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

struct cache;
struct utility_expert;

enum { BALANCE_LEVELS = 64 };           /* K is at most that */

/* Of one layer: sums over steps, for each tau 1 .. K. */
struct balance_shares {
    int64_t pairs, experts;             /* all of them */
    int64_t cold[BALANCE_LEVELS + 1];   /* pairs whose expert is below tau */
    int64_t hot[BALANCE_LEVELS + 1];    /* distinct experts at tau or above */
};

struct balance {
    int K;
    int draft_length, top_k;            /* gamma, k */
    double distinct;                    /* b: distinct experts that a step of this layer wants */
    double cpu_unit, gpu_unit, io_unit, draft_unit;     /* seconds: a pair, an expert, a transfer, a drafted token */
    int layers;                         /* L: of the target */
    double expert_bytes, bytes_left;    /* W; of the fast memory */
    const struct balance_shares *shares;
    const int32_t *fetches;             /* [K + 1] n(tau): experts that tau would have fetched */
};

/* A step of the layer has wanted expert[i] by tokens[i] tokens, while it was at level[expert[i]]. level: [experts of a
 * layer], `stride` bytes apart. */
void balance_learn(struct balance_shares *shares, int K, const int32_t *expert, const int32_t *tokens, int count,
                   const int32_t *level, int stride);

/* What a tau would have fetched of a layer, fetches[K + 1]: experts of at least that level that are not resident. Returns the
 * slots that are left (eq. 11) as appendix D counts them: empty, or with an expert of tag 0 that is not in use. After use a tag
 * is 0 whatever the expert's level. states: [layers * experts] of the cache's policy. */
int balance_look(const struct cache *cache, const struct utility_expert *states, int K, int layer, int experts, int slots,
                 int32_t *fetches);

double balance_cpu(const struct balance *balance, int tau);
double balance_gpu(const struct balance *balance, int tau);
bool balance_feasible(const struct balance *balance, int tau);

/* The best of all tau. */
int balance_tau(const struct balance *balance);

/* As printed, eq. 39: the best of the ends of the feasible range and of the two sides of where cpu and gpu cross. It is the
 * same where cpu rises and gpu falls with tau and the feasible ones lie together, as the paper assumes. */
int balance_tau_printed(const struct balance *balance);

#endif
