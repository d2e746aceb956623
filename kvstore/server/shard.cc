#include "kvstore/server/shard.h"

#include <cstring>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "kvstore/optimizer_option.h"
#include "ndarray/grad_mode.h"
#include "ndarray/save.h"

namespace mx::kv {
namespace {

/// Returns an array of one dimension over the elements.
NDArray array_over(const Bytes& bytes, comm::Type type) {
  const auto count = static_cast<int64_t>(bytes.size / comm::size_of(type));
  if (count == 0) return empty({0}, to_dtype(type));
  return from_external(bytes.data, to_dtype(type), {count}, {1}, [keep = bytes.owner] {});
}

/// Calls f(pointer, bytes) with the elements of an array of the CPU. Waits for them.
template <class F>
void with_content(const NDArray& array, F&& f) {
  const NDArray whole = array.to(cpu()).to_contiguous();
  visit(whole.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    f(whole.numel() == 0 ? nullptr : whole.data<T>(), whole.bytes());
  });
}

}  // namespace

DType to_dtype(comm::Type type) {
  static_assert(static_cast<int>(comm::Type::i64) == static_cast<int>(DType::i64) &&
                static_cast<int>(comm::Type::bf16) == static_cast<int>(DType::bf16));
  return static_cast<DType>(type);
}

comm::Type to_comm_type(DType type) {
  MX_CHECK(type != bool_, InvalidArgument, "[kvstore] expected numbers to send, got bool");
  return static_cast<comm::Type>(type);
}

Shard::Entry Shard::make(const KeyBody& description) const {
  MX_CHECK(is_floating(to_dtype(description.type)), InvalidArgument, "[push] expected key \"",
           description.name, "\" in floating point, because the store has the optimiser '", name_, "', got ",
           comm::to_string(description.type));
  Entry made;
  made.value = empty({static_cast<int64_t>(description.count)}, to_dtype(description.type));
  made.optimizer = optim::make_optimizer(name_, options_, Parameters{NamedParameter("value", made.value)});
  return made;
}

/// Returns the entry of a key, with its current value.
Shard::Entry& Shard::entry(uint32_t key, const KeyBody& description, const Bytes& value) {
  auto found = entries_.find(key);
  if (found == entries_.end()) found = entries_.emplace(key, make(description)).first;
  Entry& entry = found->second;
  if (!entry.current) {
    entry.value.copy_from(array_over(value, description.type));
    entry.optimizer->sync_masters();
    entry.current = true;
  }
  return entry;
}

void Shard::set_optimizer(const OptionsBody& optimizer, std::source_location where) {
  if (!optimizer.name.empty()) {
    const auto made = optim::make_optimizer(optimizer.name, optimizer.options, Parameters{},
                                            where);  // throws for what is unknown
    MX_CHECK(
        made->elementwise(), InvalidArgument,
        "[set_optimizer] expected an optimiser that can update a parameter in portions with servers, each "
        "of which may have only a part of it, got '",
        optimizer.name, "', which needs the norms of whole parameters");
    const auto norm = optimizer.options.find("max_norm");
    const bool limits = norm != optimizer.options.end() && norm->second != AttrValue(0.0) &&
                        norm->second != AttrValue(int64_t{0});
    MX_CHECK(!limits, InvalidArgument, "[set_optimizer] expected no limit of the norm with servers, each of ",
             "which sees only a part of the gradients, got max_norm = ", mx::to_string(norm->second));
  }
  entries_.clear();
  name_ = optimizer.name;
  options_ = optimizer.options;
}

void Shard::set_option(const std::string& name, double value, std::source_location where) {
  const NoGrad pause;
  MX_CHECK(has_optimizer(), InvalidState,
           "[set_optimizer_option] expected a store with an optimiser (set_optimizer()), got '", name,
           "' for a store without one");
  AttrMap changed = options_;
  changed[name] = value;
  optim::make_optimizer(name_, changed, Parameters{}, where);
  if (name != "lr") mx::detail::check_same_state(name_, options_, name, value, where);
  MX_CHECK(name != "max_norm" || value == 0, InvalidArgument,
           "[set_optimizer_option] expected no limit of the norm with servers, got max_norm = ", value);
  std::swap(options_, changed);
  if (name == "lr") {
    for (auto& [key, entry] : entries_) entry.optimizer->set_learning_rate(value);
    return;
  }
  // Other options are fixed when an optimiser is made. New ones take over the values and states.
  try {
    std::map<uint32_t, std::unique_ptr<optim::Optimizer>> made;
    for (auto& [key, entry] : entries_) {
      auto& next = made[key];
      next = optim::make_optimizer(name_, options_, Parameters{NamedParameter("value", entry.value)});
      next->load_state_dict(entry.optimizer->state_dict());
    }
    for (auto& [key, entry] : entries_) entry.optimizer = std::move(made[key]);
  } catch (...) {
    options_ = changed;
    throw;
  }
}

void Shard::forget_value(uint32_t key) {
  const auto found = entries_.find(key);
  if (found != entries_.end()) found->second.current = false;
}

Bytes Shard::convert(const Bytes& elements, comm::Type from, comm::Type to) {
  const NoGrad pause;
  Bytes result = pool_->make(elements.size / comm::size_of(from) * comm::size_of(to));
  with_content(array_over(elements, from).to(to_dtype(to)), [&](const void* data, size_t bytes) {
    if (bytes > 0) std::memcpy(result.data, data, bytes);
  });
  return result;
}

Bytes Shard::update(uint32_t key, const KeyBody& description, const Bytes& value, const Bytes& gradient) {
  const NoGrad pause;
  Entry& entry = this->entry(key, description, value);
  entry.optimizer->step(std::vector<NDArray>{array_over(gradient, description.type)});
  Bytes result = pool_->make(value.size);
  with_content(entry.value, [&](const void* data, size_t bytes) {
    if (bytes > 0) std::memcpy(result.data, data, bytes);
  });
  return result;
}

std::vector<StateArray> Shard::state(uint32_t key, const KeyBody&, const Bytes&) {
  const auto found = entries_.find(key);
  std::vector<StateArray> arrays;
  if (found == entries_.end()) return arrays;
  for (const auto& [name, array] : found->second.optimizer->state_dict()) {
    StateArray& out = arrays.emplace_back();
    out.name = name;
    out.type = to_comm_type(array.dtype());
    out.scalar = array.rank() == 0;
    with_content(array, [&, &to = out](const void* data, size_t bytes) {
      if (bytes > 0) to.elements.assign(static_cast<const char*>(data), bytes);
    });
  }
  return arrays;
}

void Shard::set_state(uint32_t key, const KeyBody& description, const Bytes& value,
                      const std::vector<StateArray>& state) {
  const NoGrad pause;
  if (state.empty()) {
    entries_.erase(key);
    return;
  }
  MX_CHECK(has_optimizer(), InvalidArgument, "[load] expected a store with an optimiser, got none for key \"",
           description.name, '"');
  Entry made = make(description);
  made.value.copy_from(array_over(value, description.type));
  made.current = true;
  NamedArrays arrays;
  for (const StateArray& array : state) {
    const Bytes elements = Bytes::of(array.elements);
    const NDArray flat = array_over(elements, array.type).clone();
    MX_CHECK(!array.scalar || flat.numel() == 1, InvalidArgument, "[load] expected one number for '",
             array.name, "' of key \"", description.name, "\", got ", flat.numel());
    arrays.emplace_back(array.name, array.scalar ? flat.reshape({}) : flat);
  }
  made.optimizer->load_state_dict(arrays);
  entries_.insert_or_assign(key, std::move(made));
}

}  // namespace mx::kv
