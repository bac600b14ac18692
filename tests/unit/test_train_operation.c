/* Operations of training over random shapes, on the host and by the kernels' own reference: forwards against plain references
 * in double, gradients against finite differences of these, and the host's same bytes with one, two and three threads. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/train/loss.h"
#include "common/train/operation.h"
#include "tests/unit/tiny.h"

enum { INPUTS = 6, ROUNDS = 6, PROBES = 24 };

/* An operation with its inputs. The output of a loss is its sum. */
struct trial {
    const char *name;
    struct chance chance;
    int inputs, rows[INPUTS], width[INPUTS];
    double *x[INPUTS];
    bool fixed[INPUTS];                 /* no gradient is computed */
    int out_rows, out_width;            /* 0, 0: a loss */
    void (*reference)(const struct trial *, double *out);
    struct variable *(*run)(struct trial *, struct tape *, struct variable **, double *sum);
    /* further arguments of some operations */
    int row[64], number, steps, words;
    float weight[2][64], scale[2];
    int target[2][64];
    int32_t word[600];
    struct attention attention;
    struct train_batch batch;
    int offset[8];
    float rotations[64 * 16];
};

static size_t count_of(const struct trial *t, int i) { return (size_t)t->rows[i] * (size_t)t->width[i]; }

static int between(struct trial *t, int low, int high) { return chance_range(&t->chance, low, high); }

static void add_input(struct trial *t, int rows, int width, double size)
{
    const int i = t->inputs++;
    t->rows[i] = rows;
    t->width[i] = width;
    t->x[i] = malloc(count_of(t, i) * sizeof *t->x[i]);
    for (size_t k = 0; k < count_of(t, i); k++)
        t->x[i][k] = (double)(float)(size * (double)chance_signed(&t->chance));
}

static double dot(const struct trial *t, const double *c)
{
    const size_t count = t->out_rows ? (size_t)t->out_rows * (size_t)t->out_width : 1;
    double *out = malloc(count * sizeof *out), sum = 0;
    t->reference(t, out);
    for (size_t i = 0; i < count; i++)
        sum += c[i] * out[i];
    free(out);
    return sum;
}

/* Computes one element's gradient by central differences. */
static double difference(const struct trial *t, int input, size_t at, const double *c)
{
    const double kept = t->x[input][at], step = 1e-5;
    t->x[input][at] = kept + step;
    const double above = dot(t, c);
    t->x[input][at] = kept - step;
    const double below = dot(t, c);
    t->x[input][at] = kept;
    return (above - below) / (2 * step);
}

struct computed {
    float *out, *gradient[INPUTS];
    double sum;
};

static struct buffer upload(struct device *device, const float *data, size_t count)
{
    struct buffer buffer = {0, 0};
    struct err err = {0};
    assert_int_equal(device_alloc(device, count * sizeof *data, &buffer, &err), 0);
    queue_upload(device, buffer, data, count * sizeof *data);
    return buffer;
}

static float *download(struct device *device, struct buffer from, size_t count)
{
    float *data = malloc((count ? count : 1) * sizeof *data);
    queue_download(device, data, from, count * sizeof *data);
    assert_int_equal(queue_wait(device, NULL), 0);
    return data;
}

