// Runs one launch of a kernel on the CPU: block after block, or all at once if it is cooperative; threads as fibres.
//
// A seed draws the order of blocks, and of threads between two waits; shared memory starts as NaN in every block. So a kernel
// that forgets to wait or to initialise is wrong under nearly every seed, where a GPU may give the right result for years.
// Waits follow the CUDA programming guide. Where it leaves the outcome undefined, the launch fails: threads that wait for each
// other at different places never meet.
#include "cuda_shim.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <setjmp.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
void* cpu_cuda::dynamic_shared;
unsigned cpu_cuda::cluster;

// The linker's names for the ends of the section of __shared__ variables; null if there are none.
extern "C" __attribute__((weak, visibility("hidden"))) char __start_cuda_shared[], __stop_cuda_shared[];

namespace {

constexpr unsigned char POISON = 0xFF;  // NaN as float and double, -1 as int
constexpr std::size_t STACK_BYTES = 64 * 1024;
constexpr std::size_t STACKS_BYTES = std::size_t{4} << 30;  // as executor.cpp has it
constexpr std::size_t COPY_BYTES = 16;
constexpr std::size_t REPORT_BYTES = 4096;  // and
constexpr int FAULT = 3;                    // as executor.py has them
constexpr unsigned long MOST_VAIN_TURNS = 1000;  // of each block: far more than messages that a thread awaits in one line

enum class State { ready, at_barrier, at_meeting, in_shuffle, in_ballot, asleep, before_previous, done };

struct Copy {
    void* to;
    const void* from;
    bool are_there;
    unsigned group;
};

struct Thread {
    bool has_begun;
    jmp_buf place;  // where it goes on; a ucontext_t would cost two calls of the system each time
    uint3 index, block;
    void* dynamic_shared;  // its block's
    State state;
    // Where it waits, for which lanes, and what it exchanges there.
    const char* what;
    int line, woken_at;  // the second: of the last sleep
    bool (*is_over)(const void*);  // what it sleeps for; null if it looks by itself
    const void* condition;
    unsigned mask;
    int source;
    std::uint64_t sent, received;
    std::vector<Copy> copies;  // under way
    unsigned groups;           // of them that have ended
};

std::mt19937 random_order;
std::vector<Thread> threads;
std::vector<unsigned> order;  // of the threads that can run
std::vector<std::size_t> block_order;
unsigned long moves;                     // of any thread, other than from a sleep back into it
std::vector<unsigned long> polled_after;  // moves, when a block's sleepers were last woken
unsigned long vain_turns, vain_after;    // of blocks whose sleepers polled in vain, since so many moves
std::vector<char> is_active;  // of each block: whether a thread of it may be able to run
char* stacks;          // STACK_BYTES for each thread
std::size_t block_shared_bytes;
std::vector<char> statics;  // the __shared__ variables of each block
std::size_t live;           // the block that has its own in their section
ucontext_t beginning;  // of whichever thread begins
jmp_buf scheduler;
Thread* running;
void (*kernel)(void**);
void** arguments;
char* report;

// The pages of a dependent launch's tensors, which the kernel before may use until it has ended.
struct Pages {
    void* begin;
    std::size_t bytes;
};
std::vector<Pages> tensors;
bool previous_runs;

void set_previous_runs(bool runs) {
    previous_runs = runs;
    for (const Pages& pages : tensors) mprotect(pages.begin, pages.bytes, runs ? PROT_NONE : PROT_READ | PROT_WRITE);
}

bool waits_in_warp(const Thread& thread) {
    return thread.state == State::in_shuffle || thread.state == State::in_ballot;
}

// Ends the process; `report` says what was wrong, and at which address if it was an access.
[[noreturn]] void fail(const void* address, const char* what) {
    std::memcpy(report, &address, sizeof address);
    std::snprintf(report + sizeof address, REPORT_BYTES - sizeof address, "%s of block (%u, %u, %u)", what, blockIdx.x,
                  blockIdx.y, blockIdx.z);
    _exit(FAULT);
}

void back_to_scheduler() {
    if (_setjmp(running->place) == 0) _longjmp(scheduler, 1);
}

void run_fibre() {
    kernel(arguments);
    running->state = State::done;
    ++moves;
    back_to_scheduler();
}

void switch_to_running() {
    if (_setjmp(scheduler) != 0) return;
    if (running->has_begun) _longjmp(running->place, 1);
    running->has_begun = true;
    beginning.uc_stack.ss_sp = stacks + (running - threads.data()) * STACK_BYTES;
    beginning.uc_stack.ss_size = STACK_BYTES;
    makecontext(&beginning, run_fibre, 0);
    setcontext(&beginning);
}

void wait(State state, const char* what, int line) {
    Thread* self = running;
    if (state != State::asleep || line != self->woken_at) ++moves;
    self->state = state;
    self->woken_at = 0;
    self->what = what;
    self->line = line;
    back_to_scheduler();
}

unsigned threads_per_block() { return blockDim.x * blockDim.y * blockDim.z; }

void start_threads(const std::vector<uint3>& blocks, char* dynamic_shared, std::size_t shared_bytes) {
    const unsigned size = threads_per_block();
    for (unsigned all = 0; all < threads.size(); ++all) {
        Thread& thread = threads[all];
        const unsigned i = all % size;
        thread.state = State::ready;
        thread.copies.clear();
        thread.groups = 0;
        thread.block = blocks[all / size];
        thread.dynamic_shared = dynamic_shared + all / size * shared_bytes;
        thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
        thread.has_begun = false;
        thread.woken_at = 0;
        thread.is_over = nullptr;
    }
}

std::size_t static_bytes() { return __start_cuda_shared ? __stop_cuda_shared - __start_cuda_shared : 0; }

// Makes a thread the one whose index and memory code sees.
void enter(Thread& thread) {
    running = &thread;
    threadIdx = thread.index;
    blockIdx = thread.block;
    cpu_cuda::dynamic_shared = thread.dynamic_shared;
    const std::size_t block = (&thread - threads.data()) / threads_per_block();
    if (block == live || statics.empty()) return;
    std::memcpy(&statics[live * static_bytes()], __start_cuda_shared, static_bytes());
    std::memcpy(__start_cuda_shared, &statics[block * static_bytes()], static_bytes());
    live = block;
}

// Runs every thread that can run until it waits or ends; false if there was none.
bool run_ready_threads() {
    bool any = false;
    order.clear();
    for (unsigned i = 0; i < threads.size(); ++i) {
        if (!is_active[i / threads_per_block()]) i += threads_per_block() - 1;
        else if (threads[i].state == State::ready) order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(), random_order);
    for (unsigned i : order) {
        any = true;
        enter(threads[i]);
        switch_to_running();
    }
    return any;
}

// The lanes in the mask that have not ended: an exchange waits for these.
unsigned awaited(const Thread* warp, int lanes, const Thread& waiting) {
    unsigned group = 0;
    for (int lane = 0; lane < lanes; ++lane) {
        if (warp[lane].state != State::done) group |= waiting.mask & (1u << lane);
    }
    return group;
}

bool has_met(const Thread* warp, int lanes, const Thread& waiting, unsigned group) {
    for (int lane = 0; lane < lanes; ++lane) {
        const Thread& other = warp[lane];
        const bool same = other.state == waiting.state && other.line == waiting.line && other.mask == waiting.mask;
        if ((group >> lane & 1) && !same) return false;
    }
    return (group >> (&waiting - warp)) & 1;  // a lane must name itself
}

void exchange(Thread* warp, int lanes, unsigned group) {
    unsigned votes = 0;
    for (int lane = 0; lane < lanes; ++lane) {
        if ((group >> lane & 1) && warp[lane].sent != 0) votes |= 1u << lane;
    }
    for (int lane = 0; lane < lanes; ++lane) {
        Thread& thread = warp[lane];
        if (!(group >> lane & 1)) continue;
        if (thread.state == State::in_ballot) {
            thread.received = votes;
        } else if (group >> thread.source & 1) {
            thread.received = warp[thread.source].sent;
        } else {
            std::memset(&thread.received, POISON, sizeof thread.received);  // a lane that takes no part
        }
        thread.state = State::ready;
    }
}

void release_warps() {
    const unsigned size = threads_per_block();
    for (std::size_t all = 0; all < threads.size(); all += size) {
        if (!is_active[all / size]) continue;
        for (std::size_t first = 0; first < size; first += warpSize) {
            Thread* warp = &threads[all + first];
            const int lanes = static_cast<int>(std::min<std::size_t>(warpSize, size - first));
            const Thread* in_vain = nullptr;  // a lane that waits on; most lanes wait for the same as the one before
            for (int lane = 0; lane < lanes; ++lane) {
                const Thread& own = warp[lane];
                if (!waits_in_warp(own)) continue;
                const bool same = in_vain && own.state == in_vain->state && own.line == in_vain->line;
                if (same && own.mask == in_vain->mask && own.mask == ~0u) continue;
                const unsigned group = awaited(warp, lanes, own);
                if (has_met(warp, lanes, own, group)) exchange(warp, lanes, group);
                else in_vain = &own;
            }
        }
        const auto can_run = [](const Thread& thread) { return thread.state == State::ready; };
        is_active[all / size] = std::any_of(&threads[all], &threads[all] + size, can_run);
    }
}

std::string describe_wait(const Thread& thread) {
    std::string place = std::string(thread.what) + " in line " + std::to_string(thread.line);
    if (!waits_in_warp(thread)) return place;
    char mask[32];
    std::snprintf(mask, sizeof mask, " for lanes 0x%08x", thread.mask);
    return place + mask;
}

// Called when threads that sleep have long polled in vain, or wait for what does not come, and no other can run.
[[noreturn]] void fail_asleep() {
    std::set<std::string> places;
    for (const Thread& thread : threads) {
        if (thread.state != State::done) places.insert(std::string(thread.what) + " in line " + std::to_string(thread.line));
    }
    std::string message = "threads wait for ever:";
    for (const std::string& place : places) message += " some at " + place + ",";
    fail(nullptr, message.c_str());
}

// Opens a block's barrier if all its threads that have not ended wait there; false if none did. Only for a block without a
// thread that can run.
bool release_barrier(Thread* block) {
    std::set<std::string> places;
    bool all_at_barrier = true, all_at_meeting = true;
    for (unsigned i = 0; i < threads_per_block(); ++i) {
        if (block[i].state == State::asleep) return false;
        if (block[i].state == State::done) continue;
        all_at_barrier &= block[i].state == State::at_barrier;
        all_at_meeting &= block[i].state == State::at_meeting;
        places.insert(describe_wait(block[i]));
    }
    if (places.size() == 1 && all_at_meeting) return false;  // for other blocks
    if (places.size() > 1 || !all_at_barrier) {
        blockIdx = block->block;
        std::string message = "threads of one block wait for each other for ever:";
        for (const std::string& place : places) message += " some at " + place + ",";
        fail(nullptr, message.c_str());
    }
    for (unsigned i = 0; i < threads_per_block(); ++i) {
        if (block[i].state == State::at_barrier) block[i].state = State::ready;
    }
    is_active[(block - threads.data()) / threads_per_block()] = true;
    return !places.empty();
}

bool wake(Thread* block) {
    bool any = false;
    for (unsigned i = 0; i < threads_per_block(); ++i) {
        if (block[i].state != State::asleep) continue;
        if (block[i].is_over) {
            enter(block[i]);
            if (!block[i].is_over(block[i].condition)) continue;
        }
        block[i].state = State::ready;
        block[i].woken_at = block[i].line;
        any = true;
    }
    if (any) is_active[(block - threads.data()) / threads_per_block()] = true;
    return any;
}

bool are_together(const Thread& one, const Thread& other) {
    const uint3 &a = one.block, &b = other.block;
    return a.x / cpu_cuda::cluster == b.x / cpu_cuda::cluster && a.y == b.y && a.z == b.z;
}

// Opens the barrier of a cluster whose threads have all arrived or ended; false if there was none. Its blocks wake one after
// the other, so that one may run far ahead of the others.
bool release_meeting() {
    const Thread* in_vain = nullptr;  // waits for a thread of its cluster; most are of the same as the one before
    for (const Thread& waiting : threads) {
        if (waiting.state != State::at_meeting || (in_vain && are_together(*in_vain, waiting))) continue;
        const auto has_come = [&](const Thread& other) {
            return other.state == State::at_meeting || other.state == State::done || !are_together(waiting, other);
        };
        if (!std::all_of(threads.begin(), threads.end(), has_come)) {
            in_vain = &waiting;
            continue;
        }
        for (Thread& other : threads) {
            if (are_together(waiting, other) && other.state == State::at_meeting) other.state = State::asleep;
        }
        return true;
    }
    return false;
}

// Called when no thread can run: opens one block's barrier, or wakes its sleeping threads, or opens a cluster's barrier; false
// if there was none. Blocks keep their turn for a while, so that one runs far ahead of the others. Sleepers that have polled
// in vain since a thread last moved come last.
bool release_blocks() {
    if (random_order() % 16 == 0) std::shuffle(block_order.begin(), block_order.end(), random_order);
    if (random_order() % 16 == 0 && release_meeting()) return true;  // or another cluster that polls would keep the turn
    for (bool in_vain : {false, true}) {
        for (std::size_t block : block_order) {
            if ((polled_after[block] == moves) != in_vain) continue;
            polled_after[block] = moves;
            Thread* first = &threads[block * threads_per_block()];
            if (release_barrier(first)) return true;
            if (!wake(first)) continue;
            if (std::exchange(vain_after, moves) != moves) vain_turns = 0;
            if (++vain_turns > MOST_VAIN_TURNS * block_order.size()) fail_asleep();
            return true;
        }
        if (release_meeting()) return true;
    }
    return false;
}

// Ends the kernel before a dependent launch, when no thread can run; false if the threads did not wait for it. All must wait
// for it or have ended: a thread at a barrier would go on to touch tensors that it has not waited for. A block that meets as
// a whole before it waits goes on first.
bool end_previous() {
    if (!previous_runs) return false;
    const auto waits = [](const Thread& thread) { return thread.state == State::before_previous; };
    const auto can_end = [&](const Thread& thread) { return waits(thread) || thread.state == State::done; };
    const bool any = std::any_of(threads.begin(), threads.end(), waits);
    const bool all = std::all_of(threads.begin(), threads.end(), can_end);
    if (!any && all) fail(nullptr, "ended without waiting for the kernel before");
    if (!any) return false;
    for (std::size_t first = 0; !all && first < threads.size(); first += threads_per_block()) {
        Thread* block = &threads[first];
        if (std::none_of(block, block + threads_per_block(), waits) && release_barrier(block)) return true;
    }
    if (!all) fail(nullptr, "some threads wait for the kernel before, others for threads");
    for (Thread& thread : threads) {
        if (waits(thread)) thread.state = State::ready;
    }
    is_active.assign(is_active.size(), true);
    set_previous_runs(false);
    return true;
}

void run_blocks(const std::vector<uint3>& blocks, void* dynamic_shared, std::size_t shared_bytes) {
    set_previous_runs(!tensors.empty());
    block_shared_bytes = shared_bytes;
    if (static_bytes()) std::memset(__start_cuda_shared, POISON, static_bytes());
    statics.assign(blocks.size() * static_bytes(), POISON);
    live = 0;
    if (shared_bytes) std::memset(dynamic_shared, POISON, blocks.size() * shared_bytes);
    threads.resize(blocks.size() * threads_per_block());
    is_active.assign(blocks.size(), true);
    moves = 1;
    vain_turns = vain_after = 0;
    polled_after.assign(blocks.size(), 0);
    block_order.resize(blocks.size());
    std::iota(block_order.begin(), block_order.end(), std::size_t{0});
    start_threads(blocks, static_cast<char*>(dynamic_shared), shared_bytes);
    do {
        while (run_ready_threads()) release_warps();
    } while (end_previous() || release_blocks());
    const auto has_ended = [](const Thread& thread) { return thread.state == State::done; };
    if (!std::all_of(threads.begin(), threads.end(), has_ended)) fail_asleep();
}

const char* describe(int signal) {
    switch (signal) {
        case SIGILL: return "undefined behaviour: index outside an array, null or misaligned pointer, integer overflow";
        case SIGFPE: return "integer division by zero";
        case SIGPROF: return "still running when its time was up";
        default: return "access out of bounds";
    }
}

void on_signal(int signal, siginfo_t* info, void*) {
    char what[200];
    const bool early = previous_runs && (signal == SIGSEGV || signal == SIGBUS);
    std::snprintf(what, sizeof what, "%s, thread (%u, %u, %u)",
                  early ? "touched before it waited for the kernel before" : describe(signal), threadIdx.x, threadIdx.y,
                  threadIdx.z);
    fail(info->si_addr, what);
}

// Zero removes the limit.
void limit_time(unsigned seconds) {
    // Processor time, which does not grow on a busy machine; the clock only ends a launch that no longer runs at all.
    const itimerval limit = {{}, {seconds, 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
    alarm(seconds ? seconds + 60 : 0);
}

void tell_of_faults(unsigned limit_s) {
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO;
    for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGPROF}) sigaction(signal, &action, nullptr);
    limit_time(limit_s);
}

}  // namespace

