/* Prints the ids of texts by the tokenizer of a GGUF file, which may contain a vocabulary only: tokenize FILE.gguf < TEXTS
 *
 * Texts are separated as in llama.cpp's files of expected ids; each gives a line of ids on standard output. No tokens are
 * added around a text, and special tokens in it are plain text. Exit: 0, or 2 with one line on standard error. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/mem.h"
#include "common/checkpoint/gguf.h"
#include "common/tokenizer/tokenizer.h"

static const char SEPARATOR[] = "\n__ggml_vocab_test__\n";

static int open_tokenizer(struct tokenizer **out, const char *path, struct err *err)
{
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, err);
    struct source_file *file = cp ? checkpoint_add_file(cp, "vocabulary", err) : NULL;
    struct gguf gguf = {0};
    struct stat status;
    int rc = -1;
    if (!file)
        goto done;
    file->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &status)) {
        err_errno(err, "cannot be read");
        goto done;
    }
    file->bytes = (uint64_t)status.st_size;
    if (gguf_read(&gguf, cp, 0, err) || gguf_make_tokenizer(&gguf, cp, err))
        goto done;
    const struct text *text = &cp->texts[cp->texts[TEXT_TOKENIZER].length ? TEXT_TOKENIZER : TEXT_TOKENIZER_MODEL];
    rc = text->length ? tokenizer_new(out, text->data, text->length, err) : err_set(err, ERR_INPUT, "has no tokenizer");
done:
    gguf_free(&gguf);
    checkpoint_close(&cp);
    return rc ? err_at(err, "%s", path) : 0;
}

static int print_ids(const struct tokenizer *tokenizer, const char *text, size_t bytes, struct err *err)
{
    struct tokens ids = {0};
    int rc = tokenizer_encode(tokenizer, text, bytes, 0, &ids, err);
    for (int i = 0; i < ids.n && !rc; i++)
        printf("%s%d", i ? " " : "", (int)ids.ids[i]);
    printf("\n");
    tokens_free(&ids);
    return rc;
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer = NULL;
    struct text in = {0};
    struct err err = {0};
    char block[4096];
    int rc = 2;
    if (argc != 2) {
        err_set(&err, ERR_INPUT, "give it a GGUF file");
        goto done;
    }
    for (size_t got; (got = fread(block, 1, sizeof block, stdin)) > 0;)
        if (text_put(&in, block, got, &err))
            goto done;
    if (open_tokenizer(&tokenizer, argv[1], &err))
        goto done;
    for (char *at = in.data, *end; at; at = end ? end + strlen(SEPARATOR) : NULL) {
        end = strstr(at, SEPARATOR);
        if ((end || *at) && print_ids(tokenizer, at, end ? (size_t)(end - at) : strlen(at), &err))
            goto done;
    }
    rc = 0;
done:
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    tokenizer_free(&tokenizer);
    text_free(&in);
    return rc;
}