/* Runs the operation; threads 0: by the reference. */
static void compute(struct trial *t, int threads, const double *c, struct computed *result)
{
    struct err err = {0};
    struct device *device = NULL;
    struct tape *tape = NULL;
    struct variable value[INPUTS], *pointer[INPUTS];
    float *data[INPUTS], *before[INPUTS] = {NULL};
    assert_int_equal(device_open(&device, &(struct device_setup){threads ? "host" : "ref", threads, NULL, false}, &err), 0);
    assert_int_equal(tape_new(&tape, device, &err), 0);
    /* The second run uses dirty memory and existing gradients, to which it must add. */
    for (int turn = 0; turn < 2; turn++) {
        tape_begin(tape);
        result->sum = 0;
        for (int i = 0; i < t->inputs; i++) {
            const size_t count = count_of(t, i);
            data[i] = malloc(count * sizeof *data[i]);
            result->gradient[i] = calloc(count, sizeof *data[i]);
            for (size_t k = 0; k < count; k++) {
                data[i][k] = (float)t->x[i][k];
                result->gradient[i][k] = turn == 0 ? 0 : before[i][k];
            }
            value[i] = (struct variable){t->rows[i], t->width[i], upload(device, data[i], count), {0, 0}, NULL};
            if (!t->fixed[i])
                value[i].gradient = upload(device, result->gradient[i], count);
            pointer[i] = &value[i];
        }
        struct variable *out = t->run(t, tape, pointer, &result->sum);
        assert_int_equal(tape_failed(tape, &err), 0);
        const size_t count = (size_t)t->out_rows * (size_t)t->out_width;
        if (count) {
            float *slope = malloc(count * sizeof *slope);
            assert_int_equal(out->rows, t->out_rows);
            assert_int_equal(out->width, t->out_width);
            result->out = download(device, out->data, count);
            for (size_t k = 0; k < count; k++)
                slope[k] = (float)c[k];
            queue_upload(device, out->gradient, slope, count * sizeof *slope);
            free(slope);
        }
        tape_backward(tape);
        for (int i = 0; i < t->inputs; i++) {
            free(data[i]);
            if (!t->fixed[i]) {
                free(result->gradient[i]);
                result->gradient[i] = download(device, value[i].gradient, count_of(t, i));
            }
            device_free(device, &value[i].data);
            device_free(device, &value[i].gradient);
            if (turn == 0)
                before[i] = result->gradient[i];
        }
        if (turn == 0 && count)
            free(result->out);
    }
    for (int i = 0; i < t->inputs; i++) {
        for (size_t k = 0; k < count_of(t, i); k++)
            result->gradient[i][k] /= 2;
        free(before[i]);
    }
    tape_free(&tape);
    device_close(&device);
}

/* Place of a loss's sum, 0 at first; and its value afterwards. */
static struct buffer sum_at(struct tape *tape)
{
    static const double zero = 0;
    return tape_copy(tape, &zero, 1, sizeof zero);
}

static double sum_of(struct tape *tape, struct buffer sum)
{
    const double *value = tape_download(tape, sum, 1, sizeof *value);
    assert_non_null(value);
    return *value;
}

static void free_computed(const struct trial *t, struct computed *result)
{
    for (int i = 0; i < t->inputs; i++)
        free(result->gradient[i]);
    free(result->out);
}

static void check_forward(const struct trial *t, const struct computed *got)
{
    const size_t count = t->out_rows ? (size_t)t->out_rows * (size_t)t->out_width : 1;
    double *wanted = malloc(count * sizeof *wanted), largest = 0;
    t->reference(t, wanted);
    for (size_t i = 0; i < count; i++)
        largest = fabs(wanted[i]) > largest ? fabs(wanted[i]) : largest;
    for (size_t i = 0; i < count; i++) {
        const double found = t->out_rows ? (double)got->out[i] : got->sum;
        if (!(fabs(found - wanted[i]) <= 3e-6 * (largest + 1e-3)))
            fail_msg("%s: %zu is %.9g, not %.9g", t->name, i, found, wanted[i]);
    }
    free(wanted);
}

static void check_gradients(struct trial *t, const struct computed *got, const double *c)
{
    for (int i = 0; i < t->inputs; i++) {
        const size_t count = count_of(t, i), probes = count < PROBES ? count : PROBES;
        double largest = 1e-3;
        for (size_t k = 0; k < count; k++)
            largest = fabs((double)got->gradient[i][k]) > largest ? fabs((double)got->gradient[i][k]) : largest;
        for (size_t k = 0; k < probes && !t->fixed[i]; k++) {
            const size_t at = probes == count ? k : (size_t)between(t, 0, (int)count - 1);
            const double wanted = difference(t, i, at, c), found = (double)got->gradient[i][at];
            if (!(fabs(found - wanted) <= 5e-6 * largest))
                fail_msg("%s: gradient %zu of input %d is %.9g, not %.9g", t->name, at, i, found, wanted);
        }
    }
}

