#include "operators/convolution.h"
#include "operators/elementwise_binary.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

/// Small multiples of 1/8 without an obvious pattern.
NDArray pattern(const Shape& shape, int64_t step) {
  std::vector<float> list(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < list.size(); ++i) {
    const auto n = static_cast<int64_t>(i);
    list[i] = static_cast<float>((n * step + n * n % 5) % 17 - 8) / 8;
  }
  return from_data(list.data(), shape);
}

std::vector<Sample> samples_convolution() {
  const NDArray x = pattern({2, 4, 5, 6}, 7), bias = pattern({6}, 5);
  return {{{x, pattern({6, 4, 3, 2}, 3), bias}, ConvolutionAttrs{}, "a kernel of (3, 2) with a bias"},
          {{x, pattern({3, 4, 3, 3}, 3)}, ConvolutionAttrs{.padding = 1}, "padding=1"},
          {{x, pattern({3, 4, 3, 3}, 3)},
           ConvolutionAttrs{.stride = 2, .padding = {1, 2}},
           "stride=2, padding=(1, 2)"},
          {{x, pattern({6, 2, 2, 2}, 3), bias},
           ConvolutionAttrs{.stride = {2, 1}, .dilation = {1, 3}, .groups = 2},
           "stride=(2, 1), dilation=(1, 3), groups=2"},
          {{x, pattern({4, 1, 3, 3}, 3)}, ConvolutionAttrs{.padding = 1, .groups = 4}, "depthwise"},
          {{x, pattern({3, 4, 1, 1}, 3)}, ConvolutionAttrs{}, "a kernel of (1, 1)"},
          {{pattern({2, 3, 7}, 7), pattern({2, 3, 3}, 3)},
           ConvolutionAttrs{.stride = 3, .padding = 2, .dilation = 2},
           "1 dimension"},
          {{pattern({1, 2, 3, 4, 3}, 7), pattern({2, 2, 2, 2, 2}, 3)},
           ConvolutionAttrs{.padding = {1, 0, 1}},
           "3 dimensions"}};
}

std::vector<Sample> samples_transpose() {
  const NDArray x = pattern({2, 4, 3, 4}, 7);
  return {
      {{x, pattern({4, 3, 3, 2}, 3), pattern({3}, 5)},
       ConvolutionTransposeAttrs{},
       "a kernel of (3, 2) with a bias"},
      {{x, pattern({4, 3, 3, 3}, 3)},
       ConvolutionTransposeAttrs{.stride = 2, .padding = 1, .output_padding = {1, 0}},
       "stride=2, padding=1, output_padding=(1, 0)"},
      {{x, pattern({4, 2, 2, 3}, 3), pattern({4}, 5)},
       ConvolutionTransposeAttrs{.stride = {3, 1}, .dilation = {1, 2}, .groups = 2, .output_padding = {0, 1}},
       "stride=(3, 1), dilation=(1, 2), groups=2, output_padding=(0, 1)"},
      {{pattern({2, 3, 5}, 7), pattern({3, 2, 3}, 3)},
       ConvolutionTransposeAttrs{.stride = 2, .padding = 2, .dilation = 4, .output_padding = 3},
       "1 dimension"},
      {{pattern({1, 2, 2, 3, 2}, 7), pattern({2, 2, 2, 2, 2}, 3)},
       ConvolutionTransposeAttrs{.stride = 2},
       "3 dimensions"}};
}

std::vector<Sample> samples_weights() {
  const NDArray x = pattern({2, 4, 5, 6}, 7);
  return {{{x, pattern({2, 3, 3, 5}, 3)}, ConvolutionWeightsAttrs{.kernel = {3, 2}}, "a kernel of (3, 2)"},
          {{x, pattern({2, 3, 3, 4}, 3)},
           ConvolutionWeightsAttrs{.kernel = 3, .stride = 2, .padding = {1, 2}},
           "stride=2, padding=(1, 2)"},
          {{x, pattern({2, 6, 2, 3}, 3)},
           ConvolutionWeightsAttrs{.kernel = 2, .stride = {2, 1}, .dilation = {1, 3}, .groups = 2},
           "stride=(2, 1), dilation=(1, 3), groups=2"},
          {{pattern({2, 3, 7}, 7), pattern({2, 2, 3}, 3)},
           ConvolutionWeightsAttrs{.kernel = 3, .stride = 3, .padding = 2, .dilation = 2},
           "1 dimension"}};
}

}  // namespace

void add_convolution_samples(SampleTable& table) {
  table["convolution"] = samples_convolution;
  table["convolution_transpose"] = samples_transpose;
  table["convolution_weights"] = samples_weights;
}

}  // namespace mx::detail
