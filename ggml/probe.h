// SPDX-License-Identifier: Apache-2.0
//
// Whether the ggml that loads the backend is laid out as the one that it was built for.
#ifndef ATTNKIT_GGML_PROBE_H
#define ATTNKIT_GGML_PROBE_H

namespace attnkit_ggml
{

// Asks ggml to make an op, and compares its fields with the values that the headers lead to expect.
// The program compares GGML_BACKEND_API_VERSION itself, but this version does not cover the numbers
// of ops and types or the fields of a tensor.
bool is_built_for_this_ggml();

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_PROBE_H
