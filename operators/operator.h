// Operator: a record with everything that is known about one operator.
//
// A family of operators is one file with records, and for each record a public function that calls it. The
// record determines the errors at the call, the dtype coverage, the reference page, the benchmark entry, and
// the tests that run for every operator (tests/operators/registry_*). CONTRIBUTING.md lists the steps to add
// one.
//
// Thread-safety: the public functions of families may be called from any thread.
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

/// The argument of shape inference: the inputs, and the outputs that inference adds. Inference may read
/// shapes, dtypes and attributes, never values.
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
  bool differentiable = true;  ///< false if the function has a kink or a jump at these values
};

/// The names of inputs and outputs: at most 16.
using RecordNames = detail::RecordList<const char*, 16>;

struct Operator {
  Kernel kernel;
  const char* doc = "";
  const char* family = "";
  /// Names of the inputs. If the last one ends in "...", it stands for any number of inputs; if it ends in
  /// "?", it is optional.
  RecordNames inputs{};
  RecordNames outputs{"y"};
  const AttrType* attrs = nullptr;
  void (*infer)(InferContext&) = nullptr;
  /// Sets d(loss)/d(input i) for the inputs that need it. Null: not differentiable.
  void (*gradient)(GradientContext&) = nullptr;
  GradientUses gradient_uses{};  ///< the values that `gradient` reads
  /// Returns the values that `gradient` reads with these attributes, if they are fewer; null: gradient_uses.
  GradientUses (*narrowed_uses)(const Attrs& attrs) = nullptr;
  /// True if every array that `gradient` sets is new or belongs to the context. False if it may set an array
  /// that other code keeps, which the backward pass must not overwrite.
  bool gradient_returns_fresh_arrays = true;
  /// Replaces the kernel: runs at the call, and calls other operators to make the outputs that infer()
  /// declared.
  std::vector<NDArray> (*compose)(const Attrs& attrs, std::span<const NDArray> inputs) = nullptr;
  /// Returns samples that vary every attribute and the shapes that matter. Null for the families of this
  /// source tree; their samples are in a library that only tests and benchmarks link
  /// (operators/samples/samples.h).
  std::vector<Sample> (*samples)() = nullptr;
  /// The types that inputs[0] may have, for tests and documents; empty: all.
  detail::RecordList<DType, kDTypes> dtypes{};
  /// Returns the approximate number of element operations of a call; null: the size of the largest array.
  int64_t (*work)(const InferContext&) = nullptr;
  /// Bit i: output 0 may use input i's memory if both have the same shape and type.
  uint64_t in_place = 0;
  /// Bit i: the kernel changes input i.
  uint64_t updates = 0;
  /// Each element of the output depends on one element of each input, so the operator may be fused.
  bool elementwise = false;
  /// True if the size of an input or of the output must agree with the inputs' values.
  bool sized_by_values = false;
  /// True if some values of the right shapes and types are errors, such as a singular matrix.
  bool partial = false;
  /// True if the result depends on a random state among the inputs.
  bool random = false;
  /// For an operator of two operands: the form that takes an array and a number (NumberAttrs of
  /// operators/number.h), named "<name>_scalar". It is registered together with this record. Null: none.
  const Operator* number_form = nullptr;

  const char* name() const { return kernel.name; }
  /// Returns the values that the gradient of a call with these attributes reads.
  GradientUses uses(const Attrs& given) const { return narrowed_uses ? narrowed_uses(given) : gradient_uses; }
  size_t min_inputs() const;
  size_t max_inputs() const;  ///< SIZE_MAX: any number
};

inline const char* InferContext::name() const { return op_.name(); }

/// Calls an operator: checks, infers, makes the outputs and launches. Throws InvalidArgument at once for
/// errors in shapes, types and attributes. If values are wrong, waiting for the result throws.
NDArray call(const Operator& op, const Attrs& attrs, const Arg& a);
NDArray call(const Operator& op, const Attrs& attrs, const Arg& a, const NDArray& b);
NDArray call(const Operator& op, const Attrs& attrs, const Arg& a, const NDArray& b, const NDArray& c);
std::vector<NDArray> call(const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
                          std::source_location where = std::source_location::current());

/// Calls an operator with an existing array as output. It may have any layout and type, and may overlap the
/// inputs (a += b).
void call_into(NDArray& out, const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
               std::source_location where = std::source_location::current());

/// Returns the operator of that name, for graphs, files and front ends; null if there is none.
const Operator* find_operator(const std::string& name);
/// Returns all operators, by family, and within a family in the order of its file.
std::vector<const Operator*> all_operators();
/// Adds an operator that is not in this source tree, and its number_form; the record must live as long as the
/// process. Throws InvalidArgument if the name is taken or a part of the record is missing.
void register_operator(const Operator& op);

/// The records of one family; a family's file exports a function that returns them.
using OperatorFamily = std::vector<const Operator*>;

namespace detail {

/// Callbacks of automatic differentiation and of graphs, for calls with recorded or symbolic inputs.
struct OperatorHooks {
  /// Returns true if an input is symbolic; the hook has then handled the call.
  bool (*symbolic)(const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
                   std::vector<NDArray>& outputs, std::source_location where) = nullptr;
  /// Runs before a call that changes inputs (Operator::updates) if an input is recorded. Throws if the change
  /// is not allowed.
  void (*updating)(const Operator& op, std::span<ArrayImpl* const> inputs) = nullptr;
  /// Runs after a call with a recorded input.
  void (*record)(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
                 std::span<ArrayImpl* const> outputs, std::source_location where) = nullptr;
};
OperatorHooks& operator_hooks();

}  // namespace detail
}  // namespace mx
