/* Streams and events. A device has a stream for everything and one for copies. Only events order the two, so one of them
 * runs operations at once, and the other as late as possible: when the host waits for it, or when an event recorded on it
 * blocks the first one. On devices 0 and 2 copies are late: a reader that did not wait for a copy reads the old data. On
 * devices 1 and 3 all else is late: a copy that overwrites unread data comes too early.
 *
 * A host that polls an event sees it passed at the second call, on device 2 at the thousandth. */
#include <algorithm>

#include "tests/emu/stream.h"

struct emu_event {
    dev_stream stream;                   /* the stream on which it was recorded; NULL: none */
    uint64_t at;
    int asked;
};

namespace emu {

static std::vector<dev_stream> streams;

static int failing(void)
{
    int error = emu_options.fail;
    emu_options.fail = 0;
    return error;
}

bool stream_captures(dev_stream stream) { return stream && stream->capture; }

int stream_failing(dev_stream stream)
{
    int error = stream ? stream->failing : 0;
    if (stream)
        stream->failing = 0;
    return error;
}

int capture_wrong(dev_stream, const char *what)
{
    finding_add("%s is put on a stream whose operations are captured", what);
    return CAPTURING;
}

static void run_until(dev_stream stream, uint64_t until);

bool node_run(const node &n, dev_stream stream)
{
    if (n.kind == node::KERNEL) {
        call c = n.call;
        if (!n.arguments.empty())
            c.arguments = n.arguments.data();
        return launch(c);
    }
    if (n.kind == node::HOLD) {
        run_until(n.other, n.until);
        return true;
    }
    if (!stream || !stream->copies)
        race_stream_waits();
    if (n.kind == node::COPY)
        memmove(n.to, n.data.empty() ? n.from : n.data.data(), n.bytes);
    else
        memset(n.to, n.byte, n.bytes);
    return true;
}

static void run_until(dev_stream stream, uint64_t until)
{
    while (stream->done < until) {
        const node n = stream->pending.front();
        stream->pending.pop_front();
        node_run(n, stream);
        stream->done++;
    }
}

void stream_finish(dev_stream stream)
{
    if (stream)
        run_until(stream, stream->put);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

void streams_leave(const void *memory, size_t bytes)
{
    for (dev_stream stream : streams)
        if (stream->copies && std::any_of(stream->pending.begin(), stream->pending.end(), [=](const node &n) {
                return n.kind == node::COPY &&
                       (overlap(n.to, n.bytes, memory, bytes) || overlap(n.from, n.bytes, memory, bytes));
            }))
            finding_add("%zu bytes of memory are freed, and nobody has waited for a copy there", bytes);
    for (dev_stream stream : streams)
        stream_finish(stream);
}

/* Late operations keep copies of the caller's data. */
static int put(dev_stream stream, node &n, bool read_at_once)
{
    if (stream_captures(stream)) {
        graph_add(stream->capture, n);
        return 0;
    }
    if (int error = n.kind == node::COPY || n.kind == node::FILL ? failing() : 0)
        return error;
    if (!stream || !stream->late) {
        node_run(n, stream);
        return 0;
    }
    if (read_at_once)
        n.data.assign((const unsigned char *)n.from, (const unsigned char *)n.from + n.bytes);
    stream->pending.push_back(n);
    stream->put++;
    return 0;
}

static int put_copy(dev_stream stream, void *to, const void *from, size_t bytes, bool read_at_once)
{
    node n = {};
    n.kind = node::COPY;
    n.to = to;
    n.from = from;
    n.bytes = bytes;
    return put(stream, n, read_at_once);
}

static bool right_device(dev_stream stream, const char *what)
{
    if (!stream || stream->device == device_in_use())
        return true;
    finding_add("%s goes to a stream of device %d while device %d is in use", what, stream->device, device_in_use());
    return false;
}

int submit(dev_stream stream, const call &call)
{
    int error = emu_options.fail_launch;
    emu_options.fail_launch = 0;
    if (error || !right_device(stream, call.name))
        return error ? error : 400;
    if (stream && stream->copies)
        finding_add("%s is put on a stream for copies", call.name);
    node n = {};
    n.kind = node::KERNEL;
    n.call = call;
    n.call.early = call.early && !(stream && stream->in_order);
    if (stream && (stream->late || stream->capture)) {
        n.arguments.resize((call.bytes + sizeof(piece) - 1) / sizeof(piece));
        memcpy(n.arguments.data(), call.arguments, call.bytes);
    }
    return put(stream, n, false);
}

static int stream_new(dev_stream *out, bool copies)
{
    *out = new emu_stream();
    (*out)->device = device_in_use();
    (*out)->copies = copies;
    (*out)->late = copies == ((*out)->device % 2 == 0);
    streams.push_back(*out);
    return 0;
}

}

int dev_stream_new(dev_stream *out) { return emu::stream_new(out, false); }
void dev_stream_in_order(dev_stream stream) { stream->in_order = true; }
int dev_copies_new(dev_stream *out) { return emu::stream_new(out, true); }

int dev_stream_free(dev_stream stream)
{
    emu::stream_finish(stream);
    emu::streams.erase(std::find(emu::streams.begin(), emu::streams.end(), stream));
    delete stream;
    return 0;
}

struct dev_launches *dev_launches_of(dev_stream stream) { return stream ? &stream->launches : nullptr; }
int dev_device_of(dev_stream stream) { return stream->device; }

/* As on a GPU, pinned memory is read when the stream reaches the copy. */
int dev_upload_begin(void *to, const void *from, size_t bytes, dev_stream stream, bool *read)
{
    *read = !emu::is_pinned(from, bytes);
    return emu::stream_captures(stream) ? emu::capture_wrong(stream, "an upload")
                                        : emu::put_copy(stream, to, from, bytes, *read);
}

int dev_upload_pinned(void *to, const void *from, size_t bytes, dev_stream stream)
{
    if (!emu::is_pinned(from, bytes))
        emu::finding_add("%zu bytes of memory that is not pinned are copied without being waited for", bytes);
    return emu::stream_captures(stream) ? emu::capture_wrong(stream, "an upload")
                                        : emu::put_copy(stream, to, from, bytes, false);
}

int dev_download(void *to, const void *from, size_t bytes, dev_stream stream)
{
    return emu::stream_captures(stream) ? emu::capture_wrong(stream, "a download")
                                        : emu::put_copy(stream, to, from, bytes, false);
}

int dev_copy(void *to, const void *from, size_t bytes, dev_stream stream)
{
    return emu::put_copy(stream, to, from, bytes, false);
}

int dev_fill(void *to, int byte, size_t bytes, dev_stream stream)
{
    emu::node n = {};
    n.kind = emu::node::FILL;
    n.to = to;
    n.byte = byte;
    n.bytes = bytes;
    return emu::put(stream, n, false);
}

int dev_wait(dev_stream stream)
{
    if (emu::stream_captures(stream))
        return emu::capture_wrong(stream, "a wait");
    int error = emu::failing();
    if (!error) {
        emu::stream_finish(stream);
        emu::race_stream_waits();
    }
    int failed = stream ? dev_launches_report(dev_launches_of(stream)) : 0, broken = emu::stream_failing(stream);
    return failed ? failed : error ? error : broken;
}

int dev_busy(dev_stream stream, int *busy)
{
    emu::stream_finish(stream);
    *busy = 0;
    return emu::stream_failing(stream);
}

int dev_event_new(dev_event *out)
{
    *out = new emu_event();
    return 0;
}

int dev_event_free(dev_event *event)
{
    delete *event;
    *event = nullptr;
    return 0;
}

int dev_event_record(dev_event event, dev_stream stream)
{
    if (emu::stream_captures(stream))
        return emu::capture_wrong(stream, "an event");
    *event = {stream, stream->put, 0};
    return 0;
}

int dev_event_hold(dev_event event, dev_stream stream)
{
    emu::node n = {};
    if (emu::stream_captures(stream))
        return emu::capture_wrong(stream, "an event");
    if (!event->stream)
        return 0;
    n.kind = emu::node::HOLD;
    n.other = event->stream;
    n.until = event->at;
    return emu::put(stream, n, false);
}

int dev_event_wait(dev_event event)
{
    int error = emu::failing();
    if (!error && event->stream)
        emu::run_until(event->stream, event->at);
    return error;
}

int dev_event_busy(dev_event event, int *busy)
{
    int error = emu::failing();
    *busy = !error && event->stream && event->stream->done < event->at &&
            ++event->asked < (event->stream->device == 2 ? 1000 : 2);
    if (!error && !*busy && event->stream)
        emu::run_until(event->stream, event->at);
    return error;
}
