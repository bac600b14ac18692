#include "common/route/synthesis.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/splitmix.h"

const char *const synthesis_skews[] = {"flat", "mild", "steep", "local", "local-olmoe", NULL};

#define MILD_SHARES (0.118 / 0.0625)
#define STEEP_FIRST 0.1
#define STEEP_TAKES 0.8

/* Fitted to published hit rates of LRU before any other policy ran (tests/bench/local.py fit). */
#define LOCAL_EXPONENT 1.65
#define LOCAL_OLMOE_EXPONENT 1.2
#define LOCAL_COMMON 0.5

enum { TRIAL_TOKENS = 3000, TRIAL_LAYERS = 4, HALVINGS = 18, TRIES = 64 };

struct popularity { double key; int16_t expert; };

struct synthesis {
    struct synthesis_setup setup;
    uint64_t state;
    double exponent, keeping;
    double *up_to;              /* [experts] cumulative weights of ranks; the last is 1 */
    int16_t *expert_of;         /* [layers][experts] by rank */
    int16_t *rank_of;           /* [layers][experts] by expert */
    double *common;             /* [layers][experts] local: g, common to all texts */
    struct popularity *popularity; /* [experts] */
    int32_t *taken;             /* [experts] the draw that chose this expert last */
    int32_t turn;
};

double synthesis_chance(struct synthesis *s) { return ((double)(splitmix_next(&s->state) >> 11) + 0.5) * 0x1p-53; }

static int draw_below(struct synthesis *s, int count)
{
    return (int)((splitmix_next(&s->state) >> 32) * (uint64_t)count >> 32);
}

static void set_exponent(struct synthesis *s, double exponent)
{
    double sum = 0;
    s->exponent = exponent;
    for (int rank = 0; rank < s->setup.experts; rank++)
        s->up_to[rank] = sum += pow(rank + 1, -exponent);
    for (int rank = 0; rank < s->setup.experts; rank++)
        s->up_to[rank] /= sum;
}

