// SPDX-License-Identifier: Apache-2.0
// The parallel-for on the threads of ggml. A team has no lock. A waiting thread first spins for
// some 20 us, because most likely the other threads are running and soon done. After that, the
// waiting thread keeps offering its processor to threads that have no processor.
#include "ggml/team.h"

#include <thread>

namespace attnkit_ggml
{

namespace
{

constexpr int spins = 1000;

void rest()
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Waits until the value is not `old`, and returns the value.
int wait_for_change(const std::atomic<int> &value, int old)
{
    for (int i = 0;; i++) {
        const int now = value.load(std::memory_order_acquire);
        if (now != old)
            return now;
        if (i < spins)
            rest();
        else
            std::this_thread::yield();
    }
}

} // namespace

attnkit_exec team::exec(int threads)
{
    attnkit_exec exec;
    attnkit_exec_init(&exec);
    threads_ = threads;
    exec.threads = threads;
    exec.parallel_for = parallel_for;
    exec.pool = this;
    return exec;
}

void team::help(int thread)
{
    for (int turn = wait_for_change(turn_, 0); turn != over; turn = wait_for_change(turn_, turn)) {
        for (int64_t i = thread; i < count_; i += threads_)
            task_(arg_, i);
        working_.fetch_sub(1, std::memory_order_release);
    }
}

void team::parallel_for(void *pool, int64_t count, function task, void *arg)
{
    static_cast<team *>(pool)->run(count, task, arg);
}

void team::run(int64_t count, function task, void *arg)
{
    task_ = task;
    arg_ = arg;
    count_ = count;
    working_.store(threads_ - 1, std::memory_order_relaxed);
    turn_.fetch_add(1, std::memory_order_release);
    for (int64_t i = 0; i < count; i += threads_)
        task(arg, i);
    for (int left = threads_ - 1; left > 0;)
        left = wait_for_change(working_, left);
}

} // namespace attnkit_ggml
