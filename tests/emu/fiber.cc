/* Fibers. On x86-64 the switch is written in assembly (5 to 10 ns); elsewhere it is swapcontext, which makes a system call. */
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "tests/emu/inside.h"

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emu {

static const size_t STACK = FIBER_STACK, GUARD = 4096;

struct fiber {
    char *stack;                                 /* begins above an inaccessible page */
    void *fake;                                  /* ASan's own */
#ifdef __x86_64__
    void *pointer;
#else
    ucontext_t context;
#endif
};

static std::vector<fiber> fibers;
static std::vector<int> idle;                    /* the fibers that nothing runs in; the last one ended last */
static fiber host;
static void (*entry)(void);
const char *running_stack;
static int begins;                               /* the fiber to switch to */
#ifdef EMU_ASAN
static const void *host_stack;
static size_t host_size;
#endif

static fiber *of(int index) { return index == HOST ? &host : &fibers[(size_t)index]; }

#ifdef __x86_64__
extern "C" void emu_switch(void **save, void *to);
asm(".text\n"
    ".globl emu_switch\n"
    ".type emu_switch, @function\n"
    "emu_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size emu_switch, .-emu_switch\n");
#endif

static void arrived(int index)
{
#ifdef EMU_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(of(index)->fake, &bottom, &size);
    if (!host_stack && index != HOST)
        host_stack = bottom, host_size = size;
#else
    (void)index;
#endif
}

static void first_steps(void)
{
    arrived(begins);
    entry();
    abort();
}

static void prepare(int index)
{
    fiber *f = of(index);
#ifdef EMU_ASAN
    __asan_unpoison_memory_region(f->stack, STACK);
#endif
    f->fake = nullptr;
#ifdef __x86_64__
    /* Stacks begin at different offsets of a page: with equal offsets all would use a few sets of the processor's cache. */
    void **top = (void **)(f->stack + STACK - (size_t)index % 64 * 64);
    *--top = nullptr;
    *--top = (void *)first_steps;                /* `ret` leaves the stack aligned as after a call */
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f->pointer = top;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = nullptr;
    makecontext(&f->context, first_steps, 0);
#endif
}

void fibers_begin(void (*start)(void)) { entry = start; }

int fiber_new(void)
{
    if (idle.empty()) {
        char *memory = (char *)mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, GUARD, PROT_NONE)) {
            fprintf(stderr, "emulator: no memory for %zu stacks\n", fibers.size() + 1);
            abort();
        }
        fiber fresh = {};
        fresh.stack = memory + GUARD;
        idle.push_back((int)fibers.size());
        fibers.push_back(fresh);
    }
    const int index = idle.back();
    idle.pop_back();
    prepare(index);
    return index;
}

void fiber_switch(int from, int to, bool from_is_done)
{
    if (from == to)
        return;
    fiber *a = of(from), *b = of(to);
    if (from_is_done)
        idle.push_back(from);
    begins = to;
    running_stack = b->stack;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(from_is_done ? nullptr : &a->fake, to == HOST ? host_stack : b->stack,
                                   to == HOST ? host_size : STACK);
#endif
#ifdef __x86_64__
    emu_switch(&a->pointer, b->pointer);
#else
    swapcontext(&a->context, &b->context);
#endif
    arrived(from);
}

void fibers_forget(void)
{
    idle.clear();
    for (size_t i = 0; i < fibers.size(); i++) {
#ifdef EMU_ASAN
        __asan_unpoison_memory_region(fibers[i].stack, STACK);
#endif
        idle.push_back((int)i);
    }
}

}
