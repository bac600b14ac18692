/* Texts with their answers: all tokens, and a mask of the tokens that the model would have to answer. */
#include "common/prompts/internal.h"

#include <string.h>

#include "common/base/mem.h"

static bool begins_with(const struct tokens *text, const struct tokens *start)
{
    return start->n <= text->n && !memcmp(text->ids, start->ids, (size_t)start->n * sizeof *text->ids);
}

static bool is_end(const struct prompts *p, int32_t id)
{
    for (int i = 0; i < p->options.n_ends; i++)
        if (p->options.ends[i] == id)
            return true;
    return false;
}

/* Marks an answer: tokens from .. to - 1 are the answer and the template's text after it; the answer ends with the first end
 * token. */
static void mark(const struct prompts *p, struct prompt *prompt, int from, int to)
{
    for (int i = from; i < to; i++) {
        prompt->mask[i] = 1;
        if (is_end(p, prompt->tokens.ids[i]))
            break;
    }
}

static int make_mask(struct prompt *prompt, struct err *err)
{
    prompt->mask = mem_alloc((size_t)prompt->tokens.n, 1, err);
    return prompt->mask ? 0 : -1;
}

static int no_answer(const struct prompts *p, struct prompt *prompt, struct err *err)
{
    if (p->options.unanswered)
        return make_mask(prompt, err);
    return err_set(err, ERR_INPUT, "the prompt has no answer; add \"answer\", or use moe-profile features with -n N (the "
                   "model answers) or --mask all (every token counts as answer)");
}

/* Tokenises a raw text joined with its answer, and marks the answer. */
static int answered_raw(const struct prompts *p, struct prompt *prompt, const struct prompt_given *given, struct err *err)
{
    const unsigned flags = TOKENIZER_FRAME | (p->options.parse_special ? TOKENIZER_PARSE_SPECIAL : 0);
    struct text joint = {0};
    struct tokens asked = {0}, *tokens = &prompt->tokens;
    int rc = -1;
    if (prompts_need_tokenizer(p, err) || text_put(&joint, given->text, given->bytes, err) ||
        (prompt->answer && text_puts(&joint, prompt->answer, err)) ||
        prompts_set_text(prompt, joint.data ? joint.data : "", joint.length, err) ||
        tokenizer_encode(p->tokenizer, prompt->text, joint.length, flags, tokens, err) ||
        tokenizer_encode(p->tokenizer, given->text, given->bytes, flags, &asked, err))
        goto done;
    if (!prompt->answer || !*prompt->answer) {
        rc = no_answer(p, prompt, err);
        goto done;
    }
    if (!begins_with(tokens, &asked)) {
        err_set(err, ERR_INPUT, "one token contains both the prompt's end and the answer's beginning; move the white space "
                "from the end of the prompt to the beginning of the answer");
        goto done;
    }
    if (p->options.n_ends && !is_end(p, tokens->ids[tokens->n - 1])) {
        if (mem_grow(&tokens->ids, &tokens->room, (size_t)tokens->n + 1, sizeof *tokens->ids, err))
            goto done;
        tokens->ids[tokens->n++] = p->options.ends[0];
    }
    if (make_mask(prompt, err))
        goto done;
    memset(prompt->mask + asked.n, 1, (size_t)(tokens->n - asked.n));
    rc = 0;
done:
    text_free(&joint);
    tokens_free(&asked);
    return rc;
}

/* Marks the answer at message `number`: from the end of the template's call for the answer to the end of the rendered
 * answer. */
static int mark_message(const struct prompts *p, struct prompt *prompt, json_t *before, json_t *answer, size_t number,
                        struct err *err)
{
    struct tokens asked = {0}, answered = {0};
    int rc = -1;
    if (!json_array_size(before)) {
        err_set(err, ERR_INPUT, "no message before this answer could be answered; begin with a user's message");
        goto done;
    }
    if (prompts_render(p, before, true, &asked, NULL, err))
        goto done;
    if (json_array_append(before, answer)) {
        err_memory(err);
        goto done;
    }
    if (prompts_render(p, before, false, &answered, NULL, err))
        goto done;
    if (!begins_with(&answered, &asked) || answered.n == asked.n)
        err_set(err, ERR_INPUT, "the chat template does not write this answer directly after the tokens that request it, so "
                "its beginning cannot be found; use another --chat-template, or \"prompt\" and \"answer\"");
    else if (!begins_with(&prompt->tokens, &answered))
        err_set(err, ERR_INPUT, "the chat template renders this answer differently if more messages follow, so training and "
                "decoding would see different texts; make each answer a text of its own (--turns each)");
    else
        rc = 0;
    if (!rc)
        mark(p, prompt, asked.n, answered.n);
done:
    tokens_free(&asked);
    tokens_free(&answered);
    return rc ? err_at(err, "message %zu", number) : 0;
}

/* Renders text and tokens of prompt->messages, with an empty mask. */
static int render_text(const struct prompts *p, struct prompt *prompt, struct err *err)
{
    struct text text = {0};
    struct tokens tokens = {0};
    int rc = prompts_render(p, prompt->messages, false, &tokens, &text, err) ||
             prompts_set_text(prompt, text.data ? text.data : "", text.length, err) ? -1 : 0;
    if (!rc) {
        tokens_free(&prompt->tokens);
        mem_free(&prompt->mask);
        prompt->tokens = tokens;
        tokens = (struct tokens){0};
        rc = make_mask(prompt, err);
    }
    text_free(&text);
    tokens_free(&tokens);
    return rc;
}

