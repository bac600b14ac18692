/* The race detector. Kernels are compiled with -fsanitize=thread, but libtsan is not linked: the functions that the compiler
 * calls at each access are here. Each access to shared or device memory is compared with the last write to that location and
 * with up to three of its last readers. Two accesses, at least one of them a write, are ordered if
 *
 *     they are of one thread;
 *     of one block, and the block passed a __syncthreads in between;
 *     of one warp, and both threads passed a __syncwarp that named them (kept as vector clocks of a warp's lanes);
 *     of two blocks, and the first was published by an atomic that the second's block saw (release and acquire an address).
 *
 * Each access must also lie in memory that a kernel can reach: regions of shared and device memory, its own stack, the
 * launch's arguments, and constants, which nvcc places in the device's memory.
 *
 * Shuffles, votes and mma order nothing, although lanes wait for each other there in the emulator. Only the order relation
 * counts, not the actual sequence, so a race is found in any schedule. A copy by cp_async writes when issued and when waited
 * for. */
#include "tests/emu/inside.h"

#ifndef EMU_RACE

bool emu_races_seen(void) { return false; }

namespace emu {

void race_region(const void *, size_t, bool) {}
void race_region_end(const void *) {}
void race_region_rest(const void *) {}
void race_launch(void) {}
void race_block(void) {}
void race_barrier(void) {}
void race_sync_warp(int, unsigned) {}
void race_access(const void *, size_t, bool, const void *, int) {}
void race_no_cache(const void *, int) {}
void race_prefetch(const void *, size_t, int) {}
void race_atomic(const void *) {}
void race_stream_waits(void) {}

}

void emu_allow(const void *, size_t) {}

#else

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

bool emu_races_seen(void) { return true; }

namespace emu {

/* An access in 16 bytes, so that the record of a cell is one line of the processor's cache. */
struct access {
    uint32_t run, place;                         /* the number of the block's run, 0: none; see place_of */
    uint32_t moment, clock;                      /* barriers of the block so far and the thread; time of the lane in its warp */

    int thread() const { return (int)(moment % THREADS); }
    uint32_t barriers() const { return moment / THREADS; }
    static const uint32_t THREADS = 1024;
};
static_assert(sizeof(access) == 16, "a record is a cache line");

struct alignas(64) cell_record {
    access write, read[3];                       /* the last read, the last of another thread, the last of another warp */
};

/* Memory with one record per 2^shift bytes: at most 16, and at most the size of the smallest access. */
struct region {
    const unsigned char *base;
    size_t bytes;
    int shift;
    bool shared, live;                           /* not live: a shared array of an earlier block (race_region_rest) */
    std::vector<cell_record> record;
};

/* Knowledge of a block about a thread of another block: its accesses before barrier `barriers`, and the thread's later ones. */
struct seen {
    uint32_t barriers;
    int by;                                      /* saw it, at barrier `at` of its own block; then all know */
    uint32_t at;
};
typedef std::map<std::pair<int, int>, seen> knowledge;          /* by block and thread */

static std::map<const unsigned char *, region> regions;
static region *recent[64];                      /* the regions that were accessed last, by address */

/* Runs of blocks, counted over all launches: this one, the launch's first, and the last one that the stream has waited for. */
static uint32_t run, first_run = 1, settled_run;
static std::vector<int> blocks;                  /* of the launch's runs */
static uint32_t barriers;
static std::vector<uint32_t> clocks;             /* [thread][32]: its knowledge of the lanes of its warp */
static std::map<int, knowledge> known;           /* by block */
static std::unordered_map<const void *, knowledge> published;   /* by address */

void race_region(const void *base, size_t bytes, bool shared)
{
    const unsigned char *start = (const unsigned char *)base;
    auto old = regions.find(start);
    if (old != regions.end() && old->second.bytes == bytes && old->second.shared == shared && !old->second.live) {
        old->second.live = true;
        return;
    }
    std::fill(std::begin(recent), std::end(recent), nullptr);
    regions[start] = {start, bytes, 4, shared, true, {}};
}

void race_region_end(const void *base)
{
    std::fill(std::begin(recent), std::end(recent), nullptr);
    regions.erase((const unsigned char *)base);
}

void race_region_rest(const void *base)
{
    auto one = regions.find((const unsigned char *)base);
    if (one != regions.end())
        one->second.live = false;
}

void race_launch(void)
{
    first_run = run + 1;
    blocks.clear();
    known.clear();
    published.clear();
}

void race_stream_waits(void) { settled_run = run; }

void race_block(void)
{
    run++;
    blocks.push_back(now.block_index);
    barriers = 0;
    clocks.assign((size_t)now.threads * 32, 0);
    for (size_t t = 0; t < (size_t)now.threads; t++)
        clocks[t * 32 + t % 32] = 1;
}

void race_barrier(void)
{
    if (++barriers > UINT32_MAX / access::THREADS)
        found(0, "more barriers than the race detector can count");
}

void race_sync_warp(int first, unsigned mask)
{
    uint32_t joined[32] = {};
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        const uint32_t *c = &clocks[(size_t)(first + __builtin_ctz(rest)) * 32];
        for (int i = 0; i < 32; i++)
            joined[i] = std::max(joined[i], c[i]);
    }
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        size_t lane = (size_t)__builtin_ctz(rest);
        uint32_t *c = &clocks[((size_t)first + lane) * 32];
        std::copy(joined, joined + 32, c);
        c[lane]++;                               /* its later accesses are not known to other threads yet */
    }
}

