#include "operators/rotary.h"

#include "operators/operators.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

std::vector<Sample> samples_rotary() {
  const NDArray x = sin(arange(24).to(f32) * 1.7 + 0.3).reshape({2, 3, 4});
  return {{{x}, RotaryAttrs{}, "(2, 3, 4)"},
          {{x}, RotaryAttrs{.offset = 5, .interleaved = true}, "offset=5, interleaved"},
          {{x}, RotaryAttrs{.theta = 100, .dims = 2}, "theta=100, dims=2"},
          {{x.swap_axes(0, 1)}, RotaryAttrs{.inverse = true}, "inverse, transposed"},
          {{x.transpose()}, RotaryAttrs{}, "(4, 3, 2), transposed"}};
}

}  // namespace

void add_rotary_samples(SampleTable& table) { table["rotary_embedding"] = samples_rotary; }

}  // namespace mx::detail
