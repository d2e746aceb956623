// Convolutions, transposed convolutions, and their gradient with respect to the weights, by cuDNN, by
// products of matrices or directly (convolution.h).
//
// Method of products: the patches of some images become the columns of a matrix (channels x taps, images x
// positions). The weights times it are the result; the result's gradient times its transpose is the gradient
// of the weights; and the transposed weights times an image give the values that a transposed convolution
// sums for each position. Sums of f16 and bf16 stay in f32 until the end, and have a fixed order.
#include "operators/convolution.h"

#include <algorithm>
#include <atomic>

#include "ndarray/cuda/element.cuh"
#include "operators/convolution_shape.h"
#include "operators/cuda/blas.h"
#include "operators/cuda/convolution.h"
#include "operators/cuda/convolution_cudnn.h"
#include "operators/cuda/operand.h"
#include "operators/cuda_kernels.h"

namespace mx::cuda {
namespace {

using detail::ConvolutionSizes;
using kernels::Correlation;
using kernels::Spatial;

constexpr int kConvolutionThreads = 256;
constexpr int64_t kMostColumnBytes = int64_t{128} << 20;  // of scratch memory at a time, for several images

std::atomic<ConvolutionMethod>& method() {
  static std::atomic<ConvolutionMethod> chosen = ConvolutionMethod::automatic;
  return chosen;
}

__host__ __device__ inline int64_t volume(const int64_t (&size)[3]) { return size[0] * size[1] * size[2]; }

/// A Correlation as kernels see it: plain arrays. Strides are in elements.
struct Patches {
  Elements in, out, weights, bias;  // bias.data: null for none
  int64_t images, groups, channels, rows;
  int64_t in_size[3], in_space[3], in_image, in_group, in_channel;
  int64_t out_size[3], out_space[3], out_image, out_group, out_channel;
  int64_t weight_group, weight_row, weight_channel, weight_tap[3];
  int64_t taps[3], first[3], gap[3], step[3];
  int64_t bias_stride;
};

void set_spatial(int64_t (&to)[3], const Spatial& from) { std::copy(from.begin(), from.end(), to); }

Patches patches_of(const Correlation& c) {
  Patches p{};
  p.in = {c.in.data, c.dtype};
  p.out = {c.out.data, c.dtype};
  p.weights = {c.weights.data, c.dtype};
  p.bias = {const_cast<void*>(c.bias), c.dtype};
  p.images = c.images;
  p.groups = c.groups;
  p.channels = c.channels;
  p.rows = c.rows;
  set_spatial(p.in_size, c.in.size);
  set_spatial(p.in_space, c.in.space);
  p.in_image = c.in.image;
  p.in_group = c.in.group;
  p.in_channel = c.in.channel;
  set_spatial(p.out_size, c.out.size);
  set_spatial(p.out_space, c.out.space);
  p.out_image = c.out.image;
  p.out_group = c.out.group;
  p.out_channel = c.out.channel;
  p.weight_group = c.weights.group;
  p.weight_row = c.weights.row;
  p.weight_channel = c.weights.channel;
  set_spatial(p.weight_tap, c.weights.tap);
  set_spatial(p.taps, c.taps.count);
  set_spatial(p.first, c.taps.first);
  set_spatial(p.gap, c.taps.gap);
  set_spatial(p.step, c.step);
  p.bias_stride = c.bias_stride;
  return p;
}

/// Removes the last index of a row-major index: returns index % size and divides the index by the size. I is
/// an unsigned type that holds the whole index; divisions of 64-bit numbers are slow.
template <class I>
__device__ inline int64_t take(I& index, int64_t size) {
  const I next = index / static_cast<I>(size);
  const int64_t last = static_cast<int64_t>(index - next * static_cast<I>(size));
  index = next;
  return last;
}

/// The coordinate that tap t of position o reads along an axis.
__device__ inline int64_t coordinate(const Patches& p, int axis, int64_t o, int64_t t) {
  return o * p.step[axis] + p.first[axis] + t * p.gap[axis];
}
__device__ inline bool inside(const Patches& p, int axis, int64_t x) { return x >= 0 && x < p.in_size[axis]; }

/// columns[(channel, tap), (image, position)] = what the tap reads, for images first, first + 1, ...
template <class Bits, class I>
__global__ void copy_patches(Bits* columns, Patches p, int64_t group, int64_t first, int64_t images,
                             int64_t n) {
  const Bits* const from = static_cast<const Bits*>(p.in.data) + group * p.in_group;
  for (int64_t at = global_index(); at < n; at += global_size()) {
    I index = static_cast<I>(at);
    const int64_t o2 = take(index, p.out_size[2]), o1 = take(index, p.out_size[1]),
                  o0 = take(index, p.out_size[0]), image = take(index, images) + first,
                  t2 = take(index, p.taps[2]), t1 = take(index, p.taps[1]), t0 = take(index, p.taps[0]);
    const int64_t x0 = coordinate(p, 0, o0, t0), x1 = coordinate(p, 1, o1, t1), x2 = coordinate(p, 2, o2, t2);
    Bits value{0};
    if (inside(p, 0, x0) && inside(p, 1, x1) && inside(p, 2, x2))
      value = from[image * p.in_image + static_cast<int64_t>(index) * p.in_channel + x0 * p.in_space[0] +
                   x1 * p.in_space[1] + x2 * p.in_space[2]];
    columns[at] = value;
  }
}

/// out[image, row, position] = sums[row, (image, position)] + bias[row].
template <class A, class I>
__global__ void store_rows(const A* sums, Patches p, int64_t group, int64_t first, int64_t images,
                           int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    I index = static_cast<I>(at);
    const int64_t o2 = take(index, p.out_size[2]), o1 = take(index, p.out_size[1]),
                  o0 = take(index, p.out_size[0]), image = take(index, images) + first,
                  row = static_cast<int64_t>(index);
    A sum = sums[at];
    if (p.bias.data != nullptr) sum += load<A>(p.bias, (group * p.rows + row) * p.bias_stride);
    store(p.out,
          image * p.out_image + group * p.out_group + row * p.out_channel + o0 * p.out_space[0] +
              o1 * p.out_space[1] + o2 * p.out_space[2],
          sum);
  }
}

/// A transposed convolution from `y` (channels in) to `x` (rows out).
struct Scatter {
  Patches x;  // its `out` is x, its taps are those of the kernel
  int64_t y_size[3], padding[3], dilation[3], stride[3];
};

/// x[image, row, position] = bias[row] + the sum over taps of columns[(row, tap), (image, position of y)].
template <class A, class I>
__global__ void gather_columns(const A* columns, Scatter s, int64_t group, int64_t first, int64_t images,
                               int64_t n) {
  const Patches& p = s.x;
  const int64_t positions = volume(s.y_size), width = images * positions, taps = volume(p.taps);
  for (int64_t at = global_index(); at < n; at += global_size()) {
    I index = static_cast<I>(at);
    const int64_t q2 = take(index, p.out_size[2]), q1 = take(index, p.out_size[1]),
                  q0 = take(index, p.out_size[0]), image = take(index, images),
                  row = static_cast<int64_t>(index);
    const int64_t q[3] = {q0, q1, q2};
    A sum = p.bias.data == nullptr ? A{0} : load<A>(p.bias, (group * p.rows + row) * p.bias_stride);
    for (int64_t t = 0; t < taps; ++t) {
      const int64_t tap[3] = {t / p.taps[2] / p.taps[1], t / p.taps[2] % p.taps[1], t % p.taps[2]};
      int64_t position = 0;
      bool found = true;
      for (int a = 0; a < 3; ++a) {
        const int64_t way = q[a] + s.padding[a] - tap[a] * s.dilation[a];
        found = found && way >= 0 && way % s.stride[a] == 0 && way / s.stride[a] < s.y_size[a];
        position = position * s.y_size[a] + way / s.stride[a];
      }
      if (found) sum += columns[(row * taps + t) * width + image * positions + position];
    }
    store(p.out,
          (image + first) * p.out_image + group * p.out_group + row * p.out_channel + q0 * p.out_space[0] +
              q1 * p.out_space[1] + q2 * p.out_space[2],
          sum);
  }
}

/// Computes the whole correlation.
template <class A, class I>
__global__ void correlate_elements(Patches p, int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    I index = static_cast<I>(at);
    const int64_t o2 = take(index, p.out_size[2]), o1 = take(index, p.out_size[1]),
                  o0 = take(index, p.out_size[0]), row = take(index, p.rows), group = take(index, p.groups),
                  image = static_cast<int64_t>(index);
    const int64_t from = image * p.in_image + group * p.in_group,
                  weights = group * p.weight_group + row * p.weight_row;
    A sum = p.bias.data == nullptr ? A{0} : load<A>(p.bias, (group * p.rows + row) * p.bias_stride);
    for (int64_t c = 0; c < p.channels; ++c)
      for (int64_t i = 0; i < p.taps[0]; ++i) {
        const int64_t x0 = coordinate(p, 0, o0, i);
        if (!inside(p, 0, x0)) continue;
        for (int64_t j = 0; j < p.taps[1]; ++j) {
          const int64_t x1 = coordinate(p, 1, o1, j);
          if (!inside(p, 1, x1)) continue;
          for (int64_t k = 0; k < p.taps[2]; ++k) {
            const int64_t x2 = coordinate(p, 2, o2, k);
            if (!inside(p, 2, x2)) continue;
            sum += load<A>(p.weights, weights + c * p.weight_channel + i * p.weight_tap[0] +
                                          j * p.weight_tap[1] + k * p.weight_tap[2]) *
                   load<A>(p.in, from + c * p.in_channel + x0 * p.in_space[0] + x1 * p.in_space[1] +
                                     x2 * p.in_space[2]);
          }
        }
      }
    store(p.out,
          image * p.out_image + group * p.out_group + row * p.out_channel + o0 * p.out_space[0] +
              o1 * p.out_space[1] + o2 * p.out_space[2],
          sum);
  }
}

