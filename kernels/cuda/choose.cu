/* kernels/choose.h. Blocks of 256 threads, each for 2048 tokens of a row. In every launch the last block of a row that ends
 * joins the results that all blocks of the row wrote to the context's scratch. So at temperature 0 there is one launch; above 0
 * a second one draws, and each filter adds five launches between them.
 *
 * The best token and the winner of the draw are maxima with ties to the lower id, so their order does not matter. A filter
 * finds the last kept token in rank order, by a key that ranks as sample_above does: digit after digit, from the highest one, a
 * histogram of the remaining tokens locates the limit. For top-k it counts tokens, for top-p it adds whole multiples of 2^-40;
 * both are integers, so the order of atomics does not matter either. */
#include "kernels/choose.h"

#include <assert.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/rank.h"

enum { CHOOSE_THREADS = RANK_THREADS, CHOOSE_TOKENS = 2048, CHOOSE_BLOCKS = CHOOSE_VOCAB_MAX / CHOOSE_TOKENS };
enum { BINS = 2048, BINS_EACH = BINS / CHOOSE_THREADS };

static_assert((int)RANK_TOKENS == (int)CHOOSE_VOCAB_MAX, "a key has room for every token");

/* The digits of a key, from the highest: 32 bits of the logit, then those of the token. */
static const struct { int shift, bits; } DIGITS[] = {{41, 11}, {30, 11}, {20, 10}, {10, 10}, {0, 10}};

typedef rank_type count_type;

/* The state of a row, in the scratch. */
struct choose_state {
    count_type best, min_key;            /* keys: of the best token (0: no finite logit), and the smallest kept key */
    count_type prefix, left;             /* of the limit: its digits so far, and the count or mass still missing to reach it */
    count_type histogram[BINS];
    count_type key[CHOOSE_BLOCKS];       /* the best key of each block */
    double value[CHOOSE_BLOCKS];
    int token[CHOOSE_BLOCKS];
};

/* Arguments of all launches: states and tickets of the rows from `first` on. */
struct choose_rows {
    struct choose_state *state;
    unsigned *tickets;
    int first;
};

/* Arguments of a filter's launch: the digit that the launch finds, and the kind of limit (mass: top-p, else top-k). */
struct choose_digit {
    int shift, bits;
    bool first, last, mass;              /* whether it is the first, or last, digit of the filter */
};

/* The part of a row that a block reads: grid (parts of the vocabulary, rows). */
struct choose_share {
    struct choose_state *state;
    const float *logit;
    int row, begin, end;
};

DEVICE struct choose_share share_of(const struct choose_args &a, const struct choose_rows &rows)
{
    int row = rows.first + (int)blockIdx.y, begin = (int)blockIdx.x * CHOOSE_TOKENS;
    return {rows.state + blockIdx.y, device_pointer<float>(a.logits) + (int64_t)row * a.vocab, row, begin,
            min(begin + CHOOSE_TOKENS, a.vocab)};
}

/* Returns whether this block is the last one of its row to end; the last block sees all that the other blocks wrote. All
 * threads receive the result. */
