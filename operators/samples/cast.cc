#include "operators/cast.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

std::vector<Sample> samples_cast() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 300.75f}});
  std::vector<Sample> result;
  for (const DType dtype : kAllDTypes)
    result.push_back({{x}, CastAttrs{dtype}, std::string("dtype=") + to_string(dtype), dtype == f64});
  result.push_back({{x.transpose()}, CastAttrs{f64}, "dtype=f64, transposed"});
  return result;
}

}  // namespace

void add_cast_samples(SampleTable& table) { table["cast"] = samples_cast; }

}  // namespace mx::detail
