#include "cmd/decode-texts.h"

#include <string.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/engine/engine.h"
#include "common/stream/writer.h"

enum { WAITING_MAX = 1024 };                /* max completed prompts that wait for an older one before they are written */

struct work {
    struct texts *all;
    struct decoder *decoder;                /* NULL: the prompt is complete */
    struct prompt prompt;
    struct decode_prompt asked;             /* the turn that is being decoded */
    struct decode_recorder recorder;
    int64_t reserved;                       /* end of the text numbers that this prompt reserved */
    struct text out, held;                  /* output not yet written: text; records (writer_hold) */
    bool keep;                              /* the waiting records contain completed texts */
};

static bool is_oldest(const struct work *work) { return !work->all->works || work->all->work[0] == work; }

static int put(struct work *work, const char *bytes, size_t count, struct err *err)
{
    struct output *out = work->all->text;
    if (!is_oldest(work))
        return text_put(&work->out, bytes, count, err);
    return output_write(out, bytes, count, err) || output_flush(out, err) ? -1 : 0;
}

/* Returns whether there is a stream, and directs the following records to it or to this prompt's buffer. */
static bool redirect_records(struct work *work)
{
    struct writer *writer = work->recorder.writer;
    if (writer)
        writer_hold(writer, is_oldest(work) ? NULL : &work->held);
    return writer != NULL;
}

static int on_begin(void *context, double prefill_s, struct err *err)
{
    struct work *work = context;
    return redirect_records(work) ? decode_record_begin(&work->recorder, &work->prompt, prefill_s, err) : 0;
}

static int on_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    struct work *work = context;
    progress_step(&work->all->bar, (uint64_t)iteration->record.emitted);
    decode_summary_iteration(&work->all->summary, iteration);
    return redirect_records(work) ? decode_record_iteration(&work->recorder, iteration, err) : 0;
}

static int on_text(void *context, const char *bytes, size_t count, struct err *err)
{
    struct work *work = context;
    return work->all->text && !work->all->json ? put(work, bytes, count, err) : 0;
}

static struct decode_sink sink_of(struct work *work)
{
    return (struct decode_sink){.context = work, .begin = on_begin, .iteration = on_iteration, .text = on_text};
}

/* Converts a result to JSON. Returns NULL if memory is short. */
static json_t *result_to_json(const struct prompt *prompt, const struct decode_result *result)
{
    static const char *const reasons[] = {[FINISH_STOP] = "stop", [FINISH_LENGTH] = "length", [FINISH_ABORT] = "abort"};
    json_t *tokens = json_array();
    json_t *object = json_pack("{s:s, s:s*, s:i, s:o*}", "id", prompt->id, "task", prompt->task, "prompt_tokens",
                               prompt->tokens.n, "tokens", tokens);
    int failed = !tokens || !object;
    for (int i = 0; !failed && i < result->tokens; i++)
        failed = json_array_append_new(tokens, json_integer(result->token[i]));
    if (!failed && result->text)
        failed = json_object_set_new(object, "text", json_stringn(result->text, result->text_bytes));
    if (!failed && prompt->turns != 1)
        failed = json_object_set_new(object, "turn", json_integer(prompt->turn));
    json_t *counts = json_pack("{s:s, s:i, s:i, s:i, s:i}", "finish_reason", reasons[result->finish], "iterations",
                               result->iterations, "num_drafts", result->drafts, "num_draft_tokens", result->draft_tokens,
                               "num_accepted_tokens", result->accepted_tokens);
    if (failed || !counts || json_object_update(object, counts)) {
        json_decref(object);
        object = NULL;
    }
    json_decref(counts);
    return object;
}

static int write_json(struct work *work, const struct decode_result *result, struct err *err)
{
    json_t *object = result_to_json(&work->prompt, result);
    char *line = object ? json_text(object, JSON_COMPACT, err) : NULL;
    int rc = line ? put(work, line, strlen(line), err) : err_memory(err);
    mem_free(&line);
    json_decref(object);
    return rc;
}

/* Writes an answer as token ids, because there is no tokenizer. */
static int write_ids(struct work *work, const struct decode_result *result, struct err *err)
{
    struct text line = {0};
    int rc = 0;
    for (int i = 0; !rc && i < result->tokens; i++)
        rc = text_printf(&line, err, i ? " %d" : "%d", (int)result->token[i]);
    if (!rc && line.length)
        rc = put(work, line.data, line.length, err);
    text_free(&line);
    return rc;
}

