/* Training: batches drawn from a source, a step for each, and a checkpoint from which another process goes on to the same
 * bytes.
 *
 * Each epoch goes over all texts in an order of its own, which follows from seed and epoch alone; so does the noise, from seed,
 * step, row and column. A step can be made of several smaller batches, one after the other (gradient accumulation): memory is
 * then that of one of them, and the step is the same but for the rounding of sums. What else there is of a run is in its
 * checkpoint: the number of steps made, weights and moments.
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
    struct optimiser_settings optimiser;    /* steps: how many are made in all */
    int batch;                              /* texts a step */
    int micro;                              /* of these so many at once, whose gradients are added up; 0: all */
    int longest;                            /* tokens of a text that are taken */
    uint64_t seed;
    double noise;                           /* added to what a head reads: uniform in +-noise/2 * 512 / tokens of the text */
};

struct trainer;

struct train_report {
    int64_t step;
    double epoch;                           /* how often all texts were seen, this step included; 0: not known */
    struct losses losses;
    struct optimiser_report optimiser;
    int tokens;
};

struct trainer_setup {
    struct weights *weights;                /* these stay as long as the trainer; placed */
    struct network *network;
    struct train_source *source;
    struct head_states points;
    const struct train_settings *settings;
    struct share *share;                    /* NULL: this process is alone */
};

int trainer_open(struct trainer **out, const struct trainer_setup *setup, struct err *err);
void trainer_close(struct trainer **trainer);
int64_t trainer_steps(const struct trainer *trainer);           /* that were made */

/* Steps of an epoch over so many texts. */
int64_t train_epoch_steps(int64_t texts, int batch);
/* Which text is at `index` of an epoch; order: [texts] scratch. */
void train_order(int32_t *order, int64_t texts, uint64_t seed, int64_t epoch);

/* One step. 1; 0: a source of unknown length has ended. A loss or gradient that is no finite number is an error that names the
 * texts, and leaves the weights as they were. */
int trainer_step(struct trainer *trainer, struct train_report *report, struct err *err);

/* Of several processes: brings to process 0 what trainer_save writes, and from it to all what trainer_resume read. */
int trainer_gather(struct trainer *trainer, struct err *err);
int trainer_scatter(struct trainer *trainer, struct err *err);

/* ---- validation ---- */

/* The mean loss of texts that are not learnt from, in batches as steps have them, without noise. A text of which it is no
 * finite number is an error, as in a step. 1; 0: the stop was asked for (NULL: none); -1. Several processes read some of the
 * texts each, and cannot be stopped; all get the loss. */
int trainer_evaluate(struct trainer *trainer, const struct train_source *texts, const struct stop *stop, double *loss,
                     struct err *err);

/* What came of evaluations; a checkpoint has it, too. */
struct train_best {
    int64_t evaluated;                      /* steps that were made when the head was last judged; -1: it was not so far */
    int64_t step;                           /* the same when it was best; -1 */
    double loss;                            /* then; infinite */
};
const struct train_best *trainer_best(const struct trainer *trainer);
bool trainer_is_best(const struct trainer *trainer, double loss);       /* better than all before */
void trainer_evaluated(struct trainer *trainer, double loss);           /* counts it */

/* ---- checkpoints ---- */

/* Writes a checkpoint, whole or not at all; `recipe` is what the run was started with, in a line. */
int trainer_save(const struct trainer *trainer, const char *path, const char *recipe, struct err *err);
/* Goes on from one, that must have been made of the same head with the same recipe. */
int trainer_resume(struct trainer *trainer, const char *path, const char *recipe, struct err *err);

#endif
