#include "benchmarks/op/families_torch.h"

#include <ATen/ATen.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace mx::bench {
namespace {

using at::Tensor;

Tensor numbers(at::IntArrayRef shape, uint32_t seed) {
  Tensor t = at::empty(shape, at::kFloat);
  fill_op_input(t.data_ptr<float>(), t.numel(), seed);
  return t;
}

Tensor indices(int64_t n, int64_t limit, uint32_t seed) {
  Tensor t = at::empty({n}, at::kLong);
  const std::vector<int64_t> values = op_indices(n, limit, seed);
  std::copy(values.begin(), values.end(), t.data_ptr<int64_t>());
  return t;
}

/// A call whose operands are the leaves. With `train` it also computes the gradients of all leaves, for a
/// head of ones.
OpCall call_of(std::vector<Tensor> leaves, bool train,
               const std::function<Tensor(const std::vector<Tensor>&)>& f) {
  if (!train) {
    return [=] {
      const c10::InferenceMode inference;
      f(leaves);
    };
  }
  for (Tensor& leaf : leaves) leaf = leaf.clone().set_requires_grad(true);
  const Tensor head = at::ones_like(f(leaves).detach());
  return [=] {
    for (const Tensor& leaf : leaves) leaf.mutable_grad().reset();
    f(leaves).backward(head);
  };
}

OpCall attention(const OpCase& c) {
  const AttentionShape& s = attention_shapes()[static_cast<size_t>(c.side)];
  const std::vector<int64_t> shape = {s.batch, s.heads, s.length, s.width};
  return call_of({numbers(shape, 1), numbers(shape, 2), numbers(shape, 3)}, c.op == "attention_train",
                 [causal = s.causal](const std::vector<Tensor>& x) {
                   return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.0, causal);
                 });
}

OpCall spatial_convolution(const OpCase& c) {
  const SpatialShape& s = spatial_shapes()[static_cast<size_t>(c.side)];
  const auto axes = static_cast<size_t>(s.axes);
  const auto shaped = [&](int64_t first, int64_t second, int64_t side, uint32_t seed) {
    std::vector<int64_t> sizes = {first, second};
    sizes.resize(2 + axes, side);
    return numbers(sizes, seed);
  };
  const bool transposed = c.op == "convolution_transpose";
  const Tensor w = shaped(s.out, s.in, s.kernel, 2);
  const Tensor x = transposed ? shaped(s.images, s.out, s.result(), 1) : shaped(s.images, s.in, s.size, 1);
  const std::vector<int64_t> stride(axes, s.stride), padding(axes, s.padding), dilation(axes, 1),
      zeros(axes, 0);
  return call_of({x}, false, [=](const std::vector<Tensor>& in) {
    return at::convolution(in[0], w, {}, stride, padding, dilation, transposed, zeros, 1);
  });
}

OpCall images(const OpCase& c) {
  const int64_t side = c.side;
  Tensor x = numbers({4, c.elements / side / side / 4, side, side}, 1);
  using Inputs = const std::vector<Tensor>&;
  if (c.op.starts_with("max_pool"))
    return call_of({x}, c.op == "max_pool_train", [](Inputs in) { return at::max_pool2d(in[0], {2, 2}); });
  if (c.op == "avg_pool") return call_of({x}, false, [](Inputs in) { return at::avg_pool2d(in[0], {2, 2}); });
  if (c.op == "unfold")
    return call_of({x}, false, [](Inputs in) { return at::im2col(in[0], {3, 3}, {1, 1}, {1, 1}, {1, 1}); });
  if (c.op == "fold") {
    x = at::im2col(x, {3, 3}, {1, 1}, {1, 1}, {1, 1});
    return call_of({x}, false, [side](Inputs in) {
      return at::col2im(in[0], {side, side}, {3, 3}, {1, 1}, {1, 1}, {1, 1});
    });
  }
  return call_of({x}, false, [side, op = c.op](Inputs in) {
    if (op == "nearest") return at::upsample_nearest2d(in[0], {2 * side, 2 * side});
    if (op == "bilinear") return at::upsample_bilinear2d(in[0], {2 * side, 2 * side}, false);
    return at::upsample_bicubic2d(in[0], {2 * side, 2 * side}, false);
  });
}

OpCall norm(const OpCase& c) {
  const Tensor x = numbers({kOpBatch, kOpChannels, c.elements / kOpBatch / kOpChannels}, 1),
               weight = at::ones({kOpChannels}), bias = at::zeros({kOpChannels});
  if (c.op == "instance_norm")
    return call_of({x}, false, [=](const std::vector<Tensor>& in) {
      return at::instance_norm(in[0], weight, bias, {}, {}, true, 0.1, 1e-5, false);
    });
  return call_of({x, weight, bias}, c.op == "group_norm_train",
                 [](const std::vector<Tensor>& in) { return at::group_norm(in[0], 4, in[1], in[2], 1e-5); });
}

