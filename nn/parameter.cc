#include "nn/parameter.h"

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/hooks.h"
#include "nn/detail/cloning.h"

namespace mx::nn {

/// A tied place leads to the one that it is; there the value stands.
struct detail::Slot {
  NDArray value;
  std::shared_ptr<Slot> other;
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

void set_slot_copy(Slot& made, const Slot& original) {
  const NoGrad guard;
  made.value = original.value.clone();
  made.value.requires_grad_(detail::trains(original.value));
}

}  // namespace

bool detail::trains(const NDArray& array) {
  return array.requires_grad() && mx::detail::hooks().is_leaf(array);
}

Parameter::Parameter(const Parameter& other) : slot_(other.slot_) {
  if (detail::CloneScope* scope = detail::CloneScope::active(); scope != nullptr && slot_ != nullptr)
    slot_ = scope->copy_of(root(slot_), set_slot_copy);
}

const NDArray& Parameter::array() const {
  MX_CHECK(slot_ != nullptr, InvalidArgument,
           "[Parameter] expected a parameter of a module, got none (default-constructed)");
  return value_slot(*slot_).value;
}

void Parameter::tie(const Parameter& other) {
  const NDArray &here = array(), &there = other.array();
  MX_CHECK(here.shape() == there.shape() && here.dtype() == there.dtype(), InvalidArgument,
           "[tie] expected a parameter of this one's shape and type, ", here.dtype(), ' ', here.shape(),
           ", got ", there.dtype(), ' ', there.shape());
  if (same_as(other)) return;
  const std::shared_ptr<Slot> from = root(slot_);
  from->other = root(other.slot_);
  from->value = NDArray();
}

bool Parameter::same_as(const Parameter& other) const { return identity() == other.identity(); }

Parameter Parameter::make(const NDArray& value) {
  MX_CHECK(value.defined(), InvalidArgument, "[Parameter] expected an array, got an empty handle");
  Parameter made;
  made.slot_ = std::make_shared<Slot>(Slot{value.detach(), nullptr});
  return made;
}

void Parameter::replace(const NDArray& value) const { root(slot_)->value = value; }

const void* Parameter::identity() const { return slot_ == nullptr ? nullptr : &value_slot(*slot_); }

}  // namespace mx::nn
