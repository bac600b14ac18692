#include "common/checkpoint/pickle.h"

#include <string.h>

#include "common/base/mem.h"

const struct pickle_known pickle_globals[] = {
    [GLOBAL_ORDERED_DICT] = {"collections", "OrderedDict", NULL, 0},
    [GLOBAL_TENSOR] = {"torch._utils", "_rebuild_tensor_v2", NULL, 0},
    [GLOBAL_PARAMETER] = {"torch._utils", "_rebuild_parameter", NULL, 0},
    [GLOBAL_STORAGES] = {"torch", "FloatStorage", "F32", 4},
    [GLOBAL_FLOAT16] = {"torch", "HalfStorage", "F16", 2}, [GLOBAL_BFLOAT16] = {"torch", "BFloat16Storage", "BF16", 2},
    {"torch", "DoubleStorage", "F64", 8}, {"torch", "LongStorage", "I64", 8}, {"torch", "IntStorage", "I32", 4},
    {"torch", "ShortStorage", "I16", 2},
    {"torch", "CharStorage", "I8", 1}, {"torch", "ByteStorage", "U8", 1}, {"torch", "BoolStorage", "BOOL", 1},
};
enum { GLOBALS = sizeof pickle_globals / sizeof *pickle_globals, MEMO_MAX = PICKLE_VALUES_MAX, ITEMS_MAX = 1 << 22,
       NAME_MAX_BYTES = 200 };

/* Opcodes, as Python's pickletools names them. */
enum {
    PROTO = 0x80, STOP = '.', MARK = '(', NONE = 'N', NEWTRUE = 0x88, NEWFALSE = 0x89, BININT = 'J', BININT1 = 'K',
    BININT2 = 'M', LONG1 = 0x8a, BINUNICODE = 'X', GLOBAL = 'c', BINPERSID = 'Q', REDUCE = 'R', BUILD = 'b', EMPTY_TUPLE = ')',
    TUPLE = 't', TUPLE1 = 0x85, TUPLE2 = 0x86, TUPLE3 = 0x87, EMPTY_LIST = ']', APPEND = 'a', APPENDS = 'e', EMPTY_DICT = '}',
    SETITEM = 's', SETITEMS = 'u', BINPUT = 'q', LONG_BINPUT = 'r', BINGET = 'h', LONG_BINGET = 'j'
};

/* State of the reader. */
struct unpickling {
    struct pickle *out;
    size_t bytes, at, opcode_at;
    uint32_t *stack;
    size_t depth, stack_room;
    size_t *marks;                          /* stack depths at the marks */
    size_t mark_count, mark_room;
    uint32_t *memo;                         /* index of a value + 1; 0: none */
    size_t memo_count, memo_room;
};

static int damaged(struct err *err, const char *what)
{
    return err_set(err, ERR_INPUT, "%s; the file is damaged, or not a file of weights", what);
}

/* ---- values ---- */

static int push(struct unpickling *u, uint32_t value, struct err *err)
{
    if (u->depth == PICKLE_STACK_MAX)
        return err_set(err, ERR_INPUT, "the stack exceeds %d values, the limit; the file is not a file of weights",
                       PICKLE_STACK_MAX);
    if (mem_grow(&u->stack, &u->stack_room, u->depth + 1, sizeof *u->stack, err))
        return -1;
    u->stack[u->depth++] = value;
    return 0;
}

static int push_new(struct unpickling *u, struct pickle_value value, struct err *err)
{
    struct pickle *out = u->out;
    if (out->value_count == PICKLE_VALUES_MAX)
        return err_set(err, ERR_INPUT, "there are more than %d values, the limit; the file is not a file of weights",
                       PICKLE_VALUES_MAX);
    if (mem_grow(&out->values, &out->value_room, out->value_count + 1, sizeof *out->values, err))
        return -1;
    out->values[out->value_count++] = value;
    return push(u, (uint32_t)(out->value_count - 1), err);
}

static int push_integer(struct unpickling *u, enum pickle_kind kind, int64_t integer, struct err *err)
{
    return push_new(u, (struct pickle_value){.kind = (uint8_t)kind, .is.integer = integer}, err);
}

