// SPDX-License-Identifier: Apache-2.0
//
// The threads of ggml inside one op. ggml calls the function of an op on all its threads. Thread 0
// makes the call of attnkit, whose parallel-for hands tasks to the other threads. The other threads
// wait inside the function until thread 0 is done. So attnkit needs no threads of its own, and no
// thread has to be woken.
#ifndef ATTNKIT_GGML_TEAM_H
#define ATTNKIT_GGML_TEAM_H

#include <attnkit.h>

#include <atomic>
#include <cstdint>

namespace attnkit_ggml
{

class team
{
  public:
    // Called before the op. Within the op, thread 0 calls `exec`, makes a call of attnkit, and
    // calls `end`. If this call runs on all threads of the op, each other thread calls `help`.
    void begin()
    {
        turn_.store(0, std::memory_order_relaxed);
    }

    // Returns how attnkit runs a call on `threads` threads. `threads` is the number of all threads
    // of the op, or 1.
    attnkit_exec exec(int threads);

    // Runs the tasks that thread 0 hands to this thread, until thread 0 calls `end`.
    void help(int thread);

    void end()
    {
        turn_.store(over, std::memory_order_release);
    }

  private:
    using function = void (*)(void *arg, int64_t i);
    static constexpr int over = -1;

    static void parallel_for(void *pool, int64_t count, function task, void *arg);
    void run(int64_t count, function task, void *arg);

    int threads_ = 1;
    function task_ = nullptr;
    void *arg_ = nullptr;
    int64_t count_ = 0;
    std::atomic<int> turn_{0};    // number of the latest parallel-for, or `over`
    std::atomic<int> working_{0}; // threads other than thread 0 that have not finished the turn
};

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_TEAM_H
