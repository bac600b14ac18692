/* Blocks: the schedule, barriers, and collectives of warps. */
#include <algorithm>
#include <string>

#include "tests/emu/inside.h"

namespace emu {

running now = {nullptr, dim3(), dim3(), 0, 0, HOST, 0, nullptr, false, false, nullptr, 0};
location *here;

static std::vector<thread> threads;
static std::vector<uint64_t> ready;              /* a bit a thread */
static int ended, at_barrier, counted, launch_stops;

/* Lanes of a warp that wait in a collective, and lanes that have ended; all waiting lanes are at the same call. */
struct warp {
    unsigned waiting, ended;
    bool alike;
    kind what;
    unsigned mask;
    int line;
};
static std::vector<warp> warps;
static thread_body *body;
static const void *arguments;
static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t x = random_state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void thread_ready(int index)
{
    now.thread_of[index].at = READY;
    ready[(size_t)index / 64] |= 1ull << index % 64;
}

/* Returns the next thread that can run; HOST if there is none. */
static int choose(void)
{
    size_t words = ready.size();
    if (emu_options.schedule == EMU_REVERSE) {
        for (size_t w = words; w-- > 0;)
            if (ready[w])
                return (int)w * 64 + 63 - __builtin_clzll(ready[w]);
        return HOST;
    }
    size_t start = 0;
    if (emu_options.schedule == EMU_RANDOM) {
        uint64_t r = random_next();
        start = r % words;
        unsigned bit = (unsigned)(r >> 32) % 64;
        uint64_t above = ready[start] >> bit << bit;
        if (above)
            return (int)start * 64 + __builtin_ctzll(above);
    }
    for (size_t i = 0, w = start; i < words; i++, w = w + 1 < words ? w + 1 : 0)
        if (ready[w])
            return (int)w * 64 + __builtin_ctzll(ready[w]);
    return HOST;
}

static int fiber_of(int index) { return index == HOST ? HOST : now.thread_of[index].fiber; }

/* Runs other threads until this thread is scheduled. Where it is done, a thread that has not begun inherits its fiber, and this
 * returns: most threads of most blocks then need no stack of their own. */
static void wait_for_turn(bool done)
{
    const int from = fiber_of(now.self), to = choose();
    now.self = to;
    here = nullptr;
    if (to != HOST) {
        thread *t = &now.thread_of[to];
        ready[(size_t)to / 64] &= ~(1ull << to % 64);
        here = &t->where;
        if (t->fiber == HOST)
            t->fiber = done ? from : fiber_new();
    }
    fiber_switch(from, fiber_of(to), done);
}

void give_up(void)
{
    now.given_up = true;
    if (now.self == HOST)
        return;
    int from = fiber_of(now.self);
    now.self = HOST;
    here = nullptr;
    fiber_switch(from, HOST, true);
    abort();
}

/* Releases a barrier that all threads of the block have reached. A thread that has ended can never reach it. */
static void barrier_maybe_opens(void)
{
    if (at_barrier == 0 || at_barrier + ended < now.threads)
        return;
    int line = -1, other = -1, first_ended = -1, first = -1, second = -1;
    for (int i = 0; i < now.threads; i++) {
        thread *t = &now.thread_of[i];
        if (t->at == ENDED)
            first_ended = first_ended < 0 ? i : first_ended;
        else if (line < 0)
            line = t->line, first = i;
        else if (t->line != line && other < 0)
            other = t->line, second = i;
    }
    if (first_ended >= 0)
        found(line, "%d threads wait at the barrier of line %d, but thread %d has ended", at_barrier, line, first_ended);
    if (other >= 0)
        found(line, "thread %d is at the barrier of line %d, thread %d at that of line %d", first, line, second, other);
    race_barrier();
    int count = counted;
    at_barrier = counted = 0;
    for (int i = 0; i < now.threads; i++) {
        now.thread_of[i].count_value = count;
        thread_ready(i);
    }
}

int block_count(int line, int value)
{
    thread *t = self();
    t->at = AT_BARRIER;
    t->line = line;
    at_barrier++;
    counted += value != 0;
    barrier_maybe_opens();
    wait_for_turn(false);
    return t->count_value;
}

void block_barrier(int line) { block_count(line, 0); }

void yield(void)
{
    thread *t = self();
    if (++t->yields > 1000000)
        found(0, "has waited a million times for something that does not come");
    thread_ready(now.self);
    wait_for_turn(false);
}

/* A lane enters a collective: every waiting lane of its mask must be in the same collective, and none may have ended. */
static void compare_lanes(int first, kind what, unsigned mask, int line)
{
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        int other = first + __builtin_ctz(rest);
        thread *o = &now.thread_of[other];
        if (o->at == ENDED)
            found(line, "waits for lane %d, which has ended", other % 32);
        if (o->at != AT_MEETING)
            continue;
        if (o->mask != mask)
            found(line, "mask %08x, but lane %d gives %08x at line %d", mask, other % 32, o->mask, o->line);
        if (o->what != what || o->line != line)
            found(line, "lane %d is at another call, at line %d", other % 32, o->line);
    }
}

