/* Reads a feature stream (the target's hidden states for texts) text by text. Either once in stream order, from a file or a
 * pipe:
 *
 *     while ((more = feature_source_next(source, &text, err)) > 0)
 *         ... text->tokens, text->mask, text->states ...
 *
 * or in any order, any number of times:
 *
 *     if (feature_source_index(source, &texts, err)) ...           reads and checks the whole stream once
 *     if (feature_source_read(source, order[i], &text, err)) ...
 *
 * Memory: one text and one record. These faults are ERR_INPUT, in one line that names the stream and, if known, the text: the
 * stream belongs to another target, is damaged or truncated; a state is missing or not finite; a text is incomplete or has no
 * token to learn. The stream is known to be correct as a whole only after feature_source_next has returned 0. */
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
    const struct stream_model *target;  /* borrowed; the target that the head is trained for */
    bool force;                         /* accept another tokenizer or vocabulary, with a note */
    int states;
    const int *state;                   /* [states] borrowed; state numbers as in model/head.h, in the order of
                                         * feature_text.states; the stream may contain more */
    int cut;                            /* max tokens per text, the rest is ignored; 0: no limit */
    enum feature_part part;             /* texts of other parts are skipped */
    const char *folder;                 /* folder for an unnamed copy of input that is not a regular file, so that it can be
                                         * read in any order; NULL: no copy, such input is read once */
};

/* One text; valid until the next call. */
struct feature_text {
    int64_t ordinal;                    /* number of the text in the stream, from 0; skipped texts count, too */
    const char *id, *task;              /* NULL: the text has none */
    int prompt_tokens;                  /* tokens before the first answer */
    int n;                              /* tokens after truncation to `cut`; at least 1 */
    bool validation;
    const int32_t *tokens;              /* [n] */
    const uint8_t *mask;                /* [n] 1: a token to learn */
    int learnt;                         /* number of ones in mask; 0 only if the text was truncated before its first answer */
    const float *states;                /* [states][n][hidden] */
};

/* Opens the stream and reads its header. Appends remarks about the header to *note, one line each. */
int feature_source_open(struct feature_source **out, const struct feature_source_setup *setup, struct text *note,
                        struct err *err);
const struct feature_source_setup *feature_source_setup_of(const struct feature_source *source);

/* Reads the next text. Returns 1 with *text set; 0 at the end of a complete stream; -1 with err set. */
int feature_source_next(struct feature_source *source, const struct feature_text **text, struct err *err);

/* Returns a digest of the texts read so far: tokens and masks of the selected part, after truncation, and which texts are for
 * validation. The same texts in the same order have the same digest, whatever number format their states have. */
struct digest128 feature_source_digest(const struct feature_source *source);

/* Reads the stream to its end and sets *texts to the number of texts of the part with a token to learn; validation texts get
 * the highest numbers. Must be called before the first feature_source_next. Takes 32 bytes of memory per text. Fails if the
 * stream can be read only once. */
int feature_source_index(struct feature_source *source, int64_t *texts, struct err *err);
int64_t feature_source_validation(const struct feature_source *source);         /* number of validation texts among them */

/* Returns whether any state read so far was stored as bf16. */
bool feature_source_rounded(const struct feature_source *source);

/* Returns how many texts feature_source_index left out because they were truncated before their first answer. */
int64_t feature_source_bare(const struct feature_source *source);

/* Reads text number `text`, counted from 0, in the numbering of feature_source_index. */
int feature_source_read(struct feature_source *source, int64_t text, const struct feature_text **out, struct err *err);
/* Reads the same text without its states: text->states is NULL. */
int feature_source_outline(struct feature_source *source, int64_t text, const struct feature_text **out, struct err *err);

void feature_source_close(struct feature_source **source);

#endif