static inline bool region_has(const region *r, const unsigned char *address)
{
    return r && address >= r->base && address < r->base + r->bytes + TAIL;
}

static region *region_of(const unsigned char *address)
{
    region *&slot = recent[(uintptr_t)address / 256 % (sizeof recent / sizeof *recent)];
    if (!region_has(slot, address)) {
        auto after = regions.upper_bound(address);
        if (after == regions.begin() || !region_has(&(--after)->second, address))
            return nullptr;
        slot = &after->second;
    }
    return slot->live ? slot : nullptr;
}

static int block_of(const access &a) { return blocks[a.run - first_run]; }     /* of an access of this launch */

/* An access's place in the source: a line of the emulator's own access, or the return address relative to this program. */
static uint32_t place_of(const void *site, int line)
{
    return line ? (uint32_t)line << 1 | 1 : (uint32_t)((intptr_t)site - (intptr_t)&place_of) << 1;
}

static int line_of(uint32_t place) { return place & 1 ? (int)(place >> 1) : 0; }

/* Returns whether an access of another block of this launch is ordered before the current access of this thread. */
static bool published_before(const access &old, int thread)
{
    auto mine = known.find(now.block_index);
    if (mine == known.end())
        return false;
    const int block = block_of(old);
    auto one = mine->second.lower_bound({block, 0});
    for (; one != mine->second.end() && one->first.first == block; ++one) {
        const seen &s = one->second;
        bool covers = old.barriers() < s.barriers || (old.thread() == one->first.second && old.barriers() == s.barriers);
        if (covers && (s.by == thread || barriers > s.at))
            return true;
    }
    return false;
}

static std::string name_of(uint32_t place)
{
    static std::map<uint32_t, std::string> names;
    if (line_of(place))
        return "line " + std::to_string(line_of(place));
    std::string &name = names[place];
    if (!name.empty())
        return name;
    Dl_info info;
    char command[1024], answer[512] = "";
    const char *site = (const char *)&place_of + (int32_t)place / 2 - 1;
    if (dladdr(site, &info) && info.dli_fname) {
        snprintf(command, sizeof command, "addr2line -e '%s' 0x%lx 2>/dev/null", info.dli_fname,
                 (unsigned long)(site - (const char *)info.dli_fbase));
        FILE *pipe = popen(command, "r");
        if (pipe) {
            if (!fgets(answer, sizeof answer, pipe))
                answer[0] = 0;
            pclose(pipe);
        }
    }
    const char *colon = strrchr(answer, ':');
    if (!colon || colon[1] == '?' || colon[1] == '0')
        snprintf(answer, sizeof answer, "address %p", (const void *)(site + 1));
    else
        snprintf(answer, sizeof answer, "line %d", atoi(colon + 1));
    return name = answer;
}

static void tell(const region &r, size_t index, const access &old, bool old_writes, const access &fresh, bool writes)
{
    std::string between = name_of(old.place) + (old_writes ? " (write)" : " (read)") + " and " + name_of(fresh.place) +
                          (writes ? " (write)" : " (read)");
    if (strstr(emu_findings(), between.c_str()))
        return;                                  /* once per pair of lines */
    finding_add("race in %s memory, byte %zu of %zu: %s, block %d thread %d and block %d thread %d",
                r.shared ? "shared" : "device", index << r.shift, r.bytes, between.c_str(), block_of(old), old.thread(),
                block_of(fresh), fresh.thread());
}

/* Returns whether `old` is ordered before the current access. Runs before `since` are over. */
static inline bool before(const access &old, const access &fresh, uint32_t since)
{
    if (old.run != fresh.run)
        return old.run < since || published_before(old, fresh.thread());
    const uint32_t thread = old.moment % access::THREADS, self = fresh.moment % access::THREADS;
    return old.moment < fresh.moment - self || thread == self ||
           (thread / 32 == self / 32 && clocks[(size_t)self * 32 + thread % 32] >= old.clock);
}

