#include "operators/kernels/recurrent_steps.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/recurrent_steps.cc"
#include <hwy/foreach_target.h>
// These must follow foreach_target.h.
#include "operators/kernels/gemm_pack-inl.h"
#include "operators/kernels/gemm_tile-inl.h"
#include "operators/kernels/math_f32-inl.h"
#include "operators/kernels/recurrent_cell-inl.h"
#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
namespace recurrent_steps {

using mx::kernels::detail::BackwardSteps;
using mx::kernels::detail::ForwardSteps;

// A sliver of packed weights of this depth fits the first-level cache together with the samples' rows.
template <class T>
inline constexpr int64_t kDepth = 1024 / static_cast<int64_t>(sizeof(T));

/// The packed matrix B (k, n): one part after the other along k, each made of slivers of columns.
template <class T>
struct PackedMatrix {
  int64_t k, n;

  int64_t parts() const { return (k + kDepth<T> - 1) / kDepth<T>; }
  int64_t depth(int64_t part) const { return std::min(kDepth<T>, k - part * kDepth<T>); }
  int64_t slivers() const { return (n + kTileCols<T> - 1) / kTileCols<T>; }
  /// Where a sliver of a part begins. All parts but the last have the same depth.
  int64_t at(int64_t part, int64_t sliver) const {
    return part * slivers() * sliver_elements<T>(kDepth<T>) + sliver * sliver_elements<T>(depth(part));
  }
  int64_t elements() const { return parts() * slivers() * sliver_elements<T>(kDepth<T>); }
  /// Vectors of columns of a sliver.
  int vectors(int64_t sliver) const { return n - sliver * kTileCols<T> > kLanes<T> ? 2 : 1; }

  /// Packs a part of B, whose element (i, j) is at b + i * rs + j * cs.
  void pack(T* to, int64_t part, const T* b, int64_t rs, int64_t cs) const {
    const int64_t depth_here = depth(part);
    const auto spare =
        static_cast<size_t>(std::max(slivers() * kTileCols<T>, kLanes<T> * (depth_here + kLanes<T>)));
    pack_b(to + at(part, 0), b + part * kDepth<T> * rs, rs, cs, depth_here, n,
           static_cast<T*>(thread_workspace(spare * sizeof(T))));
  }

  /// Computes one sliver of C (rows, n) = A B + beta C. Rows of A are a_rs apart, those of C c_rs.
  void product(const T* packed, int64_t sliver, int64_t rows, const T* a, int64_t a_rs, T* c, int64_t c_rs,
               T beta) const {
    TileCall<T> call{};
    call.a_rs = a_rs;
    call.a_ks = 1;
    call.c_rs = c_rs;
    call.alpha = T{1};
    const int wide = vectors(sliver);
    const int64_t tiles_down = (rows + kTileRows<T> - 1) / kTileRows<T>;
    for (int64_t part = 0; part < parts(); ++part) {
      call.k = depth(part);
      call.beta = part == 0 ? beta : T{1};
      for (int64_t s = 0; s < tiles_down; ++s) {
        const int64_t i = rows * s / tiles_down, height = rows * (s + 1) / tiles_down - i;
        tile_of<T>(height, wide)(call, a + i * a_rs + part * kDepth<T>, packed + at(part, sliver),
                                 wide * kLanes<T>, c + i * c_rs, nullptr);
      }
    }
  }
};

/// The distance of rows of n elements: with gaps, so that rows do not share cache sets.
template <class T>
constexpr int64_t pitch_of(int64_t n) {
  return (n + kTileCols<T> - 1) / kTileCols<T> * kTileCols<T> + 16;
}

template <class T>
size_t forward_size(int gates, int64_t hidden) {
  return static_cast<size_t>(gates * PackedMatrix<T>{hidden, hidden}.elements());
}

template <class T>
size_t backward_size(int gates, int64_t hidden) {
  return static_cast<size_t>(PackedMatrix<T>{gates * hidden, hidden}.elements());
}

template <class T>
void pack_for_forward(T* to, const T* weights, int gates, int64_t hidden) {
  const PackedMatrix<T> matrix{hidden, hidden};
  const int64_t parts = matrix.parts();
  parallel_for(gates * parts, hidden < 128 ? gates * parts : 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t gate = i / parts;
      // The transpose of the gate's matrix.
      matrix.pack(to + gate * matrix.elements(), i % parts, weights + gate * hidden * hidden, 1, hidden);
    }
  });
}

