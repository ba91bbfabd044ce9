// SPDX-License-Identifier: Apache-2.0
//
// Checks that the ggml that loads the backend fits the headers with which the backend was built:
// both must have the same tensor struct, and the same values of the enums of ops and types.
#ifndef ATTNKIT_GGML_PROBE_H
#define ATTNKIT_GGML_PROBE_H

namespace attnkit_ggml
{

// Asks ggml to make an op, and reads fields of the op as the headers declare them. Returns whether
// these fields have the known values. ggml itself compares GGML_BACKEND_API_VERSION when it loads
// the backend. But this version covers neither the values of the enums of ops and types nor the
// fields of a tensor.
bool is_built_for_this_ggml();

} // namespace attnkit_ggml

#endif // ATTNKIT_GGML_PROBE_H