void cpu_cuda::sleep(int line) { wait(State::asleep, "__nanosleep", line); }

void cpu_cuda::sleep_until(bool (*is_over)(const void*), const void* condition, int line) {
    running->is_over = is_over;
    running->condition = condition;
    sleep(line);
    running->is_over = nullptr;
}

void cpu_cuda::griddepcontrol_wait(int line) {
    if (previous_runs) wait(State::before_previous, "griddepcontrol_wait", line);
}

void cpu_cuda::cp_async_16(void* to, const void* from, bool are_there) {
    for (const void* end : {static_cast<const void*>(to), from}) {
        if (reinterpret_cast<std::uintptr_t>(end) % COPY_BYTES) fail(end, "misaligned copy");
    }
    std::memset(to, POISON, COPY_BYTES);
    running->copies.push_back({to, from, are_there, running->groups});
}

void cpu_cuda::cp_async_commit_group() { ++running->groups; }

void cpu_cuda::cp_async_wait_group(unsigned youngest) {
    std::vector<Copy>& copies = running->copies;
    const auto arrives = [youngest](const Copy& copy) { return copy.group + youngest < running->groups; };
    for (const Copy& copy : copies) {
        if (!arrives(copy)) continue;
        if (copy.are_there) std::memcpy(copy.to, copy.from, COPY_BYTES);
        else std::memset(copy.to, 0, COPY_BYTES);
    }
    copies.erase(std::remove_if(copies.begin(), copies.end(), arrives), copies.end());
}

