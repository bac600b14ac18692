/* A conversation that grows by a person's messages: see prompts.h. */
#include "common/prompts/internal.h"

#include <string.h>

#include "common/base/mem.h"

int prompts_converse(struct prompts *p, struct prompt *out, struct err *err)
{
    struct prompt made = {.turn = -1};
    if (prompts_need_chat(p, err) || !(made.id = mem_string("0", err)) || !(made.where = mem_string("message 1", err)) ||
        !(made.messages = prompts_new_chat(p, err))) {
        prompt_free(&made);
        return -1;
    }
    *out = made;
    return 0;
}

/* Removes the newest message. */
static void drop_message(struct prompt *prompt)
{
    (void)json_array_remove(prompt->messages, json_array_size(prompt->messages) - 1);
}

int prompt_ask(struct prompts *p, struct prompt *prompt, const char *text, size_t bytes, struct err *err)
{
    struct text where = {0};
    if (text_printf(&where, err, "message %d", prompt->turn + 2))
        return -1;
    mem_free(&prompt->where);
    prompt->where = where.data;
    if (prompts_add_message(prompt->messages, "user", text, bytes, err))
        return err_at(err, "%s", prompt->where);
    if (prompts_use_chat(p, prompt, err)) {
        drop_message(prompt);
        return err_at(err, "%s", prompt->where);
    }
    prompt->turn++;
    return 0;
}

void prompt_unask(struct prompt *prompt)
{
    drop_message(prompt);
    prompt->turn--;
}

int prompt_answered_by(struct prompt *prompt, const char *text, size_t bytes, struct err *err)
{
    return prompts_add_message(prompt->messages, "assistant", text, bytes, err);
}
