// Operator: everything that is known of one operator, in one record.
//
// A family of operators is one file: records, and for each a public function that calls it. From the record
// follow the errors at the call, the dtype coverage, the reference page, the benchmark entry, and the tests
// that hold for every operator (tests/operators/registry_*). What a new one needs is listed in
// CONTRIBUTING.md.
//
//   struct SoftmaxAttrs { int64_t axis = -1;  ... fields ... };
//   constexpr Operator kSoftmax = {.kernel = {"softmax", run_softmax}, .doc = "...", .inputs = {"x"}, ...};
//   NDArray softmax(const Arg& x, int64_t axis) { return call(kSoftmax, SoftmaxAttrs{axis}, x); }
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "ndarray/attrs.h"
#include "ndarray/launch.h"
#include "ndarray/ndarray.h"
#include "operators/gradient.h"
#include "operators/record_list.h"

namespace mx {

struct Operator;

/// What shape inference sees and says. It may look at shapes, dtypes and attributes, never at values.
class InferContext {
 public:
  InferContext(const Operator& op, std::span<detail::ArrayImpl* const> inputs, const Attrs& attrs)
      : op_(op), inputs_(inputs), attrs_(attrs) {}

  const char* name() const;
  size_t inputs() const { return inputs_.size(); }
  const Shape& shape(size_t i) const { return inputs_[i]->shape; }
  DType dtype(size_t i) const { return inputs_[i]->dtype; }
  template <class T>
  const T& attr() const {
    return attrs_.get<T>();
  }

  /// Adds an output.
  void output(const Shape& shape, DType dtype) {
    if (outputs_ < kInline) {
      shapes_[outputs_] = shape;
      dtypes_[outputs_] = dtype;
    } else {
      more_.push_back({shape, dtype});
    }
    ++outputs_;
  }
  size_t outputs() const { return outputs_; }
  const Shape& output_shape(size_t i) const { return i < kInline ? shapes_[i] : more_[i - kInline].first; }
  DType output_dtype(size_t i) const { return i < kInline ? dtypes_[i] : more_[i - kInline].second; }

 private:
  static constexpr size_t kInline = 4;
  const Operator& op_;
  std::span<detail::ArrayImpl* const> inputs_;
  const Attrs& attrs_;
  size_t outputs_ = 0;
  Shape shapes_[kInline];
  DType dtypes_[kInline];
  std::vector<std::pair<Shape, DType>> more_;
};

/// Inputs with which an operator is tested, benchmarked and documented.
struct Sample {
  std::vector<NDArray> inputs;
  Attrs attrs{};
  std::string label{};         ///< "axis=0 of (2, 3)"
  bool differentiable = true;  ///< false where the function has a kink or a jump at these values
};

/// The names of inputs and outputs: at most 16.
using RecordNames = detail::RecordList<const char*, 16>;

struct Operator {
  Kernel kernel;
  const char* doc = "";
  const char* family = "";
  /// Names of the inputs; the last may end in "..." and stands for any number, or in "?" and may be left out.
  RecordNames inputs{};
  RecordNames outputs{"y"};
  const AttrType* attrs = nullptr;
  void (*infer)(InferContext&) = nullptr;
  /// Sets d(loss)/d(input i) for the inputs that are wanted. Null: not differentiable.
  void (*gradient)(GradientContext&) = nullptr;
  GradientUses gradient_uses{};  ///< what it looks at
  /// What it looks at with these attributes, where that is less; null: gradient_uses.
  GradientUses (*narrowed_uses)(const Attrs& attrs) = nullptr;
  /// What it sets is new or an array of the context: nothing that somebody else keeps.
  bool gradient_gives_new = true;
  /// Instead of a kernel: makes the outputs that infer() says from calls of other operators, when it is
  /// called.
  std::vector<NDArray> (*compose)(const Attrs& attrs, std::span<const NDArray> inputs) = nullptr;
  /// Vary every attribute, and the shapes that matter. Null for families of the tree, whose samples are in a
  /// library that only tests and benchmarks link (operators/samples/samples.h).
  std::vector<Sample> (*samples)() = nullptr;
  /// The types that inputs[0] may have, for tests and documents; empty: all.
  detail::RecordList<DType, kDTypes> dtypes{};
  /// About how many element operations a call is; null: the largest array's elements.
  int64_t (*work)(const InferContext&) = nullptr;
  /// Bit i: output 0 may be put into input i's memory when both have the same shape and type.
  uint64_t in_place = 0;
  /// Bit i: input i is changed.
  uint64_t updates = 0;
  /// One element of each input gives one element of the output: may be fused.
  bool elementwise = false;
  /// Sizes of an input or of the output must agree with the inputs' values.
  bool sized_by_values = false;
  /// The result depends on a random state among the inputs.
  bool random = false;

  const char* name() const { return kernel.name; }
  /// What the gradient of a call with these attributes looks at.
  GradientUses uses(const Attrs& given) const { return narrowed_uses ? narrowed_uses(given) : gradient_uses; }
  size_t min_inputs() const;
  size_t max_inputs() const;  ///< SIZE_MAX: any number
};

inline const char* InferContext::name() const { return op_.name(); }

/// Calls an operator: checks, infers, makes the outputs and launches. Throws InvalidArgument at once for what
/// can be known from shapes, types and attributes; what only values show comes out of waiting for the result.
NDArray call(const Operator& op, const Attrs& attrs, const Arg& a);
NDArray call(const Operator& op, const Attrs& attrs, const Arg& a, const NDArray& b);
NDArray call(const Operator& op, const Attrs& attrs, const Arg& a, const NDArray& b, const NDArray& c);
std::vector<NDArray> call(const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
                          std::source_location where = std::source_location::current());

/// The same into an existing array, of any layout and type, that may overlap the inputs (a += b).
void call_into(NDArray& out, const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
               std::source_location where = std::source_location::current());

/// By name: for graphs, files and front ends. Null when there is none.
const Operator* find_operator(const std::string& name);
/// All of them, by family and then in the order of the family's file.
std::vector<const Operator*> all_operators();
/// Adds one from outside; it must live as long as the process. Throws InvalidArgument when the name is taken
/// or a part is missing.
void register_operator(const Operator& op);

/// What a family's file exports.
using OperatorFamily = std::vector<const Operator*>;

namespace detail {

/// What automatic differentiation and graphs do when an operator meets an array of theirs.
struct OperatorHooks {
  /// True when it took the call over: an input is symbolic.
  bool (*symbolic)(const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
                   std::vector<NDArray>& outputs, std::source_location where) = nullptr;
  /// Before a call that changes inputs (Operator::updates) of which one is recorded; throws when that is not
  /// possible.
  void (*updating)(const Operator& op, std::span<ArrayImpl* const> inputs) = nullptr;
  /// After a call with an input that is recorded.
  void (*record)(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
                 std::span<ArrayImpl* const> outputs, std::source_location where) = nullptr;
};
OperatorHooks& operator_hooks();

}  // namespace detail
}  // namespace mx