static void check_bytes(struct trial *t, const struct computed *one, const double *c)
{
    for (int threads = 2; threads <= 3; threads++) {
        struct computed other = {0};
        compute(t, threads, c, &other);
        if (t->out_rows)
            assert_memory_equal(other.out, one->out, (size_t)t->out_rows * (size_t)t->out_width * sizeof *one->out);
        assert_memory_equal(&other.sum, &one->sum, sizeof one->sum);
        for (int i = 0; i < t->inputs; i++)
            assert_memory_equal(other.gradient[i], one->gradient[i], count_of(t, i) * sizeof *one->gradient[i]);
        free_computed(t, &other);
    }
}

static void try(struct trial *t, bool by_reference)
{
    const size_t count = t->out_rows ? (size_t)t->out_rows * (size_t)t->out_width : 1;
    double *c = malloc(count * sizeof *c);
    struct computed got = {0};
    c[0] = 1;
    for (size_t i = 0; i < count && t->out_rows; i++)
        c[i] = (double)chance_signed(&t->chance);
    compute(t, by_reference ? 0 : 1, c, &got);
    check_forward(t, &got);
    check_gradients(t, &got, c);
    if (!by_reference)
        check_bytes(t, &got, c);
    free_computed(t, &got);
    free(c);
    for (int i = 0; i < t->inputs; i++)
        free(t->x[i]);
}

typedef void setup_function(struct trial *);

static void rounds(const char *name, setup_function *setup)
{
    const int each = unit_brief() ? 2 : ROUNDS;
    for (int round = 0; round < each + each / 2; round++) {
        struct trial t = {.name = name, .chance = {(uint64_t)round * 77 + (uint64_t)name[0] * 131 + (uint64_t)name[1]}};
        setup(&t);
        try(&t, round >= each);
    }
}

/* ---- linear ---- */

static void linear_reference(const struct trial *t, double *out)
{
    for (int r = 0; r < t->out_rows; r++)
        for (int o = 0; o < t->out_width; o++) {
            double sum = t->number ? t->x[2][o] : 0;
            for (int i = 0; i < t->width[0]; i++)
                sum += t->x[0][r * t->width[0] + i] * t->x[1][o * t->width[0] + i];
            out[r * t->out_width + o] = 2 * sum;
        }
}

/* Used twice in a network, so that gradients must add up. */
static struct variable *linear_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    struct variable *bias = t->number ? x[2] : NULL;
    (void)sum;
    return op_add(tape, op_linear(tape, x[0], x[1], bias), op_linear(tape, x[0], x[1], bias));
}

static void linear_setup(struct trial *t)
{
    const int rows = between(t, 1, 300), inputs = between(t, 1, 40), outputs = between(t, 1, 50);
    t->number = between(t, 0, 1);
    add_input(t, rows, inputs, 1);
    add_input(t, outputs, inputs, 1);
    add_input(t, 1, outputs, 1);
    t->fixed[2] = !t->number;
    t->fixed[0] = between(t, 0, 3) == 0;
    t->out_rows = rows;
    t->out_width = outputs;
    t->reference = linear_reference;
    t->run = linear_run;
}

static void linear(void **state) { (void)state, rounds("linear", linear_setup); }

/* ---- add, join, select ---- */

static void join_reference(const struct trial *t, double *out)
{
    for (int r = 0; r < t->out_rows; r++)
        for (int i = 0, at = 0; i < 3; i++)
            for (int k = 0; k < t->width[i]; k++, at++)
                out[r * t->out_width + at] = t->x[i][r * t->width[i] + k] + (i == 0 ? t->x[3][r * t->width[0] + k] : 0);
}

