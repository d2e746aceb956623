// Poolings and their gradients: one thread for each element of the result. The gradient of a maximum adds
// elements at indices; one block does that for a plane.
#include <algorithm>
#include <limits>

#include "ndarray/cuda/element.cuh"
#include "ndarray/cuda/kernel_errors.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/bad_values.h"
#include "operators/pool_interval.h"
#include "operators/pooling.h"
#include "operators/pooling_windows.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

constexpr int kPoolThreads = 256;

/// An array (images, channels, spatial...) with three spatial axes: depth, height, width.
struct Planes {
  Elements elements;
  int64_t channels, count;  // count: images times channels
  int64_t image_stride, channel_stride;
  int64_t size[3], stride[3];

  __device__ int64_t start(int64_t plane) const {
    return plane / channels * image_stride + plane % channels * channel_stride;
  }
  __device__ int64_t at(int64_t d, int64_t h, int64_t w) const {
    return d * stride[0] + h * stride[1] + w * stride[2];
  }
  /// The offset of an element of a plane by its index in row-major order.
  __device__ int64_t at(int64_t index) const {
    return at(index / size[2] / size[1], index / size[2] % size[1], index % size[2]);
  }
};

Planes planes_of(const Tensor& t) {
  Planes p{elements_of(t), t.shape[1], t.shape[0] * t.shape[1], t.strides[0], t.strides[1], {1, 1, 1}, {}};
  for (int a = 2; a < t.rank(); ++a) {
    p.size[3 - t.rank() + a] = t.shape[a];
    p.stride[3 - t.rank() + a] = t.strides[a];
  }
  return p;
}

/// The windows along the three axes.
struct Windows {
  struct Axis {
    int64_t size = 1, windows = 1, step = 1, pad = 0, gap = 1, kernel = 1;
  };
  Axis axes[3];
  bool adaptive = false, count_padding = false;
  double divisor = 0;  // 0: the product of the axes' divisors

  __device__ detail::PoolInterval interval(int axis, int64_t o) const {
    const Axis& a = axes[axis];
    return adaptive ? detail::adaptive_interval(o, a.size, a.windows)
                    : detail::pool_interval(o, a.step, a.pad, a.gap, a.kernel, a.size, count_padding);
  }
  /// Sets the first and the last window that have element q; of windows without gaps.
  __device__ void windows_with(int axis, int64_t q, int64_t& first, int64_t& last) const {
    const Axis& a = axes[axis];
    if (adaptive) {
      first = q * a.windows / a.size;
      last = ((q + 1) * a.windows - 1) / a.size;
    } else {
      const int64_t beyond = q + a.pad - a.kernel + 1;
      first = beyond > 0 ? (beyond + a.step - 1) / a.step : 0;
      last = (q + a.pad) / a.step;
    }
    if (last >= a.windows) last = a.windows - 1;
  }
  template <class A>
  __device__ A divisor_of(int64_t d, int64_t h, int64_t w) const {
    return static_cast<A>(divisor != 0 ? divisor : static_cast<double>(d * h * w));
  }
};

/// `x`: the shape of the array that has the windows, `y`: that of the one with an element for each window.
Windows windows_between(const Shape& x, const Shape& y) {
  Windows w;
  w.adaptive = true;
  for (int a = 2; a < x.rank(); ++a) {
    w.axes[3 - x.rank() + a].size = x[a];
    w.axes[3 - x.rank() + a].windows = y[a];
  }
  return w;
}

Windows windows_of(const detail::PoolSizes& sizes, const Shape& x, const Shape& y) {
  Windows w = windows_between(x, y);
  w.adaptive = false;
  for (int a = 0; a < sizes.axes; ++a) {
    Windows::Axis& axis = w.axes[3 - sizes.axes + a];
    axis.step = sizes.step(a);
    axis.pad = sizes.padding[a];
    axis.gap = sizes.dilation[a];
    axis.kernel = sizes.kernel[a];
  }
  return w;
}

template <class A>
Windows mean_windows(const A& attrs, const Shape& x, const Shape& y) {
  Windows w = windows_of({x.rank() - 2, attrs.kernel, attrs.stride, attrs.padding, 1, attrs.ceil_mode}, x, y);
  w.count_padding = attrs.count_include_pad;
  w.divisor = static_cast<double>(attrs.divisor_override);
  return w;
}

/// The place of an element of the result.
struct Place {
  int64_t plane, d, h, w;
  __device__ Place(const Planes& p, int64_t index) {
    w = index % p.size[2];
    index /= p.size[2];
    h = index % p.size[1];
    index /= p.size[1];
    d = index % p.size[0];
    plane = index / p.size[0];
  }
};

