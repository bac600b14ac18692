/* One layer of a transformer as a function of weights, keys and values, rows and working memory. The target, the target with
 * parts left out, and draft heads are all built from it. */
#ifndef MOE_ENGINE_LAYER_H
#define MOE_ENGINE_LAYER_H

#include "common/engine/expert_plan.h"
#include "common/engine/kv.h"
#include "common/engine/recurrent.h"
#include "common/engine/weights.h"
#include "common/engine/workspace.h"
#include "common/store/expert_source.h"

/* The source of a layer's routed experts, and their formats. */
struct layer_experts {
    struct expert_source *source;
    enum weight_format format, down_format;
    int64_t bytes;                       /* bytes of one expert */
};

/* The routing of a layer, on the device. */
struct layer_routing {
    int top_k;                           /* experts per row, at most the shape's number */
    struct buffer score;                 /* [rows][experts] f32 */
    struct buffer wanted, expert;        /* [rows][top_k] i32: the router's choice, and the choice under a plan */
    struct buffer weight;                /* [rows][top_k] f32 */
    struct buffer mask;                  /* [experts] u8, for a plan; already computed if the plan is static */
};

/* A later layer whose experts are predicted by its own router from the input of this layer's router. */
struct forecast_layer {
    int number;
    const struct layer_weights *weights; /* NULL: none */
    bool forecast;                       /* the router's choice is a forecast for the source of its experts */
    int32_t *expert;                     /* [rows][top_k] receives its choice, valid after waiting for the queue; NULL:
                                          * scratch */
};

/* The rows of one text, which are contiguous among those of a forward. */
struct layer_text {
    int first;                           /* index of its first row among all rows */
    struct layer_rows rows;
    struct layer_cache cache;
    struct recurrent_layer recurrent;    /* state buffers, in a layer with a state */
    struct recurrent_rows states;        /* slots, states and paths of its rows */
    const struct expert_plan *plan;      /* the text's own plan, which differs from the layer's in the budget only; NULL:
                                          * none */
};

struct layer {
    struct workspace *space;             /* workspace of the layer's shape; x is input and output */
    int number;                          /* index in shape->layer[], and for the expert source */
    const struct layer_weights *weights;
    struct layer_experts experts;        /* for MoE layers */
    struct buffer reads;                 /* [rows][inputs of qkv] input of attention; none: the norm of x */
    const struct layer_rows *rows;       /* number and positions of the rows of all texts, and whether they are a slab */
    int first;                           /* index of the first of `rows` in the workspace */
    const struct layer_text *text;       /* [texts] contiguous, in this order */
    int texts;
    struct buffer rope;                  /* rotations of all positions (rope.h) */
    struct buffer no_rope_scale;         /* scales of queries in layers without positions; none: not scaled */
    struct layer_routing routing;
    const struct expert_plan *plan;      /* NULL: none */
    int moe;                             /* index among the MoE layers */
    struct buffer row_weight;            /* [rows] f32, for PLAN_PATH */
    struct expert_source *forecast_to;   /* receives the chosen experts as a forecast; NULL: none */
    const struct layer_weights *after;   /* weights of the layer that attends next; NULL: none */
    struct forecast_layer next;          /* layer whose experts are forecast while this layer's are computed */
    struct second *second;               /* computes some of the experts (second.h); NULL: the device computes all */
    struct peers *peers;                 /* other processes compute some of the experts (peers.h); NULL: none */
    struct peers *divided;               /* processes that divide the outputs of products; NULL: none */
    const int32_t *forced;               /* [rows][top_k] used in place of the router's choice; NULL: none */
    const struct stop *stop;             /* once a stop is requested, x may be incomplete; NULL: none */
    float *reconstruction;               /* receives the error caused by the plan (struct forward); NULL: not requested */
};

/* Writes the input of attention, or with `ffn` that of the feed-forward network, to `out`: a norm of x, or x itself
 * (NORM_AFTER). */
void layer_enter(const struct layer *layer, const struct layer_weights *weights, bool ffn, struct buffer out);

/* Returns the norm that layer_enter computes. rows 0: layer_enter copies x. */
struct norm_args layer_enter_norm(const struct layer *layer, const struct layer_weights *weights, bool ffn, struct buffer out);

/* Computes out = the norm of space->branch, plus `add` (none: 0). */
void layer_norm_branch(const struct layer *layer, struct buffer norm, struct buffer add, struct buffer out);

/* Multiplies x by the scale of the layer, if it has one, after attention and feed-forward network. */
void layer_scale(const struct layer *layer);

/* Adds the norm of space->branch to x. */
void layer_add_branch(const struct layer *layer, struct buffer norm);

/* Add the output of attention, and of the feed-forward network, to x; either may be left out. In parallel layers both read
 * space->normed, which layer_enter must have written before. Without other processes layer_attention does not fail. */
int layer_attention(const struct layer *layer, struct err *err);
int layer_delta(const struct layer *layer, struct err *err);            /* replaces attention in layers with a state */
int layer_ffn(const struct layer *layer, struct err *err);

/* Returns the weights that the layer after this one reads first: a hint (`ahead` of kernels/linear.h). Empty: unknown. */
struct buffer layer_ahead(const struct layer *layer);

/* Clears the sum of routed experts that is added a layer later, in layers that have such experts. */
void layer_begin_shortcut(const struct layer *layer);

/* Computes out = `in` (rows of in_stride) times `matrix`, plus bias. */
void layer_project(const struct layer *layer, struct buffer in, int in_stride, const struct matrix *matrix, struct buffer bias,
                   struct buffer out, int out_stride);

/* Runs a product; with layer->divided, other processes compute parts of its outputs. */
int layer_linear(const struct layer *layer, const struct linear_args *args, struct err *err);
/* Runs layer_project, divided like layer_linear. */
int layer_project_divided(const struct layer *layer, struct buffer in, int in_stride, const struct matrix *matrix,
                          struct buffer bias, struct buffer out, int out_stride, struct err *err);

/* Return the part of each row of a buffer from float `first` on, with the buffer's stride; and the rows from row `first` on. */
struct buffer layer_row_part(struct buffer rows, int first);
struct buffer layer_rows_from(struct buffer rows, int first, int stride);

/* Computes out = the norm of `rows` rows; _args returns the arguments of that operation. */
struct norm_args layer_norm_args(const struct workspace *space, struct buffer in, struct buffer weight, struct buffer bias,
                                 struct buffer out, int rows);
void layer_norm(const struct workspace *space, struct buffer in, struct buffer weight, struct buffer bias, struct buffer out,
                int rows);

#endif
