// Takes the place of what CUDA's libraries compute on a GPU (blas.cu, prim.cu).
#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "ndarray/cuda/kernel.cuh"
#include "operators/cuda/blas.h"
#include "operators/cuda/prim.h"

namespace mx::cuda {

// As in blas.cu, but every product is left to the plain kernel.
void multiply(const KernelArgs& args, const Product& product) { multiply_plainly(args, product); }

bool is_blas_matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t col_stride) {
  return ((rows == 1 || row_stride == 1) && (columns == 1 || col_stride >= rows)) ||
         ((columns == 1 || col_stride == 1) && (rows == 1 || row_stride >= columns));
}

namespace {

/// Runs `body` in the order of the stream, as a kernel of one thread.
void in_order(const KernelArgs& args, std::function<void()> body) {
  host::launch(stream_of(args), 1, 1, 0, std::move(body));
}

}  // namespace

void sort_pairs(const KernelArgs& args, const uint64_t* keys, uint64_t* sorted_keys, const int64_t* values,
                int64_t* sorted_values, int64_t n, int first_bit, int last_bit) {
  in_order(args, [=] {
    const int bits = last_bit - first_bit;
    const uint64_t mask = bits >= 64 ? ~uint64_t{0} : ((uint64_t{1} << bits) - 1);
    const auto part = [&](uint64_t key) { return first_bit >= 64 ? 0 : key >> first_bit & mask; };
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return part(keys[a]) < part(keys[b]); });
    for (int64_t i = 0; i < n; ++i) {
      sorted_keys[i] = keys[order[static_cast<size_t>(i)]];
      sorted_values[i] = values[order[static_cast<size_t>(i)]];
    }
  });
}

void running_sums(const KernelArgs& args, const int64_t* x, int64_t* sums, int64_t n) {
  in_order(args, [=] { std::partial_sum(x, x + n, sums); });
}

}  // namespace mx::cuda
