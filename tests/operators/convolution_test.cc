// The kernels of convolutions against plain loops in float64, over sizes that reach every way of reading an
// image and of writing a result.
#include "operators/kernels/convolution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/half.h"
#include "ndarray/dtype.h"
#include "ndarray/kernels/convert.h"
#include "tests/support/thread_limit.h"

namespace mx::kernels {
namespace {

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
};

struct ConvSizes {
  int64_t images = 1, groups = 1, channels = 1, rows = 1;
  Spatial in{1, 1, 8}, taps{1, 1, 3}, step{1, 1, 1}, pad{0, 0, 0}, gap{1, 1, 1};
  bool channels_last = false;  // the layout of image and result
  bool bias = false;
};

std::string text_of(const ConvSizes& s, DType dtype) {
  std::string text = detail::concat(dtype, " images ", s.images, " groups ", s.groups, " channels ",
                                    s.channels, " rows ", s.rows, s.channels_last ? " channels last" : "");
  for (size_t a = 0; a < 3; ++a)
    text += detail::concat(" [in ", s.in[a], " taps ", s.taps[a], " step ", s.step[a], " pad ", s.pad[a],
                           " gap ", s.gap[a], "]");
  return text;
}

void lay_out(Images& i, int64_t groups, int64_t per_group, bool channels_last) {
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

  /// Calls f(index in `in` or -1, index in `weights`, index in `out`) for every product.
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
            for (int64_t ch = 0; ch < c.channels; ++ch)
              each(c.taps.count, [&](const Spatial& t) {
                int64_t at = n * c.in.image + g * c.in.group + ch * c.in.channel;
                int64_t to = n * c.out.image + g * c.out.group + r * c.out.channel;
                int64_t w = g * c.weights.group + r * c.weights.row + ch * c.weights.channel;
                for (size_t a = 0; a < 3; ++a) {
                  const int64_t x = o[a] * c.step[a] + c.taps.first[a] + t[a] * c.taps.gap[a];
                  if (x < 0 || x >= c.in.size[a]) return;
                  at += x * c.in.space[a], to += o[a] * c.out.space[a], w += t[a] * c.weights.tap[a];
                }
                f(at, w, to);
              });
          });
  }
};

void expect_correlation(const ConvSizes& s, DType dtype) {
  SCOPED_TRACE(text_of(s, dtype));
  ConvProblem p(s, dtype);
  std::vector<double> want(p.out.bytes.size() / size_of(dtype));
  if (s.bias)
    for (size_t i = 0; i < want.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t channel = s.channels_last ? at % (s.groups * s.rows)
                                              : at / ConvProblem::count(p.c.out.size) % (s.groups * s.rows);
      want[i] = p.bias.get(channel);
    }
  p.each_product([&](int64_t in, int64_t w, int64_t out) {
    want[static_cast<size_t>(out)] += p.in.get(in) * p.weights.get(w);
  });
  std::vector<std::byte> scratch(correlate_scratch(p.c) + 64);
  void* at = scratch.data();
  size_t room = scratch.size();
  correlate(p.c, std::align(64, scratch.size() - 64, at, room));
  ConvOperand rounded(dtype, 1, 1);
  for (size_t i = 0; i < want.size(); ++i) {
    rounded.set(0, want[i]);
    ASSERT_EQ(rounded.get(0), p.out.get(static_cast<int64_t>(i))) << "element " << i;
  }
}