static void tell_unwritten(const access &fresh)
{
    std::string what = "shared memory that nobody wrote is read in " + name_of(fresh.place);
    if (!strstr(emu_findings(), what.c_str()))
        finding_add("block %d, thread %d: %s", block_of(fresh), fresh.thread(), what.c_str());
}

/* A launch that may be early, before pdl_wait: launches since the stream last waited may all still run, so the kernel must
 * not write, nor read memory that they wrote. */
static void check_early(const region &r, const cell_record &p, const access &fresh, bool write)
{
    if (write)
        found(line_of(fresh.place), "writes device memory before pdl_wait, in %s", name_of(fresh.place).c_str());
    if (p.write.run > settled_run && p.write.run < first_run)
        found(line_of(fresh.place), "reads before pdl_wait, in %s, what an earlier launch wrote to %zu bytes of device memory",
              name_of(fresh.place).c_str(), r.bytes);
}

static inline void note(region &r, size_t index, const access fresh, bool write)
{
    cell_record &p = r.record[index];
    const uint32_t since = r.shared ? run : first_run;      /* a block's shared array may have records of earlier blocks */
    if (r.shared && !write && p.write.run != run)
        tell_unwritten(fresh);
    if (!r.shared && now.early && !self()->early_waited)
        check_early(r, p, fresh, write);
    if (!before(p.write, fresh, since))
        tell(r, index, p.write, true, fresh, write);
    if (write) {
        for (const access &old : p.read)
            if (!before(old, fresh, since))
                tell(r, index, old, false, fresh, true);
        p.write = fresh;
        p.read[0].run = p.read[1].run = p.read[2].run = 0;
        return;
    }
    const access &last = p.read[0];
    if (last.run >= since && (last.run != fresh.run || last.thread() != fresh.thread())) {
        p.read[1] = last;
        if (last.run != fresh.run || last.thread() / 32 != fresh.thread() / 32)
            p.read[2] = last;
    }
    p.read[0] = fresh;
}

/* Makes records of 2^shift bytes. */
static void refine(region &r, int shift)
{
    std::vector<cell_record> finer(((r.bytes + 15) / 16) << (4 - shift));
    for (size_t i = 0; i < finer.size() && !r.record.empty(); i++)
        finer[i] = r.record[i >> (r.shift - shift)];
    r.record.swap(finer);
    r.shift = shift;
}

typedef std::vector<std::pair<const unsigned char *, const unsigned char *>> ranges;
static ranges allowed;

static bool lies_in(const ranges &all, const unsigned char *address)
{
    return std::any_of(all.begin(), all.end(), [=](const auto &one) { return address >= one.first && address < one.second; });
}

/* Constants that programs and libraries map read-only. */
static const ranges &constants(void)
{
    static ranges all;
    if (all.empty())
        dl_iterate_phdr([](struct dl_phdr_info *info, size_t, void *) {
            for (int i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) &p = info->dlpi_phdr[i];
                const unsigned char *begin = (const unsigned char *)(info->dlpi_addr + p.p_vaddr);
                if (p.p_type == PT_GNU_RELRO || (p.p_type == PT_LOAD && !(p.p_flags & PF_W)))
                    all.push_back({begin, begin + p.p_memsz});
            }
            return 0;
        }, nullptr);
    return all;
}

/* The emulator's own memory, which kernels read by threadIdx and the like, and the launch's arguments. */
static inline bool is_emulators(const unsigned char *start)
{
    const unsigned char *threads = (const unsigned char *)now.thread_of;
    return start == (const unsigned char *)&here || (start >= threads && start < threads + now.threads * sizeof(thread)) ||
           (start >= now.arguments && start < now.arguments + now.argument_bytes);
}

/* Memory outside all regions: constants, or the host's. */
static void check_host(const unsigned char *start, size_t bytes, bool write, const void *site, int line)
{
    if (!write && lies_in(constants(), start))
        return;
    if (lies_in(allowed, start))
        return;
    found(line, "%s %zu bytes of the host's memory in %s", write ? "writes" : "reads", bytes,
          name_of(place_of(site, line)).c_str());
}

/* Returns whether an access needs no record: of the host, to a thread's own stack, or to what is_emulators. */
static inline bool is_private(const void *address, bool write)
{
    return now.self == HOST || fiber_owns(address) || (!write && is_emulators((const unsigned char *)address));
}

void race_access(const void *address, size_t bytes, bool write, const void *site, int line)
{
    const unsigned char *start = (const unsigned char *)address;
    if (!bytes || is_private(address, write))
        return;
    region *r = region_of(start);
    if (!r)
        return check_host(start, bytes, write, site, line);
    size_t offset = (size_t)(start - r->base);
    const uint32_t place = place_of(site, line);
    if (offset + bytes > r->bytes)
        found(line, "%s %zu bytes past the end of %zu bytes of %s memory in %s", write ? "writes" : "reads",
              offset + bytes - r->bytes, r->bytes, r->shared ? "shared" : "device", name_of(place).c_str());
    const int shift = __builtin_ctzll(offset | bytes | 1u << r->shift);
    if (shift < r->shift || r->record.empty())
        refine(*r, shift);
    const access fresh = {run, place, barriers * access::THREADS + (uint32_t)now.self,
                          clocks[(size_t)now.self * 32 + (size_t)now.self % 32]};
    for (size_t i = offset >> r->shift; i < (offset + bytes) >> r->shift; i++)
        note(*r, i, fresh, write);
}

