#include "common/report/best.h"

#include <jansson.h>
#include <string.h>

static bool is_static_setting(const char *key, const char *value)
{
    if (!strcmp(key, "policy"))
        return !strncmp(value, "static", 6);
    if (!strcmp(key, "draft-length"))
        return strcmp(value, "auto") != 0;
    if (!strcmp(key, "accept"))
        return strncmp(value, "typical", 7) != 0;
    if (!strcmp(key, "tree"))
        return strncmp(value, "dynamic", 7) != 0;
    return strcmp(key, "budget") && strcmp(key, "force-accept");
}

static bool json_is_static(json_t *options)
{
    const char *key;
    json_t *value;
    json_object_foreach(options, key, value)
        if (!is_static_setting(key, json_is_string(value) ? json_string_value(value) : ""))
            return false;
    return true;
}

/* Returns the option that a word begins, and its value if the same word contains the value. */
static const char *option_of(const char *word, size_t length, const char **value)
{
    static const struct { const char *text, *key; bool letter; } options[] = {
        { "--policy", "policy", false }, { "--draft-length", "draft-length", false }, { "-K", "draft-length", true },
        { "--accept", "accept", false }, { "--tree", "tree", false }, { "--budget", "budget", false },
        { "-B", "budget", true }, { "--force-accept", "force-accept", false },
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t bytes = strlen(options[i].text);
        if (length < bytes || strncmp(word, options[i].text, bytes))
            continue;
        if (length == bytes || options[i].letter || word[bytes] == '=') {
            *value = length == bytes ? NULL : word + bytes + (word[bytes] == '=');
            return options[i].key;
        }
    }
    return NULL;
}

static bool words_are_static(const char *at)
{
    const char *key = NULL;
    while (*at) {
        const char *value = NULL, *word = at;
        size_t length = strcspn(at, " ");
        char text[32];
        at += length + strspn(at + length, " ");
        if (key)
            value = word;
        else
            key = option_of(word, length, &value);
        if (!key || (!value && strcmp(key, "budget") && strcmp(key, "force-accept")))
            continue;
        size_t bytes = value ? strcspn(value, " ") : 0;
        bytes = bytes < sizeof text ? bytes : sizeof text - 1;
        memcpy(text, value ? value : "", bytes);
        text[bytes] = '\0';
        if (!is_static_setting(key, text))
            return false;
        key = NULL;
    }
    return true;
}

bool options_are_static(const char *options)
{
    json_t *parsed = *options == '{' ? json_loads(options, 0, NULL) : NULL;
    bool answer = parsed ? json_is_static(parsed) : words_are_static(options);
    json_decref(parsed);
    return answer;
}
