#include "operators/interpolate.h"

#include "operators/operators.h"
#include "operators/resample_attrs.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

NDArray resample_numbers(const Shape& shape) {
  return sin(arange(shape.numel()).to(f32) * 1.3 + 0.2).reshape(shape);
}

std::vector<Sample> samples_resample() {
  const NDArray x = resample_numbers({2, 3, 4, 5});
  return {{{x}, ResampleAttrs{.size = {8, 10}, .steps = {0.5, 0.5}}, "linear, twice the size"},
          {{x},
           ResampleAttrs{.size = {7, 2}, .steps = {0.5, 4}, .mode = "linear", .align_corners = true},
           "linear, align_corners"},
          {{x}, ResampleAttrs{.size = {6, 9}, .steps = {2. / 3, 5. / 9}, .mode = "cubic"}, "cubic"},
          {{x.transpose()},
           ResampleAttrs{.size = {4, 3}, .steps = {0.75, 2. / 3}, .mode = "nearest"},
           "nearest, transposed"},
          {{resample_numbers({2, 1, 5})},
           ResampleAttrs{.size = 3, .steps = {5. / 3}, .mode = "nearest-exact"},
           "nearest-exact, one axis"},
          {{resample_numbers({1, 2, 2, 3, 2})},
           ResampleAttrs{.size = {3, 2, 4}, .steps = {2. / 3, 1.5, 0.5}},
           "linear, three axes"}};
}

std::vector<Sample> samples_resample_backward() {
  const NDArray dy = resample_numbers({2, 3, 6, 8});
  return {{{dy}, ResampleAttrs{.size = {3, 4}, .steps = {0.5, 0.5}}, "linear, twice the size"},
          {{dy},
           ResampleAttrs{.size = {4, 15}, .steps = {0.6, 2}, .mode = "linear", .align_corners = true},
           "linear, align_corners"},
          {{dy.transpose()},
           ResampleAttrs{.size = {5, 4}, .steps = {5. / 3, 2}, .mode = "cubic"},
           "cubic, transposed"},
          {{dy}, ResampleAttrs{.size = {2, 12}, .steps = {1. / 3, 1.5}, .mode = "nearest"}, "nearest"},
          {{resample_numbers({2, 1, 5})},
           ResampleAttrs{.size = 3, .steps = {0.6}, .mode = "nearest-exact"},
           "nearest-exact, one axis"},
          {{resample_numbers({1, 2, 3, 2, 4})},
           ResampleAttrs{.size = {2, 3, 2}, .steps = {2. / 3, 1.5, 0.5}},
           "linear, three axes"}};
}

}  // namespace

void add_interpolate_samples(SampleTable& table) {
  table["resample"] = samples_resample;
  table["resample_backward"] = samples_resample_backward;
}

}  // namespace mx::detail
