// Invalid inputs: if one input of a sample gets another shape or type, the operator either works or throws at
// the call, with a message that names all operands.
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

/// Returns variants of the array: each dimension in turn a little larger, one more dimension, and one fewer.
/// All elements are elements of the array, so as indices they stay in range.
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

/// Counts how often an operator refused its inputs and how often it accepted them.
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
      // Only values can show this error: a mask chooses another number of elements, or an index is out of
      // range.
      EXPECT_TRUE(op.sized_by_values || test::contains(e.what(), "expected indices from"))
          << "was not refused at the call: " << e.what();
    }
  }
}

/// Calls f(inputs) with each input of the sample replaced by each of others(input).
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
  // Every operator of several arrays checks their shapes; most of the others have an axis or a required rank.
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
  // Indices, keys, masks and probabilities have a required type; numbers of most types are accepted.
  EXPECT_GT(5 * refusing(all), static_cast<int>(all.size()));
}

}  // namespace
}  // namespace mx
