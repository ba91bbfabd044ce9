// SPDX-License-Identifier: Apache-2.0
//
// A job is a number of tasks that threads take one by one. The pool is made when a call first asks
// for several threads. The pool is never destroyed, because its threads still sleep when the
// process ends. A forked child has no threads of its parent, and makes a new pool.
#include "python/core/pool.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include <pthread.h>

namespace attnkit_python
{

namespace
{

struct job {
    void (*task)(void *arg, int64_t i);
    void *arg;
    int64_t count;
    int64_t next = 0;
    int64_t running = 0;
    job *following = nullptr;
};

class pool
{
  public:
    void run(job &job)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        grow(job.count - 1);
        job.following = first_;
        first_ = &job;
        begun_.notify_all();
        while (job.next < job.count)
            run_task(job, lock);
        for (struct job **place = &first_; *place; place = &(*place)->following)
            if (*place == &job) {
                *place = job.following;
                break;
            }
        ended_.wait(lock, [&job] { return job.running == 0; });
    }

  private:
    // Starts threads until there are `wanted`, or until the system gives no more.
    void grow(int64_t wanted)
    {
        try {
            for (; threads_ < wanted; threads_++)
                std::thread([this] { work(); }).detach();
        } catch (const std::system_error &) {
        }
    }

    void run_task(job &job, std::unique_lock<std::mutex> &lock)
    {
        const int64_t i = job.next++;
        job.running++;
        lock.unlock();
        job.task(job.arg, i);
        lock.lock();
        if (--job.running == 0)
            ended_.notify_all();
    }

    job *job_with_tasks() const
    {
        for (job *job = first_; job; job = job->following)
            if (job->next < job->count)
                return job;
        return nullptr;
    }

    [[noreturn]] void work()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            job *found = nullptr;
            begun_.wait(lock, [this, &found] { return (found = job_with_tasks()) != nullptr; });
            run_task(*found, lock);
        }
    }

    std::mutex mutex_;
    std::condition_variable begun_, ended_;
    job *first_ = nullptr;
    int64_t threads_ = 0;
};

std::mutex making;
pool *the_pool;

void before_fork()
{
    making.lock();
}

void after_fork()
{
    making.unlock();
}

void in_child()
{
    the_pool = nullptr; // the memory of the parent's pool is not freed
    making.unlock();
}

pool &get_pool()
{
    static const int watched = pthread_atfork(before_fork, after_fork, in_child);
    (void)watched;
    const std::lock_guard<std::mutex> lock(making);
    if (!the_pool)
        the_pool = new pool;
    return *the_pool;
}

} // namespace

void parallel_for(void *, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    job job{task, arg, n};
    get_pool().run(job);
}

} // namespace attnkit_python