/* Marks all answers; prompt->messages is the whole conversation. */
static int mark_all(const struct prompts *p, struct prompt *prompt, struct err *err)
{
    json_t *before = json_array(), *message;
    size_t i;
    int rc = -1;
    if (!before) {
        err_memory(err);
        goto done;
    }
    if (render_text(p, prompt, err))
        goto done;
    json_array_foreach(prompt->messages, i, message) {
        if (prompts_is_answer(message)) {
            if (mark_message(p, prompt, before, message, i, err))
                goto done;
        } else if (json_array_append(before, message)) {
            err_memory(err);
            goto done;
        }
    }
    rc = 0;
done:
    json_decref(before);
    return rc;
}

/* Makes the text of the first `count` messages. The last message is an answer, and only this answer is marked. */
static int answer_text(const struct prompts *p, struct prompt *prompt, size_t count, struct err *err)
{
    json_t *before = json_array(), *old = prompt->messages;
    int rc = -1;
    if (!before || !(prompt->messages = json_array())) {
        prompt->messages = old;
        err_memory(err);
        goto done;
    }
    json_decref(old);
    for (size_t i = 0; i < count; i++)
        if (json_array_append(prompt->messages, json_array_get(prompt->rest, i)) ||
            (i + 1 < count && json_array_append(before, json_array_get(prompt->rest, i)))) {
            err_memory(err);
            goto done;
        }
    rc = render_text(p, prompt, err) ||
         mark_message(p, prompt, before, json_array_get(prompt->rest, count - 1), count - 1, err) ? -1 : 0;
done:
    json_decref(before);
    return rc;
}

/* Returns the number of messages up to answer `number` (from 0), included; 0: there are fewer answers. */
static size_t answer_end(const json_t *messages, int number)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (prompts_is_answer(json_array_get(messages, i)) && number-- == 0)
            return i + 1;
    return 0;
}

int prompt_next_answer(const struct prompts *p, struct prompt *prompt, struct err *err)
{
    if (prompt->turn + 1 >= prompt->turns)
        return 0;
    if (answer_text(p, prompt, answer_end(prompt->rest, prompt->turn + 1), err))
        return -1;
    prompt->turn++;
    return 1;
}

static int answered_chat(const struct prompts *p, struct prompt *prompt, struct err *err)
{
    const size_t count = json_array_size(prompt->messages);
    if (!prompts_is_answer(json_array_get(prompt->messages, count - 1)) && !p->options.unanswered)
        return no_answer(p, prompt, err);
    if (!p->options.each || !answer_end(prompt->messages, 0))
        return mark_all(p, prompt, err);
    prompt->rest = json_incref(prompt->messages);
    while (answer_end(prompt->rest, prompt->turns))
        prompt->turns++;
    return answer_text(p, prompt, answer_end(prompt->rest, 0), err);
}

/* Appends the separate answer of a conversation as its last message. */
static int append_answer(struct prompt *prompt, struct err *err)
{
    size_t count = json_array_size(prompt->messages);
    if (!prompt->answer || prompts_is_answer(json_array_get(prompt->messages, count - 1)))
        return 0;
    return prompts_add_message(prompt->messages, "assistant", prompt->answer, strlen(prompt->answer), err);
}

static int answered_messages(const struct prompts *p, struct prompt *prompt, json_t *messages, struct err *err)
{
    if (!(prompt->messages = json_copy(messages)))
        return err_memory(err);
    return append_answer(prompt, err) || answered_chat(p, prompt, err) ? -1 : 0;
}

/* Makes the text of one question of a user, with its answer. */
static int answered_question(const struct prompts *p, struct prompt *prompt, const char *text, size_t bytes, struct err *err)
{
    if (!(prompt->messages = prompts_new_chat(p, err)))
        return -1;
    return prompts_add_message(prompt->messages, "user", text, bytes, err) || append_answer(prompt, err) ||
           answered_chat(p, prompt, err) ? -1 : 0;
}

static int answered_turns(const struct prompts *p, struct prompt *prompt, const json_t *turns, struct err *err)
{
    const json_t *first = json_array_get(turns, 0);
    if (json_array_size(turns) != 1 || !json_is_string(first))
        return err_set(err, ERR_INPUT, "\"turns\" has questions without answers; add -n N, so that the model answers, or give "
                       "\"messages\" with answers");
    return answered_question(p, prompt, json_string_value(first), json_string_length(first), err);
}

static int answered_tokens(const struct prompts *p, struct prompt *prompt, const struct prompt_given *given, struct err *err)
{
    if (prompts_ids(p, "tokens", given->tokens, &prompt->tokens, err))
        return -1;
    int asked = prompt->tokens.n;
    if (!given->answer_tokens && prompt->answer)
        return err_set(err, ERR_INPUT, "an answer to \"tokens\" must be \"answer_tokens\", not text");
    if (!given->answer_tokens)
        return no_answer(p, prompt, err);
    if (prompts_ids(p, "answer_tokens", given->answer_tokens, &prompt->tokens, err) || make_mask(prompt, err))
        return -1;
    memset(prompt->mask + asked, 1, (size_t)(prompt->tokens.n - asked));
    return 0;
}

int prompt_answered(const struct prompts *p, struct prompt *prompt, const struct prompt_given *given, struct err *err)
{
    if (given->messages)
        return answered_messages(p, prompt, given->messages, err);
    if (given->turns)
        return answered_turns(p, prompt, given->turns, err);
    if (given->tokens)
        return answered_tokens(p, prompt, given, err);
    if (p->options.chat)
        return answered_question(p, prompt, given->text, given->bytes, err);
    return answered_raw(p, prompt, given, err);
}