static int draw_by_popularity(struct synthesis *s)
{
    double chance = synthesis_chance(s);
    int first = 0, last = s->setup.experts - 1;
    while (first < last) {
        int middle = (first + last) / 2;
        if (s->up_to[middle] < chance)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

static int choose(struct synthesis *s, int layer, const int16_t *expert, const int16_t *before)
{
    const int16_t *expert_of = s->expert_of + (size_t)layer * s->setup.experts;
    int top_k = s->setup.top_k, chosen;
    if (before && synthesis_chance(s) < s->keeping)
        chosen = before[(size_t)layer * top_k + draw_below(s, top_k)];
    else if (layer && synthesis_chance(s) < SYNTHESIS_LAYERS)
        chosen = expert_of[s->rank_of[(size_t)(layer - 1) * s->setup.experts +
                                      expert[(layer - 1) * top_k + draw_below(s, top_k)]]];
    else
        chosen = expert_of[draw_by_popularity(s)];
    for (int tries = 0; s->taken[chosen] == s->turn && tries < TRIES; tries++)
        chosen = expert_of[draw_by_popularity(s)];
    for (int rank = 0; s->taken[chosen] == s->turn; rank++)
        chosen = expert_of[rank];
    s->taken[chosen] = s->turn;
    return chosen;
}

static void draw_layers(struct synthesis *s, int16_t *expert, const int16_t *before, int layers)
{
    for (int layer = 0; layer < layers; layer++) {
        if (s->turn++ == INT32_MAX - 1) {
            memset(s->taken, 0, s->setup.experts * sizeof *s->taken);
            s->turn = 1;
        }
        for (int slot = 0; slot < s->setup.top_k; slot++)
            expert[layer * s->setup.top_k + slot] = (int16_t)choose(s, layer, expert, before);
    }
}

static bool is_local(const struct synthesis *s) { return s->setup.skew >= SYNTHESIS_LOCAL; }

static int by_key(const void *a, const void *b)
{
    const struct popularity *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->expert - y->expert;
}

/* Ranks experts for a new text, by the mean of g, common to all texts, and t, the text's own. */
static void rank_text(struct synthesis *s)
{
    const int experts = s->setup.experts;
    for (int layer = 0; layer < s->setup.layers; layer++) {
        const size_t first = (size_t)layer * experts;
        for (int e = 0; e < experts; e++)
            s->popularity[e] = (struct popularity){
                LOCAL_COMMON * s->common[first + e] + (1 - LOCAL_COMMON) * synthesis_chance(s), (int16_t)e};
        qsort(s->popularity, experts, sizeof *s->popularity, by_key);
        for (int rank = 0; rank < experts; rank++) {
            s->expert_of[first + rank] = s->popularity[rank].expert;
            s->rank_of[first + s->popularity[rank].expert] = (int16_t)rank;
        }
    }
}

void synthesis_draw(struct synthesis *s, int16_t *expert, const int16_t *before)
{
    if (!before && is_local(s))
        rank_text(s);
    draw_layers(s, expert, before, s->setup.layers);
}

/* Runs a trial. Its results are the share of the first `first` ranks, and the share of experts that neighbours have in
 * common. */
static void run_trial(struct synthesis *s, int first, double *takes, double *shares, int16_t *expert)
{
    int layers = s->setup.layers < TRIAL_LAYERS ? s->setup.layers : TRIAL_LAYERS, slots = layers * s->setup.top_k;
    int16_t *before = expert + slots;
    int64_t took = 0, shared = 0;
    s->state = 0x5eed;
    for (int token = 0; token < TRIAL_TOKENS; token++) {
        draw_layers(s, expert, token ? before : NULL, layers);
        for (int i = 0; i < slots; i++) {
            int layer = i / s->setup.top_k;
            took += s->rank_of[(size_t)layer * s->setup.experts + expert[i]] < first;
            for (int j = 0; token && j < s->setup.top_k; j++)
                shared += before[layer * s->setup.top_k + j] == expert[i];
        }
        memcpy(before, expert, slots * sizeof *expert);
    }
    *takes = (double)took / TRIAL_TOKENS / slots;
    *shares = (double)shared / (TRIAL_TOKENS - 1) / slots;
}

/* Finds both by bisection: the measured share increases with the parameter. */
static void find_parameters(struct synthesis *s, int16_t *expert)
{
    double low = 0, high = 8, takes, shares;
    int first = (int)lround(STEEP_FIRST * s->setup.experts), top_k = s->setup.top_k;
    if (is_local(s)) {
        set_exponent(s, s->setup.skew == SYNTHESIS_LOCAL ? LOCAL_EXPONENT : LOCAL_OLMOE_EXPONENT);
        return;
    }
    first = first > 1 ? first : 1;
    double could_take = first < top_k ? (double)first / top_k : 1, alike = (double)top_k / s->setup.experts;
    set_exponent(s, 0);
    for (int i = 0; i < HALVINGS && s->setup.skew != SYNTHESIS_FLAT; i++) {
        set_exponent(s, (low + high) / 2);
        run_trial(s, first, &takes, &shares, expert);
        bool less = s->setup.skew == SYNTHESIS_STEEP ? takes < STEEP_TAKES * could_take : shares < MILD_SHARES * alike;
        *(less ? &low : &high) = s->exponent;
    }
    run_trial(s, first, &takes, &shares, expert);
    low = 0;
    high = 1;
    for (int i = 0; i < HALVINGS && shares < SYNTHESIS_SHARING; i++) {
        double found;
        s->keeping = (low + high) / 2;
        run_trial(s, first, &takes, &found, expert);
        *(found < SYNTHESIS_SHARING ? &low : &high) = s->keeping;
    }
}

/* Assigns ranks to experts at random, layer by layer. */
static void assign_ranks(struct synthesis *s)
{
    int experts = s->setup.experts;
    s->state = s->setup.seed;
    for (int layer = 0; layer < s->setup.layers; layer++) {
        int16_t *expert_of = s->expert_of + (size_t)layer * experts, *rank_of = s->rank_of + (size_t)layer * experts;
        for (int e = 0; e < experts; e++)
            expert_of[e] = (int16_t)e;
        for (int e = experts - 1; e > 0; e--) {
            int other = draw_below(s, e + 1);
            int16_t kept = expert_of[e];
            expert_of[e] = expert_of[other];
            expert_of[other] = kept;
        }
        for (int rank = 0; rank < experts; rank++)
            rank_of[expert_of[rank]] = (int16_t)rank;
    }
    for (size_t cell = 0; is_local(s) && cell < (size_t)s->setup.layers * experts; cell++)
        s->common[cell] = synthesis_chance(s);
}

int synthesis_open(struct synthesis **out, const struct synthesis_setup *setup, struct err *err)
{
    int16_t *trial = NULL;
    if (setup->layers < 1 || setup->layers > 4096 || setup->top_k < 1 || setup->experts < 2 || setup->experts > 4096 ||
        setup->top_k > setup->experts / 2)
        return err_set(err, ERR_INPUT, "routes cannot be made for %d layers of %d experts, %d per token; they need 1 to 4096 "
                       "layers of 2 to 4096 experts, and at most half of the experts per token", setup->layers, setup->experts,
                       setup->top_k);
    struct synthesis *s = mem_alloc(1, sizeof *s, err);
    if (!s)
        return -1;
    s->setup = *setup;
    size_t cells = (size_t)setup->layers * setup->experts;
    s->up_to = mem_alloc(setup->experts, sizeof *s->up_to, err);
    s->expert_of = mem_alloc(cells, sizeof *s->expert_of, err);
    s->rank_of = mem_alloc(cells, sizeof *s->rank_of, err);
    s->taken = mem_alloc(setup->experts, sizeof *s->taken, err);
    s->common = mem_alloc(cells, sizeof *s->common, err);
    s->popularity = mem_alloc(setup->experts, sizeof *s->popularity, err);
    trial = mem_alloc(2 * (size_t)TRIAL_LAYERS * setup->top_k, sizeof *trial, err);
    if (!s->up_to || !s->expert_of || !s->rank_of || !s->taken || !s->common || !s->popularity || !trial) {
        mem_free(&trial);
        synthesis_close(&s);
        return -1;
    }
    assign_ranks(s);
    find_parameters(s, trial);
    mem_free(&trial);
    s->state = setup->seed ^ 0xd1b54a32d192ed03u;
    *out = s;
    return 0;
}

void synthesis_close(struct synthesis **synthesis)
{
    struct synthesis *s = *synthesis;
    if (!s)
        return;
    mem_free(&s->up_to);
    mem_free(&s->expert_of);
    mem_free(&s->rank_of);
    mem_free(&s->taken);
    mem_free(&s->common);
    mem_free(&s->popularity);
    mem_free(synthesis);
}
