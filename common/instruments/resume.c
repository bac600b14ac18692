#include "common/instruments/resume.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/sample/sampler.h"
#include "common/stream/leftover.h"

struct finished {
    struct sample_draw draw;            /* identifies the text */
    int64_t sequence;
    char *id;
};

/* Iterates over the finished texts and, in the same order, over prompts. */
struct walk {
    struct sampler *counts;             /* counts equal prompts */
    size_t at;
};

struct decode_resume {
    char *path;
    struct header header;               /* kind STREAM_ANY: no header was read */
    struct finished *item;
    size_t count, room;
    struct walk then, expected, now;    /* walks over texts of the stream, prompts before the run, texts of the run */
    int turns;                          /* for `expected`: maximum number of further turns */
    bool whole;                         /* the stream has its end record */
    char *options, *device, *isa, *cache;       /* from the stream's machine record; NULL: not recorded */
    bool open;                          /* during the first reading: a text has begun */
    struct finished begun;
    struct reader *in;                  /* reader of the second reading */
    int32_t *token;
    size_t tokens, token_room;
};

/* Adds the options of these parts. The drafters are one name, or a list of several, best first. */
static int add_options(json_t *all, const struct decode_settings *settings, unsigned parts, struct err *err)
{
    if (decode_settings_json(all, settings, parts, err))
        return -1;
    const json_t *draft = json_object_get(all, "draft");
    const int count = settings->draft.count;
    return draft && count < 2 && json_object_set(all, "draft", count ? json_array_get(draft, 0) : json_null())
               ? err_memory(err) : 0;
}

int decode_options(struct text *out, const struct decode_settings *settings, int context, bool departs, const char *record,
                   int record_length, struct err *err)
{
    const unsigned drafts = SETTING_DRAFT | SETTING_BUDGET | SETTING_FORCE;
    const unsigned parts = SETTING_ALL & ~(SETTING_SEED | (departs ? 0 : drafts));
    json_t *all = json_pack("{s:i, s:s, s:i}", "context", context, "record", record, "record-length", record_length);
    int rc = all ? add_options(all, settings, parts, err) : err_memory(err);
    char *line = rc ? NULL : json_text(all, JSON_COMPACT | JSON_SORT_KEYS, err);
    rc = line ? text_puts(out, line, err) : -1;
    mem_free(&line);
    json_decref(all);
    return rc;
}

/* ---- contents of the stream ---- */

static int keep_text(char **out, const char *text, struct err *err)
{
    mem_free(out);
    return text && !(*out = mem_string(text, err)) ? -1 : 0;
}

static int begin(struct decode_resume *resume, const struct decode_begin *begin, struct err *err)
{
    mem_free(&resume->begun.id);
    resume->open = false;
    if (!begin->prompt)
        return 0;
    if (sampler_begin(resume->then.counts, begin->prompt, begin->prompt_tokens, 0, err) ||
        keep_text(&resume->begun.id, begin->id ? begin->id : "", err))
        return -1;
    resume->begun.draw = *sampler_draw(resume->then.counts);
    resume->begun.sequence = begin->sequence;
    resume->open = true;
    return 0;
}

static int done(struct decode_resume *resume, const struct decode_done *done, struct err *err)
{
    if (!resume->open || done->sequence != resume->begun.sequence || done->finish_reason == FINISH_ABORT)
        return 0;
    if (mem_grow(&resume->item, &resume->room, resume->count + 1, sizeof *resume->item, err))
        return -1;
    resume->item[resume->count++] = resume->begun;
    resume->begun.id = NULL;
    resume->open = false;
    return 0;
}

static int take_record(void *context, const struct reader *in, const struct record *record, struct err *err)
{
    struct decode_resume *resume = context;
    if (resume->header.kind == STREAM_ANY && header_copy(&resume->header, reader_header(in), err))
        return -1;
    if (record->kind == &decode_machine_kind) {
        const struct decode_machine *machine = record->body;
        return keep_text(&resume->options, machine->options, err) || keep_text(&resume->device, machine->device, err) ||
               keep_text(&resume->isa, machine->isa, err) || keep_text(&resume->cache, machine->kv_dtype, err) ? -1 : 0;
    }
    if (record->kind == &decode_begin_kind)
        return begin(resume, record->body, err);
    return record->kind == &decode_done_kind ? done(resume, record->body, err) : 0;
}

