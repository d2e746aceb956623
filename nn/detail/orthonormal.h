// QR on the host, for initialisers. Internal.
#pragma once

#include <cstdint>
#include <vector>

namespace mx::nn::detail {

/// A matrix, its columns one behind the other, with at least as many rows as columns, becomes Q of its QR
/// decomposition, with the signs for which R has a diagonal without negative numbers. Columns that depend on
/// those before them become orthonormal to them too. The time of the products is that of kernels/gemm.h.
///
/// Householder reflections, a panel of them at a time as I - V T V'. Source: Golub and Van Loan, "Matrix
/// Computations", 5.1 and 5.2.
void orthonormalise(std::vector<double>& matrix, int64_t rows, int64_t columns);

}  // namespace mx::nn::detail
