/* SWIFT's search (arXiv 2410.06916 and its code) for what a target may leave out when it drafts for itself: candidates leave
 * out as many parts as the first set does (skip_file.h). Someone scores each: MATCHNESS is the share of a window of a text's
 * tokens at which the target without these parts, reading all of them in one forward, has its most likely token next in the
 * text.
 *
 *     while ((rc = skip_search_next(search, &candidate, err)) > 0)
 *         ... score ... skip_search_score(search, score, err)
 *
 * Each candidate is drawn at random, but each `bayes_interval`-th is the one of which most is expected by a Gaussian process
 * (gaussian.h) over all that was scored, random ones too, a part being a coordinate, 1 when left out; the point of the box
 * [0, 1]^parts with the largest mean + kappa deviation; the parts of its largest coordinates. A candidate that scores higher
 * than all before is kept. The search ends when one scores more than max_score, when `patience` in a row were no better, or
 * after `iterations` of them.
 *
 * Where this is not as SWIFT has it: the first set is scored, too, and stays until a better one is found (there any candidate
 * replaces it). Random numbers are Philox's, so candidates are not those of Python's generator with the same seed. bayes_opt
 * looks for the best point from 10,000 random ones and by L-BFGS-B from 10 more; here it is 1,000 and projected ascent along
 * the gradient. What the process learns is the set that was scored, not the point in the box that led to it. With
 * `fixed_texts` a set's score never changes, and none is given twice. */
#ifndef MOE_DRAFT_SKIP_SEARCH_H
#define MOE_DRAFT_SKIP_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/draft/skip_file.h"

struct skip_search_setup {
    uint64_t seed;
    int bayes_interval;             /* 0: all at random */
    double max_score;
    int patience, iterations;
    bool fixed_texts;
};

/* SWIFT's settings: 25, 0.93, 300, 1000; seed 1. Its window is 50 tokens. */
#define SKIP_SEARCH_SWIFT {.seed = 1, .bayes_interval = 25, .max_score = 0.93, .patience = 300, .iterations = 1000}
enum { SKIP_WINDOW = 50 };

struct skip_search;

int skip_search_open(struct skip_search **out, const struct skip_search_setup *setup, const struct skip_set *first,
                     struct err *err);
void skip_search_close(struct skip_search **search);

/* 1: *candidate is to be scored. 0: the search has ended. */
int skip_search_next(struct skip_search *search, struct skip_set *candidate, struct err *err);
int skip_search_score(struct skip_search *search, double matchness, struct err *err);

const struct skip_set *skip_search_best(const struct skip_search *search);

/* What is known of it so far: matchness and what it counted. `ended` is NULL while it has not. */
void skip_search_result(const struct skip_search *search, struct skip_found *out);

#endif
