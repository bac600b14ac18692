/* A machine and a model on it, described by a JSON file, for decoding in virtual time: a fast processor whose memory
 * contains some of the experts, a link that transfers the others one after the other, and optionally a slow processor that
 * computes experts where they are. With a disk as the link and no slow processor it is a machine with a disk tier.
 *
 *     {"machine": "RTX 4090, PCIe 4.0", "source": "...",
 *      "model": {"name": "Qwen3-30B-A3B", "layers": 48, "experts": 128, "top_k": 8, "expert_bytes": 9437184},
 *      "cached": 0.17,                                         share of all experts that fits into the fast memory
 *      "draft": {"length": 8, "token_us": 5000, "acceptance": 0.8},
 *      "layer_us": 60, "forward_us": 400,                      all but experts: per layer, and in addition per forward
 *      "fast": {"expert_us": 11.0, "token_us": 0.4},           an expert with its first token; each further token of it
 *      "slow": {"expert_us": 140, "token_us": 30, "join_us": 15},      join_us: copying states there and back, per layer
 *      "link": {"bytes_per_second": 25e9, "latency_us": 10},      "at_once": true: latencies of several transfers overlap;
 *                                                              "together": true: experts requested together arrive together;
 *                                                              "reads": [[1, 1.3e9], [8, 1.8e9]]: bytes/s by the number of
 *                                                              reads in flight, for links with "together"
 *      "forecast": {"next_layer": 0.716, "draft": 0.85,        recall of such a forecast; 0: none
 *                   "copy": {"share": 0.266, "in_place_of": 0.08, "token_us": 5100}},      see below
 *      "notes": ["..."]}
 *
 * A dense drafter does not know the target's routes. If the drafter is dense, "copy" describes a copy of the target that
 * drafts instead in systems that use routes of the draft phase: the shares of all experts' bytes that the copy takes and
 * that the drafter took, and the time per drafted token. Without "copy" the drafter is assumed to be such a copy.
 *
 * Errors: ERR_INPUT, one line with the file's name. */
#ifndef MOE_BENCH_SIMULATED_MACHINE_H
#define MOE_BENCH_SIMULATED_MACHINE_H

#include <stdbool.h>

#include "common/base/err.h"

struct simulated_processor { double expert_s, token_s, join_s; };

enum { SIMULATED_SPEEDS = 16 };

struct simulated_machine {
    char name[128], model[128];
    int layers, experts, top_k;
    double expert_bytes, cached;
    int draft_length;
    double draft_s, acceptance;         /* draft_s: per drafted token; acceptance probability in synthetic routes */
    double layer_s, forward_s;
    struct simulated_processor fast, slow;
    bool has_slow;
    double bytes_per_second, latency_s;
    bool at_once, together;
    int speeds;                         /* 0: bytes_per_second for any number of reads in flight */
    struct { int reads; double bytes_per_second; } speed[SIMULATED_SPEEDS];     /* ascending by reads */
    double recall_next, recall_draft;
    bool has_copy;
    double copy_share, copy_in_place_of, copy_token_s;
};

/* Reads a machine from a JSON file. */
int simulated_machine_read(struct simulated_machine *out, const char *path, struct err *err);

/* Returns the total bytes/s of `reads` transfers in flight, interpolated linearly between the file's values. */
double simulated_machine_speed(const struct simulated_machine *machine, int reads);

/* Returns the machine with the copy as its drafter: fewer experts are cached, none if the copy does not fit. */
struct simulated_machine simulated_machine_copied(const struct simulated_machine *machine);

/* Returns how many of the experts of all layers fit into the fast memory. */
int simulated_machine_slots(const struct simulated_machine *machine, int layers, int experts);

#endif
