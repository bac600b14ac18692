/* The parts of a tokenizer, for the files of this folder alone.
 *
 *   load.c         tokenizer.json -> struct tokenizer
 *   elements.c     its elements: one table row for each kind of normaliser, pre-tokeniser, post-processor, decoder
 *   added.c        finding added tokens in a text
 *   normalize.c    normalisers;  nfc.c: the normalisation forms of Unicode
 *   split.c        pre-tokenisers;  regex.c: their patterns
 *   bpe.c          vocabulary, merges, one piece -> ids
 *   sentence.c     tokenizer.model;  sentence_encode.c: a text through it
 *   tokenizer.c    the way of a text through all of these;  decode.c: and back */
#ifndef MOE_TOKENIZER_INTERNAL_H
#define MOE_TOKENIZER_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>

#include "common/tokenizer/tokenizer.h"

int tokens_put(struct tokens *tokens, int32_t id, struct err *err);

/* Origin of bytes: runs[i] covers the bytes from the end of the previous run to `end`. */
struct origin_run {
    size_t end;
    bool from_template;
};
struct origins {
    struct origin_run *runs;
    size_t n, room;
};
int origins_put(struct origins *origins, size_t end, bool from_template, struct err *err);   /* joins with an equal run */

/* Records that the bytes begin to end (at least one) became out_begin to out_end, unchanged or rewritten. Rewritten bytes come
 * from a template if all the old ones did. *run only moves forwards; start with 0. */
int origins_map(const struct origins *origins, size_t *run, size_t begin, size_t end, size_t out_begin, size_t out_end,
                bool same, struct origins *out, struct err *err);

/* ---- vocabulary and merges ---- */

struct vocab_entry {           /* small, because a file can contain millions */
    uint32_t offset;           /* offset in bpe.strings */
    uint32_t bytes : 30, used : 1;
    uint32_t added : 1;        /* added beside the model's vocabulary: text becomes such a token only if it is searched for */
};

struct merge_entry {           /* key: left id << 32 | right id; UINT64_MAX marks an empty slot */
    uint64_t key;
    uint32_t rank;
    int32_t id;
};

struct bpe {
    struct text strings;
    struct vocab_entry *entries;       /* by id */
    size_t room;
    int size;                          /* highest id + 1 */
    int32_t *slots;                    /* open addressing on content; -1 empty */
    size_t n_slots;                    /* power of two */
    struct merge_entry *merges;
    size_t n_merge_slots;
    int32_t unk;                       /* -1: none */
    bool fuse_unk, byte_fallback, ignore_merges;
    int32_t byte_ids[256];             /* <0xNN>, -1 where missing */
};

/* Begins a vocabulary. entries: the number that the file claims; limits ids to a multiple of it. */
int bpe_start(struct bpe *bpe, size_t entries, struct err *err);
int bpe_add(struct bpe *bpe, const char *content, size_t bytes, int64_t id, struct err *err);
int bpe_index(struct bpe *bpe, struct err *err);                       /* must be called after the last bpe_add */
int32_t bpe_find(const struct bpe *bpe, const char *content, size_t bytes);
int32_t bpe_find_own(const struct bpe *bpe, const char *content, size_t bytes);      /* the same, without added tokens */
int bpe_merges_start(struct bpe *bpe, size_t n_merges, struct err *err);
int bpe_merge_add(struct bpe *bpe, uint32_t rank, const char *left, size_t left_bytes, const char *right, size_t right_bytes,
                  struct err *err);
void bpe_free(struct bpe *bpe);

struct bpe_symbol { int32_t id, before, after; uint32_t bytes; };
struct bpe_pending { uint64_t order; int32_t id; };                    /* order: rank << 32 | position */
struct bpe_scratch {
    struct bpe_symbol *symbols;
    struct bpe_pending *heap;
    size_t symbol_room, heap_room, n_heap;
};
void bpe_scratch_free(struct bpe_scratch *scratch);

/* Converts one piece (UTF-8, not empty) to ids. */
int bpe_encode(const struct bpe *bpe, const char *text, size_t bytes, struct bpe_scratch *scratch, struct tokens *out,
               struct err *err);

