/* Predicts the seconds of a forward that texts share, from the experts that it loads and from its rows:
 *
 *     seconds = level * (1 + steepness * growth) + cost of rows
 *
 * The growth is the excess of experts over those of one token. The cost of rows is a line with knots: from a number of rows on,
 * multiplications can take longer than reads of weights. Before observations the slope is the same everywhere. All is linear in
 * the unknowns, which a Kalman filter follows, so that two forwards with different rows show what a row adds, and longer drafts
 * are expected to cost as much a row as the longest ones so far. */
#ifndef MOE_PREDICT_COST_LINE_H
#define MOE_PREDICT_COST_LINE_H

#include <stdbool.h>

enum { COST_LINE_KNOTS = 9, COST_LINE_STATES = 3 + COST_LINE_KNOTS };

struct cost_line {
    bool begun;                         /* a forward was observed */
    double steepness, uncertainty;      /* expected before the first observation; standard deviation of its logarithm */
    double state[COST_LINE_STATES];     /* seconds: level; of growth 1; of a row; changes of the latter at the knots */
    double covariance[COST_LINE_STATES][COST_LINE_STATES];
};

void cost_line_init(struct cost_line *line, double steepness, double uncertainty);
void cost_line_observe(struct cost_line *line, double growth, int rows, double seconds);

double cost_line_level(const struct cost_line *line);           /* seconds of a forward over one token; 0: not observed */
double cost_line_steepness(const struct cost_line *line);

/* Returns the growth that costs as much as all rows but the first. */
double cost_line_rows(const struct cost_line *line, int rows);

/* Returns the standard deviation of the logarithm of the seconds that this growth and one more row add to a forward. */
double cost_line_doubt(const struct cost_line *line, double growth, int rows);

#endif
