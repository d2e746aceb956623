// Elements of a normalisation, converted to the type of the computation if necessary. Internal.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ndarray/tensor.h"
#include "operators/kernels/norm_rows.h"
#include "operators/kernels/row_convert.h"

namespace mx::kernels::detail {

/// Elements that are converted and folded at a time.
inline constexpr int64_t kNormChunk = 2048;
/// From this length on, a run of elements with one weight is a loop of its own.
inline constexpr int64_t kNormRun = 16;

/// Reads a contiguous tensor.
template <class A>
class NormInput {
 public:
  explicit NormInput(const Tensor& x) : data_(x.data), dtype_(x.dtype) {}

  /// Returns n <= kNormChunk elements. They are valid until the next call.
  const A* load(int64_t first, int64_t n) {
    if (dtype_ == dtype_of<A>) return static_cast<const A*>(data_) + first;
    if (first >= first_ && first + n <= first_ + n_) return buffer_ + (first - first_);
    load_run<A>(buffer_, data_, dtype_, first, 1, n);
    first_ = first;
    n_ = n;
    return buffer_;
  }
  /// Returns `count` runs of n elements, `pitch` apart, together at most kNormChunk elements.
  Runs<A> load(int64_t first, int64_t count, int64_t pitch, int64_t n) {
    if (dtype_ == dtype_of<A>) return {static_cast<const A*>(data_) + first, count, pitch, n};
    for (int64_t r = 0; r < count; ++r) load_run<A>(buffer_ + r * n, data_, dtype_, first + r * pitch, 1, n);
    n_ = 0;
    return {buffer_, count, n, n};
  }

 private:
  const void* data_;
  DType dtype_;
  int64_t first_ = 0, n_ = 0;  // of the elements in the buffer
  alignas(64) A buffer_[kNormChunk];
};

/// Writes a contiguous tensor.
template <class A>
class NormOutput {
 public:
  explicit NormOutput(const Tensor& y) : data_(y.data), dtype_(y.dtype) {}

  /// Returns where to write n <= kNormChunk elements; store() of the same elements completes them.
  A* place(int64_t first) { return dtype_ == dtype_of<A> ? static_cast<A*>(data_) + first : buffer_; }
  void store(int64_t first, int64_t n) {
    if (dtype_ != dtype_of<A>) store_run<A>(data_, dtype_, first, 1, buffer_, n);
  }

 private:
  void* data_;
  DType dtype_;
  alignas(64) A buffer_[kNormChunk];
};

/// Calls f(offset, count) for the chunks of n elements.
template <class F>
void each_norm_chunk(int64_t n, const F& f) {
  for (int64_t i = 0; i < n; i += kNormChunk) f(i, std::min(kNormChunk, n - i));
}

/// Mean and rstd of a group, and the numbers with which (x - shift) * scale + offset is (x - mean) * rstd.
template <class A>
struct NormScale {
  double mean, rstd;
  A shift, scale, offset;
  NormScale(const Moments& moments, double eps)
      : mean(moments.count == 0 ? std::nan("") : moments.mean),
        rstd(1 / std::sqrt(moments.squares / moments.count + eps)),
        shift(static_cast<A>(mean)),
        scale(static_cast<A>(rstd)),
        offset(static_cast<A>((shift - mean) * rstd)) {}
  A scale_by(double weight) const { return static_cast<A>(rstd * weight); }
  A offset_by(double weight, double bias) const {
    return static_cast<A>((shift - mean) * rstd * weight + bias);
  }
};

/// The numbers with which p * dy * weight + q * (x - mean) + r is the gradient in x.
template <class A>
struct NormSlope {
  double p, q, r;

  /// `dots` are the sums over the group, with the weight.
  NormSlope(const Dots& dots, double rstd, double n, bool centred)
      : p(rstd), q(-rstd * rstd * (dots.dy_x * rstd / n)), r(centred ? -rstd * (dots.dy / n) : 0) {}
  A p_by(double weight) const { return static_cast<A>(p * weight); }
  A q_of() const { return static_cast<A>(q); }
  A r_of() const { return static_cast<A>(r); }
};

template <class A>
const A* data_of(const Tensor* t) {
  return t == nullptr ? nullptr : t->as<A>();
}

}  // namespace mx::kernels::detail
