#include <limits>

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

// No difference is 0, and no two are equally large: derivatives jump there.
std::vector<Sample> samples_minkowski() {
  const NDArray a = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}}),
                b = array({{0.f, 1.f, -0.5f}, {2.f, 0.75f, 1.f}, {-1.f, 2.25f, 3.f}, {0.5f, 0.5f, -2.f}});
  return {{{a, b}, attrs_of("minkowski", {{"p", 1.}}), "order 1"},
          {{a, b}, attrs_of("minkowski", {{"p", 3.}}), "order 3"},
          {{a, b}, attrs_of("minkowski", {{"p", std::numeric_limits<double>::infinity()}}), "order inf"},
          {{a.transpose(), b.slice(1, {0, 2})}, attrs_of("minkowski", {{"p", 2.5}}), "views"},
          {{a.expand_dims(0), b.reshape({2, 2, 3})}, attrs_of("minkowski", {{"p", 0.}}), "stacks, a count"}};
}

std::vector<Sample> samples_distance_backward() {
  const NDArray a = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}}),
                b = array({{0.f, 1.f, -1.f}, {2.f, 0.5f, 1.f}, {-1.f, 2.f, 3.f}, {0.5f, 0.75f, -2.f}}),
                dy = array({{1.f, -0.5f, 2.f, 0.25f}, {-1.f, 3.f, 0.5f, 1.f}}),
                y = array({{3.5f, 3.f, 5.5f, 3.75f}, {4.5f, 2.f, 4.5f, 5.f}}),
                most = array({{3.f, 2.5f, 4.f, 2.75f}, {3.f, 1.f, 4.f, 4.f}});
  const auto order = [](double p) { return attrs_of("distance_backward", {{"p", p}}); };
  return {{{dy, a, b, y}, order(2), "order 2"},
          {{dy, a, b, y}, order(1), "order 1"},
          {{dy, a, b, y}, order(3), "order 3"},
          {{dy, a, b, most}, order(std::numeric_limits<double>::infinity()), "order inf"},
          {{dy.transpose(), b, a, y.transpose()}, order(2.5), "views"},
          {{dy.reshape({2, 2, 2}), a.expand_dims(0), b.reshape({2, 2, 3}), y.reshape({2, 2, 2})},
           order(2),
           "stacks"}};
}

}  // namespace

void add_distance_samples(SampleTable& table) {
  table["euclidean"] = samples_euclidean;
  table["minkowski"] = samples_minkowski;
  table["distance_backward"] = samples_distance_backward;
}

}  // namespace mx::detail
