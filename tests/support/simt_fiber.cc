/* Lanes as fibers of the calling thread.
 *
 * A fiber is entered once with makecontext and then lives from block to block; all later switches are the compiler's
 * own setjmp, because swapcontext asks the kernel about signals each time. Sanitizers are told of every switch. */
#include "simt_private.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__clang__)
#define ANY_KERNEL __attribute__((no_sanitize("function"))) /* it is called with a pointer for its reference */
#else
#define ANY_KERNEL
#endif
#define PLAIN __attribute__((noinline, no_sanitize_address, no_sanitize_thread))

namespace simt
{
enum { STACK_BYTES = 128 * 1024, GUARD_BYTES = 4096 };

__thread struct machine *machine;
__thread struct lane *running;

/* The sanitizers' part of a switch, on the side that goes and on the side that comes. */
static void before_switch(struct fiber *from, const struct fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    (void)from, (void)to;
}

static void after_switch(struct fiber *here, struct fiber *came_from)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(here->fake_stack, &came_from->stack, &came_from->stack_bytes);
#endif
    (void)here, (void)came_from;
}

PLAIN static void jump_to(void **jump)
{
    __builtin_longjmp(jump, 1);
}

PLAIN void lane_pause(struct lane *lane)
{
    before_switch(&lane->fiber, &machine->scheduler);
    if (__builtin_setjmp(lane->fiber.jump) == 0)
        jump_to(machine->scheduler.jump);
    struct fiber unused;
    after_switch(&running->fiber, &unused);
}

static void lane_leave(struct lane *lane)
{
    if (!lane->copies.empty())
        simt_complain("lane %u left with asynchronous copies that it never waited for",
                      (unsigned)(lane->place.thread.x));
    lane->state = LANE_LEFT;
    lane_pause(lane);
}

/* A lane's whole life: one kernel after the other. */
ANY_KERNEL static void lane_main()
{
    struct lane *lane = running;
    after_switch(&lane->fiber, &machine->scheduler);
    for (;;) {
        machine->kernel(machine->argument);
        lane_leave(lane);
    }
}

static void *stack_new()
{
    size_t bytes = STACK_BYTES + GUARD_BYTES;
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (at == MAP_FAILED || mprotect(at, GUARD_BYTES, PROT_NONE) != 0) {
        perror("simt: no memory for a lane's stack");
        abort();
    }
    return static_cast<char *>(at) + GUARD_BYTES;
}

PLAIN static void lane_enter(struct lane *lane)
{
    ucontext_t entry;
    getcontext(&entry);
    entry.uc_stack.ss_sp = const_cast<void *>(lane->fiber.stack);
    entry.uc_stack.ss_size = lane->fiber.stack_bytes;
    entry.uc_link = nullptr;
    makecontext(&entry, lane_main, 0);
    lane->entered = true;
    setcontext(&entry); /* nobody comes back this way */
}

PLAIN void lane_run(struct lane *lane)
{
    running = lane;
#if defined(__SANITIZE_THREAD__)
    machine->scheduler.tsan = __tsan_get_current_fiber();
#endif
    before_switch(&machine->scheduler, &lane->fiber);
    if (__builtin_setjmp(machine->scheduler.jump) == 0) {
        if (lane->entered)
            jump_to(lane->fiber.jump);
        lane_enter(lane);
    }
    struct fiber unused;
    after_switch(&machine->scheduler, &unused);
}

/* Stacks begin at different offsets in their pages, or lanes would drive each other out of the first-level cache. */
void lane_make(struct lane *lane, size_t number)
{
    lane->fiber.stack = stack_new();
    lane->fiber.stack_bytes = STACK_BYTES - number % 16 * 256;
#if defined(__SANITIZE_THREAD__)
    lane->fiber.tsan = __tsan_create_fiber(0);
#endif
}

void lane_forget(struct lane *lane)
{
    lane->entered = false;
    lane->fiber.fake_stack = nullptr;
    lane->copies.clear();
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(lane->fiber.stack, lane->fiber.stack_bytes);
#endif
}

machine::~machine()
{
    race_watch_delete(watch);
    for (auto &lane : lanes) {
#if defined(__SANITIZE_THREAD__)
        __tsan_destroy_fiber(lane->fiber.tsan);
#endif
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(lane->fiber.stack, lane->fiber.stack_bytes);
#endif
        munmap(static_cast<char *>(const_cast<void *>(lane->fiber.stack)) - GUARD_BYTES, STACK_BYTES + GUARD_BYTES);
    }
}

void machine_need()
{
    static thread_local std::unique_ptr<struct machine> owner;
    if (owner)
        return;
    owner.reset(new struct machine());
    machine = owner.get();
}
} // namespace simt
