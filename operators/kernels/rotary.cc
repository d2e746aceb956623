#include "operators/kernels/rotary.h"

#include <algorithm>
#include <cmath>

#include "ndarray/kernels/convert_rows.h"
#include "ndarray/kernels/parallel.h"
#include "operators/formulas.h"
#include "operators/kernels/rotary_rows.h"
#include "operators/scratch.h"

namespace mx::kernels {
namespace {

using formulas::floored_quotient;

constexpr int64_t kRotaryGrain = 1 << 14;  // elements in a piece of a loop

/// Fills a table of `count` positions from `first` on, `step` apart: the cosines of all pairs of a position,
/// then the sines.
void fill_angles(double* table, int64_t first, int64_t step, int64_t count, const double* frequencies,
                 int64_t pairs) {
  for (int64_t k = 0; k < count; ++k, table += 2 * pairs)
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(first + k * step) * frequencies[i];
      table[i] = std::cos(angle);
      table[pairs + i] = std::sin(angle);
    }
}

int64_t table_grain(int64_t pairs, int64_t positions) {
  return std::max<int64_t>(1, kRotaryGrain / 16 / positions / std::max<int64_t>(pairs, 1));
}

/// Fills the table of `length` positions from o.offset on.
void fill_tables(const KernelArgs&, double* tables, int64_t length, const RotaryParams& o,
                 const double* frequencies) {
  const int64_t pairs = o.dims / 2;
  parallel_for(length, table_grain(pairs, 1), [&](int64_t begin, int64_t end) {
    fill_angles(tables + begin * o.dims, o.offset + begin, 1, end - begin, frequencies, pairs);
    for (int64_t l = begin; o.inverse && l < end; ++l)
      for (int64_t i = pairs; i < o.dims; ++i) tables[l * o.dims + i] = -tables[l * o.dims + i];
  });
}

/// The same in float. The C library's functions would take longer than all the rest, so a position is the sum
/// of a multiple of kFar and of a rest, whose angles are added in double. A position has the same bits in
/// every call.
void fill_tables(const KernelArgs& args, float* tables, int64_t length, const RotaryParams& o,
                 const double* frequencies) {
  constexpr int64_t kFar = 32;
  const int64_t pairs = o.dims / 2;
  const double sign = o.inverse ? -1 : 1;
  const int64_t first = floored_quotient(o.offset, kFar),
                last = floored_quotient(o.offset + length - 1, kFar);
  const auto bytes = [&](int64_t positions) {
    return sizeof(double) * static_cast<size_t>(positions * o.dims);
  };
  const Scratch near_memory(args, bytes(kFar));
  double* const near = near_memory.as<double>();
  const bool all = length >= kFar;
  if (all) fill_angles(near, 0, 1, kFar, frequencies, pairs);
  parallel_for(last - first + 1, table_grain(pairs, kFar), [&](int64_t begin, int64_t end) {
    const Scratch far_memory(args, bytes(1));
    double* const far = far_memory.as<double>();
    for (int64_t multiple = first + begin; multiple < first + end; ++multiple) {
      fill_angles(far, multiple * kFar, 1, 1, frequencies, pairs);
      const int64_t l_end = std::min(length, (multiple + 1) * kFar - o.offset);
      for (int64_t l = std::max<int64_t>(0, multiple * kFar - o.offset); l < l_end; ++l) {
        const int64_t rest = o.offset + l - multiple * kFar;
        double* const add = near + rest * o.dims;
        if (!all) fill_angles(add, rest, 1, 1, frequencies, pairs);
        float* const to = tables + l * o.dims;
        detail::add_angles(far, far + pairs, add, add + pairs, pairs, sign, to, to + pairs);
      }
    }
  });
}

template <class C>
void rotary_of(const KernelArgs& args, const Tensor& y, const Tensor& x, const RotaryParams& o) {
  const int rank = x.shape.rank();
  const int64_t length = x.shape[rank - 2], width = x.shape[rank - 1], pairs = o.dims / 2;
  const int64_t rows = width > 0 ? x.shape.numel() / width : 0;
  if (rows == 0) return;
  const Scratch frequency_memory(args, sizeof(double) * static_cast<size_t>(pairs));
  double* const frequencies = frequency_memory.as<double>();
  for (int64_t i = 0; i < pairs; ++i) frequencies[i] = rotary_angle(1.0, i, o.dims, o.theta);
  const Scratch memory(args, sizeof(C) * static_cast<size_t>(length * o.dims));
  C* const tables = memory.as<C>();
  fill_tables(args, tables, length, o, frequencies);
  const ConvertRow read = convert_row(dtype_of<C>, x.dtype), write = convert_row(y.dtype, dtype_of<C>);
  const bool direct = x.dtype == dtype_of<C> && x.strides[rank - 1] == 1 && y.strides[rank - 1] == 1;
  const int64_t grain = std::max<int64_t>(1, kRotaryGrain / width);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    const Scratch row_memory(args, direct ? 0 : sizeof(C) * static_cast<size_t>(width));
    C* const buffer = row_memory.as<C>();
    for (int64_t row = begin; row < end; ++row) {
      int64_t from = 0, to = 0, rest = row;
      for (int axis = rank - 2; axis >= 0; --axis) {
        const int64_t i = rest % x.shape[axis];
        rest /= x.shape[axis];
        from += i * x.strides[axis];
        to += i * y.strides[axis];
      }
      const C* const table = tables + row % length * o.dims;
      const void* const source = element_at(x.data, x.dtype, from);
      void* const target = element_at(y.data, y.dtype, to);
      if (direct) {
        const C* const in = static_cast<const C*>(source);
        C* const out = static_cast<C*>(target);
        detail::rotate_pairs(in, out, table, table + pairs, pairs, o.interleaved);
        if (out != in) std::copy(in + o.dims, in + width, out + o.dims);
      } else {
        read(buffer, 1, source, x.strides[rank - 1], width);
        detail::rotate_pairs(buffer, buffer, table, table + pairs, pairs, o.interleaved);
        write(target, y.strides[rank - 1], buffer, 1, width);
      }
    }
  });
}

}  // namespace

void rotary(const KernelArgs& args, const Tensor& y, const Tensor& x, const RotaryParams& options) {
  if (x.dtype == f64)
    rotary_of<double>(args, y, x, options);
  else
    rotary_of<float>(args, y, x, options);
}

}  // namespace mx::kernels
