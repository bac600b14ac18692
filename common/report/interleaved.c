#include "common/report/interleaved.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/report/summary.h"
#include "common/report/table.h"

enum verdict { UNDECIDED, HOLDS, SLOWER };
static const char *const verdicts[] = {"undecided", "holds", "slower"};

enum { BEFORE, NOW, SIDES };

/* The measurements of a prompt under one setting. */
struct text_times {
    bool seen, alike;                   /* alike: all runs so far had the same iterations */
    size_t steps;
    int *emitted;                       /* [steps] tokens emitted by each iteration */
    double tokens;
    double *min_s[SIDES];               /* [steps] minimum seconds of each iteration in this block; infinite: none so far */
    double min_s_per_token[SIDES];      /* minimum seconds per token */
};

struct round {
    double tokens[SIDES], seconds[SIDES];
};

struct row {
    char *name;
    struct text_times *texts;           /* [prompts] */
    struct round *rounds;               /* [rounds] as measured */
    struct round *blocks;               /* [block_count] minimum seconds */
    struct signed_rank ratio, measured; /* estimates over blocks and over rounds at the last look before the verdict;
                                         * logarithms */
    size_t block_count, block_room, compared, identical;
    int verdict;
};

struct interleaved {
    double limit;
    int rounds, rounds_max, per_block;
    int looks, next_look;               /* next_look: number of blocks at the next look */
    int prompts;
    bool *now_first;                    /* [rounds_max] */
    struct row *rows;
    size_t count, room;
    int alone;                          /* number of settings in only one of the programs */
};

int interleaved_open(struct interleaved **out, double limit, int repetitions, int rounds, struct err *err)
{
    struct interleaved *made = mem_alloc(1, sizeof *made, err);
    if (!made || !(made->now_first = mem_alloc((size_t)rounds, sizeof *made->now_first, err))) {
        mem_free(&made);
        return -1;
    }
    made->limit = limit;
    made->rounds_max = rounds;
    made->per_block = (INTERLEAVED_RUNS + repetitions - 1) / repetitions;
    made->next_look = INTERLEAVED_LOOK;
    *out = made;
    return 0;
}

void interleaved_close(struct interleaved **address)
{
    struct interleaved *of = *address;
    if (!of)
        return;
    for (size_t i = 0; i < of->count; i++) {
        struct row *row = &of->rows[i];
        for (int p = 0; row->texts && p < of->prompts; p++) {
            mem_free(&row->texts[p].emitted);
            mem_free(&row->texts[p].min_s[BEFORE]);
            mem_free(&row->texts[p].min_s[NOW]);
        }
        mem_free(&row->name);
        mem_free(&row->texts);
        mem_free(&row->rounds);
        mem_free(&row->blocks);
    }
    mem_free(&of->rows);
    mem_free(&of->now_first);
    mem_free(address);
}

/* ---- adding a round ---- */

static int find_setting(const struct measurements *all, int stream, const char *name)
{
    for (size_t i = 0; i < all->setting_count; i++)
        if (all->settings[i].stream == stream && !strcmp(all->settings[i].name, name))
            return (int)i;
    return -1;
}

static int add_row(struct interleaved *of, const char *name, struct err *err)
{
    if (mem_grow(&of->rows, &of->room, of->count + 1, sizeof *of->rows, err))
        return -1;
    struct row *row = &of->rows[of->count++];
    *row = (struct row){0};
    return (row->name = mem_string(name, err)) &&
           (row->texts = mem_alloc((size_t)of->prompts, sizeof *row->texts, err)) &&
           (row->rounds = mem_alloc((size_t)of->rounds_max, sizeof *row->rounds, err)) ? 0 : -1;
}

/* The first round defines the settings. */
static int add_rows(struct interleaved *of, const struct measurements *all, struct err *err)
{
    of->prompts = all->prompts;
    for (size_t i = 0; i < all->setting_count; i++) {
        const struct measured_setting *setting = &all->settings[i];
        bool paired = find_setting(all, !setting->stream, setting->name) >= 0;
        of->alone += !paired;
        if (paired && setting->stream == BEFORE && add_row(of, setting->name, err))
            return -1;
    }
    return of->count ? 0 : err_set(err, ERR_INPUT, "the two builds have no setting in common; give both the same suite");
}

