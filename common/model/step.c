#include "common/model/step.h"

void step_bytes(struct step_bytes *out, const struct model *model)
{
    const struct hparams *shape = model_hparams(model);
    struct step_bytes bytes = {0};
    for (int i = 0; i < model_tensor_count(model); i++) {
        const struct tensor *t = model_tensor_at(model, i);
        if (!model_head(model) && t->layer >= shape->layers)
            continue;                                   /* a predictor's */
        switch (t->role) {
        case ROLE_EXPERTS:
            bytes.experts += t->bytes / (uint64_t)t->count * (uint64_t)shape->router.top_k;
            break;
        case ROLE_EXPERTS_GATE_UP_BIAS:
        case ROLE_EXPERTS_DOWN_BIAS:
            bytes.experts += t->bytes;
            break;
        case ROLE_SHARED:
        case ROLE_SHARED_GATE:
            bytes.shared += t->bytes;
            break;
        case ROLE_DENSE:
            bytes.dense += t->bytes;
            break;
        case ROLE_ROUTER:
        case ROLE_ROUTER_CORRECTION:
        case ROLE_ROUTER_BIAS:
        case ROLE_FFN_NORM:
        case ROLE_FFN_NORM_BIAS:
        case ROLE_FFN_OUT_NORM:
        case ROLE_EXPERTS_NORM:
        case ROLE_EXPERTS_OUT_NORM:
        case ROLE_SHARED_OUT_NORM:
        case ROLE_ROUTER_NORM:
        case ROLE_EXPERT_SCALE:
            bytes.router += t->bytes;
            break;
        case ROLE_HEAD:
            bytes.head += t->bytes;
            break;
        case ROLE_EMBED:
            bytes.head += shape->tied ? t->bytes : 0;
            break;
        default:
            bytes.attention += t->layer >= 0 || model_head(model) ? t->bytes : 0;
        }
    }
    *out = bytes;
}

void step_parameters(const struct model *model, double *all, double *active)
{
    const struct hparams *shape = model_hparams(model);
    *all = *active = 0;
    for (int i = 0; i < model_tensor_count(model); i++) {
        const struct tensor *t = model_tensor_at(model, i);
        const bool routed = t->role == ROLE_EXPERTS || t->role == ROLE_EXPERTS_GATE_UP_BIAS ||
                            t->role == ROLE_EXPERTS_DOWN_BIAS;
        const double count = tensor_parameters(t);
        *all += count;
        if (model_head(model) || t->layer < shape->layers)
            *active += routed ? count * shape->router.top_k / shape->router.experts : count;
    }
}

uint64_t step_bytes_all(const struct step_bytes *bytes)
{
    return bytes->attention + bytes->router + bytes->experts + bytes->shared + bytes->dense + bytes->head;
}
