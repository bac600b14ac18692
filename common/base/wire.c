#include "common/base/wire.h"

#include <string.h>

#include "common/base/utf8.h"

/* The head of a value: its type, and the length of its bytes or the number of values that follow. */
struct head {
    enum wire_type type;
    size_t bytes;               /* length of the head */
    bool negative;
    uint64_t integer;
    double real;
    int code;
    size_t payload;             /* TEXT, BYTES, EXT */
    uint32_t count;             /* ARRAY, MAP */
};

static uint64_t big_endian(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | *at++;
    return value;
}

static void set_signed_value(struct head *head, uint64_t bits, size_t bytes)
{
    unsigned shift = 64 - 8 * (unsigned)bytes;
    int64_t value = (int64_t)(bits << shift) >> shift;
    head->type = WIRE_INT;
    head->negative = value < 0;
    head->integer = (uint64_t)value;
}

static void head_real(struct head *head, uint64_t bits, size_t bytes)
{
    float single;
    uint32_t half = (uint32_t)bits;
    head->type = WIRE_REAL;
    if (bytes == 8) {
        memcpy(&head->real, &bits, sizeof head->real);
        return;
    }
    memcpy(&single, &half, sizeof single);
    head->real = (double)single;
}

/* Kinds of heads with a big-endian number after the first byte, from 0xc4 on. EXT has its type code after the length. */
static const struct { uint8_t type, bytes; } heads[] = {
    {WIRE_BYTES, 1}, {WIRE_BYTES, 2}, {WIRE_BYTES, 4}, {WIRE_EXT, 1}, {WIRE_EXT, 2}, {WIRE_EXT, 4},
    {WIRE_REAL, 4}, {WIRE_REAL, 8}, {WIRE_INT, 1}, {WIRE_INT, 2}, {WIRE_INT, 4}, {WIRE_INT, 8},
    {WIRE_INT, 1}, {WIRE_INT, 2}, {WIRE_INT, 4}, {WIRE_INT, 8},                 /* signed: 0xd0 .. 0xd3 */
    {WIRE_EXT, 0}, {WIRE_EXT, 0}, {WIRE_EXT, 0}, {WIRE_EXT, 0}, {WIRE_EXT, 0},  /* EXT with 1, 2, 4, 8 or 16 bytes */
    {WIRE_TEXT, 1}, {WIRE_TEXT, 2}, {WIRE_TEXT, 4}, {WIRE_ARRAY, 2}, {WIRE_ARRAY, 4}, {WIRE_MAP, 2}, {WIRE_MAP, 4},
};

/* Returns 1 and fills *head; 0 if more bytes are needed; -1 if no value begins with these bytes. */
static int head_read(const uint8_t *at, size_t have, struct head *head)
{
    *head = (struct head){.bytes = 1};
    if (!have)
        return 0;
    uint8_t byte = at[0];
    if (byte <= 0x7f || byte >= 0xe0) {
        set_signed_value(head, byte, 1);
    } else if (byte <= 0x8f) {
        head->type = WIRE_MAP;
        head->count = byte & 0x0f;
    } else if (byte <= 0x9f) {
        head->type = WIRE_ARRAY;
        head->count = byte & 0x0f;
    } else if (byte <= 0xbf) {
        head->type = WIRE_TEXT;
        head->payload = byte & 0x1f;
    } else if (byte == 0xc0) {
        head->type = WIRE_NIL;
    } else if (byte == 0xc1) {
        return -1;
    } else if (byte <= 0xc3) {
        head->type = WIRE_FLAG;
        head->integer = byte & 1;
    } else {
        size_t number = heads[byte - 0xc4].bytes;
        head->type = (enum wire_type)heads[byte - 0xc4].type;
        head->bytes = 1 + number + (head->type == WIRE_EXT);
        if (have < head->bytes)
            return 0;
        uint64_t value = big_endian(at + 1, number);
        if (head->type == WIRE_INT && byte >= 0xd0)
            set_signed_value(head, value, number);
        else if (head->type == WIRE_INT)
            head->integer = value;
        else if (head->type == WIRE_REAL)
            head_real(head, value, number);
        else if (head->type == WIRE_ARRAY || head->type == WIRE_MAP)
            head->count = (uint32_t)value;
        else
            head->payload = number ? (size_t)value : (size_t)1 << (byte - 0xd4);
        if (head->type == WIRE_EXT)
            head->code = (int)at[head->bytes - 1] - (at[head->bytes - 1] & 0x80 ? 256 : 0);
    }
    return 1;
}

