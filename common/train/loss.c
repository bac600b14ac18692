#include "common/train/loss.h"

#include <math.h>
#include <string.h>

#include "common/train/product.h"
#include "common/train/stored.h"
#include "common/train/vector.h"

/* Logits of so many rows are there at once: many, as each time all weights of the head are read. */
enum { LOGITS = 12 << 20, ROWS_MAX = 512, ROWS_MIN = 16 };

static int chunk_rows(int vocab)
{
    const int rows = LOGITS / vocab;
    return rows < ROWS_MIN ? ROWS_MIN : rows > ROWS_MAX ? ROWS_MAX : rows;
}

/* ---- smooth L1 ---- */

struct smooth {
    const struct judged *judged;
    const float *target;
    double *loss;               /* [rows] */
};

static void run_smooth(void *context, size_t begin, size_t end)
{
    const struct smooth *s = context;
    const struct variable *out = s->judged->out;
    const size_t width = (size_t)out->width;
    for (size_t row = begin; row < end; row++) {
        s->loss[row] = 0;
        if (s->judged->target_row[row] < 0)
            continue;
        const float *x = out->data + row * width, *t = s->target + (size_t)s->judged->target_row[row] * width;
        float *to = out->gradient ? out->gradient + row * width : NULL;
        const float share = s->judged->scale * s->judged->weight[row] / (float)width;
        double sum = 0;
        for (size_t i = 0; i < width; i++) {
            const float d = x[i] - t[i];
            sum += (double)(fabsf(d) < 1 ? 0.5f * d * d : fabsf(d) - 0.5f);
            if (to)
                to[i] += share * (d > 1 ? 1 : d < -1 ? -1 : d);
        }
        s->loss[row] = (double)s->judged->weight[row] * sum / (double)width;
    }
}

static void add_in_order(double *sum, const double *loss, int rows)
{
    for (int row = 0; row < rows; row++)
        *sum += loss[row];
}

int loss_smooth(struct tape *tape, const struct judged *judged, const float *target)
{
    struct variable *out = judged->out;
    struct smooth s = {judged, target, out ? tape_memory(tape, (size_t)out->rows, sizeof *s.loss) : NULL};
    if (!s.loss)
        return -1;
    tape_spread(tape, (size_t)out->rows, (size_t)out->width, run_smooth, &s);
    add_in_order(judged->sum, s.loss, out->rows);
    return 0;
}

/* ---- rows of logits, and what becomes of them ---- */

struct rows {
    struct tape *tape;
    int count;
    int row[ROWS_MAX];          /* of `out` */
    int target[ROWS_MAX];       /* row of p */
    float weight[ROWS_MAX];
    double loss[ROWS_MAX];
    const int32_t *label;       /* by count; NULL: p */
    const float *p;             /* [..][words] probabilities */
    float *logits;              /* [count][words]; then the gradient */
    float *x;                   /* [count][width] rows of out, then their gradient */
    struct variable *out, *output, *bias;
    float scale;
};

static void gather(float *to, const float *from, const int *row, int count, int width)
{
    for (int i = 0; i < count; i++)
        memcpy(to + (size_t)i * (size_t)width, from + (size_t)row[i] * (size_t)width, (size_t)width * sizeof *to);
}

/* A row's loss, and the gradient of its logits in place of them. */
static void run_row(void *context, size_t begin, size_t end)
{
    struct rows *r = context;
    const size_t words = (size_t)r->output->rows;
    for (size_t i = begin; i < end; i++) {
        float *q = r->logits + i * words;
        const float *p = r->label ? NULL : r->p + (size_t)r->target[i] * words;
        if (r->bias)
            vector_add(q, r->bias->data, words);
        const double expected = r->label ? (double)q[r->label[i]] : vector_dot(p, q, words);
        const float largest = vector_largest(q, words), weight = r->weight[i] * r->scale;
        const double sum = vector_exp(q, words, largest);
        r->loss[i] = (double)r->weight[i] * ((double)largest + log(sum) - expected);
        vector_scale(q, words, (float)((double)weight / sum));
        if (r->label)
            q[r->label[i]] -= weight;
        else
            vector_add_scaled(q, p, words, -weight);
    }
}

