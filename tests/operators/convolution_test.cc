// The kernels of convolutions against plain loops in float64, over sizes that reach every way of reading an
// image and of writing a result.
#include "operators/kernels/convolution.h"

#include <gtest/gtest.h>

#include <vector>

#include "operators/kernels/convolution_winograd.h"
#include "tests/operators/convolution_problem.h"

namespace mx::kernels {
namespace {

void expect_correlation(const ConvSizes& s, DType dtype, UseWinograd winograd) {
  SCOPED_TRACE(text_of(s, dtype));
  ConvProblem p(s, dtype);
  p.c.winograd = winograd;
  if (winograd == UseWinograd::whenever_possible && !uses_winograd(p.c)) return;
  std::vector<double> want(p.out.bytes.size() / size_of(dtype));
  if (s.bias)
    for (size_t i = 0; i < want.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t channel = s.channels_last ? at % (s.groups * s.rows)
                                              : at / ConvProblem::count(p.c.out.size) % (s.groups * s.rows);
      want[i] = p.bias.get(channel);
    }
  const std::vector<double> images = p.in.values(), weights = p.weights.values();
  p.each_product([&](int64_t in, int64_t w, int64_t out) {
    want[static_cast<size_t>(out)] += images[static_cast<size_t>(in)] * weights[static_cast<size_t>(w)];
  });
  p.correlate();
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
      // Winograd's method: odd sizes, no and much padding, groups, several steps of channels, rows of tiles
      // that blocks divide, and taps that read from the last element to the first.
      {.images = 3,
       .channels = 40,
       .rows = 33,
       .in = {1, 9, 12},
       .taps = {1, 3, 3},
       .pad = {0, 1, 1},
       .bias = true},
      {.images = 2, .channels = 32, .rows = 35, .in = {1, 13, 11}, .taps = {1, 3, 3}},
      {.images = 2,
       .groups = 2,
       .channels = 33,
       .rows = 34,
       .in = {1, 5, 20},
       .taps = {1, 3, 3},
       .pad = {0, 3, 2},
       .bias = true},
      {.images = 3, .channels = 300, .rows = 32, .in = {1, 8, 6}, .taps = {1, 3, 3}, .pad = {0, 1, 1}},
      {.images = 1, .channels = 32, .rows = 32, .in = {1, 3, 290}, .taps = {1, 3, 3}, .pad = {0, 1, 1}},
      {.images = 40, .channels = 32, .rows = 32, .in = {1, 1, 1}, .taps = {1, 3, 3}, .pad = {0, 1, 1}},
      {.images = 2,
       .channels = 48,
       .rows = 32,
       .in = {1, 8, 8},
       .taps = {1, 3, 3},
       .pad = {0, -1, -1},
       .gap = {1, -1, -1},
       .bias = true},
      {.images = 2,
       .channels = 32,
       .rows = 130,
       .in = {1, 8, 8},
       .taps = {1, 3, 3},
       .pad = {0, -1, 1},
       .gap = {1, -1, 1}},
      // Winograd's method in three dimensions: sums over channels and over the taps of the first axis.
      {.images = 1,
       .channels = 12,
       .rows = 33,
       .in = {5, 6, 7},
       .taps = {3, 3, 3},
       .pad = {1, 1, 1},
       .bias = true},
      {.images = 2,
       .channels = 17,
       .rows = 32,
       .in = {6, 7, 5},
       .taps = {2, 3, 3},
       .step = {2, 1, 1},
       .pad = {3, 1, 1},
       .gap = {2, 1, 1}},
      {.images = 1,
       .channels = 11,
       .rows = 40,
       .in = {4, 8, 8},
       .taps = {3, 3, 3},
       .pad = {-1, -1, -1},
       .gap = {-1, -1, -1}},
      {.images = 0, .channels = 1, .rows = 2, .in = {1, 4, 4}},
      {.images = 2, .channels = 0, .rows = 2, .in = {1, 4, 4}, .bias = true},
  };
}

void expect_weights(const ConvSizes& s, DType dtype, UseWinograd winograd) {
  SCOPED_TRACE(text_of(s, dtype));
  ConvProblem p(s, dtype);
  p.c.winograd = winograd;
  if (winograd == UseWinograd::whenever_possible && !uses_winograd_for_weights(p.c)) return;
  std::vector<double> want(p.weights.bytes.size() / size_of(dtype));
  const std::vector<double> images = p.in.values(), results = p.out.values();
  p.each_product([&](int64_t in, int64_t w, int64_t out) {
    want[static_cast<size_t>(w)] += images[static_cast<size_t>(in)] * results[static_cast<size_t>(out)];
  });
  p.correlate_weights();
  ConvOperand rounded(dtype, 1, 1);
  for (size_t i = 0; i < want.size(); ++i) {
    rounded.set(0, want[i]);
    ASSERT_EQ(rounded.get(0), p.weights.get(static_cast<int64_t>(i))) << "element " << i;
  }
}

/// Calls expect(sizes, type, use of Winograd's method) for all cases.
void each_case(void (*expect)(const ConvSizes&, DType, UseWinograd)) {
  for (const UseWinograd winograd : {UseWinograd::never, UseWinograd::whenever_possible})
    for (const ConvSizes& sizes : conv_cases())
      for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
        expect(sizes, dtype, winograd);
}

TEST(Convolution, GradientOfWeightsAgreesWithAPlainLoop) { each_case(expect_weights); }
TEST(Convolution, AgreesWithAPlainLoop) { each_case(expect_correlation); }

}  // namespace
}  // namespace mx::kernels
