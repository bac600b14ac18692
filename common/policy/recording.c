#include "common/policy/recording.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/stream/decode.h"
#include "common/stream/reader.h"

/* The text whose records are being read. */
struct state {
    struct recording *recording;
    struct recorded_text *text;         /* NULL: none is open */
    struct recorded_position *live;     /* [iterations] results of live iterations */
    int *at;                            /* [iterations] position at which each began */
    size_t live_room, at_room;
    int emitted;                        /* tokens of the answer so far; the first is the prompt's */
    int live_drafters;                  /* drafters in the last iteration's record; 0: not recorded */
    int number;                         /* drafts read at the last position */
};

static int begin(struct state *state, const struct decode_begin *record, struct err *err)
{
    struct recording *all = state->recording;
    if (state->text)
        return err_set(err, ERR_INPUT,
                       "a text begins before the previous one ended, and such texts cannot be replayed; record without "
                       "--parallel");
    if (!record->prompt)
        return err_set(err, ERR_INPUT, "the tokens of a prompt are missing; the stream is damaged");
    if (mem_grow(&all->text, &all->text_room, all->texts + 1, sizeof *all->text, err))
        return -1;
    struct recorded_text *text = &all->text[all->texts++];
    *text = (struct recorded_text){.sequence = record->sequence, .prompt_tokens = record->prompt_tokens,
                                   .position = all->positions};
    text->prompt = mem_copy(record->prompt, (size_t)record->prompt_tokens * sizeof *record->prompt, err);
    text->id = record->id ? mem_string(record->id, err) : NULL;
    text->task = record->task ? mem_string(record->task, err) : NULL;
    if (!text->prompt || (record->id && !text->id) || (record->task && !text->task))
        return -1;
    state->text = text;
    state->emitted = 1;
    return 0;
}

/* Reads an iteration's figures by drafter. */
static int take_shares(struct state *state, struct recorded_position *live, const struct decode_iter *record, struct err *err)
{
    struct recording *all = state->recording;
    const size_t drafters = (size_t)record->drafters;
    if (state->text->iterations && state->live_drafters != record->drafters)
        return err_set(err, ERR_INPUT, "one text has iterations with %d and with %d drafters; the stream is damaged",
                       state->live_drafters, record->drafters);
    state->live_drafters = record->drafters;
    if (!record->node_drafters || !record->node_reviewers || !record->drafter_steps || !record->drafter_levels ||
        !record->drafter_reviewed || !record->drafter_proposed || !record->drafter_verified || !record->drafter_accepted ||
        !record->drafter_bytes || !record->drafter_us || !record->drafter_catch_up || !record->drafter_catch_up_us)
        return 0;
    if (mem_grow(&all->share, &all->share_room, all->shares + drafters, sizeof *all->share, err))
        return -1;
    for (size_t i = 0; i < drafters; i++)
        all->share[all->shares + i] = (struct draft_share){
            .steps = record->drafter_steps[i], .levels = record->drafter_levels[i], .reviewed = record->drafter_reviewed[i],
            .proposed = record->drafter_proposed[i], .verified = record->drafter_verified[i],
            .accepted = record->drafter_accepted[i], .bytes = record->drafter_bytes[i],
            .seconds = record->drafter_us[i] / 1e6, .caught_up = record->drafter_catch_up[i],
            .caught_up_s = record->drafter_catch_up_us[i] / 1e6};
    all->shares += drafters;
    live->share = all->shares - drafters + 1;
    live->makers = recording_tree(record->node_drafters, record->node_reviewers, record->nodes);
    return 0;
}

static int iterate(struct state *state, const struct decode_iter *record, struct err *err)
{
    size_t count = (size_t)state->text->iterations;
    const bool probed = record->probe >= 0;         /* not part of the draft: see decide (decode/iteration.c) */
    double us = record->draft_us + record->verify_us + record->accept_us + record->other_us - (probed ? record->probe_us : 0);
    if (record->emitted < 1 || !isfinite(us))
        return err_set(err, ERR_INPUT, "an iteration emits %d tokens in %g us, which is impossible; the stream is damaged",
                       record->emitted, us);
    if (mem_grow(&state->live, &state->live_room, count + 1, sizeof *state->live, err) ||
        mem_grow(&state->at, &state->at_room, count + 1, sizeof *state->at, err))
        return -1;
    state->live[count] = (struct recorded_position){
        .nodes = record->nodes, .K = record->K, .drafted = record->drafted, .experts_loaded = record->experts_loaded,
        .kept = record->accepted, .draft_us = record->draft_us, .verify_us = record->verify_us, .iteration_us = us,
        .bytes = record->bytes - (probed ? record->probe_bytes : 0),
        .draft_bytes = record->draft_bytes < 0 ? 0 : record->draft_bytes,
        .catch_up = record->catch_up < 0 ? 0 : record->catch_up,
        .catch_up_us = record->catch_up < 0 ? 0 : record->catch_up_us};
    if (record->node_tokens && record->node_parents)
        state->live[count].tree = recording_tree(record->node_tokens, record->node_parents, record->nodes);
    if (record->drafters > 1 && take_shares(state, &state->live[count], record, err))
        return -1;
    state->at[count] = state->emitted - 1;
    if (record->emitted > (1 << 30) - state->emitted)
        return err_set(err, ERR_INPUT, "a text has too many tokens; the stream is damaged");
    state->emitted += record->emitted;
    state->text->iterations++;
    return 0;
}