template <class T>
void pack_for_backward(T* to, const T* weights, int gates, int64_t hidden) {
  const PackedMatrix<T> matrix{gates * hidden, hidden};
  parallel_for(matrix.parts(), hidden < 128 ? matrix.parts() : 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) matrix.pack(to, part, weights, hidden, 1);
  });
}

/// Pieces of the thread's workspace, aligned to 64 bytes.
template <class T>
class Pieces {
 public:
  explicit Pieces(int64_t elements) : at_(static_cast<T*>(thread_workspace(bytes_of(elements)))) {}
  T* take(int64_t elements) {
    T* const taken = at_;
    at_ += (elements + 15) / 16 * 16;
    return taken;
  }

 private:
  static size_t bytes_of(int64_t elements) { return static_cast<size_t>(elements + 8 * 16) * sizeof(T); }
  T* at_;
};

/// The samples of a block that take part in step t.
inline int64_t active_in(const SequencePlan& plan, int64_t t, int64_t begin, int64_t end) {
  return std::clamp<int64_t>(plan.size(t) - begin, 0, end - begin);
}

template <class T, RecurrentCell kCell>
void forward_of(const ForwardSteps<T>& s, int64_t begin, int64_t end) {
  constexpr int kGates = gates_of(kCell);
  const int64_t hidden = s.hidden, samples = end - begin, pitch = pitch_of<T>(hidden);
  const SequencePlan& plan = s.sequence.plan;
  const PackedMatrix<T> matrix{hidden, hidden};
  const int64_t sums_pitch = kGates * kTileCols<T>;
  Pieces<T> pieces(3 * samples * pitch + samples * sums_pitch);
  T* now = pieces.take(samples * pitch);
  T* next = pieces.take(samples * pitch);
  T* const cells = pieces.take(samples * pitch);
  T* const sums = pieces.take(samples * sums_pitch);
  for (int64_t r = 0; r < samples; ++r) {
    const int64_t from = (begin + r) * hidden;
    std::copy_n(s.h0 + from, hidden, now + r * pitch);
    std::copy_n(s.h0 + from, hidden, next + r * pitch);
    if constexpr (kCell == RecurrentCell::lstm) std::copy_n(s.c0 + from, hidden, cells + r * pitch);
  }
  for (int64_t k = s.step; k < s.step_end; ++k) {
    const int64_t t = s.sequence.reverse ? plan.steps() - 1 - k : k;
    const int64_t active = active_in(plan, t, begin, end), first = plan.first(t) + begin - s.first_row;
    if (active == 0) continue;
    for (int64_t sliver = 0; sliver < matrix.slivers(); ++sliver) {
      const int64_t j = sliver * kTileCols<T>, width = std::min<int64_t>(kTileCols<T>, hidden - j);
      for (int g = 0; g < kGates; ++g)
        matrix.product(s.packed + g * matrix.elements(), sliver, active, now, pitch, sums + g * kTileCols<T>,
                       sums_pitch, T{0});
      for (int64_t r = 0; r < active; ++r) {
        const int64_t row = first + r;
        CellRow<T> at{};
        at.hidden = hidden;
        at.count = width;
        at.x = s.x + row * kGates * hidden + j;
        at.sums = sums + r * sums_pitch;
        at.bias = s.bias == nullptr ? nullptr : s.bias + j;
        at.before = now + r * pitch + j;
        at.state = next + r * pitch + j;
        at.y = s.y + row * hidden + j;
        if constexpr (kCell == RecurrentCell::lstm) {
          at.cell = cells + r * pitch + j;
          at.kept_cell = s.cells == nullptr ? nullptr : s.cells + row * hidden + j;
        }
        if constexpr (kCell == RecurrentCell::lstm || kCell == RecurrentCell::gru)
          at.activations = s.activations == nullptr ? nullptr : s.activations + row * 4 * hidden + j;
        cell_forward<T, kCell>(at);
      }
    }
    std::swap(now, next);
    // Samples that have not begun yet have their initial state in both buffers.
  }
  for (int64_t r = 0; r < samples; ++r) {
    const int64_t to = (begin + r) * hidden;
    if (s.h_last != nullptr) std::copy_n(now + r * pitch, hidden, s.h_last + to);
    if (kCell == RecurrentCell::lstm && s.c_last != nullptr)
      std::copy_n(cells + r * pitch, hidden, s.c_last + to);
  }
}

