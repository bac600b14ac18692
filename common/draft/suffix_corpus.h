/* Earlier answers that the drafter `suffix` searches, and their index.
 *
 * A corpus is a file of one of these kinds, recognised by its first bytes: an index (suffix_corpus_save); a decode stream,
 * whose answers are used; JSON lines, each a list of token ids, or an object with `tokens` or `text`, as written by
 * moe-decode --json; or UTF-8 text, which is one text. A .txt file is always text.
 *
 * An index is a file of its own: header, tokens, nodes (struct suffix_node), all little-endian, with a digest over them. It
 * names the tokenizer of its ids. It is mapped, and validated before use. */
#ifndef MOE_DRAFT_SUFFIX_CORPUS_H
#define MOE_DRAFT_SUFFIX_CORPUS_H

#include <stddef.h>

#include "common/draft/suffix_tree.h"

struct model;
struct suffix_corpus;

struct suffix_corpus_setup {
    const struct model *model;          /* model whose tokenizer reads text and matches the ids; NULL: unknown */
    int vocab, depth;
};

/* Opens a corpus. path NULL: an empty corpus, to be grown. */
int suffix_corpus_open(struct suffix_corpus **out, const char *path, const struct suffix_corpus_setup *setup, struct err *err);
void suffix_corpus_close(struct suffix_corpus **corpus);
const struct suffix_tree *suffix_corpus_tree(const struct suffix_corpus *corpus);

/* Writes the index. An existing file is replaced only if it is an index. */
int suffix_corpus_save(const struct suffix_corpus *corpus, const char *path, struct err *err);

/* suffix_corpus_add adds an answer; suffix_corpus_grow must be called before the first one. */
int suffix_corpus_grow(struct suffix_corpus *corpus, struct err *err);
int suffix_corpus_add(struct suffix_corpus *corpus, const int32_t *token, int count, struct err *err);

/* Writes a description: numbers of tokens and texts, seconds to build or load, and memory. */
void suffix_corpus_describe(const struct suffix_corpus *corpus, char *out, size_t room);

#endif
