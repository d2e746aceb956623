#include "operators/operator.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "ndarray/copy.h"
#include "ndarray/detail/call_place.h"
#include "ndarray/detail/describe.h"
#include "ndarray/detail/place.h"
#include "operators/autocast.h"

namespace mx {

using detail::ArrayImpl;
using detail::Ref;

namespace {

bool ends_with(const char* text, const char* end) {
  const size_t n = std::strlen(text), m = std::strlen(end);
  return n >= m && std::strcmp(text + n - m, end) == 0;
}

// Rethrows the current exception with the inputs and the source location of the call, which infer() does not
// know.
[[noreturn]] void rethrow_at_call(const Operator& op, std::span<ArrayImpl* const> inputs,
                                  std::source_location where) {
  std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
    const std::string head = text.starts_with('[') ? "" : detail::concat('[', op.name(), "] ");
    const std::string place = detail::place_of(detail::CallPlace::of(where));
    return detail::concat(head, text, " (inputs: ", detail::describe(inputs),
                          place.empty() ? "" : "; called at ", place, ')');
  }));
}

void check_call(const Operator& op, const Attrs& attrs, size_t n) {
  if (n == op.inputs.size() && attrs.type() == op.attrs) return;  // common case: exactly the named inputs
  const size_t least = op.min_inputs(), most = op.max_inputs();
  MX_CHECK(n >= least && n <= most, InvalidArgument, "[", op.name(), "] expected ", least,
           most == least      ? ""
           : most == SIZE_MAX ? " or more"
                              : detail::concat(" to ", most),
           " inputs, got ", n);
  MX_CHECK(attrs.type() == op.attrs, InvalidArgument, "[", op.name(),
           "] expected attributes of the operator's own type, got attributes of another type");
}

// Checks a call and runs shape inference; returns the device of the call.
Context check_and_infer(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
                        InferContext& infer, std::source_location where) {
  try {
    check_call(op, attrs, inputs.size());
    const Context context = common_context(op.name(), inputs);
    op.infer(infer);
    return context;
  } catch (...) {
    rethrow_at_call(op, inputs, where);
  }
}

// Returns the approximate number of element operations: from the record's `work`, else the size of the
// largest array.
int64_t work_of(const Operator& op, const InferContext& infer, std::span<ArrayImpl* const> inputs) {
  if (op.work != nullptr) return op.work(infer);
  if (op.elementwise) return infer.output_shape(0).numel();
  int64_t work = 0;
  for (size_t i = 0; i < infer.outputs(); ++i) work = std::max(work, infer.output_shape(i).numel());
  for (const ArrayImpl* input : inputs) work = std::max(work, input->shape.numel());
  return work;
}

// Without this, the message would not say which of the operands is empty.
[[noreturn]] void refuse_empty(const Operator& op, size_t i, std::source_location where) {
  const char* const name = op.inputs.empty() ? "x" : op.inputs[std::min(i, op.inputs.size() - 1)];
  throw InvalidArgument(detail::concat("[", op.name(), "] expected an array as input ", i, ", ", name,
                                       ", got an empty handle, default-constructed or moved from",
                                       detail::called_at(detail::CallPlace::of(where))));
}

constexpr size_t kFew = 8;

// The arrays of one call; up to kFew without an allocation.
class Arrays {
 public:
  explicit Arrays(size_t n) : size_(n) {
    if (n > kFew) many_.resize(n);
  }
  explicit Arrays(std::span<const NDArray> handles) : Arrays(handles.size()) {
    for (size_t i = 0; i < size_; ++i) (*this)[i] = &handles[i].impl();
  }
  ArrayImpl*& operator[](size_t i) { return size_ > kFew ? many_[i] : few_[i]; }
  std::span<ArrayImpl*> span() { return {size_ > kFew ? many_.data() : few_, size_}; }

 private:
  size_t size_;
  ArrayImpl* few_[kFew];
  std::vector<ArrayImpl*> many_;
};

bool any_recorded(std::span<ArrayImpl* const> arrays) {
  return std::any_of(arrays.begin(), arrays.end(), [](const ArrayImpl* a) { return a->recorded(); });
}

// The common path. Passes each output to take(), which must keep it alive until invoke() returns.
template <class Take>
void invoke(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
            std::source_location where, bool recorded, const Take& take) try {
  InferContext infer(op, inputs, attrs);
  const Context context = check_and_infer(op, attrs, inputs, infer, where);
  if (recorded && op.updates != 0) detail::operator_hooks().updating(op, inputs);
  const size_t n = infer.outputs();
  MX_CHECK(n > 0 || op.outputs.empty(), InvalidArgument, "[", op.name(),
           "] expected an infer function that adds an output, got none", detail::called_at(where));
  Arrays outputs(n);
  for (size_t i = 0; i < n; ++i) {
    Ref<ArrayImpl> made = detail::new_array(infer.output_shape(i), infer.output_dtype(i), context, op.name());
    outputs[i] = made.get();
    take(std::move(made));
  }
  launch({.kernel = &op.kernel,
          .attrs = &attrs,
          .inputs = inputs,
          .outputs = outputs.span(),
          .updated_inputs = op.updates,
          .fresh_outputs = n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1,
          .work = work_of(op, infer, inputs),
          .context = &context,
          .where = where});
  if (recorded) detail::operator_hooks().record(op, attrs, inputs, outputs.span(), where);
} catch (const Error&) {
  detail::rethrow_at(detail::CallPlace::of(where));
}