/// Computes the gradient of the weights: one block for each weight.
template <class A, class I>
__global__ void __launch_bounds__(kConvolutionThreads) correlate_weights(Patches p, int64_t weights) {
  A* const sums = block_shared<A, kConvolutionThreads>();
  const int64_t n = p.images * volume(p.out_size);
  for (int64_t at = blockIdx.x; at < weights; at += gridDim.x) {
    int64_t rest = at;
    const int64_t t2 = take(rest, p.taps[2]), t1 = take(rest, p.taps[1]), t0 = take(rest, p.taps[0]),
                  channel = take(rest, p.channels), row = take(rest, p.rows), group = rest;
    const int64_t in = group * p.in_group + channel * p.in_channel,
                  out = group * p.out_group + row * p.out_channel;
    A sum{0};
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      I index = static_cast<I>(i);
      const int64_t o2 = take(index, p.out_size[2]), o1 = take(index, p.out_size[1]),
                    o0 = take(index, p.out_size[0]), image = static_cast<int64_t>(index);
      const int64_t x0 = coordinate(p, 0, o0, t0), x1 = coordinate(p, 1, o1, t1),
                    x2 = coordinate(p, 2, o2, t2);
      if (inside(p, 0, x0) && inside(p, 1, x1) && inside(p, 2, x2))
        sum += load<A>(p.in, in + image * p.in_image + x0 * p.in_space[0] + x1 * p.in_space[1] +
                                 x2 * p.in_space[2]) *
               load<A>(p.out, out + image * p.out_image + o0 * p.out_space[0] + o1 * p.out_space[1] +
                                  o2 * p.out_space[2]);
    }
    barrier();  // the sums of the weight before have been read
    sums[threadIdx.x] = sum;
    barrier();
    for (unsigned half = kConvolutionThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
      barrier();
    }
    if (threadIdx.x == 0)
      store(p.weights,
            group * p.weight_group + row * p.weight_row + channel * p.weight_channel + t0 * p.weight_tap[0] +
                t1 * p.weight_tap[1] + t2 * p.weight_tap[2],
            sums[0]);
  }
}

