#include "tests/cuda/operators/worker.h"

#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "operators/operator.h"
#include "operators/samples/samples.h"
#include "tests/cuda/comparable.h"
#include "tests/cuda/operators/compare.h"
#include "tests/operators/gradient_support.h"
#include "tests/operators/registry_support.h"

namespace mx::test {
namespace {

/// What has been compared of one operator, by the name of what varies: a type, a layout, "gradient".
class Tally {
 public:
  void count(const std::string& what, const std::string& problem) {
    auto& [passed, failed] = counts_[what];
    ++(problem.empty() ? passed : failed);
    if (!problem.empty() && first_.empty()) first_ = problem;
  }
  /// "softmax | f32 12, f64 12, transposed 12 | bf16 3 of 12 | first problem".
  std::string line(const char* name) const {
    std::string passed, failed;
    for (const auto& [what, count] : counts_) {
      if (count.second == 0) {
        passed += (passed.empty() ? "" : ", ") + what + ' ' + std::to_string(count.first);
      } else {
        failed += (failed.empty() ? "" : ", ") + what + ' ' + std::to_string(count.second) + " of " +
                  std::to_string(count.first + count.second);
      }
    }
    std::string text =
        std::string(name) + " | " + (passed.empty() ? "-" : passed) + " | " + (failed.empty() ? "-" : failed);
    if (!first_.empty()) text += " | " + first_;
    for (char& c : text)
      if (c == '\n') c = ' ';
    return text;
  }
  bool empty() const { return counts_.empty(); }

 private:
  std::map<std::string, std::pair<int, int>> counts_;
  std::string first_;
};

std::vector<NDArray> on(const std::vector<NDArray>& arrays, Context device, uint64_t cloned) {
  std::vector<NDArray> moved;
  for (size_t i = 0; i < arrays.size(); ++i) {
    NDArray a = arrays[i].defined() ? arrays[i].to(device) : arrays[i];
    moved.push_back(has_bit(cloned, i) ? a.clone() : a);
  }
  return moved;
}

/// Returns the outputs, followed by the changed inputs, on the CPU. Waits for them.
std::vector<NDArray> results(const Operator& op, const Attrs& attrs, const std::vector<NDArray>& inputs) {
  std::vector<NDArray> all;
  for (const NDArray& output : call(op, attrs, inputs)) all.push_back(output.to(cpu()));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_updated(op, i)) all.push_back(inputs[i].to(cpu()));
  for (const NDArray& each : all) each.wait();
  return all;
}

std::string compared(const std::vector<NDArray>& expected, const std::vector<NDArray>& got) {
  if (expected.size() != got.size()) return "another number of results";
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!expected[i].defined() || !got[i].defined()) {
      if (expected[i].defined() != got[i].defined()) return "a result is missing";
      continue;
    }
    if (const std::string text = difference_of(expected[i], got[i]); !text.empty())
      return "result " + std::to_string(i) + ", " + text;
  }
  return {};
}

/// Compares one call. Returns false if the CPU refuses it.
template <class Inputs>
bool compare_call(Tally& tally, const std::string& what, const Operator& op, const Sample& sample,
                  const Inputs& inputs_on) {
  std::vector<NDArray> expected;
  try {
    expected = results(op, sample.attrs, inputs_on(cpu()));
  } catch (const Error&) {
    return false;
  }
  try {
    const std::string text = compared(expected, results(op, sample.attrs, inputs_on(tested_device())));
    tally.count(what, text.empty() ? text : label(op, sample) + ": " + text);
  } catch (const std::exception& e) {
    tally.count(what, label(op, sample) + ": " + e.what());
  }
  return true;
}

void compare_gradients(Tally& tally, const Operator& op, const Sample& sample) {
  if (op.gradient == nullptr || !sample.differentiable || op.updates != 0 || op.random) return;
  if (!any_floating(sample.inputs)) return;
  const auto gradients = [&](Context device) {
    const Arrays inputs = on(sample.inputs, device, 0);
    const Arrays outputs = call(op, sample.attrs, inputs);
    Arrays all = gradients_of(op, sample.attrs, inputs, outputs, heads_for(outputs), floating_inputs(inputs));
    for (NDArray& each : all) {
      if (!each.defined()) continue;
      each = each.to(cpu());
      each.wait();
    }
    return all;
  };
  Arrays expected;
  try {
    expected = gradients(cpu());
  } catch (const Error&) {
    return;
  }
  try {
    const std::string text = compared(expected, gradients(tested_device()));
    tally.count("gradient", text.empty() ? text : "gradient of " + label(op, sample) + ": " + text);
  } catch (const std::exception& e) {
    const std::string text = e.what();
    if (contains(text, "expected an operator with a CUDA kernel"))
      return tally.count("no kernel for the gradient", "");
    tally.count("gradient", "gradient of " + label(op, sample) + ": " + text);
  }
}

void compare_operator(Tally& tally, const Operator& op) {
  for (const Sample& sample : samples_of(op)) {
    if (sample.inputs.empty()) continue;
    const std::vector<DType> dtypes =
        op.sized_by_values ? std::vector<DType>{sample.inputs[0].dtype()} : dtypes_of(op);
    for (const DType dtype : dtypes) {
      const Sample typed = op.sized_by_values ? sample : as_dtype(op, sample, dtype);
      compare_call(tally, to_string(dtype), op, typed,
                   [&](Context device) { return on(typed.inputs, device, op.updates); });
    }
    for (const Layout layout : {Layout::transposed, Layout::stepped, Layout::broadcast}) {
      if (!is_comparable(op, layout)) continue;
      const char* const name = layout == Layout::transposed ? "transposed"
                               : layout == Layout::stepped  ? "stepped"
                                                            : "broadcast";
      compare_call(tally, name, op, sample, [&](Context device) {
        std::vector<NDArray> inputs = on(sample.inputs, device, op.updates);
        for (size_t i = 0; i < inputs.size(); ++i)
          if (!is_updated(op, i)) inputs[i] = laid_out(inputs[i], layout);
        return inputs;
      });
    }
    for (const DType dtype : {f32, f64}) compare_gradients(tally, op, with_floats(sample, dtype));
  }
}

bool device_works() {
  try {
    return full({3}, 2, f32, tested_device()).to(cpu()).to_vector<float>()[2] == 2;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

bool runs_on_tested_device(const Operator& op) {
  return op.kernel.cuda != nullptr || tested_device().kind != DeviceKind::gpu;
}

int compare_operators_from(size_t first) {
  const std::vector<const Operator*> all = all_operators();
  for (size_t i = first; i < all.size(); ++i) {
    const Operator& op = *all[i];
    if (!runs_on_tested_device(op) || !has_samples(op)) continue;
    std::printf("\nBEGIN %zu %s\n", i, op.name());
    std::fflush(stdout);
    Tally tally;
    try {
      compare_operator(tally, op);
    } catch (const std::exception& e) {
      tally.count("samples", e.what());
    }
    if (!tally.empty()) std::printf("\nRESULT %s\n", tally.line(op.name()).c_str());
    std::fflush(stdout);
    if (!device_works()) {
      std::printf("\nLOST\n");
      std::fflush(stdout);
      std::_Exit(3);
    }
  }
  std::printf("\nEND\n");
  std::fflush(stdout);
  return 0;
}

}  // namespace mx::test
