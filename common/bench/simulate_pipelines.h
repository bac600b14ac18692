/* Reproduces figure 12 of MoE-SpAc (arXiv 2603.09983) by simulation: the same forward in several drafting systems, side by
 * side, with the activity of fast processor, slow processor and link layer by layer, and the time that each waits for the
 * others. Output is a table, JSON lines (one per span) or SVG, labelled simulated.
 *
 * The forward is the middle one of the routes. The drawing shows its middle layers and what happens shortly before; the
 * table covers the whole forward. */
#ifndef MOE_BENCH_SIMULATE_PIPELINES_H
#define MOE_BENCH_SIMULATE_PIPELINES_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/simulate_figure.h"

int simulate_pipelines(struct text *out, const struct simulation *simulation, enum simulated_form form, struct err *err);

#endif
