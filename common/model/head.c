#include "common/model/head.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/model.h"

static const char *const NAMES[HEAD_KINDS + 1] = {
    [HEAD_NONE] = "none", [HEAD_EAGLE1] = "eagle1", [HEAD_EAGLE3] = "eagle3", [HEAD_MEDUSA] = "medusa", [HEAD_HYDRA] = "hydra",
    [HEAD_KANGAROO] = "kangaroo", [HEAD_JAKIRO] = "jakiro", [HEAD_JAKIRO_STAR] = "jakiro_star",
    [HEAD_MTP] = "mtp"};

const char *head_kind_name(enum head_kind kind) { return NAMES[kind]; }

bool head_kind_by_name(const char *name, enum head_kind *kind)
{
    for (int i = HEAD_NONE + 1; i < HEAD_KINDS; i++)
        if (strcmp(NAMES[i], name) == 0) {
            *kind = (enum head_kind)i;
            return true;
        }
    if (strcmp(name, "eagle2"))
        return false;
    *kind = HEAD_EAGLE1;
    return true;
}

static const char *const SECONDS[HEAD_SECONDS] = {"contrast", "sum", "none"};

const char *head_second_name(enum head_second second) { return SECONDS[second]; }

bool head_second_by_name(const char *name, int *second)
{
    for (int i = 0; i < HEAD_SECONDS; i++)
        if (strcmp(SECONDS[i], name) == 0) {
            *second = i;
            return true;
        }
    return false;
}

int head_router_rows(const struct head_params *head, const struct hparams *shape)
{
    const int experts = shape->router.experts;
    return head->kind == HEAD_JAKIRO ? head->second == HEAD_SECOND_NONE ? experts : 2 * experts
           : head->kind == HEAD_JAKIRO_STAR ? experts : 0;
}

bool head_routes(const struct head_params *head, const struct hparams *shape)
{
    return !head || (head->kind == HEAD_JAKIRO && (shape->router.experts > 2 || shape->router.top_k < 2));
}

static int check_range(const char *name, int64_t value, int64_t min, int64_t largest, struct err *err)
{
    if (value >= min && value <= largest)
        return 0;
    return err_set(err, ERR_INPUT, "%s is %lld, expected %lld to %lld", name, (long long)value, (long long)min,
                   (long long)largest);
}

static int check_flag(const char *name, bool set, bool may_be, const struct head_params *head, struct err *err)
{
    return set && !may_be ? err_set(err, ERR_INPUT, "%s is set, but does not apply to heads of kind %s", name,
                                    NAMES[head->kind]) : 0;
}

/* Checks the shape of the head's own layer like that of a model. A model needs a feed-forward network, so Kangaroo's layer
 * is checked with one of inner width 1. */
