#include "tests/emu/kernels.h"

#include "kernels/cuda/slab.h"
#include "tests/emu/inside.h"

void emu_region(const void *memory, size_t bytes) { emu::race_region(memory, bytes, false); }
void emu_region_end(const void *memory) { emu::race_region_end(memory); }

void *emu_queue(int way)
{
    enum { SCRATCH = 1 << 22, SLAB_ROOM = 1 << 15 };
    static struct cuda_context contexts[2];
    static uint64_t seed;
    if (!contexts[1].scratch.address) {
        void *scratch = nullptr;
        if (dev_alloc(&scratch, SCRATCH))
            abort();
        contexts[1].scratch.address = (uint64_t)(uintptr_t)scratch;
        contexts[1].scratch.bytes = SCRATCH;
        char why[8];
        for (struct cuda_context &one : contexts)
            one.slab = slab_open(nullptr, &one == contexts ? SLAB_ROOM : SLAB_ROOM << 4, why, sizeof why);
    }
    emu_options.schedule = way == 1 ? EMU_FORWARD : way == 2 ? EMU_REVERSE : EMU_RANDOM;
    emu_options.seed = ++seed;
    emu_options.tensor_core = emu_races_seen() ? 80 : 90;
    dev_wait(nullptr);
    return &contexts[way != 1];
}