/// Calls f.template operator()<A, I>() with the type of sums and the type of indices below n.
template <class F>
void visit_sums(DType type, int64_t n, const F& f) {
  visit_real(type, [&]<class A>() {
    n <= INT32_MAX ? f.template operator()<A, uint32_t>() : f.template operator()<A, uint64_t>();
  });
}

unsigned convolution_blocks(int64_t n) { return blocks_for(n, kConvolutionThreads, 1 << 16); }

void launch_patches(const KernelArgs& args, void* columns, const Patches& p, int64_t group, int64_t first,
                    int64_t images) {
  const int64_t n = p.channels * volume(p.taps) * images * volume(p.out_size);
  visit_size(p.in.type, [&](auto size) {
    using Bits = typename decltype(size)::type;
    if constexpr (sizeof(Bits) > 1) {
      const auto run = [&](auto kernel) {
        launch(stream_of(args), convolution_blocks(n), kConvolutionThreads, 0, kernel,
               static_cast<Bits*>(columns), p, group, first, images, n);
      };
      n <= INT32_MAX ? run(copy_patches<Bits, uint32_t>) : run(copy_patches<Bits, uint64_t>);
    }
  });
}

/// The elements of an array themselves as columns (channel, (image, position)).
Patches elements_as_columns(const Elements& elements, const kernels::Images& images, int64_t count,
                            int64_t channels) {
  Correlation c;
  c.images = count;
  c.channels = channels;
  c.in = c.out = images;
  Patches p = patches_of(c);
  p.in = elements;
  return p;
}

