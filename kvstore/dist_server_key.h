// Parts of DistServerStore that its source files share. Internal.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "engine/base/check.h"
#include "kvstore/dist_server.h"
#include "kvstore/server/server_group.h"
#include "ndarray/storage.h"

namespace mx::detail {

/// A variable of the engine, deleted with this object.
class OrderVar {
 public:
  OrderVar() : engine_(current_engine()), var_(engine_.new_var("kvstore order")) {}
  ~OrderVar() { engine_.delete_var(var_); }
  OrderVar(const OrderVar&) = delete;
  OrderVar& operator=(const OrderVar&) = delete;
  Var get() const { return var_; }

 private:
  Engine& engine_;
  Var var_;
};

/// What operations in flight use of the store.
struct DistServerStore::Core {
  Core() = default;
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  /// Tells the servers that this worker leaves the store. All of its operations have ended.
  ~Core();

  std::shared_ptr<kv::ServerGroup> servers;
  uint16_t store = 0;
  bool open = false;  // the servers know the store
  KVStoreOptions options;
  OrderVar order;                          // controls update it, and all other operations read it
  std::vector<uint64_t> control_sequence;  // by server; used by controls, one after the other
  /// The error of the first optimiser or option that the servers have refused. Used by controls. From then on
  /// a push could replace a value by a gradient, so all later calls of the store end with this error.
  std::exception_ptr refused;
  /// An error of an operation that fills no array, so perhaps nothing that the program waits for has it. The
  /// next barrier throws the first of them.
  void note_unreported(const Key& key, const std::exception_ptr& error) {
    const std::lock_guard lock(unreported_mutex);
    unreported.emplace_back(&key, error);
  }
  /// For a key that the program erases, because it knows of the error.
  void forget_unreported(const Key& key) {
    const std::lock_guard lock(unreported_mutex);
    std::erase_if(unreported, [&](const auto& noted) { return noted.first == &key; });
  }
  std::exception_ptr take_unreported() {
    const std::lock_guard lock(unreported_mutex);
    const std::exception_ptr first = unreported.empty() ? nullptr : unreported.front().second;
    unreported.clear();
    return first;
  }
  std::mutex unreported_mutex;
  std::vector<std::pair<const Key*, std::exception_ptr>> unreported;  // guarded by unreported_mutex

  int rank() const { return servers->options().identity.rank; }
  int workers() const { return servers->options().workers; }
  int64_t timeout_ms(int64_t of_call) const {
    return comm::limited_timeout(of_call > 0              ? of_call
                                 : options.timeout_ms > 0 ? options.timeout_ms
                                                          : servers->options().timeout_ms);
  }
};

/// A key that servers hold. Its sequences are used by its operations, one after the other.
struct DistServerStore::Key : std::enable_shared_from_this<DistServerStore::Key> {
  struct Piece {
    int server;
    uint32_t number;
    size_t begin, count;  // elements
    uint64_t sequence = 0;
  };

  std::shared_ptr<Core> core;
  kv::KeyBody body;  // of the whole key
  Shape shape;
  DType type;
  std::vector<Piece> pieces;
  bool declared = false;
  /// A request of the key has failed, or the servers know that a value has: they refuse what follows.
  std::atomic<bool> failed{false};
  /// All operations of the key update it. A key that takes the place of another one continues its order.
  std::shared_ptr<OrderVar> order = std::make_shared<OrderVar>();

  size_t bytes() const { return body.count * comm::size_of(body.type); }

  struct Request {
    kv::Kind kind;
    const std::byte* elements = nullptr;  ///< of the whole key, to be sent
    comm::Type type = comm::Type::f32;    ///< of `elements`
    std::byte* into = nullptr;            ///< for the answer's elements
    uint64_t number = 0;
    int priority = 0;
    int64_t timeout_ms = 0;
    uint8_t flags = 0;  ///< of the messages, if there are no elements
  };
  /// Sends a request for each piece, and calls `done` when all are answered.
  void send(const Request& request, const Done& done);
  /// Sends a request for one piece; `done` gets its answer.
  void send_piece(Piece& piece, const Request& request, kv::Bytes body,
                  std::function<void(kv::Bytes, std::exception_ptr)> done);
  /// Declares the key if that was not done, then calls `next`, or `done` with an error, such as that of
  /// `next`.
  void declare(int priority, int64_t timeout_ms, const Done& done, std::function<void()> next);
  /// Tells the servers that a value of this worker has failed, so that no other worker waits for it.
  /// Operations that begin meanwhile wait in after_report(), because they use the same sequences.
  void report_failed(const std::exception_ptr& error);
  void after_report(std::function<void()> work);

 private:
  std::mutex report_mutex_;
  bool reporting_ = false;                      // guarded by report_mutex_
  std::vector<std::function<void()>> waiting_;  // guarded by report_mutex_
};

/// Returns the first element of a contiguous array of the CPU, inside of an operation that has declared it.
inline std::byte* elements_of(const NDArray& array) {
  ArrayImpl& impl = array.impl();
  auto* memory = static_cast<std::byte*>(impl.storage->ensure(nullptr));
  return memory + static_cast<size_t>(impl.offset) * size_of(impl.dtype);
}

}  // namespace mx::detail
