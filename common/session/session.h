/* A session: model file, device, experts, engine, tokenizer and chat template, opened and closed together. */
#ifndef MOE_SESSION_SESSION_H
#define MOE_SESSION_SESSION_H

#include <stdbool.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/base/stop.h"
#include "common/cli/console.h"
#include "common/engine/engine.h"
#include "common/engine/peers.h"
#include "common/model/model.h"
#include "common/prompts/prompts.h"
#include "common/session/caching.h"
#include "common/session/settings.h"
#include "common/stream/header.h"
#include "common/template/template.h"
#include "common/tokenizer/tokenizer.h"

/* Activations of products: AUTO: f32, but quantised if the weights are in a quantised format other than fp8; F32: f32, but
 * quantised with q8 and q4 weights; BF16: as AUTO, but rounded to bf16 with bf16 weights. */
enum activations { ACTIVATIONS_AUTO, ACTIVATIONS_F32, ACTIVATIONS_BF16 };

/* Values of -m, --device, -j, --isa, --pin, --context, --kv-dtype, --activations and of the options of caching.h. */
struct session_options {
    const char *model;
    const char *device;         /* NULL: auto */
    int threads;                /* 0: not given */
    const char *isa;            /* NULL: the best */
    int context;                /* 0: the model's maximum */
    int cache;                  /* enum cache_format */
    int activations;            /* enum activations */
    bool pin;
    struct caching_options caching;
    uint64_t beside;            /* bytes of other models that will be opened */
    int texts;                  /* concurrent texts; 0: one */
    int draft_length;           /* length of the longest draft; 0: unknown */
    int device_turn;            /* `turn` of device_setup */
    const struct stop *stop;    /* a request ends forwards and waits for experts with ERR_SIGNAL; NULL: none */
    const struct peers_link *peers;     /* other processes that compute some of the experts; NULL: none */
    const char *placement;              /* rank stream that places experts on `peers`, read also without peers; NULL:
                                         * round-robin, or outputs are divided if all processes share a host */
    bool no_engine;             /* opens the model file only; the model is not run */
};

extern const char *const session_cache_words[];
extern const char *const session_activation_words[];

#define SESSION_MACHINE_OPTIONS(args, session) \
    OPT_DEVICE(args, session.device), \
    OPT_THREADS(args, session.threads), \
    OPT_ISA(args, session.isa), \
    OPT_COUNT('c', "context", args, session.context, 2, 1 << 24, "limit prompt and answer together to N tokens"), \
    OPT_CHOICE(0, "kv-dtype", args, session.cache, session_cache_words, "store keys and values in this format"), \
    OPT_CHOICE(0, "activations", args, session.activations, session_activation_words, \
               "round activations before products: auto, f32 (less than auto) or bf16 (more)")

#define SESSION_OPTIONS(args, session) \
    OPT_GROUP("Model and machine"), \
    OPT_INPUT_AS('m', "model", args, session.model, "FILE.moe", "use the model FILE"), \
    SESSION_MACHINE_OPTIONS(args, session), \
    OPT_FLAG(0, "pin", args, session.pin, "pin each thread to its own processor"), \
    CACHING_OPTIONS(args, session.caching)

/* Options for reading prompts. */
struct session_prompts {
    struct strings texts;
    const char *field, *system, *chat_template, *shard;
    bool chat, whole, parse_special;
    struct strings template_args;
    enum prompts_answers answers;       /* not options: the command sets these members of prompts/prompts.h */
    bool unanswered, each, policies, suite;     /* suite: files come from a suite, not from a command line */
};

#define SESSION_PROMPT_OPTIONS(args, prompts) \
    OPT_GROUP("Reading prompts"), \
    OPT_STRINGS('p', "prompt", args, prompts.texts, "TEXT", \
                "use TEXT as a prompt, before those of files; may be given several times"), \
    OPT_STRING(0, "field", args, prompts.field, "NAME", "read the text of a prompt from the field NAME"), \
    OPT_FLAG(0, "chat", args, prompts.chat, "wrap each text in the chat template, as a user's message"), \
    OPT_STRING(0, "system", args, prompts.system, "TEXT", "begin chats with TEXT as the system's message"), \
    OPT_FLAG(0, "whole", args, prompts.whole, "read each text file, or standard input, as one prompt, not one prompt per " \
             "line"), \
    OPT_FLAG(0, "parse-special", args, prompts.parse_special, "parse special tokens also in the text of prompts"), \
    OPT_INPUT(0, "chat-template", args, prompts.chat_template, "use the chat template in FILE, not the model's"), \
    OPT_STRINGS(0, "template-arg", args, prompts.template_args, "NAME=VALUE", "set the variable NAME of the chat template to " \
                "VALUE")

