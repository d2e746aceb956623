// Selecting elements by a mask: operators/kernels/mask.h. Running sums of the mask are the places in the
// result.
#include "ndarray/cuda/copy.h"
#include "ndarray/cuda/kernel_errors.cuh"
#include "ndarray/cuda/strided.cuh"
#include "operators/cuda/group.cuh"
#include "operators/cuda/operand.h"
#include "operators/cuda/prim.h"
#include "operators/cuda_kernels.h"
#include "operators/indexing_records.h"
#include "operators/kernels/bad_values.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

/// NaN is set, as every number but 0.
__device__ inline bool is_set(const Elements& x, int64_t at) {
  return is_floating(x.type) ? load<double>(x, at) != 0 : load<int64_t>(x, at) != 0;
}

constexpr unsigned kCountBlocks = 1024;

__global__ void __launch_bounds__(kBlock) count_set(Elements x, Dims<1> dims, int64_t n, int64_t* counts) {
  int64_t count = 0;
  for (int64_t i = global_index(); i < n; i += global_size()) count += is_set(x, dims.offset(0, i)) ? 1 : 0;
  count = Group<kBlock>::all(count, Add());
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

__global__ void __launch_bounds__(kBlock) total_count(const int64_t* counts, int64_t n, int64_t* total) {
  int64_t count = 0;
  for (int64_t i = threadIdx.x; i < n; i += kBlock) count += counts[i];
  count = Group<kBlock>::all(count, Add());
  if (threadIdx.x == 0) *total = count;
}

__global__ void __launch_bounds__(kBlock) mark_set(Elements x, Dims<1> dims, int64_t n, int64_t* marks) {
  for (int64_t i = global_index(); i < n; i += global_size()) marks[i] = is_set(x, dims.offset(0, i)) ? 1 : 0;
}

/// numbers[i]: how many elements are set among the first i + 1 in row-major order.
class SetNumbers {
 public:
  SetNumbers(const KernelArgs& args, const Tensor& mask)
      : count_(mask.numel()), memory_(args, static_cast<size_t>(count_) * 2 * sizeof(int64_t)) {
    if (count_ == 0) return;
    launch(stream_of(args), blocks_for(count_, kBlock, 1 << 16), kBlock, 0, mark_set, elements_of(mask),
           dims_of<1>({&mask}), count_, memory_.as<int64_t>());
    running_sums(args, memory_.as<int64_t>(), memory_.as<int64_t>() + count_, count_);
  }
  const int64_t* numbers() const { return memory_.as<int64_t>() + count_; }

 private:
  int64_t count_;
  Scratch memory_;
};

/// Element i is set; the mark is the difference of two running sums.
__device__ inline bool is_counted(const int64_t* numbers, int64_t i) {
  return numbers[i] > (i == 0 ? 0 : numbers[i - 1]);
}

/// The shape of an array, outermost dimension first.
struct MaskShape {
  int rank;
  int64_t size[kMaxRank];

  explicit MaskShape(const Shape& shape) : rank(shape.rank()) {
    for (int d = 0; d < rank; ++d) size[d] = shape[d];
  }
};

/// Rows that the count promises and the array does not have are 0.
__global__ void __launch_bounds__(kBlock)
    store_indices(const int64_t* numbers, MaskShape shape, int64_t n, int64_t* out, int64_t row_step,
                  int64_t column_step, int64_t count) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    const int64_t row = numbers[i] - 1;
    if (is_counted(numbers, i) && row < count) {
      int64_t rest = i;
      for (int d = shape.rank - 1; d >= 0; --d) {
        out[row * row_step + d * column_step] = rest % shape.size[d];
        rest /= shape.size[d];
      }
    }
    if (i < count && i >= numbers[n - 1])
      for (int d = 0; d < shape.rank; ++d) out[i * row_step + d * column_step] = 0;
  }
}

template <class Bits>
__global__ void __launch_bounds__(kBlock) select_set(const int64_t* numbers, const Bits* x, Dims<1> dims,
                                                     int64_t n, Bits* out, int64_t step, int64_t count) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    const int64_t row = numbers[i] - 1;
    if (is_counted(numbers, i) && row < count) out[row * step] = x[dims.offset(0, i)];
    if (i < count && i >= numbers[n - 1]) out[i * step] = Bits{};
  }
}

/// Elements for which the source has no more numbers stay, which is an error.
template <class Bits>
__global__ void __launch_bounds__(kBlock)
    scatter_set(const int64_t* numbers, Bits* target, Dims<1> dims, int64_t n, const Bits* source,
                Dims<1> source_dims, int64_t count, KernelError* bad) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    const int64_t from = numbers[i] - 1;
    if (i == n - 1 && from >= count) note_error(bad, 0, from + 1);
    if (is_counted(numbers, i) && from < count)
      target[dims.offset(0, i)] = source[source_dims.offset(0, from)];
  }
}

}  // namespace

void mask_count(const KernelArgs& args) {
  const Tensor& mask = args.in[0];
  const int64_t n = mask.numel();
  const unsigned blocks = blocks_for(n, kBlock, kCountBlocks);
  const Scratch counts(args, (blocks + 1) * sizeof(int64_t));
  if (blocks > 0)
    launch(stream_of(args), blocks, kBlock, 0, count_set, elements_of(mask), dims_of<1>({&mask}), n,
           counts.as<int64_t>());
  launch(stream_of(args), 1u, kBlock, 0, total_count, static_cast<const int64_t*>(counts.as<int64_t>()),
         int64_t{blocks}, args.out[0].as<int64_t>());
}

void argwhere(const KernelArgs& args) {
  const Tensor &x = args.in[0], &out = args.out[0];
  const int64_t n = x.numel();
  if (n == 0 || out.numel() == 0) return;
  const SetNumbers set(args, x);
  launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, store_indices, set.numbers(),
         MaskShape(x.shape), n, out.as<int64_t>(), out.strides[0], out.strides[1], out.shape[0]);
}

void masked_select(const KernelArgs& args) {
  const Tensor &x = args.in[0], &out = args.out[0];
  const int64_t n = x.numel();
  if (n == 0 || out.numel() == 0) return;
  const SetNumbers set(args, args.in[1].broadcast(x.shape));
  visit_size(x.dtype, [&](auto tag) {
    using Bits = typename decltype(tag)::type;
    launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, select_set<Bits>, set.numbers(),
           static_cast<const Bits*>(x.as<Bits>()), dims_of<1>({&x}), n, out.as<Bits>(), out.strides[0],
           out.shape[0]);
  });
}

void masked_scatter(const KernelArgs& args) {
  const Tensor &x = args.in[0], &source = args.in[2], &out = args.out[0];
  const int64_t n = out.numel();
  if (out.data != x.data) copy_elements(stream_of(args), out, x);
  if (n == 0) return;
  BadValues bad(args, [shape = source.shape](const KernelError& e) {
    return kernels::detail::bad_mask_count(e.value, shape);
  });
  const SetNumbers set(args, args.in[1].broadcast(out.shape));
  visit_size(out.dtype, [&](auto tag) {
    using Bits = typename decltype(tag)::type;
    launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, scatter_set<Bits>, set.numbers(),
           out.as<Bits>(), dims_of<1>({&out}), n, static_cast<const Bits*>(source.as<Bits>()),
           dims_of<1>({&source}), source.numel(), bad.word());
  });
  bad.check();
}

}  // namespace mx::cuda
