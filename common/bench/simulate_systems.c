/* Systems with experts in two memories, as their papers and programs describe them. Each entry says what is left out: the
 * table covers their cache, schedule and prefetching on one machine, not the programs. */
#include "common/bench/simulate.h"

const struct simulated_system simulated_systems[] = {
    {.name = "static-split", .cache = "static", .misses = MISSES_SLOW, .pins = PINS_LAYERS,
     .source = "llama.cpp, --n-cpu-moe: experts of whole layers are split once between processors; no speculation"},
    {.name = "static-split-draft", .cache = "static", .misses = MISSES_SLOW, .pins = PINS_LAYERS, .drafts = true,
     .source = "llama.cpp with a draft model, the paper's best baseline: the split as before"},
    {.name = "ranked-split-draft", .cache = "static", .misses = MISSES_SLOW, .pins = PINS_RANKED, .drafts = true,
     .overlaps = true, .source = "ours: the experts that these very routes want most, in hindsight; both processors at once"},
    {.name = "on-demand", .cache = "static", .misses = MISSES_FETCH, .pins = PINS_LAYERS,
     .source = "Transformers Accelerate, device maps: what is elsewhere is fetched whenever it is wanted, and not kept"},
    {.name = "whole-layers", .cache = "static", .misses = MISSES_WHOLE, .pins = PINS_LAYERS,
     .source = "vLLM, --cpu-offload-gb: layers that are elsewhere are fetched whole"},
    {.name = "mixtral-offloading", .cache = "lru", .misses = MISSES_FETCH, .prefetch = PREFETCH_NEXT_LAYER, .keeps = true,
     .overlaps = true, .source = "arXiv 2312.17238: LRU, and the next layer's router on this layer's state; no "
                                 "mixed quantisation here"},
    {.name = "moe-infinity", .cache = "lfu", .misses = MISSES_FETCH, .prefetch = PREFETCH_NEXT_LAYER, .keeps = true,
     .overlaps = true, .source = "arXiv 2401.14361: the least visited goes, activation paths are predicted; the prediction is "
                                 "a router's of the layer before here"},
    {.name = "fate", .cache = "hot:half=64", .misses = MISSES_FETCH, .prefetch = PREFETCH_NEXT_LAYER, .keeps = true,
     .overlaps = true, .source = "arXiv 2502.12224: cross-layer gate; its cache that favours shallow layers is heat here, and "
                                 "there is no quantisation"},
    {.name = "hybrimoe", .cache = "hot:half=16", .misses = MISSES_GREEDY, .prefetch = PREFETCH_NEXT_LAYER, .keeps = true,
     .overlaps = true, .source = "arXiv 2504.05897: greedy between processors by load, a cache by recent scores, prefetching "
                                 "for the next layer; heat here in place of router scores"},
    {.name = "sp-moe", .cache = "lru", .misses = MISSES_FETCH, .prefetch = PREFETCH_DRAFT, .drafts = true, .keeps = true,
     .overlaps = true, .source = "arXiv 2510.10302: the draft phase says what is fetched, LRU; no fixed last layer"},
    {.name = "lru-fetch", .cache = "lru", .misses = MISSES_FETCH, .drafts = true, .keeps = true, .overlaps = true,
     .source = "the usual cache with speculation: all is computed by the fast processor"},
    {.name = "lfu-fetch", .cache = "lfu", .misses = MISSES_FETCH, .drafts = true, .keeps = true, .overlaps = true,
     .source = "as lru-fetch, with counts"},
    {.name = "utility-fetch", .cache = "utility", .misses = MISSES_FETCH, .prefetch = PREFETCH_POLICY, .drafts = true,
     .keeps = true, .overlaps = true, .source = "MoE-SpAc's Algorithm 1 where there is one processor, so nothing to balance; "
                                                "tau is 1"},
    {.name = "ahead-fetch", .cache = "ahead", .misses = MISSES_FETCH, .prefetch = PREFETCH_DRAFT, .drafts = true,
     .keeps = true, .overlaps = true, .source = "ours: the draft phase's routes, those that most tokens want first"},
    {.name = "lru", .cache = "lru", .misses = MISSES_SLOW, .prefetch = PREFETCH_MISSED, .drafts = true, .overlaps = true,
     .source = "ours: utility's machine with LRU in its place: what was missed is computed by the slow processor and fetched"},
    {.name = "lru-global", .cache = "lru-global", .misses = MISSES_SLOW, .prefetch = PREFETCH_MISSED, .drafts = true,
     .overlaps = true, .source = "ours: as lru, with one list over all layers"},
    {.name = "lfu", .cache = "lfu", .misses = MISSES_SLOW, .prefetch = PREFETCH_MISSED, .drafts = true, .overlaps = true,
     .source = "ours: as lru, with counts"},
    {.name = "hot", .cache = "hot", .misses = MISSES_SLOW, .prefetch = PREFETCH_MISSED, .drafts = true,
     .overlaps = true, .source = "ours: as lru, with heat"},
    {.name = "utility", .cache = "utility", .misses = MISSES_SLOW, .prefetch = PREFETCH_POLICY, .drafts = true,
     .overlaps = true, .balances = true, .source = "MoE-SpAc, arXiv 2603.09983, as printed"},
    {.name = "utility-released", .cache = "utility-released", .misses = MISSES_SLOW, .prefetch = PREFETCH_POLICY,
     .drafts = true, .overlaps = true, .source = "MoE-SpAc's published program: github.com/lshAlgorithm/MoE-SpAc; it has no "
                                                 "balancer, tau is 1"},
    {.name = "utility-layers", .cache = "utility-released:ties=layer", .misses = MISSES_SLOW, .prefetch = PREFETCH_POLICY,
     .drafts = true, .overlaps = true, .source = "ours: utility-released, where of equal levels the resident goes whose layer "
                                                 "had its turn last"},
    {.name = "utility-kept", .cache = "utility-released:after=level,gives=lower,ties=last", .misses = MISSES_SLOW,
     .prefetch = PREFETCH_POLICY, .drafts = true, .overlaps = true, .source = "ours: utility-released, where residents keep "
                                                                              "their level after use"},
    {.name = "utility-undrafted", .cache = "utility", .misses = MISSES_SLOW, .prefetch = PREFETCH_POLICY, .overlaps = true,
     .balances = true, .source = "MoE-SpAc without speculation (w/o SD in its table 4): Algorithm 1 over single tokens"},
    {.name = "utility-real", .cache = "utility-real", .misses = MISSES_SLOW, .prefetch = PREFETCH_POLICY, .drafts = true,
     .overlaps = true, .balances = true, .source = "ours: MoE-SpAc with boundaries that adapt both ways, and levels kept"},
    {.name = "ahead", .cache = "ahead", .misses = MISSES_SLOW, .prefetch = PREFETCH_DRAFT, .drafts = true, .overlaps = true,
     .source = "ours: the draft phase's routes, those that most tokens want first; what misses is the slow processor's"},
    {.name = "ahead-greedy", .cache = "ahead", .misses = MISSES_GREEDY, .prefetch = PREFETCH_DRAFT, .drafts = true,
     .keeps = true, .overlaps = true, .source = "ours: as ahead, and what misses goes to whichever processor has it sooner"},
    {.name = NULL},
};
