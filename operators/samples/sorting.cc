#include "operators/samples/table.h"

namespace mx::detail {
namespace {

// The attributes of sort, which argsort has too.
Attrs sorting(int64_t axis, bool descending) {
  return attrs_of("sort", {{"axis", axis}, {"descending", descending}});
}
Attrs top(int64_t k, int64_t axis, bool largest) {
  return attrs_of("topk", {{"k", k}, {"axis", axis}, {"largest", largest}});
}
Attrs search(bool behind) { return attrs_of("searchsorted", {{"behind", behind}}); }

NDArray sorted_matrix() { return array({{1.5f, -2.f, 0.25f, 7.f}, {3.f, -0.5f, 2.f, -4.f}}); }

std::vector<Sample> samples_sort() {
  const NDArray x = sorted_matrix();
  return {{{x}, sorting(-1, false), "axis=-1"},
          {{x}, sorting(0, true), "axis=0, descending"},
          {{x.transpose()}, sorting(0, false), "axis=0, transposed"},
          {{x}, sorting(1, true), "axis=1, descending"}};
}

std::vector<Sample> samples_topk() {
  const NDArray x = sorted_matrix();
  return {{{x}, top(2, -1, true), "k=2, axis=-1"},
          {{x}, top(1, 0, false), "k=1, axis=0, smallest"},
          {{x.transpose()}, top(3, 0, true), "k=3, axis=0, transposed"}};
}

Attrs divided(int64_t kth, int64_t axis) { return attrs_of("argpartition", {{"kth", kth}, {"axis", axis}}); }

std::vector<Sample> samples_argpartition() {
  const NDArray x = sorted_matrix();
  return {{{x}, divided(1, -1), "kth=1, axis=-1"},
          {{x}, divided(-1, 0), "kth=-1, axis=0"},
          {{x.transpose()}, divided(2, 0), "kth=2, axis=0, transposed"}};
}

std::vector<Sample> samples_argselect() {
  const NDArray x = sorted_matrix();
  const NDArray places = array<int64_t>({3, 0, 1});
  return {{{x, places.broadcast_to({2, 3})}, {}, "the same places of each row"},
          {{x, array<int64_t>({2, 1}).reshape({2, 1})}, {}, "one place"},
          {{x.transpose(), zeros({4, 2}, i64)}, {}, "transposed"}};
}

std::vector<Sample> samples_unique() {
  const NDArray x = array({{1.5f, -2.f, 1.5f}, {3.f, -2.f, 2.f}});
  return {{{x}, {}, "a matrix", false}, {{x.transpose()}, {}, "transposed", false}};
}

std::vector<Sample> samples_searchsorted() {
  const NDArray sorted = array({-2.f, 0.25f, 0.25f, 3.f});
  return {{{sorted, sorted_matrix()}, search(false), "before equals"},
          {{sorted, array({0.25f, -3.f, 3.f})}, search(true), "behind equals"}};
}

}  // namespace

void add_sorting_samples(SampleTable& table) {
  table["sort"] = samples_sort;
  table["argsort"] = samples_sort;
  table["argpartition"] = samples_argpartition;
  table["argselect"] = samples_argselect;
  table["topk"] = samples_topk;
  table["unique"] = samples_unique;
  table["searchsorted"] = samples_searchsorted;
}

}  // namespace mx::detail