OpCall table(const OpCase& c) {
  const Tensor rows = indices(c.side, kTableRows, 4), head = numbers({c.side, kOpColumns}, 2);
  if (c.op == "embedding")
    return call_of({numbers({kTableRows, kOpColumns}, 1)}, false,
                   [=](const std::vector<Tensor>& in) { return at::embedding(in[0], rows); });
  // The rows of the sparse gradient are put together, as in ours.
  return call_of({head}, false, [rows, sparse = c.op == "embedding_sparse"](const std::vector<Tensor>& in) {
    const Tensor gradient = at::embedding_backward(in[0], rows, kTableRows, -1, false, sparse);
    return sparse ? gradient.coalesce() : gradient;
  });
}

OpCall segments(const OpCase& c) {
  if (c.op == "segment_softmax") return nullptr;
  const Tensor lengths = at::full({kSparseRows}, kSparseEntries, at::kLong);
  return call_of({numbers({kSparseRows * kSparseEntries, c.side}, 2)}, false,
                 [=, way = c.op.substr(8)](const std::vector<Tensor>& in) {
                   return at::segment_reduce(in[0], way, lengths, {}, {}, 0, true);
                 });
}

OpCall ctc(const OpCase& c) {
  const int64_t steps = c.side, batch = c.elements / steps / kCtcClasses, most = steps / 4;
  const Tensor labels = indices(batch * most, kCtcClasses - 1, 4).view({batch, most}) + 1;
  const std::vector<int64_t> lengths(static_cast<size_t>(batch), steps),
      targets(static_cast<size_t>(batch), most);
  return call_of(
      {at::log_softmax(numbers({steps, batch, kCtcClasses}, 1), 2)}, c.op == "ctc_train",
      [=](const std::vector<Tensor>& in) { return at::ctc_loss(in[0], labels, lengths, targets); });
}

OpCall distances(const OpCase& c) {
  const int64_t sizes[] = {c.side, kDistanceColumns};
  const at::IntArrayRef shape = sizes;
  return call_of({numbers(shape, 1), numbers(shape, 2)}, c.op.ends_with("_train"),
                 [p = c.op.starts_with("cdist1") ? 1. : 2.](const std::vector<Tensor>& in) {
                   return at::cdist(in[0], in[1], p);
                 });
}

OpCall decomposition(const OpCase& c) {
  const Tensor x = numbers({c.side, c.side}, 1), b = numbers({c.side, c.side}, 2);
  const Tensor a = x + x.t() + 4 * static_cast<double>(c.side) * at::eye(c.side);
  return call_of({a}, false, [b, op = c.op](const std::vector<Tensor>& in) {
    if (op == "inv") return at::linalg_inv(in[0]);
    if (op == "det") return at::linalg_det(in[0]);
    if (op == "qr") return std::get<1>(at::linalg_qr(in[0]));
    if (op == "eigh") return std::get<0>(at::linalg_eigh(in[0]));
    return std::get<0>(at::linalg_lstsq(in[0], b));
  });
}

OpCall complex_transform(const OpCase& c) {
  return call_of({at::view_as_complex(numbers({c.elements / c.side, c.side, 2}, 1))}, false,
                 [](const std::vector<Tensor>& in) { return at::fft_fft(in[0]); });
}

/// As programs write it: PyTorch has no operator for it.
OpCall rotary(const OpCase& c) {
  const int64_t length = c.elements / 64, half = 32;
  const Tensor frequencies = at::pow(10000.0, at::arange(half, at::kFloat) / -static_cast<double>(half));
  const Tensor angles = at::outer(at::arange(length, at::kFloat), frequencies);
  const Tensor cosines = at::cat({angles.cos(), angles.cos()}, 1),
               sines = at::cat({angles.sin(), angles.sin()}, 1);
  return call_of({numbers({length, 64}, 1)}, false, [=](const std::vector<Tensor>& in) {
    const Tensor turned = at::cat({-in[0].slice(1, half), in[0].slice(1, 0, half)}, 1);
    return in[0] * cosines + turned * sines;
  });
}

OpCall rms_norm(const OpCase& c) {
  const Tensor x = numbers({c.elements / kOpColumns, kOpColumns}, 1), weight = at::ones({kOpColumns});
  return call_of({x, weight}, false, [](const std::vector<Tensor>& in) {
    return at::rms_norm(in[0], {kOpColumns}, in[1], 1e-6);
  });
}

}  // namespace

OpCall torch_family_call(const OpCase& c) {
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
      {"rms_norm", rms_norm},
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