/* ---- comparison with this run ---- */

static int reject_different(const struct decode_resume *resume, const char *what, const char *then, const char *now,
                            struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: the run was started with another %s, %.200s, not %.200s; resume it with the same",
                   resume->path,
                   what, then, now);
}

static int check_word(const struct decode_resume *resume, const char *what, const char *then, const char *now, struct err *err)
{
    then = then ? then : "none";
    now = now ? now : "none";
    return strcmp(then, now) ? reject_different(resume, what, then, now, err) : 0;
}

/* Returns an option's value as a user writes it; "none" if it is not given. */
static char *value_words(const char *key, const json_t *value)
{
    const bool automatic = !strcmp(key, "draft-length") && json_integer_value(value) == DRAFT_LENGTH_AUTO;
    if (json_is_integer(value) && json_integer_value(value) < 0)
        return mem_string(automatic ? "auto" : "none", NULL);
    return json_is_null(value) ? NULL : json_text(value, JSON_ENCODE_ANY | JSON_COMPACT, NULL);
}

/* Fails if the stream names an option that this version does not have, because a newer version wrote it. Without a value, the
 * option was not given. */
static int refuse_unknown(const struct decode_resume *resume, const char *key, const json_t *value, struct err *err)
{
    const struct header *made = header_producer(&resume->header);
    if (json_is_null(value) || json_is_false(value))
        return 0;
    char *words = value_words(key, value);
    err_set(err, ERR_INPUT, "%s: was made by %.40s %.40s with an option that this version (%s) does not have, %.60s %.100s; "
            "resume it with that version, or decode without --resume", resume->path, made->tool ? made->tool : "a program",
            made->tool_version ? made->tool_version : "of no version", MOE_VERSION, key, words ? words : "none");
    mem_free(&words);
    return -1;
}

/* Fails with the name of the first option of this run that differs, or of the first option that this version does not have;
 * *other: the stream contains drafting options that this run does not, or lacks those of this run. Options that the stream
 * lacks, because they are newer, have their defaults. */
static int compare_options(const struct decode_resume *resume, const json_t *then, json_t *now, bool *other, struct err *err)
{
    const struct decode_settings settings = DECODE_DEFAULTS;
    json_t *defaults = json_object(), *value;
    const char *key;
    int rc = add_options(defaults, &settings, SETTING_ALL, err);
    *other = !json_is_object(then) || !json_object_get(then, "draft") != !json_object_get(now, "draft");
    json_object_foreach((json_t *)(uintptr_t)then, key, value) {
        if (!rc && !json_object_get(now, key) && !json_object_get(defaults, key))
            rc = refuse_unknown(resume, key, value, err);
        else
            *other |= !json_object_get(now, key);
    }
    json_object_foreach(now, key, value) {
        json_t *old = json_object_get(json_object_get(then, key) ? then : defaults, key);
        if (rc || json_equal(old, value))
            continue;
        char *before = value_words(key, old), *here = value_words(key, value);
        rc = reject_different(resume, key, before ? before : "none", here ? here : "none", err);
        mem_free(&before);
        mem_free(&here);
    }
    json_decref(defaults);
    return rc;
}

static int check_options(const struct decode_resume *resume, const char *options, struct err *err)
{
    if (!resume->options)
        return err_set(err, ERR_INPUT, "%s: does not record the options of its run, so it cannot be resumed; run again "
                       "without --resume", resume->path);
    if (!strcmp(resume->options, options))
        return 0;
    json_error_t fault;
    json_t *then = json_read(resume->options, strlen(resume->options), JSON_DECODE_ANY, &fault);
    json_t *now = json_read(options, strlen(options), 0, &fault);
    bool other;
    int rc = compare_options(resume, then, now, &other, err);
    json_decref(then);
    json_decref(now);
    return rc || !other ? rc : err_set(err, ERR_INPUT, "%s: the run was started with other drafts or budgets, and its texts "
                                       "depend on them; resume it with the same", resume->path);
}

/* Returns the word for activations in a name of an instruction set such as "avx512, bf16 activations"; sets *length to that of
 * the name without it. */
static const char *activations_of(const char *isa, size_t *length)
{
    static const char *const words[] = {"bf16", "f32"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char tail[32];
        snprintf(tail, sizeof tail, "%s activations", words[i]);
        const char *found = strstr(isa, tail);
        if (found) {
            *length = (size_t)(found - isa);
            while (*length && strchr(", ", isa[*length - 1]))
                --*length;
            return words[i];
        }
    }
    *length = strlen(isa);
    return "auto";
}

