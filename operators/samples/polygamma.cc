#include "operators/elementwise_binary.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

Attrs order(int64_t n) { return attrs_of("polygamma", {{"order", n}}); }

std::vector<Sample> samples_polygamma() {
  const NDArray x = array({{0.75f, 1.f, 2.5f}, {12.25f, 0.125f, 4.f}});
  return {{{x}, order(0), "digamma"},
          {{x.transpose()}, order(1), "order=1, transposed"},
          {{x}, order(2), "order=2"},
          {{x * 0.25f - 3.7f}, order(0), "digamma below 0"},
          {{x * 0.25f - 3.7f}, order(3), "order=3, below 0"}};
}

}  // namespace

void add_polygamma_samples(SampleTable& table) { table["polygamma"] = samples_polygamma; }

}  // namespace mx::detail
