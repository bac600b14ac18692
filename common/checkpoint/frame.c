#include "common/checkpoint/frame.h"

#include <string.h>

#include "common/base/json_walk.h"

static int is_framed(const struct tokenizer *tokenizer, bool *framed, struct err *err)
{
    struct tokens around = {0};
    int rc = tokenizer_encode(tokenizer, "", 0, TOKENIZER_FRAME, &around, err);
    *framed = around.n > 0;
    tokens_free(&around);
    return rc;
}

/* Returns a token of the configuration if it is requested (`asked`), and sets its id; NULL if no token is to be added. */
static const char *token_of(const struct tokenizer *tokenizer, const struct tokenizer_config *config, bool asked,
                            const char *name, int32_t *id)
{
    const char *content = asked ? json_string_value(json_object_get(config->tokens, name)) : NULL;
    return content && (*id = tokenizer_find(tokenizer, content)) >= 0 ? content : NULL;
}

/* Adds a token to both lists of a TemplateProcessing. */
static int put_token(json_t *template, const char *content, int32_t id)
{
    json_t *piece = json_pack("{s:{s:s,s:i}}", "SpecialToken", "id", content, "type_id", 0);
    return json_array_append_new(json_object_get(template, "single"), piece) ||
           json_object_set_new(json_object_get(template, "special_tokens"), content,
                               json_pack("{s:s,s:[i],s:[s]}", "id", content, "ids", (int)id, "tokens", content)) ? -1 : 0;
}

int frame_make(char **out, const struct tokenizer *tokenizer, const struct tokenizer_config *config, struct err *err)
{
    int32_t bos = -1, eos = -1;
    bool framed;
    if (is_framed(tokenizer, &framed, err))
        return -1;
    const char *begin = token_of(tokenizer, config, config->add_bos && !framed, "bos_token", &bos);
    const char *end = token_of(tokenizer, config, config->add_eos && !framed, "eos_token", &eos);
    *out = NULL;
    if (!begin && !end)
        return 0;
    json_t *template = json_pack("{s:s,s:[],s:[],s:{}}", "type", "TemplateProcessing", "single", "pair", "special_tokens");
    json_t *text = json_pack("{s:{s:s,s:i}}", "Sequence", "id", "A", "type_id", 0);
    if (!template || (begin && put_token(template, begin, bos)) ||
        json_array_append(json_object_get(template, "single"), text) || (end && put_token(template, end, eos)))
        err_memory(err);
    else
        *out = json_text(template, JSON_COMPACT, err);
    json_decref(template);
    json_decref(text);
    return *out ? 0 : -1;
}

/* Finds a member of a text's JSON object; `value` stays empty if there is none. */
static int find_member(struct json_part whole, const char *name, struct json_part *value, struct err *err)
{
    struct json_walk walk;
    struct text key = {0};
    int more = 0;
    *value = (struct json_part){.begin = whole.begin};
    for (json_walk_start(&walk, whole); !value->text && (more = json_walk_next(&walk, err)) > 0;)
        if (json_part_string(walk.key, &key, err)) {
            more = -1;
            break;
        } else if (!strcmp(key.data, name)) {
            *value = walk.value;
        }
    text_free(&key);
    return more < 0 ? -1 : 0;
}

int frame_put(struct text *out, const struct text *json, const char *frame, struct err *err)
{
    struct json_part whole, old;
    if (json_whole(&whole, json->data, json->length, err) || find_member(whole, "post_processor", &old, err))
        return -1;
    const char *end = json->data + json->length, *rest = old.text ? old.text + old.bytes : whole.text + 1;
    const bool absent = !old.text, none = !absent && *old.text == 'n';
    if (text_put(out, json->data, (size_t)((absent ? rest : old.text) - json->data), err) ||
        (absent ? text_printf(out, err, "\"post_processor\":%s,", frame) :
         none   ? text_puts(out, frame, err) :
                  text_puts(out, "{\"type\":\"Sequence\",\"processors\":[", err) ||
                  text_put(out, old.text, old.bytes, err) || text_printf(out, err, ",%s]}", frame)))
        return -1;
    return text_put(out, rest, (size_t)(end - rest), err);
}
