// A call of a user's Function: keeps its saved values and runs its backward().
#include <exception>
#include <string>
#include <typeinfo>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/type_name.h"
#include "executor/autograd/autograd.h"
#include "executor/autograd/function_node.h"
#include "executor/autograd/own_memory.h"
#include "executor/autograd/saved_value_hooks.h"
#include "ndarray/detail/call_place.h"
#include "ndarray/grad_mode.h"

namespace mx {
namespace detail {

class FunctionCall {
 public:
  FunctionCall(std::shared_ptr<Function> function, std::source_location where, std::string name)
      : function_(std::move(function)), where_(where), name_(std::move(name)) {}

  /// The name of the function in messages.
  std::string name() const {
    const Function& function = *function_;
    return name_.empty() ? short_type_name(typeid(function)) : name_;
  }

  /// Runs forward() and returns its results. They are not yet the outputs of the call: see record().
  std::vector<NDArray> run(std::span<const NDArray> inputs) {
    const NoGrad pause;
    return function_->forward(inputs);
  }
  /// Makes a node for the call, and gives edges to it to `outputs`: the results of run() as arrays of their
  /// own. `inputs` and `returned` are the arguments and the results of run().
  static void record(const std::shared_ptr<FunctionCall>& call, std::span<const NDArray> inputs,
                     std::vector<Edge> edges, std::span<const NDArray> returned,
                     std::span<const NDArray> outputs);

  /// Makes the saved values available while the thread is inside of backward().
  class Scope;
  static const NDArray& saved(const Function& function, size_t i);

 private:
  // The array that a saved value is, or is a view of: an input, an output, or another array.
  enum class Origin { input, output, other };
  struct Saved {
    SavedValue value;
    Origin origin;
    size_t index;
    Ref<ArrayImpl> whole{};  // if the value is a view of an input or output: that array
    PackedValue packed{};    // if SavedValueHooks keep it; then `value` has only its shape and type
  };
  struct Type {
    Shape shape;
    DType dtype;
  };

  void keep_values(std::span<const NDArray> inputs, std::span<const NDArray> returned);
  NDArray value(size_t i, const Step& step) const;
  void back(const Step& step) const;

  void compute(const Step& step) const;
  std::string saved_name(size_t i) const { return concat("value ", i, " that [", name(), "] saved"); }

  std::shared_ptr<Function> function_;
  std::source_location where_;  // of the call
  std::string name_;            // empty: that of the type
  std::vector<Saved> saved_;
  std::vector<Type> types_;  // of the inputs
};

// The scope of a running backward(). Scopes of a thread form a stack, since backward() may call others.
// Arrays of saved values are created on demand.
class FunctionCall::Scope {
 public:
  Scope(const FunctionCall& call, const Step& step)
      : call_(call), step_(step), values_(call.saved_.size()), outer_(innermost) {
    innermost = this;
  }
  ~Scope() { innermost = outer_; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  friend class FunctionCall;
  const FunctionCall& call_;
  const Step& step_;
  std::vector<NDArray> values_;
  Scope* outer_;
  static thread_local constinit Scope* innermost;
};
thread_local constinit FunctionCall::Scope* FunctionCall::Scope::innermost = nullptr;

const NDArray& FunctionCall::saved(const Function& function, size_t i) {
  Scope* scope = Scope::innermost;
  while (scope != nullptr && scope->call_.function_.get() != &function) scope = scope->outer_;
  MX_CHECK(scope != nullptr, InvalidState,
           "[Function] expected a call of saved() from inside backward(), got one from outside");
  MX_CHECK(i < scope->values_.size(), InvalidArgument, "[", scope->call_.name(),
           "] expected the index of one of the ", scope->values_.size(), " values that forward() saved, got ",
           i);
  NDArray& value = scope->values_[i];
  if (!value.defined()) value = scope->call_.value(i, scope->step_);
  return value;
}

void FunctionCall::keep_values(std::span<const NDArray> inputs, std::span<const NDArray> returned) {
  for (const NDArray& input : inputs) types_.push_back({input.shape(), input.dtype()});
  const std::vector<NDArray> values = std::exchange(function_->to_save_, {});
  for (const NDArray& array : values) {
    const ArrayImpl& impl = array.impl();
    const ArrayImpl& root = impl.root();
    Saved saved{SavedValue(impl), Origin::other, 0};
    const auto look_in = [&](std::span<const NDArray> arrays, Origin origin) {
      for (size_t i = 0; i < arrays.size() && saved.origin == Origin::other; ++i) {
        const ArrayImpl& candidate = arrays[i].impl();
        if (&candidate != &impl && &candidate != &root) continue;
        // A view of an array whose elements share memory has no place of its own there (record_view).
        if (&candidate != &impl && candidate.may_overlap()) continue;
        saved.origin = origin;
        saved.index = i;
        if (&candidate != &impl) saved.whole = without_edge(candidate);
      }
    };
    look_in(inputs, Origin::input);
    look_in(returned, Origin::output);
    if (!saved.whole && packs(impl)) {
      const size_t i = saved_.size();
      saved.packed = PackedValue(impl, [this, i] { return saved_name(i); });
      saved.value.array = shape_of(impl);
    }
    saved_.push_back(std::move(saved));
  }
}

NDArray FunctionCall::value(size_t i, const Step& step) const {
  const Saved& saved = saved_[i];
  const NDArray read = saved.packed
                           ? saved.packed.unpack(*saved.value.array, [this, i] { return saved_name(i); })
                           : NDArray(saved.value.array);
  const ArrayImpl& array = read.impl();
  if (const uint32_t changes = saved.packed ? 0 : saved.value.changes(array); changes != 0)
    throw_changed(array, changes, saved_name(i), "forward() returned");
  if (!step.recorded || !is_floating(array.dtype)) return read;
  MX_CHECK(
      saved.origin != Origin::other, InvalidState, "[", name(), "] expected value ", i,
      " that forward() saved to be an input, an output or a view of one, because second derivatives are "
      "requested, got another array of ",
      array.dtype, ' ', array.shape,
      "; return it as another output, compute it in backward(), or keep it in a member if it is a constant");
  const Edge edge = saved.origin == Origin::input
                        ? step.node.edges()[saved.index]
                        : Edge{Ref<Node>(&step.node), static_cast<uint32_t>(saved.index)};
  if (!saved.whole) return with_edge(array, edge);
  // Not with_edge(), which may copy the array; then the view would be elsewhere. as_strided() throws if
  // elements of the array share memory.
  const NDArray whole(without_edge(*saved.whole));
  if (edge) init_edge(whole.impl(), edge.node, edge.output);
  return whole.as_strided(array.shape, array.strides, array.offset);
}

void FunctionCall::back(const Step& step) const {
  try {
    compute(step);
  } catch (const Error&) {
    std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
      return concat(text, " (in the gradient of [", name(), "], called at ", where_.file_name(), ':',
                    where_.line(), ')');
    }));
  }
}

