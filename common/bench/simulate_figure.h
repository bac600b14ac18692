/* Reproduces the figures and tables of MoE-SpAc (arXiv 2603.09983) by simulation, as tables, JSON lines or SVG, all labelled
 * simulated. Machine, model and routes come from the caller; the figure determines what is varied.
 *
 *   ablation     table 4: tokens/s of utility, and of utility without each of its six parts
 *   hot-or-cold  figure 4: share of the last layer's experts correctly predicted as needed or not, forward after forward
 *   cached       figure 5, left: tokens/s by the share of experts in fast memory
 *   lengths      figure 5, middle: tokens/s by the length of answers; synthetic routes only
 *   levels       figure 5, right: tokens/s by K, the highest level
 *   memory       figure 6: fast memory for a draft model or for more experts
 *   shares       figure 9: the experts that tau assigns to each processor, and how often experts of each level are needed
 *   pipelines    figure 12: activity of processors and link during one forward (simulate_pipelines.h)
 *
 * Figures 7 and 8 concern routes alone: moe-coact reuse and signal. Tables 2 and 3 are the standard output, for the machines
 * of tests/bench/machines. */
#ifndef MOE_BENCH_SIMULATE_FIGURE_H
#define MOE_BENCH_SIMULATE_FIGURE_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/simulate.h"

enum simulated_figure {
    SIMULATED_NONE, SIMULATED_ABLATION, SIMULATED_HOT_OR_COLD, SIMULATED_CACHED, SIMULATED_LENGTHS, SIMULATED_LEVELS,
    SIMULATED_MEMORY, SIMULATED_SHARES, SIMULATED_PIPELINES
};
extern const char *const simulated_figures[];           /* names by kind, "none" first; ends with NULL */

enum simulated_form { SIMULATED_TEXT, SIMULATED_MARKDOWN, SIMULATED_JSON, SIMULATED_SVG };

/* Appends one line that says what was simulated. */
int simulate_figure_note(struct text *out, const struct simulation *simulation, struct err *err);

/* Writes a figure. texts: setup of synthetic routes; NULL: the routes were recorded. */
int simulate_figure(struct text *out, const struct simulation *simulation, const struct simulated_texts *texts,
                    enum simulated_figure figure, enum simulated_form form, struct err *err);

#endif
