/* tokenizer.model: a SentencePiece model (Kudo and Richardson 2018; byte pair encoding or unigram), read as it is.
 *
 * In:     the bytes of the file, a protobuf message ModelProto.
 * Out:    the vocabulary in a struct bpe (no merges: which pieces join follows from their scores), and struct sentence, which
 *         turns a text without control symbols into ids as SentencePieceProcessor::Encode does: the text normalised by the
 *         model's own table of rules, white space collapsed and marked, then cut by scores.
 * Not supported, refused by name: models of words or characters, white space as a suffix or not escaped, rules for decoding.
 * Errors: ERR_INPUT for files that are not such a model. */
#ifndef MOE_TOKENIZER_SENTENCE_H
#define MOE_TOKENIZER_SENTENCE_H

#include "common/tokenizer/internal.h"

enum piece_type { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER_DEFINED, PIECE_UNUSED, PIECE_BYTE };

enum { PIECE_BYTES = 4096, RULE_BYTES = 256 };

struct sentence {
    uint8_t *types;                    /* by id */
    float *scores;
    size_t count;
    int32_t unk, bos;                  /* bos: -1 if there is none */
    bool unigram, byte_fallback, add_dummy_prefix, remove_extra, has_unused;
    float min, greatest;               /* lowest and highest score of normal pieces */
    size_t longest;                    /* bytes of the longest piece that text can become */
    struct added_trie user, pieces;    /* user defined symbols; with unigram all pieces that text can become */
    uint32_t *units;                   /* the rules of normalisation: a double array ... */
    size_t n_units;
    struct text rules;                 /* ... whose values are offsets of strings here */
    struct text unknown;               /* text that the unknown piece decodes to */
};

int sentence_read(struct sentence **out, struct bpe *bpe, const uint8_t *data, size_t bytes, struct err *err);
void sentence_free(struct sentence **sentence);

struct sentence_node { float score; int32_t id, begin; };
struct sentence_scratch {
    struct text text;
    struct bpe_scratch bpe;
    struct sentence_node *nodes;
    uint32_t *joints;                  /* by id of an unused piece: bytes of the left part it was last joined from */
    size_t node_room, joint_room;
};
void sentence_scratch_free(struct sentence_scratch *scratch);
int sentence_encode(const struct sentence *sentence, const struct bpe *bpe, const char *text, size_t bytes,
                    struct sentence_scratch *scratch, struct tokens *out, struct err *err);

#endif