static struct variable *join_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    struct variable *parts[] = {op_add(tape, x[0], x[3]), x[1], x[2]};
    (void)t, (void)sum;
    return op_join(tape, parts, 3);
}

static void join_setup(struct trial *t)
{
    const int rows = between(t, 1, 200);
    for (int i = 0; i < 3; i++)
        add_input(t, rows, between(t, 1, 60), 1);
    add_input(t, rows, t->width[0], 1);
    t->fixed[between(t, 0, 3)] = true;
    t->out_rows = rows;
    t->out_width = t->width[0] + t->width[1] + t->width[2];
    t->reference = join_reference;
    t->run = join_run;
}

static void sums_and_joins(void **state) { (void)state, rounds("join", join_setup); }

static void select_reference(const struct trial *t, double *out)
{
    for (int r = 0; r < t->out_rows; r++)
        for (int k = 0; k < t->width[0]; k++)
            out[r * t->width[0] + k] = t->row[r] < 0 ? 0 : t->x[0][t->row[r] * t->width[0] + k];
}

static struct variable *select_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    (void)sum;
    return op_select(tape, x[0], t->row, t->out_rows);
}

static void select_setup(struct trial *t)
{
    add_input(t, between(t, 1, 20), between(t, 1, 300), 1);
    t->out_rows = between(t, 1, 64);
    t->out_width = t->width[0];
    for (int r = 0; r < t->out_rows; r++)
        t->row[r] = between(t, -1, t->rows[0] - 1);
    t->reference = select_reference;
    t->run = select_run;
}

static void selections(void **state) { (void)state, rounds("select", select_setup); }

/* ---- norm, functions ---- */

static void norm_reference(const struct trial *t, double *out)
{
    const int width = t->width[0];
    for (int r = 0; r < t->out_rows; r++) {
        double squares = 0;
        for (int k = 0; k < width; k++)
            squares += t->x[0][r * width + k] * t->x[0][r * width + k];
        for (int k = 0; k < width; k++)
            out[r * width + k] = t->x[1][k] * t->x[0][r * width + k] / sqrt(squares / width + 0.01);
    }
}

static struct variable *norm_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    (void)t, (void)sum;
    return op_norm(tape, x[0], x[1], 0.01f);
}

static void norm_setup(struct trial *t)
{
    add_input(t, between(t, 1, 150), between(t, 1, 90), 1);
    add_input(t, 1, t->width[0], 2);
    t->fixed[0] = between(t, 0, 3) == 0;
    t->out_rows = t->rows[0];
    t->out_width = t->width[0];
    t->reference = norm_reference;
    t->run = norm_run;
}

static void norms(void **state) { (void)state, rounds("norm", norm_setup); }

static double silu(double x) { return x / (1 + exp(-x)); }

static void silu_reference(const struct trial *t, double *out)
{
    for (size_t i = 0; i < count_of(t, 0); i++)
        out[i] = t->number ? t->x[0][i] * 0.5 * (1 + erf(t->x[0][i] / sqrt(2))) : silu(t->x[0][i]);
}

static struct variable *silu_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    (void)sum;
    return t->number ? op_gelu(tape, x[0]) : op_silu(tape, x[0]);
}

static void silu_setup(struct trial *t)
{
    add_input(t, between(t, 1, 90), between(t, 1, 90), 5);
    t->out_rows = t->rows[0];
    t->out_width = t->width[0];
    t->reference = silu_reference;
    t->run = silu_run;
}

static void gelu_setup(struct trial *t)
{
    t->number = 1;
    silu_setup(t);
}

static void silu_and_gelu(void **state) { (void)state, rounds("silu", silu_setup), rounds("gelu", gelu_setup); }

