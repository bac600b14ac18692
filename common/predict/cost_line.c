#include "common/predict/cost_line.h"

#include <math.h>

enum { KNOTS = COST_LINE_KNOTS, STATES = COST_LINE_STATES, LEVEL = 0, GROWTH, ROW, KNOT };

static const double noise = 0.15;               /* relative standard deviation of a forward's seconds */
static const double surprise_max = 0.25, surprises = 1.5;       /* limit of a surprise, relative and in standard deviations: a
                                                                 * single slow forward does not mean that the machine is slow */
/* Relative variances added per forward: of all seconds together; of each state. */
static const double drift = 1e-2, own_drift = 2e-5;
static const double row = 0.05, row_deviation = 0.2;            /* growth by a row before the first observation */
static const double knot_deviation = 0.3;       /* of the change at a knot, in shares of the seconds per row */
/* Minimum of the level, in shares of a forward's seconds, and of the seconds of growth 1, in shares of the level. */
static const double share_min = 0.01;

static int knot_rows(int knot) { return 4 << knot; }

static void set_features(double x[STATES], double growth, int rows)
{
    x[LEVEL] = 1;
    x[GROWTH] = growth;
    x[ROW] = rows - 1;
    for (int i = 0; i < KNOTS; i++)
        x[KNOT + i] = fmax(0, rows - knot_rows(i));
}

void cost_line_init(struct cost_line *line, double steepness, double uncertainty)
{
    *line = (struct cost_line){.steepness = steepness, .uncertainty = uncertainty};
}

static double dot(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < STATES; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Sets the states so that they predict the first observation, and their deviations. */
static void begin(struct cost_line *line, const double x[STATES], double seconds)
{
    const double s = line->steepness, level = seconds / (1 + s * (x[GROWTH] + row * x[ROW]));
    const double deviation[] = {level, level * s * line->uncertainty, level * s * row_deviation};
    line->begun = true;
    line->state[LEVEL] = level;
    line->state[GROWTH] = level * s;
    line->state[ROW] = level * s * row;
    for (int i = 0; i < STATES; i++) {
        const double own = i < KNOT ? deviation[i] : knot_deviation * seconds / fmax(knot_rows(i - KNOT), x[ROW] + 1);
        line->covariance[i][i] = own * own;
    }
}

static void add_drift(struct cost_line *line)
{
    for (int i = 0; i < STATES; i++)
        for (int j = 0; j < STATES; j++)
            line->covariance[i][j] += (i == j ? drift + own_drift : drift) * line->state[i] * line->state[j];
}

void cost_line_observe(struct cost_line *line, double growth, int rows, double seconds)
{
    double x[STATES], cross[STATES];
    if (!(seconds > 0 && isfinite(seconds) && growth >= 0 && rows > 0))
        return;
    set_features(x, growth, rows);
    if (!line->begun)
        begin(line, x, seconds);
    add_drift(line);
    for (int i = 0; i < STATES; i++)
        cross[i] = dot(line->covariance[i], x);
    const double expected = dot(line->state, x), scale = fmax(expected, seconds / 2);
    const double variance = noise * noise * scale * scale + dot(cross, x);
    const double limit = fmax(surprise_max * scale, surprises * sqrt(variance));
    const double surprise = fmax(-limit, fmin(limit, seconds - expected));
    for (int i = 0; i < STATES; i++) {
        line->state[i] += cross[i] / variance * surprise;
        for (int j = 0; j < STATES; j++)
            line->covariance[i][j] -= cross[i] * cross[j] / variance;
    }
    line->state[LEVEL] = fmax(line->state[LEVEL], share_min * seconds);
    line->state[GROWTH] = fmax(line->state[GROWTH], share_min * line->state[LEVEL]);
    line->state[ROW] = fmax(line->state[ROW], 0);
}

double cost_line_level(const struct cost_line *line) { return line->state[LEVEL]; }

double cost_line_steepness(const struct cost_line *line)
{
    return line->begun ? line->state[GROWTH] / line->state[LEVEL] : line->steepness;
}

double cost_line_rows(const struct cost_line *line, int rows)
{
    double slope = line->state[ROW], seconds = 0;
    int from = 1;
    if (!line->begun)
        return row * (rows - 1);
    for (int i = 0; i <= KNOTS && from < rows; i++) {
        const int to = i < KNOTS && knot_rows(i) < rows ? knot_rows(i) : rows;
        seconds += fmax(0, slope) * (to - from);
        slope += i < KNOTS ? line->state[KNOT + i] : 0;
        from = to;
    }
    return seconds / line->state[GROWTH];
}

double cost_line_doubt(const struct cost_line *line, double growth, int rows)
{
    double x[STATES], before[STATES], cross[STATES];
    if (!line->begun)
        return line->uncertainty;
    set_features(before, 0, rows);
    set_features(x, growth, rows + 1);
    for (int i = 0; i < STATES; i++)
        x[i] -= before[i];
    for (int i = 0; i < STATES; i++)
        cross[i] = dot(line->covariance[i], x);
    return sqrt(fmax(0, dot(cross, x))) / fmax(dot(line->state, x), share_min * line->state[LEVEL]);
}