static int check_shape(const struct head_params *head, const struct hparams *shape, struct err *err)
{
    const bool layer = (head->kind != HEAD_MEDUSA && head->kind != HEAD_HYDRA) || head->prefix;
    const bool jakiro = head->kind == HEAD_JAKIRO, experts = jakiro || head->kind == HEAD_JAKIRO_STAR;
    const enum ffn_kind ffn = experts ? FFN_EXPERTS : head->kind == HEAD_KANGAROO ? FFN_NONE : FFN_DENSE;
    if (check_range("vocabulary", shape->vocab, 1, VOCAB_MAX, err) ||
        check_range("hidden width", shape->hidden, 1, WIDTH_MAX, err) ||
        check_range("number of layers", shape->layers, layer, layer, err))
        return -1;
    if (!layer)
        return 0;
    struct hparams whole = *shape;
    if (check_range("kind of feed-forward network", shape->layer[0].ffn, ffn, ffn, err) ||
        check_range("number of predictors", shape->predictors, 0, 0, err) ||
        check_range("number of experts", shape->router.experts, experts ? 2 : 0,
                    jakiro ? HEAD_EXPERTS_MAX : experts ? 2 : 0, err) ||
        check_range("experts a token", shape->router.top_k, jakiro ? 1 : shape->router.experts, shape->router.experts, err) ||
        check_range("rank of keys and values", shape->attention.kv_rank, 0, 0, err) ||
        check_range("inner width of shared experts", shape->shared_inner, 0, 0, err) ||
        check_range("kind of q and k norm", shape->attention.qk_norm, QK_NORM_NONE, QK_NORM_NONE, err))
        return -1;
    if (shape->layer_norm || shape->attention.sinks || shape->expert_bias || shape->router.correction || shape->router.bias ||
        shape->head_bias || shape->tied || shape->norms != NORM_BEFORE || shape->parallel || shape->attention.gate ||
        shape->layer[0].no_rope || shape->layer[0].other || shape->shared_apart || shape->layer_scale || shape->router.norm ||
        shape->router.expert_scale || shape->router.weigh_input || shape->router.zero_experts || shape->shortcut ||
        shape->attention.aligned ||
        shape->attention.no_rope_scale > 0 || shape->attention.value_dim != shape->attention.head_dim)
        return err_set(err, ERR_INPUT, "the head's layer has a feature that is not supported in draft heads");
    if (ffn == FFN_NONE) {
        if (check_range("inner width of dense layers (there are none)", shape->dense_inner, 0, 0, err))
            return -1;
        whole.layer[0].ffn = FFN_DENSE;
        whole.dense_inner = 1;
    }
    return hparams_check(&whole, err);
}

