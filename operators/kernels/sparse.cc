#include "operators/kernels/sparse.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/base/check.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/index_check.h"
#include "operators/kernels/sparse_rows.h"
#include "operators/scratch.h"

namespace mx::kernels {
namespace {

using detail::OffsetsEnd;

constexpr int64_t kSparsePiece = 32768;  // multiply-adds of one piece of a parallel loop

/// A tensor as contiguous elements of a given type: the tensor itself, or a converted copy.
class SparseInput {
 public:
  SparseInput(const KernelArgs& args, const Tensor& x, DType dtype) : tensor_(x) {
    if (x.dtype == dtype && x.contiguous()) return;
    copy_.emplace(args, static_cast<size_t>(x.numel()) * size_of(dtype));
    tensor_ = {copy_->data(), dtype, x.shape, contiguous_strides(x.shape)};
    copy(tensor_, x);
  }
  template <class T>
  const T* as() const {
    return tensor_.as<T>();
  }
  const Tensor& tensor() const { return tensor_; }

 private:
  std::optional<Scratch> copy_;
  Tensor tensor_;
};

/// Memory for contiguous results of a given type: the output's own, or a buffer, which store() copies to the
/// output.
class SparseOutput {
 public:
  SparseOutput(const KernelArgs& args, const Tensor& out, DType dtype) : out_(out), tensor_(out) {
    if (out.dtype == dtype && out.contiguous()) return;
    buffer_.emplace(args, static_cast<size_t>(out.numel()) * size_of(dtype));
    tensor_ = {buffer_->data(), dtype, out.shape, contiguous_strides(out.shape)};
  }
  template <class T>
  T* as() const {
    return tensor_.as<T>();
  }
  void store() const {
    if (buffer_) copy(out_, tensor_);
  }

 private:
  const Tensor out_;
  std::optional<Scratch> buffer_;
  Tensor tensor_;
};

/// Calls f(tag) with the type in which values of `type` are computed.
template <class F>
void visit_compute(DType type, F&& f) {
  if (type == f64) {
    f(mx::detail::TypeTag<double>{});
  } else {
    f(mx::detail::TypeTag<float>{});
  }
}

/// Checked pointers or offsets.
class Offsets {
 public:
  Offsets(const KernelArgs& args, const Tensor& offsets, int64_t entries, const char* what, const char* op)
      : plain_(args, offsets, i64), count(offsets.shape[0] - 1) {
    detail::check_offsets({data(), static_cast<size_t>(count + 1)}, entries, OffsetsEnd::exact, what, op);
  }
  const int64_t* data() const { return plain_.as<int64_t>(); }
  /// Returns how many of them make a piece with about kSparsePiece elements, if an entry has `width`.
  int64_t grain(int64_t width) const {
    const int64_t work = data()[count] * std::max<int64_t>(width, 1) + count;
    return std::max<int64_t>(1, count * kSparsePiece / std::max<int64_t>(work, 1));
  }

 private:
  SparseInput plain_;

