/* Which states of the target a caller requests, on the device: the residual stream after some layers, or after the final
 * norm (layer[] == the number of layers), one row per token. */
#ifndef MOE_ENGINE_FEATURE_H
#define MOE_ENGINE_FEATURE_H

enum { FEATURES_MAX = 8 };

struct feature_request {
    int count;                          /* 0: none */
    int layer[FEATURES_MAX];            /* 0: after the first layer */
};

#endif
