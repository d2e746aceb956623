// Kernels of the operations that create arrays.
#include "ndarray/cuda/strided.cuh"
#include "ndarray/cuda_kernels.h"
#include "ndarray/detail/create_attrs.h"

namespace mx::cuda {
namespace {

// Writes bits, not numbers, so four types are enough for all.
template <class Bits>
__global__ void fill_elements(Bits* to, Bits value, Loop<1> loop) {
  const int64_t n = loop.plan.numel, step = global_size();
  if (loop.flat) {
    Vector<Bits> all;
    for (int k = 0; k < kLoopVector; ++k) all.v[k] = value;
    for (int64_t i = global_index() * kLoopVector; i < n; i += step * kLoopVector) {
      if (i + kLoopVector <= n) {
        *reinterpret_cast<Vector<Bits>*>(to + i) = all;
      } else {
        for (int64_t j = i; j < n; ++j) to[j] = value;
      }
    }
    return;
  }
  for (int64_t i = global_index(); i < n; i += step) {
    int64_t at[1];
    element_offsets(loop.plan, loop.narrow, i, at);
    to[at[0]] = value;
  }
}

// Like run_range() of ndarray/create.cc: the product and the sum are rounded separately.
__global__ void fill_range(Elements to, int64_t n, bool floating, double start, double step, int64_t first,
                           int64_t distance) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    if (floating) {
      store(to, i, rounded_sum(start, rounded_product(static_cast<double>(i), step)));
    } else {
      const uint64_t way = static_cast<uint64_t>(i) * static_cast<uint64_t>(distance);
      store(to, i, static_cast<int64_t>(static_cast<uint64_t>(first) + way));
    }
  }
}

}  // namespace

void fill(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  const Loop<1> loop({&out});
  if (loop.empty()) return;
  visit(out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T value = args.attr<detail::ConstantAttrs>().value.to<T>();
    visit_size(out.dtype, [&](auto size) {
      using Bits = typename decltype(size)::type;
      if constexpr (sizeof(Bits) == sizeof(T)) {
        Bits bits{};
        std::memcpy(&bits, &value, sizeof bits);
        launch(stream_of(args), loop.blocks(), kLoopThreads, 0, fill_elements<Bits>, out.as<Bits>(), bits,
               loop);
      }
    });
  });
}

void arange(const KernelArgs& args) {
  const auto& range = args.attr<detail::RangeAttrs>();
  const int64_t n = args.out[0].numel();
  if (n == 0) return;
  launch(stream_of(args), blocks_for(n, kLoopThreads, 1 << 16), kLoopThreads, 0, fill_range,
         elements_of(args.out[0]), n, range.floating, range.start.real(), range.step.real(),
         range.start.integer(), range.step.integer());
}

}  // namespace mx::cuda
