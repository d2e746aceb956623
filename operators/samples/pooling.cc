#include "operators/pooling.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

/// Distinct numbers without an obvious order, so that no window has two largest elements.
NDArray distinct(const Shape& shape) {
  const auto n = static_cast<size_t>(shape.numel());
  std::vector<float> list(n);
  for (size_t i = 0; i < n; ++i) list[i] = static_cast<float>((i * 89) % 257) / 32 - 4;
  return from_data(list.data(), shape);
}

std::vector<Sample> samples_max_pool() {
  const NDArray x = distinct({2, 3, 5, 6});
  return {{{x}, MaxPoolAttrs{.kernel = 2}, "kernel=2"},
          {{x},
           MaxPoolAttrs{.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}},
           "kernel=(3, 2), stride=(2, 1), padding=(1, 0)"},
          {{x},
           MaxPoolAttrs{.kernel = 2, .stride = 3, .dilation = 2, .ceil_mode = true},
           "kernel=2, stride=3, dilation=2, ceil_mode"},
          {{distinct({2, 3, 7})}, MaxPoolAttrs{.kernel = 3, .stride = 2, .padding = 1}, "1 dimension"},
          {{distinct({1, 2, 3, 4, 4})}, MaxPoolAttrs{.kernel = 2, .stride = 1}, "3 dimensions"}};
}

std::vector<Sample> samples_adaptive_max_pool() {
  return {{{distinct({2, 3, 5, 6})}, PoolSizeAttrs{{2, 4}}, "size=(2, 4)"},
          {{distinct({2, 3, 5, 6})}, PoolSizeAttrs{1}, "size=1"},
          {{distinct({2, 3, 5})}, PoolSizeAttrs{7}, "more windows than elements"}};
}

std::vector<Sample> samples_max_pool_backward() {
  const NDArray indices = array({{{0, 5, 5}, {7, 2, 1}}}).to(i64);
  return {{{distinct({1, 2, 3}), indices}, PoolSizeAttrs{8}, "1 dimension, with an index twice"},
          {{distinct({1, 2, 3, 1}), indices.reshape({1, 2, 3, 1})}, PoolSizeAttrs{{2, 4}}, "2 dimensions"}};
}

std::vector<Sample> samples_avg_pool() {
  const NDArray x = distinct({2, 3, 5, 6});
  return {
      {{x}, AvgPoolAttrs{.kernel = 2}, "kernel=2"},
      {{x},
       AvgPoolAttrs{.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}},
       "kernel=(3, 2), stride=(2, 1), padding=(1, 0)"},
      {{x},
       AvgPoolAttrs{.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false},
       "kernel=3, stride=2, padding=1, ceil_mode, count_include_pad=false"},
      {{x},
       AvgPoolAttrs{.kernel = 2, .ceil_mode = true, .divisor_override = 3},
       "ceil_mode, divisor_override=3"},
      {{distinct({2, 3, 7})}, AvgPoolAttrs{.kernel = 3, .stride = 2, .padding = 1}, "1 dimension"},
      {{distinct({1, 2, 3, 4, 4})}, AvgPoolAttrs{.kernel = 2, .stride = 1}, "3 dimensions"}};
}

std::vector<Sample> samples_avg_pool_backward() {
  return {
      {{distinct({2, 3, 2, 3})}, AvgPoolBackwardAttrs{.size = {5, 6}, .kernel = 2}, "kernel=2"},
      {{distinct({2, 3, 3, 5})},
       AvgPoolBackwardAttrs{.size = {5, 6}, .kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}},
       "kernel=(3, 2), stride=(2, 1), padding=(1, 0)"},
      {{distinct({2, 3, 4})},
       AvgPoolBackwardAttrs{
           .size = 7, .kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false},
       "1 dimension, ceil_mode, count_include_pad=false"},
      {{distinct({2, 3, 3})},
       AvgPoolBackwardAttrs{.size = 6, .kernel = 2, .divisor_override = 5},
       "divisor_override=5"}};
}

std::vector<Sample> samples_adaptive_avg_pool() {
  return {{{distinct({2, 3, 5, 6})}, PoolSizeAttrs{{2, 4}}, "size=(2, 4)"},
          {{distinct({2, 3, 5, 6})}, PoolSizeAttrs{1}, "size=1"},
          {{distinct({2, 3, 5})}, PoolSizeAttrs{7}, "more windows than elements"}};
}

}  // namespace

void add_pooling_samples(SampleTable& table) {
  table["max_pool"] = samples_max_pool;
  table["adaptive_max_pool"] = samples_adaptive_max_pool;
  table["max_pool_backward"] = samples_max_pool_backward;
  table["avg_pool"] = samples_avg_pool;
  table["avg_pool_backward"] = samples_avg_pool_backward;
  table["adaptive_avg_pool"] = samples_adaptive_avg_pool;
  table["adaptive_avg_pool_backward"] = samples_adaptive_avg_pool;
}

}  // namespace mx::detail
