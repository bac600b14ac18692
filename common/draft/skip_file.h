/* Which parts of its layers a target leaves out when it drafts for itself: SWIFT (arXiv 2410.06916). Attention and
 * feed-forward are left out independently, each then adds nothing to the residual stream. Layer 0 and the last one stay whole.
 *
 * The parts that can be left out, 2 (layers - 2), have numbers: first the attention of layers 1 .. layers - 2, then their
 * feed-forward. A skip file is such a set as JSON, found by a search for one model (man moe-profile has its keys):
 *
 *     {"skip": 1,
 *      "model": {"name": "olmoe", "index": SHA-256, "source": SHA-256, "tokenizer": SHA-256, "layers": 16},
 *      "attention": [1, 3, 5], "ffn": [1, 4],
 *      "matchness": 0.86, "window": 50,
 *      "search": {"ratio": 0.45, "seed": "1", "texts": 4, "candidates": 400, "bayesian": 16, "kept": 9, "ended": "iterations"}}
 *
 * It may be used with the model that it names and with every other file of the same weights, quantised or inflated:
 * those with the same source and tokenizer. */
#ifndef MOE_DRAFT_SKIP_FILE_H
#define MOE_DRAFT_SKIP_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/model/model.h"

struct skip_set {
    int layers;                                         /* of the model */
    uint8_t attention[LAYERS_MAX], ffn[LAYERS_MAX];     /* 1: left out */
};

/* How a set was found; all of it is in the file, for people. */
struct skip_search_facts {
    double ratio;
    uint64_t seed;
    int texts, candidates, bayesian, kept;              /* candidates scored; those by the Gaussian process; better ones */
    const char *ended;                                  /* what ended the search: one of skip_endings, NULL after the last */
};
extern const char *const skip_endings[];        /* "all": there was no other set of so many parts */

struct skip_found {
    double matchness;                                   /* 0 .. 1 */
    int window;                                         /* tokens of a text that it was taken over */
    struct skip_search_facts search;
};

/* How many parts `ratio` of 0 .. 1 means: (int)(2 (layers - 2) ratio). */
int skip_parts(int layers);
int skip_count(int layers, double ratio);
bool skip_part(const struct skip_set *set, int part);
void skip_part_set(struct skip_set *set, int part, bool left_out);

/* SWIFT's first choice: both parts of every second layer, 1, 3, 5, ... Where the ratio means fewer parts, it is as many of
 * these layers, evenly spread; where it means more, even layers besides, evenly spread, too. Of an odd number the last part is
 * an attention. (SWIFT itself begins with every second layer whatever the ratio, which then holds for candidates alone.) It is
 * an error when nothing would be left out. */
int skip_set_first(struct skip_set *out, int layers, double ratio, struct err *err);

/* `text` is a ratio (a number) or the name of a skip file, which must be one for this model. */
int skip_set_open(struct skip_set *out, const char *text, const struct model_identity *model, struct err *err);

/* found may be NULL. */
int skip_file_read(struct skip_set *out, struct skip_found *found, const char *path, const struct model_identity *model,
                   struct err *err);
int skip_file_write(const char *path, const struct skip_set *set, const struct skip_found *found,
                    const struct model_identity *model, struct err *err);

#endif
