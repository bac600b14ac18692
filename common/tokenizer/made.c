/* The tokenizer of random weights: 256 bytes, and made-up words. */
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"

enum { BYTES = 256 };

static int put_byte(struct text *out, int byte, struct err *err)
{
    char letter[4];
    const int length = utf8_put(letter, byte_level_char((uint8_t)byte));
    return text_printf(out, err, "%s\"%s%.*s\":%d", byte ? "," : "", byte == '"' || byte == '\\' ? "\\" : "", length,
                       letter, byte);
}

/* Appends a word. Word 0 is " ba"; words of one syllable come first, then all of two, and so on. */
static int put_word(struct text *out, int number, struct err *err)
{
    static const char consonants[] = "bdfghjklmnprst", vowels[] = "aeiou";
    enum { VOWELS = sizeof vowels - 1, SYLLABLES = (sizeof consonants - 1) * VOWELS };
    char word[16], *at = word + sizeof word - 1;
    int64_t rest = number, words = SYLLABLES;
    int syllables = 1;
    for (; rest >= words; words *= SYLLABLES, syllables++)
        rest -= words;
    for (*at = '\0'; syllables--; rest /= SYLLABLES) {
        *--at = vowels[rest % VOWELS];
        *--at = consonants[rest % SYLLABLES / VOWELS];
    }
    return text_printf(out, err, ",\"\xc4\xa0%s\":%d", at, BYTES + number);          /* the alphabet's letter for a space */
}

int tokenizer_made(struct text *out, int vocab, struct err *err)
{
    struct text json = {0};
    int rc = vocab < BYTES ? 0 : text_puts(&json, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                                           "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
                                           "\"BPE\",\"vocab\":{", err);
    for (int id = 0; !rc && vocab >= BYTES && id < vocab; id++)
        rc = id < BYTES ? put_byte(&json, id, err) : put_word(&json, id - BYTES, err);
    if (!rc && vocab >= BYTES)
        rc = text_puts(&json, "},\"merges\":[]}}", err);
    if (!rc) {
        *out = json;
        return 0;
    }
    text_free(&json);
    return -1;
}
