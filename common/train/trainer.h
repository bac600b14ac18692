/* Training: batches from a source, one step per batch, and checkpoints from which another process continues to the same bytes.
 *
 * Each epoch reads all texts in its own order, which depends on seed and epoch only; the noise depends on seed, step, row and
 * column only. A step may consist of several smaller batches (gradient accumulation): it takes the memory of one of them, and
 * differs only by the rounding of sums. The remaining state of a run is in its checkpoint: the number of steps, weights and
 * moments.
 *
 * Several processes can make a step together (share.h), each some of its batches. They call trainer_step, trainer_gather and
 * trainer_scatter at the same time; a fault of one ends all (ranks.h). */
#ifndef MOE_TRAIN_TRAINER_H
#define MOE_TRAIN_TRAINER_H

#include "common/base/stop.h"
#include "common/train/network.h"
#include "common/train/optimiser.h"
#include "common/train/share.h"

struct train_settings {
    struct optimiser_settings optimiser;    /* `steps` is the number of steps of the whole training */
    int batch;                              /* texts per step */
    int micro;                              /* texts per micro-batch, whose gradients are added up; 0: one batch */
    int longest;                            /* max tokens of a text; the rest is ignored */
    uint64_t seed;
    double noise;             /* noise added to the states that a head reads: uniform in +-noise/2 * 512 / tokens of the text */
};

struct trainer;

struct train_report {
    int64_t step;
    double epoch;                           /* epochs so far, including this step; 0: unknown */
    struct losses losses;
    struct optimiser_report optimiser;
    int tokens;
};

struct trainer_setup {
    struct weights *weights;                /* placed; all pointers of this struct must outlive the trainer */
    struct network *network;
    struct train_source *source;
    struct head_states points;
    const struct train_settings *settings;
    struct share *share;                    /* NULL: this process is alone */
};

int trainer_open(struct trainer **out, const struct trainer_setup *setup, struct err *err);
void trainer_close(struct trainer **trainer);
int64_t trainer_steps(const struct trainer *trainer);           /* Returns the number of steps made so far. */

/* Returns the steps of an epoch over this many texts. */
int64_t train_epoch_steps(int64_t texts, int batch);
/* Fills order: [texts] with the text numbers of an epoch, a permutation that depends on seed and epoch only. */
void train_order(int32_t *order, int64_t texts, uint64_t seed, int64_t epoch);

/* Makes one step. Returns 1; 0 if a source of unknown length has ended. A loss or gradient that is not finite is an error that
 * names the texts and leaves the weights unchanged. */
int trainer_step(struct trainer *trainer, struct train_report *report, struct err *err);

/* With several processes: collects the data of trainer_save in process 0, and distributes the data of trainer_resume. */
int trainer_gather(struct trainer *trainer, struct err *err);
int trainer_scatter(struct trainer *trainer, struct err *err);

/* ---- validation ---- */

/* Computes the mean loss of validation texts, in batches like those of steps, without noise. A loss that is not finite is an
 * error that names the text. Returns 1; 0 if a stop was requested (NULL: never); -1. With several processes each reads some of
 * the texts, all receive the loss, and a stop is not possible. */
int trainer_evaluate(struct trainer *trainer, const struct train_source *texts, const struct stop *stop, double *loss,
                     struct err *err);

/* The last and the best evaluation; checkpoints store them, too. */
struct train_best {
    int64_t evaluated;                      /* number of steps before the last evaluation; -1: none so far */
    int64_t step;                           /* number of steps before the best evaluation; -1: none */
    double loss;                            /* loss of the best evaluation; infinite: none */
};
const struct train_best *trainer_best(const struct trainer *trainer);
bool trainer_is_best(const struct trainer *trainer, double loss);       /* Returns whether `loss` is lower than all before. */
void trainer_evaluated(struct trainer *trainer, double loss);           /* Records an evaluation. */

/* ---- checkpoints ---- */

/* Writes a checkpoint completely or not at all; `recipe` is the line of recipe.h. */
int trainer_save(const struct trainer *trainer, const char *path, const char *recipe, struct err *err);
/* Continues from a checkpoint, which must have the same head and recipe. */
int trainer_resume(struct trainer *trainer, const char *path, const char *recipe, struct err *err);

#endif