static int on_draft(void *context, const struct decode_draft *draft, struct err *err)
{
    struct work *work = context;
    if (stop_asked(work->all->stop))
        return err_set(err, ERR_SIGNAL, "interrupted");
    redirect_records(work);
    return decode_record_draft(&work->recorder, draft, err);
}

/* Writes an answer and its newline; only the newline if the text was already written during decoding. */
static int write_answer(struct work *work, const struct decode_result *result, bool written, struct err *err)
{
    int rc = 0;
    if (!work->all->text)
        return 0;
    if (work->all->json)
        rc = write_json(work, result, err);
    else if (!result->text)
        rc = write_ids(work, result, err);
    else if (!written)
        rc = put(work, result->text, result->text_bytes, err);
    return rc || put(work, "\n", 1, err) ? -1 : 0;
}

/* Counts a completed text. keep: a signal must not discard the records, because a later run can resume from them; not needed
 * while an older stream with these texts is still on disk. */
static int count_text(struct work *work, bool whole, bool keep, struct err *err)
{
    work->recorder.sequence++;
    work->all->finished += whole;
    work->keep |= whole && keep;
    if (!work->keep || !work->recorder.writer || !is_oldest(work))
        return 0;
    work->keep = false;
    return writer_keep(work->recorder.writer, err);
}

/* Ends a text whose answer is complete or was cut short: probes its drafts, writes its last record, and counts it. */
static int finish(struct work *work, const struct decode_result *result, struct err *err)
{
    struct texts *all = work->all;
    struct decode_result written = *result;
    struct err fault = {0};
    if (all->probe && result->finish != FINISH_ABORT &&
        probe_run(all->probe, work->decoder, &work->asked, result, on_draft, work, &fault)) {
        if (fault.code != ERR_SIGNAL) {
            *err = fault;
            return -1;
        }
        written.finish = FINISH_ABORT;             /* a text without all recorded drafts is incomplete in the stream */
    }
    if ((redirect_records(work) && decode_record_done(&work->recorder, &work->prompt, &written, err)) ||
        count_text(work, written.finish != FINISH_ABORT, true, err))
        return -1;
    decode_summary_add(&all->summary, work->prompt.tokens.n, result);
    return write_answer(work, result, true, err);
}

static struct decode_prompt text_of(const struct prompt *prompt, int64_t sequence)
{
    return (struct decode_prompt){.token = prompt->tokens.ids, .tokens = prompt->tokens.n, .max_tokens = prompt->max_tokens,
                                  .sequence = sequence, .task = prompt->task};
}

static int at_prompt(const struct work *work, struct err *err)
{
    return err->code == ERR_INPUT ? err_at(err, "%s", work->prompt.where) : -1;
}

/* Copies a text from the stream of an earlier run. */
static int take_text(struct work *work, struct decode_result *result, struct err *err)
{
    struct texts *all = work->all;
    struct decode_taken taken;
    const bool flush = work->recorder.flush;
    redirect_records(work);
    work->recorder.flush = false;
    if (decode_resume_take(all->resume, &work->prompt, &work->recorder, &taken, err))
        return -1;
    work->recorder.flush = flush;
    if (decoder_replay(work->decoder, &work->asked, taken.token, taken.tokens, result, err))
        return err_at(err, "%s: %s", all->resume_path, work->prompt.where);
    result->iterations = taken.iterations;
    result->drafts = taken.drafts;
    result->draft_tokens = taken.draft_tokens;
    result->accepted_tokens = taken.accepted_tokens;
    return count_text(work, true, !all->in_place, err) || write_answer(work, result, false, err) ? -1 : 0;
}

/* Handles an invalid prompt or turn: an error, or with --keep-going a record and a message. */
static int skip_invalid(struct work *work, const char *id, struct err *err)
{
    struct texts *all = work->all;
    if (!all->keep_going || err->code != ERR_INPUT)
        return -1;
    const struct err fault = *err;
    err_clear(err);
    all->failed++;
    console_fault(all->console, &fault);
    if (redirect_records(work) && decode_record_failed(&work->recorder, id, fault.text, err))
        return -1;
    if (!all->text || !all->json)
        return 0;
    struct text line = {0};
    int rc = json_line(&line, json_pack("{s:s*, s:s, s:s}", "id", id, "finish_reason", "error", "error", fault.text), err) ||
             put(work, line.data, line.length, err) ? -1 : 0;
    text_free(&line);
    return rc;
}

