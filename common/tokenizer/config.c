#include "common/tokenizer/config.h"

#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"

void tokenizer_config_free(struct tokenizer_config *config)
{
    mem_free(&config->chat_template);
    json_decref(config->tokens);
    config->tokens = NULL;
}

/* Returns a string, or the "content" of an object; NULL if the value is neither. */
static const json_t *token_text(const json_t *token)
{
    if (json_is_object(token))
        token = json_object_get(token, "content");
    return json_is_string(token) ? token : NULL;
}

static const json_t *default_template(const json_t *given)
{
    const json_t *item;
    size_t i;
    if (!json_is_array(given))
        return given;
    json_array_foreach(given, i, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && !strcmp(name, "default"))
            return json_object_get(item, "template");
    }
    return NULL;
}

int tokenizer_config_read(struct tokenizer_config *out, const char *json, size_t bytes, struct err *err)
{
    static const char *const names[] = { "bos_token", "eos_token", "pad_token", "unk_token" };
    struct tokenizer_config made = {0};
    json_error_t where;
    int rc = -1;
    json_t *root = json_read(json, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!root || !json_is_object(root)) {
        if (root)
            err_set(err, ERR_INPUT, "expected a JSON object");
        else if (json_no_memory(&where))
            err_memory(err);
        else
            err_set(err, ERR_INPUT, "not valid JSON, line %d column %d: %s", where.line, where.column, where.text);
        goto done;
    }
    const json_t *given = json_object_get(root, "chat_template"), *chat = default_template(given);
    if (given && !json_is_null(given) && !json_is_string(chat)) {
        err_set(err, ERR_INPUT, "\"chat_template\" must be a string, or a list with one named \"default\"");
        goto done;
    }
    if (json_is_string(chat) && !(made.chat_template = mem_copy(json_string_value(chat), json_string_length(chat), err)))
        goto done;
    made.add_bos = json_is_true(json_object_get(root, "add_bos_token"));
    made.add_eos = json_is_true(json_object_get(root, "add_eos_token"));
    made.tokens = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *text = token_text(json_object_get(root, names[i]));
        if (text && json_object_set_new(made.tokens, names[i], json_string(json_string_value(text)))) {
            err_memory(err);
            goto done;
        }
    }
    if (!made.tokens) {
        err_memory(err);
        goto done;
    }
    *out = made;
    made = (struct tokenizer_config){0};
    rc = 0;
done:
    tokenizer_config_free(&made);
    json_decref(root);
    return rc;
}
