// Comparison of arrays of two devices, for the tests of kernels on a GPU.
#pragma once

#include <string>

#include "ndarray/ndarray.h"

namespace mx::test {

/// Returns the device that the tests run on: gpu(0), or virt(0) if MX_GPU_TEST_VIRTUAL is set, for a check of
/// the tests themselves. Returns cpu() if there is no GPU.
Context tested_device();

/// Returns an empty text if the two are equal: same type and shape, equal integers and bools, floating-point
/// numbers within the tolerance of their type. Otherwise says where they differ.
std::string difference_of(const NDArray& expected, const NDArray& got);

}  // namespace mx::test
