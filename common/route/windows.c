#include "common/route/windows.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/route/counts.h"
#include "common/route/speculation.h"
#include "common/stream/coact.h"

struct open_text {
    int64_t sequence, tokens;
    uint8_t *now, *before;      /* [moe_layers][max][experts] f of the current window and of the previous one */
};

struct windows {
    struct analysis base;
    struct analysis_setup setup;
    int moe_layers, experts, top_k, max;
    int64_t closed[WINDOWS_MAX + 1], pairs[WINDOWS_MAX + 1];
    int64_t *seen;              /* [moe_layers], each [width - 1][experts][width + 1]: windows by f */
    int64_t *joint;             /* [moe_layers], each [width - 1][width + 1][width + 1]: experts by f and next f */
    uint8_t *map;               /* [2][moe_layers][experts][experts] */
    int64_t mapped;             /* sequence of the map; -1: none yet */
    int map_count[2];
    struct open_text *texts;    /* open texts first; the arrays of closed texts are reused */
    size_t open, room;
};

static size_t seen_before(const struct windows *w, int width)
{
    return (size_t)w->experts * (size_t)((width - 1) * (width + 2) / 2);
}

static size_t joint_before(int width)
{
    size_t cells = 0;
    for (int v = 1; v < width; v++)
        cells += (size_t)(v + 1) * (size_t)(v + 1);
    return cells;
}

static int64_t *seen_of(const struct windows *w, int layer, int width)
{
    return w->seen + (size_t)layer * seen_before(w, w->max + 1) + seen_before(w, width);
}

static int64_t *joint_of(const struct windows *w, int layer, int width)
{
    return w->joint + (size_t)layer * joint_before(w->max + 1) + joint_before(width);
}

static const struct windows *windows_of(const struct analysis *analysis) { return (const struct windows *)analysis; }

static void free_windows(struct analysis *analysis)
{
    struct windows *w = (struct windows *)analysis;
    for (size_t i = 0; i < w->room; i++) {
        mem_free(&w->texts[i].now);
        mem_free(&w->texts[i].before);
    }
    mem_free(&w->texts);
    mem_free(&w->seen);
    mem_free(&w->joint);
    mem_free(&w->map);
    mem_free(&w);
}

static int open_windows(struct analysis **out, const struct analysis_setup *setup, const struct stream_model *model,
                        struct err *err)
{
    struct windows *w = mem_alloc(1, sizeof *w, err);
    if (!w)
        return -1;
    size_t layers = (size_t)model->moe_layers, experts = (size_t)model->experts;
    int max = setup->draft_length + 1;
    *w = (struct windows){.setup = *setup, .moe_layers = model->moe_layers, .experts = model->experts, .top_k = model->top_k,
                          .max = max, .mapped = -1};
    if (!(w->seen = mem_alloc(layers * seen_before(w, max + 1), sizeof *w->seen, err)) ||
        !(w->joint = mem_alloc(layers * joint_before(max + 1), sizeof *w->joint, err)) ||
        !(w->map = mem_alloc(2 * layers * experts, experts, err))) {
        free_windows(&w->base);
        return -1;
    }
    *out = &w->base;
    return 0;
}

static struct open_text *find_text(struct windows *w, int64_t sequence)
{
    for (size_t i = 0; i < w->open; i++)
        if (w->texts[i].sequence == sequence)
            return &w->texts[i];
    return NULL;
}

static struct open_text *begin_text(struct windows *w, int64_t sequence, struct err *err)
{
    size_t count = (size_t)w->moe_layers * (size_t)w->max * (size_t)w->experts;
    if (mem_grow(&w->texts, &w->room, w->open + 1, sizeof *w->texts, err))
        return NULL;
    struct open_text *text = &w->texts[w->open];
    if ((!text->now && !(text->now = mem_alloc(count, 1, err))) || (!text->before && !(text->before = mem_alloc(count, 1,
                                                                                                                err))))
        return NULL;
    memset(text->now, 0, count);
    text->sequence = sequence;
    text->tokens = 0;
    w->mapped = w->mapped < 0 ? sequence : w->mapped;
    w->open++;
    return text;
}