/* Returns the number of values above the last mark; values below it belong to outer objects. */
static size_t above_mark(const struct unpickling *u)
{
    return u->depth - (u->mark_count ? u->marks[u->mark_count - 1] : 0);
}

/* Pops the last mark and all values above it. *from, *count: their range in the stack. */
static int pop_mark(struct unpickling *u, size_t *from, size_t *count, struct err *err)
{
    if (!u->mark_count)
        return damaged(err, "an opcode needs a mark, but none is left");
    *from = u->marks[--u->mark_count];
    *count = u->depth - *from;
    u->depth = *from;
    return 0;
}

/* Replaces `count` values at stack[from] by one new value that contains them as items. */
static int gather(struct unpickling *u, enum pickle_kind kind, size_t from, size_t count, struct err *err)
{
    struct pickle *out = u->out;
    if (out->item_count + count > ITEMS_MAX)
        return err_set(err, ERR_INPUT, "tuples have more than %d items, the limit; the file is not a file of weights",
                       ITEMS_MAX);
    if (mem_grow(&out->items, &out->item_room, out->item_count + count, sizeof *out->items, err))
        return -1;
    if (count)
        memcpy(out->items + out->item_count, u->stack + from, count * sizeof *out->items);
    u->depth = from;
    out->item_count += count;
    return push_new(u, (struct pickle_value){.kind = (uint8_t)kind, .count = (uint32_t)count,
                                             .is.items = (uint32_t)(out->item_count - count)}, err);
}

static int gather_last(struct unpickling *u, size_t count, struct err *err)
{
    if (above_mark(u) < count)
        return damaged(err, "an opcode needs more values than the stack contains");
    return gather(u, PICKLE_TUPLE, u->depth - count, count, err);
}

/* Adds the values at stack[from] to the list or dictionary on top of the stack. */
static int take_entries(struct unpickling *u, enum pickle_kind kind, size_t from, size_t count, struct err *err)
{
    struct pickle *out = u->out;
    const size_t step = kind == PICKLE_DICT ? 2 : 1;
    if (count % step || !above_mark(u) || out->values[u->stack[u->depth - 1]].kind != kind)
        return damaged(err, kind == PICKLE_DICT ? "keys are added to a value that is not a dictionary"
                                                 : "items are added to a value that is not a list");
    struct pickle_value *owner = &out->values[u->stack[u->depth - 1]];
    if (out->entry_count + count / step > PICKLE_VALUES_MAX)
        return err_set(err, ERR_INPUT, "there are more than %d dictionary entries, the limit; the file is not a file of "
                       "weights", PICKLE_VALUES_MAX);
    if (mem_grow(&out->entries, &out->entry_room, out->entry_count + count / step, sizeof *out->entries, err))
        return -1;
    for (size_t i = from; i < from + count; i += step) {
        out->entries[out->entry_count++] = (struct pickle_entry){u->stack[i], u->stack[i + step - 1], 0};
        if (owner->is.chain.last)
            out->entries[owner->is.chain.last - 1].next = (uint32_t)out->entry_count;
        else
            owner->is.chain.first = (uint32_t)out->entry_count;
        owner->is.chain.last = (uint32_t)out->entry_count;
    }
    return 0;
}

static int take_marked(struct unpickling *u, enum pickle_kind kind, struct err *err)
{
    size_t from, count;
    return pop_mark(u, &from, &count, err) || take_entries(u, kind, from, count, err) ? -1 : 0;
}

static int take_last(struct unpickling *u, enum pickle_kind kind, size_t count, struct err *err)
{
    if (above_mark(u) < count + 1)
        return damaged(err, "an opcode needs more values than the stack contains");
    u->depth -= count;
    return take_entries(u, kind, u->depth, count, err);
}

/* ---- bytes ---- */

static int take_bytes(struct unpickling *u, size_t count, const uint8_t **bytes, struct err *err)
{
    if (u->bytes - u->at < count)
        return err_set(err, ERR_INPUT, "the pickle ends in the middle of an opcode; it is truncated or damaged");
    *bytes = u->out->data + u->at;
    u->at += count;
    return 0;
}

