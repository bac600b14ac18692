#include "common/train/loss.h"

#include <math.h>
#include <string.h>

#include "common/train/product.h"
#include "common/train/stored.h"
#include "common/train/vector.h"

/* Logits of so many rows are there at once: many, as each time all weights of the head are read. */
enum { LOGITS = 12 << 20, ROWS_MAX = 512, ROWS_MIN = 16 };

/* How many of `all` rows are taken at once: about equally many each time. */
static int chunk_rows(int vocab, int all)
{
    const int fit = LOGITS / vocab, rows = fit < ROWS_MIN ? ROWS_MIN : fit > ROWS_MAX ? ROWS_MAX : fit;
    const int chunks = (all + rows - 1) / rows;
    return all ? (all + chunks - 1) / chunks : 1;
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

/* Rows of logits that are to be made. */
struct wanted_logits {
    const float *x;             /* [rows][width of the weights] */
    float *logits;              /* [rows][rows of the weights] */
    int rows;
};

/* x W^T, for all of a vocabulary; of a stored matrix block by block, each of which serves all that is wanted. */
static void make_logits(struct thread_pool *pool, struct variable *w, const struct wanted_logits *wanted, int count)
{
    const int each = w->data ? w->rows : stored_rows(w->stored);
    for (int first = 0; first < w->rows; first += each) {
        const int some = w->rows - first < each ? w->rows - first : each;
        const struct matrix block = {w->data ? w->data : stored_block(w->stored, pool, first), w->width};
        for (int i = 0; i < count; i++)
            product_run(pool, &(struct product){PRODUCT_ROWS, wanted[i].rows, some, w->width, {wanted[i].x, w->width}, block,
                                                wanted[i].logits + first, w->rows, false});
    }
}

/* dy W. The last block comes first: it is the one that logits were made with last, and the first is what the next are made
 * with. */
static void back_logits(struct thread_pool *pool, float *to, const float *gradient, int rows, struct variable *w)
{
    const int each = w->data ? w->rows : stored_rows(w->stored), last = (w->rows - 1) / each * each;
    for (int first = last; first >= 0; first -= each) {
        const int some = w->rows - first < each ? w->rows - first : each;
        const struct matrix block = {w->data ? w->data : stored_block(w->stored, pool, first), w->width};
        product_run(pool, &(struct product){PRODUCT_PLAIN, rows, w->width, some, {gradient + first, w->rows}, block, to,
                                            w->width, first < last});
    }
}

/* The rows of `out` that count, and what their logits are wanted of. */
static struct wanted_logits gather_rows(struct rows *r)
{
    gather(r->x, r->out->data, r->row, r->count, r->out->width);
    return (struct wanted_logits){r->x, r->logits, r->count};
}

/* From logits to losses, and to gradients. */
static void judge_rows(struct rows *r, double *sum)
{
    struct variable *out = r->out, *output = r->output;
    struct thread_pool *pool = tape_pool(r->tape);
    const struct matrix gradient = {r->logits, output->rows};
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

static void run_rows(struct rows *r, double *sum)
{
    const struct wanted_logits wanted = gather_rows(r);
    make_logits(tape_pool(r->tape), r->output, &wanted, 1);
    judge_rows(r, sum);
}

/* ---- by labels ---- */

int loss_hard(struct tape *tape, struct variable *out, struct variable *output, struct variable *bias, const int32_t *label,
              float weight, double *sum)
{
    struct rows *r = out ? tape_memory(tape, 1, sizeof *r) : NULL;
    if (!r)
        return -1;
    const int room = chunk_rows(output->rows, out->rows);
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

/* Which rows of judged[i] these of the target judge. */
static int choose_rows(struct rows *r, const struct judged *judged, const int *row, const struct targets *t, int count,
                       int *next)
{
    take_rows(r, judged, row, t, count, next);
    r->out = judged->out;
    r->scale = judged->scale;
    return r->count;
}

/* Some rows of the target, and all that they judge. Where the same weights make q, the first that is judged gets its logits
 * beside the target's: weights that are stored are then unpacked twice for it, not three times. */
static void run_targets(struct rows *r, struct targets *t, float *x, const int *row, int count, const struct judged *judged,
                        int judged_count, int *next)
{
    const struct soft_target *target = t->of;
    const bool beside = target->output == target->head && !target->word;
    struct wanted_logits wanted[2] = {{x, t->logits, count}};
    gather(x, target->states, row, count, target->head->width);
    for (int i = 0; beside && i < count; i++)
        t->counts[i] = true;
    if (beside && choose_rows(r, judged, row, t, count, next))
        wanted[1] = gather_rows(r);
    make_logits(tape_pool(r->tape), target->head, wanted, wanted[1].rows ? 2 : 1);
    tape_spread(r->tape, (size_t)count, (size_t)target->head->rows * 4, run_target, t);
    if (wanted[1].rows)
        judge_rows(r, judged->sum);
    for (int i = beside; i < judged_count; i++)
        if (choose_rows(r, &judged[i], row, t, count, &next[i]))
            run_rows(r, judged[i].sum);
}

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
    const int width = judged[0].out->width, states = target->head->width, rows = judged[0].out->rows;
    int *used = tape_memory(tape, (size_t)rows, sizeof *used);
    const int all = used ? used_rows(judged, count, used, rows) : 0, room = chunk_rows(target->head->rows, all);
    float *x = tape_memory(tape, (size_t)room * (size_t)states, sizeof *x);
    *r = (struct rows){.tape = tape, .output = target->output,
                       .logits = tape_memory(tape, (size_t)room * (size_t)target->words, sizeof(float)),
                       .x = tape_memory(tape, (size_t)room * (size_t)width, sizeof(float))};
    *t = (struct targets){.of = target, .logits = tape_memory(tape, (size_t)room * (size_t)target->head->rows, sizeof(float))};
    t->p = target->word ? tape_memory(tape, (size_t)room * (size_t)target->words, sizeof(float)) : t->logits;
    if (!used || !x || !r->logits || !r->x || !t->logits || !t->p)
        return -1;
    r->p = t->p;
    for (int first = 0; first < all; first += room)
        run_targets(r, t, x, used + first, all - first < room ? all - first : room, judged, count, next);
    return 0;
}