static int compare_ids(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Checks that each word of the map is a different id of the target. */
static int check_map(const struct head_params *head, struct err *err)
{
    if (!head->target_id)
        return 0;
    for (int i = 0; i < head->draft_vocab; i++)
        if (head->target_id[i] < 0 || head->target_id[i] >= head->target.vocab)
            return err_set(err, ERR_INPUT, "the vocabulary map maps draft id %d to target id %d, but the target's last id is "
                           "%d", i,
                           head->target_id[i], head->target.vocab - 1);
    const size_t bytes = (size_t)head->draft_vocab * sizeof *head->target_id;
    int32_t *sorted = mem_alloc((size_t)head->draft_vocab, sizeof *sorted, err);
    int rc = 0;
    if (!sorted)
        return -1;
    memcpy(sorted, head->target_id, bytes);
    qsort(sorted, (size_t)head->draft_vocab, sizeof *sorted, compare_ids);
    for (int i = 1; i < head->draft_vocab && !rc; i++)
        if (sorted[i] == sorted[i - 1])
            rc = err_set(err, ERR_INPUT, "the vocabulary map maps two draft ids to target id %d", sorted[i]);
    mem_free(&sorted);
    return rc;
}

static int check_states(const struct head_params *head, struct err *err)
{
    const bool eagle3 = head->kind == HEAD_EAGLE3, kangaroo = head->kind == HEAD_KANGAROO;
    if (check_range("number of states", head->states, 1, eagle3 ? HEAD_STATES_MAX : 1, err))
        return -1;
    for (int i = 0; i < head->states; i++)
        if (check_range("layer whose state is read", head->state[i], eagle3 || kangaroo ? 0 : head->target.layers,
                        kangaroo ? head->target.layers - 1 : head->target.layers, err))
            return -1;
    return 0;
}

int head_check(const struct head_params *head, const struct hparams *shape, struct err *err)
{
    const bool eagle3 = head->kind == HEAD_EAGLE3, many = head->kind == HEAD_MEDUSA || head->kind == HEAD_HYDRA;
    const bool joined = head->kind == HEAD_EAGLE1 || head->kind == HEAD_JAKIRO || head->kind == HEAD_JAKIRO_STAR;
    if (check_range("kind of draft head", head->kind, HEAD_NONE + 1, HEAD_KINDS - 1, err) ||
        check_range("number of the target's layers", head->target.layers, 1, LAYERS_MAX, err) ||
        check_range("hidden width of the target", head->target.hidden, 1, WIDTH_MAX / HEAD_STATES_MAX, err) ||
        check_range("vocabulary of the target", head->target.vocab, 1, VOCAB_MAX, err) || check_states(head, err) ||
        check_flag("embed", head->embed, eagle3 || joined, head, err) ||
        check_flag("joint_bias", head->joint_bias, joined, head, err) ||
        check_flag("states_norm", head->states_norm, eagle3, head, err) ||
        check_flag("state_norms", head->state_norms, eagle3, head, err) ||
        check_flag("normed_residual", head->normed_residual, eagle3, head, err) ||
        check_flag("normed_output", head->normed_output, eagle3, head, err) ||
        check_flag("prefix", head->prefix, head->kind == HEAD_HYDRA, head, err) ||
        check_flag("second", head->second != HEAD_SECOND_CONTRAST, head->kind == HEAD_JAKIRO, head, err) ||
        check_range("second", head->second, 0, HEAD_SECONDS - 1, err) ||
        check_flag("second_next", head->second_next, head->kind == HEAD_JAKIRO && head->second != HEAD_SECOND_NONE, head,
                   err) ||
        check_flag("scaled", head->scaled, head->kind == HEAD_JAKIRO_STAR, head, err) ||
        check_range("number of heads", head->heads, many, many ? HEAD_HEADS_MAX : 0, err) ||
        check_range("blocks of a head", head->blocks, many, many ? HEAD_BLOCKS_MAX : 0, err) ||
        check_range("draft vocabulary", head->draft_vocab, eagle3 ? 1 : head->target.vocab, head->target.vocab, err))
        return -1;
    if (!head->target_id && head->draft_vocab != head->target.vocab)
        return err_set(err, ERR_INPUT, "the vocabulary map is missing; the draft vocabulary (%d) needs one, because it "
                       "differs from the target's (%d)",
                       head->draft_vocab, head->target.vocab);
    if (check_flag("a vocabulary map", head->target_id != NULL, eagle3, head, err) || check_map(head, err) ||
        check_shape(head, shape, err) ||
        check_range("vocabulary", shape->vocab, head->target.vocab, head->target.vocab, err))
        return -1;
    if (shape->hidden != head->target.hidden && !(eagle3 && head->embed))
        return err_set(err, ERR_INPUT, "the hidden width is %d, but the target's is %d; %s", shape->hidden, head->target.hidden,
                       eagle3 ? "a head of another width needs its own embedding" : "a head of this kind must have the same "
                       "width");
    const int64_t widest = (int64_t)(head->heads ? head->heads + 1 : 2) * shape->hidden;
    return check_range("input width of a matrix", widest, 1, WIDTH_MAX, err);
}

int head_check_target(const struct head_params *head, const struct model_identity *target, bool force, struct err *err)
{
    const struct head_target *own = &head->target;
    if (own->layers != target->layers || own->hidden != target->hidden || own->vocab != target->vocab)
        return err_set(err, ERR_INPUT, "is a head for %s (%d layers, hidden width %d, vocabulary %d), but %s has %d layers, "
                       "hidden width %d, vocabulary %d; use a head made for this model", own->name, own->layers, own->hidden,
                       own->vocab,
                       target->name, target->layers, target->hidden, target->vocab);
    if (memcmp(&own->tokenizer, &target->tokenizer, sizeof own->tokenizer))
        return err_set(err, ERR_INPUT, "is a head for %s, whose tokenizer differs from that of %s; use a head made for this "
                       "model",
                       own->name, target->name);
    if (!force && memcmp(&own->source, &target->source, sizeof own->source))
        return err_set(err, ERR_INPUT, "is a head for %s, whose weights come from another source than those of %s; convert "
                       "the head for this model", own->name, target->name);
    return 0;
}

int head_copy(struct head_params *out, const struct head_params *head, struct err *err)
{
    struct head_params copy = *head;
    if (head->target_id) {
        copy.target_id = mem_alloc((size_t)head->draft_vocab, sizeof *copy.target_id, err);
        if (!copy.target_id)
            return -1;
        memcpy(copy.target_id, head->target_id, (size_t)head->draft_vocab * sizeof *copy.target_id);
    }
    *out = copy;
    return 0;
}

void head_free(struct head_params *head) { mem_free(&head->target_id); }