template <class T, RecurrentCell kCell>
void backward_of(const BackwardSteps<T>& s, int64_t begin, int64_t end) {
  constexpr int kGates = gates_of(kCell);
  constexpr bool kGru = kCell == RecurrentCell::gru, kLstm = kCell == RecurrentCell::lstm;
  const int64_t hidden = s.hidden, samples = end - begin, pitch = pitch_of<T>(hidden);
  const int64_t gate_pitch = pitch_of<T>(kGates * hidden);
  const SequencePlan& plan = s.sequence.plan;
  const PackedMatrix<T> matrix{kGates * hidden, hidden};
  Pieces<T> pieces(2 * samples * pitch + samples * gate_pitch);
  T* const dh = pieces.take(samples * pitch);
  T* const dc = pieces.take(samples * pitch);
  T* const dproduct = pieces.take(samples * gate_pitch);
  std::fill_n(dh, samples * pitch, T{0});
  std::fill_n(dc, samples * pitch, T{0});
  for (int64_t k = plan.steps() - 1; k >= 0; --k) {
    const int64_t t = s.sequence.reverse ? plan.steps() - 1 - k : k;
    const int64_t before = s.sequence.reverse ? t + 1 : t - 1;
    const int64_t active = active_in(plan, t, begin, end), first = plan.first(t) + begin;
    if (active == 0) continue;
    const int64_t continued = before < 0 || before >= plan.steps() ? 0 : active_in(plan, before, begin, end);
    for (int64_t r = 0; r < active; ++r) {
      const int64_t row = first + r;
      // The state before this step: an earlier result, or the initial state.
      const auto state_before = [&](const T* states, const T* initial) {
        return r < continued ? states + (plan.first(before) + begin + r) * hidden
                             : initial + (begin + r) * hidden;
      };
      CellGradientRow<T> at{};
      at.hidden = hidden;
      at.dy = s.dy + row * hidden;
      at.dh = dh + r * pitch;
      at.dc = dc + r * pitch;
      at.dproduct = dproduct + r * gate_pitch;
      if constexpr (kLstm) {
        at.cell = s.cells + row * hidden;
        at.cell_before = state_before(s.cells, s.c0);
        at.dcell = s.dcells == nullptr ? nullptr : s.dcells + row * hidden;
      } else {
        at.y = s.y + row * hidden;
      }
      if constexpr (kLstm || kGru) at.activations = s.activations + row * 4 * hidden;
      if constexpr (kGru) {
        at.before = state_before(s.y, s.h0);
        at.dx = s.dx + row * kGates * hidden;
      }
      cell_backward<T, kCell>(at);
      std::copy_n(at.dproduct, kGates * hidden, (kGru ? s.dproduct : s.dx) + row * kGates * hidden);
    }
    for (int64_t sliver = 0; sliver < matrix.slivers(); ++sliver)
      matrix.product(s.packed, sliver, active, dproduct, gate_pitch, dh + sliver * kTileCols<T>, pitch,
                     kGru ? T{1} : T{0});
  }
  for (int64_t r = 0; r < samples; ++r) {
    std::copy_n(dh + r * pitch, hidden, s.dh0 + (begin + r) * hidden);
    if constexpr (kLstm) std::copy_n(dc + r * pitch, hidden, s.dc0 + (begin + r) * hidden);
  }
}

template <class F>
void with_cell(RecurrentCell cell, const F& f) {
  switch (cell) {
    case RecurrentCell::tanh:
      return f(std::integral_constant<RecurrentCell, RecurrentCell::tanh>());
    case RecurrentCell::relu:
      return f(std::integral_constant<RecurrentCell, RecurrentCell::relu>());
    case RecurrentCell::lstm:
      return f(std::integral_constant<RecurrentCell, RecurrentCell::lstm>());
    case RecurrentCell::gru:
      return f(std::integral_constant<RecurrentCell, RecurrentCell::gru>());
  }
}

template <class T>
void forward(const ForwardSteps<T>& steps, int64_t begin, int64_t end) {
  with_cell(steps.sequence.cell, [&](auto cell) { forward_of<T, decltype(cell)::value>(steps, begin, end); });
}

template <class T>
void backward(const BackwardSteps<T>& steps, int64_t begin, int64_t end) {
  with_cell(steps.sequence.cell,
            [&](auto cell) { backward_of<T, decltype(cell)::value>(steps, begin, end); });
}

