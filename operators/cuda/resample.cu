// Resampling: operators/kernels/resample_formulas.h. A small kernel computes the taps of each axis, in
// double. Then a thread computes one element of the result. In the transpose it goes through the results that
// may use its element, in ascending order, so sums have the order of the CPU's.
#include "ndarray/cuda/element.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/resample.h"
#include "operators/resample_attrs.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

using formulas::ResampleAxis;
using formulas::ResampleTap;

constexpr int kResampleThreads = 256;

/// The taps of one axis: tap t of element i of the result is number i * taps + t.
template <class A>
struct AxisTaps {
  ResampleAxis axis;
  double per_step;  // 1 / axis.step, or 0
  int64_t* places;
  A* weights;

  __device__ formulas::ResampleRange users(int64_t place) const {
    return formulas::resample_users(axis, per_step, place);
  }
};

template <class A>
struct ResamplePlan {
  AxisTaps<A> axis[3];  // missing ones have one element
  int64_t channels;
  int64_t size[3];     // of the array that is written
  int64_t x[5], y[5];  // strides; y is written
};

template <class A>
__global__ void __launch_bounds__(kResampleThreads) find_taps(AxisTaps<A> to) {
  const int taps = to.axis.taps();
  for (int64_t k = global_index(); k < to.axis.out * taps; k += global_size()) {
    const ResampleTap tap = formulas::resample_tap(to.axis, k / taps, static_cast<int>(k % taps));
    to.places[k] = tap.place;
    to.weights[k] = static_cast<A>(tap.weight);
  }
}

/// Where a thread's element is.
struct ResamplePlace {
  int64_t at[3];
  int64_t x, y;  // offsets; that of x is of its plane

  template <class A>
  __device__ ResamplePlace(const ResamplePlan<A>& p, int64_t index) {
    for (int a = 2; a >= 0; --a) {
      at[a] = index % p.size[a];
      index /= p.size[a];
    }
    const int64_t channel = index % p.channels, image = index / p.channels;
    x = image * p.x[0] + channel * p.x[1];
    y = image * p.y[0] + channel * p.y[1] + at[0] * p.y[2] + at[1] * p.y[3] + at[2] * p.y[4];
  }
};

template <class A>
__global__ void __launch_bounds__(kResampleThreads)
    resample_elements(Elements x, Elements y, ResamplePlan<A> p, int64_t n) {
  const AxisTaps<A>&planes = p.axis[0], &rows = p.axis[1], &columns = p.axis[2];
  const int depth = planes.axis.taps(), height = rows.axis.taps(), width = columns.axis.taps();
  for (int64_t index = global_index(); index < n; index += global_size()) {
    const ResamplePlace place(p, index);
    A sum{0};
    for (int64_t w = place.at[2] * width; w < (place.at[2] + 1) * width; ++w) {
      const int64_t column = place.x + columns.places[w] * p.x[4];
      A part{0};
      for (int64_t d = place.at[0] * depth; d < (place.at[0] + 1) * depth; ++d)
        for (int64_t h = place.at[1] * height; h < (place.at[1] + 1) * height; ++h)
          part += planes.weights[d] * rows.weights[h] *
                  load<A>(x, column + planes.places[d] * p.x[2] + rows.places[h] * p.x[3]);
      sum += columns.weights[w] * part;
    }
    store(y, place.y, sum);
  }
}

/// Sets the sum of the weights that element i of the forward result gives to a place. Returns false if it has
/// no tap there.
template <class A>
__device__ inline bool weight_at(const AxisTaps<A>& from, int64_t i, int64_t place, A& weight) {
  const int taps = from.axis.taps();
  bool found = false;
  weight = A{0};
  for (int64_t k = i * taps; k < (i + 1) * taps; ++k)
    if (from.places[k] == place) {
      weight += from.weights[k];
      found = true;
    }
  return found;
}

template <class A>
__global__ void __launch_bounds__(kResampleThreads)
    resample_gradients(Elements x, Elements y, ResamplePlan<A> p, int64_t n) {
  for (int64_t index = global_index(); index < n; index += global_size()) {
    const ResamplePlace place(p, index);
    const auto planes = p.axis[0].users(place.at[0]);
    const auto rows = p.axis[1].users(place.at[1]);
    const auto columns = p.axis[2].users(place.at[2]);
    A sum{0}, of_column, of_plane, of_row;
    for (int64_t w = columns.begin; w < columns.end; ++w) {
      if (!weight_at(p.axis[2], w, place.at[2], of_column)) continue;
      A part{0};
      for (int64_t d = planes.begin; d < planes.end; ++d) {
        if (!weight_at(p.axis[0], d, place.at[0], of_plane)) continue;
        for (int64_t h = rows.begin; h < rows.end; ++h)
          if (weight_at(p.axis[1], h, place.at[1], of_row))
            part += of_plane * of_row * load<A>(x, place.x + d * p.x[2] + h * p.x[3] + w * p.x[4]);
      }
      sum += of_column * part;
    }
    store(y, place.y, sum);
  }
}

/// Strides of images, channels and three spatial axes.
void strides_of_volume(const Tensor& t, int64_t (&to)[5]) {
  const int missing = 5 - t.rank();
  for (int a = 0; a < 5; ++a) to[a] = a < 2 ? t.strides[a] : a - missing < 2 ? 0 : t.strides[a - missing];
}

void run_resample(const KernelArgs& args, const char* op, bool transposed) {
  const Tensor &x = args.in[0], &y = args.out[0];
  const int64_t n = y.numel();
  if (n == 0) return;
  const kernels::ResampleAxes axes =
      detail::resample_axes(op, args.attr<detail::ResampleAttrs>(), x.shape, transposed);
  visit_real(x.dtype, [&]<class A>() {
    ResamplePlan<A> plan{};
    int64_t entries = 0;
    for (int a = 0; a < 3; ++a) {
      const int given = a - (3 - axes.count);
      ResampleAxis& axis = plan.axis[a].axis;
      axis = given >= 0 ? axes.axis[given] : ResampleAxis{};
      plan.axis[a].per_step = axis.step > 0 ? 1 / axis.step : 0;
      plan.size[a] = transposed ? axis.in : axis.out;
      entries += axis.out * axis.taps();
    }
    plan.channels = y.shape[1];
    strides_of_volume(x, plan.x);
    strides_of_volume(y, plan.y);
    const Scratch places(args, sizeof(int64_t) * static_cast<size_t>(entries));
    const Scratch weights(args, sizeof(A) * static_cast<size_t>(entries));
    int64_t first = 0;
    for (AxisTaps<A>& taps : plan.axis) {
      taps.places = places.as<int64_t>() + first;
      taps.weights = weights.as<A>() + first;
      const int64_t count = taps.axis.out * taps.axis.taps();
      first += count;
      launch(stream_of(args), blocks_for(count, kResampleThreads, 1 << 16), kResampleThreads, 0, find_taps<A>,
             taps);
    }
    launch(stream_of(args), blocks_for(n, kResampleThreads, 1 << 16), kResampleThreads, 0,
           transposed ? resample_gradients<A> : resample_elements<A>, elements_of(x), elements_of(y), plan,
           n);
  });
}

}  // namespace

void resample(const KernelArgs& args) { run_resample(args, "resample", false); }
void resample_backward(const KernelArgs& args) { run_resample(args, "resample_backward", true); }

}  // namespace mx::cuda