void cpu_cuda::meet(int line) { wait(State::at_meeting, "barrier_cluster_aligned", line); }

unsigned cpu_cuda::place_of(const void* own) {
    const std::ptrdiff_t at = static_cast<const char*>(own) - static_cast<char*>(running->dynamic_shared);
    if (at >= 0 && at < static_cast<std::ptrdiff_t>(block_shared_bytes)) return at;
    const std::ptrdiff_t among_statics = static_cast<const char*>(own) - __start_cuda_shared;
    if (among_statics < 0 || among_statics >= static_cast<std::ptrdiff_t>(static_bytes())) fail(own, "no shared memory");
    return block_shared_bytes + among_statics;
}

void* cpu_cuda::at_place(unsigned place) {
    if (place < block_shared_bytes) return static_cast<char*>(running->dynamic_shared) + place;
    if (place - block_shared_bytes >= static_bytes()) fail(nullptr, "no shared memory");
    return __start_cuda_shared + (place - block_shared_bytes);
}

static void* moved(void* place, char* from, char* to) {
    const std::ptrdiff_t at = static_cast<char*>(place) - from;
    return at >= 0 && at < static_cast<std::ptrdiff_t>(static_bytes()) ? to + at : place;
}

void* cpu_cuda::kept(void* own) {
    return moved(own, __start_cuda_shared, statics.data() + live * static_bytes());
}