int64_t images_at_a_time(const Patches& p, int64_t rows, int64_t positions) {
  const auto element = static_cast<int64_t>(size_of(p.in.type) + size_of(accumulation_type(p.in.type)));
  return std::clamp<int64_t>(kMostColumnBytes / std::max<int64_t>(1, rows * positions * element), 1,
                             std::max<int64_t>(1, p.images));
}

/// Returns true if cuDNN is the better way. A guess: nobody has measured on a GPU that own kernels are better
/// for groups of one channel, for which cuDNN has few engines.
bool use_cudnn(int64_t groups, int64_t rows, int64_t channels) {
  const ConvolutionMethod chosen = method().load(std::memory_order_relaxed);
  if (chosen == ConvolutionMethod::automatic) return groups == 1 || rows > 1 || channels > 1;
  return chosen == ConvolutionMethod::cudnn;
}

/// Returns true if products of matrices are a better way than direct sums for groups with so many rows and
/// columns of weights.
bool use_products(int64_t groups, int64_t rows, int64_t columns) {
  constexpr int64_t kFewRows = 4, kFewColumns = 8, kMostGroups = 8;
  const ConvolutionMethod chosen = method().load(std::memory_order_relaxed);
  if (chosen == ConvolutionMethod::products) return true;
  if (chosen == ConvolutionMethod::direct) return false;
  return rows >= kFewRows && columns >= kFewColumns && groups <= kMostGroups;
}

void correlate_directly(const KernelArgs& args, const Correlation& c) {
  const Patches p = patches_of(c);
  const int64_t n = p.images * p.groups * p.rows * volume(p.out_size);
  if (n == 0) return;
  visit_sums(c.dtype, n, [&]<class A, class I>() {
    launch(stream_of(args), convolution_blocks(n), kConvolutionThreads, 0, correlate_elements<A, I>, p, n);
  });
}

/// Precondition: the weights of a row are contiguous.
void correlate_by_products(const KernelArgs& args, const Correlation& c) {
  const Patches p = patches_of(c);
  const DType sums = accumulation_type(c.dtype);
  const int64_t rows = p.channels * volume(p.taps), positions = volume(p.out_size);
  if (p.images * p.groups * p.rows * positions == 0) return;
  const int64_t most = images_at_a_time(p, rows + p.rows, positions);
  const Scratch columns(args, static_cast<size_t>(rows * most * positions) * size_of(c.dtype)),
      results(args, static_cast<size_t>(p.rows * most * positions) * size_of(sums));
  for (int64_t first = 0; first < p.images; first += most)
    for (int64_t group = 0; group < p.groups; ++group) {
      const int64_t images = std::min(most, p.images - first), width = images * positions, n = p.rows * width;
      if (rows > 0) launch_patches(args, columns.data(), p, group, first, images);
      Product product;
      product.in = c.dtype;
      product.out = sums;
      product.m = p.rows;
      product.n = width;
      product.k = rows;
      product.a = {element_at(c.weights.data, c.dtype, group * p.weight_group), p.weight_row, 1};
      product.b = {columns.data(), width, 1};
      product.c = results.data();
      product.c_row_stride = width;
      multiply(args, product);
      visit_sums(sums, n, [&]<class A, class I>() {
        launch(stream_of(args), convolution_blocks(n), kConvolutionThreads, 0, store_rows<A, I>,
               static_cast<const A*>(results.as<A>()), p, group, first, images, n);
      });
    }
}

