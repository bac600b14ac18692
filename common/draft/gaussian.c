#include "common/draft/gaussian.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"

#define ROUNDING 1e-9               /* likelihoods that differ by less count as equal */

enum { REFINEMENTS = 12 };

/* Grid of length scales, dense at the distances between points of the unit box. GRID_ONE: index of length 1, used if no
 * length is likelier. */
static const double grid[] = {1e-5, 0.03, 0.1, 0.3, 0.6, 1, 2, 4, 8, 16, 32, 100, 1e3, 1e5};
enum { GRID = sizeof grid / sizeof *grid, GRID_ONE = 5 };

struct gaussian {
    int dimensions, points, fitted;
    double noise, mean, scale, length, likelihood;
    double *point, *score;          /* [points][dimensions]; [points] */
    double *square, *factor;        /* lower triangles (row_of): squared distances of points, Cholesky factor */
    double *weight;                 /* [fitted] inverse covariance times scaled scores */
    double *work, *slope;           /* [points] */
    size_t point_room, score_room, square_room, factor_room, weight_room, work_room, slope_room;
};

int gaussian_open(struct gaussian **out, int dimensions, double noise, struct err *err)
{
    struct gaussian *gaussian = mem_alloc(1, sizeof *gaussian, err);
    if (!gaussian)
        return -1;
    gaussian->dimensions = dimensions;
    gaussian->noise = noise;
    *out = gaussian;
    return 0;
}

void gaussian_close(struct gaussian **gaussian)
{
    struct gaussian *old = *gaussian;
    if (!old)
        return;
    mem_free(&old->point);
    mem_free(&old->score);
    mem_free(&old->square);
    mem_free(&old->factor);
    mem_free(&old->weight);
    mem_free(&old->work);
    mem_free(&old->slope);
    mem_free(gaussian);
}

int gaussian_points(const struct gaussian *gaussian) { return gaussian->points; }
double gaussian_length(const struct gaussian *gaussian) { return gaussian->length; }
double gaussian_log_likelihood(const struct gaussian *gaussian) { return gaussian->likelihood; }