static void forget_block(struct text_times *text)
{
    for (int side = BEFORE; side <= NOW; side++) {
        text->min_s_per_token[side] = INFINITY;
        for (size_t i = 0; i < text->steps; i++)
            text->min_s[side][i] = INFINITY;
    }
}

static int allocate_steps(struct text_times *text, const struct measured_step *step, size_t steps, struct err *err)
{
    size_t room = steps ? steps : 1;
    if (!(text->emitted = mem_alloc(room, sizeof *text->emitted, err)) ||
        !(text->min_s[BEFORE] = mem_alloc(room, sizeof(double), err)) ||
        !(text->min_s[NOW] = mem_alloc(room, sizeof(double), err)))
        return -1;
    text->seen = text->alike = true;
    text->steps = steps;
    for (size_t i = 0; i < steps; i++) {
        text->emitted[i] = step[i].emitted;
        text->tokens += step[i].emitted;
    }
    forget_block(text);
    return 0;
}

static int add_sample(struct row *row, struct round *round, int side, const struct measurements *all,
                      const struct measured_sample *sample, struct err *err)
{
    struct text_times *text = &row->texts[sample->prompt];
    const struct measured_step *step = &all->steps[sample->first_step];
    double tokens = 0, seconds = 0;
    if (!text->seen && allocate_steps(text, step, sample->steps, err))
        return -1;
    text->alike &= sample->steps == text->steps;
    for (size_t i = 0; i < sample->steps; i++) {
        text->alike = text->alike && step[i].emitted == text->emitted[i];
        if (text->alike)
            text->min_s[side][i] = fmin(text->min_s[side][i], 1e-6 * step[i].us);
        tokens += step[i].emitted;
        seconds += 1e-6 * step[i].us;
    }
    if (tokens > 0)
        text->min_s_per_token[side] = fmin(text->min_s_per_token[side], seconds / tokens);
    round->tokens[side] += tokens;
    round->seconds[side] += seconds;
    return 0;
}

static int add_samples(struct interleaved *of, struct row *row, const struct measurements *all, struct err *err)
{
    const int setting[] = { find_setting(all, BEFORE, row->name), find_setting(all, NOW, row->name) };
    struct round *round = &row->rounds[of->rounds];
    if (setting[BEFORE] < 0 || setting[NOW] < 0)
        return err_set(err, ERR_INPUT, "setting '%s' is missing from this round, although earlier rounds have it", row->name);
    for (size_t i = 0; i < all->sample_count; i++)
        for (int side = BEFORE; side <= NOW; side++)
            if (all->samples[i].setting == setting[side] && add_sample(row, round, side, all, &all->samples[i], err))
                return -1;
    if (!(round->seconds[BEFORE] > 0) || !(round->seconds[NOW] > 0))
        return err_set(err, ERR_INPUT, "setting '%s': its answers have only one token, so there is no iteration to measure; "
                       "set \"max-tokens\" to at least 2", row->name);
    summary_outputs(all, setting[NOW], setting[BEFORE], &row->compared, &row->identical);
    return 0;
}

/* Ends a block: sums the minimum seconds of all texts that both programs have. */
static int close_block(struct interleaved *of, struct row *row, struct err *err)
{
    struct round block = {0};
    if (mem_grow(&row->blocks, &row->block_room, row->block_count + 1, sizeof *row->blocks, err))
        return -1;
    for (int p = 0; p < of->prompts; p++) {
        struct text_times *text = &row->texts[p];
        double seconds[SIDES] = {0};
        if (!text->seen || isinf(text->min_s_per_token[BEFORE]) || isinf(text->min_s_per_token[NOW]))
            continue;
        for (int side = BEFORE; side <= NOW; side++) {
            for (size_t i = 0; text->alike && i < text->steps; i++)
                seconds[side] += text->min_s[side][i];
            block.seconds[side] += text->alike ? seconds[side] : text->min_s_per_token[side] * text->tokens;
            block.tokens[side] += text->tokens;
        }
        forget_block(text);
    }
    row->blocks[row->block_count++] = block;
    return 0;
}