/* A binary heap, least order first: the lowest rank, then the leftmost. */
int bpe_heap_put(struct bpe_scratch *scratch, struct bpe_pending item, struct err *err);
struct bpe_pending bpe_heap_take(struct bpe_scratch *scratch);

/* ---- added tokens ---- */

struct added_token {
    char *content;
    size_t bytes;
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
    struct text form;          /* content searched for in normalised text, and written by decoding; empty if not `normalized` */
};

struct added_node { uint8_t byte; int32_t child, next, token; };       /* -1: none */
struct added_trie {
    struct added_node *nodes;
    size_t n, room;
    int32_t roots[256];
};
void added_trie_start(struct added_trie *trie);
int added_trie_put(struct added_trie *trie, const char *content, size_t bytes, int32_t token, struct err *err);
/* Returns the child of a node for this byte, or -1. */
int32_t added_child(const struct added_trie *trie, int32_t node, uint8_t byte);
/* Finds the longest entry that starts at `at` and ends at or before `limit`, and its end; -1 if none. */
int32_t added_longest(const struct added_trie *trie, const char *text, size_t at, size_t limit, size_t *end);

struct added_cut {             /* id of a token; -1: the text between tokens */
    size_t begin, end;
    int32_t token;
};
struct added_cuts { struct added_cut *cuts; size_t n, room; };
int added_find(const struct added_trie *trie, const struct added_token *tokens, const char *text, size_t bytes,
               const struct origins *origins, struct added_cuts *out, struct err *err);

/* ---- pre-tokenisation ---- */

struct span { size_t begin, end; };
struct pieces {                /* a text and its pieces, in order, none empty */
    struct text text;
    bool at_start;             /* the text's first byte is the first of the whole input */
    struct span *spans;
    size_t n, room;
};
void pieces_free(struct pieces *pieces);

struct regex { pcre2_code *code; };
int regex_compile(struct regex *out, const char *pattern, size_t bytes, struct err *err);
void regex_free(struct regex *regex);

struct regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};
int regex_scratch_start(struct regex_scratch *scratch, struct err *err);
void regex_scratch_free(struct regex_scratch *scratch);
/* Finds the first match at or after `from` in valid UTF-8 text: returns 1 and sets *at, 0 if none, -1 on error. */
int regex_find(const struct regex *regex, struct regex_scratch *scratch, const char *text, size_t bytes, size_t from,
               struct span *at, struct err *err);

/* A needle: a pattern or a literal string. */
struct needle {
    struct regex regex;
    char *literal;
    size_t literal_bytes;
};
struct needle_walk { size_t from, last; bool any; };           /* start with {0} */
void needle_free(struct needle *needle);
/* Finds the next match: returns 1 and sets *at, 0 if none, -1 on error. Skips an empty match right after a match. */
int needle_next(const struct needle *needle, struct regex_scratch *scratch, const char *text, size_t bytes,
                struct needle_walk *walk, struct span *at, struct err *err);

enum split_behavior { SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_MERGED_WITH_PREVIOUS, SPLIT_MERGED_WITH_NEXT, SPLIT_CONTIGUOUS };

struct split_cut { size_t begin, end; bool match; };
struct split_scratch {
    struct regex_scratch regex;
    struct split_cut *cuts;
    size_t n, room;
};
void split_scratch_free(struct split_scratch *scratch);

struct split_step;
typedef int split_apply(const struct split_step *step, struct split_scratch *scratch, const struct pieces *in,
                        struct pieces *out, struct err *err);
struct split_step {            /* one element of the pre-tokeniser list */
    split_apply *apply;
    struct needle needle;
    enum split_behavior behavior;
    bool (*is)(uint32_t code); /* characters that split_characters looks for */
    bool invert, add_prefix_space, first_only, use_regex;
};
split_apply split_pattern, split_byte_level, split_characters, split_metaspace;
bool is_numeric(uint32_t code), is_punctuation(uint32_t code), is_space(uint32_t code);
extern const char split_byte_level_pattern[];

