#include "operators/unfold.h"

#include "operators/operators.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

NDArray unfold_numbers(const Shape& shape) { return sin(arange(shape.numel()).to(f32) * 1.3).reshape(shape); }

std::vector<Sample> samples_unfold() {
  const NDArray x = unfold_numbers({2, 3, 4, 5});
  return {
      {{x}, UnfoldAttrs{.kernel = 2}, "kernel=2"},
      {{x}, UnfoldAttrs{.kernel = {3, 2}, .padding = {1, 0}, .stride = {2, 1}}, "padding, stride"},
      {{x}, UnfoldAttrs{.kernel = 2, .dilation = {2, 3}, .padding = 2, .stride = 3}, "dilation, stride=3"},
      {{x.transpose()}, UnfoldAttrs{.kernel = 1, .stride = 2}, "transposed"}};
}

std::vector<Sample> samples_fold() {
  return {
      {{unfold_numbers({2, 12, 12})}, FoldAttrs{.size = {4, 5}, .kernel = 2}, "kernel=2"},
      {{unfold_numbers({2, 18, 9})},
       FoldAttrs{.size = {5, 4}, .kernel = {3, 2}, .padding = {1, 0}, .stride = {2, 1}},
       "padding, stride"},
      {{unfold_numbers({8, 12, 2}).transpose()},
       FoldAttrs{.size = {4, 5}, .kernel = {1, 2}, .dilation = {1, 3}, .padding = {0, 1}, .stride = {2, 1}},
       "dilation, transposed"}};
}

}  // namespace

void add_unfold_samples(SampleTable& table) {
  table["unfold"] = samples_unfold;
  table["fold"] = samples_fold;
}

}  // namespace mx::detail
