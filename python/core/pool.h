// SPDX-License-Identifier: Apache-2.0
//
// The threads of calls that ask for some: one pool of the process, whose threads wait for tasks. It
// grows to the most that a call asked for. Several calls may use it at once.
#ifndef ATTNKIT_PYTHON_POOL_H
#define ATTNKIT_PYTHON_POOL_H

#include <cstdint>

namespace attnkit_python
{

// The most threads that a call may ask for.
constexpr int64_t most_threads = 1024;

// parallel_for of attnkit_exec; the thread that calls works, too.
void parallel_for(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg);

} // namespace attnkit_python

#endif
