#include "operators/scan.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

std::vector<Sample> samples_scan() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x}, ScanAttrs{}, "axis=0"},
          {{x}, ScanAttrs{-1}, "axis=-1"},
          {{x.transpose()}, ScanAttrs{0, false, true}, "reverse, transposed"},
          {{x}, ScanAttrs{1, true}, "axis=1, exclusive"},
          {{x}, ScanAttrs{1, true, true}, "axis=1, exclusive, reverse"}};
}

std::vector<Sample> samples_recurrence() {
  const NDArray a = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  const NDArray b = array({{2.f, 1.f, -1.5f}, {0.5f, 4.f, -3.f}});
  return {{{a, b}, RecurrenceAttrs{}, "axis=0"},
          {{a, b}, RecurrenceAttrs{1}, "axis=1"},
          {{a.transpose(), b.transpose()}, RecurrenceAttrs{-2, true}, "reverse, transposed"},
          {{a[0].select(0, 1), b[0].select(0, 0)}, RecurrenceAttrs{}, "rank 0"}};
}

}  // namespace

void add_scan_samples(SampleTable& table) {
  for (const char* op : {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"}) table[op] = samples_scan;
  table["linear_recurrence"] = samples_recurrence;
}

}  // namespace mx::detail
