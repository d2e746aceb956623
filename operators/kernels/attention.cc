#include "operators/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ndarray/kernels/convert_rows.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/attention_rows.h"
#include "operators/kernels/gemm.h"
#include "operators/kernels/random.h"
#include "operators/scratch.h"

namespace mx::kernels {
namespace attention_blocks {
namespace {

constexpr int64_t kRows = 64;   // of q, in a block
constexpr int64_t kKeys = 128;  // in a block
// A backward pass of fewer batches and groups cuts the keys into chunks, so that several threads have work.
constexpr int64_t kFewTasks = 16;
constexpr int64_t kLeastChunk = 4 * kKeys;

struct Sizes {
  int64_t batch, heads, groups, rows, keys, width, value_width;
  int64_t heads_of_group() const { return heads / groups; }
};

Sizes sizes_of(const Tensor& q, const Tensor& k, const Tensor& v) {
  return {q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]};
}

/// Consecutive rows of one head.
struct Rows {
  void* data;
  int64_t row_stride, col_stride, count, width;
  DType dtype;
};

Rows rows_of(const Tensor& t, int64_t b, int64_t h, int64_t first, int64_t count) {
  return {element_at(t.data, t.dtype, b * t.strides[0] + h * t.strides[1] + first * t.strides[2]),
          t.strides[2],
          t.strides[3],
          count,
          t.shape[3],
          t.dtype};
}

/// Gives `rows` as elements of type C that lie one behind the other: where they are, or in `buffer`. Rows
/// that lie far apart are copied, because they would share few cache sets.
template <class C>
const C* gathered(const Rows& rows, C* buffer) {
  constexpr DType type = dtype_of<C>;
  if (rows.dtype == type && rows.col_stride == 1) {
    const C* const data = static_cast<const C*>(rows.data);
    if (rows.row_stride == rows.width) return data;
    gather_rows(buffer, data, rows.row_stride, rows.count, rows.width);
    return buffer;
  }
  const ConvertRow convert = convert_row(type, rows.dtype);
  for (int64_t r = 0; r < rows.count && rows.width > 0; ++r)
    convert(buffer + r * rows.width, 1, element_at(rows.data, rows.dtype, r * rows.row_stride),
            rows.col_stride, rows.width);
  return buffer;
}

template <class C>
Matrix as_matrix(const Rows& rows, C* buffer) {
  return {const_cast<C*>(gathered(rows, buffer)), rows.width, 1};
}

/// Writes row r as from[r] * factors[r]; without `factors` as it is. The rows at `from` lie one behind the
/// other, and their contents are undefined afterwards.
template <class C>
void store_rows(C* from, const Rows& to, const C* factors = nullptr) {
  if (to.dtype == dtype_of<C> && to.col_stride == 1)
    return copy_rows(static_cast<C*>(to.data), to.row_stride, from, to.count, to.width, factors);
  const ConvertRow convert = convert_row(to.dtype, dtype_of<C>);
  for (int64_t r = 0; r < to.count && to.width > 0; ++r) {
    C* const row = from + r * to.width;
    if (factors != nullptr) scale_row(row, to.width, factors[r]);
    convert(element_at(to.data, to.dtype, r * to.row_stride), to.col_stride, row, 1, to.width);
  }
}

/// The elements of rows of one head in an array of one element per row.
template <class C>
void read_rows(C* to, const Tensor& t, int64_t b, int64_t h, int64_t first, int64_t count) {
  const int64_t at = b * t.strides[0] + h * t.strides[1] + first * t.strides[2];
  convert_row(dtype_of<C>, t.dtype)(to, 1, element_at(t.data, t.dtype, at), t.strides[2], count);
}

Matrix transposed(const Matrix& m) { return {m.data, m.col_stride, m.row_stride}; }

/// Which scores count, and what is added to them.
struct Mask {
  Mask(const Tensor* given, const Sizes& n, const AttentionParams& o) : options(o), keys(n.keys) {
    options.causal_offset = std::clamp(o.causal_offset, -n.rows, n.keys);  // beyond, nothing changes
    if (given != nullptr) mask = given->broadcast({n.batch, n.heads, n.rows, n.keys});
  }

