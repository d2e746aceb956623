// QR on the host, for initialisers. Internal.
#pragma once

#include <cstdint>
#include <vector>

namespace mx::nn::detail {

/// Replaces a column-major matrix by Q of its QR decomposition. Precondition: rows >= columns. The signs of Q
/// are those for which the diagonal of R has no negative number. A column that depends linearly on earlier
/// ones is replaced by one that is orthonormal to them too. Almost all time is spent in products of
/// kernels/gemm.h.
///
/// Algorithm: Householder reflections, applied a panel at a time as I - V T V'. Source: Golub and Van Loan,
/// "Matrix Computations", 5.1 and 5.2.
void orthonormalise(std::vector<double>& matrix, int64_t rows, int64_t columns);

}  // namespace mx::nn::detail
