/* Operations put on streams: stream.cc runs them, graph.cc keeps them as the nodes of a graph. */
#ifndef MOE_EMU_STREAM_H
#define MOE_EMU_STREAM_H

#include <deque>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/emu/inside.h"

namespace emu {

enum { CAPTURING = 900, BROKEN = 719 };

struct alignas(16) piece {
    unsigned char byte[16];
};

struct node {
    enum { KERNEL, COPY, FILL, LOOP, HOLD } kind;
    emu::call call;                      /* its arguments are in the node */
    std::vector<piece> arguments;
    void *to;
    const void *from;
    std::vector<unsigned char> data;     /* of a COPY that read `from` when it was put */
    int byte;
    size_t bytes;
    dev_condition condition;
    std::vector<node> turn;              /* of a LOOP in a runnable graph */
    dev_graph body;                      /* of a graph's */
    dev_stream other;                    /* HOLD: operations put on this stream up to `until` must run first */
    uint64_t until;
};

bool node_run(const node &n, dev_stream stream);             /* false: a finding ended it; not for a LOOP */
void graph_add(dev_graph graph, const node &n);

int stream_failing(dev_stream stream);           /* error that a wait for the stream returns; 0: none */
bool stream_captures(dev_stream stream);
void stream_finish(dev_stream stream);           /* runs its pending operations */
void streams_leave(const void *memory, size_t bytes);        /* finishes all streams, because this memory is freed */
int capture_wrong(dev_stream stream, const char *what);      /* reports an operation that cannot be captured */

}

struct emu_stream {
    int device;
    struct dev_launches launches;
    dev_graph capture;                   /* operations that are put become nodes of it */
    int failing;                         /* error of a launch that trapped */
    bool copies;                         /* for copies only */
    bool in_order;                       /* no launch on it is early */
    bool late;                           /* operations wait until a result is needed */
    uint64_t put, done;                  /* so far */
    std::deque<emu::node> pending;
};

#endif