static void add_bias(void *context, size_t begin, size_t end)
{
    const struct rows *r = context;
    for (size_t i = 0; i < (size_t)r->count; i++)
        vector_add(r->bias->gradient + begin, r->logits + i * (size_t)r->output->rows + begin, end - begin);
}

/* x W^T, for all of a vocabulary; of a stored matrix block by block. */
static void make_logits(struct thread_pool *pool, float *logits, const struct matrix *x, int rows, struct variable *w)
{
    const int each = w->data ? w->rows : stored_rows(w->stored);
    for (int first = 0; first < w->rows; first += each) {
        const int some = w->rows - first < each ? w->rows - first : each;
        const struct matrix block = {w->data ? w->data : stored_block(w->stored, pool, first), w->width};
        product_run(pool, &(struct product){PRODUCT_ROWS, rows, some, w->width, *x, block, logits + first, w->rows, false});
    }
}

/* dy W, in the order of the blocks. */
static void back_logits(struct thread_pool *pool, float *to, const float *gradient, int rows, struct variable *w)
{
    const int each = w->data ? w->rows : stored_rows(w->stored);
    for (int first = 0; first < w->rows; first += each) {
        const int some = w->rows - first < each ? w->rows - first : each;
        const struct matrix block = {w->data ? w->data : stored_block(w->stored, pool, first), w->width};
        product_run(pool, &(struct product){PRODUCT_PLAIN, rows, w->width, some, {gradient + first, w->rows}, block, to,
                                            w->width, first > 0});
    }
}

static void run_rows(struct rows *r, double *sum)
{
    struct variable *out = r->out, *output = r->output;
    struct thread_pool *pool = tape_pool(r->tape);
    const struct matrix gradient = {r->logits, output->rows}, x = {r->x, out->width};
    gather(r->x, out->data, r->row, r->count, out->width);
    make_logits(pool, r->logits, &x, r->count, output);
    tape_spread(r->tape, (size_t)r->count, (size_t)output->rows * 4, run_row, r);
    add_in_order(sum, r->loss, r->count);
    if (!out->gradient)
        return;
    if (output->gradient)
        product_run(pool, &(struct product){PRODUCT_OUTER, output->rows, out->width, r->count, gradient, {r->x, out->width},
                                            output->gradient, out->width, true});
    if (r->bias && r->bias->gradient)
        tape_spread(r->tape, (size_t)output->rows, (size_t)r->count, add_bias, r);
    back_logits(pool, r->x, r->logits, r->count, output);
    for (int i = 0; i < r->count; i++)
        vector_add(out->gradient + (size_t)r->row[i] * (size_t)out->width, r->x + (size_t)i * (size_t)out->width,
                   (size_t)out->width);
}

/* ---- by labels ---- */

int loss_hard(struct tape *tape, struct variable *out, struct variable *output, struct variable *bias, const int32_t *label,
              float weight, double *sum)
{
    struct rows *r = out ? tape_memory(tape, 1, sizeof *r) : NULL;
    if (!r)
        return -1;
    const int room = chunk_rows(output->rows);
    *r = (struct rows){.tape = tape, .out = out, .output = output, .bias = bias, .scale = 1,
                       .logits = tape_memory(tape, (size_t)room * (size_t)output->rows, sizeof(float)),
                       .x = tape_memory(tape, (size_t)room * (size_t)out->width, sizeof(float))};
    if (!r->logits || !r->x)
        return -1;
    for (int first = 0; first < out->rows; first += room) {
        r->count = out->rows - first < room ? out->rows - first : room;
        r->label = label + first;
        for (int i = 0; i < r->count; i++) {
            r->row[i] = first + i;
            r->weight[i] = weight;
        }
        run_rows(r, sum);
    }
    return 0;
}

/* ---- by the target's own distribution ---- */

struct targets {
    const struct soft_target *of;
    float *logits, *p;          /* [room][vocab]; [room][words], the same where there are no words */
    bool counts[ROWS_MAX];
};

