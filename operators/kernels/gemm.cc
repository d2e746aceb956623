#include "operators/kernels/gemm.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/kernels/parallel.h"
#include "ndarray/shape.h"
#include "operators/kernels/gemm_product.h"

namespace mx::kernels {
namespace {

// Numbers of multiplications: below the first, one thread is faster than two; a piece should have at least
// the second.
constexpr double kParallelWork = 4e6;
constexpr double kPieceWork = 2e6;
// A vector times a matrix is limited by memory bandwidth, so its threshold counts elements.
constexpr double kParallelElements = 512e3;
// Blocks of C per thread. With more than one, a delayed thread holds up only its own block, and a thread that
// becomes free takes another. Two threads get one each if each block would pack B again.
constexpr int64_t kPiecesPerThread = 2;
// Smaller products gain nothing from a choice of their form.
constexpr double kSwappedWork = 1e6;
// Rows of A that are farther apart, in elements, share so few cache sets that they are better packed.
constexpr int64_t kSwappedStride = 1024;
// Limits of the size of C's blocks.
constexpr int64_t kMaxRows = 2048, kMaxCols = 1024, kMinRows = 56, kMinCols = 64;
// The limit if the sums of a block need a buffer because the elements have another type.
constexpr int64_t kMaxConvertedRows = 512;

double work_of(const Product& p) {
  return static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(std::max<int64_t>(p.k, 1));
}

/// The division of C into blocks for threads. It does not affect the order of an element's sum, which runs
/// over all of k.
struct Split {
  int64_t rows, cols;            // of a block
  int64_t down = 1, across = 1;  // blocks
  int64_t pieces() const { return down * across; }
};

int64_t pieces_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

Split split(const Product& p) {
  Split s{p.m, p.n};
  const double work = work_of(p);
  const bool vector = p.m == 1;
  if (work < (vector ? kParallelElements : kParallelWork)) return s;
  const int64_t width = parallel_width();
  const auto packs = [&] {
    return p.b_cs != 1 || p.m > kPiecesPerThread * width * gemm_rows_without_packing(p.dtype);
  };
  const bool one_each = width == 1 || (width == 2 && packs());
  const int64_t most = one_each ? width : kPiecesPerThread * width;
  const auto wanted = static_cast<int64_t>(
      std::min(static_cast<double>(most), work / (vector ? kParallelElements / 2 : kPieceWork)));
  const bool converted = p.dtype != DType::f32 && p.dtype != DType::f64;
  s.rows = std::min(p.m, converted ? kMaxConvertedRows : kMaxRows);
  s.cols = std::min(p.n, vector ? std::max(kMinCols, p.n / most) : kMaxCols);
  // Narrower blocks copy rows of A repeatedly, lower ones columns of B, which costs more.
  while (pieces_of(p.m, s.rows) * pieces_of(p.n, s.cols) < wanted) {
    if (s.cols > kMinCols && (s.cols > s.rows / 2 || s.rows <= kMinRows)) {
      s.cols = std::max(kMinCols, s.cols / 2);
    } else if (s.rows > kMinRows) {
      s.rows = std::max(kMinRows, s.rows / 2);
    } else {
      break;
    }
  }
  s.down = pieces_of(p.m, s.rows);
  s.rows = pieces_of(p.m, s.down);
  s.across = pieces_of(p.n, s.cols);
  s.cols = pieces_of(pieces_of(p.n, s.across), kMinCols) * kMinCols;
  s.across = pieces_of(p.n, s.cols);
  return s;
}

/// Returns whether A is transposed, so that its slivers must be packed, and B is so narrow that it is cheaper
/// to pack the slivers of B', to read A' in place, and to transpose the result.
bool packs_less_if_swapped(const Product& p) {
  return p.a_rs == 1 && p.a_cs != 1 && p.b_cs == 1 && p.b_rs != 1 && p.c_cs == 1 && p.bias == nullptr &&
         p.beta == 0 && p.n >= 16 && 4 * p.n <= p.m && p.a_cs <= kSwappedStride &&
         p.n <= gemm_rows_without_packing(p.dtype) && work_of(p) >= kSwappedWork;
}

Product checked(DType dtype, int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, void* c,
                int64_t c_row_stride, int64_t c_col_stride, const GemmOptions& options) {
  MX_CHECK(m >= 0 && n >= 0 && k >= 0, InvalidArgument, "[gemm] expected sizes of at least 0, got m = ", m,
           ", n = ", n, ", k = ", k);
  MX_CHECK(m == 0 || n == 0 || ((m == 1 || c_row_stride != 0) && (n == 1 || c_col_stride != 0)),
           InvalidArgument, "[gemm] expected elements of C that do not share memory, got strides (",
           c_row_stride, ", ", c_col_stride, ") for a shape of (", m, ", ", n, ")");
  MX_CHECK(!options.i32_result || ((dtype == i8 || dtype == u8) && options.bias == nullptr), InvalidArgument,
           "[gemm] expected i8 or u8 and no bias for a result of i32, got ", dtype);
  Product p;  // assigned field by field: a braced list would clear it first, which takes as long as a small
              // product
  p.dtype = dtype;
  p.result = options.i32_result ? i32 : dtype;
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = a.data;
  p.b = b.data;
  p.c = c;
  p.bias = options.bias;
  p.a_rs = a.row_stride;
  p.a_cs = a.col_stride;
  p.b_rs = b.row_stride;
  p.b_cs = b.col_stride;
  p.c_rs = c_row_stride;
  p.c_cs = c_col_stride;
  p.bias_rs = 0;
  p.bias_cs = options.bias_stride;
  p.alpha = options.alpha;
  p.beta = options.beta;
  if (k == 0 || options.alpha == 0) {
    p.k = 0;
    p.alpha = 1;                            // A B is an empty sum, and an infinite alpha must not make it NaN
    p.a_rs = p.a_cs = p.b_rs = p.b_cs = 0;  // no offset is added to the addresses, which may be null
  }
  if (n == 1 || (c_col_stride != 1 && c_row_stride == 1 && m != 1) || packs_less_if_swapped(p)) {
    // Computes the transposed product C' = B' A'.
    p.swapped = true;
    std::swap(p.m, p.n);
    std::swap(p.a, p.b);
    std::swap(p.a_rs, p.b_cs);
    std::swap(p.a_cs, p.b_rs);
    std::swap(p.c_rs, p.c_cs);
    std::swap(p.bias_rs, p.bias_cs);
  }
  return p;
}

/// Iterates over the indices of a batch; the offsets are in elements.
class BatchWalk {
 public:
  BatchWalk(std::span<const BatchDim> dims, int64_t index) : dims_(dims) {
    for (int d = static_cast<int>(dims.size()) - 1; d >= 0; --d) {
      const BatchDim& dim = dims[static_cast<size_t>(d)];
      at_[d] = index % dim.size;
      index /= dim.size;
      move(dim, at_[d]);
    }
  }
  void next() {
    for (int d = static_cast<int>(dims_.size()) - 1; d >= 0; --d) {
      const BatchDim& dim = dims_[static_cast<size_t>(d)];
      move(dim, 1);
      if (++at_[d] < dim.size) return;
      move(dim, -dim.size);
      at_[d] = 0;
    }
  }
  int64_t a() const { return a_; }
  int64_t b() const { return b_; }
  int64_t c() const { return c_; }

