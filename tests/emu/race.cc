/* The race detector's place in builds that have none. */
#include "tests/emu/inside.h"

#ifndef EMU_RACE

bool emu_races_seen(void) { return false; }

namespace emu {

void race_region(const void *, size_t, bool) {}
void race_region_end(const void *) {}
void race_launch(void) {}
void race_block(void) {}
void race_barrier(void) {}
void race_sync_warp(int, unsigned) {}
void race_access(const void *, size_t, bool, const void *, int) {}
void race_no_cache(const void *, int) {}
void race_atomic(const void *) {}

}

#endif
