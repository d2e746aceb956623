#include "operators/indexing_records.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

std::vector<Sample> samples_gather_nd() {
  const NDArray x = (arange(24).to(f32)).reshape({2, 3, 4});
  const NDArray i = array<int64_t>({{1, 0}, {-1, 1}}), j = array<int64_t>({2, 0});
  return {{{x, i, j}, GatherNdAttrs{{0, 1}, -1}, "axes=(0, 1)"},
          {{x, i, j}, GatherNdAttrs{{0, 2}, -1}, "axes=(0, 2), not neighbours"},
          {{x, j}, GatherNdAttrs{{1}, 0}, "axes=(1), position=0"},
          {{x.transpose(), array<int32_t>({1, -2, 0})}, GatherNdAttrs{{-1}, -1}, "one array of indices"}};
}

std::vector<Sample> samples_put_nd() {
  const NDArray x = (arange(24).to(f32)).reshape({2, 3, 4});
  const NDArray i = array<int64_t>({1, 0}), j = array<int64_t>({2, 0});
  const NDArray v = array({{0.5f, -1.f, 2.f, 3.5f}, {4.f, 0.25f, -2.f, 1.f}});
  return {{{x, v, i, j}, PutNdAttrs{{0, 1}, -1, "set"}, "axes=(0, 1), how=set"},
          {{x, v, i, j}, PutNdAttrs{{0, 1}, -1, "add"}, "how=add"},
          {{x, v, i, j}, PutNdAttrs{{0, 1}, -1, "mul"}, "how=mul"},
          {{x, v, i, j}, PutNdAttrs{{0, 1}, -1, "max"}, "how=max"},
          {{x, v, i, j}, PutNdAttrs{{0, 1}, -1, "min"}, "how=min"},
          {{x, v[{Slice{0, 2}, Slice{0, 3}}], i, j}, PutNdAttrs{{0, 2}, 0, "set"}, "axes=(0, 2), position=0"},
          {{x, full({}, 2.f), j}, PutNdAttrs{{1}, -1, "set"}, "a number"}};
}

std::vector<Sample> samples_mask_count() {
  const NDArray x = array({{1.5f, 0.f, 0.25f}, {0.f, -0.5f, 2.f}});
  return {{{x}, {}, "a matrix"}, {{x.transpose()}, {}, "transposed"}};
}

std::vector<Sample> samples_argwhere() {
  const NDArray x = array({{1.5f, 0.f, 0.25f}, {0.f, -0.5f, 2.f}});
  return {{{x}, CountAttrs{4}, "a matrix"}, {{x[1]}, CountAttrs{2}, "a row"}};
}

std::vector<Sample> samples_masked_select() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  const NDArray mask = array<int64_t>({{1, 0, 1}, {0, 0, 1}}).to(bool_);
  return {{{x, mask}, CountAttrs{3}, "a mask of x's shape"},
          {{x, mask[0]}, CountAttrs{4}, "a mask of columns"}};
}

std::vector<Sample> samples_masked_scatter() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  const NDArray mask = array<int64_t>({{1, 0, 1}, {0, 0, 1}}).to(bool_);
  return {{{x, mask, array({7.f, 8.f, 9.f})}, {}, "a mask of x's shape"},
          {{x, mask[0], array({{7.f, 8.f}, {9.f, 6.f}, {5.f, 4.f}})},
           {},
           "a mask of columns, more than is used"}};
}

}  // namespace

void add_advanced_indexing_samples(SampleTable& table) {
  table["gather_nd"] = samples_gather_nd;
  table["put_nd"] = samples_put_nd;
  table["mask_count"] = samples_mask_count;
  table["argwhere"] = samples_argwhere;
  table["masked_select"] = samples_masked_select;
  table["masked_scatter"] = samples_masked_scatter;
}

}  // namespace mx::detail
