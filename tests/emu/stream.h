/* What is put on streams: stream.cc runs it, graph.cc keeps it as the nodes of a graph. */
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
    emu::call call;                      /* its arguments are the node's */
    std::vector<piece> arguments;
    void *to;
    const void *from;
    std::vector<unsigned char> data;     /* of a COPY that had read `from` when it was put */
    int byte;
    size_t bytes;
    dev_condition condition;
    std::vector<node> turn;              /* of a runnable's LOOP */
    dev_graph body;                      /* of a graph's */
    dev_stream other;                    /* HOLD: what was put on this one, up to `until`, comes first */
    uint64_t until;
};

bool node_run(const node &n, dev_stream stream);             /* false: a finding ended it; not a LOOP */
void graph_add(dev_graph graph, const node &n);

int stream_failing(dev_stream stream);           /* what a wait for the stream tells; 0: nothing */
bool stream_captures(dev_stream stream);
void stream_finish(dev_stream stream);           /* runs what it has pending */
void streams_leave(const void *memory, size_t bytes);        /* all of them finish, for this memory is no more */
int capture_wrong(dev_stream stream, const char *what);      /* what nothing can be captured of */

}

struct emu_stream {
    int device;
    struct dev_launches launches;
    dev_graph capture;                   /* what is put becomes nodes of it */
    int failing;                         /* of a launch that trapped */
    bool copies;                         /* it is for copies alone */
    bool in_order;                       /* no launch on it is early */
    bool late;                           /* what is put waits until somebody must see it */
    uint64_t put, done;                  /* so far */
    std::deque<emu::node> pending;
};

#endif
