#include "operators/samples/table.h"

namespace mx::detail {
namespace {

std::vector<Sample> samples_euclidean() {
  const NDArray a = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}}),
                b = array({{0.f, 1.f, -1.f}, {2.f, 0.5f, 1.f}, {-1.f, 2.f, 3.f}, {0.5f, 0.75f, -2.f}});
  return {{{a, b}, {}, "two matrices"},
          {{a.transpose(), b.slice(1, {0, 2})}, {}, "views"},
          {{a.expand_dims(0), b.reshape({2, 2, 3})}, {}, "stacks"}};
}

}  // namespace

void add_distance_samples(SampleTable& table) { table["euclidean"] = samples_euclidean; }

}  // namespace mx::detail