std::vector<ConvSizes> conv_cases() {
  return {
      {.in = {1, 1, 20}},
      {.images = 2,
       .channels = 3,
       .rows = 5,
       .in = {1, 9, 11},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1},
       .bias = true},
      {.images = 2,
       .channels = 3,
       .rows = 17,
       .in = {1, 32, 32},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1},
       .bias = true},
      {.images = 3,
       .channels = 70,
       .rows = 40,
       .in = {1, 8, 8},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1},
       .bias = true},
      {.images = 9, .channels = 64, .rows = 30, .in = {1, 4, 4}, .taps = {1, 3, 3}, .pad = {0, 1, 1}},
      {.images = 5,
       .channels = 33,
       .rows = 64,
       .in = {1, 7, 5},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1},
       .bias = true},
      {.images = 2, .channels = 40, .rows = 48, .in = {1, 16, 16}, .taps = {1, 1, 1}, .bias = true},
      {.images = 3, .channels = 20, .rows = 40, .in = {1, 7, 7}, .taps = {1, 1, 1}},
      {.images = 3, .channels = 5, .rows = 3, .in = {1, 8, 8}, .taps = {1, 1, 1}},
      {.images = 2, .channels = 20, .rows = 40, .in = {1, 15, 15}, .taps = {1, 1, 1}, .step = {1, 2, 2}},
      {.images = 2,
       .channels = 16,
       .rows = 33,
       .in = {1, 16, 17},
       .taps = {1, 3, 3},
       .step = {1, 2, 2},
       .pad = {0, 1, 1}},
      {.channels = 3, .rows = 64, .in = {1, 37, 41}, .taps = {1, 7, 7}, .step = {1, 2, 2}, .pad = {0, 3, 3}},
      {.images = 2,
       .groups = 6,
       .channels = 1,
       .rows = 1,
       .in = {1, 17, 33},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1},
       .bias = true},
      {.images = 2,
       .groups = 5,
       .channels = 1,
       .rows = 2,
       .in = {1, 32, 32},
       .taps = {1, 5, 5},
       .step = {1, 2, 1},
       .pad = {0, 2, 2}},
      {.images = 2,
       .groups = 3,
       .channels = 4,
       .rows = 6,
       .in = {1, 12, 12},
       .taps = {1, 3, 2},
       .pad = {0, 2, 1},
       .gap = {1, 2, 3}},
      {.images = 1,
       .channels = 2,
       .rows = 3,
       .in = {1, 6, 9},
       .taps = {1, 2, 2},
       .step = {1, 3, 5},
       .gap = {1, 2, 4}},
      {.images = 2,
       .channels = 3,
       .rows = 4,
       .in = {5, 6, 7},
       .taps = {3, 2, 3},
       .step = {2, 1, 2},
       .pad = {1, 1, 0},
       .gap = {1, 2, 1},
       .bias = true},
      {.images = 2, .channels = 9, .rows = 16, .in = {4, 8, 16}, .taps = {3, 3, 3}, .pad = {1, 1, 1}},
      {.images = 1,
       .channels = 2,
       .rows = 4,
       .in = {1, 1, 3000},
       .taps = {1, 1, 9},
       .pad = {0, 0, 4},
       .bias = true},
      {.images = 1, .channels = 1, .rows = 20, .in = {1, 1, 900}, .taps = {1, 1, 400}},
      {.images = 1, .channels = 8, .rows = 8, .in = {1, 70, 90}, .taps = {1, 3, 3}, .pad = {0, 1, 1}},
      {.images = 2,
       .channels = 5,
       .rows = 7,
       .in = {1, 9, 10},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1},
       .channels_last = true,
       .bias = true},
      {.images = 2, .channels = 1, .rows = 2, .in = {1, 2, 2}, .taps = {1, 3, 3}, .pad = {0, 5, 5}},
      // Many small images, some of which do not fill a vector.
      {.images = 35,
       .channels = 40,
       .rows = 30,
       .in = {1, 4, 4},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1},
       .bias = true},
      {.images = 16,
       .channels = 300,
       .rows = 17,
       .in = {1, 5, 3},
       .taps = {1, 3, 3},
       .step = {1, 2, 2},
       .pad = {0, 1, 1}},
      {.images = 17,
       .channels = 32,
       .rows = 16,
       .in = {2, 3, 4},
       .taps = {2, 3, 3},
       .pad = {1, 1, 1},
       .channels_last = true,
       .bias = true},
      {.images = 20,
       .groups = 2,
       .channels = 33,
       .rows = 31,
       .in = {1, 1, 1},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1}},
      {.images = 32, .channels = 6, .rows = 16, .in = {1, 14, 14}, .taps = {1, 5, 5}, .bias = true},
      // Few rows, and half of the taps are outside of the images.
      {.images = 35,
       .channels = 16,
       .rows = 6,
       .in = {1, 10, 10},
       .taps = {1, 5, 5},
       .pad = {0, 4, 4},
       .bias = true},
      {.images = 17,
       .channels = 70,
       .rows = 5,
       .in = {3, 4, 5},
       .taps = {2, 3, 5},
       .step = {1, 2, 1},
       .pad = {1, 4, 6},
       .gap = {1, 2, 2}},
      {.images = 31,
       .channels = 50,
       .rows = 20,
       .in = {1, 9, 11},
       .taps = {1, 3, 2},
       .step = {1, 2, 1},
       .gap = {1, 2, 3}},
      // Few channels and rows, and vectors of images for the gradient of the weights: several blocks of
      // positions, steps, planes, groups, layouts, and a last vector of few images.
      {.images = 34, .channels = 1, .rows = 6, .in = {1, 28, 28}, .taps = {1, 5, 5}, .pad = {0, 2, 2}},
      {.images = 17, .channels = 3, .rows = 5, .in = {1, 30, 9}, .taps = {1, 3, 3}, .step = {1, 2, 1}},
      {.images = 19,
       .channels = 2,
       .rows = 7,
       .in = {4, 6, 7},
       .taps = {2, 3, 3},
       .step = {2, 1, 1},
       .pad = {1, 1, 1},
       .gap = {1, 1, 2},
       .channels_last = true},
      {.images = 33,
       .groups = 5,
       .channels = 1,
       .rows = 1,
       .in = {1, 12, 13},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1}},
      {.images = 16, .channels = 1, .rows = 1, .in = {1, 2, 3}, .taps = {1, 3, 3}, .pad = {0, 4, 4}},
      // Rows of results that are no whole vectors, of one or more vectors, behind each other or not.
      {.images = 3,
       .channels = 1,
       .rows = 2,
       .in = {1, 9, 20},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1},
       .bias = true},
      {.images = 3, .channels = 1, .rows = 2, .in = {1, 9, 5}, .taps = {1, 3, 3}, .pad = {0, 1, 1}},
      {.images = 2,
       .channels = 1,
       .rows = 2,
       .in = {3, 2, 3},
       .taps = {1, 1, 3},
       .pad = {0, 0, 1},
       .bias = true},
      {.images = 2, .channels = 3, .rows = 5, .in = {2, 50, 70}, .taps = {1, 3, 3}, .pad = {0, 1, 1}},
      {.images = 0, .channels = 1, .rows = 2, .in = {1, 4, 4}},
      {.images = 2, .channels = 0, .rows = 2, .in = {1, 4, 4}, .bias = true},
  };
}

