#include "common/decode/ending.h"

#include <string.h>

#include "common/base/utf8.h"
#include "kernels/plain/ending.h"

int ending_check(const struct strings *stop, const struct tokenizer *tokenizer, struct err *err)
{
    if (stop->count && !tokenizer)
        return err_set(err, ERR_INPUT, "a stop string needs text, but the model has no tokenizer; leave --stop out");
    for (int i = 0; i < stop->count; i++) {
        size_t bytes = strlen(stop->items[i]);
        if (!bytes)
            return err_set(err, ERR_INPUT, "a stop string is empty; give some text");
        if (utf8_fault(stop->items[i], bytes) < bytes)
            return err_set(err, ERR_INPUT, "stop string %d is not valid UTF-8", i + 1);
    }
    return 0;
}

static void end(struct ending *ending, enum finish_reason reason)
{
    ending->ended = true;
    ending->reason = reason;
}

void ending_begin(struct ending *ending, int limit)
{
    ending->limit = limit;
    ending->tokens = 0;
    ending->ended = false;
    ending->certain = 0;
    text_clear(&ending->text);
    if (ending->tokenizer)
        token_decoder_start(&ending->decoder, ending->tokenizer, 0);
    if (!limit)
        end(ending, FINISH_LENGTH);
}

/* Cuts the text before the first stop string, which cannot begin before the end of the final text (`certain`). */
static void find_stop(struct ending *ending)
{
    const char *first = NULL;
    size_t bytes = ending->text.length - ending->certain;
    for (int i = 0; bytes && i < ending->stop->count; i++) {
        const char *stop = ending->stop->items[i];
        const char *found = memmem(ending->text.data + ending->certain, bytes, stop, strlen(stop));
        if (found && (!first || found < first))
            first = found;
    }
    if (first) {
        ending->text.length = (size_t)(first - ending->text.data);
        ending->text.data[ending->text.length] = '\0';
        end(ending, FINISH_STOP);
    }
}

/* Returns whether the text from `at` on equals the beginning of a stop string. */
static bool may_be_stop(const struct ending *ending, size_t at)
{
    size_t rest = ending->text.length - at;
    for (int i = 0; i < ending->stop->count; i++)
        if (rest < strlen(ending->stop->items[i]) && memcmp(ending->text.data + at, ending->stop->items[i], rest) == 0)
            return true;
    return false;
}

int ending_put(struct ending *ending, int32_t token, struct err *err)
{
    enum token_end what = ending_of(token, ++ending->tokens, ending->limit, ending->eos, ending->eos_count);
    bool eos = what == TOKEN_IS_EOS;
    if (ending->tokenizer && !eos) {
        if (token_decoder_put(&ending->decoder, token, &ending->text, err))
            return -1;
        find_stop(ending);
    }
    if (!ending->ended && eos)
        end(ending, FINISH_STOP);
    else if (!ending->ended && what == TOKEN_IS_LAST)
        end(ending, FINISH_LENGTH);
    else if (!ending->ended) {
        while (ending->certain < ending->text.length && !may_be_stop(ending, ending->certain))
            ending->certain++;
        return 0;
    }
    if (ending->tokenizer && (eos || ending->reason == FINISH_LENGTH)) {
        if (token_decoder_end(&ending->decoder, &ending->text, err))
            return -1;
        find_stop(ending);
    }
    ending->certain = ending->text.length;
    return 0;
}

void ending_free(struct ending *ending)
{
    text_free(&ending->text);
}
