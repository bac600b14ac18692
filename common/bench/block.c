#include "common/bench/block.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/instruments/record.h"
#include "common/report/grade.h"
#include "common/stream/bench.h"

enum { WAITING_MAX = 256 };             /* max completed samples that wait for an older one before they are written */

/* A sample that is being decoded, or a complete one that waits to be written. */
struct slot {
    const struct run *run;
    struct decoder *decoder;            /* NULL: the sample is complete, or the slot is free */
    const struct prompt *prompt;
    struct decode_prompt asked;
    struct decode_recorder recorder;
    struct text held;                   /* records that wait until all older samples are written */
    size_t number;                      /* index of the prompt in the block */
};

struct run {
    const struct block *block;
    struct slot *slot;                  /* [slots] sample `number` is in slot number % slots */
    size_t slots, begun, written;       /* numbers of samples; those from `written` up to `begun`, excluded, have slots */
    bool busy[DECODERS_MAX];            /* decoders with a sample */
};

/* Directs the following records to the stream, or to the slot if older samples are incomplete. */
static void direct_records(struct slot *slot)
{
    writer_hold(slot->run->block->writer, slot->number == slot->run->written ? NULL : &slot->held);
}

static int on_begin(void *context, double prefill_s, struct err *err)
{
    struct slot *slot = context;
    direct_records(slot);
    return decode_record_begin(&slot->recorder, slot->prompt, prefill_s, err);
}

static int on_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    struct slot *slot = context;
    direct_records(slot);
    return decode_record_iteration(&slot->recorder, iteration, err);
}

/* Grades the answer and writes the grade, if the prompt has an expected answer. */
static int put_grade(struct slot *slot, const struct decode_result *result, struct err *err)
{
    const struct block *block = slot->run->block;
    const struct decode_settings *settings = &block->ready->settings;
    const struct prompt *prompt = slot->prompt;
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
    const struct bench_grade record = {.sequence = slot->recorder.sequence, .correct = correct, .rule = grade_rule_names[rule],
                                       .score = score, .expected = prompt->answer, .answer = found.data};
    rc = rc || writer_record(block->writer, &bench_grade_kind, &record, err) ? -1 : 0;
    text_free(&room);
    text_free(&found);
    return rc;
}

/* Copies the next sample from the resumed stream. */
static int copy_sample(struct run *run, struct err *err)
{
    const struct block *block = run->block;
    const struct prompt *prompt = &block->prompts[run->begun];
    const char *rule = grade_rule_names[suite_grade_rule(block->suite, prompt->task, prompt->answer)];
    run->begun = ++run->written;
    progress_step(block->bar, 1);
    if (resume_sample(block->resume, block->setting, block->repeat, prompt, rule, block->writer, err))
        return -1;
    /* If the old stream stays on disk until this one replaces it, a copied beginning need not survive a signal. */
    return block->in_place ? 0 : writer_keep(block->writer, err);
}

/* Adds the prompt and the setting to an error; returns -1. */
static int at_sample(const struct slot *slot, struct err *err)
{
    const struct block *block = slot->run->block;
    return err_at(err, "%s: setting '%s'", slot->prompt->where, block->suite->settings[block->setting].name);
}

/* Begins the next sample. All settings use the same random numbers; repetitions, too, unless draws are fresh. */
static int begin_sample(struct run *run, struct decoder *decoder, struct err *err)
{
    const struct block *block = run->block;
    struct slot *slot = &run->slot[run->begun % run->slots];
    const struct decode_sink sink = {.context = slot, .begin = on_begin, .iteration = on_iteration};
    const struct bench_sample record = {.sequence = block->sequence + (int64_t)run->begun, .setting = block->setting,
                                        .repeat = block->repeat};
    const struct prompt *prompt = &block->prompts[run->begun];
    *slot = (struct slot){.run = run, .decoder = decoder, .prompt = prompt, .number = run->begun++,
                          .recorder = {.writer = block->writer, .sequence = record.sequence}};
    slot->asked = (struct decode_prompt){.token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                         .max_tokens = prompt->max_tokens,
                                         .sample = block->suite->draws == SUITE_FRESH ? block->repeat : 0,
                                         .sequence = record.sequence, .task = prompt->task};
    decoder_forget(decoder);
    direct_records(slot);
    if (writer_record(block->writer, &bench_sample_kind, &record, err))
        return -1;
    return decoder_begin(decoder, &slot->asked, &sink, err) ? at_sample(slot, err) : 0;
}

