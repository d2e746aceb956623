// Helpers shared by the tests over all operators: samples in every type and layout, and the results of a call
// as bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/ndarray.h"
#include "operators/operator.h"
#include "operators/samples/samples.h"
#include "tests/support/errors.h"

namespace mx::test {

/// The contents of an array.
struct Content {
  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;  // row-major
  bool operator==(const Content&) const = default;
};

inline void PrintTo(const Content& content, std::ostream* out) {
  *out << content.dtype << ' ' << content.shape << " of";
  for (size_t i = 0; i < content.bytes.size() && i < 64; ++i)
    *out << (i % size_of(content.dtype) == 0 ? " " : "") << std::to_integer<int>(content.bytes[i]) << '.';
}

inline Content content_of(const NDArray& a) {
  Content content{a.dtype(), a.shape(), {}};
  visit(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto values = a.to_vector<T>();
    content.bytes.resize(values.size() * sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) {
      const T value = values[i];
      std::memcpy(content.bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return content;
}

/// Returns the gradients that an operator sets for these inputs if all are requested.
inline std::vector<NDArray> call_gradient(const Operator& op, const Attrs& attrs,
                                          const std::vector<NDArray>& inputs,
                                          const std::vector<NDArray>& outputs,
                                          std::span<const NDArray> heads) {
  std::vector<NDArray> results(inputs.size());
  const std::vector<uint8_t> wanted(inputs.size(), 1);
  GradientContext context(op, attrs, inputs, outputs, heads, wanted, results);
  op.gradient(context);
  return results;
}

inline bool is_updated(const Operator& op, size_t i) { return has_bit(op.updates, i); }

/// Calls the operator with copies of the inputs it updates; returns the outputs, followed by those copies.
inline std::vector<Content> outcome(const Operator& op, const Attrs& attrs, std::vector<NDArray> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_updated(op, i)) inputs[i] = inputs[i].clone();
  std::vector<Content> contents;
  for (const NDArray& output : call(op, attrs, inputs)) contents.push_back(content_of(output));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_updated(op, i)) contents.push_back(content_of(inputs[i]));
  return contents;
}

inline std::string label(const Operator& op, const Sample& sample) {
  std::string text = std::string(op.name()) + " (" + sample.label + ") of";
  for (const NDArray& input : sample.inputs) text += detail::concat(' ', input.dtype(), ' ', input.shape());
  return text;
}

/// Checks that an error's message names the operator and all operands.
inline void expect_named(const Operator& op, const std::vector<NDArray>& inputs, const std::string& text) {
  EXPECT_TRUE(contains(text, std::string("[") + op.name() + "]")) << text;
  for (const NDArray& input : inputs)
    EXPECT_TRUE(contains(text, detail::concat(input.dtype(), ' ', input.shape()))) << text;
}

/// Returns the sample with its first input converted to `dtype`, together with the other inputs of the same
/// type (except updated ones).
inline Sample as_dtype(const Operator& op, const Sample& sample, DType dtype) {
  Sample converted = sample;
  if (sample.inputs.empty() || is_updated(op, 0)) return converted;
  const DType first = sample.inputs[0].dtype();
  for (size_t i = 0; i < sample.inputs.size(); ++i)
    if (sample.inputs[i].dtype() == first && !is_updated(op, i))
      converted.inputs[i] = sample.inputs[i].to(dtype);
  return converted;
}

inline std::vector<DType> dtypes_of(const Operator& op) {
  if (op.inputs.empty() || is_updated(op, 0)) return {f32};  // as_dtype() changes nothing here
  return op.dtypes.empty() ? std::vector<DType>(kAllDTypes, kAllDTypes + kDTypes) : op.dtypes;
}

inline bool takes(const Operator& op, DType dtype) {
  const std::vector<DType> all = dtypes_of(op);
  return op.dtypes.empty() || std::find(all.begin(), all.end(), dtype) != all.end();
}

/// Calls f(op, sample) for all samples in their own types.
template <class F>
void for_each_sample(const F& f) {
  for (const Operator* op : all_operators()) {
    if (!has_samples(*op)) continue;  // another test reports this
    for (const Sample& sample : samples_of(*op)) {
      SCOPED_TRACE(label(*op, sample));
      f(*op, sample);
    }
  }
}

/// The same in all types that the operator takes.
template <class F>
void for_each_typed_sample(const F& f) {
  for (const Operator* op : all_operators()) {
    if (!has_samples(*op)) continue;
    const std::vector<DType> dtypes = dtypes_of(*op);
    for (const Sample& sample : samples_of(*op)) {
      if (op->sized_by_values) {  // conversion would round values away
        SCOPED_TRACE(label(*op, sample));
        f(*op, sample);
        continue;
      }
      for (DType dtype : dtypes) {
        const Sample typed = as_dtype(*op, sample, dtype);
        SCOPED_TRACE(label(*op, typed));
        f(*op, typed);
      }
    }
  }
}

enum class Layout { transposed, stepped, reversed, broadcast };
inline constexpr Layout kAllLayouts[] = {Layout::transposed, Layout::stepped, Layout::reversed,
                                         Layout::broadcast};

/// Returns the same elements in another layout; for `broadcast`, the first element of each row repeated.
inline NDArray laid_out(const NDArray& a, Layout layout) {
  const int rank = a.rank();
  if (layout == Layout::broadcast) {
    NDArray b = a;
    if (rank > 0 && a.numel() > 0) b = a.slice(0, Slice{0, 1}).broadcast_to(a.shape());
    if (rank > 1 && a.numel() > 0) b = b.slice(rank - 1, Slice{0, 1}).broadcast_to(a.shape());
    return b;
  }
  NDArray b;
  if (layout == Layout::transposed) {
    Shape reversed;
    for (int d = rank - 1; d >= 0; --d) reversed.push_back(a.shape()[d]);
    b = empty(reversed, a.dtype(), a.context()).transpose();
  } else if (layout == Layout::stepped) {
    Shape wide;
    for (int64_t size : a.shape()) wide.push_back(2 * size + 1);
    b = full(wide, 1, a.dtype(), a.context());
    for (int d = 0; d < rank; ++d) b = b.slice(d, Slice{1, {}, 2});
  } else {
    b = empty_like(a);
    for (int d = 0; d < rank; ++d) b = b.slice(d, Slice{{}, {}, -1});
  }
  b.copy_from(a);
  return b;
}

}  // namespace mx::test
