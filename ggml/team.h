// SPDX-License-Identifier: Apache-2.0
//
// The threads that ops run on. If ggml uses OpenMP, ops run on the same OpenMP threads. A second
// pool would be slow, because the threads of one pool spin while the other pool works. If ggml has
// a pool of its own, ops run on our pool, whose threads sleep between ops.
#ifndef ATTNKIT_GGML_TEAM_H
#define ATTNKIT_GGML_TEAM_H

#include <attnkit.h>

#include <memory>

namespace attnkit_ggml
{

class pool;

class team
{
  public:
    explicit team(bool by_openmp);
    ~team();

    void set_threads(int threads);

    // Returns how attnkit runs a call: on all threads of the team, or on the calling thread alone.
    attnkit_exec exec(bool by_all);

  private:
    bool by_openmp_;
    int threads_ = 1;
    std::unique_ptr<pool> pool_; // made when it is first needed; never with OpenMP
};

#ifdef _OPENMP
constexpr bool knows_openmp = true;
#else
constexpr bool knows_openmp = false;
#endif

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_TEAM_H