 public:
  const int64_t count;
};

/// Checks the pattern of a matrix. Calls f(pointers, columns, y), where `columns` points to contiguous i32 or
/// i64 and `y` to contiguous memory for results, in the type in which they are computed.
template <class F>
void visit_csr(const KernelArgs& args, const CsrPattern& a, const Tensor& out, const char* op, F&& f) {
  const Offsets pointers(args, a.pointers, a.columns.shape[0], "row pointers", op);
  detail::check_indices(a.columns, 0, a.width, 1, IndexMode::raise, op);
  const SparseInput columns(args, a.columns, a.columns.dtype);
  const SparseOutput y(args, out, accumulation_type(out.dtype));
  detail::visit_index(a.columns.dtype, [&](auto index) {
    visit_compute(out.dtype, [&](auto number) {
      f(pointers, columns.as<typename decltype(index)::type>(),
        y.template as<typename decltype(number)::type>());
    });
  });
  y.store();
}

}  // namespace

void csr_matmul(const KernelArgs& args, const Tensor& out, const Tensor& values, const CsrPattern& a,
                const Tensor& dense) {
  const DType type = accumulation_type(out.dtype);
  const SparseInput v(args, values, type), x(args, dense, type);
  visit_csr(args, a, out, "csr_matmul", [&]<class T>(const Offsets& pointers, const auto* columns, T* y) {
    const int64_t n = dense.shape[1];
    const int64_t* const p = pointers.data();
    parallel_for(pointers.count, pointers.grain(n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        detail::sparse_row_product({v.as<T>() + p[i], columns + p[i], p[i + 1] - p[i], x.as<T>(), n, n},
                                   y + i * n);
    });
  });
}

void csr_matmul_transposed(const KernelArgs& args, const Tensor& out, const Tensor& values,
                           const CsrPattern& a, const Tensor& dense) {
  const DType type = accumulation_type(out.dtype);
  const SparseInput v(args, values, type), x(args, dense, type);
  visit_csr(args, a, out, "csr_matmul", [&]<class T>(const Offsets& pointers, const auto* columns, T* y) {
    const int64_t n = dense.shape[1], rows = out.shape[0];
    const int64_t* const p = pointers.data();
    // Two rows of A may have entries in one column, so the loop over the rows cannot be split. Each piece
    // takes some columns of `dense` instead, whole cache lines. Each reads all of A, so there are no more
    // pieces than threads; how many there are does not change the order in which an element's terms are
    // added.
    const int64_t line = 64 / static_cast<int64_t>(sizeof(T)), pieces = std::max(parallel_width(), 1);
    const int64_t slice = (std::max<int64_t>(n, 1) + pieces * line - 1) / (pieces * line) * line;
    const bool small = (p[pointers.count] + rows) * n <= kSparsePiece;
    parallel_for(n, small ? std::max<int64_t>(n, 1) : slice, [&](int64_t begin, int64_t end) {
      T* const to = y + begin;
      for (int64_t i = 0; i < rows; ++i) std::fill_n(to + i * n, end - begin, T{0});
      for (int64_t i = 0; i < pointers.count; ++i)
        detail::scatter_sparse_row(
            {v.as<T>() + p[i], columns + p[i], p[i + 1] - p[i], x.as<T>() + i * n + begin, n, end - begin},
            to);
    });
  });
}

void csr_sample(const KernelArgs& args, const Tensor& out, const Tensor& left, const Tensor& right,
                const CsrPattern& a) {
  const DType type = accumulation_type(out.dtype);
  const SparseInput l(args, left, type), r(args, right, type);
  visit_csr(args, a, out, "csr_sample", [&]<class T>(const Offsets& pointers, const auto* columns, T* y) {
    const int64_t n = left.shape[1];
    const int64_t* const p = pointers.data();
    parallel_for(pointers.count, pointers.grain(n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        detail::sample_sparse_row({l.as<T>() + i * n, columns + p[i], p[i + 1] - p[i], r.as<T>(), n, n},
                                  y + p[i]);
    });
  });
}

namespace {

/// Calls run(first, rows, n, x, y, s) for each segment s of `rows` rows from `first` on, where x and y point
/// to the contiguous elements of both arrays, in the type in which they are computed, and a row has n of
/// them.
template <class Run>
void each_segment(const KernelArgs& args, const Tensor& out, const Tensor& x, const Tensor& offsets,
                  const char* op, const Run& run) {
  const Offsets at(args, offsets, x.shape[0], "offsets", op);
  visit_compute(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const SparseInput from(args, x, accumulation_type(out.dtype));
    const SparseOutput y(args, out, accumulation_type(out.dtype));
    int64_t n = 1;
    for (int i = 1; i < x.rank(); ++i) n *= x.shape[i];
    parallel_for(at.count, at.grain(n), [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s)
        run(at.data()[s], at.data()[s + 1] - at.data()[s], n, from.as<T>(), y.template as<T>(), s);
    });
    y.store();
  });
}

}  // namespace

void segment_reduce(const KernelArgs& args, const Tensor& out, const Tensor& x, const Tensor& offsets,
                    SegmentReduce how) {
  each_segment(args, out, x, offsets, name_of(how),
               [how]<class T>(int64_t first, int64_t rows, int64_t n, const T* from, T* y, int64_t s) {
                 T* const to = y + s * n;
                 if (rows == 0)
                   std::fill_n(to, n, T{0});
                 else
                   detail::reduce_segment(how, from + first * n, rows, n, to);
               });
}

void segment_softmax(const KernelArgs& args, const Tensor& out, const Tensor& x, const Tensor& offsets) {
  each_segment(args, out, x, offsets, "segment_softmax",
               []<class T>(int64_t first, int64_t rows, int64_t n, const T* from, T* y, int64_t) {
                 if (rows > 0) detail::softmax_segment(from + first * n, rows, n, y + first * n);
               });
}

void segment_expand(const KernelArgs& args, const Tensor& out, const Tensor& x, const Tensor& offsets) {
  const Offsets at(args, offsets, out.shape[0], "offsets", "segment_expand");
  const SparseInput from(args, x, out.dtype);
  const SparseOutput y(args, out, out.dtype);
  int64_t n = 1;
  for (int i = 1; i < x.rank(); ++i) n *= x.shape[i];
  const size_t bytes = static_cast<size_t>(n) * size_of(out.dtype);
  parallel_for(at.count, at.grain(n), [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s)
      for (int64_t i = at.data()[s]; i < at.data()[s + 1] && bytes > 0; ++i)
        std::memcpy(y.as<std::byte>() + static_cast<size_t>(i) * bytes,
                    from.as<std::byte>() + static_cast<size_t>(s) * bytes, bytes);
  });
  y.store();
}

void segment_offsets(const Tensor& out, const Tensor& ids) {
  const int64_t segments = out.shape[0] - 1, n = ids.shape[0], step = ids.strides[0];
  detail::check_indices(ids, 0, segments, 0, IndexMode::raise, "segment_offsets");
  detail::visit_index(ids.dtype, [&](auto tag) {
    using I = typename decltype(tag)::type;
    const I* const id = ids.as<I>();
    for (int64_t i = 1; i < n; ++i)
      if (id[(i - 1) * step] > id[i * step])
        throw InvalidArgument(
            detail::bad_order("segment_offsets", "ids", id[(i - 1) * step], id[i * step], i));
    int64_t* const to = out.as<int64_t>();
    const int64_t stride = out.strides[0];
    int64_t next = 0;
    for (int64_t i = 0; i < n; ++i)
      while (next <= static_cast<int64_t>(id[i * step])) to[next++ * stride] = i;
    while (next <= segments) to[next++ * stride] = n;
  });
}

}  // namespace mx::kernels