static int grow_rows(struct recording *all, size_t rows, struct err *err)
{
    size_t *room = all->row_room;
    return mem_grow(&all->token, &room[0], rows, sizeof *all->token, err) ||
           mem_grow(&all->log_probability, &room[1], rows, sizeof *all->log_probability, err) ||
           mem_grow(&all->draft_us, &room[2], rows, sizeof *all->draft_us, err) ||
           mem_grow(&all->verify_us, &room[3], rows, sizeof *all->verify_us, err) ||
           mem_grow(&all->draft_bytes, &room[4], rows, sizeof *all->draft_bytes, err) ||
           mem_grow(&all->bytes, &room[5], rows, sizeof *all->bytes, err) ||
           mem_grow(&all->experts_loaded, &room[6], rows, sizeof *all->experts_loaded, err) ||
           mem_grow(&all->match, &room[11], rows, sizeof *all->match, err) ||
           (all->trees && (mem_grow(&all->parent, &room[8], rows, sizeof *all->parent, err) ||
                           mem_grow(&all->asked, &room[9], rows, sizeof *all->asked, err) ||
                           mem_grow(&all->path, &room[10], rows, sizeof *all->path, err))) ||
           (all->width && mem_grow(&all->expert, &room[7], rows, all->width * sizeof *all->expert, err)) ? -1 : 0;
}

/* Appends a record's figures of each drafted token. */
static int add_rows(struct recording *all, const struct decode_draft *record, struct err *err)
{
    size_t n = (size_t)record->n, row = all->rows;
    if (row && all->trees != (record->parents != NULL))
        return err_set(err, ERR_INPUT, "the stream mixes chains and trees; record them separately");
    all->trees = record->parents != NULL;
    if (all->width && !record->experts)
        return err_set(err, ERR_INPUT, "the experts of a position are missing; the stream is damaged");
    if (grow_rows(all, row + n, err))
        return -1;
    all->rows += n;
    all->length = !all->length || record->K < all->length ? record->K : all->length;
    memcpy(all->token + row, record->tokens, n * sizeof *all->token);
    memcpy(all->draft_us + row, record->draft_us, n * sizeof *all->draft_us);
    memcpy(all->verify_us + row, record->verify_us, n * sizeof *all->verify_us);
    memcpy(all->bytes + row, record->bytes, n * sizeof *all->bytes);
    memcpy(all->experts_loaded + row, record->experts_loaded, n * sizeof *all->experts_loaded);
    if (all->trees) {
        memcpy(all->parent + row, record->parents, n * sizeof *all->parent);
        memcpy(all->asked + row, record->asked, n * sizeof *all->asked);
        if (record->accepted)
            memcpy(all->path + row, record->path, (size_t)record->accepted * sizeof *all->path);
    }
    if (all->width)
        memcpy(all->expert + row * all->width, record->experts, n * all->width * sizeof *all->expert);
    for (size_t k = 0; k < n; k++) {
        all->log_probability[row + k] = record->log_probability ? record->log_probability[k] : NAN;
        all->draft_bytes[row + k] = record->draft_bytes ? record->draft_bytes[k] : 0;
        all->match[row + k] = record->match ? record->match[k] : 0;
    }
    return 0;
}

static int add_position(struct state *state, const struct decode_draft *record, struct err *err)
{
    struct recording *all = state->recording;
    size_t at = all->positions - state->text->position;
    if (record->pos < state->text->prompt_tokens || (size_t)(record->pos - state->text->prompt_tokens) != at)
        return err_set(err, ERR_INPUT, "drafts of position %d are recorded, but the next position without drafts is %zu; the "
                       "stream is damaged", record->pos,
                       at + (size_t)state->text->prompt_tokens);
    if (mem_grow(&all->position, &all->position_room, all->positions + 1, sizeof *all->position, err))
        return -1;
    all->position[all->positions++] = (struct recorded_position){
        .n = record->n, .accepted = record->accepted, .left = record->left, .room = record->room, .row = all->rows,
        .expert_bytes = record->expert_bytes < 0 ? 0 : record->expert_bytes};
    return 0;
}