/* ---- prompts at work ---- */

static void work_free(struct work **address)
{
    struct work *work = *address;
    prompt_free(&work->prompt);
    text_free(&work->out);
    text_free(&work->held);
    mem_free(address);
}

void texts_free(struct texts *texts)
{
    while (texts->works)
        work_free(&texts->work[--texts->works]);
    mem_free(&texts->work);
}

/* Writes the waiting text and records of the prompt that is now the oldest. */
static int release(struct texts *all, struct err *err)
{
    struct work *work = all->work[0];
    if ((work->out.length && put(work, work->out.data, work->out.length, err)) ||
        (work->held.length && (writer_release(work->recorder.writer, &work->held, err) ||
                               writer_flush(work->recorder.writer, err))))
        return -1;
    text_free(&work->out);
    text_free(&work->held);
    const bool keep = work->keep && work->recorder.writer;
    work->keep = false;
    return keep ? writer_keep(work->recorder.writer, err) : 0;
}

/* Removes completed prompts from the front, and writes the output that waits at the next one. */
static int remove_completed(struct texts *all, struct err *err)
{
    while (all->works && !all->work[0]->decoder) {
        work_free(&all->work[0]);
        memmove(all->work, all->work + 1, --all->works * sizeof *all->work);
        if (all->works && release(all, err))
            return -1;
    }
    return 0;
}

/* Returns the decoder to the pool. If this prompt reserved the last text numbers, the next prompt receives the numbers that
 * this one did not use. */
static void finish_work(struct work *work)
{
    if (work->all->recorder.sequence == work->reserved)
        work->all->recorder.sequence = work->recorder.sequence;
    pool_return(&work->all->pool, work->decoder);
    work->decoder = NULL;
}

static bool can_begin(const struct texts *all)
{
    return pool_has_free(&all->pool) && all->works < (size_t)all->pool.texts + WAITING_MAX;
}

static struct work *add_work(struct texts *all, struct err *err)
{
    if (mem_grow(&all->work, &all->room, all->works + 1, sizeof *all->work, err))
        return NULL;
    struct work *work = all->work[all->works] = mem_alloc(1, sizeof *work, err);
    if (!work)
        return NULL;
    work->all = all;
    work->recorder = all->recorder;
    all->works++;
    return work;
}

/* ---- one prompt ---- */

/* Moves to the next turn. Returns 1; 0: there is none, or the run must end; -1: error. */
static int next_turn(struct work *work, const struct decode_result *result, bool *ended, struct err *err)
{
    struct texts *all = work->all;
    if (result->finish == FINISH_ABORT) {
        *ended = true;
        return 0;
    }
    int more = result->text ? prompt_next_turn(all->prompts, &work->prompt, result->text, result->text_bytes, err) : 0;
    if (more > 0 && stop_asked(all->stop)) {
        *ended = true;
        return 0;
    }
    return more >= 0 ? more : skip_invalid(work, work->prompt.id, err);
}

/* Copies the turns that an earlier run has decoded, and begins the next one; without a next turn the prompt is complete. */
static int begin_turn(struct work *work, bool *ended, struct err *err)
{
    struct texts *all = work->all;
    const struct decode_sink sink = sink_of(work);
    struct decode_result result;
    int more;
    do {
        bool has = false;
        work->asked = text_of(&work->prompt, work->recorder.sequence);
        work->asked.turn = work->prompt.turn;
        if (decoder_check(work->decoder, &work->asked, err)) {
            err_at(err, "%s", work->prompt.where);
            finish_work(work);
            return skip_invalid(work, work->prompt.id, err);
        }
        if (all->resume && decode_resume_has(all->resume, &work->prompt, &has, err))
            return -1;
        all->decoded += !has;
        if (!has && !decoder_begin(work->decoder, &work->asked, &sink, err))
            return 0;
        if (!has) {
            finish_work(work);
            *ended = err->code == ERR_SIGNAL;           /* a signal during the prompt */
            return *ended ? 0 : at_prompt(work, err);
        }
        if (take_text(work, &result, err) || (more = next_turn(work, &result, ended, err)) < 0)
            return -1;
    } while (more > 0);
    finish_work(work);
    return 0;
}

