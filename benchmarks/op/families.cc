#include "benchmarks/op/families.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"

namespace mx::bench {
namespace {

NDArray numbers(const Shape& shape, uint32_t seed) {
  return array(op_input(shape.numel(), seed)).reshape(shape);
}

/// A call whose operands are the leaves. With `train` it also computes the gradients of all leaves, for a
/// head of ones.
OpCall call_of(std::vector<NDArray> leaves, bool train,
               const std::function<NDArray(const std::vector<NDArray>&)>& f) {
  if (!train) return [=] { f(leaves).wait(); };
  for (NDArray& leaf : leaves) leaf = leaf.clone().requires_grad_();
  const NDArray head = ones(f(leaves).shape());
  return [=] {
    for (const NDArray& gradient : gradients({f(leaves)}, leaves, {.heads = {head}})) gradient.wait();
  };
}

OpCall attention(const OpCase& c) {
  const AttentionShape& s = attention_shapes()[static_cast<size_t>(c.side)];
  const Shape shape{s.batch, s.heads, s.length, s.width};
  return call_of({numbers(shape, 1), numbers(shape, 2), numbers(shape, 3)}, c.op == "attention_train",
                 [causal = s.causal](const std::vector<NDArray>& x) {
                   return scaled_dot_product_attention(x[0], x[1], x[2], {}, {.causal = causal});
                 });
}

OpCall spatial_convolution(const OpCase& c) {
  const SpatialShape& s = spatial_shapes()[static_cast<size_t>(c.side)];
  const auto shaped = [&](int64_t first, int64_t second, int64_t side, uint32_t seed) {
    std::vector<int64_t> sizes = {first, second};
    sizes.resize(2 + static_cast<size_t>(s.axes), side);
    return numbers(Shape(sizes), seed);
  };
  const NDArray w = shaped(s.out, s.in, s.kernel, 2);
  const int64_t stride = s.stride, padding = s.padding;
  if (c.op == "convolution_transpose")
    return [=, y = shaped(s.images, s.out, s.result(), 1)] {
      convolution_transpose(y, w, {.stride = stride, .padding = padding}).wait();
    };
  return [=, x = shaped(s.images, s.in, s.size, 1)] {
    convolution(x, w, {.stride = stride, .padding = padding}).wait();
  };
}

OpCall images(const OpCase& c) {
  const int64_t side = c.side;
  const NDArray x = numbers({4, c.elements / side / side / 4, side, side}, 1);
  if (c.op.starts_with("max_pool"))
    return call_of({x}, c.op == "max_pool_train",
                   [](const std::vector<NDArray>& in) { return max_pool(in[0], {.kernel = 2}); });
  if (c.op == "avg_pool") return [=] { avg_pool(x, {.kernel = 2}).wait(); };
  if (c.op == "unfold") return [=] { unfold(x, {.kernel = 3, .padding = 1}).wait(); };
  if (c.op == "fold") {
    const NDArray columns = unfold(x, {.kernel = 3, .padding = 1});
    return [=] { fold(columns, {.size = {side, side}, .kernel = 3, .padding = 1}).wait(); };
  }
  return [=, mode = c.op] { interpolate(x, {.scale_factor = {2}, .mode = mode}).wait(); };
}

OpCall norm(const OpCase& c) {
  const NDArray x = numbers({kOpBatch, kOpChannels, c.elements / kOpBatch / kOpChannels}, 1),
                weight = ones({kOpChannels}), bias = zeros({kOpChannels});
  if (c.op == "instance_norm") return [=] { instance_norm(x, weight, bias).wait(); };
  return call_of({x, weight, bias}, c.op == "group_norm_train",
                 [](const std::vector<NDArray>& in) { return group_norm(in[0], 4, in[1], in[2]); });
}

OpCall table(const OpCase& c) {
  const NDArray rows = array(op_indices(c.side, kTableRows, 4));
  const NDArray head = numbers({c.side, kOpColumns}, 2);
  if (c.op == "embedding") {
    const NDArray all = numbers({kTableRows, kOpColumns}, 1);
    return [=] { embedding(all, rows).wait(); };
  }
  if (c.op == "embedding_train") return [=] { embedding_gradient(rows, head, kTableRows).wait(); };
  return [=] { sum_rows(rows, head, kTableRows).values.wait(); };
}

OpCall segments(const OpCase& c) {
  const NDArray pointers = arange(0, kSparseRows + 1, 1, i64) * kSparseEntries;
  const NDArray x = numbers({kSparseRows * kSparseEntries, c.side}, 2);
  if (c.op == "segment_mean") return [=] { segment_mean(x, pointers).wait(); };
  if (c.op == "segment_max") return [=] { segment_max(x, pointers).wait(); };
  return [=] { segment_softmax(x, pointers).wait(); };
}

OpCall ctc(const OpCase& c) {
  const int64_t steps = c.side, batch = c.elements / steps / kCtcClasses, most = steps / 4;
  const NDArray labels = array(op_indices(batch * most, kCtcClasses - 1, 4)).reshape({batch, most}) + 1;
  const NDArray lengths = full({batch}, steps, i64), target_lengths = full({batch}, most, i64);
  return call_of(
      {log_softmax(numbers({steps, batch, kCtcClasses}, 1), 2)}, c.op == "ctc_train",
      [=](const std::vector<NDArray>& in) { return ctc_loss(in[0], labels, lengths, target_lengths); });
}

OpCall distances(const OpCase& c) {
  const Shape shape{c.side, kDistanceColumns};
  return call_of({numbers(shape, 1), numbers(shape, 2)}, c.op.ends_with("_train"),
                 [p = c.op.starts_with("cdist1") ? 1. : 2.](const std::vector<NDArray>& in) {
                   return cdist(in[0], in[1], p);
                 });
}

OpCall decomposition(const OpCase& c) {
  const NDArray x = numbers({c.side, c.side}, 1), b = numbers({c.side, c.side}, 2);
  const NDArray a = x + x.transpose() + 4 * static_cast<double>(c.side) * eye(c.side);
  if (c.op == "inv") return [=] { linalg::inv(a).wait(); };
  if (c.op == "det") return [=] { linalg::det(a).wait(); };
  if (c.op == "qr") return [=] { linalg::qr(a).r.wait(); };
  if (c.op == "eigh") return [=] { linalg::eigh(a).eigenvalues.wait(); };
  return [=] { linalg::lstsq(a, b).solution.wait(); };
}

OpCall complex_transform(const OpCase& c) {
  const NDArray x = numbers({c.elements / c.side, c.side, 2}, 1);
  return [=] { fft::fft(x).wait(); };
}

OpCall rotary(const OpCase& c) {
  const NDArray x = numbers({c.elements / 64, 64}, 1);
  return [=] { rotary_embedding(x).wait(); };
}

}  // namespace

OpCall family_call(const OpCase& c) {
  using Make = OpCall (*)(const OpCase&);
  static const std::map<std::string, Make> families = {
      {"attention_fwd", attention},
      {"attention_train", attention},
      {"rotary_embedding", rotary},
      {"convolution_1d", spatial_convolution},
      {"convolution_3d", spatial_convolution},
      {"convolution_transpose", spatial_convolution},
      {"max_pool", images},
      {"max_pool_train", images},
      {"avg_pool", images},
      {"nearest", images},
      {"bilinear", images},
      {"bicubic", images},
      {"unfold", images},
      {"fold", images},
      {"group_norm", norm},
      {"group_norm_train", norm},
      {"instance_norm", norm},
      {"embedding", table},
      {"embedding_train", table},
      {"embedding_sparse", table},
      {"segment_mean", segments},
      {"segment_max", segments},
      {"segment_softmax", segments},
      {"ctc", ctc},
      {"ctc_train", ctc},
      {"cdist", distances},
      {"cdist_train", distances},
      {"cdist1", distances},
      {"cdist1_train", distances},
      {"inv", decomposition},
      {"det", decomposition},
      {"qr", decomposition},
      {"eigh", decomposition},
      {"lstsq", decomposition},
      {"fft", complex_transform},
  };
  const auto found = families.find(c.op);
  return found == families.end() ? OpCall() : found->second(c);
}

}  // namespace mx::bench
