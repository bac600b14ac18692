#include "common/route/input.h"

#include "common/route/counts.h"
#include "common/stream/reader.h"

const char *const route_phase_words[] = { "all", "prompt", "decode", "verify", NULL };

int route_phase_lacks(int phases, struct err *err)
{
    if (phases == ROUTE_VERIFY)
        return err_set(err, ERR_INPUT, "the routes have no verified drafts; record them with moe-profile -n N --draft KIND, "
                       "or count the tokens of texts with --phase all");
    return err_set(err, ERR_INPUT, "the routes have no tokens of this --phase; choose another, or record them with "
                   "moe-profile (answers with -n)");
}

static int pass_phase(const struct route_input *input, const struct route_consumer *consumer, const struct route_tokens *record,
                      struct err *err)
{
    struct route_tokens whole = *record;
    switch (input->phases) {
    case ROUTE_ALL:
        break;
    case ROUTE_VERIFY:
        if (record->phase != PHASE_VERIFY)
            return 0;
        if (route_tokens_kept(record) < record->n)
            whole.mass = NULL;
        whole.accepted = NULL;
        break;
    default:
        if ((input->phases == ROUTE_PROMPT) != (record->phase == PHASE_PROMPT))
            return 0;
    }
    return consumer->tokens(consumer->context, &whole, err);
}

static bool wanted_iteration(const struct route_input *input, const struct decode_iter *iter)
{
    return input->phases == ROUTE_VERIFY ? iter->nodes > 1 : input->phases != ROUTE_PROMPT;
}

static int consume(const struct route_input *input, const struct route_consumer *consumer, const struct record *record,
                   struct err *err)
{
    if (record->kind == &route_tokens_kind) {
        const struct route_tokens *tokens = record->body;
        if (input->bar)
            progress_step(input->bar, (uint64_t)tokens->n);
        return consumer->tokens ? pass_phase(input, consumer, tokens, err) : 0;
    }
    if (record->kind == &decode_iter_kind && consumer->iteration) {
        const struct decode_iter *iter = record->body;
        if (input->bar)
            progress_step(input->bar, (uint64_t)iter->emitted);
        return wanted_iteration(input, iter) ? consumer->iteration(consumer->context, iter, err) : 0;
    }
    if (record->kind == &route_begin_kind && consumer->begin)
        consumer->begin(consumer->context, record->body);
    if (record->kind == &route_end_kind && consumer->end)
        return consumer->end(consumer->context, ((const struct route_end *)record->body)->sequence, err);
    return 0;
}

/* Checks the model of a stream: the first stream determines the model; the others must be of the same model. */
static int accept_model(const struct route_input *input, const struct route_consumer *consumer, struct reader *in, bool first,
                        struct header *header, struct text *note, struct err *err)
{
    const struct header *source = reader_header(in);
    if (!source->has_model)
        return err_set(err, ERR_INPUT, "does not name its model; make it with moe-profile");
    if (route_model_check(&source->model, err) || header_derive(header, source, err))
        return -1;
    if (first)
        return consumer->open ? consumer->open(consumer->context, &header->model, err) : 0;
    return header_same_model(&source->model, &header->model, "the stream", input->force, note, err);
}

static int read_stream(const struct route_input *input, const struct route_consumer *consumer, const char *path, bool first,
                       struct header *header, struct text *note, struct err *err)
{
    struct reader *in = NULL;
    const struct record *record;
    int rc = -1, more;
    if (reader_open(&in, path, consumer->iteration ? STREAM_ANY : STREAM_ROUTE, NULL, err))
        goto done;
    if (reader_header(in)->kind != STREAM_ROUTE && reader_header(in)->kind != STREAM_DECODE) {
        err_set(err, ERR_INPUT, "%s: a %s stream; expected a route or decode stream", reader_name(in),
                reader_header(in)->kind_name);
        goto done;
    }
    if (accept_model(input, consumer, in, first, header, note, err)) {
        err_at(err, "%s", reader_name(in));
        goto done;
    }
    while ((more = reader_next(in, &record, err)) > 0)
        if (consume(input, consumer, record, err)) {
            record_error_at(record, err);
            goto done;
        }
    rc = more;
done:
    reader_close(&in);
    return rc;
}

int route_input_read(const struct route_input *input, const struct route_consumer *consumer, struct header *header,
                     struct text *note, struct err *err)
{
    static const char *const standard_input[] = { "-" };
    const char *const *paths = input->count ? input->paths : standard_input;
    int count = input->count ? input->count : 1;
    for (int i = 0; i < count; i++)
        if (read_stream(input, consumer, paths[i], i == 0, header, note, err))
            return -1;
    return 0;
}
