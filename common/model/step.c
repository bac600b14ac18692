#include "common/model/step.h"

enum step_part step_part(const struct tensor *t, const struct hparams *shape, bool head)
{
    if (!head && t->layer >= shape->layers)
        return STEP_NOTHING;                            /* a predictor's */
    switch (t->role) {
    case ROLE_EXPERTS:
    case ROLE_EXPERTS_GATE_UP_BIAS:
    case ROLE_EXPERTS_DOWN_BIAS:
        return STEP_EXPERTS;
    case ROLE_SHARED:
    case ROLE_SHARED_GATE:
        return STEP_SHARED;
    case ROLE_DENSE:
        return STEP_DENSE;
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
        return STEP_ROUTER;
    case ROLE_HEAD:
        return STEP_HEAD;
    case ROLE_EMBED:
        return shape->tied ? STEP_HEAD : STEP_NOTHING;
    default:
        return t->layer >= 0 || head ? STEP_ATTENTION : STEP_NOTHING;
    }
}

void step_bytes(struct step_bytes *out, const struct model *model)
{
    const struct hparams *shape = model_hparams(model);
    struct step_bytes bytes = {0};
    uint64_t nothing = 0, *const part[] = {
        [STEP_NOTHING] = &nothing, [STEP_ATTENTION] = &bytes.attention, [STEP_ROUTER] = &bytes.router,
        [STEP_EXPERTS] = &bytes.experts, [STEP_SHARED] = &bytes.shared, [STEP_DENSE] = &bytes.dense, [STEP_HEAD] = &bytes.head};
    for (int i = 0; i < model_tensor_count(model); i++) {
        const struct tensor *t = model_tensor_at(model, i);
        *part[step_part(t, shape, model_head(model))] +=
            t->role == ROLE_EXPERTS ? t->bytes / (uint64_t)t->count * (uint64_t)shape->router.top_k : t->bytes;
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
