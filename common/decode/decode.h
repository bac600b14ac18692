/* The decoding loop: reads a prompt and returns an answer.
 *
 *     prompt:     engine_prompt, then the first token from its last logits. Expert budgets do not apply here.
 *     iteration:  policy.next ... drafter.propose -> one forward over root and draft -> walk of the tree by the tokens that
 *                 the target itself chooses (verify/coupled.c) -> commit -> drafter.commit, policy.observe
 *
 * The root of an iteration is the last token of the text: not yet in the KV cache, row 0 of the forward; draft nodes follow.
 * Emitted tokens end exactly where decoding without a draft would have ended: at an end token, at the token limit, at the
 * end of the context, or where a stop string is complete.
 *
 * A decoder serves one prompt at a time. Several may share an engine, one after the other. */
#ifndef MOE_DECODE_DECODE_H
#define MOE_DECODE_DECODE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/stop.h"
#include "common/decode/budget.h"
#include "common/draft/share.h"
#include "common/draft/tree.h"
#include "common/engine/engine.h"
#include "common/session/caching.h"
#include "common/session/settings.h"
#include "common/stream/decode.h"
#include "common/stream/values.h"
#include "common/tokenizer/tokenizer.h"

struct decoder;
struct draft_steps;

struct decoder_setup {
    struct engine *engine;                      /* this and all pointers below must outlive the decoder */
    const struct tokenizer *tokenizer;          /* NULL: ids only */
    const struct decode_settings *settings;
    const struct budget *budget;                /* NULL: none */
    const struct caching_options *caching;      /* only the options of prefetching by forecasts are read; NULL: none */
    bool want_scores, want_hidden;              /* compute router scores and hidden states of all rows, for the sink */
    bool want_prompt_logits;                    /* compute logits of all rows of the prompt; iterations always compute all */
    /* on_device: the device may choose tokens (engine_chooses); then forwards of iterations have no logits. It may also run
     * whole iterations (decoder_loop_device); then forwards have no routes either. shares_forwards: other texts may share
     * forwards, which excludes iterations on the device. */
    bool on_device, shares_forwards;
    const struct stop *stop;                    /* if a stop is requested, a text ends after its current iteration, and a
                                                 * prompt fails after its current piece with ERR_SIGNAL; NULL: none */
    const struct decoder *counts;               /* the decoder that counts equal prompts; NULL: this one */
    /* A decoder that closes later; NULL: none. This decoder shares its recordings (forced.h) and, if `settings` are the
     * same, what its policy learns (policy_setup.like). */
    const struct decoder *like;
    bool want_drafts;                           /* keep whole drafts, including dropped nodes, for a probe */
    /* Reuse the rows of the last text that a prompt begins with: only the rest is read and passed to the sink. Results are
     * bit-identical: rows are not reused with a probe, with drafters that read the target's forwards, or if they were decoded
     * under a budget or with forced routes. */
    bool keep;
};

/* One iteration; arrays are valid during the call. */
struct decode_iteration {
    int number;                         /* index of the iteration in this prompt's answer, from 0 */
    int position;                       /* position of the root */
    /* Measurements as a stream records them (stream/decode.h). The recorder (instruments/record.c) sets `sequence`, and
     * copies some members from those below. node_tokens and node_parents include the rows of `riders`. draft_bytes,
     * catch_up, probe, restored and riders are 0 where a stream omits them. */
    struct decode_iter record;
    const struct draft_tree *tree;      /* the draft; empty: none */
    const struct draft_steps *steps;    /* steps that made the draft (grow.h); NULL: unknown */
    int drafters;                       /* in use */
    const struct draft_share *share;    /* [drafters] */
    const uint8_t *kept;                /* [nodes] 1: root, or accepted */
    const int32_t *path;                /* [1 + accepted] kept rows, the root first */
    const struct forward *forward;      /* with logits of all rows, riders included, or the chosen tokens of these rows
                                         * (on_device) */
    bool caches;                        /* experts are cached; `stored` counts reads and copies of this iteration */
    struct store_facts stored;
    const struct utility_expert *utility;       /* [moe_layers * experts] states of the cache policy; NULL: none */
    const struct second_facts *split;   /* work of the two processors; NULL: one processor */
    bool ends;                          /* the text ends with this iteration */
};

/* Callbacks that receive the output; any may be NULL. A failure ends the run. */
struct decode_sink {
    void *context;
    /* Receives each piece of the prompt after its forward; position: that of its first token. */
    int (*prompt)(void *context, const struct forward *piece, int position, struct err *err);
    /* Called after the prompt; prefill_s: seconds from the start to the first token. */
    int (*begin)(void *context, double prefill_s, struct err *err);
    int (*iteration)(void *context, const struct decode_iteration *iteration, struct err *err);
    /* Receives text as soon as it is final: whole UTF-8 characters, without the possible beginning of a stop string. */
    int (*text)(void *context, const char *bytes, size_t count, struct err *err);
};

/* The result of a run; the decoder owns it, until its next run. */
struct decode_result {
    const int32_t *token;               /* [tokens] answer, including the end token */
    int tokens;
    const char *text;                   /* answer without the end token, cut before a stop string; NULL: no tokenizer */
    size_t text_bytes;
    enum finish_reason finish;          /* FINISH_ABORT: a stop was requested; `text` is the part that was final */
    int iterations;
    int drafts, draft_tokens, accepted_tokens;      /* vLLM's num_drafts, num_draft_tokens, num_accepted_tokens */
    double prefill_s, total_s;
    int kept;                           /* tokens of the prompt whose rows were reused */
};

