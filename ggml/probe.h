// SPDX-License-Identifier: Apache-2.0
//
// Checks that the ggml that loads the backend has the same tensor struct and the same numbers as
// the ggml whose headers the backend was built with.
#ifndef ATTNKIT_GGML_PROBE_H
#define ATTNKIT_GGML_PROBE_H

namespace attnkit_ggml
{

// Asks ggml to make an op, reads the op's fields by the headers, and compares them with their known
// values. The program compares GGML_BACKEND_API_VERSION itself, but this version does not cover the
// numbers of ops and types or the fields of a tensor.
bool is_built_for_this_ggml();

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_PROBE_H
