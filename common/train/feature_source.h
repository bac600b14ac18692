/* Reads a feature stream text by text, once as it comes, from a file or through a pipe,
 *
 *     while ((more = feature_source_next(source, &text, err)) > 0)
 *         ... text->tokens, text->mask, text->states ...
 *
 * or in any order and as often as wanted:
 *
 *     if (feature_source_index(source, &texts, err)) ...           reads all of it once, and checks it
 *     if (feature_source_read(source, order[i], &text, err)) ...
 *
 * Memory is one text's and one record's. What is not of the target, lacks a state, has states that are no numbers, a text that
 * is not whole or of which nothing is to be learnt, or a stream that is damaged or cut off is ERR_INPUT, in one line that names
 * the stream and, where there is one, the text. Only after the answer 0 was all of the stream right. */
#ifndef MOE_TRAIN_FEATURE_SOURCE_H
#define MOE_TRAIN_FEATURE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/text.h"
#include "common/stream/header.h"

struct feature_source;

enum feature_part { FEATURES_ALL, FEATURES_TRAINING, FEATURES_VALIDATION };

struct feature_source_setup {
    const char *path;                   /* "-": standard input */
    const struct stream_model *target;  /* borrowed; the model that the head is trained for */
    bool force;                         /* another tokenizer or vocabulary is a note */
    int states;
    const int *state;                   /* [states] borrowed; in the order in which they are wanted, as head.h numbers them; the
                                         * stream may have more */
    int cut;                            /* only the first so many tokens of a text; 0: all */
    enum feature_part part;             /* the others are passed over */
    const char *folder;                 /* what is no file is first copied into a nameless one here, so that it can be read in
                                         * any order; NULL: it is read as it comes */
};

/* Valid until the next call. */
struct feature_text {
    int64_t ordinal;                    /* 0, 1, ... of all texts of the stream, also those passed over */
    const char *id, *task;              /* NULL: it has none */
    int prompt_tokens;                  /* in front of the first answer */
    int n;                              /* tokens, as far as they are not cut; 1 or more */
    bool validation;
    const int32_t *tokens;              /* [n] */
    const uint8_t *mask;                /* [n] 1: to be learnt */
    int learnt;                         /* how many these are; 0 only of a text that was cut before them */
    const float *states;                /* [states][n][hidden] */
};

/* Reads the header. What there is to say about it, one line each, is appended to *note. */
int feature_source_open(struct feature_source **out, const struct feature_source_setup *setup, struct text *note,
                        struct err *err);
const struct header *feature_source_header(const struct feature_source *source);
const struct feature_source_setup *feature_source_setup_of(const struct feature_source *source);

/* 1: *text is the next one; 0: the stream ended, whole; -1: err says why. */
int feature_source_next(struct feature_source *source, const struct feature_text **text, struct err *err);

/* What was read so far, by the tokens and masks of its texts of the part, as far as they are not cut, and by which of them are
 * for validation: the same texts in the same order have the same digest, whatever the states are written in. */
struct digest128 feature_source_digest(const struct feature_source *source);

/* Reads to the end, and answers how many texts there are of the part that have something to be learnt, those for validation
 * last; before the first feature_source_next. Takes 32 bytes of memory a text. An error where the stream can be read but
 * once. */
int feature_source_index(struct feature_source *source, int64_t *texts, struct err *err);
int64_t feature_source_validation(const struct feature_source *source);         /* how many of these are for validation */

/* Were states that it has read so far rounded to bf16? */
bool feature_source_rounded(const struct feature_source *source);

/* How many it left out because they were cut before their first answer. */
int64_t feature_source_bare(const struct feature_source *source);

/* Of these, number `text` from 0 on. */
int feature_source_read(struct feature_source *source, int64_t text, const struct feature_text **out, struct err *err);
/* The same without its states: NULL. */
int feature_source_outline(struct feature_source *source, int64_t text, const struct feature_text **out, struct err *err);

void feature_source_close(struct feature_source **source);

#endif
