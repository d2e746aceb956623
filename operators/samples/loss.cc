#include "operators/loss.h"
#include "operators/elementwise_binary.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

NDArray sample_scores() { return array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}}); }

NDArray sample_distribution() { return array({{0.25f, 0.5f, 0.25f}, {0.f, 0.125f, 0.875f}}); }

std::vector<Sample> samples_cross_entropy() {
  using A = CrossEntropyAttrs;
  const NDArray x = sample_scores(), labels = array<int64_t>({2, 0}), weight = array({0.5f, 2.f, 1.f}),
                planes = (arange(0., 12.) * 0.5f).reshape({2, 3, 2}),
                grid = array<int64_t>({2, 0, 1, 1}).reshape({2, 2});
  return {{{x, labels}, A{}, "labels"},
          {{x, labels, weight}, A{1, -100, 0, "none"}, "weights, reduction=none"},
          {{x, labels, weight}, A{-1, -100, 0.25, "mean"}, "weights, label_smoothing=0.25"},
          {{x, labels}, A{1, 0, 0, "mean"}, "ignore_index=0"},
          {{x.transpose(), labels}, A{0, -100, 0, "sum"}, "axis=0, reduction=sum"},
          {{planes, grid}, A{1, -100, 0.1, "none"}, "(2, 3, 2), label_smoothing=0.1"},
          {{x, sample_distribution()}, A{}, "a distribution"},
          {{x, sample_distribution(), weight}, A{1, -100, 0.5, "none"}, "a distribution, weights, smoothing"},
          {{x.select(0, 0), full({}, 1, i64)}, A{}, "one row"}};
}

std::vector<Sample> samples_nll() {
  using A = NllAttrs;
  const NDArray x = sample_scores(), labels = array<int64_t>({2, 0}), weight = array({0.5f, 2.f, 1.f});
  return {{{x, labels}, A{}, "labels"},
          {{x, labels, weight}, A{1, -100, "none"}, "weights, reduction=none"},
          {{x, labels, weight}, A{1, 2, "mean"}, "weights, ignore_index=2"},
          {{x.transpose(), labels}, A{0, -100, "sum"}, "axis=0, reduction=sum"}};
}

// Returns the samples with a gradient of the loss as the first input.
std::vector<Sample> with_gradient(std::vector<Sample> list, bool (*none)(const Attrs&),
                                  int64_t (*axis)(const Attrs&)) {
  for (Sample& sample : list) {
    Shape rows = sample.inputs[0].shape();
    rows.erase(rows.rank() == 1 ? 0 : normalize_axis(axis(sample.attrs), rows.rank(), "loss"));
    const Shape shape = none(sample.attrs) ? rows : Shape{};
    sample.inputs.insert(sample.inputs.begin(),
                         (arange(0., static_cast<double>(shape.numel())) * 0.5f + 0.75f).reshape(shape));
  }
  return list;
}

template <class A, std::vector<Sample> (*kForward)()>
std::vector<Sample> samples_class_backward() {
  return with_gradient(
      kForward(), [](const Attrs& attrs) { return attrs.get<A>().reduction == "none"; },
      [](const Attrs& attrs) { return attrs.get<A>().axis; });
}

}  // namespace

void add_loss_samples(SampleTable& table) {
  table["cross_entropy"] = samples_cross_entropy;
  table["cross_entropy_backward"] = samples_class_backward<CrossEntropyAttrs, samples_cross_entropy>;
  table["nll_loss"] = samples_nll;
  table["nll_loss_backward"] = samples_class_backward<NllAttrs, samples_nll>;
}

}  // namespace mx::detail
