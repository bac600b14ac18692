/* Prompt lookup: finds where the last tokens of a text occurred before, and proposes the tokens that followed. Source: Saxena,
 * "Prompt lookup decoding", 2023; here the longest suffix is used, at its most recent occurrence.
 *
 * With an index the cost of a lookup does not depend on the length of the text: an open hash table stores the latest occurrence
 * of each n-gram, and each occurrence has a link to the one before. An n-gram enters the index when the token after it is
 * appended, so every occurrence found has a continuation. */
#ifndef MOE_KERNELS_PLAIN_NGRAM_H
#define MOE_KERNELS_PLAIN_NGRAM_H

#include "kernels/plain/plain.h"

enum { NGRAM_LONGEST = 16, NGRAM_POSITIONS = 64 };

/* next: position in the text of the token after the n-gram; n: length of the n-gram. next 0: the slot is empty. */
struct ngram_slot { int32_t next, n; };

struct ngram_index {
    struct ngram_slot *slot;        /* [slots], zero-initialised */
    uint32_t slots;                 /* a power of two; the caller keeps at least half of the slots empty */
    uint32_t used;
    int32_t *earlier;           /* [text][longest - shortest + 1]: `next` of the n-gram's occurrence before this one; 0: none */
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

/* Returns the slot of the n-gram gram[0 .. n), or the empty slot where it would be inserted. */
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

/* Enters the n-grams of shortest .. longest tokens that end before text[last], the token appended last. */
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

/* Returns the position of the token after the latest occurrence of the last n of tail[0 .. count); 0: none. */
PLAIN int32_t ngram_position(const struct ngram_index *index, const int32_t *text, const int32_t *tail, int count, int n)
{
    return index->slot[ngram_find(index, text, tail + count - n, n)].next;
}

/* Returns the position of the token after the latest occurrence of the longest known suffix of tail[0 .. count): the first of
 * ngram_candidates, without its probability. 0: no suffix is known. */
PLAIN int32_t ngram_latest(const struct ngram_index *index, const int32_t *text, const int32_t *tail, int count, int shortest,
                           int longest)
{
    int32_t next = 0;
    for (int n = longest < count ? longest : count; n >= shortest && !next; n--)
        next = ngram_position(index, text, tail, count, n);
    return next;
}

/* Returns the token `at` positions after text[next]. A continuation that reaches the end of the text continues at text[next]
 * again, as if the text repeated itself. */
PLAIN int32_t ngram_continued(const int32_t *text, int length, int32_t next, int at)
{
    return text[next + at % (length - next)];
}

/* A candidate for the next token: text[next], the length of the suffix that it followed, and its probability. */
struct ngram_candidate {
    int32_t next, n;
    double probability;
};

/* Lists up to `max` distinct candidates for the token after tail[0 .. count): first the tokens that followed the longest known
 * suffix, most recent occurrence first, then those of shorter suffixes. Considers only the NGRAM_POSITIONS most recent
 * occurrences of a suffix, which bounds the cost. Returns the number of candidates.
 *
 * Probabilities are those of prediction by partial match with exclusion (Cleary and Witten 1984; escape method C, Moffat 1990):
 * if n occurrences were followed by d distinct candidates, a token that followed c of them gets c / (n + d), and d / (n + d) is
 * left for tokens not seen so far, from shorter suffixes. Tokens beyond `max` count as occurrences only. */
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
