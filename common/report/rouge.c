#include "common/report/rouge.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/text.h"

struct word {
    const char *at;
    size_t bytes;
};

/* Returns a letter or digit in lower case; a space for any other character. */
static char plain_letter(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : ' ';
}

/* Appends the text in lower case, with spaces for other characters. Two characters beyond ASCII have lower cases in ASCII:
 * the Kelvin sign, and the dotted I, which becomes i and a dot. */
static int put_plain(struct text *out, const char *text, struct err *err)
{
    static const char kelvin[] = "\xe2\x84\xaa", dotted[] = "\xc4\xb0";
    while (*text) {
        bool is_kelvin = !strncmp(text, kelvin, sizeof kelvin - 1), is_dotted = !strncmp(text, dotted, sizeof dotted - 1);
        if (is_kelvin ? text_putc(out, 'k', err) : is_dotted ? text_puts(out, "i ", err)
                      : text_putc(out, plain_letter(*text), err))
            return -1;
        text += is_kelvin ? sizeof kelvin - 1 : is_dotted ? sizeof dotted - 1 : 1;
    }
    return 0;
}

/* Splits the output of put_plain into words, which point into it. */
static int split(const struct text *text, struct word **out, struct err *err)
{
    struct word *words = NULL;
    size_t room = 0;
    int count = 0;
    for (size_t at = 0; at < text->length && count < ROUGE_WORDS; at++) {
        size_t begin = at;
        while (at < text->length && text->data[at] != ' ')
            at++;
        if (at == begin)
            continue;
        if (mem_grow(&words, &room, (size_t)count + 1, sizeof *words, err)) {
            mem_free(&words);
            return -1;
        }
        words[count++] = (struct word){ text->data + begin, at - begin };
    }
    *out = words;
    return count;
}

static bool equal(const struct word *a, const struct word *b)
{
    return a->bytes == b->bytes && !memcmp(a->at, b->at, a->bytes);
}

/* Returns the length of the longest common subsequence. length[j]: of the words of a so far and the first j of b. */
static int common_words(const struct word *a, int count_a, const struct word *b, int count_b, int *length)
{
    for (int i = 0; i < count_a; i++) {
        int diagonal = 0;
        for (int j = 0; j < count_b; j++) {
            int above = length[j + 1];
            if (equal(&a[i], &b[j]))
                length[j + 1] = diagonal + 1;
            else if (length[j] > above)
                length[j + 1] = length[j];
            diagonal = above;
        }
    }
    return length[count_b];
}

int rouge_l(const char *text, const char *expected, double *score, struct err *err)
{
    struct text plain = {0}, target = {0};
    struct word *has = NULL, *want = NULL;
    int *length = NULL, rc = -1, count, wanted;
    if (put_plain(&plain, text, err) || put_plain(&target, expected, err) || (count = split(&plain, &has, err)) < 0 ||
        (wanted = split(&target, &want, err)) < 0 || !(length = mem_alloc((size_t)wanted + 1, sizeof *length, err)))
        goto done;
    *score = count && wanted ? 2.0 * common_words(has, count, want, wanted, length) / (count + wanted) : 0;
    rc = 0;
done:
    text_free(&plain);
    text_free(&target);
    mem_free(&has);
    mem_free(&want);
    mem_free(&length);
    return rc;
}
