/* Figure 12 of MoE-SpAc (arXiv 2603.09983), had again by simulation: the same forward in several systems that draft, side by
 * side. What the fast processor, the slow one and the link are at, layer by layer, and how long each waits for the others. As a
 * table, JSON lines (a span each) or SVG, labelled simulated.
 *
 * The forward is the middle one of the routes. Drawn are its middle layers, with what happens shortly before; the table is
 * about all of it. */
#ifndef MOE_BENCH_SIMULATE_PIPELINES_H
#define MOE_BENCH_SIMULATE_PIPELINES_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/simulate_figure.h"

int simulate_pipelines(struct text *out, const struct simulation *simulation, enum simulated_form form, struct err *err);

#endif
