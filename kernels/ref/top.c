#include <math.h>

#include "kernels/ref/ref_internal.h"

/* Returns whether token a ranks before token b. */
static int before(const float *logit, int a, int b) { return logit[a] != logit[b] ? logit[a] > logit[b] : a < b; }

void ref_top(struct queue *queue, const struct top_args *a)
{
    const int stride = row_stride(a->stride, a->vocab);
    const float *logits = ref_floats(queue, a->logits, ref_span(a->rows, stride, a->vocab));
    const int32_t *map = a->map.address ? ref_integers(queue, a->map, a->vocab) : NULL;
    int32_t *token = ref_integers(queue, a->token, (int64_t)a->rows * a->k);
    float *logp = ref_floats(queue, a->logp, (int64_t)a->rows * a->k);
    float *log_sum = a->log_sum.address ? ref_floats(queue, a->log_sum, a->rows) : NULL;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *logit = logits + r * stride;
        double largest = -INFINITY, sum = 0;
        for (int v = 0; v < a->vocab; v++)
            largest = fmax(largest, (double)logit[v]);
        for (int v = 0; v < a->vocab; v++)
            sum += exp(logit[v] - largest);
        if (log_sum)
            log_sum[r] = isnan(sum) ? NAN : (float)(largest + log(sum));
        for (int i = 0, last = -1; i < a->k; i++) {
            int next = -1;
            for (int v = 0; v < a->vocab && !isnan(sum); v++)
                if ((last < 0 || before(logit, last, v)) && (next < 0 || before(logit, v, next)))
                    next = v;
            token[r * a->k + i] = next < 0 ? -1 : map ? map[next] : next;
            logp[r * a->k + i] = next < 0 ? NAN : (float)(logit[next] - largest - log(sum));
            last = next;
        }
    }
}
