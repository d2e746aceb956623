// op_bench_torch: the operator cases in libtorch's C++ interface, without gradients (inference mode). Results
// are written to existing tensors if the operation supports it.
#include <ATen/Parallel.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <memory>

#include "benchmarks/op/families_torch.h"
#include "benchmarks/op/runner.h"
#include "benchmarks/support/report.h"

namespace {

using namespace mx::bench;
using at::Tensor;

Tensor filled(at::IntArrayRef shape, uint32_t seed) {
  Tensor t = at::empty(shape, at::kFloat);
  fill_op_input(t.data_ptr<float>(), t.numel(), seed);
  return t;
}

Tensor indices(int64_t n, int64_t limit) {
  Tensor t = at::empty({n}, at::kLong);
  const std::vector<int64_t> values = op_indices(n, limit, 3);
  std::copy(values.begin(), values.end(), t.data_ptr<int64_t>());
  return t;
}

// Returns a result tensor whose pages have been touched.
Tensor result_like(const Tensor& t) { return at::zeros_like(t); }

using Unary = Tensor& (*)(Tensor&, const Tensor&);

OpCall elementwise(const OpCase& c) {
  const Tensor a = filled({c.elements}, 1), b = filled({c.elements}, 2);
  Tensor out = result_like(a);
  if (c.op == "add") return [=]() mutable { at::add_out(out, a, b); };
  if (c.op == "mul") return [=]() mutable { at::mul_out(out, a, b); };
  if (c.op == "where") {
    const Tensor mask = a > 0;
    return [=]() mutable { at::where_out(out, mask, a, b); };
  }
  if (c.op == "take") {
    const Tensor at_index = indices(c.elements, c.elements);
    return [=]() mutable { at::index_select_out(out, a, 0, at_index); };
  }
  Unary unary = nullptr;
  if (c.op == "relu")
    unary = [](Tensor& to, const Tensor& x) -> Tensor& { return at::clamp_min_out(to, x, 0); };
  if (c.op == "exp") unary = &at::exp_out;
  if (c.op == "tanh") unary = &at::tanh_out;
  if (c.op == "sigmoid") unary = &at::sigmoid_out;
  if (unary == nullptr) return nullptr;
  return [=]() mutable { unary(out, a); };
}

OpCall reduction_or_scan(const OpCase& c) {
  const Tensor a = filled({c.elements}, 1);
  if (c.op == "sum" || c.op == "max") {
    Tensor out = at::zeros({}, at::kFloat);
    if (c.op == "sum") return [=]() mutable { at::sum_out(out, a, at::IntArrayRef{0}); };
    return [=]() mutable { at::amax_out(out, a, at::IntArrayRef{0}); };
  }
  if (c.op == "argmax") {
    Tensor out = at::zeros({}, at::kLong);
    return [=]() mutable { at::argmax_out(out, a, 0); };
  }
  Tensor out = result_like(a);
  if (c.op == "cumsum") return [=]() mutable { at::cumsum_out(out, a, 0); };
  if (c.op == "sort") {
    Tensor places = at::zeros({c.elements}, at::kLong);
    return [=]() mutable { at::sort_out(out, places, a, 0); };
  }
  return nullptr;
}

OpCall loss(const OpCase& c) {
  const Tensor a = filled({c.elements}, 1), b = filled({c.elements}, 2);
  if (c.op == "mse_loss") return [=] { at::mse_loss(a, b); };
  if (c.op == "huber_loss") return [=] { at::huber_loss(a, b); };
  if (c.op == "bce_with_logits") return [=] { at::binary_cross_entropy_with_logits(a, b); };
  return nullptr;
}

OpCall rows(const OpCase& c) {
  const Tensor a = filled({c.elements / kOpColumns, kOpColumns}, 1);
  Tensor out = result_like(a);
  if (c.op == "softmax") return [=]() mutable { at::_softmax_out(out, a, 1, false); };
  if (c.op == "log_softmax") return [=]() mutable { at::_log_softmax_out(out, a, 1, false); };
  if (c.op == "cross_entropy") {
    const Tensor targets = indices(a.size(0), kOpColumns);
    return [=] { at::cross_entropy_loss(a, targets); };
  }
  return nullptr;
}

OpCall normalisation(const OpCase& c) {
  const bool batch = c.op.starts_with("batch_norm");
  if (!batch && !c.op.starts_with("layer_norm")) return nullptr;
  const int64_t parameters = batch ? kOpChannels : kOpColumns;
  const auto shaped = [&](uint32_t seed) {
    const Tensor t = filled({c.elements}, seed);
    return batch ? t.view({kOpBatch, kOpChannels, -1}) : t.view({-1, kOpColumns});
  };
  const Tensor x = shaped(1), dy = shaped(2), weight = at::ones({parameters}), bias = at::zeros({parameters});
  const std::vector<int64_t> shape = {kOpColumns};
  if (c.op == "layer_norm") return [=] { at::native_layer_norm(x, shape, weight, bias, 1e-5); };
  if (c.op == "batch_norm") return [=] { at::native_batch_norm(x, weight, bias, {}, {}, true, 0.1, 1e-5); };
  if (batch) {
    const auto [y, mean, rstd] = at::native_batch_norm(x, weight, bias, {}, {}, true, 0.1, 1e-5);
    return [=, m = mean, r = rstd] {
      at::native_batch_norm_backward(dy, x, weight, {}, {}, m, r, true, 1e-5, {true, true, true});
    };
  }
  const auto [y, mean, rstd] = at::native_layer_norm(x, shape, weight, bias, 1e-5);
  return [=, m = mean, r = rstd] {
    at::native_layer_norm_backward(dy, x, shape, m, r, weight, bias, {true, true, true});
  };
}

OpCall matrix(const OpCase& c) {
  if (c.op == "igemm") {
    const auto bytes = [&](uint32_t seed) { return (filled({c.side, c.side}, seed) * 100).to(at::kChar); };
    return [a = bytes(1), b = bytes(2)] { at::_int_mm(a, b); };
  }
  const Tensor a = filled({c.side, c.side}, 1), b = filled({c.side, c.side}, 2);
  Tensor out = result_like(a);
  if (c.op == "sgemm") return [=]() mutable { at::mm_out(out, a, b); };
  if (c.op == "transpose") return [=]() mutable { out.copy_(a.t()); };
  if (c.op == "cast_f16") {
    Tensor half = at::zeros_like(a, at::kHalf);
    return [=]() mutable { half.copy_(a); };
  }
  return nullptr;
}

OpCall sparse(const OpCase& c) {
  if (!c.op.starts_with("csr_") && c.op != "segment_sum") return nullptr;
  const Tensor x = filled({c.elements / c.side, c.side}, 2);
  if (c.op == "segment_sum") {
    const Tensor lengths = at::full({kSparseRows}, kSparseEntries, at::kLong);
    return [=] { at::segment_reduce(x, "sum", lengths, {}, {}, 0, true); };
  }
  const int64_t entries = kSparseRows * kSparseEntries;
  const Tensor pointers = at::arange(kSparseRows + 1, at::kLong) * kSparseEntries;
  const Tensor a = at::sparse_csr_tensor(pointers, indices(entries, kSparseRows), filled({entries}, 1),
                                         {kSparseRows, kSparseRows}, at::TensorOptions(at::kFloat));
  const Tensor left = c.op == "csr_matmul" ? a : a.t();
  return [=] { at::mm(left, x); };
}

OpCall linear_algebra(const OpCase& c) {
  if (c.op == "rfft") {
    const Tensor lines = filled({c.elements / c.side, c.side}, 1);
    return [=] { at::fft_rfft(lines); };
  }
  if (c.op != "solve" && c.op != "cholesky" && c.op != "svdvals") return nullptr;
  const Tensor x = filled({c.side, c.side}, 1), b = filled({c.side, c.side}, 2);
  const Tensor a = x + x.t() + 4 * static_cast<double>(c.side) * at::eye(c.side);
  if (c.op == "solve") return [=] { at::linalg_solve(a, b); };
  if (c.op == "cholesky") return [=] { at::linalg_cholesky(a); };
  return [=] { at::linalg_svdvals(a); };
}

// The optimiser needs a gradient at the parameter, so this case runs outside inference mode, as training
// does.
OpCall adam(const OpCase& c) {
  c10::InferenceMode training(false);
  Tensor parameter = filled({c.elements}, 1).set_requires_grad(true);
  parameter.mutable_grad() = filled({c.elements}, 2);
  const auto optimiser = std::make_shared<torch::optim::Adam>(std::vector<Tensor>{parameter});
  return [=] {
    c10::InferenceMode off(false);
    optimiser->step();
  };
}

OpCall convolution_call(const OpCase& c) {
  const ConvShape& s = conv_shapes()[static_cast<size_t>(c.side)];
  const Tensor x = filled({s.images, s.in, s.size, s.size}, 1);
  const Tensor w = filled({s.out, s.in / s.groups, s.kernel, s.kernel}, 2);
  const Tensor dy = filled({s.images, s.out, s.result(), s.result()}, 3);
  const std::vector<int64_t> stride(2, s.stride), padding(2, s.padding), ones(2, 1), zeros(2, 0);
  if (c.op == "conv_fwd") return [=] { at::conv2d(x, w, {}, stride, padding, ones, s.groups); };
  const bool data = c.op == "conv_data";
  return [=] {
    at::convolution_backward(dy, x, w, at::OptionalIntArrayRef(), stride, padding, ones, false, zeros,
                             s.groups, {data, !data, false});
  };
}

OpCall recurrent_call(const OpCase& c) {
  const RecurrentShape& s = recurrent_shapes()[static_cast<size_t>(c.side)];
  const bool lstm = c.op.starts_with("lstm"), train = c.op.ends_with("_train");
  const int64_t gates = lstm ? 4 : 3;
  const auto numbers = [&](at::IntArrayRef shape, uint32_t seed) {
    return filled(shape, seed).mul_(0.05).set_requires_grad(train);
  };
  const Tensor x = numbers({s.steps, s.batch, s.inputs}, 1);
  const std::vector<Tensor> w = {numbers({gates * s.hidden, s.inputs}, 2),
                                 numbers({gates * s.hidden, s.hidden}, 3), numbers({gates * s.hidden}, 4),
                                 numbers({gates * s.hidden}, 5)};
  const Tensor state = at::zeros({1, s.batch, s.hidden}), dy = at::ones({s.steps, s.batch, s.hidden});
  return [=] {
    const auto run = [&] {
      const Tensor y = lstm ? std::get<0>(at::lstm(x, {state, state}, w, true, 1, 0, train, false, false))
                            : std::get<0>(at::gru(x, state, w, true, 1, 0, train, false, false));
      if (!train) return;
      for (const Tensor& leaf : w) leaf.mutable_grad().reset();
      x.mutable_grad().reset();
      y.backward(dy);
    };
    if (train) return run();
    const c10::InferenceMode inference;
    run();
  };
}

OpCall prepare(const OpCase& c, int) {
  if (c.op.starts_with("lstm_") || c.op.starts_with("gru_")) return recurrent_call(c);
  if (c.op.starts_with("conv_")) {
    return [call = convolution_call(c)] {
      const c10::InferenceMode inference;
      call();
    };
  }
  if (c.op == "adam") return adam(c);
  if (const OpCall call = torch_family_call(c)) return call;
  for (const auto& make :
       {elementwise, reduction_or_scan, loss, rows, normalisation, matrix, sparse, linear_algebra}) {
    const OpCall call = make(c);
    if (!call) continue;
    return [call] {
      const c10::InferenceMode inference;
      call();
    };
  }
  return nullptr;
}

std::vector<std::string> environment(int threads) {
  std::vector<std::string> entries = {"OMP_NUM_THREADS=" + std::to_string(threads)};
#if defined(__x86_64__)
  // For a libtorch that uses OpenBLAS: see op_bench_openblas.cc.
  if (__builtin_cpu_supports("avx512vl")) entries.push_back("OPENBLAS_CORETYPE=SkylakeX");
#endif
  return entries;
}

}  // namespace

int main(int argc, char** argv) {
  OpSystem system{
      .bench = "op", .name = "libtorch", .cases = op_cases(), .environment = environment, .prepare = prepare};
  system.start = [](int threads) {
    at::set_num_threads(threads);
    note(std::string("libtorch ") + TORCH_VERSION);
  };
  return run_op_bench(argc, argv, system);
}