void* cpu_cuda::in_use(void* kept) {
    return moved(kept, statics.data() + live * static_bytes(), __start_cuda_shared);
}

void* cpu_cuda::in_block(const void* own, unsigned rank) {
    if (cluster == 1 && rank == 0) return const_cast<void*>(own);  // which may be of the kernel's own, too
    const std::size_t at = place_of(own);
    for (std::size_t first = 0; first < threads.size(); first += threads_per_block()) {
        Thread* block = &threads[first];
        if (!are_together(*block, *running) || block->block.x % cluster != rank) continue;
        const auto ended = [](const Thread& thread) { return thread.state == State::done; };
        if (std::all_of(block, block + threads_per_block(), ended)) fail(own, "shared memory of a block that has ended");
        if (block->block.x == running->block.x) return const_cast<void*>(own);
        if (at < block_shared_bytes) return static_cast<char*>(block->dynamic_shared) + at;
        return &statics[first / threads_per_block() * static_bytes() + at - block_shared_bytes];
    }
    fail(own, "shared memory of a block that is not in the cluster");
}

void cpu_cuda::barrier(int line) { wait(State::at_barrier, "__syncthreads", line); }

std::uint64_t cpu_cuda::shuffle(const char* what, unsigned mask, std::uint64_t sent, int source, int line) {
    Thread* self = running;
    self->mask = mask;
    self->sent = sent;
    self->source = source;
    wait(State::in_shuffle, what, line);
    return self->received;
}