/* Copies a lane's input or output; most lanes pass a product's operands or one word, for which memcpy is not called. */
static inline void lane_copy(void *to, const void *from, size_t bytes)
{
    if (bytes == 4)
        memcpy(to, from, 4);
    else if (bytes == sizeof(thread::in))
        memcpy(to, from, sizeof(thread::in));
    else
        memcpy(to, from, bytes);
}

void meet(kind what, unsigned mask, int line, int argument, const void *in, void *out, size_t bytes)
{
    thread *t = self();
    int first = now.self / 32 * 32, lane = now.self % 32;
    if (!(mask >> lane & 1))
        found(line, "lane %d is not in the mask %08x that it gives", lane, mask);
    unsigned present = now.threads - first >= 32 ? 0xffffffffu : (1u << (now.threads - first)) - 1;
    if (what == MMA && present != 0xffffffffu)
        found(line, "mma16816 in a warp of %d threads", now.threads - first);
    if (mask == 0xffffffffu && what != MMA)
        mask = present;                          /* the last warp of a block may have fewer */
    if (mask & ~present)
        found(line, "mask %08x has lanes that the block lacks", mask);
    t->at = AT_MEETING;
    t->what = what;
    t->mask = mask;
    t->line = line;
    t->argument = argument;
    t->bytes = bytes;
    if (bytes)
        lane_copy(t->in, in, bytes);
    /* Usually all lanes are at one call, and lanes need not be checked one by one. */
    warp *w = &warps[(size_t)first / 32];
    if (!w->waiting)
        w->alike = true, w->what = what, w->mask = mask, w->line = line;
    else if (w->what != what || w->mask != mask || w->line != line)
        w->alike = false;
    w->waiting |= 1u << lane;
    if (!w->alike || w->ended & mask)
        compare_lanes(first, what, mask, line);
    if ((w->waiting & mask) == mask) {
        w->waiting &= ~mask;
        warp_finish(first, mask);
        for (unsigned rest = mask; rest; rest &= rest - 1)
            thread_ready(first + __builtin_ctz(rest));
    }
    wait_for_turn(false);
    if (out)
        lane_copy(out, t->out, what == MMA ? 16 : bytes);
}

/* The kernel has returned in this thread. */
static void thread_end(void)
{
    const unsigned lane = 1u << now.self % 32;
    const int first = now.self / 32 * 32;
    warp *w = &warps[(size_t)first / 32];
    self()->at = ENDED;
    ended++;
    w->ended |= lane;
    for (unsigned rest = w->waiting; rest; rest &= rest - 1) {
        const int other = __builtin_ctz(rest);
        thread *t = &now.thread_of[first + other];
        if (t->mask & lane)
            found(t->line, "ends, but lane %d waits for it at line %d", other, t->line);
    }
    barrier_maybe_opens();
}

/* Runs threads one after the other in one fiber. */
static void threads_start(void)
{
    for (;;) {
        body(arguments);
        thread_end();
        wait_for_turn(true);
    }
}

/* No thread can run: reports which thread waits where. */
static void report_deadlock(void)
{
    std::string where;
    for (int i = 0, told = 0; i < now.threads && told < 8; i++) {
        thread *t = &now.thread_of[i];
        int same = 0, earlier = 0;
        for (int j = 0; j < now.threads; j++)
            if (now.thread_of[j].at == t->at && (t->at == ENDED || now.thread_of[j].line == t->line))
                same++, earlier += j < i;
        if (earlier)
            continue;
        char one[128];
        if (t->at == ENDED)
            snprintf(one, sizeof one, "; %d ended", same);
        else
            snprintf(one, sizeof one, "; %d at the %s of line %d (thread %d first)", same,
                     t->at == AT_BARRIER ? "barrier" : "meeting", t->line, i);
        where += one;
        told++;
    }
    finding_add("block %d: deadlock, everybody waits%s", now.block_index, where.c_str());
    now.given_up = true;
}

