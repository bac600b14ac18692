#include "common/predict/cost_model.h"

#include <math.h>

static const double surprise_max = 0.4;

void cost_model_init(struct cost_model *model, double steepness, double uncertainty)
{
    *model = (struct cost_model){.steepness = log(steepness), .ss = uncertainty * uncertainty, .ll = 1, .noise = 0.02,
                            .drift_level = 2e-4, .drift_steepness = 1e-4, .max = fmax(0.25, uncertainty * uncertainty)};
}

void cost_model_observe(struct cost_model *model, double growth, double seconds)
{
    if (!(seconds > 0 && isfinite(seconds) && growth >= 0))
        return;
    double steep = exp(model->steepness) * growth, by_steepness = steep / (1 + steep);      /* d log model / d steepness */
    if (!model->begun) {
        model->begun = true;
        model->level = log(seconds) - log1p(steep);
        model->ll = model->noise;
    }
    model->ll += model->drift_level;
    model->ss = fmin(model->ss + model->drift_steepness, model->max);
    double surprise = log(seconds) - model->level - log1p(steep);
    surprise = fmax(-surprise_max, fmin(surprise_max, surprise));         /* one slow iteration is not a slow machine */
    double l = model->ll + by_steepness * model->ls, s = model->ls + by_steepness * model->ss;
    double variance = l + by_steepness * s + model->noise;
    model->level += l / variance * surprise;
    model->steepness += s / variance * surprise;
    model->ll -= l * l / variance;
    model->ls -= l * s / variance;
    model->ss -= s * s / variance;
}

double cost_model_level(const struct cost_model *model) { return model->begun ? exp(model->level) : 0; }
double cost_model_steepness(const struct cost_model *model) { return exp(model->steepness); }
double cost_model_doubt(const struct cost_model *model) { return sqrt(fmax(model->ss, 0)); }
