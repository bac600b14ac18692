/* Decides which experts should be resident, so that the fast processor computes them: those with a utility level of at least
 * tau. The slow processor computes the experts that are not resident when their layer has its turn. tau is chosen for each
 * layer and step so that both processors finish at the same time (MoE-SpAc section 3.3 and appendix C).
 *
 *     cpu(tau) = r_c(tau) gamma k T_cpu                       (eq. 7)    slow: one (token, expert) pair after the other
 *     gpu(tau) = r_g(tau) b T_gpu                             (eq. 8)    fast: one expert after the other, its tokens at once
 *     min over tau of |cpu(tau) - gpu(tau)|                   (eq. 9)
 *     T_io n(tau) <= max(cpu, gpu)(tau) + gamma T_draft / L   (eq. 10)   fetched experts arrive in time
 *     W n(tau) <= left                                        (eq. 11)   and fit into memory
 *     0 < tau <= K, a whole number                            (eq. 12)
 *
 * If no tau is feasible, tau = K. r_c is the share of the step's pairs whose expert is below tau, r_g the share of its
 * distinct experts that are at tau or above; both are learned (balance_learn), as they hardly change within a layer (figure
 * 9a). Between two tau with equal differences the smaller is chosen. Times are seconds. Plain functions over plain arrays;
 * nothing can fail. */
#ifndef MOE_CACHE_BALANCE_H
#define MOE_CACHE_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

struct cache;
struct utility_expert;

enum { BALANCE_LEVELS = 64 };           /* maximum of K */

/* Sums over the steps of one layer, for each tau 1 .. K. */
struct balance_shares {
    int64_t pairs, experts;             /* number of all pairs, and of all distinct experts */
    int64_t cold[BALANCE_LEVELS + 1];   /* pairs whose expert is below tau */
    int64_t hot[BALANCE_LEVELS + 1];    /* distinct experts at tau or above */
};

struct balance {
    int K;
    int draft_length, top_k;            /* gamma, k */
    double distinct;                    /* b: distinct experts that a step of this layer wants */
    double cpu_unit, gpu_unit, io_unit, draft_unit;     /* seconds of a pair, of an expert, of a transfer, of a drafted token */
    int layers;                         /* L: layers of the target */
    double expert_bytes, bytes_left;    /* expert_bytes: W; bytes_left: free bytes in the fast memory */
    const struct balance_shares *shares;
    const int32_t *fetches;             /* [K + 1] n(tau): number of experts that each tau would have fetched */
};

/* Adds a step of the layer to `shares`: tokens[i] tokens wanted expert[i], whose level was level[expert[i]] then. level:
 * [experts of a layer], `stride` bytes apart. */
void balance_learn(struct balance_shares *shares, int K, const int32_t *expert, const int32_t *tokens, int count,
                   const int32_t *level, int stride);

/* Counts for each tau the experts of a layer with a level of at least tau that are not resident: fetches[K + 1]. Returns the
 * number of free slots (eq. 11) as appendix D counts them: empty slots, and those whose expert has tag 0 and is not in use.
 * After use a tag is 0 whatever the expert's level. states: [layers * experts] of the cache's policy. */
int balance_fetches(const struct cache *cache, const struct utility_expert *states, int K, int layer, int experts, int slots,
                    int32_t *fetches);

double balance_cpu(const struct balance *balance, int tau);
double balance_gpu(const struct balance *balance, int tau);
bool balance_feasible(const struct balance *balance, int tau);

/* Returns the best tau; tries all of them. */
int balance_tau(const struct balance *balance);

#endif
