#include <math.h>

#include "kernels/host/internal.h"
#include "kernels/host/vector.h"

static void smooth_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_smooth_args *s = context;
    const size_t width = (size_t)s->width;
    const int32_t *target_row = host_at(s->target_row);
    const float *weight = host_at(s->weight);
    double *loss = host_at(s->loss);
    for (size_t row = begin; row < end; row++) {
        loss[row] = 0;
        if (target_row[row] < 0)
            continue;
        const float *x = (const float *)host_at(s->x) + row * width;
        const float *t = (const float *)host_at(s->target) + (size_t)target_row[row] * width;
        float *to = s->gradient_to.address ? (float *)host_at(s->gradient_to) + row * width : NULL;
        const float share = s->scale * weight[row] / (float)width;
        double sum = 0;
        for (size_t i = 0; i < width; i++) {
            const float d = x[i] - t[i];
            sum += (double)(fabsf(d) < 1 ? 0.5f * d * d : fabsf(d) - 0.5f);
            if (to)
                to[i] += share * (d > 1 ? 1 : d < -1 ? -1 : d);
        }
        loss[row] = (double)weight[row] * sum / (double)width;
    }
}

void host_learn_smooth(struct queue *queue, const struct learn_smooth_args *s)
{
    host_spread(queue, (size_t)s->rows, (size_t)s->width, smooth_rows, s);
}

/* Computes p of each row: with words, over these only, and only if the row's most probable token is one of them. */
static void target_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_target_args *t = context;
    const size_t vocab = (size_t)t->vocab, words = t->word.address ? (size_t)t->words : vocab;
    const int32_t *word = host_at(t->word);
    int32_t *counts = host_at(t->counts);
    for (size_t i = begin; i < end; i++) {
        float *logits = (float *)host_at(t->logits) + i * vocab, *p = word ? (float *)host_at(t->p) + i * words : logits;
        const float largest = vector_largest(logits, vocab);
        bool known = !word;
        if (word) {
            size_t best = 0;
            while (logits[best] != largest && best + 1 < vocab)
                best++;
            for (size_t w = 0; w < words; w++) {
                p[w] = logits[word[w]];
                known |= (size_t)word[w] == best;
            }
            counts[i] = known;
        }
        if (known)
            vector_scale(p, words, (float)(1 / vector_exp(p, words, largest)));
    }
}

void host_learn_target(struct queue *queue, const struct learn_target_args *t)
{
    host_spread(queue, (size_t)t->rows, (size_t)t->vocab * 4, target_rows, t);
}

/* Computes the loss of each row, and replaces its logits by their gradient. */
static void judge_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_judge_args *j = context;
    const size_t words = (size_t)j->words;
    const int32_t *label = host_at(j->label), *from = host_at(j->from);
    const float *bias = host_at(j->bias), *weights = host_at(j->weight);
    for (size_t i = begin; i < end; i++) {
        float *q = (float *)host_at(j->logits) + i * words;
        const float *p = label ? NULL : (const float *)host_at(j->p) + (size_t)from[i] * words;
        if (bias)
            vector_add(q, bias, words);
        const double expected = label ? (double)q[label[i]] : vector_dot(p, q, words);
        const float largest = vector_largest(q, words), weight = weights[i] * j->scale;
        const double sum = vector_exp(q, words, largest);
        ((double *)host_at(j->loss))[i] = (double)weights[i] * ((double)largest + log(sum) - expected);
        vector_scale(q, words, (float)((double)weight / sum));
        if (label)
            q[label[i]] -= weight;
        else
            vector_add_scaled(q, p, words, -weight);
    }
}

void host_learn_judge(struct queue *queue, const struct learn_judge_args *j)
{
    host_spread(queue, (size_t)j->rows, (size_t)j->words * 4, judge_rows, j);
}

void host_learn_total(struct queue *queue, const struct learn_total_args *t)
{
    const double *loss = host_at(t->loss);
    double *sum = host_at(t->sum);
    (void)queue;
    for (int row = 0; row < t->rows; row++)
        *sum += loss[row];
}
