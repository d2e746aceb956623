#include "operators/kernels/rows.h"

#include "ndarray/kernels/convert_rows.h"

namespace mx::kernels {
namespace {

/// Elements of a block: with three operands of eight bytes and the result, still within the nearest cache.
constexpr int64_t kBlock = 1024;

/// Where results go past the caches, computing and writing take turns, and while one waits for memory the
/// other should not have to: blocks are short, and the next ones are fetched while these are worked on.
constexpr int64_t kStreamBlock = 128, kAhead = 16;

void prefetch_ahead(const char* at, DType type) {
  const int64_t bytes = kStreamBlock * static_cast<int64_t>(size_of(type));
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + kAhead * bytes + i);
}

/// How an operand reaches the row function.
enum class Way : uint8_t {
  direct,    ///< it is a row already
  repeated,  ///< one element, written to a block once
  gathered,  ///< converted or collected, block by block
};

template <int N>
struct Walk {
  RowPass<N> pass;
  const Tensor* out;
  std::array<const Tensor*, N> in;
  std::array<int64_t, N + 1> steps;
  std::array<Way, N> ways;
  std::array<ConvertRow, N> load;
  ConvertRow store;  // null when the row function writes the result itself
  bool stream;
  bool blocks;

  Walk(const RowPass<N>& p, const Tensor& o, const std::array<const Tensor*, N>& i,
       const LoopPlan<N + 1>& plan)
      : pass(p), out(&o), in(i) {
    blocks = false;
    bool in_place = false;
    for (int k = 0; k <= N; ++k) steps[static_cast<size_t>(k)] = plan.strides[k][0];
    for (size_t k = 0; k < N; ++k) {
      const bool same = in[k]->dtype == pass.in[k];
      ways[k] = same && steps[k + 1] == 1 ? Way::direct : steps[k + 1] == 0 ? Way::repeated : Way::gathered;
      load[k] = ways[k] == Way::direct ? nullptr : convert_row(pass.in[k], in[k]->dtype);
      blocks = blocks || ways[k] != Way::direct;
      in_place = in_place || in[k]->data == out->data;
    }
    const bool plain = out->dtype == pass.out && steps[0] == 1;
    stream = plain && !in_place && plan.shape[0] >= kBlock &&
             plan.numel * static_cast<int64_t>(size_of(out->dtype)) >= kStreamBytes;
    store = plain ? nullptr : convert_row(out->dtype, pass.out);
    blocks = blocks || stream || !plain;
  }

  void run(const LoopPlan<N + 1>& plan, int64_t begin, int64_t end) const {
    alignas(64) char buffers[N + 1][kBlock * 8];
    for_each_run<N + 1>(plan, begin, end, [&](const std::array<int64_t, N + 1>& offsets, int64_t n) {
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
      const int64_t to_bytes = steps[0] * static_cast<int64_t>(size_of(out->dtype));
      const int64_t block = stream ? kStreamBlock : kBlock;
      for (int64_t done = 0; done < n; done += block) {
        const int64_t m = std::min(block, n - done);
        for (size_t k = 0; k < N; ++k) {
          const int64_t at = done * steps[k + 1] * static_cast<int64_t>(size_of(in[k]->dtype));
          if (ways[k] == Way::direct) {
            rows[k] = from[k] + at;
            if (stream) prefetch_ahead(from[k] + at, in[k]->dtype);
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

}  // namespace

template <int N>
void walk_rows(const RowPass<N>& pass, const Tensor& out, const std::array<const Tensor*, N>& in) {
  std::array<const Tensor*, N + 1> operands;
  operands[0] = &out;
  for (size_t k = 0; k < N; ++k) operands[k + 1] = in[k];
  const LoopPlan<N + 1> plan(operands);
  if (plan.numel == 0) return;
  const Walk<N> walk(pass, out, in, plan);
  parallel_for(plan.numel, kLoopGrain, [&](int64_t begin, int64_t end) { walk.run(plan, begin, end); });
}

template void walk_rows<1>(const RowPass<1>&, const Tensor&, const std::array<const Tensor*, 1>&);
template void walk_rows<2>(const RowPass<2>&, const Tensor&, const std::array<const Tensor*, 2>&);
template void walk_rows<3>(const RowPass<3>&, const Tensor&, const std::array<const Tensor*, 3>&);

}  // namespace mx::kernels
