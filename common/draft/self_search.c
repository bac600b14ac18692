#include "common/draft/self_search.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/draft/matchness.h"

struct self_search {
    struct skip_search *search;
    struct forward_part part;
    struct engine *engine;
    int tokens, interval;               /* number of tokens in a window; number of drafts per candidate */
    struct match_window *window;        /* window of this text; NULL: the text is too short yet */
    int32_t *token;
    size_t token_room;
    int prompt, length, drafts;
};

int self_search_open(struct self_search **out, const struct skip_search_setup *setup, const struct skip_set *first,
                     const struct forward_part *part, struct engine *engine, int window, int interval, struct err *err)
{
    struct self_search *search = mem_alloc(1, sizeof *search, err);
    if (!search)
        return -1;
    search->part = *part;
    search->engine = engine;
    search->tokens = window;
    search->interval = interval;
    if (skip_search_open(&search->search, setup, first, err)) {
        self_search_close(&search);
        return -1;
    }
    *out = search;
    return 0;
}

void self_search_close(struct self_search **search)
{
    if (!*search)
        return;
    match_window_close(&(*search)->window);
    skip_search_close(&(*search)->search);
    mem_free(&(*search)->token);
    mem_free(search);
}

void self_search_begin(struct self_search *search)
{
    match_window_close(&search->window);
    search->prompt = search->length = search->drafts = 0;
}

int self_search_commit(struct self_search *search, const int32_t *token, int count, struct err *err)
{
    if (mem_grow(&search->token, &search->token_room, (size_t)search->length + (size_t)count, sizeof *token, err))
        return -1;
    memcpy(search->token + search->length, token, (size_t)count * sizeof *token);
    search->length += count;
    search->prompt = search->prompt ? search->prompt : count;
    return 0;
}

static int score(struct self_search *search, struct skip_set *best, bool *better, int64_t *bytes, struct err *err)
{
    const struct skip_set *kept = skip_search_best(search->search);
    const int64_t before = match_window_bytes(search->window);
    const int parts = skip_parts(kept->layers);
    struct skip_set candidate, old = *kept;
    int matches, rc = skip_search_next(search->search, &candidate, err);
    if (rc <= 0)
        return rc;
    search->part.skip_attention = candidate.attention;
    search->part.skip_ffn = candidate.ffn;
    if (match_window_count(search->window, &search->part, &matches, err) ||
        skip_search_score(search->search, (double)matches / search->tokens, err))
        return -1;
    *bytes += match_window_bytes(search->window) - before;
    for (int part = 0; part < parts; part++)
        *better |= skip_part(kept, part) != skip_part(&old, part);
    if (*better)
        *best = *kept;
    return 0;
}

int self_search_step(struct self_search *search, const struct sequence *sequence, struct skip_set *best, bool *better,
                     int64_t *bytes, struct err *err)
{
    *better = false;
    if (!search->window && search->length - search->prompt > search->tokens) {
        if (match_window_open(&search->window, search->engine, sequence, search->token, search->prompt, search->tokens, err))
            return -1;
        *bytes += match_window_bytes(search->window);
    }
    if (!search->window || search->drafts++ % search->interval)
        return 0;
    return score(search, best, better, bytes, err);
}
