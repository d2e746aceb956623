// A correlation of the convolution kernels with its operands, and its products one by one.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/half.h"
#include "ndarray/dtype.h"
#include "ndarray/kernels/convert.h"
#include "operators/kernels/convolution.h"

namespace mx::kernels {

/// Memory of one operand, with numbers of which all products and sums are exact in every type's sums.
struct ConvOperand {
  DType dtype;
  std::vector<std::byte> bytes;

  ConvOperand(DType type, int64_t count, uint64_t seed)
      : dtype(type), bytes(static_cast<size_t>(count) * size_of(type)) {
    std::mt19937_64 engine(seed);
    for (int64_t i = 0; i < count; ++i) set(i, static_cast<double>(static_cast<int64_t>(engine() % 9)) - 4);
  }
  void set(int64_t i, double value) {
    visit(dtype, [&](auto tag) {
      using E = typename decltype(tag)::type;
      const E element = convert<E>(value);
      std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(E), &element, sizeof(E));
    });
  }
  double get(int64_t i) const {
    double value = 0;
    visit(dtype, [&](auto tag) {
      using E = typename decltype(tag)::type;
      E element;
      std::memcpy(&element, bytes.data() + static_cast<size_t>(i) * sizeof(E), sizeof(E));
      value = convert<double>(element);
    });
    return value;
  }
  /// All elements, for loops over many products.
  std::vector<double> values() const {
    std::vector<double> all(bytes.size() / size_of(dtype));
    for (size_t i = 0; i < all.size(); ++i) all[i] = get(static_cast<int64_t>(i));
    return all;
  }
};

struct ConvSizes {
  int64_t images = 1, groups = 1, channels = 1, rows = 1;
  Spatial in{1, 1, 8}, taps{1, 1, 3}, step{1, 1, 1}, pad{0, 0, 0}, gap{1, 1, 1};
  bool channels_last = false;  // the layout of image and result
  bool bias = false;
};

inline std::string text_of(const ConvSizes& s, DType dtype) {
  std::string text = detail::concat(dtype, " images ", s.images, " groups ", s.groups, " channels ",
                                    s.channels, " rows ", s.rows, s.channels_last ? " channels last" : "");
  for (size_t a = 0; a < 3; ++a)
    text += detail::concat(" [in ", s.in[a], " taps ", s.taps[a], " step ", s.step[a], " pad ", s.pad[a],
                           " gap ", s.gap[a], "]");
  return text;
}

inline void lay_out(Images& i, int64_t groups, int64_t per_group, bool channels_last) {
  const int64_t channels = groups * per_group, positions = i.size[0] * i.size[1] * i.size[2];
  const int64_t unit = channels_last ? channels : 1;
  i.space = {i.size[1] * i.size[2] * unit, i.size[2] * unit, unit};
  i.channel = channels_last ? 1 : positions;
  i.group = per_group * i.channel;
  i.image = channels * positions;
}

/// A correlation with its operands.
struct ConvProblem {
  Correlation c;
  ConvOperand in, weights, bias, out;

  static Spatial result_size(const ConvSizes& s) {
    Spatial size;
    for (size_t a = 0; a < 3; ++a)
      size[a] = (s.in[a] + 2 * s.pad[a] - s.gap[a] * (s.taps[a] - 1) - 1) / s.step[a] + 1;
    return size;
  }
  static int64_t count(const Spatial& s) { return s[0] * s[1] * s[2]; }
  ConvProblem(const ConvSizes& s, DType dtype)
      : in(dtype, s.images * s.groups * s.channels * count(s.in), 1),
        weights(dtype, s.groups * s.rows * s.channels * count(s.taps), 2),
        bias(dtype, s.groups * s.rows, 3),
        out(dtype, s.images * s.groups * s.rows * count(result_size(s)), 4) {
    c.dtype = dtype;
    c.images = s.images, c.groups = s.groups, c.channels = s.channels, c.rows = s.rows;
    c.in.data = in.bytes.data(), c.out.data = out.bytes.data(), c.weights.data = weights.bytes.data();
    c.in.size = s.in, c.out.size = result_size(s);
    lay_out(c.in, s.groups, s.channels, s.channels_last);
    lay_out(c.out, s.groups, s.rows, s.channels_last);
    const int64_t taps = count(s.taps);
    c.weights.group = s.rows * s.channels * taps, c.weights.row = s.channels * taps, c.weights.channel = taps;
    c.weights.tap = {s.taps[1] * s.taps[2], s.taps[2], 1};
    c.taps.count = s.taps, c.taps.gap = s.gap, c.step = s.step;
    for (size_t a = 0; a < 3; ++a) c.taps.first[a] = -s.pad[a];
    if (s.bias) c.bias = bias.bytes.data();
  }

  void correlate() { with_scratch(correlate_scratch(c), kernels::correlate); }
  void correlate_weights() { with_scratch(correlate_weights_scratch(c), kernels::correlate_weights); }

  /// Calls f(index in `in`, index in `weights`, index in `out`) for every product.
  template <class F>
  void each_product(const F& f) const {
    const auto each = [](const Spatial& n, const auto& g) {
      for (int64_t i = 0; i < n[0]; ++i)
        for (int64_t j = 0; j < n[1]; ++j)
          for (int64_t k = 0; k < n[2]; ++k) g(Spatial{i, j, k});
    };
    for (int64_t n = 0; n < c.images; ++n)
      for (int64_t g = 0; g < c.groups; ++g)
        for (int64_t r = 0; r < c.rows; ++r)
          each(c.out.size, [&](const Spatial& o) {
            each(c.taps.count, [&](const Spatial& t) {
              int64_t at = n * c.in.image + g * c.in.group;
              int64_t to = n * c.out.image + g * c.out.group + r * c.out.channel;
              int64_t w = g * c.weights.group + r * c.weights.row;
              for (size_t a = 0; a < 3; ++a) {
                const int64_t x = o[a] * c.step[a] + c.taps.first[a] + t[a] * c.taps.gap[a];
                if (x < 0 || x >= c.in.size[a]) return;
                at += x * c.in.space[a], to += o[a] * c.out.space[a], w += t[a] * c.weights.tap[a];
              }
              for (int64_t ch = 0; ch < c.channels; ++ch)
                f(at + ch * c.in.channel, w + ch * c.weights.channel, to);
            });
          });
  }

 private:
  void with_scratch(size_t bytes, void (*f)(const Correlation&, void*)) {
    std::vector<std::byte> scratch(bytes + 64);
    void* at = scratch.data();
    size_t room = scratch.size();
    f(c, std::align(64, bytes, at, room));
  }
};

}  // namespace mx::kernels