static void map_window(struct windows *w, int which, int layer, const uint8_t *now)
{
    int at = w->map_count[which];
    uint8_t *map = w->map + ((size_t)which * (size_t)w->moe_layers + (size_t)layer) * (size_t)w->experts * (size_t)w->experts;
    for (int e = 0; e < w->experts && at < w->experts; e++)
        map[(size_t)e * (size_t)w->experts + (size_t)at] = now[e];
}

/* Counts the complete window of this width that ends with the text's last token. */
static void close_window(struct windows *w, struct open_text *text, int width)
{
    size_t E = (size_t)w->experts;
    bool next = text->tokens > width, drawn = text->sequence == w->mapped && (width == 1 || width == w->max);
    for (int layer = 0; layer < w->moe_layers; layer++) {
        size_t at = ((size_t)layer * (size_t)w->max + (size_t)(width - 1)) * E;
        uint8_t *now = text->now + at, *before = text->before + at;
        int64_t *seen = seen_of(w, layer, width), *joint = joint_of(w, layer, width);
        for (size_t e = 0; e < E; e++) {
            seen[e * (size_t)(width + 1) + now[e]]++;
            joint[next ? before[e] * (width + 1) + now[e] : 0] += next;
        }
        if (drawn && width == 1)
            map_window(w, 0, layer, now);
        if (drawn && width == w->max)
            map_window(w, 1, layer, now);
        memcpy(before, now, E);
        memset(now, 0, E);
    }
    w->closed[width]++;
    w->pairs[width] += next;
    w->map_count[0] += drawn && width == 1;
    w->map_count[1] += drawn && width == w->max;
}

static void add_token(struct windows *w, struct open_text *text, const int16_t *expert)
{
    for (int layer = 0; layer < w->moe_layers; layer++)
        for (int width = 1; width <= w->max; width++) {
            uint8_t *now = text->now + ((size_t)layer * (size_t)w->max + (size_t)(width - 1)) * (size_t)w->experts;
            for (int k = 0; k < w->top_k; k++)
                if (expert[layer * w->top_k + k] >= 0)
                    now[expert[layer * w->top_k + k]]++;
        }
    text->tokens++;
    w->base.counted++;
    for (int width = 1; width <= w->max; width++)
        if (text->tokens % width == 0)
            close_window(w, text, width);
}

static int add_windows(struct analysis *analysis, const struct route_tokens *record, struct err *err)
{
    struct windows *w = (struct windows *)analysis;
    struct open_text *text = find_text(w, record->sequence);
    if (w->base.counted > ROUTE_TOKENS_MAX - record->n)
        return err_set(err, ERR_INPUT, "the routes have more than %lld tokens; give fewer streams at a time",
                       (long long)ROUTE_TOKENS_MAX);
    if (!text && !(text = begin_text(w, record->sequence, err)))
        return -1;
    for (int i = 0; i < record->n; i++)
        if (!record->accepted || record->accepted[i])
            add_token(w, text, record->experts + (size_t)i * (size_t)w->moe_layers * (size_t)w->top_k);
    return 0;
}

static void end_windows(struct analysis *analysis, int64_t sequence)
{
    struct windows *w = (struct windows *)analysis;
    struct open_text *text = find_text(w, sequence);
    if (!text)
        return;
    w->open--;
    struct open_text closed = *text;
    *text = w->texts[w->open];
    w->texts[w->open] = closed;
}

/* Adds one expert to the sums of the means. */
struct expert_sums {
    double distinct, entropy, entropy_binomial, snr, snr_binomial, all;
    int moving;                 /* experts whose f varies */
};

static void add_expert(struct expert_sums *sums, const int64_t *seen, int width, int64_t windows)
{
    double chance[WINDOWS_MAX + 1] = {0}, binomial[WINDOWS_MAX + 1], mean = 0, square = 0;
    for (int f = 0; f <= width; f++) {
        chance[f] = (double)seen[f] / (double)windows;
        mean += f * chance[f];
        square += (double)f * f * chance[f];
    }
    double p = mean / width, variance = square - mean * mean;
    for (int f = 0; f <= width; f++)
        binomial[f] = speculation_binomial(width, f, p);
    sums->distinct += 1 - chance[0];
    sums->entropy += speculation_entropy(chance, width + 1);
    sums->entropy_binomial += speculation_entropy(binomial, width + 1);
    sums->all += mean;
    if (variance > 1e-12) {
        sums->snr += mean / sqrt(variance);
        sums->snr_binomial += speculation_snr(width, p);
        sums->moving++;
    }
}

