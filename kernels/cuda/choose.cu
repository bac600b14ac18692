/* kernels/choose.h. A block of 256 threads a row. The best token and the winner of the draw are maxima, ties to the lower id,
 * which no order changes. Filters find the last token in rank order that is kept, by a key that ranks as sample_above does:
 * digit after digit, from the highest, a histogram of what is left says where the limit lies. It counts tokens for top-k and
 * adds whole multiples of 2^-40 for top-p, integers both, so the order of atomics changes nothing either. */
#include "kernels/choose.h"

#include "kernels/cuda/cuda.h"

enum { CHOOSE_THREADS = 256, DIGITS = 256 };

struct choose_memory {
    unsigned long long histogram[DIGITS];
    double value[CHOOSE_THREADS];
    int token[CHOOSE_THREADS];
    unsigned long long prefix, left;
};

DEVICE uint64_t rank_key(float logit, int token)
{
    return (uint64_t)float_key(logit == 0 ? 0.0f : logit) << 32 | (0xffffffffu - (uint32_t)token);
}

/* The token of largest value[] among those >= 0 in token[], ties to the lower one; -1: none. All threads get it. */
DEVICE int best_of_block(struct choose_memory *m)
{
    for (int step = CHOOSE_THREADS / 2; step > 0; step /= 2) {
        __syncthreads();
        int i = (int)threadIdx.x, other = i + step;
        if (i < step && m->token[other] >= 0 &&
            (m->token[i] < 0 || m->value[other] > m->value[i] ||
             (m->value[other] == m->value[i] && m->token[other] < m->token[i]))) {
            m->value[i] = m->value[other];
            m->token[i] = m->token[other];
        }
    }
    __syncthreads();
    int best = m->token[0];
    __syncthreads();
    return best;
}

DEVICE int best_token(const float *logit, int vocab, struct choose_memory *m)
{
    int best = -1;
    for (int token = (int)threadIdx.x; token < vocab; token += CHOOSE_THREADS)
        if (best < 0 ? logit[token] == logit[token] : logit[token] > logit[best])
            best = token;
    m->token[threadIdx.x] = best;
    m->value[threadIdx.x] = best >= 0 ? (double)logit[best] : 0;
    best = best_of_block(m);
    return best >= 0 && logit[best] - logit[best] == 0 ? best : -1;
}

/* What a token adds to a histogram: 1, or its weight. */
DEVICE unsigned long long measure(const struct choose_args &a, float logit, float best, bool mass)
{
    return mass ? (unsigned long long)(exp(((double)logit - (double)best) / a.filter.temperature) * 0x1p40) : 1;
}

/* The smallest key that is kept when, from the best on, as many are kept as it takes to reach `share` of the measure of all
 * that have at least the key `least` (share 0: to reach `count`). */
DEVICE uint64_t limit_key(const struct choose_args &a, const float *logit, float best, uint64_t least, bool mass, double share,
                          unsigned long long count, struct choose_memory *m)
{
    if (threadIdx.x == 0) {
        m->prefix = 0;
        m->left = count;
    }
    for (int shift = 56; shift >= 0; shift -= 8) {
        m->histogram[threadIdx.x] = 0;
        __syncthreads();
        for (int token = (int)threadIdx.x; token < a.vocab; token += CHOOSE_THREADS) {
            uint64_t key = rank_key(logit[token], token);
            if (logit[token] > -INFINITY && key >= least && (shift == 56 || key >> (shift + 8) == m->prefix))
                atomicAdd(&m->histogram[key >> shift & 255], measure(a, logit[token], best, mass));
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned long long all = 0, sum = 0;
            int last = 0;
            for (int digit = DIGITS - 1; digit >= 0 && shift == 56 && share > 0; digit--)
                all += m->histogram[digit];
            if (shift == 56 && share > 0)
                m->left = (unsigned long long)((double)all * share);
            for (int digit = DIGITS - 1; digit >= 0; digit--) {
                if (!m->histogram[digit])
                    continue;
                last = digit;
                if (sum + m->histogram[digit] >= m->left)
                    break;
                sum += m->histogram[digit];
            }
            m->left = m->left > sum ? m->left - sum : 0;
            m->prefix = m->prefix << 8 | (unsigned)last;
        }
        __syncthreads();
    }
    uint64_t key = m->prefix;
    __syncthreads();
    return key;
}

DEVICE int draw_token(const struct choose_args &a, const float *logit, float best, uint64_t least, uint32_t position,
                      struct choose_memory *m)
{
    int winner = -1;
    double most = 0;
    for (int token = (int)threadIdx.x; token < a.vocab; token += CHOOSE_THREADS) {
        double z = ((double)logit[token] - (double)best) / a.filter.temperature;
        if (!(logit[token] > -INFINITY) || rank_key(logit[token], token) < least ||
            (a.filter.min_p > 0 && !(exp(z) >= a.filter.min_p)))
            continue;
        struct philox counter = {{(uint32_t)token >> 1, position, a.ordinal, a.sample}};
        struct philox bits = philox(counter, a.key);
        double u = philox_uniform(token & 1 ? bits.word[2] : bits.word[0], token & 1 ? bits.word[3] : bits.word[1]);
        double value = z - log(-log(u));
        if (winner < 0 || value > most) {
            winner = token;
            most = value;
        }
    }
    m->token[threadIdx.x] = winner;
    m->value[threadIdx.x] = most;
    return best_of_block(m);
}

__global__ void __launch_bounds__(CHOOSE_THREADS, 1) choose_kernel(struct choose_args a, const int32_t *live)
{
    SHARED(struct choose_memory, m, 1);
    const float *logit = device_pointer<float>(a.logits) + (int64_t)blockIdx.x * a.vocab;
    if (not_live(live, blockIdx.x))
        return;
    uint32_t position = (uint32_t)device_pointer<int32_t>(a.position)[blockIdx.x];
    int choice = best_token(logit, a.vocab, m);
    uint64_t least = 0;
    if (choice >= 0 && a.filter.temperature > 0) {
        float best = logit[choice];
        if (a.filter.top_k > 0 && a.filter.top_k < a.vocab)
            least = limit_key(a, logit, best, least, false, 0, (unsigned long long)a.filter.top_k, m);
        if (a.filter.top_p < 1)
            least = limit_key(a, logit, best, least, true, a.filter.top_p, 0, m);
        choice = draw_token(a, logit, best, least, position, m);
    }
    if (threadIdx.x == 0)
        device_pointer<int32_t>(a.choice)[blockIdx.x] = choice;
}

void cuda_choose(struct queue *queue, const struct choose_args *args)
{
    if (args->rows > 0)
        LAUNCH(choose_kernel, dim3((unsigned)args->rows), dim3(CHOOSE_THREADS), 0, cuda_stream(queue), *args,
               cuda_live(queue));
}
