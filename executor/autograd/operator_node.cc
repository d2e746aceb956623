#include "executor/autograd/operator_node.h"

#include <algorithm>

#include "engine/base/check.h"
#include "executor/autograd/function_node.h"
#include "ndarray/detail/block_cache.h"
#include "ndarray/detail/call_place.h"

namespace mx::detail {

Ref<Node> OperatorNode::make(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
                             std::span<ArrayImpl* const> outputs, std::source_location where) {
  static_assert(sizeof(OperatorNode) <= kBlockBytes[static_cast<int>(BlockKind::node)]);
  void* const block = new_block(BlockKind::node);
  try {
    return Ref<Node>::adopt(new (block) OperatorNode(op, attrs, inputs, outputs, where));
  } catch (...) {
    free_block(BlockKind::node, block);
    throw;
  }
}

void OperatorNode::free() noexcept {
  this->~OperatorNode();
  free_block(BlockKind::node, this);
}

// Returns true if the value of input i must be saved, because a gradient that will be needed reads it.
bool OperatorNode::saves_input(const GradientUses& uses, size_t i) const {
  return uses.reads_input(i, inputs_, [this](size_t k) { return static_cast<bool>(edges_[k]); });
}

OperatorNode::OperatorNode(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
                           std::span<ArrayImpl* const> outputs, std::source_location where)
    : op_(op),
      attrs_(attrs),
      where_(where),
      inputs_(static_cast<uint32_t>(inputs.size())),
      outputs_(static_cast<uint32_t>(outputs.size())),
      returns_fresh_arrays_(op.gradient_returns_fresh_arrays),
      edges_(few_edges_),
      saved_(few_saved_) {
  if (inputs_ > kInline || inputs_ + outputs_ > kInline + 1) {
    more_ = std::make_unique<More>();
    more_->edges.resize(inputs_);
    more_->saved.resize(inputs_ + outputs_);
    edges_ = more_->edges.data();
    saved_ = more_->saved.data();
  }
  for (size_t i = 0; i < inputs_; ++i)
    if (is_floating(inputs[i]->dtype)) edges_[i] = edge_of(*inputs[i]);
  set_order();
  if (op.gradient == nullptr) return;
  const GradientUses uses = op.uses(attrs);
  const ArrayImpl& first = *outputs[0];
  for (size_t i = 0; i < inputs_; ++i) {
    const ArrayImpl& input = *inputs[i];
    if (saves_input(uses, i)) {
      save(i, input);
    } else if (outputs_ != 1 || input.dtype != first.dtype || !(input.shape == first.shape)) {
      saved_[i].array = shape_of(input);
    }
  }
  for (size_t i = 0; i < outputs_; ++i) {
    const ArrayImpl& output = *outputs[i];
    if (has_bit(uses.outputs, i)) {
      save(inputs_ + i, output);
    } else if (outputs_ != 1) {
      saved_[inputs_ + i].array = shape_of(output);
    }
  }
}

void OperatorNode::save(size_t i, const ArrayImpl& value) {
  saves_values_ = true;
  if (!packs(value)) {
    saved_[i] = SavedValue(value);
    return;
  }
  if (more_ == nullptr) more_ = std::make_unique<More>();
  more_->packed.resize(inputs_ + outputs_);
  more_->packed[i] = PackedValue(value, [&] { return concat(name_of(i), ", ", place_of_call()); });
  saved_[i].array = shape_of(value);
}

// Copies what was saved to `values` and `packed`. Without `keep` the values themselves are moved there, so
// that no other call can get them; shapes and types stay, since the gradient of a node without values may be
// computed again.
void OperatorNode::get_saved(const GradientUses& uses, bool keep, NDArray* values,
                             std::vector<PackedValue>& packed) {
  const size_t n = inputs_ + outputs_;
  const auto get_all = [&](bool move) {
    for (size_t i = 0; i < n; ++i) {
      if (!saved_[i].array) continue;
      values[i] = move && saves(uses, i) ? NDArray(std::move(saved_[i].array)) : NDArray(saved_[i].array);
    }
    if (more_ == nullptr || more_->packed.empty()) return;
    packed = more_->packed;
    if (move) more_->packed.clear();
  };
  if (!saves_values_) return get_all(false);
  const FlagLock lock(saved_locked_);
  if (released_) throw_released(op_.name());
  get_all(!keep);
  released_ = !keep;
}

void OperatorNode::put_back(const GradientUses& uses, NDArray* values,
                            std::vector<PackedValue>& packed) noexcept {
  if (!saves_values_) return;
  const FlagLock lock(saved_locked_);
  for (size_t i = 0; i < inputs_ + outputs_; ++i)
    if (values[i].defined() && saves(uses, i)) saved_[i].array = values[i].ref();
  if (!packed.empty()) more_->packed.swap(packed);
  released_ = false;
}

// `value`: what saved_[i] holds, or held until it was taken.
void OperatorNode::check_unchanged(size_t i, const ArrayImpl& value) const {
  const uint32_t changes = saved_[i].changes(value);
  if (changes == 0) return;
  throw_changed(value, changes, name_of(i), concat("the operator was ", place_of_call()));
}

std::string OperatorNode::name_of(size_t i) const {
  const bool input = i < inputs_;
  return concat(input ? "input " : "output ", input ? i : i - inputs_, " of [", op_.name(), ']');
}

std::string OperatorNode::place_of_call() const {
  return concat("called at ", where_.file_name(), ':', where_.line());
}

void OperatorNode::back(const Step& step) {
  MX_CHECK(op_.gradient != nullptr, InvalidArgument,
           "[backward] expected operators that have gradients, got [", op_.name(), "], which has none, ",
           place_of_call());
  constexpr size_t kFew = 8;
  NDArray few[kFew];
  std::vector<NDArray> many;
  const size_t n = inputs_ + outputs_;
  if (n > kFew) many.resize(n);
  NDArray* const values = n > kFew ? many.data() : few;
  const GradientUses uses = op_.uses(attrs_);
  std::vector<PackedValue> packed;
  get_saved(uses, step.keep, values, packed);
  std::vector<NDArray> kept;  // what values[] was before values were unpacked
  bool called = false;
  try {
    for (size_t i = 0; i < n; ++i) {
      if (!values[i].defined() || !saves(uses, i)) continue;
      if (!packed.empty() && packed[i]) {
        if (kept.empty()) kept.assign(values, values + n);
        values[i] =
            packed[i].unpack(values[i].impl(), [&] { return concat(name_of(i), ", ", place_of_call()); });
      } else {
        check_unchanged(i, values[i].impl());
      }
      const ArrayImpl& value = values[i].impl();
      if (!step.recorded) continue;
      Edge edge = i < inputs_ ? edges_[i] : Edge{};
      if (i >= inputs_ && is_floating(value.dtype))
        edge = {Ref<Node>(this), static_cast<uint32_t>(i - inputs_)};
      values[i] = with_edge(value, edge);
    }
    GradientContext context(op_, attrs_, {values, inputs_}, {values + inputs_, outputs_}, step.heads,
                            step.wanted, step.results);
    called = true;
    // Errors of the operators that compute the gradient name the line of this operator's call.
    const CallPlace place(where_);
    op_.gradient(context);
  } catch (...) {
    if (!step.keep) put_back(uses, kept.empty() ? values : kept.data(), packed);
    if (!called) throw;
    std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
      return concat(text, " (in the gradient of [", op_.name(), "], ", place_of_call(), ')');
    }));
  }
}

void record_call(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
                 std::span<ArrayImpl* const> outputs, std::source_location where) {
  const bool floating = std::any_of(outputs.begin(), outputs.end(),
                                    [](const ArrayImpl* output) { return is_floating(output->dtype); });
  if (!floating) return;
  Ref<Node> node = OperatorNode::make(op, attrs, inputs, outputs, CallPlace::of(where));
  for (size_t i = 1; i < outputs.size(); ++i)
    if (is_floating(outputs[i]->dtype)) init_edge(*outputs[i], node, static_cast<uint32_t>(i));
  if (is_floating(outputs[0]->dtype)) init_edge(*outputs[0], std::move(node), 0);
}

void check_update(const Operator& op, std::span<ArrayImpl* const> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    MX_CHECK(!has_bit(op.updates, i) || !inputs[i]->recorded(), InvalidState, "[", op.name(),
             "] expected input ", i,
             ", which the operator changes in place, not to require a gradient, got one of shape ",
             inputs[i]->shape, " that does; use NoGrad");
}

}  // namespace mx::detail