// Of equal elements the first counts, of several NaNs the last one.
template <class A>
__global__ void max_pool_elements(Planes x, Planes y, Planes indices, Windows windows, int64_t n) {
  for (int64_t index = global_index(); index < n; index += global_size()) {
    const Place p(y, index);
    const int64_t from = x.start(p.plane);
    const detail::PoolInterval d = windows.interval(0, p.d), h = windows.interval(1, p.h),
                               w = windows.interval(2, p.w);
    A best = static_cast<A>(-INFINITY);
    int64_t at = 0;
    if (d.count > 0 && h.count > 0)
      at = (d.first * x.size[1] + h.first) * x.size[2] + (w.count > 0 ? w.first : 0);
    for (int64_t i = 0; i < d.count; ++i)
      for (int64_t j = 0; j < h.count; ++j)
        for (int64_t k = 0; k < w.count; ++k) {
          const int64_t a = d.first + i * windows.axes[0].gap, b = h.first + j * windows.axes[1].gap,
                        c = w.first + k * windows.axes[2].gap;
          const A v = load<A>(x.elements, from + x.at(a, b, c));
          if (v > best || v != v) {
            best = v;
            at = (a * x.size[1] + b) * x.size[2] + c;
          }
        }
    store(y.elements, y.start(p.plane) + y.at(p.d, p.h, p.w), best);
    store(indices.elements, indices.start(p.plane) + indices.at(p.d, p.h, p.w), at);
  }
}

template <class A>
__global__ void avg_pool_elements(Planes x, Planes y, Windows windows, int64_t n) {
  for (int64_t index = global_index(); index < n; index += global_size()) {
    const Place p(y, index);
    const int64_t from = x.start(p.plane);
    const detail::PoolInterval d = windows.interval(0, p.d), h = windows.interval(1, p.h),
                               w = windows.interval(2, p.w);
    A sum{0};
    for (int64_t i = 0; i < d.count; ++i)
      for (int64_t j = 0; j < h.count; ++j)
        for (int64_t k = 0; k < w.count; ++k)
          sum += load<A>(x.elements, from + x.at(d.first + i, h.first + j, w.first + k));
    sum /= windows.divisor_of<A>(d.divisor, h.divisor, w.divisor);
    store(y.elements, y.start(p.plane) + y.at(p.d, p.h, p.w), sum);
  }
}

template <class A>
__global__ void avg_pool_backward_elements(Planes dx, Planes dy, Windows windows, int64_t n) {
  for (int64_t index = global_index(); index < n; index += global_size()) {
    const Place p(dx, index);
    const int64_t from = dy.start(p.plane);
    int64_t first[3], last[3];
    windows.windows_with(0, p.d, first[0], last[0]);
    windows.windows_with(1, p.h, first[1], last[1]);
    windows.windows_with(2, p.w, first[2], last[2]);
    A sum{0};
    for (int64_t i = first[0]; i <= last[0]; ++i)
      for (int64_t j = first[1]; j <= last[1]; ++j)
        for (int64_t k = first[2]; k <= last[2]; ++k)
          sum += load<A>(dy.elements, from + dy.at(i, j, k)) /
                 windows.divisor_of<A>(windows.interval(0, i).divisor, windows.interval(1, j).divisor,
                                       windows.interval(2, k).divisor);
    store(dx.elements, dx.start(p.plane) + dx.at(p.d, p.h, p.w), sum);
  }
}

/// Memory of the blocks of max_pool_backward_planes(): for each block, sums and claims of a plane of dx, and
/// a mark for each element of a plane of dy.
template <class A>
struct Workplace {
  A* sums;
  int32_t* claims;
  uint8_t* added;
};

// Several elements of dy may have one index. They are added one after the other in their order, so results
// repeat: in each round, the first one that is left claims the index, and is added.
template <class A>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool_backward_planes(Planes dx, Planes dy, Planes indices, Workplace<A> memory, KernelError* bad) {
  const int64_t elements = dx.size[0] * dx.size[1] * dx.size[2];
  const int64_t windows = dy.size[0] * dy.size[1] * dy.size[2];
  A* const sums = memory.sums + blockIdx.x * elements;
  int32_t* const claims = memory.claims + blockIdx.x * elements;
  uint8_t* const added = memory.added + blockIdx.x * windows;
  int32_t* const left = block_shared<int32_t, 1>();
  const int64_t step = blockDim.x;
  for (int64_t plane = blockIdx.x; plane < dx.count; plane += gridDim.x) {
    const int64_t from = dy.start(plane), places = indices.start(plane), to = dx.start(plane);
    const auto* const place = static_cast<const int64_t*>(indices.elements.data) + places;
    for (int64_t i = threadIdx.x; i < elements; i += step) {
      sums[i] = A{0};
      claims[i] = INT32_MIN;
    }
    for (int64_t w = threadIdx.x; w < windows; w += step) added[w] = 0;
    for (bool more = true; more;) {
      if (threadIdx.x == 0) *left = 0;
      barrier();
      for (int64_t w = threadIdx.x; w < windows; w += step) {
        const int64_t at = place[indices.at(w)];
        if (at < 0 || at >= elements) {
          note_error(bad, plane * windows + w, at);
          added[w] = 1;
        }
        if (added[w] == 0) atomic_max(claims + at, static_cast<int32_t>(-w));
      }
      barrier();
      for (int64_t w = threadIdx.x; w < windows; w += step) {
        if (added[w] != 0) continue;
        const int64_t at = place[indices.at(w)];
        if (claims[at] == -w) {
          sums[at] += load<A>(dy.elements, from + dy.at(w));
          added[w] = 2;
        } else {
          atomic_max(left, 1);
        }
      }
      barrier();
      more = *left != 0;
      for (int64_t w = threadIdx.x; w < windows; w += step)
        if (added[w] == 2) {
          claims[place[indices.at(w)]] = INT32_MIN;
          added[w] = 1;
        }
      barrier();
    }
    for (int64_t i = threadIdx.x; i < elements; i += step) store(dx.elements, to + dx.at(i), sums[i]);
    barrier();
  }
}