/* Reads an unsigned number of `count` bytes. */
static int take_number(struct unpickling *u, size_t count, uint32_t *number, struct err *err)
{
    const uint8_t *bytes;
    if (take_bytes(u, count, &bytes, err))
        return -1;
    *number = 0;
    for (size_t i = 0; i < count; i++)
        *number |= (uint32_t)bytes[i] << 8 * i;
    return 0;
}

static int take_integer(struct unpickling *u, size_t count, bool sign, struct err *err)
{
    uint32_t number;
    if (take_number(u, count, &number, err))
        return -1;
    return push_integer(u, PICKLE_INTEGER, sign ? (int64_t)(int32_t)number : (int64_t)number, err);
}

/* Reads a long integer. One longer than 8 bytes occurs only as PyTorch's magic number; its lower 8 bytes are kept. */
static int take_long(struct unpickling *u, struct err *err)
{
    uint32_t count;
    const uint8_t *bytes;
    uint64_t number = 0;
    if (take_number(u, 1, &count, err) || take_bytes(u, count, &bytes, err))
        return -1;
    for (uint32_t i = 0; i < count && i < sizeof number; i++)
        number |= (uint64_t)bytes[i] << 8 * i;
    if (count && count < sizeof number && bytes[count - 1] & 0x80)
        number |= UINT64_MAX << 8 * count;
    return push_integer(u, PICKLE_INTEGER, (int64_t)number, err);
}

static int take_text(struct unpickling *u, struct err *err)
{
    uint32_t count;
    const uint8_t *bytes;
    if (take_number(u, 4, &count, err) || take_bytes(u, count, &bytes, err))
        return -1;
    return push_new(u, (struct pickle_value){.kind = PICKLE_TEXT, .count = count, .is.integer = bytes - u->out->data}, err);
}

static int take_line(struct unpickling *u, const char **line, size_t *length, struct err *err)
{
    const uint8_t *from = u->out->data + u->at, *end = memchr(from, '\n', u->bytes - u->at);
    if (!end || end - from > NAME_MAX_BYTES)
        return damaged(err, "the name of a global has no end");
    *line = (const char *)from;
    *length = (size_t)(end - from);
    u->at += *length + 1;
    return 0;
}

static int take_global(struct unpickling *u, struct err *err)
{
    const char *module, *name;
    size_t module_length, name_length;
    if (take_line(u, &module, &module_length, err) || take_line(u, &name, &name_length, err))
        return -1;
    for (uint32_t i = 0; i < GLOBALS; i++) {
        const struct pickle_known *known = &pickle_globals[i];
        if (strlen(known->module) == module_length && memcmp(known->module, module, module_length) == 0 &&
            strlen(known->name) == name_length && memcmp(known->name, name, name_length) == 0)
            return push_new(u, (struct pickle_value){.kind = PICKLE_GLOBAL, .count = i}, err);
    }
    return err_set(err, ERR_INPUT, "the pickle refers to %.*s.%.*s, which weights do not need; pickles are not executed, so "
                   "save a plain state_dict",
                   (int)module_length, module, (int)name_length, name);
}

/* ---- memo ---- */

static int put_memo(struct unpickling *u, size_t number_bytes, struct err *err)
{
    uint32_t number;
    if (take_number(u, number_bytes, &number, err))
        return -1;
    if (!above_mark(u) || number >= MEMO_MAX)
        return damaged(err, "the memo has no value to store, or is full");
    if (mem_grow(&u->memo, &u->memo_room, (size_t)number + 1, sizeof *u->memo, err))
        return -1;
    if (number >= u->memo_count)
        u->memo_count = (size_t)number + 1;
    u->memo[number] = u->stack[u->depth - 1] + 1;
    return 0;
}

static int get_memo(struct unpickling *u, size_t number_bytes, struct err *err)
{
    uint32_t number;
    if (take_number(u, number_bytes, &number, err))
        return -1;
    if (number >= u->memo_count || !u->memo[number])
        return damaged(err, "a value is read that was never stored in the memo");
    return push(u, u->memo[number] - 1, err);
}

/* ---- call placeholders ---- */

