#include "operators/parameter.h"

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/thread_kept.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/hooks.h"
#include "ndarray/io/tensor_record.h"
#include "operators/clone_scope.h"
#include "operators/elementwise_binary.h"
#include "operators/parameter_rule.h"

namespace mx {

namespace {

/// A value that the calling thread has computed by the rule of a slot.
struct ComputedValue {
  std::weak_ptr<const detail::Slot> slot;
  NDArray value;
};
using ComputedValues = std::unordered_map<const void*, ComputedValue>;
ComputedValues& computed_values() { return detail::thread_kept<ComputedValues, ComputedValue>(); }

}  // namespace

/// The slot of a Parameter. A slot that was tied refers to the other slot, and has no array. Neither has one
/// with a rule.
struct detail::Slot {
  NDArray value;
  std::shared_ptr<Slot> other;
  std::shared_ptr<const ParameterRule> rule{};

  Slot() = default;
  explicit Slot(const NDArray& array) : value(array) {}
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot() {
    // The value is destroyed after it has left the map: its graph may end another slot.
    if (rule != nullptr) computed_values().extract(this);
  }
};

namespace {

using detail::Slot;

std::shared_ptr<Slot> root(std::shared_ptr<Slot> slot) {
  while (slot->other != nullptr) slot = slot->other;
  return slot;
}

const Slot& value_slot(const Slot& slot) {
  const Slot* at = &slot;
  while (at->other != nullptr) at = at->other.get();
  return *at;
}

/// A slot drops its value only on the thread that ends it; other threads find out here. The values are
/// destroyed when they have left the map: the graph of one may end another slot.
void drop_values_of_ended_slots(ComputedValues& all) {
  std::vector<ComputedValues::node_type> dropped;
  for (auto at = all.begin(); at != all.end();) {
    const auto entry = at++;
    if (entry->second.slot.expired()) dropped.push_back(all.extract(entry));
  }
}

void set_slot_copy(Slot& made, const Slot& original) {
  if (original.rule != nullptr) {
    made.rule = original.rule->clone();
    return;
  }
  const NoGrad guard;
  made.value = original.value.clone();
  if (detail::trains(original.value)) made.value.requires_grad_();
}

}  // namespace

bool detail::trains(const NDArray& array) {
  return array.requires_grad() && (hooks().is_leaf == nullptr || hooks().is_leaf(array));
}

Parameter::Parameter(const NDArray& array) : slot_(std::make_shared<Slot>(array)) {}

Parameter::Parameter(const Parameter& other) : slot_(other.slot_) {
  if (detail::CloneScope* scope = detail::CloneScope::active(); scope != nullptr && slot_ != nullptr)
    slot_ = scope->copy_of(root(slot_), set_slot_copy);
}

const NDArray& Parameter::array() const {
  MX_CHECK(slot_ != nullptr, InvalidArgument,
           "[Parameter] expected a parameter of a module, got none (default-constructed)");
  const Slot& slot = value_slot(*slot_);
  if (slot.rule == nullptr) [[likely]]
    return slot.value;
  NDArray value = slot.rule->compute();  // may get other parameters with rules, and so change the map
  ComputedValues& all = computed_values();
  auto found = all.find(&slot);
  if (found == all.end()) {
    drop_values_of_ended_slots(all);
    found = all.emplace(&slot, ComputedValue{root(slot_), NDArray()}).first;
  }
  found->second = {root(slot_), std::move(value)};
  return found->second.value;
}

void detail::set_rule(const Parameter& parameter, std::shared_ptr<const ParameterRule> rule) {
  // A Parameter's identity is the address of its slot.
  Slot& slot = *static_cast<Slot*>(const_cast<void*>(parameter.identity()));
  slot.rule = std::move(rule);
  slot.value = NDArray();
}

void detail::remove_rule(const Parameter& parameter, const NDArray& value) {
  Slot& slot = *static_cast<Slot*>(const_cast<void*>(parameter.identity()));
  slot.value = value;
  slot.rule = nullptr;
  computed_values().extract(&slot);
}

const Parameter& Parameter::operator+=(const Operand& b) const try {
  NDArray a = array();
  a += b;
  return *this;
} catch (const Error&) {
  detail::rethrow_at(b.where());
}

const Parameter& Parameter::operator-=(const Operand& b) const try {
  NDArray a = array();
  a -= b;
  return *this;
} catch (const Error&) {
  detail::rethrow_at(b.where());
}

const Parameter& Parameter::operator*=(const Operand& b) const try {
  NDArray a = array();
  a *= b;
  return *this;
} catch (const Error&) {
  detail::rethrow_at(b.where());
}

const Parameter& Parameter::operator/=(const Operand& b) const try {
  NDArray a = array();
  a /= b;
  return *this;
} catch (const Error&) {
  detail::rethrow_at(b.where());
}

const Parameter& Parameter::copy_from(const NDArray& source, std::source_location where) const try {
  NDArray a = array();
  a.copy_from(source, where);
  return *this;
} catch (const Error&) {
  detail::rethrow_at(where);
}

const Parameter& Parameter::fill_(Scalar value, std::source_location where) const try {
  NDArray a = array();
  a.fill_(value, where);
  return *this;
} catch (const Error&) {
  detail::rethrow_at(where);
}

void Parameter::tie(const Parameter& other) {
  const NDArray &here = array(), &there = other.array();
  MX_CHECK(here.shape() == there.shape() && here.dtype() == there.dtype(), InvalidArgument,
           "[tie] expected another parameter of the same type and shape, ", here.dtype(), ' ', here.shape(),
           ", got ", there.dtype(), ' ', there.shape());
  if (same_as(other)) return;
  const std::shared_ptr<Slot> from = root(slot_);
  from->other = root(other.slot_);
  from->value = NDArray();
}

Parameter Parameter::make(const NDArray& value) {
  MX_CHECK(value.defined(), InvalidArgument, "[Parameter] expected an array, got an empty handle");
  return Parameter(value.detach());
}

void Parameter::replace(const NDArray& value) const { root(slot_)->value = value; }

const void* Parameter::identity() const { return slot_ == nullptr ? nullptr : &value_slot(*slot_); }

Parameters::Parameters(const NamedArrays& arrays) {
  for (const auto& [name, array] : arrays) emplace_back(name, array);
}

const NamedParameter& Parameters::at(const std::string& name) const {
  std::string names;
  for (const NamedParameter& parameter : *this) {
    if (parameter.name == name) return parameter;
    names += (names.empty() ? "" : ", ") + parameter.name;
  }
  throw InvalidArgument(detail::concat("[Parameters] expected one of the names ",
                                       names.empty() ? "(none)" : names, ", got \"", name, '"'));
}

Parameters Parameters::where(const std::function<bool(const NamedParameter&)>& predicate) const {
  MX_CHECK(predicate != nullptr, InvalidArgument, "[where] expected a function, got an empty one");
  Parameters chosen;
  for (const NamedParameter& parameter : *this)
    if (predicate(parameter)) chosen.push_back(parameter);
  return chosen;
}

Parameters::operator NamedArrays() const {
  NamedArrays arrays;
  for (const NamedParameter& parameter : *this) arrays.emplace_back(parameter.name, parameter.array());
  return arrays;
}

void check_saveable_name(const std::string& name, const char* op) {
  MX_CHECK(io::is_utf8(name), InvalidArgument, "[", op, "] expected a name in UTF-8, got ",
           io::in_quotes(name));
  MX_CHECK(name != "__metadata__", InvalidArgument, "[", op,
           "] expected a name that the safetensors format does not reserve, got \"__metadata__\"");
}

}  // namespace mx
