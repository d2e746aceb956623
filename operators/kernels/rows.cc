#include "operators/kernels/rows.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ndarray/kernels/convert_rows.h"

namespace mx::kernels {
namespace {

/// Elements per block: a block of three operands of eight bytes and of the result still fits into the
/// first-level cache.
constexpr int64_t kBlock = 1024;

/// How an operand reaches the row function.
enum class Way : uint8_t {
  direct,    ///< it already is a row
  repeated,  ///< one element, copied to fill a block once
  gathered,  ///< converted or copied, block by block
};

template <int N>
struct Walk {
  RowPass<N> pass;
  const Tensor* out;
  std::array<const Tensor*, N> in;
  std::array<int64_t, N + 1> steps;
  std::array<Way, N> ways;
  std::array<ConvertRow, N> load;
  ConvertRow store;  // null if the row function writes the result itself
  bool stream;
  bool streams_itself;  // with the pass's own function
  bool blocks;

  Walk(const RowPass<N>& p, const Tensor& o, const std::array<const Tensor*, N>& i,
       const LoopPlan<N + 1>& plan)
      : pass(p), out(&o), in(i) {
    blocks = false;
    bool in_place = false, gathers = false;
    for (int k = 0; k <= N; ++k) steps[static_cast<size_t>(k)] = plan.strides[k][0];
    for (size_t k = 0; k < N; ++k) {
      const bool same = in[k]->dtype == pass.in[k];
      ways[k] = same && steps[k + 1] == 1 ? Way::direct : steps[k + 1] == 0 ? Way::repeated : Way::gathered;
      load[k] = ways[k] == Way::direct ? nullptr : convert_row(pass.in[k], in[k]->dtype);
      blocks = blocks || ways[k] != Way::direct;
      gathers = gathers || ways[k] == Way::gathered;
      in_place = in_place || in[k]->data == out->data;
    }
    const bool plain = out->dtype == pass.out && steps[0] == 1;
    stream = plain && !in_place && plan.shape[0] >= kBlock &&
             plan.numel * static_cast<int64_t>(size_of(out->dtype)) >= kStreamBytes;
    store = plain ? nullptr : convert_row(out->dtype, pass.out);
    streams_itself = stream && pass.stream != nullptr && !gathers &&
                     reinterpret_cast<uintptr_t>(out->data) % size_of(out->dtype) == 0;
    blocks = blocks || stream || !plain;
  }

  /// Runs the pass's streaming function on whole cache lines, and its normal function on the elements before
  /// and after them. `rows` are the operands; a repeated one is a block long.
  void run_past_caches(char* to, const void** rows, int64_t n) const {
    const auto bytes = static_cast<int64_t>(size_of(out->dtype));
    const int64_t line = kStreamAlignment / bytes;
    const bool all_direct = std::find(ways.begin(), ways.end(), Way::repeated) == ways.end();
    const int64_t most = all_direct ? n : kBlock;
    for (int64_t done = 0; done < n;) {
      const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kStreamAlignment) / bytes;
      const int64_t lines = misplaced != 0 ? 0 : std::min(most, n - done) / line * line;
      const int64_t m = lines != 0 ? lines : std::min(n - done, line - misplaced);
      (lines != 0 ? pass.stream : pass.row)(to, rows, m);
      for (size_t k = 0; k < N; ++k)
        if (ways[k] == Way::direct)
          rows[k] = static_cast<const char*>(rows[k]) + m * static_cast<int64_t>(size_of(in[k]->dtype));
      to += m * bytes;
      done += m;
    }
  }

