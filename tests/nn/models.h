// Modules as programs define them, for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/nn.h"
#include "operators/operators.h"

namespace mx::test {

/// x + fc2(relu(fc1(x))), as in the README of a program.
struct Block : nn::Module {
  nn::Linear fc1, fc2;
  explicit Block(int64_t d) : fc1{d, d}, fc2{d, d} {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  NDArray forward(const NDArray& x) { return x + fc2(relu(fc1(x))); }
};

/// A module with a parameter and two buffers of its own.
struct Scale : nn::Module {
  nn::Parameter factor, calls, scratch;
  explicit Scale(int64_t d)
      : factor(add_parameter("factor", arange(d).to(f32) * 0.25 + 0.5)),
        calls(add_buffer("calls", zeros({}, i64))),
        scratch(add_buffer("scratch", ones({2}), false)) {}
  NDArray forward(const NDArray& x) { return x * factor; }
};

/// A module that keeps submodules in every kind of C++ member that can hold values.
struct Deep : nn::Module {
  Block block;
  std::vector<nn::Linear> list;
  std::optional<Scale> maybe;
  nn::AnyModule any;
  nn::Sequential tail;
  std::function<NDArray(const NDArray&)> closure;
  int64_t repeats = 2;

  explicit Deep(int64_t d)
      : block(add("block", Block(d))),
        maybe(Scale(d)),
        any(nn::Linear{d, d}),
        tail(add("tail", nn::Sequential{nn::Linear{d, d}, nn::Tanh{}, Block{d}})) {
    for (int i = 0; i < 2; ++i) list.push_back(add("list" + std::to_string(i), nn::Linear{d, d}));
    add("maybe", *maybe);
    add("any", any);
    const nn::Linear kept = add("kept", nn::Linear{d, d});
    closure = [kept](const NDArray& x) { return kept(x); };
  }
  NDArray forward(const NDArray& x) {
    NDArray y = block(x);
    for (int64_t i = 0; i < repeats; ++i)
      for (const nn::Linear& linear : list) y = tanh(linear(y));
    return closure(any((*maybe)(tail(y))));
  }
};

inline nn::Sequential mlp() {
  return nn::Sequential{nn::Linear{3, 4}, nn::ReLU{}, Block{4}, nn::Linear{4, 2, {.bias = false}}};
}

/// Returns distinct numbers, the same in every run.
inline NDArray inputs(const Shape& shape, DType dtype = f32) {
  return (sin(arange(shape.numel()).to(f64) * 1.7 + 0.3) * 1.5).to(dtype).reshape(shape);
}

inline std::vector<std::string> names(const NamedArrays& arrays) {
  std::vector<std::string> list;
  for (const auto& entry : arrays) list.push_back(entry.first);
  return list;
}

/// Returns every element of every array, in order.
inline std::vector<double> all_values(const NamedArrays& arrays) {
  std::vector<double> list;
  for (const auto& entry : arrays)
    for (double value : entry.second.to_vector<double>()) list.push_back(value);
  return list;
}

}  // namespace mx::test