/* ---- decisions ---- */

static double floor_of(const struct interleaved *of) { return log1p(-of->limit); }

/* Computes the bounds of the logarithms of the speed now over before. */
static int bounds_of(const struct round *rounds, size_t count, double error_low, double error_high, struct signed_rank *out,
                     struct err *err)
{
    double *ratio = mem_alloc(count ? count : 1, sizeof *ratio, err);
    if (!ratio)
        return -1;
    for (size_t i = 0; i < count; i++) {
        const double *tokens = rounds[i].tokens, *seconds = rounds[i].seconds;
        ratio[i] = log(tokens[NOW] / seconds[NOW]) - log(tokens[BEFORE] / seconds[BEFORE]);
    }
    int rc = signed_rank(ratio, count, error_low, error_high, out, err);
    mem_free(&ratio);
    return rc;
}

/* Compares all undecided settings. Look n has the share 1 / (n (n + 1)) of the allowed errors: all shares together are 1. */
static int look(struct interleaved *of, struct err *err)
{
    const double number = ++of->looks, share = 1 / (number * (number + 1)), floor = floor_of(of);
    double holds = share * INTERLEAVED_HOLDS_ERROR, slower = share * INTERLEAVED_SLOWER_ERROR / (double)of->count;
    for (size_t i = 0; i < of->count; i++) {
        struct row *row = &of->rows[i];
        if (row->verdict != UNDECIDED)
            continue;
        if (bounds_of(row->blocks, row->block_count, holds, slower * (1 - INTERLEAVED_MEASURED_SHARE), &row->ratio, err) ||
            bounds_of(row->rounds, (size_t)of->rounds, holds, slower * INTERLEAVED_MEASURED_SHARE, &row->measured, err))
            return -1;
        if (row->ratio.high < floor || row->measured.high < floor)
            row->verdict = SLOWER;
        else if (row->ratio.low >= floor)
            row->verdict = HOLDS;
    }
    return 0;
}

int interleaved_add(struct interleaved *of, const struct measurements *all, bool now_first, struct err *err)
{
    if (!of->rounds && add_rows(of, all, err))
        return -1;
    if (all->prompts != of->prompts)
        return err_set(err, ERR_INPUT, "this round has %d prompts, but earlier rounds had %d", all->prompts, of->prompts);
    for (size_t i = 0; i < of->count; i++)
        if (add_samples(of, &of->rows[i], all, err))
            return -1;
    of->now_first[of->rounds++] = now_first;
    bool whole = of->rounds % of->per_block == 0, last = of->rounds == of->rounds_max;
    for (size_t i = 0; whole && i < of->count; i++)
        if (close_block(of, &of->rows[i], err))
            return -1;
    int blocks = of->rounds / of->per_block;
    if (!last && (!whole || blocks < of->next_look))
        return 0;
    of->next_look = (3 * blocks + 1) / 2;
    return look(of, err);
}

static enum verdict verdict_of(const struct interleaved *of)
{
    size_t holds = 0;
    for (size_t i = 0; i < of->count; i++) {
        if (of->rows[i].verdict == SLOWER)
            return SLOWER;
        holds += of->rows[i].verdict == HOLDS;
    }
    return of->count && holds == of->count && !of->alone ? HOLDS : UNDECIDED;
}

bool interleaved_decided(const struct interleaved *of)
{
    size_t holds = 0;
    for (size_t i = 0; i < of->count; i++)
        holds += of->rows[i].verdict == HOLDS;
    return verdict_of(of) == SLOWER || (of->count && holds == of->count);
}

