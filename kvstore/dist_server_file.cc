// Saving and loading of stores with servers. The format is that of the other stores (StoreTable::state()), so
// files may be exchanged between the types of stores.
#include <cstring>
#include <set>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "kvstore/dist_server.h"
#include "kvstore/dist_server_key.h"
#include "kvstore/packed_error.h"
#include "kvstore/server/shard.h"
#include "kvstore/store_table.h"
#include "ndarray/grad_mode.h"
#include "optim/detail/dictionary.h"
#include "optim/optimizers.h"

namespace mx::detail {
namespace {

/// Returns the elements of an array, from `begin` on. Waits for them.
std::string elements_text(const NDArray& array, size_t begin, size_t count) {
  const NDArray whole = array.to(cpu()).to_contiguous();
  std::string text;
  if (count == 0) return text;
  visit(whole.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    text.assign(reinterpret_cast<const char*>(whole.data<T>() + begin), count * sizeof(T));
  });
  return text;
}

}  // namespace

void DistServerStore::save(const std::string& path) {
  together(kv::BarrierOf::save, [&] {
    const NamedArrays arrays = collect();
    const std::lock_guard lock(mutex_);
    save_safetensors(path, arrays, {{"format", kStoreFormat}, {"optimizer", optimizer_}});
  });
}

void DistServerStore::load(const std::string& path) {
  together(kv::BarrierOf::load, [&] {
    FileMetadata metadata;
    const NamedArrays arrays = load_safetensors(path, &metadata, LoadMode::read);
    const std::lock_guard lock(mutex_);
    MX_CHECK(metadata["format"] == kStoreFormat, InvalidArgument,
             "[load] expected a file that KVStore::save() wrote, ", kStoreFormat, ", got \"",
             metadata["format"], "\" in '", path, "'");
    MX_CHECK(metadata["optimizer"] == optimizer_, InvalidArgument,
             "[load] expected the optimiser of the store, '", optimizer_, "', got '", metadata["optimizer"],
             "' in '", path, "'");
    spread(arrays);
  });
}

NamedArrays DistServerStore::state_dict() {
  NamedArrays arrays;
  together(kv::BarrierOf::state_dict, [&] { arrays = collect(); });
  return arrays;
}

void DistServerStore::load_state_dict(const NamedArrays& state) {
  together(kv::BarrierOf::load_state_dict, [&] {
    const std::lock_guard lock(mutex_);
    spread(state);
  });
}

/// Runs `work` on worker 0 while the others wait. All throw its error.
void DistServerStore::together(kv::BarrierOf call, const std::function<void()>& work) {
  run_control(
      {.name = kv::to_string(call), .kind = kv::Kind::barrier, .all_servers = false, .barrier_of = call});
  std::exception_ptr error;
  if (rank() == 0) {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  }
  finish_together(call, error);
}

/// Waits for all workers, and throws the error of worker 0 on all of them.
void DistServerStore::finish_together(kv::BarrierOf call, const std::exception_ptr& error) {
  kv::Bytes body;
  uint64_t code = 0;
  if (error != nullptr) {
    body = kv::Bytes::of(pack_error(error).substr(0, kv::kLargestText));
    code = static_cast<uint64_t>(kv::ErrorCode::error);
  }
  // Worker 0 may take long to write or to read a file. If it is lost meanwhile, the others learn of it.
  constexpr int64_t kPatience = 60;
  const int64_t limit_ms = core_->timeout_ms(0) * (rank() == 0 ? 1 : kPatience);
  try {
    run_control({.name = kv::to_string(call),
                 .kind = kv::Kind::barrier,
                 .body = body,
                 .number = code,
                 .all_servers = false,
                 .timeout_ms = limit_ms,
                 .barrier_of = call});
  } catch (const Error& told) {
    if (error != nullptr) std::rethrow_exception(error);
    if (is_packed_error(told.what())) throw_packed_error(told.what());
    throw;
  }
}

/// Collects the state of the optimiser for a key from all of its pieces.
NamedArrays DistServerStore::state_of(const KeyPtr& key) {
  auto answers = std::make_shared<std::vector<kv::Bytes>>(key->pieces.size());
  run(key, "kvstore save", {}, 0, std::source_location::current(), [key, answers](const Done& done) {
    const Done each = kv::after_all(key->pieces.size(), done);
    for (size_t i = 0; i < key->pieces.size(); ++i)
      key->send_piece(key->pieces[i], {.kind = kv::Kind::get_state}, kv::Bytes(),
                      [answers, each, i](kv::Bytes answer, std::exception_ptr error) {
                        (*answers)[i] = std::move(answer);
                        each(std::move(error));
                      });
  });
  current_engine().wait(key->order->get());
  std::vector<kv::StateArray> whole;
  for (size_t i = 0; i < answers->size(); ++i) {
    std::vector<kv::StateArray> part = kv::decode_state((*answers)[i].text());
    if (i == 0) {
      whole = std::move(part);
      continue;
    }
    MX_CHECK(part.size() == whole.size(), ProtocolError,
             "[save] expected the same state of all pieces of key \"", key->body.name, "\", got ",
             whole.size(), " and ", part.size(), " arrays");
    for (size_t k = 0; k < part.size(); ++k)
      if (!whole[k].scalar) whole[k].elements += part[k].elements;
  }
  NamedArrays arrays;
  for (const kv::StateArray& array : whole) {
    const Shape shape = array.scalar ? Shape{} : key->shape;
    const DType type = kv::to_dtype(array.type);
    MX_CHECK(array.elements.size() == static_cast<size_t>(shape.numel()) * size_of(type), ProtocolError,
             "[save] expected state of shape ", shape, " for key \"", key->body.name, "\", got ",
             array.elements.size(), " bytes");
    arrays.emplace_back(array.name, from_host(array.elements.data(), type, shape, cpu(), {}));
  }
  return arrays;
}

