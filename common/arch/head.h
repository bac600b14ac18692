/* Published draft heads: the meaning of their config.json, and the names of their tensors.
 *
 * The kind is recognised by the tensors, and by config.json if the tensors are ambiguous: a file that calls itself EAGLE-3
 * is read as EAGLE-3, and tensors that it lacks are then missing. Published layouts, all from the authors' programs:
 *
 *     eagle1       fc, layers.0.*, embed_tokens if kept; "bias": false if fc has none (EAGLE, model/cnets1.py)
 *     eagle3       fc, midlayer.*, norm, lm_head, d2t, t2d (EAGLE, model/cnets.py); layers.0.* for midlayer.* (vLLM
 *                  speculators, SpecForge, NVIDIA), whose config.json may nest the layer's keys as transformer_layer_config
 *                  and the others as eagle_config; input_norm with norm_before_fc, fc_norm.S with fc_norm
 *     medusa       I.B.linear, I.N.weight, N the number of blocks (medusa_lm_head.pt)
 *     hydra        hydra_mlp.I.B.{linear,res_connection}, hydra_lm_head.I (hydra_lm_head.pt); if a Dropout precedes each
 *                  block, numbers 1, 3, ... and hydra_lm_head.I.1; prefix_embeding_layer.*, spelt so
 *     kangaroo     layers.0.{input_layernorm,self_attn}, norm; its files do not state which layer it reads
 *     jakiro       as eagle1 with layers.0.mlp_moe.{gate,experts.E}; jakiro_star: experts.E.{fc,proj}
 *
 * Values that a file lacks are the target's, as in the original programs; `notes` receives a note for the user. */
#ifndef MOE_ARCH_HEAD_H
#define MOE_ARCH_HEAD_H

#include "common/arch/arch.h"
#include "common/base/text.h"

/* Meaning of the layer ids in EAGLE-3's config.json. */
enum layer_ids {
    LAYER_IDS_AS_PUBLISHED,         /* ids mean states before layers if config.json has speculators_model_type, else after
                                     * layers */
    LAYER_IDS_OUTPUT,               /* id N: the state after layer N (SpecForge, NVIDIA) */
    LAYER_IDS_INPUT                 /* id N: the state before layer N (vLLM) */
};

/* Access to tensors by name. */
struct head_tensors {
    /* Returns the [*count] dims of a tensor, valid as long as the tensors; NULL: no such tensor. */
    const int64_t *(*dims)(const void *context, const char *name, int *count);
    const void *context;
};

struct head_request {
    enum head_kind kind;            /* HEAD_NONE: recognise the kind */
    int exit_layer;                 /* kangaroo: the head reads the state after this many layers; 0: from config.json */
    enum layer_ids layer_ids;
    const json_t *config;           /* NULL: no config.json */
    struct head_tensors tensors;
    const struct model *target;
};

struct head_reading {
    struct head_params head;        /* without the vocabulary map, which is a tensor; so head_check has not checked it */
    struct hparams shape;
    const struct naming *naming;
    struct text notes;              /* notes for the user: which values are the target's, and which were assumed */
};

/* Returns the kind that tensors and config.json identify; HEAD_NONE: no known kind. */
enum head_kind head_recognise(const struct head_request *request);

/* Reads a head. out: {0}; it must be freed also after a failure. */
int head_read(struct head_reading *out, const struct head_request *request, struct err *err);
void head_reading_free(struct head_reading *reading);

/* The programs that published heads were made for: head_publish writes a head for one of these. */
enum head_program {
    PROGRAM_NONE,
    PROGRAM_EAGLE,                  /* EAGLE-1, -2 and -3 in their authors' program */
    PROGRAM_SPECULATORS,            /* EAGLE-3 in vLLM */
    PROGRAM_MEDUSA, PROGRAM_HYDRA, PROGRAM_KANGAROO, PROGRAM_JAKIRO,
    PROGRAMS
};
extern const char *const head_program_words[];          /* [program]; ends with NULL */

/* Returns the tensor names of a program's layout, and the config.json from which head_read makes the same head and shape; free
 * it by json_decref. note: {0}; receives notes for the user, about settings that the program requires but no file contains.
 * Fails if the program cannot represent the head. */
int head_publish(const struct naming **naming, json_t **config, const struct head_params *head, const struct hparams *shape,
                 enum head_program program, struct text *note, struct err *err);

/* Returns the names for head_publish, by kind; layers: those with layers.0 in place of EAGLE's midlayer. */
const struct naming *head_naming(const struct head_params *head, bool layers);

/* Makes a head without a checkpoint: in the shape of config.json or, with NULL, in its authors' usual shape for this target:
 * a layer with the target's heads, an inner width of 11 / 4 of the hidden width, 4 heads of one block, 32,000 words, the
 * state after 2 layers. out: {0}; it is checked, with its vocabulary map, and must be freed also after a failure. */
int head_invent(struct head_reading *out, enum head_kind kind, const json_t *config, const struct model *target,
                struct err *err);

#endif
