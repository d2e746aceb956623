#include "operators/kernels/rotary.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ndarray/kernels/convert_rows.h"
#include "ndarray/kernels/parallel.h"
#include "operators/scratch.h"

namespace mx::kernels {
namespace {

constexpr int64_t kRotaryGrain = 1 << 14;  // elements in a piece of a loop

/// cos and sin of all pairs of one position, one array behind the other.
template <class C>
void rotary_row(const C* from, C* to, const C* table, int64_t pairs, bool interleaved) {
  const C *const cosine = table, *const sine = table + pairs;
  const int64_t step = interleaved ? 2 : 1, other = interleaved ? 1 : pairs;
  for (int64_t i = 0; i < pairs; ++i) {
    const C a = from[i * step], b = from[i * step + other];
    to[i * step] = a * cosine[i] - b * sine[i];
    to[i * step + other] = b * cosine[i] + a * sine[i];
  }
}

template <class C>
void rotary_of(const KernelArgs& args, const Tensor& y, const Tensor& x, const RotaryOptions& o) {
  const int rank = x.shape.rank();
  const int64_t length = x.shape[rank - 2], width = x.shape[rank - 1], pairs = o.dims / 2;
  const int64_t rows = width > 0 ? x.shape.numel() / width : 0;
  if (rows == 0) return;
  const Scratch memory(args, sizeof(C) * static_cast<size_t>(length * o.dims));
  C* const tables = memory.as<C>();
  parallel_for(length, std::max<int64_t>(1, kRotaryGrain / 16 / std::max<int64_t>(pairs, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t l = begin; l < end; ++l)
                   for (int64_t i = 0; i < pairs; ++i) {
                     const double angle = rotary_angle(static_cast<double>(o.offset + l), i, o.dims, o.theta);
                     tables[l * o.dims + i] = static_cast<C>(std::cos(angle));
                     tables[l * o.dims + pairs + i] =
                         static_cast<C>(o.inverse ? -std::sin(angle) : std::sin(angle));
                   }
               });
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
        rotary_row(in, out, table, pairs, o.interleaved);
        if (out != in) std::copy(in + o.dims, in + width, out + o.dims);
      } else {
        read(buffer, 1, source, x.strides[rank - 1], width);
        rotary_row(buffer, buffer, table, pairs, o.interleaved);
        write(target, y.strides[rank - 1], buffer, 1, width);
      }
    }
  });
}

}  // namespace

void rotary(const KernelArgs& args, const Tensor& y, const Tensor& x, const RotaryOptions& options) {
  if (x.dtype == f64)
    rotary_of<double>(args, y, x, options);
  else
    rotary_of<float>(args, y, x, options);
}

}  // namespace mx::kernels