static double squared_distance(const double *a, const double *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

/* Returns the dot product. Four partial sums, so that the additions do not depend on each other. */
static double dot(const double *a, const double *b, int count)
{
    double sum[4] = {0, 0, 0, 0};
    int i = 0;
    for (; i + 4 <= count; i += 4)
        for (int lane = 0; lane < 4; lane++)
            sum[lane] += a[i + lane] * b[i + lane];
    for (; i < count; i++)
        sum[0] += a[i] * b[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* Returns the offset of row i of a packed lower triangle; a row ends with its diagonal element. */
static size_t row_of(int i) { return (size_t)i * ((size_t)i + 1) / 2; }

int gaussian_add(struct gaussian *gaussian, const double *point, double score, struct err *err)
{
    int n = gaussian->points, width = gaussian->dimensions;
    size_t rows = (size_t)n + 1, triangle = row_of(n + 1);
    if (mem_grow(&gaussian->point, &gaussian->point_room, rows * (size_t)width, sizeof(double), err) ||
        mem_grow(&gaussian->score, &gaussian->score_room, rows, sizeof(double), err) ||
        mem_grow(&gaussian->square, &gaussian->square_room, triangle, sizeof(double), err) ||
        mem_grow(&gaussian->factor, &gaussian->factor_room, triangle, sizeof(double), err) ||
        mem_grow(&gaussian->weight, &gaussian->weight_room, rows, sizeof(double), err) ||
        mem_grow(&gaussian->work, &gaussian->work_room, rows, sizeof(double), err) ||
        mem_grow(&gaussian->slope, &gaussian->slope_room, rows, sizeof(double), err))
        return -1;
    double *square = gaussian->square + row_of(n);
    for (int i = 0; i < n; i++)
        square[i] = squared_distance(point, gaussian->point + (size_t)i * (size_t)width, width);
    memcpy(gaussian->point + (size_t)n * (size_t)width, point, (size_t)width * sizeof *point);
    gaussian->score[n] = score;
    gaussian->points = n + 1;
    return 0;
}

static double kernel(double square, double length)
{
    double r = sqrt(5 * square) / length;
    return (1 + r + r * r / 3) * exp(-r);
}

/* Solves factor * x = vector in place (forward substitution). */
static void solve_forward(const double *factor, int n, double *vector)
{
    for (int i = 0; i < n; i++) {
        const double *row = factor + row_of(i);
        vector[i] = (vector[i] - dot(row, vector, i)) / row[i];
    }
}

/* Solves transpose(factor) * x = vector in place (back substitution). */
static void solve_back(const double *factor, int n, double *vector)
{
    for (int i = n - 1; i >= 0; i--) {
        const double *row = factor + row_of(i);
        vector[i] /= row[i];
        for (int j = 0; j < i; j++)
            vector[j] -= row[j] * vector[i];
    }
}

/* Factors the covariance for this length scale, computes the weights, and returns the log of the marginal likelihood. The
 * diagonal of 1 + noise keeps the matrix positive definite as long as rounding errors are smaller than noise. */
static double solve(struct gaussian *gaussian, double length)
{
    int n = gaussian->points;
    double *factor = gaussian->factor, *weight = gaussian->weight, likelihood = -0.5 * n * log(2 * acos(-1));
    for (int i = 0; i < n; i++) {
        double *row = factor + row_of(i);
        const double *square = gaussian->square + row_of(i);
        for (int j = 0; j < i; j++) {
            const double *other = factor + row_of(j);
            row[j] = (kernel(square[j], length) - dot(row, other, j)) / other[j];
        }
        row[i] = sqrt(1 + gaussian->noise - dot(row, row, i));
        likelihood -= log(row[i]);
        weight[i] = (gaussian->score[i] - gaussian->mean) / gaussian->scale;
    }
    solve_forward(factor, n, weight);
    likelihood -= 0.5 * dot(weight, weight, n);
    solve_back(factor, n, weight);
    return likelihood;
}

/* Returns the best length between two lengths of the grid, by golden-section search on a logarithmic scale. */
static double refine(struct gaussian *gaussian, double low, double high)
{
    const double golden = (sqrt(5) - 1) / 2;
    double a = log(low), b = log(high), left = b - golden * (b - a), right = a + golden * (b - a);
    double at_left = solve(gaussian, exp(left)), at_right = solve(gaussian, exp(right));
    for (int step = 0; step < REFINEMENTS; step++) {
        if (at_left >= at_right) {
            b = right;
            right = left;
            at_right = at_left;
            left = b - golden * (b - a);
            at_left = solve(gaussian, exp(left));
        } else {
            a = left;
            left = right;
            at_left = at_right;
            right = a + golden * (b - a);
            at_right = solve(gaussian, exp(right));
        }
    }
    return exp(at_left >= at_right ? left : right);
}

int gaussian_fit(struct gaussian *gaussian, struct err *err)
{
    int n = gaussian->points, best = GRID_ONE;
    double sum = 0, squares = 0;
    if (!n)
        return err_set(err, ERR_INPUT, "no point has been observed, so nothing can be fitted");
    for (int i = 0; i < n; i++)
        sum += gaussian->score[i];
    gaussian->mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += (gaussian->score[i] - gaussian->mean) * (gaussian->score[i] - gaussian->mean);
    gaussian->scale = sqrt(squares / n);
    if (!(gaussian->scale > 1e-12 * fabs(gaussian->mean)))
        gaussian->scale = 1;                        /* all scores are equal up to rounding */
    double likelihood = solve(gaussian, grid[best]);
    for (int at = 0; at < GRID; at++) {
        double now = solve(gaussian, grid[at]);
        if (now > likelihood + ROUNDING) {
            likelihood = now;
            best = at;
        }
    }
    gaussian->length = refine(gaussian, grid[best ? best - 1 : 0], grid[best < GRID - 1 ? best + 1 : best]);
    gaussian->likelihood = solve(gaussian, gaussian->length);
    if (!(gaussian->likelihood > likelihood + ROUNDING))
        gaussian->likelihood = solve(gaussian, gaussian->length = grid[best]);
    gaussian->fitted = n;
    return 0;
}

struct expectation gaussian_expect(struct gaussian *gaussian, const double *point, double *gradient)
{
    int n = gaussian->fitted, width = gaussian->dimensions;
    double *inner = gaussian->work, *slope = gaussian->slope, mean = 0, variance = 1, length = gaussian->length;
    for (int i = 0; i < n; i++) {
        double square = squared_distance(point, gaussian->point + (size_t)i * (size_t)width, width);
        double r = sqrt(5 * square) / length;
        inner[i] = kernel(square, length);
        slope[i] = -5 / (3 * length * length) * (1 + r) * exp(-r);      /* derivative of inner[i] along point - point[i] */
        mean += gaussian->weight[i] * inner[i];
    }
    solve_forward(gaussian->factor, n, inner);
    variance -= dot(inner, inner, n);
    variance = variance > 0 ? variance : 0;
    struct expectation out = {gaussian->mean + gaussian->scale * mean, gaussian->scale * sqrt(variance)};
    if (!gradient)
        return out;
    memset(gradient, 0, 2 * (size_t)width * sizeof *gradient);
    solve_back(gaussian->factor, n, inner);
    for (int i = 0; i < n; i++) {
        const double *seen = gaussian->point + (size_t)i * (size_t)width;
        double to_mean = gaussian->scale * gaussian->weight[i] * slope[i];
        double to_deviation = variance > 0 ? -gaussian->scale * inner[i] * slope[i] / sqrt(variance) : 0;
        for (int at = 0; at < width; at++) {
            gradient[at] += to_mean * (point[at] - seen[at]);
            gradient[width + at] += to_deviation * (point[at] - seen[at]);
        }
    }
    return out;
}
