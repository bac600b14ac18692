#include "tests/emu/kernels.h"

#include "kernels/cuda/slab.h"
#include "tests/emu/inside.h"

void emu_region(const void *memory, size_t bytes) { emu::race_region(memory, bytes, false); }
int emu_launches(void) { return emu::launches(); }
void emu_region_end(const void *memory) { emu::race_region_end(memory); }
void emu_prefetch_watch(const void *memory, size_t bytes) { emu::prefetch_watch(memory, bytes); }
size_t emu_copied(void) { return emu::copied(); }
size_t emu_prefetched(void) { return emu::prefetched(); }

void *emu_queue(int way)
{
    static const size_t SCRATCH[] = {1 << 14, 1 << 22, 1 << 15}, SLAB_ROOM[] = {1 << 15, 1 << 19, 1 << 19};
    enum { WAYS = sizeof SCRATCH / sizeof *SCRATCH };
    static struct cuda_context contexts[2 * WAYS];
    static uint64_t seed;
    for (int i = 0; i < WAYS && !contexts[i].slab; i++) {
        void *scratch = nullptr, *tickets = nullptr;
        const size_t bytes = CONTEXT_TICKETS * sizeof(unsigned);
        char why[8];
        if (dev_alloc(&scratch, SCRATCH[i]) || dev_alloc(&tickets, bytes) || dev_fill(tickets, 0, bytes, nullptr))
            abort();
        contexts[i].tickets = i ? (unsigned *)tickets : nullptr;
        contexts[i].blocks = i == 1;
        contexts[i].scratch = buffer{(uint64_t)(uintptr_t)scratch, SCRATCH[i]};
        contexts[i + WAYS] = contexts[i];
        contexts[i].slab = slab_open(nullptr, SLAB_ROOM[i], why, sizeof why);
    }
    const int order = (way - 1) % WAYS + 1;
    emu_options.schedule = order == 1 ? EMU_FORWARD : order == 2 ? EMU_REVERSE : EMU_RANDOM;
    emu_options.seed = ++seed;
    emu_options.tensor_core = emu_races_seen() ? 80 : 90;
    dev_wait(nullptr);
    return &contexts[way - 1];
}
