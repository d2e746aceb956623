// The kernel of copies: any types, any strides.
#include "ndarray/cuda/copy.h"
#include "ndarray/cuda/strided.cuh"
#include "ndarray/cuda_kernels.h"

namespace mx::cuda {
namespace {

// Between arrays of one type, or types of which the elements are the same bits.
template <class Bits>
__global__ void copy_bits(Bits* to, const Bits* from, Loop<2> loop) {
  const int64_t n = loop.plan.numel, step = global_size();
  if (loop.flat && loop.plan.strides[1][0] == 1) {
    for (int64_t i = global_index() * kLoopVector; i < n; i += step * kLoopVector) {
      if (i + kLoopVector <= n) {
        *reinterpret_cast<Vector<Bits>*>(to + i) = *reinterpret_cast<const Vector<Bits>*>(from + i);
      } else {
        for (int64_t j = i; j < n; ++j) to[j] = from[j];
      }
    }
    return;
  }
  for (int64_t i = global_index(); i < n; i += step) {
    int64_t at[2];
    element_offsets(loop.plan, loop.narrow, i, at);
    to[at[0]] = from[at[1]];
  }
}

// A is the type in which elements of the source are read: without a change of their value.
template <class A>
__global__ void convert_elements(Elements to, Elements from, Loop<2> loop) {
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[2];
    element_offsets(loop.plan, loop.narrow, i, at);
    store(to, at[0], load<A>(from, at[1]));
  }
}

}  // namespace

void copy_elements(NativeStream stream, const Tensor& to, const Tensor& from) {
  const Loop<2> loop({&to, &from});
  if (loop.empty()) return;
  if (to.dtype == from.dtype) {
    visit_size(to.dtype, [&](auto size) {
      using Bits = typename decltype(size)::type;
      launch(stream, loop.blocks(), kLoopThreads, 0, copy_bits<Bits>, to.as<Bits>(),
             static_cast<const Bits*>(from.as<Bits>()), loop);
    });
    return;
  }
  const unsigned blocks = blocks_for(loop.plan.numel, kLoopThreads, 1 << 16);
  const auto run = [&](auto kernel) {
    launch(stream, blocks, kLoopThreads, 0, kernel, elements_of(to), elements_of(from), loop);
  };
  if (!is_floating(from.dtype)) return run(convert_elements<int64_t>);
  from.dtype == DType::f64 ? run(convert_elements<double>) : run(convert_elements<float>);
}

void copy(const KernelArgs& args) { copy_elements(stream_of(args), args.out[0], args.in[0]); }

}  // namespace mx::cuda
