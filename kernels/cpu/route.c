#include <string.h>

#include "kernels/cpu/table.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/route.h"

static void score_row(const float *logits, float *score, int experts)
{
    float max = logits[0], sum = 0;
    for (int e = 1; e < experts; e++)
        max = logits[e] > max ? logits[e] : max;
    for (int e = 0; e < experts; e++)
        score[e] = plain_exp(logits[e] - max);
    for (int e = 0; e < experts; e++)
        sum += score[e];
    for (int e = 0; e < experts; e++)
        score[e] /= sum;
}

static void sigmoid_row(const float *logits, float *score, int experts)
{
    for (int e = 0; e < experts; e++)
        score[e] = plain_sigmoid(logits[e]);
}

static void score_rows(void *argument, int member, int members)
{
    const struct route_score_args *a = argument;
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    void (*row)(const float *, float *, int) = a->kind == ROUTER_SIGMOID ? sigmoid_row : score_row;
    for (size_t r = begin; r < end; r++)
        row((const float *)work_pointer(a->logits) + r * (size_t)a->experts,
            (float *)work_pointer(a->score) + r * (size_t)a->experts, a->experts);
}

void cpu_route_score(struct queue *queue, const struct route_score_args *args)
{
    struct route_score_args copy = *args;
    work_run(queue, (size_t)args->rows * (size_t)args->experts * sizeof(float), score_rows, &copy);
}

void cpu_route_shortlist(struct queue *queue, const struct route_shortlist_args *a)
{
    const float *score = work_pointer(a->score), *bias = work_pointer(a->bias), *weight = work_pointer(a->weight);
    uint8_t *mask = work_pointer(a->mask);
    float sum[ROUTE_EXPERTS_MAX] = {0};
    int32_t best[ROUTE_EXPERTS_MAX];
    (void)queue;
    for (int r = 0; r < a->rows; r++)
        for (int e = 0; e < a->experts; e++) {
            float value = score[(size_t)r * (size_t)a->experts + (size_t)e] + (bias ? bias[e] : 0);
            sum[e] += weight ? weight[r] * value : value;
        }
    memset(mask, 0, (size_t)a->experts);
    int count = plain_top(sum, NULL, a->experts, a->budget, best);
    for (int i = 0; i < count; i++)
        mask[best[i]] = 1;
}

_Static_assert((int)PLAIN_EXPERTS_MAX >= (int)ROUTE_EXPERTS_MAX, "plain_select keeps a value for each expert");

static void select_rows(void *argument, int member, int members)
{
    const struct route_select_args *a = argument;
    size_t begin, end, experts = (size_t)a->experts, top_k = (size_t)a->top_k;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    const struct plain_router router = {
        .bias = work_pointer(a->bias), .expert_scale = work_pointer(a->expert_scale), .experts = a->experts,
        .top_k = a->top_k, .groups = a->groups,
        .groups_kept = a->groups_kept, .group_rank = a->group_rank, .substitute = a->mode == BUDGET_SUBSTITUTE,
        .renormalise = a->renormalise, .scale = a->scale, .jitter = a->jitter};
    for (size_t r = begin; r < end && a->kind == ROUTER_SPARSEMIXER; r++) {
        struct plain_router mixer = router;
        mixer.logits = (const float *)work_pointer(a->logits) + r * experts;
        plain_select_mixed(&mixer, work_pointer(a->mask), (int32_t *)work_pointer(a->wanted) + r * top_k,
                           (int32_t *)work_pointer(a->expert) + r * top_k, (float *)work_pointer(a->weight) + r * top_k);
    }
    for (size_t r = begin; r < end && a->kind != ROUTER_SPARSEMIXER; r++) {
        int32_t *wanted = (int32_t *)work_pointer(a->wanted) + r * top_k;
        int32_t *expert = (int32_t *)work_pointer(a->expert) + r * top_k;
        float *weight = (float *)work_pointer(a->weight) + r * top_k;
        plain_select(&router, (const float *)work_pointer(a->score) + r * experts, work_pointer(a->mask), wanted, expert,
                     weight);
        if (a->zero)
            ((float *)work_pointer(a->zero_weight))[r] = plain_take_zero(a->experts - a->zero, a->top_k, wanted, expert,
                                                                         weight);
    }
}

void cpu_route_select(struct queue *queue, const struct route_select_args *args)
{
    struct route_select_args copy = *args;
    /* A comparison takes about four times as long as reading a number. */
    work_run(queue, (size_t)args->rows * (size_t)args->experts * sizeof(float) * 4, select_rows, &copy);
}
