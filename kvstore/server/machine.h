// Machine: one store on one server, as a state machine: (connection, message) in, messages out. It has no
// socket, no clock and no thread. Internal.
//
//   kv::Machine machine(updater);
//   kv::Outbox out;
//   machine.receive(connection, std::move(message), out);
//   for (kv::Outgoing& o : out) send(o.connection, std::move(o.message));
//
// A key here is a piece of a key of the program, or all of it. The workers choose the numbers of keys, all in
// the same way.
//
// Identity. A request is identified by (worker, incarnation, key, sequence). The sequence counts the requests
// of a worker for a key from 1; a worker sends the next one when it has the answer. The machine applies a
// request once. A repeated request gets its answer again. A request of another incarnation than the first one
// of the worker is refused.
//
// Types. The elements of a push may have another type than the key. They are added in their own type, and the
// sum is converted, as stores without servers do it.
//
// Rounds. With `sync`, a push waits until all workers 0..W-1 have pushed the key. The sum is the left fold
// over the workers in the order of their numbers. It replaces the value, or the optimiser changes the value
// with it; then all are answered. Otherwise each push is applied as it comes, unless its worker would get
// more than `staleness` (at least 1) pushes of the key ahead of the slowest worker; then it waits. Workers
// whose value has failed, or that have left, do not count.
//
// Declaring a key, opening, barriers and, with `sync`, options wait for all workers too. If the workers'
// requests differ, all are refused with a ProtocolError that contains two different ones.
//
// Failed values. A worker whose value has failed sends `failed` instead of the push. Its error fails the key:
// all requests for it, present and later, are refused with the error, until all workers have erased the key.
//
// Workers that leave. A request that waits for a worker that has left the store is refused with PeerLost,
// which names the worker and the key.
//
// Errors are answers. A request that fails changes nothing.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kvstore/server/fold.h"
#include "kvstore/server/wire.h"

namespace mx::kv {

/// Applies optimisers. shard.h has the one that uses mx::optim.
class Updater {
 public:
  virtual ~Updater() = default;
  /// Replaces the optimiser; the state of all keys is dropped. Throws InvalidArgument for unknown names and
  /// options; nothing is changed then.
  virtual void set_optimizer(const OptionsBody& optimizer) = 0;
  virtual bool has_optimizer() const = 0;
  /// Throws InvalidState without an optimiser.
  virtual void set_option(const std::string& name, double value) = 0;
  /// Returns the elements in another type.
  virtual Bytes convert(const Bytes& elements, comm::Type from, comm::Type to) = 0;
  /// Returns the new value of a key. `value` is the one that the last update() of the key returned, unless
  /// forget_value() was called since.
  virtual Bytes update(uint32_t key, const KeyBody& description, const Bytes& value,
                       const Bytes& gradient) = 0;
  virtual void forget_value(uint32_t key) = 0;
  virtual void erase(uint32_t key) = 0;
  /// Returns the state for a key; nothing before its first update.
  virtual std::vector<StateArray> state(uint32_t key, const KeyBody& description, const Bytes& value) = 0;
  /// Nothing stands for the state before the first update. Throws InvalidArgument, before anything is
  /// changed, if the arrays are not those of state().
  virtual void set_state(uint32_t key, const KeyBody& description, const Bytes& value,
                         const std::vector<StateArray>& state) = 0;
};

using ConnectionId = uint64_t;
struct Outgoing {
  ConnectionId connection;
  Message message;
};
using Outbox = std::vector<Outgoing>;

class Machine {
 public:
  /// Returns how errors name a worker: "worker 3 on host a".
  using NameOf = std::function<std::string(uint32_t worker)>;
  explicit Machine(std::shared_ptr<Updater> updater, NameOf name_of = {});
  ~Machine();