/* Fails if the instruction sets or the activations differ. */
static int check_isa(const struct decode_resume *resume, const char *isa, struct err *err)
{
    const char *then = resume->isa ? resume->isa : "", *now = isa ? isa : "";
    size_t before, after;
    const char *activations_then = activations_of(then, &before), *activations = activations_of(now, &after);
    if (before == after && !memcmp(then, now, before))
        return check_word(resume, "setting of activations", activations_then, activations, err);
    return check_word(resume, "isa", resume->isa, isa, err);
}

static int check_origin(const struct decode_resume *resume, const struct header *header, const struct decode_machine *machine,
                        struct err *err)
{
    char then[32], now[32];
    if (!resume->header.has_model || strcmp(resume->header.model.index_sha256, header->model.index_sha256))
        return reject_different(resume, "model", resume->header.model.name, header->model.name, err);
    snprintf(then, sizeof then, "%d/%d", resume->header.part, resume->header.parts);
    snprintf(now, sizeof now, "%d/%d", header->part, header->parts);
    if (check_word(resume, "shard", resume->header.parts ? then : NULL, header->parts ? now : NULL, err))
        return -1;
    snprintf(then, sizeof then, "%llu", (unsigned long long)resume->header.seed);
    snprintf(now, sizeof now, "%llu", (unsigned long long)header->seed);
    return check_word(resume, "seed", then, now, err) || check_options(resume, machine->options, err) ||
           check_word(resume, "device", resume->device, machine->device, err) ||
           check_isa(resume, machine->isa, err) ||
           check_word(resume, "kv-dtype", resume->cache, machine->kv_dtype, err) ? -1 : 0;
}

static int read_stream(struct decode_resume *resume, const struct header *header, const struct decode_machine *machine,
                       struct err *err)
{
    struct leftover left;
    if (leftover_read(resume->path, STREAM_DECODE, take_record, resume, &left, err))
        return -1;
    if (!left.begun && !leftover_is_stump(resume->path)) {
        *err = left.why;
        return -1;
    }
    resume->whole = left.whole;
    return resume->count ? check_origin(resume, header, machine, err) : 0;
}

int decode_resume_open(struct decode_resume **out, const char *path, const struct header *header,
                       const struct decode_machine *machine, struct err *err)
{
    const struct sample_filter none = {.top_p = 1};
    struct decode_resume *resume = mem_alloc(1, sizeof *resume, err);
    if (!resume)
        return -1;
    if (!(resume->path = mem_string(path, err)) || sampler_open(&resume->then.counts, &none, header->seed, 1, err) ||
        sampler_open(&resume->expected.counts, &none, header->seed, 1, err) ||
        sampler_open(&resume->now.counts, &none, header->seed, 1, err) ||
        read_stream(resume, header, machine, err) ||
        (resume->count && reader_open(&resume->in, path, STREAM_DECODE, NULL, err))) {
        decode_resume_close(&resume);
        return -1;
    }
    *out = resume;
    return 0;
}

void decode_resume_close(struct decode_resume **address)
{
    struct decode_resume *resume = *address;
    if (!resume)
        return;
    for (size_t i = 0; i < resume->count; i++)
        mem_free(&resume->item[i].id);
    mem_free(&resume->begun.id);
    mem_free(&resume->item);
    sampler_close(&resume->then.counts);
    sampler_close(&resume->expected.counts);
    sampler_close(&resume->now.counts);
    reader_close(&resume->in);
    header_free(&resume->header);
    mem_free(&resume->options);
    mem_free(&resume->device);
    mem_free(&resume->isa);
    mem_free(&resume->cache);
    mem_free(&resume->token);
    mem_free(&resume->path);
    mem_free(address);
}

const struct header *decode_resume_header(const struct decode_resume *resume)
{
    return resume->header.kind == STREAM_ANY ? NULL : &resume->header;
}

bool decode_resume_whole(const struct decode_resume *resume) { return resume->whole; }
int decode_resume_count(const struct decode_resume *resume) { return (int)resume->count; }
int decode_resume_left(const struct decode_resume *resume) { return (int)(resume->count - resume->now.at); }

/* ---- selection of texts ---- */