static void gated_reference(const struct trial *t, double *out)
{
    for (int r = 0; r < t->out_rows; r++)
        for (int k = 0; k < t->out_width; k++)
            out[r * t->out_width + k] = silu(t->x[0][r * t->width[0] + k]) * t->x[0][r * t->width[0] + t->out_width + k];
}

static struct variable *gated_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    (void)t, (void)sum;
    return op_gated(tape, x[0]);
}

static void gated_setup(struct trial *t)
{
    add_input(t, between(t, 1, 90), 2 * between(t, 1, 60), 4);
    t->out_rows = t->rows[0];
    t->out_width = t->width[0] / 2;
    t->reference = gated_reference;
    t->run = gated_run;
}

static void gates(void **state) { (void)state, rounds("gated", gated_setup); }

/* ---- experts ---- */

/* t->words experts, of which the best t->number by the first columns of the router take part; the pair is the best two. */
static void mix_reference(const struct trial *t, double *out)
{
    const int width = t->width[0], experts = t->words;
    const bool sum = t->steps == LEARN_MIX_SUM;
    for (int r = 0; r < t->out_rows; r++) {
        const double *router = t->x[1] + r * t->width[1], *own = router + (sum ? 0 : experts);
        double weight[INPUTS] = {0}, all = 0;
        int order[INPUTS], rank[INPUTS];
        for (int e = 0; e < experts; e++) {
            rank[e] = 0;
            for (int other = 0; other < experts; other++)
                rank[e] += router[other] > router[e] || (!(router[other] < router[e]) && other < e);
            order[rank[e]] = e;
        }
        for (int e = 0; e < experts; e++)
            all += sum || rank[e] < 2 ? exp(own[e]) : 0;
        for (int e = 0; e < experts; e++)
            weight[e] = rank[e] < (sum ? t->number : 2) ? exp(own[e]) / all : 0;
        if (t->steps == LEARN_MIX_CONTRAST)
            weight[own[order[0]] > own[order[1]] ? order[1] : order[0]] *= -1;
        for (int k = 0; k < width; k++) {
            double *to = &out[r * width + k];
            *to = t->x[0][r * width + k];
            for (int e = 0; e < experts; e++)
                *to += weight[e] * t->x[2 + e][r * width + k];
        }
    }
}

static struct variable *mix_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    const bool all = t->steps == LEARN_MIX_SUM;
    struct variable *expert[INPUTS];
    (void)sum;
    const struct mix_choice *choice = mix_choose(tape, x[1], t->words, t->number < 2 && !all ? 2 : t->number);
    for (int e = 0; e < t->words; e++)
        expert[e] = op_select(tape, x[2 + e], choice->rows_of + e * x[1]->rows, choice->count[e]);
    return op_mix(tape, (enum learn_mix)t->steps, x[0], x[1], all ? 0 : t->words, all ? t->number : 2, expert, t->words,
                  choice);
}

static void mix_setup(struct trial *t)
{
    const int rows = between(t, 1, 60), width = between(t, 1, 40);
    t->steps = between(t, LEARN_MIX_SUM, LEARN_MIX_CONTRAST);
    t->words = between(t, 2, INPUTS - 2);
    t->number = between(t, 1, t->words);
    add_input(t, rows, width, 1);
    add_input(t, rows, 2 * t->words, 3);
    for (int e = 0; e < t->words; e++)
        add_input(t, rows, width, 1);
    t->out_rows = rows;
    t->out_width = width;
    t->reference = mix_reference;
    t->run = mix_run;
}

static void mixtures(void **state) { (void)state, rounds("mix", mix_setup); }

/* ---- attention ---- */