/* The option of commands whose outputs over the parts add up to the output over all prompts. */
#define SESSION_SHARD_OPTION(args, prompts) \
    OPT_STRING(0, "shard", args, prompts.shard, "I/N", "use only part I of N parts of the prompts, so that N jobs can share " \
               "them")

#define SESSION_RULES \
    {OPT_NEEDS, "cache-policy|prefetch|hot-set|host-experts", "cache-experts", "no experts are cached"}

struct session {
    struct model *model;
    struct device *device;
    struct expert_source *experts;      /* NULL: a dense model, or no engine */
    struct second *second;              /* NULL: the device computes all experts */
    struct peers *peers;                /* NULL: this process computes all experts */
    const struct peers_link *link;      /* link of `peers`, owned by the caller of session_open; NULL: none */
    struct engine *engine;              /* NULL: with no_engine */
    struct tokenizer *tokenizer;        /* NULL: the model has none; prompts and answers are ids */
    struct template *chat;              /* NULL: none, or unusable for the reason in chat_fault */
    struct err chat_fault;
    struct caching_options caching;     /* options with which the session was opened */
    struct text notes;                  /* notes on files that were read, one per line */
    json_t *trusted;                    /* bos_token and the like, for the template */
};

/* Fails if no model is named; the message suggests a model among the prompt files. */
int session_check_model(const struct session_options *options, const struct strings *prompts, struct err *err);

/* Checks --shard as far as it can be checked before the model is opened. */
int session_check_shard(const struct session_prompts *prompts, const struct strings *files, struct err *err);

/* Opens a session. rows: maximum per forward; logit_rows: maximum rows with logits. 0, 0: as many as decoding needs. */
int session_open(struct session **out, const struct session_options *options, int rows, int logit_rows, struct err *err);
void session_close(struct session **session);

/* Returns the bytes of states, keys and values of the longest text. context 0: 8,192 tokens, or the model's maximum if
 * lower. slabs: the device uses slabs. */
uint64_t session_kv_bytes(const struct hparams *shape, int context, enum cache_format format, bool slabs);

/* Checks that the keys, values and states of `texts` concurrent texts of up to `tokens` tokens, at most the context, fit
 * into the free memory, for all processes of this host. copies: number of KV caches per text. A single text is not checked. */
int session_check_texts(const struct session *session, int texts, int tokens, int copies, struct err *err);

/* Writes the file of --hot-set, if given. */
int session_keep_hot_set(const struct session *session, struct err *err);

/* Prints notes on missing device features, and, with -v, on how experts are read. */
void session_print(const struct session *session, const struct console *console);

/* Prints a note if prompts will be read from a terminal. */
void session_note_terminal(const struct session_prompts *options, const struct strings *files, const struct console *console);

/* Opens the prompts. stop: see prompts/prompts.h. console: prints the notes; NULL: none are printed. */
int session_open_prompts(struct prompts **out, const struct session *session, const struct session_prompts *options,
                         const struct strings *files, const struct stop *stop, const struct console *console,
                         struct err *err);

/* Describes a model for headers of streams. */
void stream_model_of(const struct model *model, struct stream_model *out);

/* Describes the session's model; makes a header for a stream of this kind, with device, dtype, seed and labels of the model
 * (synthetic, inflated). */
void session_stream_model(const struct session *session, struct stream_model *out);
int session_header(const struct session *session, enum stream_kind kind, const struct console *console, uint64_t seed,
                   struct header *out, struct err *err);
int session_header_part(struct header *header, const char *shard, struct err *err);     /* shard: value of --shard; NULL: all
                                                                                         * prompts */

#endif