uint32_t byte_level_char(uint8_t byte);                /* returns the letter of a byte in the byte-level alphabet */
int byte_level_byte(uint32_t code);                    /* returns the byte of a letter; -1 for other characters */

/* ---- normalisation ---- */

struct passage {
    const char *text;
    size_t bytes;
    const struct origins *origins;
};
struct normalizer_step;
/* out and out_origins are overwritten. */
typedef int normalizer_apply(const struct normalizer_step *step, struct regex_scratch *scratch, struct passage in,
                             struct text *out, struct origins *out_origins, struct err *err);
struct normalizer_step {       /* one element of the normaliser list */
    normalizer_apply *apply;
    struct needle needle;
    char *content;             /* text that Prepend adds, and that replaces the needle in Replace */
    size_t content_bytes;
    bool compatible, composed; /* the form of Unicode: NFD, NFC, NFKD, NFKC */
};
normalizer_apply normalize_form, normalize_prepend, normalize_replace;

/* ---- the whole ---- */

struct decoder_step;           /* rewrites the content of a token towards its bytes */
typedef int decoder_apply(const struct decoder_step *step, struct regex_scratch *scratch, const struct text *in,
                          struct text *out, struct err *err);
struct decoder_step {
    decoder_apply *apply;
    struct needle needle;
    char *content;
    size_t content_bytes;
    int64_t left, right;       /* Strip: max copies of the needle to remove */
    bool skips_added;
};
decoder_apply decode_byte_level, decode_replace, decode_strip;
int decode_vocabulary(struct tokenizer *t, struct err *err);

/* Decoder settings beyond rewriting single tokens. */
struct decoding {
    bool raw;                  /* tokens are bytes, not characters */
    bool byte_tokens;          /* <0xNN> is that byte */
    bool whole_runs;           /* an invalid run of byte tokens becomes U+FFFD completely, not only its invalid part */
    bool fused;                /* while loading: the decoders so far join all tokens into one string */
    bool first_drops;          /* removes every `dropped` from the first token; in other tokens it becomes a space */
    char dropped[5], stripped[5];
    int64_t strip;             /* from the start of the text at most this many `stripped` are removed ... */
    bool strip_each;           /* ... or one from each token, while there is no text yet */
    int32_t unstripped;        /* a token that loses nothing; -1: none */
};

enum { TOKENIZER_STEPS = 16, TOKENIZER_ADDED_BYTES = 512, TOKENIZER_PATTERN_BYTES = 16384 };

struct sentence;
struct tokenizer {
    struct bpe bpe;
    struct sentence *sentence;         /* model of a tokenizer.model; replaces all elements below */
    struct added_token *added;
    size_t n_added, added_room;
    int32_t *added_by_id;              /* index into added, or -1 */
    struct added_trie raw, normalized; /* tokens looked for before and after normalisation */
    struct normalizer_step normalizers[TOKENIZER_STEPS];
    struct split_step splits[TOKENIZER_STEPS];
    struct decoder_step decoders[TOKENIZER_STEPS];
    int n_normalizers, n_splits, n_decoders;
    struct decoding decoding;
    bool *is_byte;                     /* by id: a byte token */
    struct tokens before, after;       /* ids that post_processor puts around a text */
    struct text bytes;                 /* decoded bytes of all tokens ... */
    size_t *byte_offsets;              /* ... token id: bytes[byte_offsets[id]] up to byte_offsets[id + 1] */
    struct sha256 hash;
};

/* Loads one kind of element of tokenizer.json into t; a missing or null member loads nothing. */
int load_normalizer(struct tokenizer *t, const json_t *root, struct err *err);
int load_pre_tokenizer(struct tokenizer *t, const json_t *root, struct err *err);
int load_post_processor(struct tokenizer *t, const json_t *root, struct err *err);
int load_decoder(struct tokenizer *t, const json_t *root, struct err *err);
int load_bool(const json_t *object, const char *where, const char *key, bool fallback, bool *out, struct err *err);

#endif