/* Rotates q, k or v of a row of one step by its position. */
static void turned(const struct trial *t, int step, int text, int row, int head, bool turn, double *out)
{
    const struct attention *a = &t->attention;
    const int dim = a->head_dim, at = (t->offset[text] + row) * t->width[step] + head * dim;
    for (int i = 0; i < dim / 2; i++) {
        const float *r = t->rotations + ((row + step) * (dim / 2) + i) * 2;
        const double c = turn ? (double)r[0] : 1, s = turn ? (double)r[1] : 0;
        const double x = t->x[step][at + i], y = t->x[step][at + dim / 2 + i];
        out[i] = x * c - y * s;
        out[dim / 2 + i] = y * c + x * s;
    }
}

static double product_of(const double *a, const double *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void attention_row(const struct trial *t, int text, int row, int head, double *out)
{
    const struct attention *a = &t->attention;
    const int kv = head / (a->heads / a->kv_heads), dim = a->head_dim, keys = row + 1 + t->steps;
    double q[16], k[16], v[16], weight[160], sum = 0;
    turned(t, t->steps, text, row, head, true, q);
    for (int i = 0; i < keys; i++) {
        turned(t, i <= row ? 0 : i - row, text, i <= row ? i : row, a->heads + kv, true, k);
        sum += weight[i] = exp((double)a->scale * product_of(q, k, dim));
    }
    for (int d = 0; d < dim; d++)
        out[d] = 0;
    for (int i = 0; i < keys; i++) {
        turned(t, i <= row ? 0 : i - row, text, i <= row ? i : row, a->heads + a->kv_heads + kv, false, v);
        for (int d = 0; d < dim; d++)
            out[d] += weight[i] / sum * v[d];
    }
}

static void attention_reference(const struct trial *t, double *out)
{
    for (int text = 0; text < t->batch.texts; text++)
        for (int row = 0; row < t->offset[text + 1] - t->offset[text]; row++)
            for (int head = 0; head < t->attention.heads; head++)
                attention_row(t, text, row, head,
                              out + (t->offset[text] + row) * t->out_width + head * t->attention.head_dim);
}

static struct variable *attention_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    struct variable *qkv[INPUTS];
    (void)sum;
    t->attention.rotations = tape_copy(tape, t->rotations, 1, sizeof t->rotations);
    t->batch.offset = t->offset;
    for (int step = 0; step <= t->steps; step++)
        qkv[step] = op_rotate(tape, &t->attention, &t->batch, x[step], step);
    return op_attention(tape, &t->attention, &t->batch, qkv, t->steps);
}

static void attention_setup(struct trial *t)
{
    const int kv = between(t, 1, 2), dim = 2 * between(t, 1, 8);
    t->attention = (struct attention){kv * between(t, 1, 3), kv, dim, 0.4f, {0, 0}, 64};
    t->steps = between(t, 0, 3);
    t->batch.texts = between(t, 1, 3);
    for (int text = 0; text < t->batch.texts; text++) {
        const int length = between(t, 1, 20);
        t->offset[text + 1] = t->offset[text] + length;
        t->batch.longest = length > t->batch.longest ? length : t->batch.longest;
    }
    t->batch.rows = t->offset[t->batch.texts];
    for (int i = 0; i < 64 * dim / 2; i++) {
        t->rotations[2 * i] = cosf(0.3f * (float)i);
        t->rotations[2 * i + 1] = sinf(0.3f * (float)i);
    }
    for (int step = 0; step <= t->steps; step++)
        add_input(t, t->batch.rows, (t->attention.heads + 2 * kv) * dim, 1.5);
    t->out_rows = t->batch.rows;
    t->out_width = t->attention.heads * dim;
    t->reference = attention_reference;
    t->run = attention_run;
}