  /// The number of keys to which row i of q may attend.
  int64_t limit(int64_t i) const {
    return options.causal ? std::clamp<int64_t>(i + options.causal_offset + 1, 0, keys) : keys;
  }

  /// Applies it to scores of rows from i on and keys from j on.
  template <class C>
  void apply(C* scores, int64_t b, int64_t h, int64_t i, int64_t rows, int64_t j, int64_t count) const {
    constexpr C kOut = -std::numeric_limits<C>::infinity();
    for (int64_t r = 0; r < rows; ++r) {
      C* const row = scores + r * count;
      const int64_t in = std::clamp<int64_t>(limit(i + r) - j, 0, count);
      std::fill(row + in, row + count, kOut);
      if (mask.data == nullptr || in == 0) continue;
      const int64_t at =
          b * mask.strides[0] + h * mask.strides[1] + (i + r) * mask.strides[2] + j * mask.strides[3];
      const int64_t step = mask.strides[3];
      if (mask.dtype == bool_) {
        const bool* const takes_part = static_cast<const bool*>(element_at(mask.data, mask.dtype, at));
        for (int64_t c = 0; c < in; ++c)
          if (!takes_part[c * step]) row[c] = kOut;
      } else {
        alignas(64) C added[kKeys];
        convert_row(dtype_of<C>, mask.dtype)(added, 1, element_at(mask.data, mask.dtype, at), step, in);
        for (int64_t c = 0; c < in; ++c) row[c] += added[c];
      }
    }
  }

  AttentionParams options;
  const int64_t keys;
  Tensor mask;
};

/// The choice of a dropout: whether it keeps a weight.
struct Dropout {
  Dropout(const Sizes& sizes, const AttentionParams& o) : n(sizes), options(o) {}

  bool on() const { return options.dropout > 0; }

  /// Sets `keep` for weights of rows from i on and keys from j on.
  void choose(bool* keep, int64_t b, int64_t h, int64_t i, int64_t rows, int64_t j, int64_t count) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t first = ((b * n.heads + h) * n.rows + i + r) * n.keys + j;
      random_bernoulli({keep + r * count, bool_, {count}, {1}}, 1 - options.dropout, options.seed,
                       options.offset + static_cast<uint64_t>(first));
    }
  }

  /// to = from / (1 - dropout) where it is kept, else 0.
  template <class C>
  void apply(C* to, const C* from, const bool* keep, int64_t count) const {
    const C factor = options.dropout < 1 ? static_cast<C>(1 / (1 - options.dropout)) : C{0};
    for (int64_t e = 0; e < count; ++e) to[e] = keep[e] ? from[e] * factor : C{0};
  }

  const Sizes n;
  const AttentionParams options;
};

template <class C>
C* part(char*& at, int64_t elements) {
  C* const begin = reinterpret_cast<C*>(at);
  at += (elements * static_cast<int64_t>(sizeof(C)) + 63) / 64 * 64;
  return begin;
}

/// Returns the number of tasks in a piece of a parallel loop. A piece gets scratch memory once, and some 16
/// pieces for each thread keep the load even. Tasks do not depend on each other, so results have the same
/// bits.
int64_t grain_of(int64_t tasks) { return std::max<int64_t>(1, tasks / (16 * parallel_width())); }

template <class C>
struct Forward {
  const KernelArgs& args;
  const Tensor &y, &sums, &q, &k, &v;
  const Sizes n;
  const Mask mask;
  const Dropout dropout;

  /// Bytes that block() needs.
  size_t block_bytes() const {
    const int64_t operands = kRows * n.width + kKeys * (n.width + n.value_width);
    return sizeof(C) * static_cast<size_t>(kRows * (kKeys + n.value_width) + operands + 2 * kRows + 7 * 64) +
           static_cast<size_t>(dropout.on() ? kRows * kKeys : 0);
  }

