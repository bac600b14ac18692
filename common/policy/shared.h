/* The cost of a text's rows in a forward that other texts share (moe-decode --parallel).
 *
 * The other texts read the weights in any case, and load experts that this text needs, too. So a text is charged with an equal
 * part of a forward in which no text drafts, and with all that its draft adds to the present forward: the rows, and the experts
 * that no other text loads. A policy that weighs tokens against this cost adds a node where that raises the throughput of all
 * texts together, as far as the others do as before. Cascade and dytc-verify are charged the same way; policies that go by
 * acceptance alone (tiers, off, tr) do not depend on the load. If the forward is of one text, all values are those of that
 * text, bit by bit.
 *
 * The cost of a further row is measured (predict/cost_line.h), because forwards of many texts load nearly all experts, and
 * the row then costs arithmetic. The load of the other texts is that of the last forward; the share of a text's experts that
 * no other text loads is a moving average over all texts that learn together, because a single text has few experts, and
 * gives the number of experts from which texts choose as if by chance. */
#ifndef MOE_POLICY_SHARED_H
#define MOE_POLICY_SHARED_H

#include "common/policy/cost.h"
#include "common/policy/policy.h"
#include "common/predict/cost_line.h"
#include "common/predict/cost_model.h"
#include "common/predict/tasks.h"

struct shared_load {            /* initialise with {0}: alone */
    int texts;                  /* number of texts of the last forward; below 2: it was not shared */
    int rows;                   /* number of rows of the other texts */
    int max_rows;               /* maximum rows of a shared forward so far */
    double experts;             /* distinct experts per layer that the other texts load */
};

struct shared_learning {        /* the first member of what policies learn together (policy_setup.like) */
    int users;                          /* number of these policies */
    bool observed;                      /* the present forward was observed */
    double only;                        /* mean share of a text's experts that no other text loads */
    int64_t measured;                   /* how often `only` was measured */
    int max_rows;                       /* maximum rows of a forward of one text */
    struct cost_model cost;             /* cost model where `line` is not used: of a text that learns alone, by a table, and of
                                         * models without experts */
    struct cost_line line;              /* of forwards that texts share, and of all forwards of policies that learn together */
    struct tasks tasks;
};

struct shared_setup {
    const char *file;                   /* cost table; NULL: costs follow from the experts that tokens are predicted to load */
    int tokens;                         /* maximum number of tokens of such a prediction */
    double dense;                       /* the expected steepness for a model without experts (predict/cost_model.h) */
    size_t bytes;                       /* size of what policies learn together, which begins with struct shared_learning */
    size_t task_bytes;                  /* size of a task's values (predict/tasks.h); 0: the policy has no tasks */
};

struct shared_cost {
    bool has_table;
    struct cost_table table;
    struct union_predictor experts;     /* the caller calls union_begin and union_learn */
    struct shared_learning *common;
    struct cost_model *model;           /* &common->cost */
    struct shared_load load;
};

/* Initialises the cost. like: the cost of another policy, with which this one learns; NULL: none. Then the memory of
 * cost->common is new, and 0 beyond struct shared_learning. */
int shared_cost_init(struct shared_cost *cost, const struct shared_setup *shared, const struct policy_setup *setup,
                     const struct shared_cost *like, struct err *err);
void shared_cost_free(struct shared_cost *cost);

/* Returns whether policies for concurrent texts share what they learn. */
static inline bool shared_learns(const struct shared_cost *cost) { return cost->common->users > 1; }

/* Must be called before the draft of each iteration. Returns whether this text is the first to draft for a forward. Texts that
 * share a forward draft before it and learn after it; of texts with one cost model the first outcome corrects it. */
bool shared_next(struct shared_cost *cost);

/* Learns the load of the other texts; must be called before the functions below, for each outcome. */
void shared_learn(struct shared_cost *cost, const struct outcome *outcome);

/* Learns the seconds of the forward, and returns the seconds of the iteration that this text is charged with: its drafting, and
 * its part of the rest. growth: the excess of this forward, as predicted or as seen. */
double shared_charge(struct shared_cost *cost, const struct outcome *outcome, double growth);

/* Returns the seconds of a forward over a single token; 0: unknown. */
double shared_level(const struct shared_cost *cost);

/* Returns what the growth 1 costs, in units of a forward over a single token. */
double shared_steepness(const struct shared_cost *cost);

/* Returns the excess of a forward relative to one over a single token. shared_growth: of the present forward with M rows of
 * this text, extrapolated linearly beyond the largest predicted M. shared_root: of a forward in which no text drafts. */
double shared_growth(const struct shared_cost *cost, int M);
double shared_root(const struct shared_cost *cost);

/* Returns this text's part of the cost of a forward, in units of a forward over a single token. rows: of this text. */
double shared_part(const struct shared_cost *cost, double steepness, int rows);

/* Sets out[i] to shared_part for 1 + i rows, for i below `count`. */
void shared_parts(const struct shared_cost *cost, double steepness, int count, double *out);

/* Returns this text's share, by rows, of the cost of the present forward. Cascade-cost and dytc-verify average tokens per
 * share, which is about the rate of all texts together. The cost by shared_part leaves out the drafts of the other texts, so
 * the rate would be too high, and drafts too short. */
double shared_share(const struct shared_cost *cost, double steepness, int rows);

/* Returns the standard deviation of the logarithm of the cost that a draft adds to a forward. */
double shared_doubt(const struct shared_cost *cost);

/* Returns the longest draft, 0 .. max, that may be verified: forwards that texts share at most double, so that the first long
 * drafts of all texts do not cost more than what they show is worth. */
int shared_room(const struct shared_cost *cost, int max);

#endif
