/* Text to token ids and back, as the file tokenizer.json (Hugging Face `tokenizers`) describes it.
 *
 * The file is a pipeline described by data, and so is struct tokenizer: added tokens, a list of normalisers, a list of
 * pre-tokenisers, the BPE model, a list of decoders and the ids put around a text. Each kind of element is one row of a table
 * (elements.c); loading rejects an unknown element by name.
 *
 * In:     valid UTF-8 (otherwise an error names the byte offset). NULs are allowed.
 * Out:    int32_t ids, 0 <= id < tokenizer_vocab_size(). The vocabulary may have gaps, and the model's may be larger (padding).
 * Owns:   a tokenizer is immutable and thread-safe; it does not refer to the JSON text.
 * Errors: ERR_INPUT for invalid files and texts.
 *
 * Deliberate differences from the Python package: a character that the vocabulary cannot encode, without an unknown token, is
 * an error (the package drops it silently); an added token decodes to its content (the package maps it through the byte
 * alphabet); ids without a token decode to nothing. Character classes are those of the installed PCRE2 and utf8proc. */
#ifndef MOE_TOKENIZER_TOKENIZER_H
#define MOE_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/text.h"

struct tokenizer;

/* json: the text of tokenizer.json, or the bytes of tokenizer.model, a SentencePiece model (recognised by its first byte). In
 * the latter, control symbols are the special tokens. The text between two of them is encoded separately (with collapsed white
 * space and a prefix mark, if the model does so); the frame is the model's bos. */
int tokenizer_new(struct tokenizer **out, const char *json, size_t bytes, struct err *err);
void tokenizer_free(struct tokenizer **tokenizer);

/* Writes the tokenizer.json of a model that has none, such as one of random weights: the 256 bytes, which encode any text,
 * and made-up words for all ids from 256 to below `vocab`, so that any decoded text is readable. The first ids are the same
 * for every `vocab`. Writes nothing if `vocab` is too small for the bytes. out: {0} */
int tokenizer_made(struct text *out, int vocab, struct err *err);

int tokenizer_vocab_size(const struct tokenizer *tokenizer);             /* highest id + 1 */

/* SHA-256 of the mapping between texts and ids: every token, the merges in order, the flags of added tokens and the settings of
 * all other elements, decoders included. White space and the spelling of merges do not count; a folder and a GGUF file of the
 * same tokenizer have different hashes. */
void tokenizer_hash(const struct tokenizer *tokenizer, struct sha256 *out);

/* Returns the first id whose token differs between the two, as written in their files; -1 if none. */
int32_t tokenizer_compare(const struct tokenizer *a, const struct tokenizer *b);

/* Returns the bytes of token `id` (borrowed; special tokens: their content); NULL if there is no such token. */
const uint8_t *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *bytes);
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);

/* Returns the id of the token with this spelling in tokenizer.json (byte-level vocabularies: in their alphabet), or -1. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *content);

/* A growing list of ids. Start with {0}. */
struct tokens {
    int32_t *ids;
    size_t room;
    int n;
};
void tokens_free(struct tokens *tokens);

enum {
    TOKENIZER_PARSE_SPECIAL = 1,    /* parses the text of a special token as that token, not as plain text */
    TOKENIZER_FRAME         = 2     /* adds the tokens of post_processor (bos); chat templates write their own */
};

/* Appends the ids of the text. Added tokens that are not special (runs of spaces in GPT-NeoX, say) are ordinary vocabulary
 * and are found with and without TOKENIZER_PARSE_SPECIAL. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, unsigned flags, struct tokens *out,
                     struct err *err);

/* Encodes a text in consecutive parts, some from a template and some from people. The ids are those of the joined text, except
 * that a special token is recognised only if ALL its bytes are from the template. Content that spells "<|end|>", or completes
 * one that the template begins, is plain text and is pre-tokenised as such. */
struct text_segment {
    size_t bytes;
    bool from_template;
};
int tokenizer_encode_segments(const struct tokenizer *tokenizer, const char *text, const struct text_segment *segments,
                              size_t n_segments, unsigned flags, struct tokens *out, struct err *err);

/* Decodes tokens as they arrive. Appends complete UTF-8 characters only: the bytes of an incomplete one are held back until
 * the next token; at the end they become one U+FFFD. Invalid bytes become U+FFFD, one for each maximal valid prefix. Byte
 * tokens (<0xE2>) are held back until another kind of token arrives; if their run is invalid, each becomes one U+FFFD (in a
 * run of more than 256 bytes, the characters before the last 256 are kept). */
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

/* Decodes all tokens at once. */
int tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int n, unsigned flags, struct text *out,
                     struct err *err);

#endif
