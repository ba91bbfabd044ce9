// SPDX-License-Identifier: Apache-2.0
//
// Whether the ggml that loads the backend is laid out as the one that it was built for.
#ifndef ATTNKIT_GGML_PROBE_H
#define ATTNKIT_GGML_PROBE_H

namespace attnkit_ggml
{

// Asks ggml for an op, and holds what it makes against what the headers say. The program compares
// GGML_BACKEND_API_VERSION by itself, but that says nothing of the numbers of ops and types and of
// the fields of a tensor.
bool is_built_for_this_ggml();

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_PROBE_H
