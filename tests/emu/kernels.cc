#include "tests/emu/kernels.h"

#include "kernels/cuda/context.h"

void *emu_queue(int way)
{
    enum { SCRATCH = 1 << 22 };
    static struct cuda_context contexts[2];
    static uint64_t seed;
    if (!contexts[1].scratch.address) {
        void *scratch = nullptr;
        if (dev_alloc(&scratch, SCRATCH))
            abort();
        contexts[1].scratch.address = (uint64_t)(uintptr_t)scratch;
        contexts[1].scratch.bytes = SCRATCH;
    }
    emu_options.schedule = way == 1 ? EMU_FORWARD : way == 2 ? EMU_REVERSE : EMU_RANDOM;
    emu_options.seed = ++seed;
    return &contexts[way != 1];
}
