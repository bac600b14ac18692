/* Graphs: kernels/cuda/dev_graph.h. Pending operations of a stream run before a graph that is launched on it.
 *
 * A runnable graph runs its nodes one after another, and the body of its WHILE node as long as its condition is set. Only
 * effects of a condition that CUDA documents are modelled: on runnables made from the graph it belongs to, while that graph
 * exists. An update of a runnable does not change its condition. */
#include <algorithm>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/emu/stream.h"

namespace emu {

enum { WRONG_FORM = 910, NOT_SUPPORTED = 801, TURNS_MAX = 100000 };

static dev_condition conditions;         /* graphs made so far; each gets a number */
static int runnables;
static dev_runnable running;

}

struct emu_graph {
    std::vector<emu::node> nodes;
    dev_graph in;                        /* of a body: the graph with its WHILE node */
    dev_runnable made;                   /* with a WHILE node: runnables made from it */
};

struct emu_runnable {
    std::vector<emu::node> nodes;
    dev_graph graph;                     /* with a WHILE node: the graph it was made from; NULL: destroyed */
    bool condition;
};

int emu_runnables_made(void) { return emu::runnables; }

namespace emu {

void graph_add(dev_graph graph, const node &n) { graph->nodes.push_back(n); }

/* A runnable has copies of the graph's nodes, and of its bodies' nodes. */
static std::vector<node> copies(const std::vector<node> &nodes)
{
    std::vector<node> out = nodes;
    for (node &n : out)
        if (n.kind == node::LOOP) {
            n.turn = copies(n.body->nodes);
            n.body = nullptr;
        }
    return out;
}

static bool same_form(const std::vector<node> &made, const std::vector<node> &graph)
{
    if (made.size() != graph.size())
        return false;
    for (size_t i = 0; i < made.size(); i++) {
        const node &a = made[i], &b = graph[i];
        if (a.kind != b.kind || (i && a.kind == node::KERNEL && a.call.early != b.call.early) ||
            (a.kind == node::LOOP && !same_form(a.turn, b.body->nodes)))
            return false;
    }
    return true;
}

static bool has_loop(const std::vector<node> &nodes)
{
    return std::any_of(nodes.begin(), nodes.end(), [](const node &n) { return n.kind == node::LOOP; });
}

static bool run(const std::vector<node> &nodes, dev_stream stream);

static bool run_loop(const node &n, dev_stream stream)
{
    int turns = 0;
    for (running->condition = true; running->condition; turns++) {
        if (turns == TURNS_MAX) {
            finding_add("a WHILE node had %d turns without an end", turns);
            return false;
        }
        if (!run(n.turn, stream))
            return false;
    }
    return true;
}

/* Returns false if a kernel trapped or another fault was found; the remaining nodes do not run. */
static bool run(const std::vector<node> &nodes, dev_stream stream)
{
    for (const node &n : nodes)
        if (!(n.kind == node::LOOP ? run_loop(n, stream) : node_run(n, stream)))
            return false;
    return true;
}

}

int dev_has_while(bool *has)
{
    *has = !emu_options.old_driver;
    return 0;
}

int dev_graph_new(dev_graph *out)
{
    *out = new emu_graph();
    return 0;
}

int dev_graph_free(dev_graph *graph)
{
    if (*graph) {
        for (emu::node &n : (*graph)->nodes)
            delete n.body;
        if ((*graph)->made)
            (*graph)->made->graph = nullptr;
        delete *graph;
    }
    *graph = nullptr;
    return 0;
}

int dev_while_new(dev_graph graph, dev_condition *condition, dev_graph *body)
{
    emu::node n = {};
    if (emu_options.old_driver)
        return emu::NOT_SUPPORTED;
    n.kind = emu::node::LOOP;
    n.condition = *condition = ++emu::conditions;
    n.body = *body = new emu_graph();
    n.body->in = graph;
    graph->nodes.push_back(n);
    return 0;
}

int dev_graph_clear(dev_graph graph)
{
    for (emu::node &n : graph->nodes)
        delete n.body;
    graph->nodes.clear();
    return 0;
}

int dev_capture_begin(dev_stream stream, dev_graph into)
{
    if (emu::stream_captures(stream))
        return emu::capture_wrong(stream, "a second capture");
    if (into && emu_options.old_driver)
        return emu::NOT_SUPPORTED;
    stream->capture = into ? into : new emu_graph();
    return 0;
}

int dev_capture_end(dev_stream stream, dev_graph *graph)
{
    *graph = stream->capture;
    stream->capture = nullptr;
    return 0;
}

bool dev_captures(dev_stream stream) { return emu::stream_captures(stream); }

int dev_runnable_new(dev_runnable *out, dev_graph graph)
{
    if (graph->made || graph->in) {
        emu::finding_add("a graph with a WHILE node is made runnable twice, or a part of one");
        return 1;
    }
    emu::runnables++;
    *out = new emu_runnable();
    (*out)->nodes = emu::copies(graph->nodes);
    if (emu::has_loop(graph->nodes)) {
        (*out)->graph = graph;
        graph->made = *out;
    }
    return 0;
}

int dev_runnable_free(dev_runnable *runnable)
{
    if (*runnable && (*runnable)->graph)
        (*runnable)->graph->made = nullptr;
    delete *runnable;
    *runnable = nullptr;
    return 0;
}

int dev_runnable_update(dev_runnable runnable, dev_graph graph)
{
    if (!emu::same_form(runnable->nodes, graph->nodes))
        return emu::WRONG_FORM;
    std::vector<emu::node> nodes = emu::copies(graph->nodes);
    for (size_t i = 0; i < nodes.size(); i++)
        nodes[i].condition = runnable->nodes[i].condition;
    runnable->nodes = nodes;
    return 0;
}

int dev_runnable_upload(dev_runnable, dev_stream) { return 0; }

int dev_runnable_launch(dev_runnable runnable, dev_stream stream)
{
    int error = dev_use(stream->device);
    if (error)
        return error;
    if (emu::stream_captures(stream))
        return emu::capture_wrong(stream, "a graph");
    emu::stream_finish(stream);
    emu::race_stream_waits();
    emu::running = runnable;
    if (!emu::run(runnable->nodes, stream))
        stream->failing = emu::BROKEN;
    emu::running = nullptr;
    return 0;
}

void set_condition(dev_condition condition, bool on)
{
    if (emu::running && emu::running->graph)
        for (const emu::node &n : emu::running->nodes)
            if (n.kind == emu::node::LOOP && n.condition == condition)
                emu::running->condition = on;
}