  void block(int64_t b, int64_t h, int64_t i, int64_t rows, char* at) const {
    const int64_t g = h / n.heads_of_group();
    C* const scores = part<C>(at, kRows * kKeys);
    C* const total = part<C>(at, kRows * n.value_width);
    C* const q_buffer = part<C>(at, kRows * n.width);
    C* const k_buffer = part<C>(at, kKeys * n.width);
    C* const v_buffer = part<C>(at, kKeys * n.value_width);
    C* const factors = part<C>(at, kRows);
    bool* const keep = dropout.on() ? part<bool>(at, kRows * kKeys) : nullptr;
    RunningSoftmax<C> softmax[kRows];
    std::fill_n(softmax, rows, RunningSoftmax<C>{-std::numeric_limits<C>::infinity(), C{0}});
    const Matrix queries = as_matrix(rows_of(q, b, h, i, rows), q_buffer);
    const int64_t end = mask.limit(i + rows - 1);
    if (end == 0) std::fill_n(total, rows * n.value_width, C{0});
    for (int64_t j = 0; j < end; j += kKeys) {
      const int64_t count = std::min(kKeys, end - j);
      const Matrix keys = as_matrix(rows_of(k, b, g, j, count), k_buffer);
      gemm(dtype_of<C>, rows, count, n.width, queries, transposed(keys), scores, count, 1,
           {.alpha = mask.options.scale});
      mask.apply(scores, b, h, i, rows, j, count);
      next_pieces(scores, rows, count, softmax, factors);
      for (int64_t r = 0; r < rows && j > 0; ++r)
        if (factors[r] != C{1}) scale_row(total + r * n.value_width, n.value_width, factors[r]);
      if (dropout.on()) {
        dropout.choose(keep, b, h, i, rows, j, count);
        dropout.apply(scores, scores, keep, rows * count);
      }
      const Matrix values = as_matrix(rows_of(v, b, g, j, count), v_buffer);
      gemm(dtype_of<C>, rows, n.value_width, count, {scores, count, 1}, values, total, n.value_width, 1,
           {.beta = j > 0 ? 1.0 : 0.0});
    }
    for (int64_t r = 0; r < rows; ++r) {
      const RunningSoftmax<C>& row = softmax[r];
      C* const sum = sums.as<C>() + b * sums.strides[0] + h * sums.strides[1] + (i + r) * sums.strides[2];
      if (row.sum == C{0} && row.top == -std::numeric_limits<C>::infinity()) {
        std::fill_n(total + r * n.value_width, n.value_width, C{0});
        factors[r] = C{1};
        *sum = row.top;
      } else {
        factors[r] = C{1} / row.sum;
        *sum = row.top + std::log(row.sum);
      }
    }
    store_rows(total, rows_of(y, b, h, i, rows), factors);
  }

  void run() const {
    const int64_t blocks = (n.rows + kRows - 1) / kRows;
    const int64_t tasks = n.batch * n.heads * blocks;
    parallel_for(tasks, grain_of(tasks), [&](int64_t begin, int64_t last) {
      const Scratch memory(args, block_bytes());
      for (int64_t task = begin; task < last; ++task) {
        const int64_t head = task / blocks, i = task % blocks * kRows;
        block(head / n.heads, head % n.heads, i, std::min(kRows, n.rows - i), memory.as<char>());
      }
    });
  }
};

template <class C>
struct Backward {
  const KernelArgs& args;
  const Tensor &dq, &dk, &dv, &dy, &q, &k, &v, &sums;
  const RowDelta row_delta;
  const Sizes n;
  const Mask mask;
  const Dropout dropout;

  int64_t dropped_elements() const { return dropout.on() ? kRows * kKeys : 0; }
  /// Bytes that chunk() needs.
  size_t chunk_bytes() const {
    const int64_t widths = n.width + n.value_width;
    const int64_t elements = 2 * kRows * kKeys + (kRows + 2 * kKeys) * widths + kRows * n.value_width +
                             dropped_elements() + (n.heads_of_group() * n.rows + kRows) + 13 * 64;
    return sizeof(C) * static_cast<size_t>(elements) + static_cast<size_t>(dropped_elements());
  }