unsigned cpu_cuda::ballot(const char* what, unsigned mask, bool sent, int line) {
    Thread* self = running;
    self->mask = mask;
    self->sent = sent;
    wait(State::in_ballot, what, line);
    return static_cast<unsigned>(self->received);
}

// Lanes first lay out their fragments for each other. Here, where the compiler optimises: products take most of many a launch.
void cpu_cuda::multiply(float (&c)[4], const Fragment& fragment, int per_register, int line) {
    static Fragment held[128][32][32];  // of each block's warps, since blocks may run at once
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z), own = thread % 32;
    Fragment(&warp)[32] = held[(blockIdx.x + gridDim.x * blockIdx.y) % 128][thread / 32];
    warp[own] = fragment;
    __syncwarp(~0u, line);
    for (int i = 0; i < 4; ++i) {
        const int row = own / 4 + i / 2 * 8, col = own % 4 * 2 + i % 2;
        double sum = c[i];
        for (int half = 0; half < 2; ++half)
            for (int t = 0; t < 4; ++t)
                for (int part = 0; part < per_register; ++part)
                    sum += warp[row % 8 * 4 + t].a[row / 8 + 2 * half][part] * warp[col * 4 + t].b[half][part];
        c[i] = static_cast<float>(sum);
        if (std::fabs(c[i]) > std::fabs(sum)) c[i] = std::nextafterf(c[i], 0.0f);  // tensor cores cut sums off
    }
    __syncwarp(~0u, line);
}