void race_prefetch(const void *address, size_t bytes, int line)
{
    const unsigned char *start = (const unsigned char *)address;
    region *r = region_of(start);
    if (!r || r->shared || start + bytes > r->base + r->bytes)
        found(line, "prefetch of memory that is not there");
}

/* ld128 reads through a cache that does not see writes of the same launch. */
void race_no_cache(const void *address, int line)
{
    region *r = region_of((const unsigned char *)address);
    if (!r || r->record.empty())
        return;
    size_t offset = (size_t)((const unsigned char *)address - r->base);
    for (size_t i = offset >> r->shift; i < (offset + 16) >> r->shift; i++)
        if (r->record[i].write.run >= first_run)
            found(line, "ld128 of memory that this launch wrote, at %s", name_of(r->record[i].write.place).c_str());
}

/* Publishes this thread's knowledge at the address, and adds the knowledge published there to the thread's. */
void race_atomic(const void *address)
{
    region *r = region_of((const unsigned char *)address);
    if (!r)
        found(0, "an atomic on the host's memory");
    if (r->shared)
        return;
    knowledge &mine = known[now.block_index], &there = published[address];
    for (auto &one : there) {
        auto old = mine.find(one.first);
        if (one.first.first != now.block_index && (old == mine.end() || old->second.barriers < one.second.barriers))
            mine[one.first] = {one.second.barriers, now.self, barriers};
    }
    for (auto &one : mine)
        if (one.second.by == now.self || barriers > one.second.at)
            there[one.first] = one.second;
    there[{now.block_index, now.self}] = {barriers, now.self, barriers};
}

}

void emu_allow(const void *memory, size_t bytes)
{
    emu::allowed.push_back({(const unsigned char *)memory, (const unsigned char *)memory + bytes});
}

/* Called by compiled code: functions of libubsan, which is not linked either (-fsanitize=alignment). */
struct mismatch {
    const char *file;
    uint32_t line, column;
    const void *type;
    unsigned char log_alignment, kind;
};
extern "C" void __ubsan_handle_type_mismatch_v1(const mismatch *what, uintptr_t address)
{
    if (emu::now.self != emu::HOST)
        emu::found((int)what->line, "an access at ...%03x, which is not a multiple of %d", (unsigned)(address & 0xfff),
                   1 << what->log_alignment);
}


#define SITE __builtin_return_address(0)
/* Most accesses are private, and return before race_access saves its registers. */
#define EMU_ACCESS(name, size, write)                                  \
    extern "C" void __tsan_##name##size(void *a)                       \
    {                                                                  \
        if (!emu::is_private(a, write))                                \
            emu::race_access(a, size, write, SITE, 0);                 \
    }
#define EMU_HOOK(size)                     \
    EMU_ACCESS(read, size, false)          \
    EMU_ACCESS(write, size, true)          \
    EMU_ACCESS(unaligned_read, size, false) \
    EMU_ACCESS(unaligned_write, size, true) \
    EMU_ACCESS(volatile_read, size, false) \
    EMU_ACCESS(volatile_write, size, true)
EMU_HOOK(1)
EMU_HOOK(2)
EMU_HOOK(4)
EMU_HOOK(8)
EMU_HOOK(16)
extern "C" void __tsan_init(void) {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit(void) {}
extern "C" void __tsan_vptr_update(void *, void *) {}
extern "C" void __tsan_vptr_read(void *) {}
extern "C" void __tsan_read_range(void *a, size_t n) { emu::race_access(a, n, false, SITE, 0); }
extern "C" void __tsan_write_range(void *a, size_t n) { emu::race_access(a, n, true, SITE, 0); }
extern "C" void *__tsan_memcpy(void *to, const void *from, size_t n)
{
    emu::race_access(from, n, false, SITE, 0);
    emu::race_access(to, n, true, SITE, 0);
    return memcpy(to, from, n);
}
extern "C" void *__tsan_memmove(void *to, const void *from, size_t n)
{
    emu::race_access(from, n, false, SITE, 0);
    emu::race_access(to, n, true, SITE, 0);
    return memmove(to, from, n);
}
extern "C" void *__tsan_memset(void *to, int byte, size_t n)
{
    emu::race_access(to, n, true, SITE, 0);
    return memset(to, byte, n);
}

#endif
