/* The set of layer parts that a target skips when it drafts for itself: SWIFT (arXiv 2410.06916). Attention and feed-forward
 * are skipped independently; a skipped part adds nothing to the residual stream. The first and the last layer are never
 * skipped.
 *
 * The 2 (layers - 2) parts that can be skipped are numbered: first the attention of layers 1 .. layers - 2, then their
 * feed-forward. A skip file is such a set as JSON, found by a search for one model (its keys are in moe-profile(1)):
 *
 *     {"skip": 1,
 *      "model": {"name": "olmoe", "index": SHA-256, "source": SHA-256, "tokenizer": SHA-256, "layers": 16},
 *      "attention": [1, 3, 5], "ffn": [1, 4],
 *      "matchness": 0.86, "window": 50,
 *      "search": {"ratio": 0.45, "seed": "1", "texts": 4, "candidates": 400, "bayesian": 16, "kept": 9, "ended":
 *      "iterations"}}
 *
 * A skip file is valid for the model that it names and for every other file of the same weights, quantised or inflated:
 * those with the same source and tokenizer. */
#ifndef MOE_DRAFT_SKIP_FILE_H
#define MOE_DRAFT_SKIP_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/model/model.h"

struct skip_set {
    int layers;                                         /* of the model */
    uint8_t attention[LAYERS_MAX], ffn[LAYERS_MAX];     /* 1: skipped */
};

/* Describes how a set was found; stored in the file for information. */
struct skip_search_facts {
    double ratio;
    uint64_t seed;
    int texts, candidates, bayesian, kept;              /* candidates scored, those chosen by the Gaussian process, those
                                                         * better than all before */
    const char *ended;                                  /* why the search ended: one of skip_endings */
};
extern const char *const skip_endings[];        /* ends with NULL. "all": no other set of this size was left */

struct skip_found {
    double matchness;                                   /* 0 .. 1 */
    int window;                                         /* tokens of a text over which matchness was measured */
    struct skip_search_facts search;
};

/* Return the number of parts that can be skipped, and how many of them `ratio` (0 .. 1) means: (int)(2 (layers - 2) ratio). */
int skip_parts(int layers);
int skip_count(int layers, double ratio);
bool skip_part(const struct skip_set *set, int part);
void skip_part_set(struct skip_set *set, int part, bool left_out);

/* Makes SWIFT's first set: both parts of every second layer, 1, 3, 5, ... If the ratio means fewer parts, as many of these
 * layers, evenly spread; if it means more, even layers in addition, also evenly spread. If the number is odd, the last part
 * is an attention. (SWIFT itself begins with every second layer whatever the ratio, which there applies only to candidates.)
 * A set with no skipped part is an error. */
int skip_set_first(struct skip_set *out, int layers, double ratio, struct err *err);

/* Opens a set from `text`: a ratio (a number) or the name of a skip file, which must be valid for this model. */
int skip_set_open(struct skip_set *out, const char *text, const struct model_identity *model, struct err *err);

/* Reads a skip file. found may be NULL. */
int skip_file_read(struct skip_set *out, struct skip_found *found, const char *path, const struct model_identity *model,
                   struct err *err);
int skip_file_write(const char *path, const struct skip_set *set, const struct skip_found *found,
                    const struct model_identity *model, struct err *err);

#endif