// Runs one launch; a fault ends the process. Blocks run one at a time if `together` is 0, else all at once, in clusters of
// `together` blocks along x. `shared` is the dynamic shared memory of one block, or of all blocks in a row. With pages of
// tensors, an address and a size each, it is a dependent launch.
extern "C" void launch_on_cpu(void (*function)(void**), void** args, const unsigned* grid, const unsigned* block,
                              void* shared, std::size_t shared_bytes, unsigned together, unsigned seed,
                              unsigned limit_s, const std::uintptr_t* pages, std::size_t page_count, char* report_to,
                              char* stacks_at) {
    kernel = function;
    arguments = args;
    report = report_to;
    stacks = stacks_at;
    getcontext(&beginning);
    cpu_cuda::cluster = std::max(together, 1u);
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    random_order.seed(seed);
    tensors.clear();
    for (std::size_t i = 0; i < page_count; ++i) {
        tensors.push_back({reinterpret_cast<void*>(pages[2 * i]), pages[2 * i + 1]});
    }
    std::vector<uint3> blocks;
    for (unsigned z = 0; z < gridDim.z; ++z)
        for (unsigned y = 0; y < gridDim.y; ++y)
            for (unsigned x = 0; x < gridDim.x; ++x) blocks.push_back({x, y, z});
    std::shuffle(blocks.begin(), blocks.end(), random_order);
    if ((together ? blocks.size() : 1) * threads_per_block() > STACKS_BYTES / STACK_BYTES) {
        fail(nullptr, "more threads at once than there are stacks for");
    }

    tell_of_faults(limit_s);
    if (together) {
        run_blocks(blocks, shared, shared_bytes);
    } else {
        for (const uint3& one : blocks) run_blocks({one}, shared, shared_bytes);
    }
    limit_time(0);
}
