#include <math.h>

#include "kernels/ref/learn_internal.h"

void ref_learn_smooth(struct queue *queue, const struct learn_smooth_args *s)
{
    const int32_t *target_row = ref_integers(queue, s->target_row, s->rows);
    const float *x = ref_floats(queue, s->x, (int64_t)s->rows * s->width), *weight = ref_floats(queue, s->weight, s->rows);
    double *loss = ref_doubles(queue, s->loss, s->rows);
    float *to = ref_floats_or_none(queue, s->gradient_to, (int64_t)s->rows * s->width);
    int64_t last = -1;
    for (int row = 0; row < s->rows; row++)
        last = target_row[row] > last ? target_row[row] : last;
    const float *target = ref_floats(queue, s->target, (last + 1) * s->width);
    for (int64_t row = 0; row < s->rows; row++) {
        loss[row] = 0;
        for (int64_t i = 0; target_row[row] >= 0 && i < s->width; i++) {
            const double d = (double)x[row * s->width + i] - (double)target[target_row[row] * (int64_t)s->width + i];
            const double share = (double)weight[row] / s->width;
            loss[row] += share * (fabs(d) < 1 ? d * d / 2 : fabs(d) - 0.5);
            if (to)
                to[row * s->width + i] += (float)((double)s->scale * share * (d > 1 ? 1 : d < -1 ? -1 : d));
        }
    }
}

/* Returns the logarithm of the sum of exponentials. */
static double log_sum(const float *x, int count)
{
    double largest = -INFINITY, sum = 0;
    for (int i = 0; i < count; i++)
        largest = fmax(largest, (double)x[i]);
    for (int i = 0; i < count; i++)
        sum += exp((double)x[i] - largest);
    return largest + log(sum);
}

static void make_probabilities(const float *logits, float *p, int count)
{
    const double sum = log_sum(logits, count);
    for (int i = 0; i < count; i++)
        p[i] = (float)exp((double)logits[i] - sum);
}

void ref_learn_target(struct queue *queue, const struct learn_target_args *t)
{
    float *logits = ref_floats(queue, t->logits, (int64_t)t->rows * t->vocab);
    if (!t->word.address) {
        for (int64_t row = 0; row < t->rows; row++)
            make_probabilities(logits + row * t->vocab, logits + row * t->vocab, t->vocab);
        return;
    }
    const int32_t *word = ref_integers(queue, t->word, t->words);
    float *p = ref_floats(queue, t->p, (int64_t)t->rows * t->words);
    int32_t *counts = ref_integers(queue, t->counts, t->rows);
    for (int64_t row = 0; row < t->rows; row++) {
        const float *of = logits + row * t->vocab;
        int best = 0;
        for (int v = 1; v < t->vocab; v++)
            best = of[v] > of[best] ? v : best;
        counts[row] = 0;
        for (int w = 0; w < t->words; w++) {
            p[row * t->words + w] = of[word[w]];
            counts[row] |= word[w] == best;
        }
        make_probabilities(p + row * t->words, p + row * t->words, t->words);
    }
}

void ref_learn_judge(struct queue *queue, const struct learn_judge_args *j)
{
    float *logits = ref_floats(queue, j->logits, (int64_t)j->rows * j->words);
    const float *bias = ref_floats_or_none(queue, j->bias, j->words), *weight = ref_floats(queue, j->weight, j->rows);
    const int32_t *label = j->label.address ? ref_integers(queue, j->label, j->rows) : NULL;
    const int32_t *from = label ? NULL : ref_integers(queue, j->from, j->rows);
    double *loss = ref_doubles(queue, j->loss, j->rows);
    for (int64_t row = 0; row < j->rows; row++) {
        float *q = logits + row * j->words;
        const float *p = NULL;
        if (!label)
            p = ref_floats(queue, j->p, (from[row] + (int64_t)1) * j->words) + from[row] * (int64_t)j->words;
        for (int w = 0; bias && w < j->words; w++)
            q[w] += bias[w];
        const double sum = log_sum(q, j->words);
        double expected = 0;
        for (int w = 0; w < j->words; w++)
            expected += (label ? label[row] == w : (double)p[w]) * (double)q[w];
        loss[row] = (double)weight[row] * (sum - expected);
        for (int w = 0; w < j->words; w++)
            q[w] = (float)((double)j->scale * (double)weight[row] *
                           (exp((double)q[w] - sum) - (label ? label[row] == w : (double)p[w])));
    }
}

void ref_learn_total(struct queue *queue, const struct learn_total_args *t)
{
    const double *loss = ref_doubles(queue, t->loss, t->rows);
    double *sum = ref_doubles(queue, t->sum, 1);
    for (int row = 0; row < t->rows; row++)
        *sum += loss[row];
}