/// x = the transposed convolution of y; all contiguous weights (in, out / groups, kernel...).
void transpose_by_products(const KernelArgs& args, const ConvolutionSizes& sizes, const Tensor& x,
                           const Tensor& weight, const Tensor& y, const Tensor* bias) {
  // As a convolution from x to y, of which this is the transpose.
  const Correlation forward = detail::forward_correlation(sizes, x, weight, y);
  const Patches f = patches_of(forward);
  const int64_t channels = f.rows, rows = f.channels, taps = volume(f.taps), positions = volume(f.out_size);
  const DType sums = accumulation_type(x.dtype);
  Scatter s{};
  s.x = elements_as_columns({x.data, x.dtype}, forward.in, f.images, rows);
  s.x.out = {x.data, x.dtype};
  s.x.rows = rows;
  s.x.bias = {bias == nullptr ? nullptr : bias->data, x.dtype};
  s.x.bias_stride = bias == nullptr ? 1 : bias->strides[0];
  for (int a = 0; a < 3; ++a) {
    s.x.taps[a] = f.taps[a];
    s.y_size[a] = f.out_size[a];
    s.padding[a] = -f.first[a];
    s.dilation[a] = f.gap[a];
    s.stride[a] = f.step[a];
  }
  const Patches from = elements_as_columns({y.data, y.dtype}, forward.out, f.images, channels);
  const int64_t most = images_at_a_time(from, channels + rows * taps, positions);
  const Scratch packed(args, static_cast<size_t>(channels * most * positions) * size_of(y.dtype)),
      columns(args, static_cast<size_t>(rows * taps * most * positions) * size_of(sums));
  for (int64_t first = 0; first < f.images; first += most)
    for (int64_t group = 0; group < f.groups; ++group) {
      const int64_t images = std::min(most, f.images - first), width = images * positions,
                    n = rows * images * volume(s.x.out_size);
      if (channels * width > 0) launch_patches(args, packed.data(), from, group, first, images);
      Product product;
      product.in = y.dtype;
      product.out = sums;
      product.m = rows * taps;
      product.n = width;
      product.k = channels;
      product.a = {element_at(weight.data, weight.dtype, group * channels * rows * taps), 1, rows * taps};
      product.b = {packed.data(), width, 1};
      product.c = columns.data();
      product.c_row_stride = width;
      multiply(args, product);
      if (n == 0) continue;
      visit_sums(sums, n, [&]<class A, class I>() {
        launch(stream_of(args), convolution_blocks(n), kConvolutionThreads, 0, gather_columns<A, I>,
               static_cast<const A*>(columns.as<A>()), s, group, first, images, n);
      });
    }
}

/// Writes contiguous weights (groups, rows, channels, taps) in the type of the sums.
void weights_by_products(const KernelArgs& args, const Correlation& c, void* result) {
  const Patches p = patches_of(c);
  const DType sums = accumulation_type(c.dtype);
  const int64_t columns = p.channels * volume(p.taps), positions = volume(p.out_size);
  const Patches out = elements_as_columns({c.out.data, c.dtype}, c.out, p.images, p.rows);
  const int64_t most = images_at_a_time(p, columns + p.rows, positions);
  const Scratch patches(args, static_cast<size_t>(columns * most * positions) * size_of(c.dtype)),
      packed(args, static_cast<size_t>(p.rows * most * positions) * size_of(c.dtype));
  for (int64_t first = 0; first < std::max<int64_t>(1, p.images); first += most)
    for (int64_t group = 0; group < p.groups; ++group) {
      const int64_t images = std::min(most, p.images - first), width = images * positions;
      if (width > 0) {
        launch_patches(args, patches.data(), p, group, first, images);
        launch_patches(args, packed.data(), out, group, first, images);
      }
      Product product;
      product.in = c.dtype;
      product.out = sums;
      product.m = p.rows;
      product.n = columns;
      product.k = width;
      product.a = {packed.data(), width, 1};
      product.b = {patches.data(), 1, width};
      product.c = element_at(result, sums, group * p.rows * columns);
      product.c_row_stride = columns;
      product.beta = first == 0 ? 0 : 1;
      multiply(args, product);
    }
}