/* p of a row: of the words alone, if its most probable word is one of them. */
static void run_target(void *context, size_t begin, size_t end)
{
    struct targets *t = context;
    const struct soft_target *of = t->of;
    const size_t vocab = (size_t)of->head->rows, words = (size_t)of->words;
    for (size_t i = begin; i < end; i++) {
        float *logits = t->logits + i * vocab, *p = t->p + i * words;
        const float largest = vector_largest(logits, vocab);
        t->counts[i] = !of->word;
        if (of->word) {
            size_t best = 0;
            while (logits[best] != largest && best + 1 < vocab)
                best++;
            for (size_t w = 0; w < words; w++) {
                p[w] = logits[of->word[w]];
                t->counts[i] |= (size_t)of->word[w] == best;
            }
        }
        if (t->counts[i])
            vector_scale(p, words, (float)(1 / vector_exp(p, words, largest)));
    }
}

/* The rows of one judged value that the target's rows row[0 .. count-1] judge, from *next on. Its rows are in the order of
 * theirs. */
static void take_rows(struct rows *r, const struct judged *j, const int *row, const struct targets *t, int count, int *next)
{
    int at = 0;
    r->count = 0;
    for (; *next < j->out->rows; (*next)++) {
        const int wanted = j->target_row[*next];
        if (wanted < 0)
            continue;
        while (at < count && row[at] < wanted)
            at++;
        if (at == count)
            return;
        if (!t->counts[at])
            continue;
        r->row[r->count] = *next;
        r->weight[r->count] = j->weight[*next];
        r->target[r->count++] = at;
    }
}

/* Rows of the target that judge something, ascending. */
static int used_rows(const struct judged *judged, int count, int *out, int rows)
{
    int used = 0;
    memset(out, 0, (size_t)rows * sizeof *out);
    for (int i = 0; i < count; i++)
        for (int row = 0; row < judged[i].out->rows; row++)
            if (judged[i].target_row[row] >= 0)
                out[judged[i].target_row[row]] = 1;
    for (int row = 0; row < rows; row++)
        if (out[row])
            out[used++] = row;
    return used;
}

enum { JUDGED_MAX = 16 };

int loss_soft(struct tape *tape, const struct soft_target *target, const struct judged *judged, int count)
{
    struct rows *r = tape_memory(tape, 1, sizeof *r);
    struct targets *t = tape_memory(tape, 1, sizeof *t);
    int next[JUDGED_MAX] = {0};
    if (!r || !t)
        return -1;
    for (int i = 0; i < count; i++)
        if (!judged[i].out)
            return -1;
    const int room = chunk_rows(target->head->rows), width = judged[0].out->width, states = target->head->width;
    const int rows = judged[0].out->rows;
    int *used = tape_memory(tape, (size_t)rows, sizeof *used);
    float *x = tape_memory(tape, (size_t)room * (size_t)states, sizeof *x);
    *r = (struct rows){.tape = tape, .output = target->output,
                       .logits = tape_memory(tape, (size_t)room * (size_t)target->words, sizeof(float)),
                       .x = tape_memory(tape, (size_t)room * (size_t)width, sizeof(float))};
    *t = (struct targets){.of = target, .logits = tape_memory(tape, (size_t)room * (size_t)target->head->rows, sizeof(float))};
    t->p = target->word ? tape_memory(tape, (size_t)room * (size_t)target->words, sizeof(float)) : t->logits;
    if (!used || !x || !r->logits || !r->x || !t->logits || !t->p)
        return -1;
    const int all = used_rows(judged, count, used, rows);
    for (int first = 0; first < all; first += room) {
        const int some = all - first < room ? all - first : room;
        gather(x, target->states, used + first, some, states);
        make_logits(tape_pool(tape), t->logits, &(struct matrix){x, states}, some, target->head);
        tape_spread(tape, (size_t)some, (size_t)target->head->rows * 4, run_target, t);
        r->p = t->p;
        for (int i = 0; i < count; i++) {
            take_rows(r, &judged[i], used + first, t, some, &next[i]);
            r->out = judged[i].out;
            r->scale = judged[i].scale;
            if (r->count)
                run_rows(r, judged[i].sum);
        }
    }
    return 0;
}