void expect_weights(const ConvSizes& s, DType dtype) {
  SCOPED_TRACE(text_of(s, dtype));
  ConvProblem p(s, dtype);
  std::vector<double> want(p.weights.bytes.size() / size_of(dtype));
  p.each_product([&](int64_t in, int64_t w, int64_t out) {
    want[static_cast<size_t>(w)] += p.in.get(in) * p.out.get(out);
  });
  std::vector<std::byte> scratch(correlate_weights_scratch(p.c) + 64);
  void* at = scratch.data();
  size_t room = scratch.size();
  correlate_weights(p.c, std::align(64, scratch.size() - 64, at, room));
  ConvOperand rounded(dtype, 1, 1);
  for (size_t i = 0; i < want.size(); ++i) {
    rounded.set(0, want[i]);
    ASSERT_EQ(rounded.get(0), p.weights.get(static_cast<int64_t>(i))) << "element " << i;
  }
}

TEST(Convolution, GradientOfWeightsAgreesWithAPlainLoop) {
  for (const ConvSizes& sizes : conv_cases())
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) expect_weights(sizes, dtype);
}

TEST(Convolution, AgreesWithAPlainLoop) {
  for (const ConvSizes& sizes : conv_cases())
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
      expect_correlation(sizes, dtype);
}

}  // namespace
}  // namespace mx::kernels