void FunctionCall::compute(const Step& step) const {
  const Scope scope(*this, step);
  const std::vector<NDArray> gradients = function_->backward(step.heads);
  MX_CHECK(gradients.size() == types_.size(), InvalidArgument, "[", name(), "] expected ", types_.size(),
           " gradients from backward(), one per input, got ", gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    MX_CHECK(gradients[i].shape() == types_[i].shape, InvalidArgument, "[", name(), "] expected gradient ", i,
             " from backward() to have the input's shape ", types_[i].shape, ", got shape ",
             gradients[i].shape());
    step.results[i] = gradients[i].to(types_[i].dtype);
  }
}

void FunctionCall::record(const std::shared_ptr<FunctionCall>& call, std::span<const NDArray> inputs,
                          std::vector<Edge> edges, std::span<const NDArray> returned,
                          std::span<const NDArray> outputs) {
  call->keep_values(inputs, returned);
  // The function may keep inputs in members, and they have gradients too. These arrays belong to the call
  // alone: later changes to the caller's arrays do not affect them, so they cannot lead back to the node.
  for (size_t i = 0; i < inputs.size(); ++i)
    if (edges[i]) set_edge(inputs[i].impl(), edges[i].node, edges[i].output);
  const Ref<Node> node = make_node<FunctionNode>("Function", std::move(edges), returned.size(),
                                                 [call](const Step& step) { call->back(step); });
  for (size_t i = 0; i < outputs.size(); ++i)
    if (is_floating(outputs[i].dtype())) set_edge(outputs[i].impl(), node, static_cast<uint32_t>(i));
}

std::vector<NDArray> apply_function(std::shared_ptr<Function> function, std::span<const NDArray> inputs,
                                    std::source_location where, const std::string& name) {
  std::vector<Edge> edges;
  std::vector<NDArray> own;
  bool any = false;
  for (const NDArray& input : inputs) {
    edges.push_back(input.impl().recorded() ? edge_of(input.impl()) : Edge{});
    // A copy if elements of a recorded input share memory: a view of it that the function saves, or takes in
    // backward(), must have a gradient (record_view).
    if (edges.back() && input.impl().may_overlap()) {
      const NoGrad pause;
      own.push_back(input.clone());
    } else {
      own.emplace_back(without_edge(input.impl()));
    }
    any = any || edges.back();
  }
  const auto call = std::make_shared<FunctionCall>(std::move(function), CallPlace::of(where), name);
  const uint64_t begin = Storage::new_moment();
  std::vector<uint32_t> versions;
  for (const NDArray& input : own) versions.push_back(input.impl().storage->version());
  const std::vector<NDArray> returned = call->run(any ? own : inputs);
  for (size_t i = 0; i < own.size(); ++i)
    MX_CHECK(!edges[i] || own[i].impl().storage->version() == versions[i], InvalidState, "[", call->name(),
             "] expected forward() not to change recorded inputs in place, got one that has changed "
             "input ",
             i, " of shape ", own[i].shape(), "; change a clone() of it instead");
  // New arrays in any case. forward() may have returned an input, or the function may keep an output in a
  // member. With an edge to the node, that output would own the node, which owns the function: neither would
  // be freed.
  std::vector<NDArray> outputs;
  for (const NDArray& result : returned) outputs.push_back(own_memory(result, begin, outputs));
  if (any) FunctionCall::record(call, own, std::move(edges), returned, outputs);
  return outputs;
}

}  // namespace detail

void Function::save(std::initializer_list<NDArray> values) {
  save(std::span<const NDArray>(values.begin(), values.size()));
}

void Function::save(std::span<const NDArray> values) {
  for (const NDArray& value : values) {
    MX_CHECK(value.defined(), InvalidArgument, "[Function] expected arrays to save, got an empty handle");
    to_save_.push_back(value);
  }
}

const NDArray& Function::saved(size_t i) const { return detail::FunctionCall::saved(*this, i); }

}  // namespace mx