static int end_turn(struct work *work, bool *ended, struct err *err)
{
    struct decode_result result;
    decoder_end(work->decoder, &result);
    if (finish(work, &result, err))
        return -1;
    const int more = next_turn(work, &result, ended, err);
    if (more > 0)
        return begin_turn(work, ended, err);
    finish_work(work);
    return more;
}

/* Reads the next prompt and begins it. Sets *more to whether there may be further prompts. */
static int begin_prompt(struct texts *all, bool *more, bool *ended, struct err *err)
{
    struct prompt prompt;
    const int next = prompts_next(all->prompts, &prompt, err);
    const bool fault = next < 0 && err->code != ERR_SIGNAL;
    *more = next != 0;
    if (next < 0 && !fault)
        *ended = true;
    if (fault && !prompts_fault(all->prompts))
        return -1;
    if (next > 0 && stop_asked(all->stop)) {
        *ended = true;
        prompt_free(&prompt);
    }
    if (!next || *ended)
        return 0;
    struct work *work = add_work(all, err);
    if (!work) {
        if (next > 0)
            prompt_free(&prompt);
        return -1;
    }
    if (fault)
        return skip_invalid(work, prompts_fault(all->prompts)->id, err);
    work->prompt = prompt;
    if (pool_take(&all->pool, prompt.policy, &work->decoder, err)) {
        at_prompt(work, err);
        return skip_invalid(work, prompt.id, err);
    }
    work->reserved = all->recorder.sequence += prompt.turns > 1 ? prompt.turns : 1;
    return begin_turn(work, ended, err);
}

/* Runs one iteration of all unfinished texts. Sets *any to whether there was one. */
static int step(struct texts *all, bool *any, struct err *err)
{
    struct decoder *decoder[DECODERS_MAX];
    struct work *of[DECODERS_MAX];
    int count = 0, failed;
    for (size_t i = 0; i < all->works; i++)
        if (all->work[i]->decoder && !decoder_ends(all->work[i]->decoder)) {
            of[count] = all->work[i];
            decoder[count++] = all->work[i]->decoder;
        }
    *any = count > 0;
    if (!count || !decoders_step(decoder, count, &failed, err))
        return 0;
    return failed >= 0 ? at_prompt(of[failed], err) : -1;
}

/* Ends the finished texts, and begins the next turns of their prompts. */
static int end_turns(struct texts *all, bool *ended, struct err *err)
{
    for (size_t i = 0; i < all->works; i++)
        if (all->work[i]->decoder && decoder_ends(all->work[i]->decoder) && end_turn(all->work[i], ended, err))
            return -1;
    return remove_completed(all, err);
}

static int skip(void *context, const struct prompt *prompt, struct err *err)
{
    const struct texts *all = context;
    const struct decode_prompt skipped = text_of(prompt, 0);
    return decoder_skip(pool_first(&all->pool), &skipped, err);
}

int texts_decode(struct texts *all, bool *ended, struct err *err)
{
    bool more = true, any = true;
    *ended = false;
    if (prompts_before(all->prompts, skip, all, err))
        return -1;
    while (any || all->works || (more && !*ended)) {
        while (more && !*ended && can_begin(all))
            if (begin_prompt(all, &more, ended, err) || remove_completed(all, err))
                return -1;
        if (step(all, &any, err) || end_turns(all, ended, err))
            return -1;
    }
    if (all->recorder.writer)
        writer_hold(all->recorder.writer, NULL);
    return 0;
}

int texts_check_turn(struct texts *all, const struct prompt *prompt, struct err *err)
{
    const struct decode_prompt asked = text_of(prompt, all->recorder.sequence);
    return decoder_check(pool_first(&all->pool), &asked, err);
}

int texts_answer_turn(struct texts *all, struct prompt *prompt, struct decode_result *result, struct err *err)
{
    struct work work = {.all = all, .decoder = pool_first(&all->pool), .prompt = *prompt, .recorder = all->recorder};
    const struct decode_sink sink = sink_of(&work);
    work.asked = text_of(prompt, all->recorder.sequence);
    all->decoded++;
    if (decoder_run(work.decoder, &work.asked, &sink, result, err))
        return at_prompt(&work, err);
    const int rc = finish(&work, result, err);
    all->recorder.sequence = work.recorder.sequence;
    return rc;
}