/* A text with more queries than are computed together, after a short one. */
static void long_attention_setup(struct trial *t)
{
    attention_setup(t);
    for (int i = 0; i < t->inputs; i++)
        free(t->x[i]);
    t->inputs = 0;
    t->attention = (struct attention){1, 1, 2, 0.4f, {0, 0}, 160};
    t->batch.texts = 2;
    t->offset[1] = between(t, 1, 5);
    t->batch.longest = between(t, 130, 150);
    t->batch.rows = t->offset[2] = t->offset[1] + t->batch.longest;
    for (int i = 0; i < 160; i++) {
        t->rotations[2 * i] = cosf(0.3f * (float)i);
        t->rotations[2 * i + 1] = sinf(0.3f * (float)i);
    }
    for (int step = 0; step <= t->steps; step++)
        add_input(t, t->batch.rows, 6, 1.5);
    t->out_rows = t->batch.rows;
    t->out_width = 2;
}

static void attention(void **state)
{
    (void)state, rounds("attention", attention_setup), rounds("bttention", attention_setup);
    rounds("long attention", long_attention_setup);
}

/* ---- losses ---- */

static void smooth_reference(const struct trial *t, double *out)
{
    const int width = t->width[0];
    *out = 0;
    for (int r = 0; r < t->rows[0]; r++)
        for (int k = 0; t->target[0][r] >= 0 && k < width; k++) {
            const double d = fabs(t->x[0][r * width + k] - t->x[1][t->target[0][r] * width + k]);
            *out += (double)t->scale[0] * (double)t->weight[0][r] * (d < 1 ? d * d / 2 : d - 0.5) / width;
        }
}

static struct variable *smooth_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    const struct judged judged = {x[0], t->target[0], t->weight[0], t->scale[0], sum_at(tape)};
    assert_int_equal(loss_smooth(tape, &judged, x[1]->data), 0);
    *sum = (double)t->scale[0] * sum_of(tape, judged.sum);
    return NULL;
}

static void draw_rows(struct trial *t, int which, int rows, int targets)
{
    for (int r = 0, at = -1; r < rows; r++) {
        t->target[which][r] = -1;
        t->weight[which][r] = 0.5f + 0.4f * chance_signed(&t->chance);
        if (at + 1 < targets && between(t, 0, 2))
            t->target[which][r] = at = between(t, at + 1, at + 2 < targets ? at + 2 : at + 1);
    }
    t->scale[which] = 0.25f * (float)between(t, 1, 8);
}

static void smooth_setup(struct trial *t)
{
    const int rows = between(t, 1, 60), width = between(t, 1, 60);
    add_input(t, rows, width, 2);
    add_input(t, rows, width, 2);
    t->fixed[1] = true;
    draw_rows(t, 0, rows, rows);
    t->reference = smooth_reference;
    t->run = smooth_run;
}

static void smooth(void **state) { (void)state, rounds("smooth", smooth_setup); }

/* log softmax of a row of x W^T + bias over some words */
static void log_softmax(const double *x, const double *w, const double *bias, int words, int width, double *out)
{
    double sum = 0;
    for (int v = 0; v < words; v++) {
        out[v] = product_of(x, w + v * width, width) + (bias ? bias[v] : 0);
        sum += exp(out[v]);
    }
    for (int v = 0; v < words; v++)
        out[v] -= log(sum);
}

/* Inputs: two judged values, the target's states, its head, the output. number: size of the draft vocabulary. */
static void soft_reference(const struct trial *t, double *out)
{
    const int vocab = t->rows[3], words = t->words;
    *out = 0;
    for (int which = 0; which < 2; which++)
        for (int r = 0; r < t->rows[which]; r++) {
            double all[64], q[64], share[64], sum = 0;
            int best = 0, known = 0;
            if (t->target[which][r] < 0)
                continue;
            log_softmax(t->x[2] + t->target[which][r] * t->width[2], t->x[3], NULL, vocab, t->width[3], all);
            log_softmax(t->x[which] + r * t->width[which], t->number ? t->x[4] : t->x[3], NULL, words, t->width[which], q);
            for (int v = 0; v < vocab; v++)
                best = all[v] > all[best] ? v : best;
            for (int w = 0; w < words; w++) {
                const int v = t->number ? t->word[w] : w;
                known |= v == best;
                sum += share[w] = exp(all[v]);
            }
            for (int w = 0; w < words && known; w++)
                *out -= (double)t->scale[which] * (double)t->weight[which][r] * share[w] / sum * q[w];
        }
}

