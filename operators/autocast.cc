#include "operators/autocast.h"

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/detail/at_replay.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "operators/autocast_rules.h"
#include "operators/operator.h"
#include "operators/parameter.h"

namespace mx {
namespace detail {

struct AutocastState {
  /// An array with requires_grad_() in the type of the scope. `source` keeps the array alive, so that no
  /// other array gets its address.
  struct Cast {
    Ref<ArrayImpl> source;
    uint32_t version;              // of the source's memory when it was converted
    Ref<ReplayCount> recorded_in;  // the segment in which it was converted; null: outside of a recording
    NDArray result;
  };

  DType dtype;
  bool cache_casts;
  std::unordered_map<const ArrayImpl*, Cast> casts{};
  // Set if the scope has ended while another one that began after it had not. The state then lives on,
  // because that other scope points to it, and `before` is the setting to return to.
  bool ended_early = false;
  AutocastState* before = nullptr;
};

namespace {

bool autocast_converts(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

// Returns the conversion of an array with requires_grad_(). One that was made in NoGrad is used only while
// the thread does not record, since it has no graph. One that was made while a segment was recorded is used
// only there, since each replay of the segment converts again, but nothing else does.
NDArray cached_cast(AutocastState& state, const NDArray& array, std::source_location where) {
  const ArrayImpl& impl = array.impl();
  const uint32_t version = impl.storage->version();
  ReplayCount* const recording = replays_of_recording();
  AutocastState::Cast& cast = state.casts[&impl];
  const bool usable = cast.result.defined() && cast.version == version &&
                      cast.recorded_in.get() == recording && (!grad_enabled() || cast.result.requires_grad());
  if (!usable) {
    NDArray made = array.to(state.dtype, where);
    cast = {array.ref(), version, Ref<ReplayCount>(recording), std::move(made)};
  }
  return cast.result;
}

NDArray lowered(AutocastState& state, const NDArray& array, std::source_location where) {
  if (!autocast_converts(array.dtype()) || array.dtype() == state.dtype) return array;
  if (state.cache_casts && trains(array)) return cached_cast(state, array, where);
  return array.to(state.dtype, where);
}

// Returns true if a product has an operand whose type, which no rule converts, decides that of the result:
// f64, or integers in one of the factors. Then a lower type of the others would only lose digits. Further
// integers and bool are lengths and masks.
bool computes_wider(const std::vector<NDArray>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType type = inputs[i].dtype();
    if (type == DType::f64 || (i < 2 && type != DType::bool_ && !is_floating(type))) return true;
  }
  return false;
}

// The rules of operators. Never destroyed, because static destructors may call operators.
struct RuleTable {
  std::shared_mutex mutex;
  std::unordered_map<const Operator*, AutocastRule> rules;
  std::unordered_set<const Operator*> own;  // operators that the program defines
};

RuleTable& rule_table() {
  static RuleTable* made = [] {
    auto* table = new RuleTable;
    for (const auto& [rule, names] : autocast_rules()) {
      std::istringstream all(names);
      for (std::string name; all >> name;) {
        const Operator* const op = find_operator(name);
        MX_ASSERT(op != nullptr);
        table->rules.emplace(op, rule);
        if (op->number_form != nullptr) table->rules.emplace(op->number_form, rule);
      }
    }
    return table;
  }();
  return *made;
}

}  // namespace

void autocast_inputs(const Operator& op, std::vector<NDArray>& inputs, std::source_location where) {
  AutocastState& state = *autocast_state;
  switch (autocast_rule(op)) {
    case AutocastRule::keep:
      return;
    case AutocastRule::lower:
      if (computes_wider(inputs)) return;
      for (NDArray& input : inputs) input = lowered(state, input, where);
      return;
    case AutocastRule::single:
      for (NDArray& input : inputs)
        if (autocast_converts(input.dtype())) input = input.to(DType::f32, where);
      return;
    case AutocastRule::widest: {
      std::optional<DType> widest;
      for (const NDArray& input : inputs)
        if (autocast_converts(input.dtype()))
          widest = widest ? promote(*widest, input.dtype()) : input.dtype();
      for (NDArray& input : inputs)
        if (autocast_converts(input.dtype())) input = input.to(*widest, where);
      return;
    }
  }
}

AutocastSetting::AutocastSetting() {
  if (autocast_state == nullptr) return;
  dtype_ = autocast_state->dtype;
  cache_casts_ = autocast_state->cache_casts;
}

AutocastSetting::Scope::Scope(const AutocastSetting& setting)
    : scope_(setting.dtype_.value_or(DType::bf16),
             {.enabled = setting.dtype_.has_value(), .cache_casts = setting.cache_casts_}) {}

}  // namespace detail

Autocast::Autocast(DType dtype, const AutocastOptions& options, std::source_location where)
    : before_(detail::autocast_state) {
  MX_CHECK(dtype == DType::bf16 || dtype == DType::f16, InvalidArgument,
           "[Autocast] expected bf16 or f16, got ", dtype, detail::called_at(where));
  if (options.enabled)
    state_ = std::make_unique<detail::AutocastState>(detail::AutocastState{dtype, options.cache_casts});
  detail::autocast_state = state_.get();
}

Autocast::~Autocast() {
  if (detail::autocast_state == state_.get()) {
    detail::autocast_state = before_;
    // Scopes that should have ended after this one.
    while (detail::autocast_state != nullptr && detail::autocast_state->ended_early)
      detail::autocast_state = std::unique_ptr<detail::AutocastState>(detail::autocast_state)->before;
    return;
  }
  log(LogLevel::error,
      "[Autocast] expected scopes to end on their thread, in reverse order of their beginning, got the end "
      "of a scope that is not the innermost one");
  if (state_ == nullptr) return;
  state_->before = before_;
  state_->ended_early = true;
  static_cast<void>(state_.release());  // the scope that returns to it frees it
}

std::optional<DType> autocast_dtype() {
  if (detail::autocast_state == nullptr) return std::nullopt;
  return detail::autocast_state->dtype;
}

AutocastRule autocast_rule(const Operator& op) {
  detail::RuleTable& table = detail::rule_table();
  std::shared_lock lock(table.mutex);
  const auto found = table.rules.find(&op);
  return found == table.rules.end() ? AutocastRule::keep : found->second;
}

void set_autocast_rule(const Operator& op, AutocastRule rule) {
  detail::RuleTable& table = detail::rule_table();
  std::unique_lock lock(table.mutex);
  MX_CHECK(!table.rules.contains(&op) || table.own.contains(&op), InvalidArgument,
           "[set_autocast_rule] expected an operator of the program, got '", op.name(),
           "', whose rule is fixed");
  table.own.insert(&op);
  table.rules[&op] = rule;
}

}  // namespace mx