/* Reads one drafter's draft. The first drafter's draft begins a position; the others follow at the same position, in order. */
static int add_draft(struct state *state, const struct decode_draft *record, struct err *err)
{
    struct recording *all = state->recording;
    const int drafter = record->drafter < 0 ? 0 : record->drafter;
    const bool whole = state->number == all->drafters;
    if (drafter && !all->drafters)
        state->number += drafter == state->number;          /* the first position determines the number of drafters */
    else if (drafter)
        state->number += drafter == state->number && drafter < all->drafters;
    else if (all->drafters && !whole)
        return err_set(err, ERR_INPUT, "a position has drafts of %d drafters, but the stream has %d drafters; the stream is "
                       "damaged",
                       state->number, all->drafters);
    else if (all->positions && !all->drafters)
        all->drafters = state->number;
    if ((drafter && state->number != drafter + 1) || drafter >= DRAFTERS_MAX)
        return err_set(err, ERR_INPUT, "the drafts of drafter %d are out of order; the stream is damaged", drafter);
    if (mem_grow(&all->draft, &all->draft_room, all->drafts + 1, sizeof *all->draft, err))
        return -1;
    if (!drafter) {
        if (add_position(state, record, err))
            return -1;
        state->number = 1;
    } else {
        struct recorded_position *position = &all->position[all->positions - 1];
        if (position->left != record->left || position->room != record->room ||
            record->pos != state->text->prompt_tokens + (int)(all->positions - 1 - state->text->position))
            return err_set(err, ERR_INPUT, "a draft of drafter %d belongs to another position; the stream is damaged", drafter);
    }
    all->draft[all->drafts] = (struct recorded_draft){record->n, record->accepted, all->rows};
    if (add_rows(all, record, err))
        return -1;
    all->drafts++;
    return 0;
}

/* Checks that the drafts of a position agree with the text. */
static int check_draft(const struct recording *all, const struct recorded_text *text, int at, int left,
                       const struct recorded_draft *draft, struct err *err)
{
    int known = draft->accepted < left ? draft->accepted : left;
    for (int k = 0; k <= known; k++) {
        size_t row = draft->row + (size_t)(k && all->trees ? all->path[draft->row + (size_t)k - 1] : k);
        if (all->token[row] == text->token[at + k])
            continue;
        return err_set(err, ERR_INPUT, "text %lld: position %d: accepted token %d differs from the text; the stream is damaged",
                       (long long)text->sequence, at, k);
    }
    return 0;
}

static int check_position(const struct recording *all, const struct recorded_text *text, int at, struct err *err)
{
    const size_t number = text->position + (size_t)at, drafters = (size_t)all->drafters;
    const struct recorded_position *position = &all->position[number];
    if (position->left != text->tokens - 1 - at)
        return err_set(err, ERR_INPUT, "text %lld: position %d: %d tokens are left, but the record has %d; the stream is "
                       "damaged", (long long)text->sequence, at,
                       text->tokens - 1 - at, position->left);
    for (size_t i = 0; i < drafters; i++)
        if (check_draft(all, text, at, position->left, &all->draft[number * drafters + i], err))
            return -1;
    return 0;
}

static int done(struct state *state, const struct decode_done *record, struct err *err)
{
    struct recording *all = state->recording;
    struct recorded_text *text = state->text;
    int positions = record->n < 1 ? 0 : record->n - 1;
    if (all->positions - text->position != (size_t)positions || (record->n > 0 && state->emitted != record->n))
        return err_set(err, ERR_INPUT, "text %lld: has %d tokens, but drafts at only %zu positions; record it with --record "
                       "drafts",
                       (long long)text->sequence, record->n, all->positions - text->position);
    if (all->positions && !all->drafters)
        all->drafters = state->number;
    if (all->drafts != all->positions * (size_t)all->drafters)
        return err_set(err, ERR_INPUT, "text %lld: has %zu drafts at %zu positions, which is impossible for %d drafters; the "
                       "stream is damaged", (long long)text->sequence,
                       all->drafts, all->positions, all->drafters);
    text->tokens = record->n;
    text->token = mem_copy(record->tokens, (size_t)record->n * sizeof *record->tokens, err);
    if (!text->token)
        return -1;
    for (int at = 0; at < positions; at++)
        if (check_position(all, text, at, err))
            return -1;
    for (int i = 0; i < text->iterations; i++) {
        struct recorded_position *position = &all->position[text->position + (size_t)state->at[i]];
        struct recorded_position merged = state->live[i];
        if (state->at[i] >= positions)
            return err_set(err, ERR_INPUT, "text %lld: an iteration follows its end; the stream is damaged",
                           (long long)text->sequence);
        merged.n = position->n;
        merged.accepted = position->accepted;
        merged.left = position->left;
        merged.room = position->room;
        merged.row = position->row;
        merged.expert_bytes = position->expert_bytes;
        if (merged.share && state->live_drafters != all->drafters)
            return err_set(err, ERR_INPUT, "text %lld: has iterations of %d drafters, but drafts of %d; the stream is damaged",
                           (long long)text->sequence,
                           state->live_drafters, all->drafters);
        *position = merged;
    }
    state->text = NULL;
    return 0;
}

