#include <limits>
#include <type_traits>

#include "operators/elementwise_binary.h"
#include "operators/reduce.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

NDArray reduced_matrix() { return array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}}); }

NDArray reduced_planes() { return (arange(-5., 7.) * 0.25f).reshape({2, 3, 2}); }

template <class Attrs>
std::vector<Sample> samples_reduction() {
  const NDArray x = reduced_matrix(), y = reduced_planes();
  std::vector<Sample> list = {
      {{x}, Attrs{}, "all of a matrix"},
      {{x}, Attrs{{0}}, "axes=(0,)"},
      {{x.transpose()}, Attrs{{-1}, true}, "the last axis of a transposed matrix, keep_dims"},
      {{y}, Attrs{{2, 0}}, "axes=(2, 0)"},
      {{y}, Attrs{{}, true}, "all, keep_dims"},
      {{x[0].select(0, 1)}, Attrs{}, "rank 0"}};
  if constexpr (std::is_same_v<Attrs, TotalAttrs>)
    list.push_back({{x}, Attrs{{1}, false, f64}, "axes=(1,), dtype=f64"});
  return list;
}

std::vector<Sample> samples_variance() {
  const NDArray x = reduced_matrix(), y = reduced_planes();
  return {{{x}, VarianceAttrs{}, "all of a matrix"},
          {{x.transpose()}, VarianceAttrs{{0}, 0}, "correction=0"},
          {{y}, VarianceAttrs{{0, 2}, 1.5, true}, "axes=(0, 2), correction=1.5, keep_dims"}};
}

std::vector<Sample> samples_norm() {
  const NDArray x = reduced_matrix(), y = reduced_planes() + 0.1f;
  std::vector<Sample> list;
  for (double p : {2., 1., 3., 0.5, -1., 0., kInf, -kInf})
    list.push_back({{x}, NormAttrs{{1}, p}, "p=" + to_string(AttrValue(p)), p != 0});
  list.push_back({{y}, NormAttrs{{0, -1}, 2, true}, "axes=(0, -1), keep_dims"});
  list.push_back({{x.transpose()}, NormAttrs{}, "all of a transposed matrix"});
  return list;
}

}  // namespace

void add_reduce_samples(SampleTable& table) {
  for (const char* op : {"sum", "prod", "mean"}) table[op] = samples_reduction<TotalAttrs>;
  for (const char* op : {"max", "min", "argmax", "argmin", "any", "all", "count_nonzero", "logsumexp"})
    table[op] = samples_reduction<ReduceAttrs>;
  table["var"] = samples_variance;
  table["stddev"] = samples_variance;
  table["norm"] = samples_norm;
}

}  // namespace mx::detail
