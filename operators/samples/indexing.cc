#include "operators/indexing_records.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

std::vector<Sample> samples_take() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x, array<int64_t>({1, 0, -1})}, TakeAttrs{0, "raise"}, "rows"},
          {{x, array<int32_t>({{2, 0}, {-3, 1}})}, TakeAttrs{-1, "raise"}, "columns, two dimensions of them"},
          {{x, array<int64_t>({5, -7, 1})}, TakeAttrs{1, "clip"}, "mode=clip"},
          {{x, array<int64_t>({5, -7, 1})}, TakeAttrs{1, "wrap"}, "mode=wrap"},
          {{x.transpose(), full({}, 2, i64)}, TakeAttrs{0, "raise"}, "one row of a transposed matrix"}};
}

std::vector<Sample> samples_gather() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x, array<int64_t>({{1, 0, -1}})}, GatherAttrs{0}, "axis=0"},
          {{x, array<int32_t>({{2, 0, 1, 2}, {-3, 1, 0, 0}})}, GatherAttrs{-1}, "axis=-1"}};
}

std::vector<Sample> samples_scatter() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  const NDArray rows = array<int64_t>({{1, 0, 1}, {1, -1, 0}}), columns = array<int32_t>({{2}, {0}});
  const NDArray u = array({{0.5f, 4.f, -1.5f}, {2.5f, -3.f, 1.f}});
  const NDArray zeros_among = array({{0.f, 4.f, -1.5f}, {2.5f, 0.f, 0.f}});
  return {{{x, rows, u}, UpdateAttrs{0, "add"}, "axis=0, how=add"},
          {{x, rows, u}, UpdateAttrs{0, "set"}, "axis=0, how=set"},
          {{x, rows, u}, UpdateAttrs{0, "mul"}, "axis=0, how=mul"},
          {{x, rows, zeros_among}, UpdateAttrs{0, "mul"}, "axis=0, how=mul, zeros among the factors"},
          {{x, rows, u}, UpdateAttrs{0, "max"}, "axis=0, how=max"},
          {{x, rows, u}, UpdateAttrs{0, "min"}, "axis=0, how=min"},
          {{x, columns, full({}, 7.f)}, UpdateAttrs{-1, "set"}, "axis=-1, how=set, a number"}};
}

std::vector<Sample> samples_index_update() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  const NDArray u = array({{0.5f, 4.f, -1.5f}, {2.5f, -3.f, 1.f}});
  return {{{x, array<int64_t>({1, -1}), u}, UpdateAttrs{0, "add"}, "axis=0, how=add"},
          {{x, array<int64_t>({1, 0}), u}, UpdateAttrs{0, "set"}, "axis=0, how=set"},
          {{x, array<int32_t>({2, 2, 0}), u}, UpdateAttrs{-1, "mul"}, "axis=-1, how=mul"},
          {{x, array<int64_t>({0}), full({}, 1.f)}, UpdateAttrs{1, "max"}, "axis=1, how=max, a number"},
          {{x, array<int64_t>({0, 2, 0}), u[0]}, UpdateAttrs{1, "min"}, "axis=1, how=min, a row"}};
}

std::vector<Sample> samples_one_hot() {
  return {{{array<int64_t>({2, 0, 1})}, OneHotAttrs{3, f32}, "classes=3"},
          {{array<int64_t>({{2, 0}, {4, 4}}).transpose()}, OneHotAttrs{5, bool_}, "classes=5, bool"}};
}

std::vector<Sample> samples_embedding() {
  const NDArray table = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{table, array<int64_t>({{1, 0, 1}, {0, 0, -1}})}, EmbeddingAttrs{}, "a matrix of indices"},
          {{table.transpose(), array<int32_t>({2})}, EmbeddingAttrs{}, "a transposed table"},
          {{table, array<int64_t>({1, 0, 1})}, EmbeddingAttrs{1}, "padding", false},
          {{table, array<int64_t>({1})}, EmbeddingAttrs{-1, true}, "sparse"},
          {{table, array<int64_t>({0, 1})}, EmbeddingAttrs{-1, false, false}, "no index from the end"}};
}

std::vector<Sample> samples_embedding_gradient() {
  const NDArray indices = array<int64_t>({1, 3, 1});
  const NDArray head = array({{1.5f, -2.f}, {3.f, -0.5f}, {0.25f, 2.f}});
  return {{{indices, head}, EmbeddingGradientAttrs{4, -1}, "rows=4"},
          {{indices, head}, EmbeddingGradientAttrs{5, 3}, "rows=5, skip_row=3"}};
}

}  // namespace

void add_indexing_samples(SampleTable& table) {
  table["take"] = samples_take;
  table["gather"] = samples_gather;
  table["scatter"] = samples_scatter;
  table["index_update"] = samples_index_update;
  table["one_hot"] = samples_one_hot;
  table["embedding"] = samples_embedding;
  table["embedding_gradient"] = samples_embedding_gradient;
}

}  // namespace mx::detail
