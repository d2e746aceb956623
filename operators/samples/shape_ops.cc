#include "operators/samples/table.h"

namespace mx::detail {
namespace {

Attrs concat_axis(int64_t axis) { return attrs_of("concat", {{"axis", axis}}); }
Attrs pieces(const std::vector<int64_t>& sizes, int64_t axis) {
  return attrs_of("split", {{"sizes", sizes}, {"axis", axis}});
}

std::vector<Sample> samples_concat() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x, x[{Slice{0, 1}}]}, concat_axis(0), "axis=0"},
          {{x, x[{colon, Slice{1, 2}}], x}, concat_axis(-1), "axis=-1, three"},
          {{x.transpose()}, concat_axis(1), "one, transposed"}};
}

std::vector<Sample> samples_split() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x}, pieces({1, 1}, 0), "sizes=[1, 1], axis=0"},
          {{x}, pieces({2, 0, 1}, -1), "sizes=[2, 0, 1], axis=-1"},
          {{x.transpose()}, pieces({3}, 0), "one piece, transposed"}};
}

}  // namespace

void add_shape_ops_samples(SampleTable& table) {
  table["concat"] = samples_concat;
  table["split"] = samples_split;
}

}  // namespace mx::detail