// Calls an operator that is composed of others. An exception of compose() becomes the error of the outputs,
// as with a kernel.
std::vector<NDArray> call_composed(const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
                                   std::source_location where) {
  std::vector<ArrayImpl*> arrays;
  for (const NDArray& input : inputs) arrays.push_back(&input.impl());
  InferContext infer(op, arrays, attrs);
  const Context context = check_and_infer(op, attrs, arrays, infer, where);
  std::exception_ptr error;
  try {
    std::vector<NDArray> outputs = op.compose(attrs, inputs);
    MX_CHECK(outputs.size() == infer.outputs(), InvalidArgument, "[", op.name(), "] expected ",
             infer.outputs(), " outputs from compose(), as infer() declares, got ", outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i)
      MX_CHECK(outputs[i].shape() == infer.output_shape(i) && outputs[i].dtype() == infer.output_dtype(i),
               InvalidArgument, "[", op.name(), "] expected output ", i, " of compose() as ",
               infer.output_dtype(i), ' ', infer.output_shape(i), ", as infer() declares, got ",
               outputs[i].dtype(), ' ', outputs[i].shape());
    return outputs;
  } catch (...) {
    error = std::current_exception();
  }
  std::vector<NDArray> outputs;
  std::vector<ArrayImpl*> failed;
  for (size_t i = 0; i < infer.outputs(); ++i) {
    outputs.emplace_back(detail::new_array(infer.output_shape(i), infer.output_dtype(i), context, op.name()));
    failed.push_back(&outputs.back().impl());
  }
  if (failed.empty()) std::rethrow_exception(error);
  launch_failure({.kernel = &op.kernel, .outputs = failed, .where = where}, error);
  return outputs;
}

// Returns true if an input belongs to a graph; the graph has then handled the call.
bool call_symbolic(const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
                   std::source_location where, std::vector<NDArray>& outputs) {
  const detail::OperatorHooks& hooks = detail::operator_hooks();
  return hooks.symbolic != nullptr && hooks.symbolic(op, attrs, inputs, outputs, where);
}

// Calls an operator inside an Autocast scope: with inputs converted by its rule. What the call itself runs,
// such as compose(), is not converted again.
std::vector<NDArray> call_autocast(const Operator& op, const Attrs& attrs, std::vector<NDArray> inputs,
                                   std::source_location where) {
  detail::autocast_inputs(op, inputs, where);
  const detail::AutocastPause pause;
  return call(op, attrs, inputs, where);
}

NDArray call_one(const Operator& op, const Attrs& attrs, std::span<const NDArray* const> inputs,
                 std::source_location where) {
  if (detail::autocast_state != nullptr) [[unlikely]] {
    std::vector<NDArray> copies;
    for (const NDArray* input : inputs) copies.push_back(*input);
    return call_autocast(op, attrs, std::move(copies), where).at(0);
  }
  ArrayImpl* arrays[3];
  bool plain = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]->ref()) [[unlikely]]
      refuse_empty(op, i, where);
    arrays[i] = &inputs[i]->impl();
    plain = plain && arrays[i]->plain();
  }
  bool recorded = false;
  if (!plain || op.compose != nullptr) [[unlikely]] {
    recorded = op.compose == nullptr && any_recorded({arrays, inputs.size()});
    if (!recorded) {
      std::vector<NDArray> copies, outputs;
      for (const NDArray* input : inputs) copies.push_back(*input);
      if (op.compose != nullptr) return call_composed(op, attrs, copies, where).at(0);
      if (call_symbolic(op, attrs, copies, where, outputs)) return outputs.at(0);
    }
  }
  Ref<ArrayImpl> result;
  std::vector<Ref<ArrayImpl>> others;  // outputs that the caller does not get, kept alive for the launch
  invoke(op, attrs, {arrays, inputs.size()}, where, recorded, [&](Ref<ArrayImpl> made) {
    if (result) {
      others.push_back(std::move(made));
    } else {
      result = std::move(made);
    }
  });
  return NDArray(std::move(result));
}

}  // namespace

size_t Operator::min_inputs() const {
  size_t n = inputs.size();
  while (n > 0 && (ends_with(inputs[n - 1], "...") || ends_with(inputs[n - 1], "?"))) --n;
  return n;
}