/* Begins samples while there are prompts, free decoders and free slots. */
static int begin_samples(struct run *run, struct err *err)
{
    const struct block *block = run->block;
    while (run->begun < block->count && resume_samples(block->resume))
        if (copy_sample(run, err))
            return -1;
    for (int i = 0; i < block->ready->texts; i++) {
        if (run->busy[i] || run->begun == block->count || run->begun - run->written == run->slots)
            continue;
        if (begin_sample(run, block->ready->decoders[i], err))
            return -1;
        run->busy[i] = true;
    }
    return 0;
}

/* Runs one iteration of all texts in decoding. */
static int step(struct run *run, struct err *err)
{
    struct decoder *decoder[DECODERS_MAX];
    const struct slot *of[DECODERS_MAX];
    int count = 0, failed;
    for (size_t i = run->written; i < run->begun; i++) {
        const struct slot *slot = &run->slot[i % run->slots];
        if (!slot->decoder || decoder_ends(slot->decoder))
            continue;
        of[count] = slot;
        decoder[count++] = slot->decoder;
    }
    if (!count || !decoders_step(decoder, count, &failed, err))
        return 0;
    return failed < 0 ? -1 : at_sample(of[failed], err);
}

/* Ends a sample, writes its last records and frees its decoder for the next one. */
static int end_sample(struct run *run, struct slot *slot, struct err *err)
{
    struct decode_result result;
    decoder_end(slot->decoder, &result);
    direct_records(slot);
    if (decode_record_done(&slot->recorder, slot->prompt, &result, err) || put_grade(slot, &result, err))
        return -1;
    for (int i = 0; i < run->block->ready->texts; i++)
        run->busy[i] &= run->block->ready->decoders[i] != slot->decoder;
    slot->decoder = NULL;
    progress_step(run->block->bar, 1);
    return 0;
}

/* Ends completed samples, and writes all that no older incomplete sample precedes. */
static int end_samples(struct run *run, struct err *err)
{
    struct writer *writer = run->block->writer;
    for (size_t i = run->written; i < run->begun; i++) {
        struct slot *slot = &run->slot[i % run->slots];
        if (slot->decoder && decoder_ends(slot->decoder) && end_sample(run, slot, err))
            return -1;
    }
    while (run->written < run->begun) {
        struct slot *oldest = &run->slot[run->written % run->slots];
        if (oldest->held.length) {
            writer_hold(writer, NULL);
            if (writer_release(writer, &oldest->held, err))
                return -1;
            text_free(&oldest->held);
        }
        if (oldest->decoder)
            break;
        run->written++;
        if (writer_keep(writer, err))
            return -1;
    }
    return 0;
}

int block_run(const struct block *block, struct err *err)
{
    struct run run = {.block = block, .slots = (size_t)block->ready->texts + WAITING_MAX};
    int rc = -1;
    run.slots = run.slots < block->count ? run.slots : block->count;
    if (!block->count)
        return 0;
    if (!(run.slot = mem_alloc(run.slots, sizeof *run.slot, err)))
        return -1;
    while (run.written < block->count)
        if (begin_samples(&run, err) || step(&run, err) || end_samples(&run, err))
            goto done;
    rc = 0;
done:
    writer_hold(block->writer, NULL);
    for (size_t i = 0; i < run.slots; i++)
        text_free(&run.slot[i].held);
    mem_free(&run.slot);
    return rc;
}
