// The plain kernel for products of matrices: any types, any strides, one thread for each element of C.
#include "ndarray/cuda/element.cuh"
#include "operators/cuda/blas.h"

namespace mx::cuda {
namespace {

constexpr int kProductThreads = 256;

struct PlainProduct {
  Elements a, b, c, bias;  // bias.data: null for none
  int64_t m, n, k, total;
  int64_t a_row, a_col, b_row, b_col, c_row, c_col, bias_step;
  int batch_rank;
  int64_t size[kMaxRank], a_step[kMaxRank], b_step[kMaxRank], c_step[kMaxRank];  // of the batch
};

// For bool, "and" replaces the product and "or" the sum.
template <class A, bool kBool>
__global__ void multiply_elements(PlainProduct p, A alpha, A beta) {
  for (int64_t index = global_index(); index < p.total; index += global_size()) {
    const int64_t j = index % p.n, i = index / p.n % p.m;
    int64_t rest = index / p.n / p.m, a = i * p.a_row, b = j * p.b_col, c = i * p.c_row + j * p.c_col;
    for (int d = p.batch_rank - 1; d >= 0; --d) {
      const int64_t at = rest % p.size[d];
      rest /= p.size[d];
      a += at * p.a_step[d];
      b += at * p.b_step[d];
      c += at * p.c_step[d];
    }
    A sum{0};
    for (int64_t q = 0; q < p.k; ++q) {
      const A x = load<A>(p.a, a + q * p.a_col), y = load<A>(p.b, b + q * p.b_row);
      if constexpr (kBool) {
        sum |= static_cast<A>(x != 0 && y != 0);
      } else {
        sum += x * y;
      }
    }
    if constexpr (kBool) {
      sum = static_cast<A>(alpha != 0 && sum != 0);
      if (beta != 0) sum |= load<A>(p.c, c);
      if (p.bias.data != nullptr) sum |= load<A>(p.bias, j * p.bias_step);
    } else {
      sum *= alpha;
      if (beta != 0) sum += beta * load<A>(p.c, c);
      if (p.bias.data != nullptr) sum += load<A>(p.bias, j * p.bias_step);
    }
    if constexpr (static_cast<A>(0.5) == 0) {
      store<int64_t>(p.c, c, static_cast<int64_t>(sum));
    } else {
      store(p.c, c, sum);
    }
  }
}

}  // namespace

void multiply_plainly(const KernelArgs& args, const Product& p) {
  PlainProduct plain{};
  plain.a = {const_cast<void*>(p.a.data), p.in};
  plain.b = {const_cast<void*>(p.b.data), p.in};
  plain.c = {p.c, p.out};
  plain.bias = {const_cast<void*>(p.bias), p.out};
  plain.m = p.m;
  plain.n = p.n;
  plain.k = p.alpha == 0 ? 0 : p.k;
  plain.a_row = p.a.row_stride;
  plain.a_col = p.a.col_stride;
  plain.b_row = p.b.row_stride;
  plain.b_col = p.b.col_stride;
  plain.c_row = p.c_row_stride;
  plain.c_col = p.c_col_stride;
  plain.bias_step = p.bias_stride;
  plain.total = p.m * p.n;
  for (const kernels::BatchDim& dim : p.batch) {
    const int d = plain.batch_rank++;
    plain.size[d] = dim.size;
    plain.a_step[d] = dim.a_stride;
    plain.b_step[d] = dim.b_stride;
    plain.c_step[d] = dim.c_stride;
    plain.total *= dim.size;
  }
  if (plain.total == 0) return;
  const auto run = [&]<class A, bool kBool>(A alpha, A beta) {
    launch(stream_of(args), blocks_for(plain.total, kProductThreads, 1 << 16), kProductThreads, 0,
           multiply_elements<A, kBool>, plain, alpha, beta);
  };
  // The bits of integer sums that wrap are the same in wider unsigned numbers.
  const auto whole = [](double x) { return static_cast<uint64_t>(static_cast<int64_t>(x)); };
  if (p.in == DType::bool_) {
    run.template operator()<uint64_t, true>(p.alpha != 0, p.beta != 0);
  } else if (!is_floating(p.in)) {
    run.template operator()<uint64_t, false>(whole(p.alpha), whole(p.beta));
  } else if (p.in == DType::f64) {
    run.template operator()<double, false>(p.alpha, p.beta);
  } else {
    run.template operator()<float, false>(static_cast<float>(p.alpha), static_cast<float>(p.beta));
  }
}

}  // namespace mx::cuda
