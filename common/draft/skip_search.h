/* SWIFT's search (arXiv 2410.06916 and its code) for the layer parts that a target may skip when it drafts for itself. Each
 * candidate skips as many parts as the first set (skip_file.h). The caller scores candidates by MATCHNESS: the share of
 * tokens in a window of a text that equal the most likely token of the target without these parts, which reads the window in
 * one forward.
 *
 *     while ((rc = skip_search_next(search, &candidate, err)) > 0)
 *         ... score ... skip_search_score(search, score, err)
 *
 * Candidates are drawn at random. Each `bayes_interval`-th one is chosen by a Gaussian process (gaussian.h) fitted to all
 * scored sets, random ones included, with one coordinate per part, 1 if skipped: it is made of the largest coordinates of
 * the point in the box [0, 1]^parts with the largest mean + kappa deviation. A candidate with a higher score than all before
 * is kept. The search ends when a score exceeds max_score, after `patience` candidates in a row without improvement, or
 * after `iterations` candidates.
 *
 * Differences from SWIFT: the first set is scored, too, and stays until a better one is found (in SWIFT any candidate
 * replaces it). Random numbers are Philox's, so candidates differ from those of Python's generator with the same seed.
 * bayes_opt looks for the best point among 10,000 random ones and by L-BFGS-B from 10 more; here it is 1,000, and projected
 * gradient ascent. The process learns the scored set, not the point in the box that led to it. With `fixed_texts` the score
 * of a set never changes, and no set is tried twice. */
#ifndef MOE_DRAFT_SKIP_SEARCH_H
#define MOE_DRAFT_SKIP_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/draft/skip_file.h"

struct skip_search_setup {
    uint64_t seed;
    int bayes_interval;             /* 0: all candidates are random */
    double max_score;
    int patience, iterations;
    bool fixed_texts;
};

/* SWIFT's settings: an interval of 25, 0.93, 300, 1000; seed 1. Its window is 50 tokens. */
#define SKIP_SEARCH_SWIFT {.seed = 1, .bayes_interval = 25, .max_score = 0.93, .patience = 300, .iterations = 1000}
enum { SKIP_WINDOW = 50 };

struct skip_search;

/* Opens a search that begins with the set `first`, which also fixes the number of skipped parts. */
int skip_search_open(struct skip_search **out, const struct skip_search_setup *setup, const struct skip_set *first,
                     struct err *err);
void skip_search_close(struct skip_search **search);

/* Returns 1 and a candidate to be scored, 0 if the search has ended, -1 on failure. */
int skip_search_next(struct skip_search *search, struct skip_set *candidate, struct err *err);
int skip_search_score(struct skip_search *search, double matchness, struct err *err);

/* Returns the best set so far, `first` before any score. */
const struct skip_set *skip_search_best(const struct skip_search *search);

/* Returns the best matchness and the counters so far. `ended` is NULL while the search runs. */
void skip_search_result(const struct skip_search *search, struct skip_found *out);

#endif