  void run(const LoopPlan<N + 1>& plan, int64_t begin, int64_t end) const {
    alignas(64) char buffers[N + 1][kBlock * 8];
    for_each_run<N + 1>(plan, begin, end, [&](const int64_t* offsets, int64_t n) {
      const void* rows[N];
      const char* from[N];
      for (size_t k = 0; k < N; ++k) {
        from[k] = in[k]->template as<char>() + offsets[k + 1] * static_cast<int64_t>(size_of(in[k]->dtype));
        rows[k] = from[k];
        if (ways[k] != Way::direct) rows[k] = buffers[k + 1];
        if (ways[k] == Way::repeated) load[k](buffers[k + 1], 1, from[k], 0, std::min(n, kBlock));
      }
      char* to = out->template as<char>() + offsets[0] * static_cast<int64_t>(size_of(out->dtype));
      if (!blocks) {
        pass.row(to, rows, n);
        return;
      }
      if (streams_itself) {
        run_past_caches(to, rows, n);
        return;
      }
      const int64_t to_bytes = steps[0] * static_cast<int64_t>(size_of(out->dtype));
      const int64_t block = stream ? kStreamBlock : kBlock;
      for (int64_t done = 0; done < n; done += block) {
        const int64_t m = std::min(block, n - done);
        for (size_t k = 0; k < N; ++k) {
          const int64_t at = done * steps[k + 1] * static_cast<int64_t>(size_of(in[k]->dtype));
          if (ways[k] == Way::direct) {
            rows[k] = from[k] + at;
            if (stream) prefetch_block_ahead(from[k] + at, in[k]->dtype);
          }
          if (ways[k] == Way::gathered) load[k](buffers[k + 1], 1, from[k] + at, steps[k + 1], m);
        }
        char* const target = to + done * to_bytes;
        void* const row_target = stream || store != nullptr ? buffers[0] : target;
        pass.row(row_target, rows, m);
        if (stream) stream_row(target, buffers[0], m * to_bytes);
        if (store != nullptr) store(target, steps[0], buffers[0], 1, m);
      }
    });
    if (stream) stream_fence();
  }
};

/// Returns true if the rows of the result are short because an operand is broadcast along or across them, so
/// that a call per row would be too slow. Then many rows together are processed as one.
template <int N>
bool short_rows(const RowPass<N>& pass, const Tensor& out, const LoopPlan<N + 1>& plan) {
  int64_t most = 64;  // columns
  for (int k = 1; k <= N; ++k)
    if (plan.strides[k][0] == 0) most = 16;  // one element per row is copied for every column
  return plan.rank > 1 && plan.shape[0] <= most && plan.shape[1] >= 16 && out.dtype == pass.out &&
         plan.strides[0][0] == 1 && plan.strides[0][1] == plan.shape[0];
}

/// Writes `rows` times `columns` elements (r, j) of an operand, contiguous and converted, to a block. Steps
/// are in elements.
void expand(char* to, DType to_type, const char* from, DType from_type, int64_t row_step, int64_t column_step,
            int64_t rows, int64_t columns, ConvertRow load) {
  const auto to_bytes = static_cast<int64_t>(size_of(to_type));
  const auto from_bytes = static_cast<int64_t>(size_of(from_type));
  if (row_step == 0) {
    load(to, 1, from, column_step, columns);
    const int64_t bytes = rows * columns * to_bytes;
    for (int64_t done = columns * to_bytes; done < bytes; done *= 2)
      std::memcpy(to + done, to, static_cast<size_t>(std::min(done, bytes - done)));
    return;
  }
  if (column_step == 0 || std::abs(row_step) <= std::abs(column_step)) {
    for (int64_t j = 0; j < columns; ++j)
      load(to + j * to_bytes, columns, from + j * column_step * from_bytes, row_step, rows);
    return;
  }
  for (int64_t r = 0; r < rows; ++r)
    load(to + r * columns * to_bytes, 1, from + r * row_step * from_bytes, column_step, columns);
}

template <int N>
void walk_short_rows(const RowPass<N>& pass, const Tensor& out, const std::array<const Tensor*, N>& in,
                     const LoopPlan<N + 1>& plan) {
  const int64_t columns = plan.shape[0], height = plan.shape[1],
                most = std::max<int64_t>(1, kBlock / columns);
  const int64_t pieces = (height + most - 1) / most;
  std::array<ConvertRow, N> load;
  for (size_t k = 0; k < N; ++k) {
    const int64_t* const steps = plan.strides[k + 1];
    const bool direct = in[k]->dtype == pass.in[k] && steps[0] == 1 && steps[1] == columns;
    load[k] = direct ? nullptr : convert_row(pass.in[k], in[k]->dtype);
  }
  const int64_t grain = std::max<int64_t>(1, kLoopGrain / (most * columns));
  parallel_for(plan.numel / (columns * height) * pieces, grain, [&](int64_t begin, int64_t end) {
    alignas(64) char buffers[N][kBlock * 8];
    for (int64_t number = begin; number < end; ++number) {
      const int64_t first = number % pieces * most, rows = std::min(most, height - first);
      std::array<int64_t, N + 1> at = plan.offsets(2, number / pieces);
      for (size_t k = 0; k <= N; ++k) at[k] += first * plan.strides[k][1];
      const void* from[N];
      for (size_t k = 0; k < N; ++k) {
        const auto* elements = static_cast<const char*>(element_at(in[k]->data, in[k]->dtype, at[k + 1]));
        from[k] = elements;
        if (load[k] == nullptr) continue;
        from[k] = buffers[k];
        expand(buffers[k], pass.in[k], elements, in[k]->dtype, plan.strides[k + 1][1], plan.strides[k + 1][0],
               rows, columns, load[k]);
      }
      pass.row(element_at(out.data, out.dtype, at[0]), from, rows * columns);
    }
  });
}

}  // namespace

template <int N>
void walk_rows(const RowPass<N>& pass, const Tensor& out, const std::array<const Tensor*, N>& in) {
  std::array<const Tensor*, N + 1> operands;
  operands[0] = &out;
  for (size_t k = 0; k < N; ++k) operands[k + 1] = in[k];
  const LoopPlan<N + 1> plan(operands);
  if (plan.numel == 0) return;
  if (short_rows<N>(pass, out, plan)) return walk_short_rows<N>(pass, out, in, plan);
  const Walk<N> walk(pass, out, in, plan);
  parallel_for(plan.numel, kLoopGrain, [&](int64_t begin, int64_t end) { walk.run(plan, begin, end); });
}

template void walk_rows<1>(const RowPass<1>&, const Tensor&, const std::array<const Tensor*, 1>&);
template void walk_rows<2>(const RowPass<2>&, const Tensor&, const std::array<const Tensor*, 2>&);
template void walk_rows<3>(const RowPass<3>&, const Tensor&, const std::array<const Tensor*, 3>&);

}  // namespace mx::kernels