  /// The gradients of keys [first, last) of one group, and in `dq_total` what these keys add to dq of its
  /// heads.
  void chunk(int64_t b, int64_t g, int64_t first, int64_t last, C* dq_total, char* at) const {
    const int64_t heads = n.heads_of_group(), dropped = dropped_elements();
    C* const weights = part<C>(at, kRows * kKeys);
    C* const kept_weights = dropout.on() ? part<C>(at, dropped) : weights;
    bool* const keep = dropout.on() ? part<bool>(at, dropped) : nullptr;
    C* const gradients = part<C>(at, kRows * kKeys);
    C* const dk_total = part<C>(at, kKeys * n.width);
    C* const dv_total = part<C>(at, kKeys * n.value_width);
    C* const q_buffer = part<C>(at, kRows * n.width);
    C* const dy_buffer = part<C>(at, kRows * n.value_width);
    C* const y_buffer = part<C>(at, kRows * n.value_width);
    C* const k_buffer = part<C>(at, kKeys * n.width);
    C* const v_buffer = part<C>(at, kKeys * n.value_width);
    C* const deltas = part<C>(at, heads * n.rows);
    C* const row_sums = part<C>(at, kRows);
    constexpr DType type = dtype_of<C>;
    if (first >= last) std::fill_n(dq_total, heads * n.rows * n.width, C{0});
    for (int64_t j = first; j < last; j += kKeys) {
      const int64_t count = std::min(kKeys, last - j);
      const Matrix keys = as_matrix(rows_of(k, b, g, j, count), k_buffer);
      const Matrix values = as_matrix(rows_of(v, b, g, j, count), v_buffer);
      double beta = 0;  // of the sums over rows: 1 after the first block
      for (int64_t inner = 0; inner < heads; ++inner) {
        const int64_t h = g * heads + inner;
        for (int64_t i = 0; i < n.rows; i += kRows) {
          const int64_t rows = std::min(kRows, n.rows - i);
          C* const dq_rows = dq_total + (inner * n.rows + i) * n.width;
          if (mask.limit(i + rows - 1) <= j) {
            if (j == first) std::fill_n(dq_rows, rows * n.width, C{0});
            continue;
          }
          C* const delta = deltas + inner * n.rows + i;
          const Matrix queries = as_matrix(rows_of(q, b, h, i, rows), q_buffer);
          const C* const dy_rows = gathered(rows_of(dy, b, h, i, rows), dy_buffer);
          const Matrix dy_matrix{const_cast<C*>(dy_rows), n.value_width, 1};
          read_rows(row_sums, sums, b, h, i, rows);
          if (j == first) {
            if (row_delta.delta != nullptr)
              read_rows(delta, *row_delta.delta, b, h, i, rows);
            else
              products_of_rows(delta, dy_rows, gathered(rows_of(*row_delta.y, b, h, i, rows), y_buffer), rows,
                               n.value_width);
          }
          gemm(type, rows, count, n.width, queries, transposed(keys), weights, count, 1,
               {.alpha = mask.options.scale});
          mask.apply(weights, b, h, i, rows, j, count);
          weights_of_rows(weights, rows, count, row_sums);
          if (dropout.on()) {
            dropout.choose(keep, b, h, i, rows, j, count);
            dropout.apply(kept_weights, weights, keep, rows * count);
          }
          const Matrix w{kept_weights, count, 1}, ds{gradients, count, 1};
          gemm(type, count, n.value_width, rows, transposed(w), dy_matrix, dv_total, n.value_width, 1,
               {.beta = beta});
          gemm(type, rows, count, n.value_width, dy_matrix, transposed(values), gradients, count, 1);
          if (dropout.on()) dropout.apply(gradients, gradients, keep, rows * count);
          score_gradients_of_rows(weights, gradients, rows, count, delta, static_cast<C>(mask.options.scale));
          gemm(type, count, n.width, rows, transposed(ds), queries, dk_total, n.width, 1, {.beta = beta});
          gemm(type, rows, n.width, count, ds, keys, dq_rows, n.width, 1, {.beta = j > first ? 1.0 : 0.0});
          beta = 1;
        }
      }
      if (beta == 0) {
        std::fill_n(dk_total, count * n.width, C{0});
        std::fill_n(dv_total, count * n.value_width, C{0});
      }
      store_rows(dk_total, rows_of(dk, b, g, j, count));
      store_rows(dv_total, rows_of(dv, b, g, j, count));
    }
  }

