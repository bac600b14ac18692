#include "common/route/cluster.h"

#include "common/base/mem.h"

/* A group is named by the number of one of its experts; its experts form a linked list from head to tail. */
struct groups {
    int n;
    const int64_t *count;
    double *alike;              /* [n][n], mean similarity of two groups */
    int *size;                  /* [n]; 0: joined to another group */
    int *head, *tail, *next;    /* [n] */
    int *chain;                 /* [n]: each is the most similar group to its predecessor */
};

static double similarity(const struct groups *g, int a, int b)
{
    size_t n = (size_t)g->n;
    int64_t both = g->count[(size_t)a * n + (size_t)b];
    int64_t any = g->count[(size_t)a * n + (size_t)a] + g->count[(size_t)b * n + (size_t)b] - both;
    return any > 0 ? (double)both / (double)any : 0;
}

static int groups_open(struct groups *g, const int64_t *count, int n, struct err *err)
{
    size_t size = (size_t)n;
    *g = (struct groups){ .n = n, .count = count };
    if (!(g->alike = mem_alloc(size * size, sizeof *g->alike, err)) || !(g->size = mem_alloc(size, sizeof *g->size, err)) ||
        !(g->head = mem_alloc(size, sizeof *g->head, err)) || !(g->tail = mem_alloc(size, sizeof *g->tail, err)) ||
        !(g->next = mem_alloc(size, sizeof *g->next, err)) || !(g->chain = mem_alloc(size, sizeof *g->chain, err)))
        return -1;
    for (int a = 0; a < n; a++) {
        g->size[a] = 1;
        g->head[a] = g->tail[a] = a;
        g->next[a] = -1;
        for (int b = 0; b < n; b++)
            g->alike[(size_t)a * size + (size_t)b] = similarity(g, a, b);
    }
    return 0;
}

static void groups_free(struct groups *g)
{
    mem_free(&g->alike);
    mem_free(&g->size);
    mem_free(&g->head);
    mem_free(&g->tail);
    mem_free(&g->next);
    mem_free(&g->chain);
}

static void turn(struct groups *g, int group)
{
    int before = -1, at = g->head[group];
    while (at >= 0) {
        int after = g->next[at];
        g->next[at] = before;
        before = at;
        at = after;
    }
    g->tail[group] = g->head[group];
    g->head[group] = before;
}

/* Appends b's experts to a's. Reverses either list if that makes the experts that meet more similar. */
static void join_lists(struct groups *g, int a, int b)
{
    const int end_a[] = { g->tail[a], g->head[a] }, end_b[] = { g->head[b], g->tail[b] };
    double best = -1;
    int turns = 0;
    for (int i = 0; i < 4; i++) {
        double fit = similarity(g, end_a[i & 1], end_b[i >> 1]);
        if (fit > best) {
            best = fit;
            turns = i;
        }
    }
    if (turns & 1)
        turn(g, a);
    if (turns >> 1)
        turn(g, b);
    g->next[g->tail[a]] = g->head[b];
    g->tail[a] = g->tail[b];
}

static void join(struct groups *g, int a, int b)
{
    size_t n = (size_t)g->n;
    double share = (double)g->size[a] / (g->size[a] + g->size[b]);
    for (size_t c = 0; c < n; c++) {
        double mean = share * g->alike[(size_t)a * n + c] + (1 - share) * g->alike[(size_t)b * n + c];
        g->alike[(size_t)a * n + c] = g->alike[c * n + (size_t)a] = mean;
    }
    join_lists(g, a, b);
    g->size[a] += g->size[b];
    g->size[b] = 0;
}

/* Returns the group most similar to this one. Between equals its predecessor in the chain wins, else the first. */
static int nearest(const struct groups *g, int group, int before)
{
    const double *alike = g->alike + (size_t)group * (size_t)g->n;
    int best = before;
    for (int c = 0; c < g->n; c++)
        if (c != group && g->size[c] && (best < 0 || alike[c] > alike[best]))
            best = c;
    return best;
}

int cluster_order(int32_t *order, const int64_t *count, int n, struct err *err)
{
    struct groups g;
    int rc = groups_open(&g, count, n, err), last = 0, length = 0, start = 0;
    for (int left = n; !rc && left > 1; ) {
        if (!length) {
            while (!g.size[start])
                start++;
            g.chain[length++] = start;
        }
        int top = g.chain[length - 1], before = length > 1 ? g.chain[length - 2] : -1, near = nearest(&g, top, before);
        if (near != before) {
            g.chain[length++] = near;
            continue;
        }
        last = top < before ? top : before;             /* mutual nearest neighbours are joined */
        join(&g, last, top < before ? before : top);
        length -= 2;
        left--;
    }
    for (int at = rc ? -1 : g.head[last], i = 0; at >= 0; at = g.next[at])
        order[i++] = at;
    groups_free(&g);
    return rc;
}