template <class A>
ConvolutionSizes sizes_of(const A& attrs, int rank) {
  return {rank - 2, attrs.stride, attrs.padding, attrs.dilation, attrs.groups};
}

}  // namespace

void set_convolution_method(ConvolutionMethod chosen) { method().store(chosen, std::memory_order_relaxed); }

void convolution(const KernelArgs& args) {
  const Tensor &y = args.out[0], &w = args.in[1];
  if (y.numel() == 0) return;
  const Operand x(args, args.in[0], y.dtype), weight(args, w, y.dtype, !w.contiguous()),
      bias(args, args.in[args.in.size() - 1], y.dtype);
  const Tensor* const added = args.in.size() == 3 ? &*bias : nullptr;
  const ConvolutionSizes sizes = sizes_of(args.attr<ConvolutionAttrs>(), y.rank());
  Correlation c = detail::forward_correlation(sizes, *x, *weight, y);
  if (use_cudnn(c.groups, c.rows, c.channels) &&
      convolve_by_cudnn(args, ConvolutionPart::y, sizes, *x, *weight, y, added))
    return;
  if (added != nullptr) {
    c.bias = bias->data;
    c.bias_stride = bias->strides[0];
  }
  const int64_t columns = w.shape[0] == 0 ? 0 : w.numel() / w.shape[0];
  use_products(c.groups, c.rows, columns) ? correlate_by_products(args, c) : correlate_directly(args, c);
}

void convolution_transpose(const KernelArgs& args) {
  const Tensor &x = args.out[0], &w = args.in[1];
  if (x.numel() == 0) return;
  const Operand y(args, args.in[0], x.dtype), weight(args, w, x.dtype, !w.contiguous()),
      bias(args, args.in[args.in.size() - 1], x.dtype);
  const Tensor* const added = args.in.size() == 3 ? &*bias : nullptr;
  const ConvolutionSizes sizes = sizes_of(args.attr<ConvolutionTransposeAttrs>(), x.rank());
  const int64_t columns = w.shape[0] == 0 ? 0 : w.numel() / w.shape[0], channels = w.shape[0] / sizes.groups;
  if (use_cudnn(sizes.groups, w.shape[1], channels) &&
      convolve_by_cudnn(args, ConvolutionPart::x, sizes, x, *weight, *y, added))
    return;
  if (use_products(sizes.groups, channels, columns))
    return transpose_by_products(args, sizes, x, *weight, *y, added);
  detail::each_backward_correlation(sizes, *y, *weight, x, [&](Correlation c) {
    if (added != nullptr) {
      c.bias = added->data;
      c.bias_stride = added->strides[0];
    }
    correlate_directly(args, c);
  });
}

void convolution_weights(const KernelArgs& args) {
  const Tensor& weight = args.out[0];
  if (weight.numel() == 0) return;
  const Operand x(args, args.in[0], weight.dtype), dy(args, args.in[1], weight.dtype);
  const ConvolutionSizes sizes = sizes_of(args.attr<ConvolutionWeightsAttrs>(), weight.rank());
  const Correlation c = detail::forward_correlation(sizes, *x, weight, *dy);
  if (use_cudnn(c.groups, c.rows, c.channels) &&
      convolve_by_cudnn(args, ConvolutionPart::weight, sizes, *x, weight, *dy, nullptr))
    return;
  const Patches p = patches_of(c);
  if (!use_products(c.groups, c.rows, weight.numel() / weight.shape[0])) {
    const int64_t most = p.images * volume(p.out_size), blocks = std::min<int64_t>(weight.numel(), 1 << 20);
    return visit_sums(c.dtype, most, [&]<class A, class I>() {
      launch(stream_of(args), static_cast<unsigned>(blocks), kConvolutionThreads, 0, correlate_weights<A, I>,
             p, weight.numel());
    });
  }
  const DType sums = accumulation_type(weight.dtype);
  if (weight.dtype == sums && weight.contiguous()) return weights_by_products(args, c, weight.data);
  const Operand result(args, sums, weight.shape);
  weights_by_products(args, c, result->data);
  copy_elements(stream_of(args), weight, *result);
}

}  // namespace mx::cuda
