// op_bench: the cases of op_cases.h on our arrays, found by name in the registry of operators.
//
// A call does the work of a user's call: it is checked, pushed to the engine or run at once, and waited for.
// The result is written to an existing array.
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/op/families.h"
#include "benchmarks/op/runner.h"
#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "operators/recurrent.h"
#include "optim/update.h"

namespace {

using namespace mx::bench;
using mx::AttrMap;
using mx::NDArray;

// The operator of a case, if the registry's name or attributes differ from those of the case.
struct Entry {
  std::string name;
  AttrMap attrs;
};

Entry entry_of(const OpCase& c) {
  static const std::map<std::string, Entry> others = {
      {"sgemm", {"matmul", {}}},
      {"igemm", {"matmul_i32", {}}},
      {"solve", {"linalg_solve", {}}},
      {"cholesky", {"linalg_cholesky", {}}},
      {"svdvals", {"linalg_svdvals", {}}},
      {"softmax", {"softmax", {{"axis", int64_t{-1}}}}},
      {"log_softmax", {"log_softmax", {{"axis", int64_t{-1}}}}},
      {"cumsum", {"cumsum", {{"axis", int64_t{0}}}}},
      {"sort", {"sort", {{"axis", int64_t{0}}}}},
      {"take", {"take", {{"axis", int64_t{0}}}}},
  };
  const auto found = others.find(c.op);
  return found == others.end() ? Entry{c.op, {}} : found->second;
}

NDArray input(const OpCase& c, uint32_t seed) { return mx::array(op_input(c.elements, seed)); }

NDArray rows(const OpCase& c, uint32_t seed) {
  return input(c, seed).reshape({c.elements / kOpColumns, kOpColumns});
}

// A matrix whose diagonal dominates; symmetric for the Cholesky decomposition.
NDArray matrix(const OpCase& c) {
  const NDArray x = input(c, 1).reshape({c.side, c.side});
  return x + x.transpose() + 4 * static_cast<double>(c.side) * mx::eye(c.side);
}

// A square matrix of int8.
NDArray bytes(const OpCase& c, uint32_t seed) {
  return (input(c, seed) * 100).to(mx::i8).reshape({c.side, c.side});
}

std::vector<NDArray> inputs_of(const OpCase& c) {
  if (c.op == "solve") return {matrix(c), input(c, 2).reshape({c.side, c.side})};
  if (c.op == "cholesky" || c.op == "svdvals") return {matrix(c)};
  if (c.op == "rfft") return {input(c, 1).reshape({c.elements / c.side, c.side})};
  if (c.op == "sgemm") return {input(c, 1).reshape({c.side, c.side}), input(c, 2).reshape({c.side, c.side})};
  if (c.op == "igemm") return {bytes(c, 1), bytes(c, 2)};
  if (c.op == "add" || c.op == "mul" || c.op == "mse_loss" || c.op == "huber_loss" ||
      c.op == "bce_with_logits")
    return {input(c, 1), input(c, 2)};
  if (c.op == "softmax" || c.op == "log_softmax") return {rows(c, 1)};
  if (c.op == "where") return {input(c, 3) > 0.f, input(c, 1), input(c, 2)};
  if (c.op == "take") return {input(c, 1), mx::array(op_indices(c.elements, c.elements, 4))};
  if (c.op == "cross_entropy")
    return {rows(c, 1), mx::array(op_indices(c.elements / kOpColumns, kOpColumns, 4))};
  return {input(c, 1)};
}

// Not an operator, but an update rule, here for one parameter.
OpCall adam(const OpCase& c) {
  const NDArray parameter = input(c, 1), gradient = input(c, 2);
  const NDArray m = mx::zeros_like(parameter), v = mx::zeros_like(parameter);
  const NDArray rate = mx::full({}, 1e-3), step = mx::full({}, 1.);
  return [=] {
    mx::optim::adam_update({{parameter}, {gradient}}, {{m}, {v}}, {.learning_rate = rate, .step = step});
    parameter.wait();
  };
}

// These operators have several outputs, so each call makes new arrays, of memory that is reused.
OpCall normalisation(const OpCase& c) {
  const bool batch = c.op.starts_with("batch_norm"), rms = c.op.starts_with("rms_norm");
  const int64_t parameters = batch ? kOpChannels : kOpColumns;
  const auto shaped = [&](uint32_t seed) {
    return batch ? input(c, seed).reshape({kOpBatch, kOpChannels, c.elements / kOpBatch / kOpChannels})
                 : rows(c, seed);
  };
  const NDArray x = shaped(1), weight = mx::ones({parameters});
  const bool backward = c.op.ends_with("_backward");
  const mx::Operator* op = mx::find_operator(c.op.substr(0, c.op.find("_backward")));
  std::vector<NDArray> inputs = {x, weight};
  if (!rms) inputs.push_back(mx::zeros({parameters}));
  mx::Attrs attrs = mx::Attrs::from_map(op->attrs, {}, op->name());
  if (backward) {
    const std::vector<NDArray> results = mx::call(*op, attrs, inputs);
    inputs = {shaped(2), x};
    inputs.insert(inputs.end(), results.begin() + 1, results.end());
    inputs.push_back(weight);
    op = mx::find_operator(c.op);
    attrs = mx::Attrs::from_map(op->attrs, {}, op->name());
  }
  return [=] { mx::call(*op, attrs, inputs).at(0).wait(); };
}

OpCall convolution_call(const OpCase& c) {
  const ConvShape& s = conv_shapes()[static_cast<size_t>(c.side)];
  const auto numbers = [](const mx::Shape& shape, uint32_t seed) {
    return mx::array(op_input(shape.numel(), seed)).reshape(shape);
  };
  const NDArray x = numbers({s.images, s.in, s.size, s.size}, 1);
  const NDArray w = numbers({s.out, s.in / s.groups, s.kernel, s.kernel}, 2);
  const NDArray dy = numbers({s.images, s.out, s.result(), s.result()}, 3);
  if (c.op == "conv_fwd")
    return
        [=] { mx::convolution(x, w, {.stride = s.stride, .padding = s.padding, .groups = s.groups}).wait(); };
  if (c.op == "conv_weights")
    return [=] {
      mx::convolution_weights(
          x, dy, {.kernel = s.kernel, .stride = s.stride, .padding = s.padding, .groups = s.groups})
          .wait();
    };
  const int64_t rest = (s.size + 2 * s.padding - s.kernel) % s.stride;
  return [=] {
    mx::convolution_transpose(
        dy, w, {.stride = s.stride, .padding = s.padding, .groups = s.groups, .output_padding = rest})
        .wait();
  };
}

OpCall sparse(const OpCase& c) {
  const NDArray pointers = mx::arange(0, kSparseRows + 1, 1, mx::i64) * kSparseEntries;
  const NDArray x = input(c, 2).reshape({-1, c.side});
  if (c.op == "segment_sum") return [=] { mx::segment_sum(x, pointers).wait(); };
  const int64_t entries = kSparseRows * kSparseEntries;
  const NDArray columns = mx::array(op_indices(entries, kSparseRows, 4)),
                values = mx::array(op_input(entries, 1));
  if (c.op == "csr_matmul") return [=] { mx::csr_matmul(values, columns, pointers, x).wait(); };
  return [=] { mx::csr_matmul_transposed(values, columns, pointers, x, kSparseRows).wait(); };
}

OpCall recurrent_call(const OpCase& c) {
  const RecurrentShape& s = recurrent_shapes()[static_cast<size_t>(c.side)];
  const bool lstm = c.op.starts_with("lstm"), gru = c.op.starts_with("gru"), train = c.op.ends_with("_train");
  const int64_t gates = lstm ? 4 : gru ? 3 : 1;
  const auto numbers = [&](const mx::Shape& shape, uint32_t seed) {
    const NDArray x = mx::array(op_input(shape.numel(), seed)).reshape(shape) * 0.05;
    return train ? x.clone().requires_grad_() : x;
  };
  const NDArray x = numbers({s.steps, s.batch, s.inputs}, 1);
  const mx::RecurrentWeights w{numbers({gates * s.hidden, s.inputs}, 2),
                               numbers({gates * s.hidden, s.hidden}, 3), numbers({gates * s.hidden}, 4),
                               numbers({gates * s.hidden}, 5)};
  const NDArray state = mx::zeros({s.batch, s.hidden}), dy = mx::ones({s.steps, s.batch, s.hidden});
  const std::vector<NDArray> leaves = {x, w.w_ih, w.w_hh, w.b_ih, w.b_hh};
  return [=] {
    const NDArray y = lstm  ? mx::lstm(x, w, state, state).y
                      : gru ? mx::gru(x, w, state).y
                            : mx::rnn(x, w, state).y;
    if (!train) {
      y.wait();
      return;
    }
    for (const NDArray& gradient : mx::gradients({y}, leaves, {.heads = {dy}})) gradient.wait();
  };
}

OpCall prepare(const OpCase& c, int) {
  if (OpCall call = family_call(c)) return call;
  if (c.op.starts_with("csr_") || c.op == "segment_sum") return sparse(c);
  if (c.op.starts_with("lstm_") || c.op.starts_with("gru_") || c.op.starts_with("rnn_"))
    return recurrent_call(c);
  if (c.op.starts_with("conv_")) return convolution_call(c);
  if (c.op == "adam") return adam(c);
  if (c.op.find("_norm") != std::string::npos) return normalisation(c);
  if (c.op == "transpose") {
    const NDArray from = input(c, 1).reshape({c.side, c.side}).transpose();
    NDArray to = mx::empty({c.side, c.side});
    return [=]() mutable { to.copy_from(from).wait(); };
  }
  if (c.op == "cast_f16") {
    const NDArray from = input(c, 1);
    NDArray to = mx::empty(from.shape(), mx::f16);
    return [=]() mutable { to.copy_from(from).wait(); };
  }
  const Entry entry = entry_of(c);
  const mx::Operator* op = mx::find_operator(entry.name);
  if (op == nullptr) throw std::runtime_error("no operator is called " + entry.name);
  const std::vector<NDArray> inputs = inputs_of(c);
  const mx::Attrs attrs = mx::Attrs::from_map(op->attrs, entry.attrs, op->name());
  NDArray out = mx::call(*op, attrs, inputs).at(0);
  out.wait();
  return [=]() mutable {
    mx::call_into(out, *op, attrs, inputs);
    out.wait();
  };
}

}  // namespace

int main(int argc, char** argv) {
  return run_op_bench(argc, argv, {.bench = "op", .name = "mx", .cases = op_cases(), .prepare = prepare});
}
