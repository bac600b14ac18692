/* The description of a draft head in the index of its file. */
#include "common/model/index_values.h"

#include <stddef.h>
#include <string.h>

#include "common/base/mem.h"

/* Flags and numbers of struct head_params that a row of the table describes completely. */
#define FIELD(key, member) INDEX_FIELD(struct head_params, key, member)
static const struct index_field MEMBERS[] = {
    FIELD("target_layers", target.layers), FIELD("target_hidden", target.hidden), FIELD("target_vocab", target.vocab),
    FIELD("embed", embed), FIELD("joint_bias", joint_bias), FIELD("states_norm", states_norm),
    FIELD("state_norms", state_norms), FIELD("normed_residual", normed_residual), FIELD("normed_output", normed_output),
    FIELD("draft_vocab", draft_vocab), FIELD("heads", heads), FIELD("blocks", blocks), FIELD("prefix", prefix),
};
/* Members that are optional and omitted if 0, so that a head without them is byte-identical to one of an older version. */
static const struct index_field LATER[] = {
    FIELD("second", second), FIELD("second_next", second_next), FIELD("scaled", scaled),
};

enum { MEMBER_COUNT = sizeof MEMBERS / sizeof *MEMBERS, LATER_COUNT = sizeof LATER / sizeof *LATER };
enum other_key { KEY_KIND = MEMBER_COUNT, KEY_TARGET, KEY_SOURCE, KEY_TOKENIZER, KEY_STATES, KEY_TARGET_IDS, KEY_COUNT };
static const char *const OTHERS[] = {"kind", "target", "target_source", "target_tokenizer", "states", "target_ids"};

_Static_assert(KEY_COUNT - MEMBER_COUNT == sizeof OTHERS / sizeof *OTHERS, "a name for each key");

static const char *key_name(int key)
{
    return key < MEMBER_COUNT ? MEMBERS[key].key : key < KEY_COUNT ? OTHERS[key - MEMBER_COUNT] : LATER[key - KEY_COUNT].key;
}

/* Writes the ids as little-endian bytes: a list would need one value per id, although all ids are read at once. */
static void put_ids(msgpack_packer *to, const struct head_params *head)
{
    const size_t count = head->target_id ? (size_t)head->draft_vocab : 0;
    msgpack_pack_bin(to, count * 4);
    for (size_t i = 0; i < count; i++) {
        const uint32_t id = (uint32_t)head->target_id[i];
        const uint8_t bytes[4] = {(uint8_t)id, (uint8_t)(id >> 8), (uint8_t)(id >> 16), (uint8_t)(id >> 24)};
        msgpack_pack_bin_body(to, bytes, sizeof bytes);
    }
}

void index_put_head(msgpack_packer *to, const struct head_params *head)
{
    size_t later = 0;
    for (int i = 0; i < LATER_COUNT; i++)
        later += index_field_is_set(head, &LATER[i]);
    msgpack_pack_map(to, KEY_COUNT + later);
    index_put_text(to, "kind");
    index_put_text(to, head_kind_name(head->kind));
    index_put_text(to, "target");
    index_put_text(to, head->target.name);
    index_put_text(to, "target_source");
    index_put_blob(to, &head->target.source, sizeof head->target.source);
    index_put_text(to, "target_tokenizer");
    index_put_blob(to, &head->target.tokenizer, sizeof head->target.tokenizer);
    for (int i = 0; i < MEMBER_COUNT; i++)
        index_put_field(to, head, &MEMBERS[i]);
    index_put_text(to, "states");
    msgpack_pack_array(to, (size_t)head->states);
    for (int i = 0; i < head->states; i++)
        msgpack_pack_int(to, head->state[i]);
    index_put_text(to, "target_ids");
    put_ids(to, head);
    for (int i = 0; i < LATER_COUNT; i++)
        if (index_field_is_set(head, &LATER[i]))
            index_put_field(to, head, &LATER[i]);
}

struct head_reader {
    struct cursor *cursor;
    struct head_params *head;
    size_t ids;
};

static int take_kind(struct head_reader *r, struct err *err)
{
    char name[32];
    if (index_text(r->cursor, name, sizeof name, err))
        return -1;
    return head_kind_by_name(name, &r->head->kind) ? 0 : err_set(err, ERR_INPUT, "unknown kind of head %s", name);
}

static int take_states(struct head_reader *r, struct err *err)
{
    size_t count;
    if (index_count(r->cursor, HEAD_STATES_MAX, &count, err))
        return -1;
    for (size_t i = 0; i < count; i++)
        if (index_int32(r->cursor, &r->head->state[i], err))
            return -1;
    r->head->states = (int)count;
    return 0;
}

static int take_ids(struct head_reader *r, struct err *err)
{
    struct wire_value value;
    if (index_take(r->cursor, WIRE_BYTES, &value, err))
        return -1;
    if (value.bytes % 4 || value.bytes / 4 > VOCAB_MAX)
        return err_set(err, ERR_INPUT, "must be a list of ids");
    r->ids = value.bytes / 4;
    if (!r->ids)
        return 0;
    if (!(r->head->target_id = mem_alloc(r->ids, sizeof *r->head->target_id, err)))
        return -1;
    const uint8_t *bytes = (const uint8_t *)value.data;
    for (size_t i = 0; i < r->ids; i++, bytes += 4) {
        const uint32_t id = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        r->head->target_id[i] = id < VOCAB_MAX ? (int32_t)id : -1;
    }
    return 0;
}

static int take_key(void *context, int key, struct err *err)
{
    struct head_reader *r = context;
    struct head_target *target = &r->head->target;
    switch (key) {
    case KEY_KIND:
        return take_kind(r, err);
    case KEY_TARGET:
        return index_text(r->cursor, target->name, sizeof target->name, err);
    case KEY_SOURCE:
        return index_blob(r->cursor, &target->source, sizeof target->source, err);
    case KEY_TOKENIZER:
        return index_blob(r->cursor, &target->tokenizer, sizeof target->tokenizer, err);
    case KEY_STATES:
        return take_states(r, err);
    case KEY_TARGET_IDS:
        return take_ids(r, err);
    default:
        return index_take_field(r->cursor, r->head, key < MEMBER_COUNT ? &MEMBERS[key] : &LATER[key - KEY_COUNT], err);
    }
}

int index_take_head(struct cursor *cursor, struct head_params *head, struct err *err)
{
    struct head_reader r = {.cursor = cursor, .head = head};
    if (index_map(cursor, key_name, KEY_COUNT + LATER_COUNT, KEY_COUNT, INDEX_REFUSE, take_key, &r, err))
        return -1;
    if (r.ids && r.ids != (size_t)head->draft_vocab)
        return err_set(err, ERR_INPUT, "the vocabulary map has %zu ids, but the draft vocabulary has %d", r.ids,
                       head->draft_vocab);
    return 0;
}