static struct variable *soft_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    struct judged judged[2];
    const struct soft_target target = {.states = x[2]->data, .head = x[3], .word = t->number ? t->word : NULL,
                                       .words = t->words, .output = t->number ? x[4] : x[3]};
    for (int which = 0; which < 2; which++)
        judged[which] = (struct judged){x[which], t->target[which], t->weight[which], t->scale[which], sum_at(tape)};
    assert_int_equal(loss_soft(tape, &target, judged, 2), 0);
    for (int which = 0; which < 2; which++)
        *sum += (double)t->scale[which] * sum_of(tape, judged[which].sum);
    return NULL;
}

static void soft_setup(struct trial *t)
{
    const int rows = between(t, 1, 40), width = between(t, 1, 20), vocab = between(t, 2, 60);
    t->number = between(t, 0, 1);
    t->words = t->number ? 0 : vocab;
    for (int v = 0; v < vocab && t->number; v++)
        if (between(t, 0, 1) || !v)
            t->word[t->words++] = v;
    add_input(t, rows, width, 1);
    add_input(t, rows, width, 1);
    add_input(t, rows, width, 1);
    add_input(t, vocab, width, 1);
    add_input(t, t->words, width, 1);
    t->fixed[2] = t->fixed[3] = true;
    t->fixed[4] = !t->number;
    draw_rows(t, 0, rows, rows);
    draw_rows(t, 1, rows, rows);
    t->reference = soft_reference;
    t->run = soft_run;
}

static void soft(void **state) { (void)state, rounds("soft", soft_setup), rounds("toft", soft_setup); }

static void hard_reference(const struct trial *t, double *out)
{
    double q[64];
    *out = 0;
    for (int r = 0; r < t->rows[0]; r++) {
        log_softmax(t->x[0] + r * t->width[0], t->x[1], t->x[2], t->rows[1], t->width[0], q);
        *out -= 0.25 * q[t->word[r]];
    }
}

static struct variable *hard_run(struct trial *t, struct tape *tape, struct variable **x, double *sum)
{
    const struct buffer at = sum_at(tape);
    assert_int_equal(loss_hard(tape, x[0], x[1], x[2], t->word, 0.25f, at), 0);
    *sum = sum_of(tape, at);
    return NULL;
}

static void hard_setup(struct trial *t)
{
    const int rows = between(t, 1, 60), width = between(t, 1, 30), vocab = between(t, 1, 60);
    add_input(t, rows, width, 1);
    add_input(t, vocab, width, 1);
    add_input(t, 1, vocab, 1);
    for (int r = 0; r < rows; r++)
        t->word[r] = between(t, 0, vocab - 1);
    t->reference = hard_reference;
    t->run = hard_run;
}

/* More rows than have their logits in memory at the same time. */
static void many_hard_setup(struct trial *t)
{
    const int rows = between(t, 513, 600), width = between(t, 1, 3), vocab = between(t, 2, 5);
    add_input(t, rows, width, 1);
    add_input(t, vocab, width, 1);
    add_input(t, 1, vocab, 1);
    for (int r = 0; r < rows; r++)
        t->word[r] = between(t, 0, vocab - 1);
    t->reference = hard_reference;
    t->run = hard_run;
}

static void hard(void **state) { (void)state, rounds("hard", hard_setup), rounds("many hard", many_hard_setup); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear), cmocka_unit_test(sums_and_joins), cmocka_unit_test(selections), cmocka_unit_test(norms),
        cmocka_unit_test(silu_and_gelu), cmocka_unit_test(gates), cmocka_unit_test(mixtures), cmocka_unit_test(attention),
        cmocka_unit_test(smooth), cmocka_unit_test(soft), cmocka_unit_test(hard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