// Highway exports no templates.
size_t forward_size_f32(int gates, int64_t hidden) { return forward_size<float>(gates, hidden); }
size_t forward_size_f64(int gates, int64_t hidden) { return forward_size<double>(gates, hidden); }
size_t backward_size_f32(int gates, int64_t hidden) { return backward_size<float>(gates, hidden); }
size_t backward_size_f64(int gates, int64_t hidden) { return backward_size<double>(gates, hidden); }
void pack_forward_f32(float* to, const float* w, int gates, int64_t n) { pack_for_forward(to, w, gates, n); }
void pack_forward_f64(double* to, const double* w, int gates, int64_t n) {
  pack_for_forward(to, w, gates, n);
}
void pack_backward_f32(float* to, const float* w, int gates, int64_t n) {
  pack_for_backward(to, w, gates, n);
}
void pack_backward_f64(double* to, const double* w, int gates, int64_t n) {
  pack_for_backward(to, w, gates, n);
}
void forward_f32(const ForwardSteps<float>& s, int64_t begin, int64_t end) { forward(s, begin, end); }
void forward_f64(const ForwardSteps<double>& s, int64_t begin, int64_t end) { forward(s, begin, end); }
void backward_f32(const BackwardSteps<float>& s, int64_t begin, int64_t end) { backward(s, begin, end); }
void backward_f64(const BackwardSteps<double>& s, int64_t begin, int64_t end) { backward(s, begin, end); }

}  // namespace recurrent_steps
using recurrent_steps::backward_f32;
using recurrent_steps::backward_f64;
using recurrent_steps::backward_size_f32;
using recurrent_steps::backward_size_f64;
using recurrent_steps::forward_f32;
using recurrent_steps::forward_f64;
using recurrent_steps::forward_size_f32;
using recurrent_steps::forward_size_f64;
using recurrent_steps::pack_backward_f32;
using recurrent_steps::pack_backward_f64;
using recurrent_steps::pack_forward_f32;
using recurrent_steps::pack_forward_f64;
}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels::detail {
HWY_EXPORT(forward_size_f32);
HWY_EXPORT(forward_size_f64);
HWY_EXPORT(backward_size_f32);
HWY_EXPORT(backward_size_f64);
HWY_EXPORT(pack_forward_f32);
HWY_EXPORT(pack_forward_f64);
HWY_EXPORT(pack_backward_f32);
HWY_EXPORT(pack_backward_f64);
HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_f64);

template <>
size_t packed_forward_size<float>(int gates, int64_t hidden) {
  return HWY_DYNAMIC_DISPATCH(forward_size_f32)(gates, hidden);
}
template <>
size_t packed_forward_size<double>(int gates, int64_t hidden) {
  return HWY_DYNAMIC_DISPATCH(forward_size_f64)(gates, hidden);
}
template <>
size_t packed_backward_size<float>(int gates, int64_t hidden) {
  return HWY_DYNAMIC_DISPATCH(backward_size_f32)(gates, hidden);
}
template <>
size_t packed_backward_size<double>(int gates, int64_t hidden) {
  return HWY_DYNAMIC_DISPATCH(backward_size_f64)(gates, hidden);
}
template <>
void pack_forward<float>(float* to, const float* weights, int gates, int64_t hidden) {
  HWY_DYNAMIC_DISPATCH(pack_forward_f32)(to, weights, gates, hidden);
}
template <>
void pack_forward<double>(double* to, const double* weights, int gates, int64_t hidden) {
  HWY_DYNAMIC_DISPATCH(pack_forward_f64)(to, weights, gates, hidden);
}
template <>
void pack_backward<float>(float* to, const float* weights, int gates, int64_t hidden) {
  HWY_DYNAMIC_DISPATCH(pack_backward_f32)(to, weights, gates, hidden);
}
template <>
void pack_backward<double>(double* to, const double* weights, int gates, int64_t hidden) {
  HWY_DYNAMIC_DISPATCH(pack_backward_f64)(to, weights, gates, hidden);
}
template <>
void forward_steps<float>(const ForwardSteps<float>& steps, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_f32)(steps, begin, end);
}
template <>
void forward_steps<double>(const ForwardSteps<double>& steps, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_f64)(steps, begin, end);
}
template <>
void backward_steps<float>(const BackwardSteps<float>& steps, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_f32)(steps, begin, end);
}
template <>
void backward_steps<double>(const BackwardSteps<double>& steps, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_f64)(steps, begin, end);
}
}  // namespace mx::kernels::detail
#endif