  void run() const {
    const int64_t groups = n.batch * n.groups;
    if (groups == 0) return;
    int64_t chunks = 1;
    if (groups < kFewTasks)
      chunks = std::clamp<int64_t>(n.keys / kLeastChunk, 1, (kFewTasks + groups - 1) / groups);
    const int64_t chunk_keys = ((n.keys + chunks - 1) / chunks + kKeys - 1) / kKeys * kKeys;
    const int64_t of_group = n.heads_of_group() * n.rows * n.width;
    const Scratch memory(args, sizeof(C) * static_cast<size_t>(groups * chunks * of_group));
    C* const totals = memory.as<C>();
    parallel_for(groups * chunks, grain_of(groups * chunks), [&](int64_t begin, int64_t end) {
      const Scratch own(args, chunk_bytes());
      for (int64_t task = begin; task < end; ++task) {
        const int64_t group = task / chunks, first = task % chunks * chunk_keys;
        chunk(group / n.groups, group % n.groups, std::min(first, n.keys),
              std::min(first + chunk_keys, n.keys), totals + task * of_group, own.as<char>());
      }
    });
    parallel_for(n.batch * n.heads, 1, [&](int64_t begin, int64_t end) {
      const int64_t of_head = n.rows * n.width;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t b = task / n.heads, h = task % n.heads;
        const int64_t group = b * n.groups + h / n.heads_of_group(), inner = h % n.heads_of_group();
        C* const first = totals + group * chunks * of_group + inner * of_head;
        for (int64_t c = 1; c < chunks; ++c) {
          const C* const more = first + c * of_group;
          for (int64_t e = 0; e < of_head; ++e) first[e] += more[e];
        }
        store_rows(first, rows_of(dq, b, h, 0, n.rows));
      }
    });
  }
};

}  // namespace
}  // namespace attention_blocks

void attention(const KernelArgs& args, const Tensor& y, const Tensor& sums, const Tensor& q, const Tensor& k,
               const Tensor& v, const Tensor* mask, const AttentionParams& options) {
  const attention_blocks::Sizes n = attention_blocks::sizes_of(q, k, v);
  const attention_blocks::Mask masked(mask, n, options);
  const attention_blocks::Dropout dropout(n, options);
  if (q.dtype == f64) {
    attention_blocks::Forward<double>{args, y, sums, q, k, v, n, masked, dropout}.run();
  } else {
    attention_blocks::Forward<float>{args, y, sums, q, k, v, n, masked, dropout}.run();
  }
}

void attention_backward(const KernelArgs& args, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                        const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& sums, const RowDelta& row_delta, const Tensor* mask,
                        const AttentionParams& options) {
  const attention_blocks::Sizes n = attention_blocks::sizes_of(q, k, v);
  const attention_blocks::Mask masked(mask, n, options);
  const attention_blocks::Dropout dropout(n, options);
  if (q.dtype == f64) {
    attention_blocks::Backward<double>{args, dq, dk, dv, dy, q, k, v, sums, row_delta, n, masked, dropout}
        .run();
  } else {
    attention_blocks::Backward<float>{args, dq, dk, dv, dy, q, k, v, sums, row_delta, n, masked, dropout}
        .run();
  }
}

}  // namespace mx::kernels
