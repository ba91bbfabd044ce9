// SPDX-License-Identifier: Apache-2.0
//
// The threads that ops run on. Where ggml runs its own on OpenMP, a team of the same threads: two
// pools side by side, of which one spins while the other works, slow each other down. Where it has
// threads of its own, a pool that sleeps between ops.
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

    // How attnkit runs a call: on them, or on the thread that calls.
    attnkit_exec exec(bool by_all);

  private:
    bool by_openmp_;
    int threads_ = 1;
    std::unique_ptr<pool> pool_; // not with OpenMP, and not before it is needed
};

// Whether this file was compiled with OpenMP.
bool knows_openmp();

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_TEAM_H
