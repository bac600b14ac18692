#include "common/bench/simulated_store.h"

#include <math.h>

static bool is_transferring(const struct simulated_link_read *read) { return read->end >= 0; }

/* Returns the read whose next event is earliest (the first of simultaneous ones) and its time; -1: nothing in flight. */
static int next_event(const struct simulated_link *link, double *when)
{
    int next = -1;
    *when = INFINITY;
    for (int i = 0; i < link->reads; i++) {
        const struct simulated_link_read *read = &link->read[i];
        const double at = is_transferring(read) ? link->now + (read->end - link->moved) * link->all_s[link->moving]
                                                : read->from;
        if (at < *when) {
            next = i;
            *when = at;
        }
    }
    return next;
}

static void pass(struct simulated_link *link, double until)
{
    if (link->moving && until > link->now)
        link->moved += (until - link->now) / link->all_s[link->moving];
    link->now = fmax(link->now, until);
}

/* Processes an event of a read: its transfer begins after its latency, or ends. */
static void process_event(struct simulated_link *link, int number, double when)
{
    struct simulated_link_read *read = &link->read[number];
    if (!is_transferring(read)) {
        pass(link, when);
        read->end = link->moved + 1;
        link->moving++;
        return;
    }
    link->now = fmax(link->now, when);
    link->moved = read->end;                    /* assigned, not accumulated, so that reads that began together end together */
    link->done[link->ended] = *read;
    link->done[link->ended++].end = link->now;
    link->moving--;
    link->reads--;
    for (int i = number; i < link->reads; i++)
        link->read[i] = link->read[i + 1];
}

static void advance_link(struct simulated_link *link, double until)
{
    double when;
    for (int next; (next = next_event(link, &when)) >= 0 && when <= until;)
        process_event(link, next, when);
    pass(link, until);
}

/* ---- the methods of struct transfers */

static bool is_full(const void *context)
{
    const struct simulated_link *link = context;
    return link->reads + link->ended == SCHEDULE_READS;
}

static int start_read(void *context, int slot, int key, struct err *err)
{
    struct simulated_link *link = context;
    (void)key;
    (void)err;
    advance_link(link, link->clock);
    link->read[link->reads++] = (struct simulated_link_read){
        .slot = slot, .began = link->clock, .from = link->clock + link->latency_s, .end = -1};
    return 0;
}

static int next_read(void *context, bool wait, int *slot, struct err *err)
{
    struct simulated_link *link = context;
    double when;
    (void)err;
    *slot = -1;
    if (!wait)
        advance_link(link, link->clock);
    for (int next; wait && !link->ended && (next = next_event(link, &when)) >= 0;)
        process_event(link, next, when);
    if (!link->ended)
        return 0;
    const struct simulated_link_read read = link->done[0];
    link->ended--;
    for (int i = 0; i < link->ended; i++)
        link->done[i] = link->done[i + 1];
    if (wait)
        link->clock = fmax(link->clock, link->now);
    if (link->note)
        link->note(link->context, read.slot, read.began, read.end);
    *slot = read.slot;
    return 1;
}

static double now(const void *context) { return ((const struct simulated_link *)context)->clock; }

const struct transfers simulated_link_transfers = {.full = is_full, .start = start_read, .next = next_read, .now = now};
