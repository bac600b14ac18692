/* A calibration: the acceptance estimators of a run, for the next run of the same model with the same drafters. A small JSON
 * file:
 *
 *     {"calibration": 1, "model": SHA-256,
 *      "drafters": {"ngram": {"seen": 310.5, "fits": [[...], ...], "corrections": [[...], ...]}, ...}}
 *
 * "fits" has a list for each regression and span of estimator.h: loss, weights, information row by row. "corrections" has a
 * list for each regression: offsets, their information, errors, their weights; files of older versions lack it. Errors are
 * ERR_INPUT, one line with the file's name; a calibration of another model is an error. */
#ifndef MOE_PREDICT_CALIBRATION_H
#define MOE_PREDICT_CALIBRATION_H

#include "common/base/err.h"
#include "common/predict/estimator.h"

struct calibration_entry {
    const char *drafter;                /* as given to --draft */
    struct estimator *estimator;
};

/* Replaces the estimators of those drafters that the file contains. A missing file changes nothing. model: digest of the
 * weights, "": unknown. */
int calibration_read(const char *path, const char *model, const struct calibration_entry *entry, int entries, struct err *err);

int calibration_write(const char *path, const char *model, const struct calibration_entry *entry, int entries, struct err *err);

#endif
