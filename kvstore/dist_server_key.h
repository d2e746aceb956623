// Parts of DistServerStore that its source files share. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  std::shared_ptr<kv::ServerGroup> servers;
  uint16_t store = 0;
  KVStoreOptions options;
  OrderVar order;                          // controls update it, and all other operations read it
  std::vector<uint64_t> control_sequence;  // by server; used by controls, one after the other

  int rank() const { return servers->options().identity.rank; }
  int workers() const { return servers->options().workers; }
  int64_t timeout_ms(int64_t of_call) const {
    return of_call > 0              ? of_call
           : options.timeout_ms > 0 ? options.timeout_ms
                                    : servers->options().timeout_ms;
  }
};

/// A key that servers hold. Its sequences are used by its operations, one after the other.
struct DistServerStore::Key {
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
  /// All operations of the key update it. A key that takes the place of another one continues its order.
  std::shared_ptr<OrderVar> order = std::make_shared<OrderVar>();

  size_t bytes() const { return body.count * comm::size_of(body.type); }

  struct Request {
    kv::Kind kind;
    const std::byte* elements = nullptr;  ///< of the whole key, to be sent
    std::byte* into = nullptr;            ///< for the answer's elements
    uint64_t number = 0;
    int priority = 0;
    int64_t timeout_ms = 0;
  };
  /// Sends a request for each piece, and calls `done` when all are answered.
  void send(const Request& request, const Done& done);
  /// Sends a request for one piece; `done` gets its answer.
  void send_piece(Piece& piece, const Request& request, kv::Bytes body,
                  std::function<void(kv::Bytes, std::exception_ptr)> done);
  /// Declares the key if that was not done, then calls `next`, or `done` with an error.
  void declare(int priority, int64_t timeout_ms, const Done& done, std::function<void()> next);
};

/// Returns the first element of a contiguous array of the CPU, inside of an operation that has declared it.
inline std::byte* elements_of(const NDArray& array) {
  ArrayImpl& impl = array.impl();
  auto* memory = static_cast<std::byte*>(impl.storage->ensure(nullptr));
  return memory + static_cast<size_t>(impl.offset) * size_of(impl.dtype);
}

}  // namespace mx::detail
