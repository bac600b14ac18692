#include "common/train/share.h"

#include <string.h>

#include "common/base/mem.h"

int share_open(struct share **out, struct ranks *ranks, struct weights *weights, struct err *err)
{
    struct share *s = mem_alloc(1, sizeof *s, err);
    if (!s)
        return -1;
    s->ranks = ranks;
    s->weights = weights;
    if (!(s->cut = mem_alloc((size_t)ranks_size(ranks) + 1, sizeof *s->cut, err))) {
        share_close(&s);
        return -1;
    }
    ranks_cut(ranks, weights->floats, OPTIMISER_BLOCK, s->cut);
    *out = s;
    return 0;
}

void share_close(struct share **share)
{
    if (*share) {
        mem_free(&(*share)->cut);
        mem_free(&(*share)->sum);
        mem_free(&(*share)->report);
    }
    mem_free(share);
}

int share_equal(struct share *s, void *data, size_t each, struct err *err)
{
    const size_t size = (size_t)ranks_size(s->ranks);
    size_t *cut = mem_alloc(size + 1, sizeof *cut, err);
    if (!cut)
        return -1;
    for (size_t i = 0; i <= size; i++)
        cut[i] = i * each;
    const int rc = ranks_share(s->ranks, data, cut, err);
    mem_free(&cut);
    return rc;
}

static void add_whole(struct train_whole *to, const struct train_whole *from)
{
    to->texts += from->texts;
    to->longest = from->longest > to->longest ? from->longest : to->longest;
    for (int i = 0; i < SHIFTS_MAX; i++) {
        to->answered[i] += from->answered[i];
        to->judged[i] += from->judged[i];
    }
}

int share_measures(struct share *s, int32_t *tokens, int texts, struct train_whole *whole, struct err *err)
{
    const int size = ranks_size(s->ranks), rank = ranks_rank(s->ranks), each = (texts + size - 1) / size;
    const size_t bytes = size_align(sizeof *whole + (size_t)each * sizeof *tokens, sizeof(int64_t));
    char *records = mem_alloc((size_t)size, bytes, err), *own = records + (size_t)rank * bytes;
    if (!records)
        return -1;
    memcpy(own, whole, sizeof *whole);
    for (int i = rank; i < texts; i += size)
        memcpy(own + sizeof *whole + (size_t)(i / size) * sizeof *tokens, &tokens[i], sizeof *tokens);
    const int rc = share_equal(s, records, bytes, err);
    if (!rc)
        *whole = (struct train_whole){.texts = 0};
    for (int from = 0; !rc && from < size; from++) {
        const char *record = records + (size_t)from * bytes;
        struct train_whole part;
        memcpy(&part, record, sizeof part);
        add_whole(whole, &part);
        for (int i = from; i < texts; i += size)
            memcpy(&tokens[i], record + sizeof part + (size_t)(i / size) * sizeof *tokens, sizeof *tokens);
    }
    mem_free(&records);
    return rc;
}

static int rounds_of(const struct share *s)
{
    const int size = ranks_size(s->ranks);
    return (s->parts + size - 1) / size;
}

static size_t piece_floats(const struct share *s)
{
    const int rank = ranks_rank(s->ranks);
    return s->cut[rank + 1] - s->cut[rank];
}

int share_begin(struct share *s, int parts, struct err *err)
{
    const size_t piece = piece_floats(s);
    s->parts = parts;
    if (rounds_of(s) > 1 && !s->sum && !(s->sum = mem_alloc_aligned(piece ? piece : 1, sizeof *s->sum, err)))
        return -1;
    return mem_grow(&s->report, &s->report_room, (size_t)ranks_size(s->ranks) * (size_t)rounds_of(s), sizeof *s->report, err);
}

int share_part(const struct share *s, int round)
{
    const int part = round * ranks_size(s->ranks) + ranks_rank(s->ranks);
    return part < s->parts ? part : -1;
}

struct gradient_piece share_piece(const struct share *s)
{
    float *here = s->weights->gradient + s->cut[ranks_rank(s->ranks)];
    return (struct gradient_piece){s->ranks, s->cut, rounds_of(s) > 1 ? s->sum : here};
}

int share_end_round(struct share *s, int round, const struct share_report *own, struct err *err)
{
    const int size = ranks_size(s->ranks), rounds = rounds_of(s), left = s->parts - round * size;
    struct weights *w = s->weights;
    if (share_part(s, round) >= 0)
        s->report[ranks_rank(s->ranks) * rounds + round] = *own;
    if (weights_fetch(w, WEIGHTS_GRADIENT, 0, w->floats, err) ||
        ranks_fold(s->ranks, w->gradient, left < size ? left : size, s->cut, share_piece(s).gradient, round == 0, err))
        return -1;
    if (rounds > 1)
        weights_clear_gradients(w);
    return 0;
}

int share_total(struct share *s, struct losses *losses, int *tokens, struct err *err)
{
    const int size = ranks_size(s->ranks), rounds = rounds_of(s);
    int64_t all = 0;
    if (share_equal(s, s->report, (size_t)rounds * sizeof *s->report, err))
        return -1;
    *losses = s->report[0].losses;
    for (int part = 0; part < s->parts; part++) {
        const struct share_report *r = &s->report[part % size * rounds + part / size];
        all += r->tokens;
        if (part)
            losses_add(losses, &r->losses);
    }
    *tokens = (int)all;
    return 0;
}

int share_scatter(struct share *s, struct err *err)
{
    struct weights *w = s->weights;
    const size_t bytes = w->floats * sizeof(float);
    return weights_fetch_all(w, err) || ranks_broadcast(s->ranks, w->data, bytes, err) ||
           ranks_broadcast(s->ranks, w->first, bytes, err) || ranks_broadcast(s->ranks, w->second, bytes, err) ||
           weights_send_all(w, err) ? -1 : 0;
}

int share_gather(struct share *s, struct err *err)
{
    const int size = ranks_size(s->ranks);
    size_t *cut = mem_alloc((size_t)size + 1, sizeof *cut, err);
    if (!cut)
        return -1;
    for (int i = 0; i <= size; i++)
        cut[i] = s->cut[i] * sizeof(float);
    const int rc = weights_fetch_all(s->weights, err) || ranks_collect(s->ranks, s->weights->first, cut, err) ||
                   ranks_collect(s->ranks, s->weights->second, cut, err) || weights_send_all(s->weights, err) ? -1 : 0;
    mem_free(&cut);
    return rc;
}

/* Balances greedily: takes the longest text first and adds it to the part with the fewest tokens so far. */
void share_balance(const int32_t *tokens, int texts, int parts, int64_t *load, int *part)
{
    for (int i = 0; i < texts; i++)
        part[i] = -1;
    for (int p = 0; p < parts; p++)
        load[p] = 0;
    for (int placed = 0; placed < texts; placed++) {
        int longest = -1, lightest = 0;
        for (int i = 0; i < texts; i++)
            if (part[i] < 0 && (longest < 0 || tokens[i] > tokens[longest]))
                longest = i;
        for (int p = 1; p < parts; p++)
            if (load[p] < load[lightest])
                lightest = p;
        part[longest] = lightest;
        load[lightest] += tokens[longest];
    }
}
