#include "operators/select.h"
#include "operators/elementwise_binary.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

NDArray chosen_matrix() { return array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}}); }

std::vector<Sample> samples_where() {
  const NDArray a = chosen_matrix(), b = a * 2.f + 1.f, choice = less(a, 1.f);
  return {{{choice, a, b}, {}, "same shape"},
          {{choice[0], a, full({}, 7)}, {}, "a row of conditions and a number"},
          {{choice.transpose(), a.transpose(), array({{3.f}, {2.f}, {-1.f}})}, {}, "transposed, a column"}};
}

std::vector<Sample> samples_clamp() {
  const NDArray x = chosen_matrix();
  return {{{x, full({}, -1), full({}, 1)}, {}, "numbers"},
          {{x, array({-1.f, -1.f, 1.f}), array({2.f, 2.5f, 1.75f})}, {}, "a row of limits"},
          {{x.transpose(), array({{-1.f}, {0.f}, {1.f}}), full({}, 2.5)}, {}, "transposed, a column"}};
}

std::vector<Sample> samples_where_numbers() {
  const NDArray a = chosen_matrix(), choice = less(a, 1.f);
  const auto numbers = [](const AttrMap& values) { return attrs_of("where_scalar", values); };
  return {{{choice, a}, numbers({{"a", int64_t{7}}}), "a=7"},
          {{choice[0], a}, numbers({{"b", 0.5}}), "a row of conditions, b=0.5"},
          {{choice.transpose()}, numbers({{"a", int64_t{1}}, {"b", int64_t{2}}}), "two numbers, transposed"}};
}

std::vector<Sample> samples_clamp_numbers() {
  const NDArray x = chosen_matrix();
  const auto limits = [](const AttrMap& values) { return attrs_of("clamp_scalar", values); };
  return {{{x}, limits({{"low", int64_t{0}}, {"high", int64_t{1}}}), "low=0, high=1"},
          {{x.transpose()}, limits({{"high", 1.75}}), "high=1.75, transposed"},
          {{x}, limits({{"low", int64_t{1}}}), "low=1"},
          {{x, array({-1.f, -1.f, 1.f})}, limits({{"high", 1.75}}), "a row of lower limits, high=1.75"},
          {{x.transpose(), array({{2.25f}, {0.f}, {-2.5f}})},
           limits({{"low", -1.5}}),
           "transposed, low=-1.5, a column of upper limits"}};
}

}  // namespace

void add_select_samples(SampleTable& table) {
  table["where"] = samples_where;
  table["clamp"] = samples_clamp;
  table["where_scalar"] = samples_where_numbers;
  table["clamp_scalar"] = samples_clamp_numbers;
}

}  // namespace mx::detail
