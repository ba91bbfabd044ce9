// SPDX-License-Identifier: Apache-2.0
//
// Two forms of parallel-for. One form uses OpenMP. It always starts as many threads as ggml does,
// even for fewer tasks, because an OpenMP runtime ends and starts threads whenever their number
// changes. The other form uses a pool of threads that wait for tasks. In both forms, the calling
// thread works, too.
#include "ggml/team.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace attnkit_ggml
{

class pool
{
  public:
    using function = void (*)(void *arg, int64_t i);

    // Starts `threads` - 1 threads, or fewer if the system gives no more.
    explicit pool(int threads) : wanted_(threads)
    {
        try {
            for (int i = 1; i < threads; i++)
                threads_.emplace_back([this] { work(); });
        } catch (const std::system_error &) {
        }
    }

    ~pool()
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stops_ = true;
        }
        begun_.notify_all();
        for (std::thread &thread : threads_)
            thread.join();
    }

    int threads() const
    {
        return wanted_;
    }

    void run(int64_t count, function task, void *arg)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        task_ = task;
        arg_ = arg;
        next_ = 0;
        count_ = count;
        begun_.notify_all();
        run_tasks(lock);
        done_.wait(lock, [this] { return running_ == 0; });
    }

  private:
    // Runs the tasks that no thread has begun yet.
    void run_tasks(std::unique_lock<std::mutex> &lock)
    {
        while (next_ < count_) {
            const int64_t i = next_++;
            running_++;
            lock.unlock();
            task_(arg_, i);
            lock.lock();
            if (--running_ == 0 && next_ == count_)
                done_.notify_one();
        }
    }

    void work()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!stops_) {
            run_tasks(lock);
            begun_.wait(lock, [this] { return stops_ || next_ < count_; });
        }
    }

    int wanted_;
    std::mutex mutex_;
    std::condition_variable begun_, done_;
    function task_ = nullptr;
    void *arg_ = nullptr;
    int64_t next_ = 0, count_ = 0, running_ = 0;
    bool stops_ = false;
    std::vector<std::thread> threads_;
};

namespace
{

void run_in_pool(void *arg, int64_t count, pool::function task, void *task_arg)
{
    static_cast<pool *>(arg)->run(count, task, task_arg);
}

#ifdef _OPENMP
void run_by_openmp(void *threads, int64_t count, pool::function task, void *task_arg)
{
    const int team_size = *static_cast<const int *>(threads);
#pragma omp parallel for num_threads(team_size) schedule(static, 1)
    for (int64_t i = 0; i < count; i++)
        task(task_arg, i);
}
#endif

} // namespace

team::team(bool by_openmp) : by_openmp_(by_openmp)
{
}

team::~team() = default;

void team::set_threads(int threads)
{
    threads_ = threads > 1 ? threads : 1;
}

attnkit_exec team::exec(bool by_all)
{
    attnkit_exec exec;
    attnkit_exec_init(&exec);
    if (threads_ == 1 || !by_all)
        return exec;
    exec.threads = threads_;
#ifdef _OPENMP
    if (by_openmp_) {
        exec.parallel_for = run_by_openmp;
        exec.pool = &threads_;
        return exec;
    }
#endif
    if (!pool_ || pool_->threads() != threads_) {
        pool_.reset();
        pool_.reset(new pool(threads_));
    }
    exec.parallel_for = run_in_pool;
    exec.pool = pool_.get();
    return exec;
}

} // namespace attnkit_ggml
