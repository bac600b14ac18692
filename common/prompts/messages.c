/* Reads chat messages in two forms: OpenAI's {role, content}, with a text or a list of parts, and ShareGPT's {from, value}.
 * Returns messages with a role and a text as content. */
#include "common/prompts/internal.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/cli/nearest.h"

int prompts_add_message(json_t *messages, const char *role, const char *text, size_t bytes, struct err *err)
{
    size_t fault = utf8_fault(text, bytes);
    if (fault < bytes)
        return err_set(err, ERR_INPUT, "byte %zu of the %s's text is not valid UTF-8", fault, role);
    json_t *message = json_object();
    if (!message || json_object_set_new(message, "role", json_string(role)) ||
        json_object_set_new(message, "content", json_stringn(text, bytes))) {
        json_decref(message);
        return err_memory(err);
    }
    return json_array_append_new(messages, message) ? err_memory(err) : 0;
}

json_t *prompts_new_chat(const struct prompts *p, struct err *err)
{
    const char *system = p->options.system;
    json_t *messages = json_array();
    p->seen->system = true;
    if (!messages)
        err_memory(err);
    else if (system && prompts_add_message(messages, "system", system, strlen(system), err)) {
        err_at(err, "--system");
        json_decref(messages);
        messages = NULL;
    }
    return messages;
}

bool prompts_is_answer(const json_t *message)
{
    return !strcmp(json_string_value(json_object_get(message, "role")), "assistant");
}

int prompts_take_question(json_t *to, const json_t *messages, size_t from, size_t *next, struct err *err)
{
    size_t i = from;
    for (; i < json_array_size(messages) && !prompts_is_answer(json_array_get(messages, i)); i++)
        if (json_array_append(to, json_array_get(messages, i)))
            return err_memory(err);
    *next = i;
    return 0;
}

/* ---- one message ---- */

/* Returns the role for ShareGPT's word; the word itself if unknown. */
static const char *role_of(const char *from)
{
    static const struct { const char *from, *role; } words[] = {
        {"human", "user"}, {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"}, {"bard", "assistant"},
        {"model", "assistant"}, {"bot", "assistant"}, {"observation", "tool"}, {"function_response", "tool"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(from, words[i].from))
            return words[i].role;
    return from;
}

static void note_role(const struct prompts *p, const struct prompt *prompt, const char *role)
{
    static const char *const known[] = {"system", "developer", "user", "assistant", "tool", "function", "ipython", NULL};
    struct nearest nearest = {.word = role};
    struct text text = {0};
    for (int i = 0; known[i]; i++) {
        if (!strcmp(role, known[i]))
            return;
        nearest_offer(&nearest, known[i]);
    }
    if (!text_printf(&text, NULL, "%s: the role \"%.60s\" is not one that chats usually have%s%s%s", prompt->where, role,
                     nearest.best ? "; did you mean \"" : "", nearest.best ? nearest.best : "", nearest.best ? "\"?" : ""))
        prompts_note_once(p, "role", role, text.data);
    text_free(&text);
}

/* Joins the texts of a list of parts by newlines, as servers do for templates that expect text. */
static json_t *join_parts(const json_t *parts, struct err *err)
{
    struct text joint = {0};
    json_t *part, *out = NULL;
    size_t i;
    json_array_foreach(parts, i, part) {
        const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_string(text) || (type && !strstr(type, "text"))) {
            err_set(err, ERR_INPUT, "part %zu%s%.40s%s is not text; only parts of text are supported", i, type ? " (" : "",
                    type ? type : "", type ? ")" : "");
            goto done;
        }
        if ((i && text_putc(&joint, '\n', err)) || text_put(&joint, json_string_value(text), json_string_length(text), err))
            goto done;
    }
    if (!(out = json_stringn(joint.data ? joint.data : "", joint.length)))
        err_memory(err);
done:
    text_free(&joint);
    return out;
}

/* Returns the content of a message as passed to a template; a new reference. */
static json_t *content_of(const json_t *message, bool shared, struct err *err)
{
    const char *key = shared ? "value" : "content";
    json_t *content = json_object_get(message, key);
    if (json_is_array(content))
        return join_parts(content, err);
    if (json_is_string(content) || (content && json_is_null(content)))
        return json_incref(content);
    if (!content && (json_object_get(message, "tool_calls") || json_object_get(message, "function_call")))
        return json_null();
    err_set(err, ERR_INPUT, content ? "\"%s\" must be a text, or a list of parts" : "\"%s\" is missing; "
            "add it", key);
    return NULL;
}

/* Builds a message with role, content, and its other members for the template. */
static json_t *read_message(const struct prompts *p, const struct prompt *prompt, const json_t *message, struct err *err)
{
    const bool shared = !json_object_get(message, "role") && json_object_get(message, "from");
    const json_t *who = json_object_get(message, shared ? "from" : "role");
    if (!json_is_string(who)) {
        err_set(err, ERR_INPUT, "must be an object with a string \"role\"");
        return NULL;
    }
    const char *role = shared ? role_of(json_string_value(who)) : json_string_value(who);
    json_t *content = content_of(message, shared, err), *out;
    if (!content)
        return NULL;
    note_role(p, prompt, role);
    out = json_copy((json_t *)message);
    if (shared && out) {
        json_object_del(out, "from");
        json_object_del(out, "value");
    }
    if (!out || json_object_set_new(out, "role", json_string(role)) || json_object_set(out, "content", content)) {
        err_memory(err);
        json_decref(out);
        out = NULL;
    }
    json_decref(content);
    return out;
}

/* ---- chats ---- */

static bool begins_with_system(const json_t *messages)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    return role && (!strcmp(role, "system") || !strcmp(role, "developer"));
}

json_t *prompts_read_messages(const struct prompts *p, const struct prompt *prompt, const char *key, const json_t *messages,
                              struct err *err)
{
    const json_t *message;
    json_t *out = NULL, *read;
    size_t i;
    if (!json_array_size(messages)) {
        err_set(err, ERR_INPUT, "\"%s\" must be a list of at least one message", key);
        return NULL;
    }
    if (!(out = json_array())) {
        err_memory(err);
        return NULL;
    }
    json_array_foreach((json_t *)messages, i, message)
        if (!(read = read_message(p, prompt, message, err)) || json_array_append_new(out, read)) {
            if (read)
                err_memory(err);
            err_at(err, "\"%s\": message %zu", key, i);
            json_decref(out);
            return NULL;
        }
    if (p->options.system && !begins_with_system(out)) {
        json_t *first = prompts_new_chat(p, err);
        if (!first || json_array_insert(out, 0, json_array_get(first, 0))) {
            if (first)
                err_memory(err);
            json_decref(out);
            out = NULL;
        }
        json_decref(first);
    }
    return out;
}

int prompts_put_last_answers_aside(json_t *messages, struct prompt *prompt, struct err *err)
{
    size_t count = json_array_size(messages);
    while (count && prompts_is_answer(json_array_get(messages, count - 1)))
        count--;
    const json_t *answer = json_object_get(json_array_get(messages, count), "content");
    if (!count)
        return err_set(err, ERR_INPUT, "there is no question, because all messages are the assistant's; add a user's message");
    if (!prompt->answer && json_is_string(answer) && strlen(json_string_value(answer)) == json_string_length(answer) &&
        !(prompt->answer = mem_string(json_string_value(answer), err)))
        return -1;
    while (json_array_size(messages) > count)
        json_array_remove(messages, json_array_size(messages) - 1);
    return 0;
}