static bool is_kind(const struct unpickling *u, const struct pickle_value *of, uint32_t item, enum pickle_kind kind)
{
    return of->kind == PICKLE_TUPLE && item < of->count && u->out->values[u->out->items[of->is.items + item]].kind == kind;
}

static bool is_text(const struct unpickling *u, const struct pickle_value *of, uint32_t item, const char *text)
{
    if (!is_kind(u, of, item, PICKLE_TEXT))
        return false;
    const struct pickle_value *value = &u->out->values[u->out->items[of->is.items + item]];
    return value->count == strlen(text) && memcmp(u->out->data + value->is.integer, text, value->count) == 0;
}

/* Makes a storage of the tuple ('storage', type, key, device, elements), without its first word. */
static int take_storage(struct unpickling *u, struct err *err)
{
    if (!above_mark(u))
        return damaged(err, "an opcode needs more values than the stack contains");
    struct pickle_value value = u->out->values[u->stack[u->depth - 1]];
    if ((value.count != 5 && !(value.count == 6 && is_kind(u, &value, 5, PICKLE_NONE))) || !is_text(u, &value, 0, "storage") ||
        !is_kind(u, &value, 1, PICKLE_GLOBAL) || !is_kind(u, &value, 2, PICKLE_TEXT) || !is_kind(u, &value, 3, PICKLE_TEXT) ||
        !is_kind(u, &value, 4, PICKLE_INTEGER) ||
        u->out->values[u->out->items[value.is.items + 1]].count < GLOBAL_STORAGES)
        return damaged(err, "a tensor refers to a value that is not a storage");
    value.kind = PICKLE_STORAGE;
    value.is.items++;
    value.count = 4;
    u->depth--;
    return push_new(u, value, err);
}

static int call_tensor(struct unpickling *u, const struct pickle_value *arguments, struct err *err)
{
    struct pickle_value value = *arguments;
    if (value.count < 6 || !is_kind(u, &value, 0, PICKLE_STORAGE) || !is_kind(u, &value, 1, PICKLE_INTEGER) ||
        !is_kind(u, &value, 2, PICKLE_TUPLE) || !is_kind(u, &value, 3, PICKLE_TUPLE))
        return damaged(err, "a tensor is built from values of wrong types");
    value.kind = PICKLE_TENSOR;
    return push_new(u, value, err);
}

static int call(struct unpickling *u, struct err *err)
{
    if (above_mark(u) < 2)
        return damaged(err, "an opcode needs more values than the stack contains");
    const struct pickle_value arguments = u->out->values[u->stack[u->depth - 1]];
    const struct pickle_value called = u->out->values[u->stack[u->depth - 2]];
    u->depth -= 2;
    if (called.kind == PICKLE_GLOBAL && arguments.kind == PICKLE_TUPLE) {
        if (called.count == GLOBAL_ORDERED_DICT && arguments.count == 0)
            return push_new(u, (struct pickle_value){.kind = PICKLE_DICT}, err);
        if (called.count == GLOBAL_TENSOR)
            return call_tensor(u, &arguments, err);
        if (called.count == GLOBAL_PARAMETER && is_kind(u, &arguments, 0, PICKLE_TENSOR))
            return push(u, u->out->items[arguments.is.items], err);
    }
    return damaged(err, "a function is called that weights do not need, or with wrong arguments");
}

/* Drops the attributes of a dictionary, which do not concern weights. */
static int drop_state(struct unpickling *u, struct err *err)
{
    if (above_mark(u) < 2 || u->out->values[u->stack[u->depth - 2]].kind != PICKLE_DICT)
        return damaged(err, "attributes are set on a value that cannot have any");
    u->depth--;
    return 0;
}

/* ---- */

static int do_mark(struct unpickling *u, struct err *err)
{
    if (u->mark_count == PICKLE_STACK_MAX)
        return err_set(err, ERR_INPUT, "more than %d marks are open, the limit; the file is not a file of weights",
                       PICKLE_STACK_MAX);
    if (mem_grow(&u->marks, &u->mark_room, u->mark_count + 1, sizeof *u->marks, err))
        return -1;
    u->marks[u->mark_count++] = u->depth;
    return 0;
}

