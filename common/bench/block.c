#include "common/bench/block.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/instruments/record.h"
#include "common/report/grade.h"
#include "common/stream/bench.h"

enum { WAITING_MAX = 256 };             /* max completed samples that wait for an older one before they are written */

/* A sample that is being made, or waits to be written. */
struct lane {
    const struct at_work *all;
    struct decoder *decoder;            /* NULL: the sample is complete, or the lane is free */
    const struct prompt *prompt;
    struct decode_prompt asked;
    struct decode_recorder recorder;
    struct text held;                   /* records that wait */
    size_t number;                      /* of the prompt in the block */
};

struct at_work {
    const struct block *block;
    struct lane *lane;                  /* [lanes] sample `number` has lane number % lanes */
    size_t lanes, begun, written;       /* samples; those from `written` to before `begun` have lanes */
    bool used[DECODERS_MAX];            /* decoders */
};

/* Directs the following records to the stream, or to the lane if older samples are incomplete. */
static void aim(struct lane *lane)
{
    writer_hold(lane->all->block->writer, lane->number == lane->all->written ? NULL : &lane->held);
}

static int on_begin(void *context, double prefill_s, struct err *err)
{
    struct lane *lane = context;
    aim(lane);
    return decode_record_begin(&lane->recorder, lane->prompt, prefill_s, err);
}

static int on_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    struct lane *lane = context;
    aim(lane);
    return decode_record_iteration(&lane->recorder, iteration, err);
}

static int put_grade(struct lane *lane, const struct decode_result *result, struct err *err)
{
    const struct block *block = lane->all->block;
    const struct decode_settings *settings = &block->ready->settings;
    const struct prompt *prompt = lane->prompt;
    enum grade_rule rule = (enum grade_rule)suite_grade_rule(block->suite, prompt->task, prompt->answer);
    struct text found = {0}, room = {0};
    const char *text;
    bool correct = false;
    double score = NAN;
    bool forced = settings->force_routes || settings->force_accept;        /* forced texts say nothing about the model, so
                                                                            * they are not graded */
    if (!prompt->answer || !result->text || rule == GRADE_NONE || forced)
        return 0;
    int rc = decode_record_text(&text, &room, result, err) || grade_answer(rule, text, prompt->answer, &correct, &score, &found,
                                                                           err);
    const struct bench_grade record = {.sequence = lane->recorder.sequence, .correct = correct, .rule = grade_rule_names[rule],
                                       .score = score, .expected = prompt->answer, .answer = found.data};
    rc = rc || writer_record(block->writer, &bench_grade_kind, &record, err) ? -1 : 0;
    text_free(&room);
    text_free(&found);
    return rc;
}

static int copy_sample(struct at_work *all, struct err *err)
{
    const struct block *block = all->block;
    const struct prompt *prompt = &block->prompts[all->begun];
    const char *rule = grade_rule_names[suite_grade_rule(block->suite, prompt->task, prompt->answer)];
    all->begun = ++all->written;
    progress_step(block->bar, 1);
    if (resume_sample(block->resume, block->setting, block->repeat, prompt, rule, block->writer, err))
        return -1;
    /* If the old stream stays on disk until this one replaces it, a copied beginning need not survive a signal. */
    return block->in_place ? 0 : writer_keep(block->writer, err);
}

static int fault(const struct lane *lane, struct err *err)
{
    const struct block *block = lane->all->block;
    return err_at(err, "%s: setting '%s'", lane->prompt->where, block->suite->settings[block->setting].name);
}

