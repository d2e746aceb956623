// What operators refuse: every sample with one input of another shape or type works, or throws at the call
// and names all operands.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "operators/shape_ops.h"
#include "tests/operators/registry_support.h"

namespace mx {
namespace {

using test::for_each_sample;
using test::is_updated;

/// The array with one dimension a little larger, each in turn, with one dimension more, and with one less.
/// All elements are elements of the array: as indices they still point somewhere.
std::vector<NDArray> reshaped(const NDArray& a) {
  std::vector<NDArray> list;
  for (int d = 0; d < a.rank(); ++d) {
    if (a.shape()[d] == 0) continue;
    Shape repeats = Shape::filled(a.rank(), 1);
    repeats[d] = 2;
    list.push_back(tile(a, repeats).slice(d, Slice{0, a.shape()[d] + 1}).to_contiguous());
  }
  Shape more = a.shape();
  more.insert(0, 2);
  list.push_back(a.broadcast_to(more).to_contiguous());
  if (a.rank() > 0 && a.shape()[0] > 0) list.push_back(a.slice(0, Slice{0, 1}).squeeze(0).clone());
  return list;
}

/// How often an operator refused what it was given, and how often it did not.
struct Verdicts {
  int refused = 0, worked = 0;
};

void expect_result_or_refusal(const Operator& op, const Attrs& attrs, std::vector<NDArray> inputs,
                              Verdicts& verdicts) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_updated(op, i)) inputs[i] = inputs[i].clone();
  std::vector<NDArray> written;
  try {
    written = call(op, attrs, inputs);
  } catch (const InvalidArgument& e) {
    ++verdicts.refused;
    return test::expect_named(op, inputs, e.what());
  } catch (const std::exception& e) {
    ADD_FAILURE() << "expected InvalidArgument, got " << typeid(e).name() << ": " << e.what();
    return;
  }
  ++verdicts.worked;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_updated(op, i)) written.push_back(inputs[i]);
  for (const NDArray& array : written) {
    try {
      array.wait();
    } catch (const std::exception& e) {
      // What only values show: a mask chooses another number of elements, an index has no element.
      EXPECT_TRUE(op.sized_by_values || test::contains(e.what(), "expected indices from"))
          << "was not refused at the call: " << e.what();
    }
  }
}

/// f(inputs) with each input of the sample replaced by each of others(input).
template <class Others, class F>
void for_each_replacement(const Sample& sample, const Others& others, const F& f) {
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    for (const NDArray& other : others(sample.inputs[i])) {
      std::vector<NDArray> inputs = sample.inputs;
      inputs[i] = other;
      SCOPED_TRACE(detail::concat("input ", i, " as ", other.dtype(), ' ', other.shape()));
      f(inputs);
    }
  }
}

int refusing(const std::map<std::string, Verdicts>& all) {
  int count = 0;
  for (const auto& [name, verdicts] : all) count += verdicts.refused > 0;
  return count;
}

TEST(RegistryRefusals, AnInputOfAnotherShapeWorksOrThrowsAtTheCall) {
  std::map<std::string, Verdicts> all;
  for_each_sample([&](const Operator& op, const Sample& sample) {
    for_each_replacement(sample, reshaped, [&](const std::vector<NDArray>& inputs) {
      expect_result_or_refusal(op, sample.attrs, inputs, all[op.name()]);
    });
  });
  // Whatever takes several arrays minds their shapes; most of the rest has an axis, or a rank.
  for (const auto& [name, verdicts] : all)
    EXPECT_TRUE(verdicts.refused > 0 || find_operator(name)->min_inputs() < 2) << name;
  EXPECT_GT(2 * refusing(all), static_cast<int>(all.size()));
}

TEST(RegistryRefusals, AnInputOfAnotherTypeWorksOrThrowsAtTheCall) {
  std::map<std::string, Verdicts> all;
  for_each_sample([&](const Operator& op, const Sample& sample) {
    const auto retyped = [](const NDArray& a) {
      std::vector<NDArray> list;
      for (DType dtype : kAllDTypes)
        if (dtype != a.dtype()) list.push_back(a.to(dtype));
      return list;
    };
    for_each_replacement(sample, retyped, [&](const std::vector<NDArray>& inputs) {
      expect_result_or_refusal(op, sample.attrs, inputs, all[op.name()]);
    });
  });
  // Indices, keys, masks, probabilities; numbers of most types are taken as they are.
  EXPECT_GT(5 * refusing(all), static_cast<int>(all.size()));
}

}  // namespace
}  // namespace mx
