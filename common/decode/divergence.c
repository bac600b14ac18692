#include "common/decode/divergence.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/companion.h"
#include "kernels/plain/route.h"

struct divergence {
    struct watch watch;
    struct companion *companion;
    struct engine *engine;              /* the companion's */
    struct sequence *sequence;          /* NULL before the first text */
    int32_t *node;                      /* [rows] 0, 1, ... */
    int32_t *token;                     /* [rows] the root and the accepted tokens after it */
    float *value;                       /* [rows] */
    int rows, vocab;
};

static int begin(struct watch *watch, const struct decode_prompt *prompt, int limit, struct err *err)
{
    struct divergence *divergence = (struct divergence *)watch;
    int capacity = prompt->tokens + limit;
    int max = engine_max_positions(divergence->engine);
    struct forward forward;
    if (capacity > max)
        return err_set(err, ERR_INPUT, "the reference model has a context of %d tokens, but texts have up to %d; give a "
                       "smaller --context",
                       max, capacity);
    sequence_close(&divergence->sequence);
    return sequence_open(&divergence->sequence, divergence->engine, capacity, err) ||
           engine_prompt(divergence->engine, divergence->sequence, prompt->token, prompt->tokens, NULL, NULL, NULL, &forward,
                         err) ? -1 : 0;
}

/* Returns the logarithm of the sum of exp(logit - max) over the vocabulary. */
static double log_total(const float *logits, int vocab, float max)
{
    double sum = 0;
    for (int i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    return log(sum);
}

static int likeliest(const float *logits, int vocab)
{
    int32_t best = 0;
    plain_top(logits, NULL, vocab, 1, &best);
    return best;
}

double divergence_between(const float *reference, const float *own, int vocab)
{
    float p_max = reference[likeliest(reference, vocab)], q_max = own[likeliest(own, vocab)];
    double p_total = log_total(reference, vocab, p_max), q_total = log_total(own, vocab, q_max), sum = 0;
    for (int i = 0; i < vocab; i++) {
        double p = (double)reference[i] - (double)p_max - p_total, q = (double)own[i] - (double)q_max - q_total;
        sum += exp(p) * (p - q);
    }
    return sum > 0 || isnan(sum) ? sum : 0;         /* rounding may produce a negative sum */
}

/* Reads the rows of the accepted path with the reference, whose logits then predict the same positions as emitted tokens. */
static int after_untimed(struct watch *watch, struct decode_iteration *iteration, struct err *err)
{
    struct divergence *divergence = (struct divergence *)watch;
    const struct batch batch = {.rows = iteration->record.emitted, .token = divergence->token,
                                .logit_rows = iteration->record.emitted};
    const size_t vocab = (size_t)divergence->vocab;
    struct forward forward;
    for (int i = 0; i < iteration->record.emitted; i++)
        divergence->token[i] = iteration->record.node_tokens[iteration->path[i]];
    if (engine_forward(divergence->engine, divergence->sequence, &batch, &forward, err) ||
        sequence_commit(divergence->sequence, divergence->node, iteration->record.emitted, err))
        return err_at(err, "--reference");
    iteration->record.flips = 0;
    for (int i = 0; i < iteration->record.emitted; i++) {
        const float *reference = forward.logits + (size_t)i * vocab;
        const float *own = iteration->forward->logits + (size_t)iteration->path[i] * vocab;
        divergence->value[i] = (float)divergence_between(reference, own, divergence->vocab);
        iteration->record.flips += likeliest(reference, divergence->vocab) != likeliest(own, divergence->vocab);
    }
    iteration->record.divergence = divergence->value;
    return 0;
}

int divergence_open(struct divergence **out, const char *reference, const struct engine *target, int rows, struct err *err)
{
    static const struct watch_class class = {.begin = begin, .after_untimed = after_untimed};
    const char *file = strcmp(reference, "self") ? reference : NULL;
    struct divergence *divergence = mem_alloc(1, sizeof *divergence, err);
    if (!divergence)
        return -1;
    divergence->watch = (struct watch){.class = &class, .reads_logits = true};
    divergence->rows = rows;
    divergence->vocab = engine_hparams(target)->vocab;
    if (companion_open(&divergence->companion, file, target, CACHE_F32, ENGINE_ROWS_MAX, rows, err))
        goto failed;
    divergence->engine = companion_engine(divergence->companion);
    if (engine_hparams(divergence->engine)->vocab != divergence->vocab) {
        err_set(err, ERR_INPUT, "%s: has a vocabulary of %d tokens, but the model has %d, so their distributions cannot be "
                "compared; choose a reference with the same vocabulary", file,
                engine_hparams(divergence->engine)->vocab, divergence->vocab);
        goto failed;
    }
    divergence->node = mem_alloc((size_t)rows, sizeof *divergence->node, err);
    divergence->token = mem_alloc((size_t)rows, sizeof *divergence->token, err);
    divergence->value = mem_alloc((size_t)rows, sizeof *divergence->value, err);
    if (!divergence->node || !divergence->token || !divergence->value)
        goto failed;
    for (int i = 0; i < rows; i++)
        divergence->node[i] = i;
    *out = divergence;
    return 0;
failed:
    divergence_close(&divergence);
    return -1;
}

void divergence_close(struct divergence **divergence)
{
    if (!*divergence)
        return;
    sequence_close(&(*divergence)->sequence);
    companion_close(&(*divergence)->companion);
    mem_free(&(*divergence)->node);
    mem_free(&(*divergence)->token);
    mem_free(&(*divergence)->value);
    mem_free(divergence);
}

struct watch *divergence_watch(struct divergence *divergence) { return &divergence->watch; }
