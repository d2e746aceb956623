#include "operators/fill_records.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

std::vector<Sample> samples_pad() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x}, PadAttrs{{1, 0, 2, 1}, "constant", 0}, "mode=constant"},
          {{x}, PadAttrs{{0, 2, 1, 0}, "constant", 1.5}, "value=1.5"},
          {{x}, PadAttrs{{1, 2, 2, 1}, "edge", 0}, "mode=edge"},
          {{x}, PadAttrs{{1, 0, 2, 2}, "reflect", 0}, "mode=reflect"},
          {{x}, PadAttrs{{3, 4, 7, 5}, "reflect", 0}, "mode=reflect, wider than x"},
          {{x}, PadAttrs{{3, 1, 4, 8}, "symmetric", 0}, "mode=symmetric"},
          {{x.transpose()}, PadAttrs{{1, 0, 5, 2}, "wrap", 0}, "mode=wrap, transposed"}};
}

std::vector<Sample> samples_tile() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x}, TileAttrs{{2, 3}}, "repeats=(2, 3)"},
          {{x}, TileAttrs{{2}}, "repeats=(2)"},
          {{x.transpose()}, TileAttrs{{2, 1, 5}}, "repeats=(2, 1, 5), transposed"},
          {{x}, TileAttrs{{0, 1}}, "repeats=(0, 1)"}};
}

std::vector<Sample> samples_repeat() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x}, RepeatAttrs{2, 0}, "count=2, axis=0"},
          {{x}, RepeatAttrs{3, -1}, "count=3, axis=-1"},
          {{x.transpose()}, RepeatAttrs{0, 1}, "count=0, axis=1"}};
}

std::vector<Sample> samples_roll() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x}, RollAttrs{{1}, {1}}, "shifts=(1), axes=(1)"},
          {{x}, RollAttrs{{-1, 4}, {0, -1}}, "shifts=(-1, 4), axes=(0, -1)"},
          {{x.transpose()}, RollAttrs{{1, 1}, {0, 0}}, "one axis twice"}};
}

std::vector<Sample> samples_triangle() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x}, TriangleAttrs{0}, "k=0"},
          {{x}, TriangleAttrs{1}, "k=1"},
          {{x.transpose()}, TriangleAttrs{-1}, "k=-1, transposed"},
          {{x.expand_dims(0).broadcast_to({2, 2, 3})}, TriangleAttrs{-5}, "k=-5, two matrices"},
          {{x}, TriangleAttrs{7}, "k=7"}};
}

}  // namespace

void add_fill_ops_samples(SampleTable& table) {
  table["pad"] = samples_pad;
  table["tile"] = samples_tile;
  table["repeat"] = samples_repeat;
  table["roll"] = samples_roll;
  table["tril"] = samples_triangle;
  table["triu"] = samples_triangle;
}

}  // namespace mx::detail
