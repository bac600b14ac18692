/* Texts as training takes them, and where they come from.
 *
 * A batch has its texts one after the other without padding: rows offset[i] .. offset[i + 1] - 1 are the tokens of text i. */
#ifndef MOE_TRAIN_BATCH_H
#define MOE_TRAIN_BATCH_H

#include <stdint.h>

#include "common/model/head_states.h"

/* Of the target's states those that head_states_of names; that after the final norm is the last. */
enum { POINTS_MAX = HEAD_STATES_MAX + 1 };

/* One text; arrays are its source's, until the next one. */
struct train_text {
    int tokens;
    const int32_t *token;           /* [tokens] */
    const uint8_t *mask;            /* [tokens] 1: of the answer */
    const float *state[POINTS_MAX]; /* [tokens][hidden of the target], of each of the points */
    const char *name;               /* for messages: "file:line" */
};

/* What losses are divided by: what there is in all texts of a step, of which a batch may have but a part. */
enum { SHIFTS_MAX = HEAD_HEADS_MAX + 2 };
struct train_whole {
    int texts, longest;             /* longest: tokens of the longest text */
    int64_t answered[SHIFTS_MAX];   /* tokens of answers that have so many tokens of their text, or more, in front of them */
    int64_t judged[SHIFTS_MAX];     /* the same without last tokens of texts */
};
void train_whole_add(struct train_whole *whole, const uint8_t *mask, int tokens);

/* Where texts come from. */
struct train_source {
    void *self;
    int64_t texts;                  /* how many, to be read in any order; -1: not known, each is read once, in order */
    /* Text `index` from 0 on, of at most `longest` tokens; a longer one is cut. 1; 0: there is none any more (texts -1 only);
     * -1 with err set. */
    int (*read)(void *self, int64_t index, int longest, struct train_text *out, struct err *err);
    /* The same text without its states, to be read once more. NULL: that cannot be. */
    int (*outline)(void *self, int64_t index, int longest, struct train_text *out, struct err *err);
    void (*close)(void *self);      /* frees self */
};
void train_source_close(struct train_source *source);

struct train_batch {
    int texts, rows, longest;       /* longest: tokens of the longest text */
    int *offset;                    /* [texts + 1] */
    int32_t *token;                 /* [rows] */
    uint8_t *mask;
    float *state[POINTS_MAX];       /* [rows][hidden] what heads read */
    float *clean;                   /* the last of them without noise, which heads are judged by; NULL: the same */
    struct train_whole own;         /* of these texts */
    const struct train_whole *whole;        /* of the step, if it has other texts, too; NULL: own */
    struct head_states points;
    int hidden;
    size_t text_room, row_room;     /* of the arrays */
};

void train_batch_clear(struct train_batch *batch, const struct head_states *points, int hidden);     /* keeps memory */
int train_batch_add(struct train_batch *batch, const struct train_text *text, struct err *err);
void train_batch_free(struct train_batch *batch);

#endif
