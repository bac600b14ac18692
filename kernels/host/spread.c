#include <stdatomic.h>

#include "kernels/host/internal.h"

enum { ALONE = 8192 };

struct spread {
    host_job *job;
    host_item *item;
    const void *context;
    size_t count;
    atomic_size_t next;
};

static void run_part(void *argument, int member, int members)
{
    struct spread *spread = argument;
    size_t begin, end;
    thread_pool_part(spread->count, member, members, &begin, &end);
    if (begin < end)
        spread->job(spread->context, begin, end);
}

void host_spread(struct queue *queue, size_t count, size_t cost, host_job *job, const void *context)
{
    struct spread spread = {.job = job, .context = context, .count = count};
    if (count * cost <= ALONE)
        run_part(&spread, 0, 1);
    else
        thread_pool_run(host_pool(queue), run_part, &spread);
}

static void run_items(void *argument, int member, int members)
{
    struct spread *spread = argument;
    (void)members;
    for (size_t i; (i = atomic_fetch_add(&spread->next, 1)) < spread->count;)
        spread->item(spread->context, i, member);
}

void host_each(struct queue *queue, size_t count, host_item *job, const void *context)
{
    struct spread spread = {.item = job, .context = context, .count = count};
    thread_pool_run(host_pool(queue), run_items, &spread);
}
