/* Text to token ids and back, as the file tokenizer.json (Hugging Face `tokenizers`) describes it.
 *
 * The file is a pipeline described by data, and so is struct tokenizer: added tokens, a list of normalisers, a list of
 * pre-tokenisers, the BPE model, a list of decoders and the ids put around a text. Each kind of element is one row of a table
 * (tokenizer_load.c); an element that is not there is refused by name when the file is loaded.
 *
 * In:     UTF-8 text without faults (anything else is an error that names the byte offset). NULs are allowed.
 * Out:    int32_t ids, 0 <= id < tokenizer_vocab_size(). The vocabulary may have gaps, and the model's may be larger (padding).
 * Owns:   a tokenizer is constant once made and may be shared by threads; it keeps nothing of the JSON text.
 * Errors: ERR_INPUT for files and texts that are not what they must be.
 *
 * Differences from the Python package, all deliberate: a character that the vocabulary cannot write and for which it has no
 * unknown token is an error, where the package drops it silently; an added token decodes to its content, where the package
 * would run it through the byte alphabet; ids without a token decode to nothing. Character classes are those of the
 * installed PCRE2 and utf8proc. */
#ifndef MOE_TOKENIZER_TOKENIZER_H
#define MOE_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/text.h"

struct tokenizer;

/* json: the text of tokenizer.json; or the bytes of tokenizer.model, a SentencePiece model, which are recognised. There,
 * control symbols are the special tokens, and the text between two of them is a text of its own (white space collapses, and a
 * mark is put in front, where the model does that); the frame is the model's bos. */
int tokenizer_new(struct tokenizer **out, const char *json, size_t bytes, struct err *err);
void tokenizer_free(struct tokenizer **tokenizer);

int tokenizer_vocab_size(const struct tokenizer *tokenizer);             /* highest id + 1 */

/* SHA-256 over what the file says of ids and texts: every token, the merges in order, the flags of added tokens and the
 * descriptions of the other elements, decoders included. White space and the two spellings of merges do not matter; two ways to
 * describe one tokenizer (a folder, a GGUF file) have two hashes. */
void tokenizer_hash(const struct tokenizer *tokenizer, struct sha256 *out);

/* The first id that is not the same token in both, as it is written in their files; -1: there is none. */
int32_t tokenizer_compare(const struct tokenizer *a, const struct tokenizer *b);

/* The bytes that token `id` stands for (borrowed; special tokens: their content). NULL when there is no such token. */
const uint8_t *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *bytes);
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);

/* The id of the token written so in tokenizer.json (for byte-level vocabularies in their alphabet), or -1. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *content);

/* A growing list of ids. Start with {0}. */
struct tokens {
    int32_t *ids;
    size_t room;
    int n;
};
void tokens_free(struct tokens *tokens);

enum {
    TOKENIZER_PARSE_SPECIAL = 1,    /* the text of a special token becomes that token; otherwise it is plain text */
    TOKENIZER_FRAME         = 2     /* add what post_processor puts around a text (bos); chat templates write their own */
};

/* Appends the ids of the text. Added tokens that are not special (runs of spaces in GPT-NeoX, say) are ordinary vocabulary
 * and are found with and without TOKENIZER_PARSE_SPECIAL. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, unsigned flags, struct tokens *out,
                     struct err *err);

/* A text in consecutive parts, some of which come from a template and some from people. The ids are those of the joint
 * text, with one exception: a special token counts only where ALL its bytes are of the template. Elsewhere (content that
 * spells "<|end|>", or half of it with the template's other half) it is plain text, and pre-tokenisation runs through it as
 * through any text. */
struct text_segment {
    size_t bytes;
    bool from_template;
};
int tokenizer_encode_segments(const struct tokenizer *tokenizer, const char *text, const struct text_segment *segments,
                              size_t n_segments, unsigned flags, struct tokens *out, struct err *err);

/* Tokens to text as they come. What is appended to `out` is always whole UTF-8 characters: the bytes of an incomplete one
 * are held back until the next token, or, at the end, become one U+FFFD. Invalid bytes become U+FFFD, one for each maximal
 * valid prefix. Byte tokens (<0xE2>) are held back until another token comes: if their run is not valid, each of them
 * becomes one U+FFFD (where a run is longer than 256 bytes, what came before those stays as it was). */
enum { TOKENIZER_SHOW_SPECIAL = 1 };
struct token_decoder {
    const struct tokenizer *tokenizer;
    unsigned flags;
    bool started, run_bad;
    int n_held, n_run;
    uint8_t held[4], run[256];
    int64_t to_strip;
};
void token_decoder_start(struct token_decoder *decoder, const struct tokenizer *tokenizer, unsigned flags);
int token_decoder_put(struct token_decoder *decoder, int32_t id, struct text *out, struct err *err);
int token_decoder_end(struct token_decoder *decoder, struct text *out, struct err *err);

/* The whole at once. */
int tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int n, unsigned flags, struct text *out,
                     struct err *err);

#endif