  /// Returns how many bytes the body of a message with this header may have. For elements it is the exact
  /// number. Throws ProtocolError for a message that cannot be right.
  uint64_t largest_body(const Header& header) const;
  void receive(ConnectionId connection, Message message, Outbox& out);
  /// A worker is lost or fails: all requests, present and later, are refused with this error. The first one
  /// counts. `worker` is the one that caused it, -1 if it is not known.
  void fail(const std::exception_ptr& error, int worker, Outbox& out);
  /// A worker's process will send nothing more. It no longer holds back workers of an asynchronous store;
  /// requests that wait for it fail.
  void departed(uint32_t worker, Outbox& out);
  /// The first error that this worker has caused, or has got because of another worker; null if there is
  /// none.
  std::exception_ptr failed_because_of(int worker) const;
  /// Returns whether all workers have left the store, so that nobody will send anything for it.
  bool finished() const { return config_ && left_.size() >= workers_.size(); }
  /// The number of workers; 0 before the first one has opened the store.
  uint32_t workers() const { return config_ ? config_->workers : 0; }
  /// The number of updates of a key; 0 for an unknown one. For tests.
  uint64_t version(uint32_t key) const;

 private:
  struct Request {
    Header header;
    Bytes body;
    bool waiting = false;  // has its place in a round
  };
  /// The requests of one worker for one key.
  struct Line {
    uint64_t accepted = 0, completed = 0;  // sequences
    std::deque<Request> requests;          // accepted and not completed
    Header last;                           // of the answer to `completed`
    std::string last_error;                // not empty: it was a refusal
  };
  struct Worker {
    std::optional<uint64_t> incarnation;
    ConnectionId connection = 0;
  };
  /// Why requests are refused. `worker` caused it; -1 if none did.
  struct Cause {
    std::exception_ptr error;
    int worker = -1;
  };
  struct Key;

  void open(const Message& message);
  Worker* known_worker(ConnectionId connection, const Message& message, Outbox& out);
  void accept(Line& line, Message message, Outbox& out);
  void repeat(const Line& line, const Header& header, Outbox& out);
  void report_missing(const Header& header, ConnectionId connection, Outbox& out);
  std::string name(uint32_t worker) const;
  bool has_left(size_t worker) const { return left_.contains(static_cast<uint32_t>(worker)); }
  Cause absence(const std::vector<Line>& lines, const std::string& what) const;

  // Requests of all workers together: open, set_optimizer, set_option, barrier.
  void advance_control(Outbox& out);
  void run_control(Outbox& out);
  bool run_alone(uint32_t worker, Outbox& out);
  void refuse_controls(Outbox& out);
  void set_options(const Bytes& bytes);

  // Requests for keys, in machine_keys.cc.
  void advance(uint32_t number, Outbox& out);
  bool step(uint32_t number, Key& key, uint32_t worker, Outbox& out);
  bool step_round(uint32_t number, Key& key, uint32_t worker, Outbox& out);
  bool step_declare(Key& key, uint32_t worker, Outbox& out);
  bool step_push(uint32_t number, Key& key, uint32_t worker, Outbox& out);
  bool step_failed(Key& key, uint32_t worker, Outbox& out);
  bool step_in_failed(uint32_t number, Key& key, uint32_t worker, Outbox& out);
  bool fail_without_absent(Key& key, Outbox& out);
  bool differs(Key& key, uint32_t worker, Outbox& out);
  void apply(uint32_t number, Key& key, Bytes sum, comm::Type type);
  uint64_t staleness() const;
  bool too_far_ahead(const Key& key, uint32_t worker) const;
  bool may_wait_for(const Key& key, uint32_t worker, uint32_t other) const;
  void fail_key(Key& key, const Cause& cause, Outbox& out);

  // Answers to the first request of a line, which then is completed.
  void answer(Line& line, Bytes body, Outbox& out);
  void refuse(Line& line, const Cause& cause, Outbox& out);
  void send(const Header& request, Kind kind, uint8_t flags, Bytes body, Outbox& out);

  const std::shared_ptr<Updater> updater_;
  const NameOf name_of_;
  std::optional<OpenBody> config_;
  std::vector<Worker> workers_;
  std::vector<Line> control_;
  std::map<uint32_t, std::unique_ptr<Key>> keys_;
  std::set<uint32_t> left_;  // workers that have left the store, or whose process has ended
  Cause failure_;
  std::map<int, std::exception_ptr> causes_;  // by worker: see failed_because_of()
};

}  // namespace mx::kv