static void run_block(int index)
{
    now.block_index = index;
    ended = at_barrier = counted = 0;
    const dim3 &b = now.block, &g = now.grid;
    unsigned n = (unsigned)index;
    std::fill(ready.begin(), ready.end(), 0);
    std::fill(warps.begin(), warps.end(), warp());
    location where = {dim3(0, 0, 0), dim3(n % g.x, n / g.x % g.y, n / g.x / g.y), b, g};
    for (int i = 0; i < now.threads; i++) {
        thread *t = &now.thread_of[i];
        t->where = where;
        if (++where.thread.x == b.x) {
            where.thread.x = 0;
            if (++where.thread.y == b.y)
                where.thread.y = 0, where.thread.z++;
        }
        t->fiber = HOST;
        t->copies.clear();
        t->groups.clear();
        t->copied = 0;
        t->early_waited = false;
        t->yields = 0;
        thread_ready(i);
    }
    shared_begin();
    race_block();
    fibers_begin(threads_start);
    wait_for_turn(false);
    if (now.given_up) {
        fibers_forget();
        return;
    }
    if (ended < now.threads) {
        report_deadlock();
        fibers_forget();
        return;
    }
    shared_end();
}

/* Returns the number of threads that a kernel's __launch_bounds__ allow: the nops before it. Alignment may have added a few. */
static unsigned bound_of(const void *kernel)
{
    unsigned nops = 0;
#if defined(__x86_64__)
    for (const unsigned char *p = (const unsigned char *)kernel; p[-1] == 0x90; p--)
        nops++;
#elif defined(__aarch64__)
    for (const uint32_t *p = (const uint32_t *)kernel; p[-1] == 0xd503201f; p--)
        nops++;
#endif
    return nops >= 32 ? nops / 32 * 32 : 1024;
}

static bool launch_allowed(const call &call)
{
    const char *name = call.name;
    const dim3 &grid = call.grid, &block = call.block;
    const size_t smem = call.smem;
    uint64_t size = (uint64_t)block.x * block.y * block.z;
    if (!size || size > 1024 || block.z > 64)
        finding_add("%s: a block of %u x %u x %u threads, not 1 .. 1024", name, block.x, block.y, block.z);
    else if (size > bound_of(call.kernel))
        finding_add("%s: a block of %u threads, but its __launch_bounds__ allow %u", name, (unsigned)size,
                    bound_of(call.kernel));
    else if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        finding_add("%s: a grid of %u x %u x %u blocks", name, grid.x, grid.y, grid.z);
    else if (smem > 227 * 1024)
        finding_add("%s: %zu bytes of shared memory, more than 227 KB", name, smem);
    else
        return true;
    return false;
}

int launches(void) { return launch_stops; }

void early_wait(void) { self()->early_waited = true; }

bool launch(const call &call)
{
    const dim3 &grid = call.grid, &block = call.block;
    const bool early = call.early;
    if (now.kernel) {
        finding_add("%s is launched by a kernel", call.name);
        return false;
    }
    if (!launch_allowed(call))
        return false;
    now.kernel = call.name;
    now.grid = grid;
    now.block = block;
    now.smem = call.smem;
    now.threads = (int)(block.x * block.y * block.z);
    now.given_up = false;
    now.early = early;
    if (!early)
        race_stream_waits();
    body = call.body;
    arguments = call.arguments;
    now.arguments = (const unsigned char *)arguments;
    now.argument_bytes = call.bytes;
    if ((int)threads.size() < now.threads)
        threads.resize((size_t)now.threads);
    ready.assign((size_t)(now.threads + 63) / 64, 0);
    warps.resize((size_t)(now.threads + 31) / 32);
    now.thread_of = threads.data();
    random_state = emu_options.seed * 1000003u + (uint64_t)launch_stops++;
    race_launch();
    int64_t blocks = (int64_t)grid.x * grid.y * grid.z;
    std::vector<int> order((size_t)blocks);
    for (int64_t i = 0; i < blocks; i++)
        order[(size_t)i] = (int)(emu_options.schedule == EMU_REVERSE ? blocks - 1 - i : i);
    if (emu_options.schedule == EMU_RANDOM)
        for (size_t i = order.size(); i > 1; i--)
            std::swap(order[i - 1], order[random_next() % i]);
    for (int64_t i = 0; i < blocks && !now.given_up; i++) {
        run_block(order[(size_t)i]);
        for (int t = 0; early && !now.given_up && t < now.threads; t++)
            if (!now.thread_of[t].early_waited) {
                finding_add("thread %d of block %d ended without pdl_wait, though its launch may be early", t, now.block_index);
                now.given_up = true;
            }
    }
    shared_begin();                              /* takes the last block's arrays */
    shared_free();
    device_check();
    now.kernel = nullptr;
    return !now.given_up;
}

}