DEVICE bool last_of_row(unsigned *ticket)
{
    SHARED(int, last, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last[0] = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    return last[0];
}

/* Finds the best token, which is the choice at temperature 0, and initialises the row's state for the other launches. */
__global__ void __launch_bounds__(CHOOSE_THREADS, 1) choose_best_kernel(struct choose_args a, struct choose_rows rows,
                                                                        const int32_t *live)
{
    pdl_begin();
    struct choose_share s = share_of(a, rows);
    count_type best = 0;
    if (not_live(live, s.row))
        return;
    UNROLL for (int i = 0; i < CHOOSE_TOKENS / CHOOSE_THREADS; i++) {
        int token = s.begin + i * CHOOSE_THREADS + (int)threadIdx.x;
        float logit = token < s.end ? s.logit[token] : NAN;
        count_type key = logit == logit ? rank_key(logit, token) : 0;
        best = key > best ? key : best;
    }
    best = largest_key(best);
    if (threadIdx.x == 0)
        s.state->key[blockIdx.x] = best;
    if (!last_of_row(rows.tickets + blockIdx.y))
        return;
    best = 0;
    for (int i = (int)threadIdx.x; i < (int)gridDim.x; i += CHOOSE_THREADS)
        best = s.state->key[i] > best ? s.state->key[i] : best;
    best = largest_key(best);
    for (int i = (int)threadIdx.x; i < BINS; i += CHOOSE_THREADS)
        s.state->histogram[i] = 0;
    if (threadIdx.x == 0) {
        float logit = best ? s.logit[token_of(best)] : NAN;
        bool finite = logit - logit == 0;
        s.state->best = finite ? best : 0;
        s.state->min_key = 0;
        device_pointer<int32_t>(a.choice)[s.row] = finite ? token_of(best) : -1;
    }
}

/* Returns the amount that a token adds to a histogram: 1, or its weight. */
DEVICE count_type measure(const struct choose_args &a, float logit, float best, bool mass)
{
    return mass ? (count_type)(exp(((double)logit - (double)best) / a.filter.temperature) * 0x1p40) : 1;
}

/* Replaces all[i] by the sum of all[i ..]. */
DEVICE void sum_from_above(count_type *all)
{
    for (int step = 1; step < CHOOSE_THREADS; step *= 2) {
        int i = (int)threadIdx.x;
        __syncthreads();
        count_type above = i + step < CHOOSE_THREADS ? all[i + step] : 0;
        __syncthreads();
        all[i] += above;
    }
    __syncthreads();
}

/* Finds the limit's digit, in one block: from the highest bin down, the first non-empty bin at which the running sum reaches
 * the count or mass still missing; if the sum of all bins is less, the lowest non-empty bin. Each thread reads eight
 * neighbouring bins. */
DEVICE void find_digit(const struct choose_args &a, struct choose_state *state, const struct choose_digit &digit)
{
    SHARED(count_type, all, CHOOSE_THREADS);
    int i = (int)threadIdx.x;
    count_type bin[BINS_EACH], own = 0;
    UNROLL for (int n = 0; n < BINS_EACH; n++) {
        bin[n] = state->histogram[i * BINS_EACH + n];
        state->histogram[i * BINS_EACH + n] = 0;
        own += bin[n];
    }
    all[i] = own;
    sum_from_above(all);
    count_type total = all[0], sum = all[i] - own, left = state->left, prefix = digit.first ? 0 : state->prefix;
    if (digit.first)
        left = digit.mass ? (count_type)((double)total * a.filter.top_p) : (count_type)a.filter.top_k;
    bool reached = sum + own >= left && (sum == 0 || sum < left), lowest = total < left && sum + own == total;
    __syncthreads();
    if (own == 0 || !(reached || lowest))
        return;
    int found = -1;
    UNROLL for (int n = BINS_EACH - 1; n >= 0; n--)
        if (bin[n] && (found < 0 || sum < left)) {
            found = i * BINS_EACH + n;
            if (sum + bin[n] >= left)
                break;
            sum += bin[n];
        }
    state->left = left > sum ? left - sum : 0;
    state->prefix = prefix << digit.bits | (unsigned)found;
    if (digit.last)
        state->min_key = state->prefix;
}

__global__ void __launch_bounds__(CHOOSE_THREADS, 1) choose_digit_kernel(struct choose_args a, struct choose_rows rows,
                                                                         struct choose_digit digit, const int32_t *live)
{
    pdl_begin();
    SHARED(count_type, histogram, BINS);
    struct choose_share s = share_of(a, rows);
    if (not_live(live, s.row) || !s.state->best)
        return;
    count_type min_key = s.state->min_key, prefix = digit.first ? 0 : s.state->prefix;
    float best = s.logit[token_of(s.state->best)];
    for (int i = (int)threadIdx.x; i < BINS; i += CHOOSE_THREADS)
        histogram[i] = 0;
    __syncthreads();
    for (int token = s.begin + (int)threadIdx.x; token < s.end; token += CHOOSE_THREADS) {
        float logit = s.logit[token];
        count_type key = logit > -INFINITY ? rank_key(logit, token) : 0;
        if (key && key >= min_key && key >> (digit.shift + digit.bits) == prefix)
            atomicAdd(&histogram[key >> digit.shift & ((1u << digit.bits) - 1)], measure(a, logit, best, digit.mass));
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < BINS; i += CHOOSE_THREADS)
        if (histogram[i])
            atomicAdd(&s.state->histogram[i], histogram[i]);
    if (last_of_row(rows.tickets + blockIdx.y))
        find_digit(a, s.state, digit);
}

/* Returns the token of the largest value among the threads with a token >= 0, ties to the lower token; -1: none. Sets *value to
 * the largest value. All threads receive both. */
DEVICE int best_of_block(double *value, int token)
{
    SHARED(double, largest, CHOOSE_THREADS);
    SHARED(int, of, CHOOSE_THREADS);
    int i = (int)threadIdx.x;
    largest[i] = *value;
    of[i] = token;
    for (int step = CHOOSE_THREADS / 2; step > 0; step /= 2) {
        __syncthreads();
        int other = i + step;
        if (i < step && of[other] >= 0 &&
            (of[i] < 0 || largest[other] > largest[i] || (largest[other] == largest[i] && of[other] < of[i]))) {
            largest[i] = largest[other];
            of[i] = of[other];
        }
    }
    __syncthreads();
    *value = largest[0];
    token = of[0];
    __syncthreads();
    return token;
}

__global__ void __launch_bounds__(CHOOSE_THREADS, 1) choose_draw_kernel(struct choose_args a, struct choose_rows rows,
                                                                        const int32_t *live)
{
    pdl_begin();
    struct choose_share s = share_of(a, rows);
    if (not_live(live, s.row) || !s.state->best)
        return;
    uint32_t position = (uint32_t)device_pointer<int32_t>(a.position)[s.row];
    count_type min_key = s.state->min_key;
    float best = s.logit[token_of(s.state->best)];
    int winner = -1;
    double largest = 0;
    for (int token = s.begin + (int)threadIdx.x; token < s.end; token += CHOOSE_THREADS) {
        float logit = s.logit[token];
        double z = ((double)logit - (double)best) / a.filter.temperature;
        if (!(logit > -INFINITY) || rank_key(logit, token) < min_key || (a.filter.min_p > 0 && !(exp(z) >= a.filter.min_p)))
            continue;
        struct philox counter = {{(uint32_t)token >> 1, position, a.ordinal, a.sample}};
        struct philox bits = philox(counter, a.key);
        double u = philox_uniform(token & 1 ? bits.word[2] : bits.word[0], token & 1 ? bits.word[3] : bits.word[1]);
        double value = z - log(-log(u));
        if (winner < 0 || value > largest) {
            winner = token;
            largest = value;
        }
    }
    winner = best_of_block(&largest, winner);
    if (threadIdx.x == 0) {
        s.state->token[blockIdx.x] = winner;
        s.state->value[blockIdx.x] = largest;
    }
    if (!last_of_row(rows.tickets + blockIdx.y))
        return;
    winner = -1;
    largest = 0;
    for (int i = (int)threadIdx.x; i < (int)gridDim.x; i += CHOOSE_THREADS)       /* ascending, so the first one wins a tie */
        if (s.state->token[i] >= 0 && (winner < 0 || s.state->value[i] > largest)) {
            winner = s.state->token[i];
            largest = s.state->value[i];
        }
    winner = best_of_block(&largest, winner);
    if (threadIdx.x == 0)
        device_pointer<int32_t>(a.choice)[s.row] = winner;
}

/* Queues the launches of one filter: they find the smallest kept key among those that earlier filters kept. */
static void put_filter(dev_stream stream, dim3 grid, const struct choose_args *a, const struct choose_rows &rows, bool mass,
                       const int32_t *live)
{
    const int digits = (int)(sizeof DIGITS / sizeof *DIGITS);
    for (int i = 0; i < digits; i++) {
        struct choose_digit digit = {DIGITS[i].shift, DIGITS[i].bits, i == 0, i == digits - 1, mass};
        LAUNCH_PDL(choose_digit_kernel, grid, dim3(CHOOSE_THREADS), 0, stream, *a, rows, digit, live);
    }
}

/* Processes as many rows at a time as scratch and tickets allow. */
void cuda_choose(struct queue *queue, const struct choose_args *a)
{
    const struct cuda_context *context = (const struct cuda_context *)queue->state;
    struct choose_rows rows = {device_pointer<struct choose_state>(context->scratch), context->tickets, 0};
    int fit = (int)min((long long)(context->scratch.bytes / sizeof(struct choose_state)), (long long)CONTEXT_TICKETS);
    dev_stream stream = cuda_stream(queue);
    const int32_t *live = cuda_live(queue);
    assert(fit > 0 && rows.tickets);                 /* the plug-in allocates enough for one row */
    for (; rows.first < a->rows; rows.first += fit) {
        dim3 grid(blocks_for(a->vocab, CHOOSE_TOKENS), (unsigned)min(fit, a->rows - rows.first));
        LAUNCH_PDL(choose_best_kernel, grid, dim3(CHOOSE_THREADS), 0, stream, *a, rows, live);
        if (!(a->filter.temperature > 0))
            continue;
        if (a->filter.top_k > 0 && a->filter.top_k < a->vocab)
            put_filter(stream, grid, a, rows, false, live);
        if (a->filter.top_p < 1)
            put_filter(stream, grid, a, rows, true, live);
        LAUNCH_PDL(choose_draw_kernel, grid, dim3(CHOOSE_THREADS), 0, stream, *a, rows, live);
    }
}