/// Returns the values and the state of the optimiser of all keys. Waits.
NamedArrays DistServerStore::collect() {
  const NoGrad pause;
  const std::lock_guard lock(mutex_);
  NamedArrays arrays;
  for (const auto& [name, key] : keys_) {
    const NDArray value = empty(key->shape, key->type);
    exchange(key, kv::Kind::pull, "kvstore save", {}, {value}, 0, {});
    arrays.emplace_back(stored_name(name), value);
  }
  for (const auto& [name, key] : keys_)
    for (const auto& [what, array] : state_of(key)) arrays.emplace_back(state_prefix(name) + what, array);
  return arrays;
}

/// Replaces the value and the state of a key on its servers. `scalars` are the names of the states that a key
/// has once, not for each element.
void DistServerStore::set_state_of(const KeyPtr& key, const NDArray& value, const NamedArrays& state,
                                   const std::set<std::string>& scalars) {
  exchange(key, kv::Kind::set_value, "kvstore load", value.to_contiguous(), {}, 0, {});
  std::vector<kv::Bytes> bodies;
  for (const Key::Piece& piece : key->pieces) {
    std::vector<kv::StateArray> part;
    for (const auto& [name, array] : state) {
      kv::StateArray& out = part.emplace_back();
      out.name = name;
      out.type = kv::to_comm_type(array.dtype());
      // Not by the shape: the state of a key of shape () has that shape, too, and is one element of it.
      out.scalar = scalars.contains(name);
      out.elements = out.scalar ? elements_text(array, 0, 1) : elements_text(array, piece.begin, piece.count);
    }
    bodies.push_back(kv::Bytes::of(encode(part)));
  }
  run(key, "kvstore load", {}, 0, std::source_location::current(), [key, bodies](const Done& done) {
    const Done each = kv::after_all(key->pieces.size(), done);
    for (size_t i = 0; i < key->pieces.size(); ++i)
      key->send_piece(key->pieces[i], {.kind = kv::Kind::set_state}, bodies[i],
                      [each](const kv::Bytes&, std::exception_ptr error) { each(std::move(error)); });
  });
}

/// Replaces the values and the state of all keys by what collect() returned. Waits. The caller holds mutex_.
void DistServerStore::spread(const NamedArrays& arrays) {
  const NoGrad pause;
  // All is compared with what the store expects before anything is sent.
  NamedArrays expected;
  std::map<std::string, std::vector<std::string>> states;  // names, by key
  for (const auto& [name, key] : keys_)
    expected.emplace_back(stored_name(name), empty(key->shape, key->type));
  for (const auto& [name, key] : keys_) {
    if (optimizer_.empty() || !is_floating(key->type)) continue;  // integers have no optimiser
    const std::string prefix = state_prefix(name);
    const NDArray value = zeros(key->shape, key->type);
    const auto optimizer =
        optim::make_optimizer(optimizer_, optimizer_options_, Parameters{NamedParameter("value", value)});
    const NamedArrays state_of_one = optimizer->state_dict();
    // Whole names are compared: the key "w:1" begins with the prefix of the key "w".
    bool has_state = false;
    for (const auto& [what, array] : state_of_one)
      has_state = has_state || arrays.find(prefix + what) != nullptr;
    if (!has_state) continue;
    for (const auto& [what, array] : state_of_one) {
      expected.emplace_back(prefix + what, array);
      states[name].push_back(what);
    }
  }
  const std::vector<NDArray> loaded = optim::detail::matched("load", expected, arrays, {});
  std::set<std::string> scalars;
  if (!optimizer_.empty()) {
    const auto optimizer = optim::make_optimizer(optimizer_, optimizer_options_,
                                                 Parameters{NamedParameter("value", zeros({1}))});
    for (const auto& [name, array] : optimizer->state_dict())
      if (array.rank() == 0) scalars.insert(name);
  }
  size_t value = 0, state = keys_.size();
  for (const auto& [name, key] : keys_) {
    NamedArrays of_key;
    for (const std::string& what : states[name]) of_key.emplace_back(what, loaded[state++]);
    set_state_of(key, loaded[value++], of_key, scalars);
  }
  for (const auto& [name, key] : keys_) current_engine().wait(key->order->get());
}

}  // namespace mx::detail