/* Computes the correlation of f and next f from the counts of their pairs. */
static void relate(struct window_facts *out, const int64_t *joint, int width, double pairs)
{
    double a = 0, b = 0, aa = 0, bb = 0, ab = 0, apart = 0;
    for (int f = 0; f <= width; f++)
        for (int g = 0; g <= width; g++) {
            double share = (double)joint[f * (width + 1) + g] / pairs;
            a += f * share;
            b += g * share;
            aa += (double)f * f * share;
            bb += (double)g * g * share;
            ab += (double)f * g * share;
            apart += abs(f - g) * share;
        }
    double spread = sqrt((aa - a * a) * (bb - b * b));
    out->correlation = spread > 1e-12 ? (ab - a * b) / spread : NAN;
    out->change = a + b > 0 ? 2 * apart / (a + b) : NAN;
}

void windows_layer(const struct analysis *analysis, int layer, int width, struct window_facts *out)
{
    const struct windows *w = windows_of(analysis);
    const int64_t *seen = seen_of(w, layer, width);
    struct expert_sums sums = {0};
    *out = (struct window_facts){.windows = w->closed[width], .pairs = w->pairs[width], .distinct = NAN, .entropy = NAN,
                                 .entropy_binomial = NAN, .snr = NAN, .snr_binomial = NAN, .correlation = NAN, .change = NAN};
    if (!out->windows)
        return;
    for (int e = 0; e < w->experts; e++)
        add_expert(&sums, seen + (size_t)e * (size_t)(width + 1), width, out->windows);
    out->distinct = sums.distinct;
    out->entropy = sums.entropy / w->experts;
    out->entropy_binomial = sums.entropy_binomial / w->experts;
    if (sums.moving) {
        out->snr = sums.snr / sums.moving;
        out->snr_binomial = sums.snr_binomial / sums.moving;
    }
    if (out->pairs)
        relate(out, joint_of(w, layer, width), width, (double)out->pairs * w->experts);
}

void windows_faults(const struct analysis *analysis, int layer, int width, double threshold, struct window_faults *out)
{
    const struct windows *w = windows_of(analysis);
    const int64_t *joint = joint_of(w, layer, width);
    double pairs = (double)w->pairs[width] * w->experts;
    *out = (struct window_faults){NAN, NAN, NAN, NAN, NAN};
    if (!w->pairs[width])
        return;
    *out = (struct window_faults){0};
    for (int estimate = 0; estimate <= width; estimate++)
        for (int f = 0; f <= width; f++) {
            double share = (double)joint[estimate * (width + 1) + f] / pairs, margin = speculation_margin(f, threshold);
            bool fault = speculation_fault(f, estimate, threshold), wrong = f != estimate;
            bool within = wrong && abs(f - estimate) <= margin;
            out->margin += margin * share;
            out->wrong += wrong ? share : 0;
            out->within += within ? share : 0;
            out->faults += fault ? share : 0;
            out->contradicted += within && fault ? share : 0;
        }
}

int windows_max(const struct analysis *analysis) { return windows_of(analysis)->max; }

const uint8_t *windows_map(const struct analysis *analysis, int layer, int width, int *count)
{
    const struct windows *w = windows_of(analysis);
    int which = width == w->max;
    *count = w->map_count[which] < w->experts ? w->map_count[which] : w->experts;
    return w->map + ((size_t)which * (size_t)w->moe_layers + (size_t)layer) * (size_t)w->experts * (size_t)w->experts;
}

