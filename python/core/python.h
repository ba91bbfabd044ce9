// SPDX-License-Identifier: Apache-2.0
//
// The headers that the files of the module share: Python's headers, by nanobind, and the public
// header of attnkit. nanobind provides references that release their objects by themselves, and
// arrays by DLPack.
#ifndef ATTNKIT_PYTHON_PYTHON_H
#define ATTNKIT_PYTHON_PYTHON_H

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <attnkit.h>

namespace nb = nanobind;

#endif
