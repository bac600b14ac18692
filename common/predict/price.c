#include "common/predict/price.h"

#include <math.h>

static const double surprise_most = 0.4;

void price_init(struct price *price, double steepness, double uncertainty)
{
    *price = (struct price){.steepness = log(steepness), .ss = uncertainty * uncertainty, .ll = 1, .noise = 0.02,
                            .drift_level = 2e-4, .drift_steepness = 1e-4, .most = fmax(0.25, uncertainty * uncertainty)};
}

void price_observe(struct price *price, double growth, double seconds)
{
    if (!(seconds > 0 && isfinite(seconds) && growth >= 0))
        return;
    double steep = exp(price->steepness) * growth, by_steepness = steep / (1 + steep);      /* d log price / d steepness */
    if (!price->begun) {
        price->begun = true;
        price->level = log(seconds) - log1p(steep);
        price->ll = price->noise;
    }
    price->ll += price->drift_level;
    price->ss = fmin(price->ss + price->drift_steepness, price->most);
    double surprise = log(seconds) - price->level - log1p(steep);
    surprise = fmax(-surprise_most, fmin(surprise_most, surprise));         /* one slow iteration is not a slow machine */
    double l = price->ll + by_steepness * price->ls, s = price->ls + by_steepness * price->ss;
    double variance = l + by_steepness * s + price->noise;
    price->level += l / variance * surprise;
    price->steepness += s / variance * surprise;
    price->ll -= l * l / variance;
    price->ls -= l * s / variance;
    price->ss -= s * s / variance;
}

double price_level(const struct price *price) { return price->begun ? exp(price->level) : 0; }
double price_steepness(const struct price *price) { return exp(price->steepness); }
double price_doubt(const struct price *price) { return sqrt(fmax(price->ss, 0)); }