size_t Operator::max_inputs() const {
  return !inputs.empty() && ends_with(inputs.back(), "...") ? SIZE_MAX : inputs.size();
}

detail::OperatorHooks& detail::operator_hooks() {
  static OperatorHooks table;
  return table;
}

NDArray call(const Operator& op, const Attrs& attrs, const Arg& a) {
  const NDArray* inputs[] = {&a.array};
  return call_one(op, attrs, inputs, a.where);
}

NDArray call(const Operator& op, const Attrs& attrs, const Arg& a, const NDArray& b) {
  const NDArray* inputs[] = {&a.array, &b};
  return call_one(op, attrs, inputs, a.where);
}

NDArray call(const Operator& op, const Attrs& attrs, const Arg& a, const NDArray& b, const NDArray& c) {
  const NDArray* inputs[] = {&a.array, &b, &c};
  return call_one(op, attrs, inputs, a.where);
}

std::vector<NDArray> call(const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
                          std::source_location where) {
  if (detail::autocast_state != nullptr) [[unlikely]]
    return call_autocast(op, attrs, {inputs.begin(), inputs.end()}, where);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].ref()) [[unlikely]]
      refuse_empty(op, i, where);
  if (op.compose != nullptr) return call_composed(op, attrs, inputs, where);
  Arrays arrays(inputs);
  const bool plain =
      std::all_of(inputs.begin(), inputs.end(), [](const NDArray& a) { return a.impl().plain(); });
  std::vector<NDArray> outputs;
  const bool recorded = !plain && any_recorded(arrays.span());
  if (!plain && !recorded && call_symbolic(op, attrs, inputs, where, outputs)) return outputs;
  invoke(op, attrs, arrays.span(), where, recorded,
         [&](Ref<ArrayImpl> made) { outputs.emplace_back(std::move(made)); });
  return outputs;
}

void call_into(NDArray& out, const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
               std::source_location where) try {
  const detail::AutocastPause pause;
  ArrayImpl& target = out.impl();
  detail::check_target(target, op.name());
  Arrays held(inputs);
  const std::span<ArrayImpl*> arrays = held.span();
  bool direct = target.plain() && op.compose == nullptr;
  for (const ArrayImpl* array : arrays) direct = direct && array->plain();
  if (direct) {
    // Writes directly into the target if the result has its shape, type and device, and if no input would be
    // read after it was overwritten.
    InferContext infer(op, arrays, attrs);
    const Context context = check_and_infer(op, attrs, arrays, infer, where);
    direct = infer.outputs() == 1 && infer.output_shape(0) == target.shape &&
             infer.output_dtype(0) == target.dtype && (arrays.empty() || context == target.context());
    for (size_t i = 0; i < arrays.size() && direct; ++i) {
      direct =
          !may_overlap(*arrays[i], target) && (has_bit(op.in_place, i) || !same_elements(*arrays[i], target));
    }
    if (direct) {
      ArrayImpl* const outputs[] = {&target};
      const Context place = target.context();
      launch({.kernel = &op.kernel,
              .attrs = &attrs,
              .inputs = arrays,
              .outputs = outputs,
              .updated_inputs = op.updates,
              .work = work_of(op, infer, arrays),
              .context = &place,
              .where = where});
      return;
    }
  }
  // Values that the gradient reads must not be overwritten, so inputs that share memory with the target are
  // copied.
  std::vector<NDArray> kept;
  if (any_recorded(arrays)) {
    const GradientUses uses = op.uses(attrs);
    kept.assign(inputs.begin(), inputs.end());
    for (size_t i = 0; i < kept.size(); ++i)
      if (has_bit(uses.inputs, i) && arrays[i]->storage.get() == target.storage.get())
        kept[i] = kept[i].clone(where);
    inputs = kept;
  }
  const std::vector<NDArray> results = call(op, attrs, inputs, where);
  MX_CHECK(results.size() == 1, InvalidArgument, "[", op.name(),
           "] expected an operator with one output to write in place, got one with ", results.size());
  const NDArray& result = results[0];
  MX_CHECK(category(result.dtype()) <= category(target.dtype), InvalidArgument, "[", op.name(),
           "] expected a result that an array of ", target.dtype, " can hold in place, got ", result.dtype());
  MX_CHECK(broadcast_shapes(result.shape(), target.shape, op.name()) == target.shape, InvalidArgument, "[",
           op.name(), "] expected a result of the array's shape ", target.shape, " in place, got ",
           result.shape());
  detail::assign(target, result.impl(), op.name(), where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

void detail::throw_record_list_full(size_t capacity) {
  throw InvalidArgument(
      detail::concat("[operator] expected a record with lists of at most ", capacity, " entries, got more"));
}

}  // namespace mx