 private:
  void move(const BatchDim& dim, int64_t by) {
    a_ += by * dim.a_stride;
    b_ += by * dim.b_stride;
    c_ += by * dim.c_stride;
  }

  std::span<const BatchDim> dims_;
  int64_t at_[kMaxRank];
  int64_t a_ = 0, b_ = 0, c_ = 0;  // in elements
};

void run_piece(const Product& p, const Split& s, int64_t piece) {
  const int64_t i = piece / s.across * s.rows, j = piece % s.across * s.cols;
  gemm_block(p, i, std::min(i + s.rows, p.m), j, std::min(j + s.cols, p.n));
}

}  // namespace

void gemm(DType dtype, int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, void* c,
          int64_t c_row_stride, int64_t c_col_stride, const GemmOptions& options) {
  const Product p = checked(dtype, m, n, k, a, b, c, c_row_stride, c_col_stride, options);
  if (m == 0 || n == 0) return;
  const Split s = split(p);
  if (s.pieces() == 1) {
    gemm_block(p, 0, p.m, 0, p.n);
    return;
  }
  parallel_for(s.pieces(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) run_piece(p, s, piece);
  });
}

void gemm_batched(DType dtype, std::span<const BatchDim> batch, int64_t m, int64_t n, int64_t k,
                  const Matrix& a, const Matrix& b, void* c, int64_t c_row_stride, int64_t c_col_stride,
                  const GemmOptions& options) {
  MX_CHECK(batch.size() <= kMaxRank, InvalidArgument, "[gemm] expected at most ", kMaxRank,
           " batch dimensions, got ", batch.size());
  int64_t products = 1;
  for (const BatchDim& dim : batch) {
    MX_CHECK(dim.size >= 0, InvalidArgument, "[gemm] expected batch sizes of at least 0, got ", dim.size);
    MX_CHECK(dim.size <= 1 || dim.c_stride != 0, InvalidArgument,
             "[gemm] expected a separate C for every product of a batch, got a stride of 0 for ", dim.size,
             " products");
    products *= dim.size;
  }
  const Product first = checked(dtype, m, n, k, a, b, c, c_row_stride, c_col_stride, options);
  if (m == 0 || n == 0 || products == 0) return;
  const Split s = split(first);
  // Small products are assigned to threads in groups; large ones are split into pieces.
  const int64_t pieces = s.pieces();
  const int64_t grain =
      pieces > 1 ? 1 : std::max<int64_t>(1, static_cast<int64_t>(kPieceWork / work_of(first)));
  const auto element = static_cast<int64_t>(size_of(dtype)),
             element_of_c = static_cast<int64_t>(size_of(first.result));
  parallel_for(products * pieces, grain, [&](int64_t begin, int64_t end) {
    BatchWalk walk(batch, begin / pieces);
    int64_t piece = begin % pieces;
    for (int64_t i = begin; i < end; ++i) {
      Product p = first;
      const int64_t pa = first.swapped ? walk.b() : walk.a(), pb = first.swapped ? walk.a() : walk.b();
      p.a = static_cast<const char*>(first.a) + pa * element;
      p.b = static_cast<const char*>(first.b) + pb * element;
      p.c = static_cast<char*>(first.c) + walk.c() * element_of_c;
      run_piece(p, s, piece);
      if (++piece == pieces) {
        piece = 0;
        if (i + 1 < end) walk.next();
      }
    }
  });
}

}  // namespace mx::kernels