/* Estimates how many rounds a setting needs in total: bounds narrow with the root of the number of rounds. 0: too many. */
static int rounds_needed(const struct interleaved *of, const struct row *row)
{
    double floor = floor_of(of), apart = row->ratio.middle - floor;
    double wide = apart > 0 ? row->ratio.middle - row->ratio.low : row->ratio.high - row->ratio.middle;
    double blocks = (double)row->block_count, wanted;
    if (blocks < INTERLEAVED_LOOK)
        wanted = INTERLEAVED_LOOK;
    else if (isinf(wide))
        wanted = 2 * blocks;
    else
        wanted = fmax(1.2 * blocks * wide * wide / (apart * apart), blocks + 1);
    wanted = ceil(wanted) * of->per_block;
    return wanted <= INTERLEAVED_ROUNDS_MAX ? (int)wanted : 0;
}

static int refuse(const struct interleaved *of, struct err *err)
{
    const struct row *slowest = NULL;
    int needed = 0;
    for (size_t i = 0; i < of->count; i++) {
        const struct row *row = &of->rows[i];
        int mine = row->verdict == UNDECIDED ? rounds_needed(of, row) : 0;
        if (row->verdict == UNDECIDED && (!slowest || !mine || (needed && mine > needed))) {
            slowest = row;
            needed = mine;
        }
    }
    if (!slowest)
        return err_set(err, ERR_NO_ANSWER, "%d setting%s only one of the two builds; the common settings are not slower",
                       of->alone,
                       of->alone == 1 ? " is in" : "s are in");
    if (!needed)
        return err_set(err, ERR_NO_ANSWER, "undecided after %d rounds: '%s' runs at %.3f times the earlier speed, and more "
                       "than %d rounds are needed to distinguish that from %.4g; give another --limit, longer answers or a "
                       "quieter machine", of->rounds, slowest->name, exp(slowest->ratio.middle), INTERLEAVED_ROUNDS_MAX,
                       1 - of->limit);
    return err_set(err, ERR_NO_ANSWER, "undecided after %d rounds: '%s' runs at %.3f times the earlier speed; about %d more "
                   "rounds are needed for a verdict within %.4g %%: give --rounds %d", of->rounds, slowest->name,
                   exp(slowest->ratio.middle),
                   needed - of->rounds, 100 * of->limit, needed);
}

int interleaved_answer(const struct interleaved *of, struct err *err)
{
    if (verdict_of(of) == HOLDS)
        return 0;
    for (size_t i = 0; i < of->count; i++) {
        const struct row *row = &of->rows[i];
        bool blocks = row->ratio.high < floor_of(of);
        if (row->verdict == SLOWER)
            return err_set(err, ERR_ANSWER_NO, "setting '%s' is slower: %.3f times the earlier speed%s, at most %.3f",
                           row->name,
                           exp(blocks ? row->ratio.middle : row->measured.middle), blocks ? "" : " as measured",
                           exp(blocks ? row->ratio.high : row->measured.high));
    }
    return refuse(of, err);
}

/* ---- output ---- */

static struct round sum_of(const struct interleaved *of, const struct row *row)
{
    struct round sum = {0};
    for (int r = 0; r < of->rounds; r++)
        for (int side = BEFORE; side <= NOW; side++) {
            sum.tokens[side] += row->rounds[r].tokens[side];
            sum.seconds[side] += row->rounds[r].seconds[side];
        }
    return sum;
}

static int bounds_cell(struct table *table, const struct signed_rank *bounds, struct err *err)
{
    return isinf(bounds->low) || isinf(bounds->high) ? table_cell(table, err, "%s", "")
           : table_cell(table, err, "%.3f-%.3f", exp(bounds->low), exp(bounds->high));
}

static int row_cells(struct table *table, const struct interleaved *of, const struct row *row, struct err *err)
{
    struct round sum = sum_of(of, row);
    return table_cell(table, err, "%s", row->name) ||
           table_number(table, sum.tokens[BEFORE] / sum.seconds[BEFORE], 1, err) ||
           table_number(table, sum.tokens[NOW] / sum.seconds[NOW], 1, err) ||
           table_number(table, exp(row->measured.middle), 3, err) || bounds_cell(table, &row->measured, err) ||
           table_number(table, exp(row->ratio.middle), 3, err) || bounds_cell(table, &row->ratio, err) ||
           table_cell(table, err, "%s", verdicts[row->verdict]) ? -1 : 0;
}