unsigned pool_blocks(int64_t n) { return blocks_for(n, kPoolThreads, 1 << 16); }

void run_max(const KernelArgs& args, const Windows& windows) {
  const int64_t n = args.out[0].numel();
  if (n == 0) return;
  visit_real(args.out[0].dtype, [&]<class A>() {
    launch(stream_of(args), pool_blocks(n), kPoolThreads, 0, max_pool_elements<A>, planes_of(args.in[0]),
           planes_of(args.out[0]), planes_of(args.out[1]), windows, n);
  });
}

void run_avg(const KernelArgs& args, const Windows& windows) {
  const int64_t n = args.out[0].numel();
  if (n == 0) return;
  visit_real(args.out[0].dtype, [&]<class A>() {
    launch(stream_of(args), pool_blocks(n), kPoolThreads, 0, avg_pool_elements<A>, planes_of(args.in[0]),
           planes_of(args.out[0]), windows, n);
  });
}

void run_avg_backward(const KernelArgs& args, const Windows& windows) {
  const int64_t n = args.out[0].numel();
  if (n == 0) return;
  visit_real(args.out[0].dtype, [&]<class A>() {
    launch(stream_of(args), pool_blocks(n), kPoolThreads, 0, avg_pool_backward_elements<A>,
           planes_of(args.out[0]), planes_of(args.in[0]), windows, n);
  });
}

}  // namespace

void max_pool(const KernelArgs& args) {
  const auto& a = args.attr<MaxPoolAttrs>();
  const Shape& x = args.in[0].shape;
  run_max(args, windows_of({x.rank() - 2, a.kernel, a.stride, a.padding, a.dilation, a.ceil_mode}, x,
                           args.out[0].shape));
}

void adaptive_max_pool(const KernelArgs& args) {
  run_max(args, windows_between(args.in[0].shape, args.out[0].shape));
}

void avg_pool(const KernelArgs& args) {
  run_avg(args, mean_windows(args.attr<AvgPoolAttrs>(), args.in[0].shape, args.out[0].shape));
}

void adaptive_avg_pool(const KernelArgs& args) {
  run_avg(args, windows_between(args.in[0].shape, args.out[0].shape));
}

void avg_pool_backward(const KernelArgs& args) {
  run_avg_backward(args,
                   mean_windows(args.attr<AvgPoolBackwardAttrs>(), args.out[0].shape, args.in[0].shape));
}

void adaptive_avg_pool_backward(const KernelArgs& args) {
  run_avg_backward(args, windows_between(args.out[0].shape, args.in[0].shape));
}

void max_pool_backward(const KernelArgs& args) {
  const Tensor &dx = args.out[0], &dy = args.in[0];
  if (dx.numel() == 0) return;
  const Planes to = planes_of(dx), from = planes_of(dy);
  const int64_t elements = to.size[0] * to.size[1] * to.size[2];
  const int64_t windows = from.size[0] * from.size[1] * from.size[2];
  MX_CHECK(windows <= INT32_MAX, InvalidArgument,
           "[max_pool_backward] expected at most 2^31 - 1 windows of a plane on a GPU, got ", windows);
  BadValues bad(args, [elements, windows](const KernelError& e) {
    return kernels::detail::bad_pool_index(elements, e.value, e.place / windows);
  });
  visit_real(dx.dtype, [&]<class A>() {
    constexpr int64_t kMostBlocks = 1024, kMostBytes = int64_t{256} << 20;
    const int64_t bytes = elements * static_cast<int64_t>(sizeof(A) + sizeof(int32_t)) + windows;
    const int64_t blocks = std::min({to.count, kMostBlocks, std::max<int64_t>(1, kMostBytes / bytes)});
    const Scratch scratch(args, static_cast<size_t>(bytes * blocks));
    Workplace<A> memory;
    memory.sums = scratch.as<A>();
    memory.claims = reinterpret_cast<int32_t*>(memory.sums + blocks * elements);
    memory.added = reinterpret_cast<uint8_t*>(memory.claims + blocks * elements);
    launch(stream_of(args), static_cast<unsigned>(blocks), kPoolThreads, 0, max_pool_backward_planes<A>, to,
           from, planes_of(args.in[1]), memory, bad.word());
  });
  bad.check();
}

}  // namespace mx::cuda
