#include "common/report/rouge.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <strings.h>

#include "common/base/mem.h"

struct word {
    const char *at;
    size_t bytes;
};

static bool in_word(char c) { return isalnum((unsigned char)c) || (unsigned char)c >= 0x80; }

static int split(const char *text, struct word **out, struct err *err)
{
    struct word *words = NULL;
    size_t room = 0;
    int count = 0;
    for (const char *at = text; *at && count < ROUGE_WORDS; ) {
        const char *begin = at;
        while (in_word(*at))
            at++;
        if (at == begin) {
            at++;
            continue;
        }
        if (mem_grow(&words, &room, (size_t)count + 1, sizeof *words, err)) {
            mem_free(&words);
            return -1;
        }
        words[count++] = (struct word){ begin, (size_t)(at - begin) };
    }
    *out = words;
    return count;
}

static bool equal(const struct word *a, const struct word *b)
{
    return a->bytes == b->bytes && !strncasecmp(a->at, b->at, a->bytes);
}

/* length[j]: of the longest common subsequence of the words so far of a and the first j of b. */
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
    struct word *has = NULL, *want = NULL;
    int *length = NULL, rc = -1;
    int count = split(text, &has, err), wanted = count < 0 ? -1 : split(expected, &want, err);
    if (count < 0 || wanted < 0 || !(length = mem_alloc((size_t)wanted + 1, sizeof *length, err)))
        goto done;
    *score = count && wanted ? 2.0 * common_words(has, count, want, wanted, length) / (count + wanted) : 0;
    rc = 0;
done:
    mem_free(&has);
    mem_free(&want);
    mem_free(&length);
    return rc;
}
