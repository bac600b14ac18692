/* The weights of a model as buffers of a device: in place if the device shares the host's memory, else uploaded. Experts of
 * MoE layers are not included: they are reached through an expert_source. Private to engine/. */
#ifndef MOE_ENGINE_WEIGHTS_H
#define MOE_ENGINE_WEIGHTS_H

#include "common/model/model.h"
#include "common/tensor/device.h"

struct matrix {
    struct buffer data;                      /* MATRIX of kernels/formats.h */
    enum weight_format format;
    int outputs, inputs;
};

struct layer_weights {
    struct buffer attention_norm, q_norm, k_norm, qkv_bias, out_bias, ffn_norm, router_correction, attention_norm_bias,
                  ffn_norm_bias, attention_out_norm, ffn_out_norm, experts_norm, experts_out_norm, shared_out_norm, router_norm,
                  expert_scale;         /* vectors; address 0: none */
    float scale;                             /* factor of the residual stream after the layer; 0: none */
    struct matrix qkv, out, router;
    struct matrix gate;                      /* gate of attention's output */
    struct matrix v;                         /* values, if v has a format of its own; else empty, and v is in qkv */
    struct buffer v_bias;                    /* the part of qkv_bias for v */
    struct matrix index_q, index_k, index_weight;    /* for an indexer; empty: the layer has none */
    struct buffer index_k_norm, index_k_norm_bias;
    struct matrix q_a, q, kv_a, kv_b;        /* for latent attention, in place of qkv */
    struct buffer sinks, router_bias, gate_up_bias, down_bias;   /* the last two are those of all routed experts */
    struct buffer q_a_bias, q_a_norm, kv_a_bias, kv_a_norm;
    struct matrix shared_gate;
    struct matrix delta_in, delta_gates, delta_gate, delta_steps;    /* for a layer with a state, whose output is `out` */
    struct buffer delta_conv, delta_conv_bias, delta_neg_a, delta_step_bias, delta_skip, delta_norm;
    struct buffer dense, dense_table;        /* one EXPERT block, of a dense layer or of the shared experts; a table with its
                                              * address */
    enum weight_format dense_format, experts_format;
    enum weight_format dense_down_format, experts_down_format;
    int64_t attention_bytes, ffn_bytes;      /* bytes of the layer's halves, without routed experts */
    int64_t expert_bytes;                    /* bytes of one of its routed experts; 0: none */
};

struct weights {
    struct device *device;
    bool owned;                              /* data was copied to the device and must be freed */
    struct matrix embed, head;
    struct buffer final_norm, final_norm_bias, head_bias;
    int layers;
    struct layer_weights *layer;             /* [layers] */
    int64_t taken_bytes;                     /* counter while weights are uploaded */
    int64_t head_bytes;
    int64_t expert_bytes;                    /* bytes of one routed expert, averaged over layers; 0: none */
};

/* Maps or uploads all weights of a model. */
int weights_open(struct weights **out, const struct model *model, struct device *device, struct err *err);
void weights_close(struct weights **weights);

#endif
