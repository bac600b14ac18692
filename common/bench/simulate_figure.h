/* The figures and tables of MoE-SpAc (arXiv 2603.09983), had again by simulation: as tables, JSON lines or SVG, all labelled
 * simulated. Machine, model and routes are the caller's; what is swept is the figure's.
 *
 *   ablation     table 4: tokens a second of utility, and of it without each of its six parts
 *   hot-or-cold  figure 4: how many of the last layer's experts are rightly said to be wanted or not, forward after forward
 *   cached       figure 5, left: tokens a second by the share of experts in fast memory
 *   lengths      figure 5, middle: by the tokens of an answer; of routes that are made alone
 *   levels       figure 5, right: by K, the highest level
 *   memory       figure 6: fast memory for a draft model or for more experts
 *   shares       figure 9: what tau leaves to which processor, and how often experts of each level are wanted
 *   pipelines    figure 12: what processors and link are at in one forward (simulate_pipelines.h)
 *
 * Figures 7 and 8 are of routes alone: moe-coact reuse and signal. Tables 2 and 3 are the usual output, for the machines of
 * tests/bench/machines. */
#ifndef MOE_BENCH_SIMULATE_FIGURE_H
#define MOE_BENCH_SIMULATE_FIGURE_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/simulate.h"

enum simulated_figure {
    SIMULATED_NONE, SIMULATED_ABLATION, SIMULATED_HOT_OR_COLD, SIMULATED_CACHED, SIMULATED_LENGTHS, SIMULATED_LEVELS,
    SIMULATED_MEMORY, SIMULATED_SHARES, SIMULATED_PIPELINES
};
extern const char *const simulated_figures[];           /* by kind, "none" first; NULL after the last */

enum simulated_form { SIMULATED_TEXT, SIMULATED_MARKDOWN, SIMULATED_JSON, SIMULATED_SVG };

/* What was simulated, in a line. */
int simulate_figure_note(struct text *out, const struct simulation *simulation, struct err *err);

/* texts: what routes were made by; NULL: they were recorded. */
int simulate_figure(struct text *out, const struct simulation *simulation, const struct simulated_texts *texts,
                    enum simulated_figure figure, enum simulated_form form, struct err *err);

#endif
