#include "common/cache/balance.h"

#include <math.h>

#include "common/cache/utility.h"

int balance_fetches(const struct cache *cache, const struct utility_expert *states, int K, int layer, int experts, int slots,
                    int32_t *fetches)
{
    const struct utility_expert *state = states + (size_t)layer * (size_t)experts;
    int cold = 0;
    for (int tau = 0; tau <= K; tau++)
        fetches[tau] = 0;
    for (int e = 0; e < experts; e++)
        if (state[e].level && cache_find(cache, layer, e) < 0)
            fetches[state[e].level]++;
    for (int tau = K - 1; tau >= 1; tau--)
        fetches[tau] += fetches[tau + 1];
    for (int slot = 0; slot < slots; slot++) {
        int key = cache_key(cache, slot);
        cold += key < 0 || cache_utility_is_free(cache, key);
    }
    return cold;
}

void balance_learn(struct balance_shares *shares, int K, const int32_t *expert, const int32_t *tokens, int count,
                   const int32_t *level, int stride)
{
    int64_t pairs[BALANCE_LEVELS + 1] = {0}, experts[BALANCE_LEVELS + 1] = {0}, below = 0, above = 0;
    for (int i = 0; i < count; i++) {
        int at = *(const int32_t *)(const void *)((const char *)level + (int64_t)expert[i] * stride);
        at = at < 0 ? 0 : at > K ? K : at;
        pairs[at] += tokens[i];
        experts[at]++;
        shares->pairs += tokens[i];
    }
    shares->experts += count;
    for (int tau = 1; tau <= K; tau++)
        shares->cold[tau] += below += pairs[tau - 1];
    for (int tau = K; tau >= 1; tau--)
        shares->hot[tau] += above += experts[tau];
}

double balance_cpu(const struct balance *b, int tau)
{
    double share = b->shares->pairs ? (double)b->shares->cold[tau] / b->shares->pairs : 1;
    return share * b->draft_length * b->top_k * b->cpu_unit;
}

double balance_gpu(const struct balance *b, int tau)
{
    double share = b->shares->experts ? (double)b->shares->hot[tau] / b->shares->experts : 0;
    return share * b->distinct * b->gpu_unit;
}

bool balance_feasible(const struct balance *b, int tau)
{
    double window = fmax(balance_cpu(b, tau), balance_gpu(b, tau)) + b->draft_length * b->draft_unit / b->layers;
    return b->io_unit * b->fetches[tau] <= window && b->expert_bytes * b->fetches[tau] <= b->bytes_left;
}

static double difference(const struct balance *b, int tau) { return fabs(balance_cpu(b, tau) - balance_gpu(b, tau)); }

int balance_tau(const struct balance *b)
{
    int best = 0;
    for (int tau = 1; tau <= b->K; tau++)
        if (balance_feasible(b, tau) && (!best || difference(b, tau) < difference(b, best)))
            best = tau;
    return best ? best : b->K;
}
