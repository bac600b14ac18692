#include "common/cli/again.h"

#include <stdbool.h>
#include <string.h>

static int put_word(struct text *out, const char *word, struct err *err)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@%+-";
    if (*word && !word[strspn(word, plain)])
        return text_puts(out, word, err);
    if (text_putc(out, '\'', err))
        return -1;
    for (; *word; word++)
        if (*word == '\'' ? text_puts(out, "'\\''", err) : text_putc(out, *word, err))
            return -1;
    return text_putc(out, '\'', err);
}

int again_put(struct text *out, const struct console *console, int words, const char *stream, struct err *err)
{
    bool ended = false;
    if (put_word(out, strchr(console->argv[0], '/') ? console->argv[0] : console->program, err))
        return -1;
    for (int i = 1; i < words; i++)
        if (text_putc(out, ' ', err) || put_word(out, console->argv[i], err))
            return -1;
    if (text_puts(out, " --resume ", err) || put_word(out, stream, err))
        return -1;
    for (int i = words; i < console->argc; i++) {
        const char *word = console->argv[i];
        ended |= !strcmp(word, "--");
        if (!ended && !strcmp(word, "--resume"))
            i++;
        else if ((ended || strncmp(word, "--resume=", 9)) && (text_putc(out, ' ', err) || put_word(out, word, err)))
            return -1;
    }
    return 0;
}

void again_hint(struct err *err, const struct console *console, int words, const char *stream, const char *more)
{
    struct text line = {0};
    struct err full = {0};
    bool fits = !again_put(&line, console, words, stream, NULL) &&
                strlen(err->text) + line.length + strlen(more) + 64 < sizeof full.text;
    for (size_t i = 0; fits && i < line.length; i++)
        fits = (unsigned char)line.data[i] >= ' ';
    if (fits)
        err_set(&full, err->code, "%s; to continue%s, run: %s", err->text, more, line.data);
    else
        err_set(&full, err->code, "%.300s; to continue the run, add --resume %.300s to the same command line%s", err->text,
                stream, more);
    *err = full;
    text_free(&line);
}
