/* What of the target others want to see, all on the device: the residual stream after some layers, or after the final norm
 * (layer[] == the number of layers), one row a token. */
#ifndef MOE_ENGINE_FEATURE_H
#define MOE_ENGINE_FEATURE_H

enum { FEATURES_MAX = 8 };

struct feature_request {
    int count;                          /* 0: nothing */
    int layer[FEATURES_MAX];            /* 0: after the first */
};

#endif
