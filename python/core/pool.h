// SPDX-License-Identifier: Apache-2.0
//
// The threads for calls that ask for several threads: one pool of the process, whose threads wait
// for tasks. For a call of n tasks, a pool of fewer than n - 1 threads grows to n - 1: the calling
// thread works, too. Several calls may use the pool at once.
#ifndef ATTNKIT_PYTHON_POOL_H
#define ATTNKIT_PYTHON_POOL_H

#include <cstdint>

namespace attnkit_python
{

// The most threads that a call may ask for.
constexpr int64_t most_threads = 1024;

// Runs tasks 0 .. n - 1, as the parallel_for of attnkit_exec. The calling thread works, too.
void parallel_for(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg);

} // namespace attnkit_python

#endif