static int do_tuple(struct unpickling *u, struct err *err)
{
    size_t from, count;
    return pop_mark(u, &from, &count, err) || gather(u, PICKLE_TUPLE, from, count, err) ? -1 : 0;
}

static int do_protocol(struct unpickling *u, struct err *err)
{
    uint32_t version;
    if (take_number(u, 1, &version, err))
        return -1;
    return version == 2 ? 0 : err_set(err, ERR_INPUT, "has pickle protocol %u; only 2, which PyTorch writes, is supported",
                                      version);
}

static int do_opcode(struct unpickling *u, int opcode, struct err *err)
{
    switch (opcode) {
    case PROTO: return do_protocol(u, err);
    case MARK: return do_mark(u, err);
    case NONE: return push_integer(u, PICKLE_NONE, 0, err);
    case NEWTRUE: return push_integer(u, PICKLE_BOOL, 1, err);
    case NEWFALSE: return push_integer(u, PICKLE_BOOL, 0, err);
    case BININT: return take_integer(u, 4, true, err);
    case BININT1: return take_integer(u, 1, false, err);
    case BININT2: return take_integer(u, 2, false, err);
    case LONG1: return take_long(u, err);
    case BINUNICODE: return take_text(u, err);
    case GLOBAL: return take_global(u, err);
    case BINPERSID: return take_storage(u, err);
    case REDUCE: return call(u, err);
    case BUILD: return drop_state(u, err);
    case EMPTY_TUPLE: return gather(u, PICKLE_TUPLE, u->depth, 0, err);
    case TUPLE: return do_tuple(u, err);
    case TUPLE1: return gather_last(u, 1, err);
    case TUPLE2: return gather_last(u, 2, err);
    case TUPLE3: return gather_last(u, 3, err);
    case EMPTY_LIST: return push_new(u, (struct pickle_value){.kind = PICKLE_LIST}, err);
    case APPEND: return take_last(u, PICKLE_LIST, 1, err);
    case APPENDS: return take_marked(u, PICKLE_LIST, err);
    case EMPTY_DICT: return push_new(u, (struct pickle_value){.kind = PICKLE_DICT}, err);
    case SETITEM: return take_last(u, PICKLE_DICT, 2, err);
    case SETITEMS: return take_marked(u, PICKLE_DICT, err);
    case BINPUT: return put_memo(u, 1, err);
    case LONG_BINPUT: return put_memo(u, 4, err);
    case BINGET: return get_memo(u, 1, err);
    case LONG_BINGET: return get_memo(u, 4, err);
    default: return err_set(err, ERR_INPUT, "opcode 0x%02x does not occur in pickles of weights; the file is damaged, or not "
                            "a file of weights",
                            opcode);
    }
}

static int run(struct unpickling *u, struct err *err)
{
    for (;;) {
        const uint8_t *opcode;
        u->opcode_at = u->at;
        if (take_bytes(u, 1, &opcode, err))
            return -1;
        if (*opcode == STOP)
            break;
        if (do_opcode(u, *opcode, err))
            return -1;
    }
    if (u->depth != 1 || u->mark_count)
        return damaged(err, "more or fewer than one value remain at the end");
    u->out->root = u->stack[0];
    return 0;
}

int pickle_read(struct pickle *out, const uint8_t *data, size_t bytes, size_t *used, struct err *err)
{
    struct pickle read = {.data = data};
    struct unpickling u = {.out = &read, .bytes = bytes < PICKLE_BYTES_MAX ? bytes : PICKLE_BYTES_MAX};
    int rc = run(&u, err);
    if (rc)
        err_at(err, "byte %zu of the pickle", u.opcode_at);
    mem_free(&u.stack);
    mem_free(&u.marks);
    mem_free(&u.memo);
    if (rc) {
        pickle_free(&read);
        return -1;
    }
    *used = u.at;
    *out = read;
    return 0;
}

void pickle_free(struct pickle *pickle)
{
    mem_free(&pickle->values);
    mem_free(&pickle->items);
    mem_free(&pickle->entries);
}
