// Random expressions of elementwise operators, and their inputs, for the tests of fused kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "operators/fused.h"

namespace mx::test {

/// An expression of about `steps` operations on three to five inputs of random types. The operations of
/// consecutive seeds take turns, so a few seeds have all of them.
Fused random_expression(uint64_t seed, int steps);

/// Inputs that broadcast to one shape: whole arrays, rows, columns, single elements, and views with strides;
/// infinities, NaN, zeros of both signs, limits of the integers and random numbers. `flat`: of one shape.
std::vector<NDArray> random_inputs(const Fused& expression, uint64_t seed, bool flat);

/// The text, compiled by the C++ compiler of this build to a shared library: its bytes. The signature is that
/// of a compiler (operators/cuda/nvrtc.h). Throws DeviceError with the compiler's messages.
std::string compile_on_host(const std::string& source, int architecture);

}  // namespace mx::test
