/* Runs a model over processes: several processes run the same forwards, and divide the work in one of two ways.
 *
 * WHOLE EXPERTS: each process computes the routed experts that it owns, and receives the outputs of the other experts from
 * their owners. For one layer of one forward:
 *
 *     peers_mask      replaces the experts of other processes by -1
 *     ...             own experts are computed, one output per slot (`apart` in kernels/expert_ffn.h)
 *     peers_join      exchanges the outputs, in one collective
 *
 * Then expert_sum adds all outputs in the order of the row's slots, so the bits are those of a single process.
 *
 * OUTPUTS (peers_link.divides): each process computes a part of the outputs of every large product: of the matrices of
 * attention (peers_linear), and of both products of each expert and of dense networks (peers_ffn), and receives the other
 * parts. All processes then have the same work whatever experts are chosen; this costs two collectives for the experts and
 * two for attention. Every process computes small matrices itself; one process owns each small expert as a whole.
 *
 * In both ways the output head is divided: each process computes the logits of its part of the vocabulary (peers_part), and
 * receives the others (peers_gather). One process computes each output of a product completely, so its bits do not change.
 *
 * Every process must run the same forwards with the same rows in the same order. The caller transports the messages. All
 * calls must come from one thread. Engines with the same expert source may share the peers, one forward at a time. */
#ifndef MOE_ENGINE_PEERS_H
#define MOE_ENGINE_PEERS_H

#include "common/model/model.h"
#include "common/tensor/device.h"

struct layer;
struct matrix;
struct peers;
struct workspace;

/* The transport. Both functions are collective. They fail in all processes if one process has failed. */
struct peers_link {
    void *context;
    int rank, size, here;               /* here: processes on this host, this one included */
    bool divides;                       /* outputs are divided, not whole experts */
    uint64_t min_bytes;                 /* bytes of the smallest matrix or expert that is divided */
    /* All-gather: process r provides the bytes cut[r] .. cut[r + 1] - 1 of data; afterwards every process has all bytes.
     * fingerprint: describes the work of a process; the call fails before data are exchanged if the fingerprints differ. */
    int (*share)(void *context, uint64_t fingerprint, void *data, const size_t *cut, struct err *err);
    /* Copies the bytes of process 0 to all processes. */
    int (*broadcast)(void *context, void *data, size_t bytes, struct err *err);
};

/* The outputs of smaller matrices and experts are not divided, because the exchange would take longer. */
static const uint64_t PEERS_MIN_BYTES = 256 << 10;

/* Prepares the division. Without link->divides, expert e of the n-th layer with experts belongs to process owner[n][e], or, if
 * `owner` is NULL, (e + n) mod size; the others are unmapped from the model file. The device must compute in the
 * host's memory. The model must outlive the peers; owner is copied, and must be the same in all processes. */
int peers_open(struct peers **out, const struct peers_link *link, const int32_t *owner, const struct model *model,
               struct device *device, struct err *err);
void peers_close(struct peers **peers);

/* Hashes the tokens of a forward, and must be called before it: processes that read other tokens fail in their next
 * collective. */
void peers_begin(struct peers *peers, const int32_t *token, int rows);

/* Returns whether each process owns whole experts of this size. peers NULL: no. */
bool peers_own_experts(const struct peers *peers, uint64_t bytes);
/* Returns whether the processes divide products of a matrix or an expert of this size. peers NULL: no. */
bool peers_divides(const struct peers *peers, uint64_t bytes);
/* Runs the operations `linear` and `expert_ffn` without parts; each process computes a part of the outputs. */
int peers_linear(struct peers *peers, const struct workspace *space, const struct linear_args *args, struct err *err);
int peers_ffn(struct peers *peers, const struct workspace *space, const struct expert_ffn_args *args, struct err *err);

/* Sets *expert to a buffer with the layer's choice [rows][top_k], in which the experts of other processes are -1. */
int peers_mask(struct peers *peers, const struct layer *at, struct buffer *expert, struct err *err);
/* Copies the outputs of the other processes' experts to space->partial, which contains those of this process's experts. */
int peers_join(struct peers *peers, const struct layer *at, struct err *err);

/* Sets *part to the rows of a matrix that this process computes, in whole units (kernels/formats.h); there may be none.
 * Returns its first output. */
int peers_part(const struct peers *peers, const struct matrix *matrix, struct matrix *part);
/* Completes out [rows][outputs]: each process has computed its own columns (peers_part). Waits for the queue. */
int peers_gather(struct peers *peers, struct buffer out, int rows, int outputs, struct err *err);

/* Replaces measured times by those of process 0, so that decisions by time are the same in all processes. */
int peers_times(struct peers *peers, double *time, int count, struct err *err);

#endif
