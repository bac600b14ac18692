/* Prompt lookup: where did the last tokens of a text occur before, and what followed them there?
 * Source: Saxena, "Prompt lookup decoding", 2023; here the longest suffix counts, and of its positions the most recent.
 *
 * An index makes a look-up cost the same however long the text is: an open hash table whose slots say where an n-gram was
 * last, and from each position a link to the one before. An n-gram enters it when a token comes after it, so that every
 * position found has a continuation. */
#ifndef MOE_KERNELS_PLAIN_NGRAM_H
#define MOE_KERNELS_PLAIN_NGRAM_H

#include "kernels/plain/plain.h"

enum { NGRAM_LONGEST = 16, NGRAM_POSITIONS = 64 };

/* next: the position in the text of the token that follows the n-gram; n: its length. next 0: empty. */
struct ngram_slot { int32_t next, n; };

struct ngram_index {
    struct ngram_slot *slot;        /* [slots], zeros at the start */
    uint32_t slots;                 /* a power of two; the caller keeps at least half of them empty */
    uint32_t used;
    int32_t *earlier;               /* [text][longest - shortest + 1]: next of the n-gram's position before this one; 0: none */
};

PLAIN uint32_t ngram_hash(const int32_t *token, int n)
{
    uint64_t hash = (uint64_t)(uint32_t)n * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < n; i++) {
        hash = (hash ^ (uint32_t)token[i]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

/* The slot of the n-gram gram[0 .. n), or the empty one where it belongs. */
PLAIN uint32_t ngram_find(const struct ngram_index *index, const int32_t *text, const int32_t *gram, int n)
{
    uint32_t at = ngram_hash(gram, n) & (index->slots - 1);
    for (; index->slot[at].next; at = (at + 1) & (index->slots - 1)) {
        int same = index->slot[at].n == n;
        for (int i = 0; same && i < n; i++)
            same = text[index->slot[at].next - n + i] == gram[i];
        if (same)
            break;
    }
    return at;
}

/* text[last] has just been written: enters the n-grams of shortest .. longest tokens that end before it. */
PLAIN void ngram_enter(struct ngram_index *index, const int32_t *text, int32_t last, int shortest, int longest)
{
    for (int n = shortest; n <= longest && n <= last; n++) {
        uint32_t at = ngram_find(index, text, text + last - n, n);
        index->used += index->slot[at].next == 0;
        index->earlier[last * (longest - shortest + 1) + n - shortest] = index->slot[at].next;
        index->slot[at].next = last;
        index->slot[at].n = n;
    }
}

/* Where the last n of tail[0 .. count) were before: the position of what followed, 0: nowhere. */
PLAIN int32_t ngram_position(const struct ngram_index *index, const int32_t *text, const int32_t *tail, int count, int n)
{
    return index->slot[ngram_find(index, text, tail + count - n, n)].next;
}

/* What followed the longest known suffix of tail[0 .. count) at its most recent position: the first of ngram_candidates,
 * without its probability. 0: no suffix is known. */
PLAIN int32_t ngram_latest(const struct ngram_index *index, const int32_t *text, const int32_t *tail, int count, int shortest,
                           int longest)
{
    int32_t next = 0;
    for (int n = longest < count ? longest : count; n >= shortest && !next; n--)
        next = ngram_position(index, text, tail, count, n);
    return next;
}

/* The token `at` positions after text[next]. A continuation that reaches the end of the text goes on from its beginning: the
 * text is taken to repeat itself. */
PLAIN int32_t ngram_continued(const int32_t *text, int length, int32_t next, int at)
{
    return text[next + at % (length - next)];
}

/* What may come next: the token at text[next], the length of the suffix that it followed, and how likely that is. */
struct ngram_candidate {
    int32_t next, n;
    double probability;
};

/* The candidates that text[0 .. ) has after tail[0 .. count), up to `max` different tokens: those that followed the longest
 * known suffix, the most recent position first, then those of shorter suffixes. Of a suffix the NGRAM_POSITIONS most recent
 * positions count, so the cost has a bound. Returns their number.
 *
 * Probabilities are those of prediction by partial match with exclusion (Cleary and Witten 1984; escape method C, Moffat
 * 1990): of n positions that d of the candidates followed, a token that followed c of them has c / (n + d), and d / (n + d) is
 * left to shorter suffixes, for tokens not seen yet. Tokens beyond `max` count as positions alone. */
PLAIN int ngram_candidates(const struct ngram_index *index, const int32_t *text, const int32_t *tail, int count, int shortest,
                           int longest, int max, struct ngram_candidate *out)
{
    const int sizes = longest - shortest + 1;
    double left = 1;
    int found = 0;
    for (int n = longest < count ? longest : count; n >= shortest && found < max; n--) {
        int32_t next = ngram_position(index, text, tail, count, n);
        int first = found, positions = 0;
        for (int looked = 0; next && looked < NGRAM_POSITIONS; looked++, next = index->earlier[next * sizes + n - shortest]) {
            int same = 0;
            while (same < found && text[out[same].next] != text[next])
                same++;
            if (same < first)
                continue;
            positions++;
            if (same < found) {
                out[same].probability++;
            } else if (found < max) {
                out[found].next = next;
                out[found].n = n;
                out[found++].probability = 1;
            }
        }
        for (int at = first; at < found; at++)
            out[at].probability *= left / (positions + found - first);
        if (positions)
            left *= (double)(found - first) / (positions + found - first);
    }
    return found;
}

#endif
