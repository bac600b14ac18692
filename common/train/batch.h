/* Texts as training takes them, and where they come from.
 *
 * A batch has its texts one after the other without padding: rows offset[i] .. offset[i + 1] - 1 are the tokens of text i. */
#ifndef MOE_TRAIN_BATCH_H
#define MOE_TRAIN_BATCH_H

#include <stdint.h>

#include "common/model/head.h"

/* Which of the target's states are wanted: those of the head, and after the final norm, which is the last. */
enum { POINTS_MAX = HEAD_STATES_MAX + 1 };
struct train_points {
    int count;
    int point[POINTS_MAX];          /* as head_params.state */
};
void train_points_of(struct train_points *out, const struct head_params *head);

/* One text; arrays are its source's, until the next one. */
struct train_text {
    int tokens;
    const int32_t *token;           /* [tokens] */
    const uint8_t *mask;            /* [tokens] 1: of the answer */
    const float *state[POINTS_MAX]; /* [tokens][hidden of the target], of each of the points */
    const char *name;               /* for messages: "file:line" */
};

/* Where texts come from. */
struct train_source {
    void *self;
    int64_t texts;                  /* how many, to be read in any order; -1: not known, each is read once, in order */
    /* Text `index` from 0 on, of at most `longest` tokens; a longer one is cut. 1; 0: there is none any more (texts -1 only);
     * -1 with err set. */
    int (*read)(void *self, int64_t index, int longest, struct train_text *out, struct err *err);
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
    int points, hidden;
    size_t text_room, row_room;     /* of the arrays */
};

void train_batch_clear(struct train_batch *batch, const struct train_points *points, int hidden);     /* keeps memory */
int train_batch_add(struct train_batch *batch, const struct train_text *text, struct err *err);
void train_batch_free(struct train_batch *batch);

#endif
