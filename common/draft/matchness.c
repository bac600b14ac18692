#include "common/draft/matchness.h"

#include <string.h>

#include "common/base/mem.h"

struct match_window {
    struct engine *engine;
    struct sequence *sequence;      /* the prompt without its last token */
    int32_t *token;                 /* [tokens + 1] the prompt's last token, then the window */
    int tokens;
    int64_t bytes;
};

/* Fills the window's sequence with the `count` tokens before the window: copies those that `from` keeps and reads the others
 * again, which counts as drafting. */
static int read_before(struct match_window *window, const struct sequence *from, const int32_t *token, int count,
                       struct err *err)
{
    static const struct forward_part whole;
    int32_t every[ENGINE_ROWS_MAX];
    int kept = sequence_keeps(from, count), rc = sequence_copy(window->sequence, from, kept, err);
    const int max = engine_config(window->engine)->max_rows;
    for (int rows; kept < count && !rc; kept += rows) {
        struct forward forward;
        rows = count - kept < max ? count - kept : max;
        for (int i = 0; i < rows; i++)
            every[i] = i;
        const struct batch batch = {.rows = rows, .token = token + kept, .part = &whole};
        rc = engine_forward(window->engine, window->sequence, &batch, &forward, err) ||
             sequence_commit(window->sequence, every, rows, err) ? -1 : 0;
        window->bytes += rc ? 0 : forward.bytes;
    }
    return rc;
}

int match_window_open(struct match_window **out, struct engine *engine, const struct sequence *from, const int32_t *token,
                      int prompt, int tokens, struct err *err)
{
    struct match_window *window = mem_alloc(1, sizeof *window, err);
    if (!window)
        return -1;
    window->engine = engine;
    window->tokens = tokens;
    if (!(window->token = mem_copy(token + prompt - 1, ((size_t)tokens + 1) * sizeof *token, err)) ||
        sequence_open(&window->sequence, engine, prompt - 1 + tokens, err) ||
        read_before(window, from, token, prompt - 1, err)) {
        match_window_close(&window);
        return -1;
    }
    *out = window;
    return 0;
}

void match_window_close(struct match_window **window)
{
    if (!*window)
        return;
    sequence_close(&(*window)->sequence);
    mem_free(&(*window)->token);
    mem_free(window);
}

int64_t match_window_bytes(const struct match_window *window) { return window->bytes; }

static int likeliest(const float *logits, int vocab)
{
    int best = 0;
    for (int token = 1; token < vocab; token++)
        best = logits[token] > logits[best] ? token : best;
    return best;
}

int match_window_count(struct match_window *window, const struct forward_part *left_out, int *matches, struct err *err)
{
    const struct engine_setup *made = engine_config(window->engine);
    int max = made->max_rows < made->max_logit_rows ? made->max_rows : made->max_logit_rows, found = 0, rc = 0;
    for (int row = 0; row < window->tokens && !rc; row += max) {
        int rows = window->tokens - row < max ? window->tokens - row : max;
        const struct batch batch = {.rows = rows, .token = window->token + row, .logit_rows = rows, .part = left_out};
        struct forward forward;
        rc = engine_forward(window->engine, window->sequence, &batch, &forward, err);
        if (!rc)
            window->bytes += forward.bytes;
        for (int i = 0; i < rows && !rc; i++)
            found += likeliest(forward.logits + (size_t)i * (size_t)forward.vocab, forward.vocab) ==
                     window->token[row + i + 1];
    }
    sequence_rollback(window->sequence);
    if (!rc)
        *matches = found;
    return rc;
}