static int take_machine(struct recording *all, const struct decode_machine *machine, struct err *err)
{
    const char *options_text = machine->options;
    json_error_t fault;
    json_t *options = options_text ? json_read(options_text, strlen(options_text), 0, &fault) : NULL;
    all->sampled = json_number_value(json_object_get(options, "temperature")) > 0;
    json_decref(options);
    mem_free(&all->named);
    return machine->drafters && !(all->named = mem_string(machine->drafters, err)) ? -1 : 0;
}

static int take(struct state *state, const struct record *record, struct err *err)
{
    int rc = 0;
    if (record->kind == &decode_machine_kind)
        rc = take_machine(state->recording, record->body, err);
    else if (record->kind == &decode_begin_kind)
        rc = begin(state, record->body, err);
    else if (record->kind == &decode_iter_kind)
        rc = iterate(state, record->body, err);
    else if (record->kind == &decode_draft_kind)
        rc = add_draft(state, record->body, err);
    else if (record->kind == &decode_done_kind)
        rc = done(state, record->body, err);
    return rc && err->code == ERR_INPUT ? record_error_at(record, err) : rc;
}

int recording_read(struct recording **out, const char *path, struct err *err)
{
    struct state state = {.recording = mem_alloc(1, sizeof *state.recording, err)};
    struct reader *in = NULL;
    const struct record *record;
    int more, rc = -1;
    if (!state.recording || reader_open(&in, path, STREAM_DECODE, NULL, err) ||
        header_copy(&state.recording->header, reader_header(in), err))
        goto finished;
    const struct stream_model *model = &state.recording->header.model;
    state.recording->width = (size_t)model->moe_layers * (size_t)model->top_k;
    while ((more = reader_next(in, &record, err)) > 0)
        if (take(&state, record, err))
            goto finished;
    if (more < 0)
        goto finished;
    if (!state.recording->positions) {
        err_set(err, ERR_INPUT, "%s: contains no recorded drafts; make it with moe-decode --record drafts", reader_name(in));
        goto finished;
    }
    *out = state.recording;
    state.recording = NULL;
    rc = 0;
finished:
    recording_free(&state.recording);
    mem_free(&state.live);
    mem_free(&state.at);
    reader_close(&in);
    return rc;
}

int recording_read_chains(struct recording **out, const char *path, bool one, struct err *err)
{
    struct recording *read = NULL;
    if (recording_read(&read, path, err))
        return -1;
    if (one && read->drafters > 1) {
        recording_free(&read);
        return err_set(err, ERR_INPUT, "%s: contains drafts of several drafters, but those of one are needed; record with one "
                       "--draft",
                       path);
    }
    if (read->trees) {
        recording_free(&read);
        return err_set(err, ERR_INPUT, "%s: contains trees, but chains are needed; record without --tree", path);
    }
    *out = read;
    return 0;
}

uint64_t recording_tree(const int32_t *token, const int32_t *parent, int rows)
{
    struct digest128 tokens = hash_xxh3(token, (size_t)rows * sizeof *token);
    struct digest128 parents = hash_xxh3(parent, (size_t)rows * sizeof *parent);
    return (tokens.low ^ (parents.high * 0x9e3779b97f4a7c15u)) | 1;
}

void recording_free(struct recording **recording)
{
    struct recording *all = *recording;
    for (size_t i = 0; all && i < all->texts; i++) {
        mem_free(&all->text[i].id);
        mem_free(&all->text[i].task);
        mem_free(&all->text[i].prompt);
        mem_free(&all->text[i].token);
    }
    if (all) {
        mem_free(&all->text);
        mem_free(&all->position);
        mem_free(&all->token);
        mem_free(&all->log_probability);
        mem_free(&all->draft_us);
        mem_free(&all->verify_us);
        mem_free(&all->draft_bytes);
        mem_free(&all->bytes);
        mem_free(&all->experts_loaded);
        mem_free(&all->expert);
        mem_free(&all->parent);
        mem_free(&all->asked);
        mem_free(&all->path);
        mem_free(&all->match);
        mem_free(&all->draft);
        mem_free(&all->share);
        mem_free(&all->named);
        header_free(&all->header);
    }
    mem_free(recording);
}