/* Begins the next sample. All settings use the same random numbers; repetitions, too, unless draws are fresh. */
static int begin_sample(struct at_work *all, struct decoder *decoder, struct err *err)
{
    const struct block *block = all->block;
    struct lane *lane = &all->lane[all->begun % all->lanes];
    const struct decode_sink sink = {.context = lane, .begin = on_begin, .iteration = on_iteration};
    const struct bench_sample record = {.sequence = block->sequence + (int64_t)all->begun, .setting = block->setting,
                                        .repeat = block->repeat};
    const struct prompt *prompt = &block->prompts[all->begun];
    *lane = (struct lane){.all = all, .decoder = decoder, .prompt = prompt, .number = all->begun++,
                          .recorder = {.writer = block->writer, .sequence = record.sequence}};
    lane->asked = (struct decode_prompt){.token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                         .max_tokens = prompt->max_tokens,
                                         .sample = block->suite->draws == SUITE_FRESH ? block->repeat : 0,
                                         .sequence = record.sequence, .task = prompt->task};
    decoder_forget(decoder);
    aim(lane);
    if (writer_record(block->writer, &bench_sample_kind, &record, err))
        return -1;
    return decoder_begin(decoder, &lane->asked, &sink, err) ? fault(lane, err) : 0;
}

/* Begins samples while there are prompts, decoders and lanes. */
static int begin_samples(struct at_work *all, struct err *err)
{
    const struct block *block = all->block;
    while (all->begun < block->count && resume_samples(block->resume))
        if (copy_sample(all, err))
            return -1;
    for (int i = 0; i < block->ready->texts; i++) {
        if (all->used[i] || all->begun == block->count || all->begun - all->written == all->lanes)
            continue;
        if (begin_sample(all, block->ready->decoders[i], err))
            return -1;
        all->used[i] = true;
    }
    return 0;
}

/* Runs one iteration of all texts. */
static int step(struct at_work *all, struct err *err)
{
    struct decoder *decoder[DECODERS_MAX];
    const struct lane *of[DECODERS_MAX];
    int count = 0, failed;
    for (size_t i = all->written; i < all->begun; i++) {
        const struct lane *lane = &all->lane[i % all->lanes];
        if (!lane->decoder || decoder_ends(lane->decoder))
            continue;
        of[count] = lane;
        decoder[count++] = lane->decoder;
    }
    if (!count || !decoders_step(decoder, count, &failed, err))
        return 0;
    failed = count == 1 ? 0 : failed;
    return failed < 0 ? -1 : fault(of[failed], err);
}

static int end_sample(struct at_work *all, struct lane *lane, struct err *err)
{
    struct decode_result result;
    decoder_end(lane->decoder, &result);
    aim(lane);
    if (decode_record_done(&lane->recorder, lane->prompt, &result, err) || put_grade(lane, &result, err))
        return -1;
    for (int i = 0; i < all->block->ready->texts; i++)
        all->used[i] &= all->block->ready->decoders[i] != lane->decoder;
    lane->decoder = NULL;
    progress_step(all->block->bar, 1);
    return 0;
}

/* Ends completed samples, and writes those whose turn it is. */
static int end_samples(struct at_work *all, struct err *err)
{
    struct writer *writer = all->block->writer;
    for (size_t i = all->written; i < all->begun; i++) {
        struct lane *lane = &all->lane[i % all->lanes];
        if (lane->decoder && decoder_ends(lane->decoder) && end_sample(all, lane, err))
            return -1;
    }
    while (all->written < all->begun) {
        struct lane *oldest = &all->lane[all->written % all->lanes];
        if (oldest->held.length) {
            writer_hold(writer, NULL);
            if (writer_release(writer, &oldest->held, err))
                return -1;
            text_free(&oldest->held);
        }
        if (oldest->decoder)
            break;
        all->written++;
        if (writer_keep(writer, err))
            return -1;
    }
    return 0;
}

int block_run(const struct block *block, struct err *err)
{
    struct at_work all = {.block = block, .lanes = (size_t)block->ready->texts + WAITING_MAX};
    int rc = -1;
    all.lanes = all.lanes < block->count ? all.lanes : block->count;
    if (!block->count)
        return 0;
    if (!(all.lane = mem_alloc(all.lanes, sizeof *all.lane, err)))
        return -1;
    while (all.written < block->count)
        if (begin_samples(&all, err) || step(&all, err) || end_samples(&all, err))
            goto done;
    rc = 0;
done:
    writer_hold(block->writer, NULL);
    for (size_t i = 0; i < all.lanes; i++)
        text_free(&all.lane[i].held);
    mem_free(&all.lane);
    return rc;
}