static bool is_item(const struct decode_resume *resume, size_t at, const struct sample_draw *draw)
{
    const struct sample_draw *of = at < resume->count ? &resume->item[at].draw : NULL;
    return of && of->key == draw->key && of->ordinal == draw->ordinal && of->sample == draw->sample;
}

/* Later turns of a chat depend on answers, so after a prompt with turns, up to that many texts of the stream may belong to
 * it. */
int decode_resume_expect(struct decode_resume *resume, const struct prompt *prompt, struct err *err)
{
    struct walk *walk = &resume->expected;
    if (sampler_begin(walk->counts, prompt->tokens.ids, prompt->tokens.n, 0, err))
        return -1;
    for (int passed = 0; passed <= resume->turns; passed++)
        if (is_item(resume, walk->at + (size_t)passed, sampler_draw(walk->counts))) {
            walk->at += (size_t)passed + 1;
            resume->turns = prompt->turns - 1;
            break;
        }
    return 0;
}

int decode_resume_checked(const struct decode_resume *resume, struct err *err)
{
    size_t at = resume->expected.at + (size_t)resume->turns;
    if (at >= resume->count)
        return 0;
    return err_set(err, ERR_INPUT, "%s: text %lld, '%.100s', matches none of the remaining prompts; give the prompts of the "
                   "earlier run, in the same order", resume->path, (long long)resume->item[at].sequence,
                   resume->item[at].id);
}

int decode_resume_has(struct decode_resume *resume, const struct prompt *prompt, bool *has, struct err *err)
{
    struct walk *walk = &resume->now;
    if (sampler_begin(walk->counts, prompt->tokens.ids, prompt->tokens.n, 0, err))
        return -1;
    *has = is_item(resume, walk->at, sampler_draw(walk->counts));
    return 0;
}

static int reject_changed(const struct decode_resume *resume, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: has changed while it was read", resume->path);
}

/* Returns the field with the number of the record's text; NULL: the record belongs to no text. */
static const struct field *sequence_field(const struct record *record)
{
    return record->kind ? record_kind_field(record->kind, "sequence") : NULL;
}

/* Reads the next record of the current text; skips records of other texts. */
static int next_record_of_text(struct decode_resume *resume, const struct record **record, struct err *err)
{
    const int64_t sequence = resume->item[resume->now.at].sequence;
    while (reader_next(resume->in, record, NULL) > 0) {
        const struct field *field = sequence_field(*record);
        if (field && *(const int64_t *)((const char *)(*record)->body + field->offset) == sequence)
            return 0;
    }
    return reject_changed(resume, err);
}

/* Writes a record with this run's sequence number. */
static int put(const struct record *record, const struct prompt *prompt, struct decode_recorder *recorder, struct err *err)
{
    union {
        struct decode_begin begin;
        struct decode_iter iter;
        struct decode_draft draft;
        struct decode_done done;
    } body;
    if (!recorder->writer)
        return 0;
    memcpy(&body, record->body, record->kind->size);
    memcpy((char *)&body + sequence_field(record)->offset, &recorder->sequence, sizeof recorder->sequence);
    if (record->kind == &decode_begin_kind) {
        body.begin.id = prompt->id;
        body.begin.task = prompt->task;
    } else if (record->kind == &decode_done_kind) {
        body.done.id = prompt->id;
    }
    return writer_record(recorder->writer, record->kind, &body, err);
}

int decode_resume_take(struct decode_resume *resume, const struct prompt *prompt, struct decode_recorder *recorder,
                       struct decode_taken *out, struct err *err)
{
    const struct record *record;
    struct decode_taken taken = {0};
    do {
        if (next_record_of_text(resume, &record, err) || put(record, prompt, recorder, err))
            return -1;
        taken.iterations += record->kind == &decode_iter_kind;
    } while (record->kind != &decode_done_kind);
    const struct decode_done *done = record->body;
    if (mem_grow(&resume->token, &resume->token_room, (size_t)done->n, sizeof *resume->token, err))
        return -1;
    if (done->n)
        memcpy(resume->token, done->tokens, (size_t)done->n * sizeof *done->tokens);
    taken.token = resume->token;
    taken.tokens = done->n;
    taken.drafts = done->num_drafts;
    taken.draft_tokens = done->num_draft_tokens;
    taken.accepted_tokens = done->num_accepted_tokens;
    *out = taken;
    resume->now.at++;
    return 0;
}