int interleaved_text(struct text *out, const struct interleaved *of, struct err *err)
{
    static const char *const titles[] = {"setting", "before", "now", "measured", "bounds", "ratio", "bounds", "verdict"};
    struct table table;
    int rc = -1;
    table_start(&table, titles, "lrrrrrrl");
    for (size_t i = 0; i < of->count; i++)
        if (row_cells(&table, of, &of->rows[i], err))
            goto done;
    if (table_write(&table, TABLE_TEXT, out, err))
        goto done;
    for (size_t i = 0; i < of->count; i++) {
        const struct row *row = &of->rows[i];
        if (row->identical < row->compared &&
            text_printf(out, err, "%s: %zu of %zu texts differ\n", row->name, row->compared - row->identical, row->compared))
            goto done;
    }
    text_make_printable(out);
    rc = text_printf(out, err, "%d round%s; before, now: tokens a second; measured: their ratio; ratio: that of the least "
                     "times in %d run%s; limit: %.4g %%\n", of->rounds, numeral_plural(of->rounds), of->per_block,
                     numeral_plural(of->per_block), 100 * of->limit);
done:
    table_free(&table);
    return rc;
}

static int put_times(struct text *out, const char *type, const char *name, size_t number, const char *first,
                     const struct round *round, struct err *err)
{
    return json_line(out, json_pack("{s:s, s:s, s:I, s:s?, s:o, s:o, s:o, s:o}", "type", type, "setting", name, "number",
                                    (json_int_t)number, "first", first, "base_tokens", json_finite(round->tokens[BEFORE]),
                                    "base_seconds", json_finite(round->seconds[BEFORE]), "tokens",
                                    json_finite(round->tokens[NOW]), "seconds", json_finite(round->seconds[NOW])), err);
}

static int put_row(struct text *out, const struct interleaved *of, const struct row *row, struct err *err)
{
    struct round sum = sum_of(of, row);
    for (int r = 0; r < of->rounds; r++)
        if (put_times(out, "round", row->name, (size_t)r + 1, of->now_first[r] ? "now" : "base", &row->rounds[r], err))
            return -1;
    for (size_t b = 0; b < row->block_count; b++)
        if (put_times(out, "block", row->name, b + 1, NULL, &row->blocks[b], err))
            return -1;
    return json_line(out, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:s}", "type", "row",
                                    "setting", row->name, "base_tokens_per_s",
                                    json_finite(sum.tokens[BEFORE] / sum.seconds[BEFORE]), "tokens_per_s",
                                    json_finite(sum.tokens[NOW] / sum.seconds[NOW]),
                                    "measured", json_finite(exp(row->measured.middle)),
                                    "measured_low", json_finite(exp(row->measured.low)),
                                    "measured_high", json_finite(exp(row->measured.high)),
                                    "ratio", json_finite(exp(row->ratio.middle)),
                                    "ratio_low", json_finite(exp(row->ratio.low)),
                                    "ratio_high", json_finite(exp(row->ratio.high)), "compared", (json_int_t)row->compared,
                                    "identical", (json_int_t)row->identical, "verdict", verdicts[row->verdict]), err);
}

int interleaved_json(struct text *out, const struct interleaved *of, struct err *err)
{
    struct err answer = {0};
    bool judged = !interleaved_answer(of, &answer);
    for (size_t i = 0; i < of->count; i++)
        if (put_row(out, of, &of->rows[i], err))
            return -1;
    return json_line(out, json_pack("{s:s, s:s, s:f, s:i, s:i, s:i, s:i, s:s?}", "type", "verdict", "verdict",
                                    verdicts[verdict_of(of)], "limit", of->limit, "rounds", of->rounds, "rounds_per_block",
                                    of->per_block, "looks", of->looks, "alone", of->alone, "reason",
                                    judged ? NULL : answer.text), err);
}