/* Writes MoE-SpAc eq. 13 to 18, for drafts of 1 to max - 1 tokens. */
static int put_reuse(const struct analysis *analysis, record_put *put, void *context, struct err *err)
{
    const struct windows *w = windows_of(analysis);
    const struct analysis_setup *setup = &w->setup;
    int32_t drafts[WINDOWS_MAX];
    double distinct[WINDOWS_MAX], ratio[WINDOWS_MAX], verified[WINDOWS_MAX], emitted[WINDOWS_MAX], gain[WINDOWS_MAX],
        gain_verified[WINDOWS_MAX];
    for (int layer = 0; layer < w->moe_layers; layer++) {
        struct coact_reuse record = { .layer = layer, .tokens = w->base.counted, .acceptance = setup->acceptance,
                                      .draft_cost = setup->draft_cost, .points = w->max - 1, .drafts = drafts,
                                      .distinct = distinct, .ratio = ratio, .verified = verified, .emitted = emitted,
                                      .gain = gain, .gain_verified = gain_verified };
        struct window_facts one, of;
        windows_layer(analysis, layer, 1, &one);
        double b = one.distinct / w->experts, all = 1 / b;        /* all: cost of a forward that loads all experts, in units
                                                                   * of a forward of one token */
        for (int i = 0, K = 1; K < w->max; i++, K++) {
            double a;
            windows_layer(analysis, layer, K, &of);
            drafts[i] = K;
            distinct[i] = of.distinct;
            a = of.distinct / w->experts;
            ratio[i] = a / b;
            emitted[i] = speculation_tokens(K, setup->acceptance);
            gain[i] = speculation_undrafted(all, b) / speculation_drafted(all, a, setup->draft_cost, K, setup->acceptance);
            windows_layer(analysis, layer, K + 1, &of);
            a = of.distinct / w->experts;
            verified[i] = a / b;
            gain_verified[i] = speculation_undrafted(all, b) /
                               speculation_drafted(all, a, setup->draft_cost, K, setup->acceptance);
        }
        if (put(context, &coact_reuse_kind, &record, err))
            return -1;
    }
    return 0;
}

/* Eq. 19 to 22. */
static int put_signal(const struct analysis *analysis, record_put *put, void *context, struct err *err)
{
    const struct windows *w = windows_of(analysis);
    int32_t width[WINDOWS_MAX];
    int64_t windows[WINDOWS_MAX];
    double entropy[WINDOWS_MAX], entropy_binomial[WINDOWS_MAX], snr[WINDOWS_MAX], snr_binomial[WINDOWS_MAX],
        correlation[WINDOWS_MAX], change[WINDOWS_MAX], at[WINDOWS_MAX], margin[WINDOWS_MAX], wrong[WINDOWS_MAX],
        within[WINDOWS_MAX], faults[WINDOWS_MAX], contradicted[WINDOWS_MAX];
    for (int layer = 0; layer < w->moe_layers; layer++) {
        struct coact_signal record = { .layer = layer, .tokens = w->base.counted, .points = w->max, .width = width,
                                       .windows = windows, .entropy = entropy, .entropy_binomial = entropy_binomial,
                                       .snr = snr, .snr_binomial = snr_binomial, .correlation = correlation, .change = change,
                                       .threshold = at, .margin = margin, .wrong = wrong, .within = within, .faults = faults,
                                       .contradicted = contradicted };
        for (int i = 0; i < w->max; i++) {
            struct window_facts of;
            struct window_faults bad;
            windows_layer(analysis, layer, i + 1, &of);
            at[i] = i ? w->setup.threshold : 0.5;
            windows_faults(analysis, layer, i + 1, at[i], &bad);
            width[i] = i + 1;
            windows[i] = of.windows;
            entropy[i] = of.entropy;
            entropy_binomial[i] = of.entropy_binomial;
            snr[i] = of.snr;
            snr_binomial[i] = of.snr_binomial;
            correlation[i] = of.correlation;
            change[i] = of.change;
            margin[i] = bad.margin;
            wrong[i] = bad.wrong;
            within[i] = bad.within;
            faults[i] = bad.faults;
            contradicted[i] = bad.contradicted;
        }
        if (put(context, &coact_signal_kind, &record, err))
            return -1;
    }
    return 0;
}

const struct analysis_class reuse_analysis = { .kind = &coact_reuse_kind, .consecutive = true, .open = open_windows,
    .tokens = add_windows, .end = end_windows, .put = put_reuse, .free = free_windows };
const struct analysis_class signal_analysis = { .kind = &coact_signal_kind, .consecutive = true, .open = open_windows,
    .tokens = add_windows, .end = end_windows, .put = put_signal, .free = free_windows };