struct decode_prompt {
    const int32_t *token;
    int tokens;                         /* 1 .. context - 1 */
    int max_tokens;                     /* limit for this prompt; 0: the settings' limit */
    int sample;                         /* index of the sample, if one prompt is sampled several times */
    int turn;                           /* above 0: the text continues the chat of this decoder's last prompt */
    int64_t sequence;                   /* number and task (NULL: none) of the prompt in the run, for the policy */
    const char *task;
};

/* Computes how many rows a forward needs for these settings, with logits of all of them. whole: drafts include the nodes
 * that are dropped. */
int decode_rows(const struct decode_settings *settings, bool whole, int *rows, struct err *err);

/* Returns the maximum rows of a forward that `texts` texts share, given the rows for one text. */
int decode_rows_of_texts(int rows, int texts);

/* Returns the warning that streams and notes must carry if these settings change the model's text: *key is "not lossless"; or
 * "not the same text" if only the distribution is kept; or "forced" if routes or text are not the model's. Appends the settings
 * that cause it to *why. *key is NULL: the text is the model's. */
int decode_lossless_label(const struct decode_settings *settings, const struct budget *budget,
                          const struct caching_options *caching, const char **key, struct text *why, struct err *err);

int decoder_open(struct decoder **out, const struct decoder_setup *setup, struct err *err);
void decoder_close(struct decoder **decoder);

/* Returns where iterations run: "device" if the host takes no part in them, else the reason why it does, such as
 * "host: drafter model". NULL: on_device was not set, or the device has no loop. The host's loop still has tokens chosen on the
 * device if no watch reads logits. */
const char *decoder_loop_device(const struct decoder *decoder);

/* Returns notes for the user about files read by decoder_open, one per line. */
const struct text *decoder_notes(const struct decoder *decoder);

/* Returns a description of the cost of opening this drafter; NULL: nothing notable. */
const char *decoder_drafter_detail(const struct decoder *decoder, int drafter);

/* Returns a JSON list of the drafters in use, best first; NULL: none. */
const char *decoder_drafters(const struct decoder *decoder);

/* Decodes the answer to a prompt. Its random numbers depend on how often this decoder has run an equal prompt
 * (decoder_forget resets the counts): running a prompt twice gives two samples, while the order of different prompts does
 * not matter. A later turn of a chat is not counted and uses the count of the chat's first turn, so that its random numbers
 * do not depend on answers to other prompts. */
int decoder_run(struct decoder *decoder, const struct decode_prompt *prompt, const struct decode_sink *sink,
                struct decode_result *out, struct err *err);

/* The same in steps, for several texts at once, each with its own decoder and all with one engine: _begin reads a prompt;
 * decoders_step runs one iteration of each text, in as few forwards as the engine allows; decoder_ends returns whether a
 * text has ended, or must end because a stop was requested; _end returns the result. Each text equals the text of
 * decoder_run, whatever texts share its forwards. Decoder and prompt must live until the end. On failure *failed is the
 * index of the text whose own step failed; -1: a forward that several texts shared failed. */
enum { DECODERS_MAX = 128 };

/* Returns whether each decoder copies a draft model into the device's memory. */
bool decoder_copies_drafts(const struct decoder_setup *setup);

/* Returns why decoders with this setup cannot decode several texts at once, and what to do; NULL: they can. */
const char *decoder_alone(const struct decoder_setup *setup);

int decoder_begin(struct decoder *decoder, const struct decode_prompt *prompt, const struct decode_sink *sink,
                  struct err *err);
int decoders_step(struct decoder *const *decoder, int count, int *failed, struct err *err);
bool decoder_ends(const struct decoder *decoder);
void decoder_end(struct decoder *decoder, struct decode_result *out);
void decoder_forget(struct decoder *decoder);
void decoder_free_cache(struct decoder *decoder);   /* frees the KV cache of its last text */
int decoder_check(const struct decoder *decoder, const struct decode_prompt *prompt, struct err *err);  /* checks the prompt */
/* Returns the number of tokens that the prompt's sequence needs room for. */
int decoder_room(const struct decoder *decoder, const struct decode_prompt *prompt);

/* Parts of the last run for instruments that evaluate its text again (instruments/probe.h): random numbers, acceptance rule,
 * KV cache and token limit; and further drafters with the decoder's settings. */
struct acceptance;
struct drafters;
const struct sample_draw *decoder_draw(const struct decoder *decoder);
const struct acceptance *decoder_acceptance(const struct decoder *decoder);

/* Reads the policy's estimators from a calibration file, which may not exist yet, or writes to it the estimators of decoders
 * with equal settings, averaged over the decoders that have learned (calibration.h). model: digest of the target's weights.
 * A policy without estimators is an error. */
int decoder_read_calibration(struct decoder *decoder, const char *path, const char *model, struct err *err);
int decoders_write_calibration(struct decoder *const *decoder, int count, const char *path, const char *model,
                               struct err *err);
struct sequence *decoder_sequence(struct decoder *decoder);
int decoder_limit(const struct decoder *decoder);
bool decoder_drafts_chains(const struct decoder *decoder);
int decoder_open_drafters(const struct decoder *decoder, bool probabilities, struct drafters *out, struct err *err);

/* Returns the result that decoder_run would return for this prompt, given the tokens of its answer. Fails if these settings
 * would end the answer at another token. Counts the prompt as seen; iterations and drafts are 0. */
int decoder_replay(struct decoder *decoder, const struct decode_prompt *prompt, const int32_t *token, int tokens,
                   struct decode_result *out, struct err *err);

/* Counts the prompt as seen without decoding it, because another process decodes this shard of the prompts. */
int decoder_skip(struct decoder *decoder, const struct decode_prompt *prompt, struct err *err);

#endif
