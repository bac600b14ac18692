/* Training texts, batches of them, and the interface of the sources that deliver them.
 *
 * A batch stores its texts one after the other without padding: rows offset[i] .. offset[i + 1] - 1 are the tokens of text
 * i. */
#ifndef MOE_TRAIN_BATCH_H
#define MOE_TRAIN_BATCH_H

#include <stdint.h>

#include "common/model/head_states.h"

/* Max states per token: those that head_states_of names. The state after the final norm is the last one. */
enum { POINTS_MAX = HEAD_STATES_MAX + 1 };

/* One text. The source owns the arrays; they are valid until its next read. */
struct train_text {
    int tokens;
    const int32_t *token;           /* [tokens] */
    const uint8_t *mask;            /* [tokens] 1: the token belongs to an answer */
    const float *state[POINTS_MAX]; /* [tokens][hidden of the target] at each of the points */
    const char *name;               /* for messages: "file:line", or "file: text 3" */
};

/* Divisors of the losses: counts over all texts of a step, of which a batch may be only a part. Index s counts only tokens with
 * at least s tokens of their text before them, for losses that look s rows ahead. */
enum { SHIFTS_MAX = HEAD_HEADS_MAX + 2 };
struct train_whole {
    int texts, longest;             /* longest: tokens of the longest text */
    int64_t answered[SHIFTS_MAX];   /* answer tokens */
    int64_t judged[SHIFTS_MAX];     /* answer tokens without the last token of each text */
};
/* Adds one text's counts; mask: [tokens] 1 for answer tokens. */
void train_whole_add(struct train_whole *whole, const uint8_t *mask, int tokens);

/* A source of texts: a table of functions and its state. The owner of the struct closes it with train_source_close. */
struct train_source {
    void *self;
    int64_t texts;            /* number of texts, readable in any order; -1: unknown number, each text is read once, in order */
    /* Reads text `index`, counted from 0, and truncates it to `longest` tokens. Returns 1; 0 after the last text (only if texts
     * is -1); -1 with err set. */
    int (*read)(void *self, int64_t index, int longest, struct train_text *out, struct err *err);
    /* Reads the same text without its states; read() can still read it afterwards. NULL: the source can read a text only
     * once. */
    int (*outline)(void *self, int64_t index, int longest, struct train_text *out, struct err *err);
    void (*close)(void *self);      /* frees self */
};
void train_source_close(struct train_source *source);

struct train_batch {
    int texts, rows, longest;       /* longest: tokens in the longest text */
    int *offset;                    /* [texts + 1] */
    int32_t *token;                 /* [rows] */
    uint8_t *mask;
    float *state[POINTS_MAX];       /* [rows][hidden] states that the head reads */
    float *clean;        /* [rows][hidden] last of `state` without noise, the reference of losses; NULL: `state` has no noise */
    struct train_whole own;         /* counts of these texts */
    const struct train_whole *whole;        /* counts of the whole step if it has other texts, too; NULL: use `own` */
    struct head_states points;
    int hidden;
    size_t text_room, row_room;     /* capacities of the arrays, in texts and in rows */
};

/* Empties the batch and keeps its memory. */
void train_batch_clear(struct train_batch *batch, const struct head_states *points, int hidden);
/* Appends a copy of `text`. */
int train_batch_add(struct train_batch *batch, const struct train_text *text, struct err *err);
void train_batch_free(struct train_batch *batch);

#endif