static int head_check(const struct scan *scan, const struct head *head, const struct wire_limits *limits, struct err *err)
{
    uint64_t values = (uint64_t)head->count * (head->type == WIRE_MAP ? 2 : 1);
    size_t room = limits->bytes > scan->at ? limits->bytes - scan->at : 0;
    if (head->bytes > room || head->payload > room - head->bytes)
        return err_set(err, ERR_INPUT, "an object declares %zu bytes, more than the limit of %zu; the stream is damaged",
                       scan->at + head->bytes + head->payload, limits->bytes);
    if (scan->values >= limits->values || values > limits->values - scan->values)
        return err_set(err, ERR_INPUT, "an object declares more than the limit of %zu values; the stream is damaged",
                       limits->values);
    if (values && scan->depth == WIRE_DEPTH)
        return err_set(err, ERR_INPUT, "an object is nested more than %d deep; the stream is damaged", WIRE_DEPTH);
    return 0;
}

enum scan_result scan_object(struct scan *scan, const uint8_t *data, size_t bytes, const struct wire_limits *limits,
                             struct err *err)
{
    for (;;) {
        struct head head;
        int have = head_read(data + scan->at, bytes - scan->at, &head);
        if (have < 0) {
            err_set(err, ERR_INPUT, "byte 0x%02x does not begin a msgpack value; the stream is damaged", data[scan->at]);
            return SCAN_BAD;
        }
        if (!have)
            return SCAN_MORE;
        if (head_check(scan, &head, limits, err))
            return SCAN_BAD;
        if (head.payload > bytes - scan->at - head.bytes)
            return SCAN_MORE;
        if (head.type == WIRE_TEXT && utf8_fault((const char *)data + scan->at + head.bytes, head.payload) < head.payload) {
            err_set(err, ERR_INPUT, "text is not UTF-8; the stream is damaged");
            return SCAN_BAD;
        }
        scan->at += head.bytes + head.payload;
        scan->values++;
        if (scan->depth)
            scan->left[scan->depth - 1]--;
        if (head.count)
            scan->left[scan->depth++] = (uint64_t)head.count * (head.type == WIRE_MAP ? 2 : 1);
        while (scan->depth && !scan->left[scan->depth - 1])
            scan->depth--;
        if (!scan->depth)
            return SCAN_WHOLE;
    }
}

int cursor_next(struct cursor *cursor, struct wire_value *value)
{
    struct head head;
    size_t have = (size_t)(cursor->end - cursor->at);
    if (head_read(cursor->at, have, &head) != 1 || head.payload > have - head.bytes)
        return -1;
    *value = (struct wire_value){.type = head.type, .negative = head.negative, .integer = head.integer, .real = head.real,
                                 .code = head.code, .data = cursor->at + head.bytes, .bytes = head.payload,
                                 .count = head.count};
    cursor->at += head.bytes + head.payload;
    return 0;
}

int cursor_skip(struct cursor *cursor)
{
    for (uint64_t left = 1; left; left--) {
        struct wire_value value;
        if (cursor_next(cursor, &value))
            return -1;
        left += (uint64_t)value.count * (value.type == WIRE_MAP ? 2 : 1);
    }
    return 0;
}

int wire_sink_put(void *argument, const char *data, size_t bytes)
{
    struct wire_sink *sink = argument;
    if (text_put(&sink->text, data, bytes, NULL))
        sink->failed = true;
    return sink->failed ? -1 : 0;
}

const char *wire_type_name(enum wire_type type)
{
    static const char *const names[] = {"nil", "a flag", "an integer", "a number", "text", "bytes", "an extension value",
                                        "a list", "a map"};
    return names[type];
}

bool wire_is(const struct wire_value *value, const char *text)
{
    return value->type == WIRE_TEXT && value->bytes == strlen(text) && !memcmp(value->data, text, value->bytes);
}

bool wire_int64(const struct wire_value *value, int64_t *out)
{
    if (value->type != WIRE_INT || (!value->negative && value->integer > INT64_MAX))
        return false;
    *out = (int64_t)value->integer;
    return true;
}
