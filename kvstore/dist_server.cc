#include "kvstore/dist_server.h"

#include <algorithm>
#include <future>
#include <utility>

#include "comm/host_name.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/skip_cause.h"
#include "kvstore/call_check.h"
#include "kvstore/dist_server_key.h"
#include "kvstore/server/shard.h"
#include "kvstore/sum.h"
#include "ndarray/grad_mode.h"
#include "optim/optimizers.h"

namespace mx::detail {
namespace {

/// Returns the size of the pieces of keys. The largest is such that the state of an optimiser for a piece,
/// several times its values, fits into a message.
uint64_t piece_bytes(const KVStoreOptions& options) {
  return static_cast<uint64_t>(std::clamp<int64_t>(options.cut_bytes, 1024, int64_t{1} << 26));
}

/// Returns whether answers can be received straight into the array.
bool receives(const NDArray& array, DType type) {
  return array.context().is_cpu() && array.dtype() == type && array.contiguous() &&
         !array.impl().may_overlap();
}

/// Returns whether two contiguous arrays are the same elements.
bool same_elements(const NDArray& a, const NDArray& b) {
  return a.shares_memory(b) && a.impl().offset == b.impl().offset && a.bytes() == b.bytes();
}

/// A replay would make calls that the other workers do not make.
void check_not_recording(const char* op) {
  MX_CHECK(!current_engine().recording(), InvalidState, "[", op,
           "] expected a call outside of a recorded program, got one while recording");
}

/// The type of the elements of messages; bool is sent as u8.
comm::Type message_type(DType type) { return type == bool_ ? comm::Type::u8 : kv::to_comm_type(type); }

}  // namespace

/// The part of an operation that other workers wait for. If the engine skips the operation, because what it
/// reads has failed, the destructor tells the servers.
class DistServerStore::OwedValue {
 public:
  /// `told_by_barrier`: see Access.
  OwedValue(KeyPtr key, bool told_by_barrier) : key_(std::move(key)), told_by_barrier_(told_by_barrier) {}
  OwedValue(OwedValue&& other) noexcept = default;
  ~OwedValue() {
    if (key_ == nullptr) return;
    try {
      const std::exception_ptr cause = skip_cause();
      // The array of a broadcast has the error itself.
      if (told_by_barrier_ && cause != nullptr && key_->body.stored)
        key_->core->note_unreported(*key_, cause);
      key_->report_failed(cause);
    } catch (const std::exception&) {
      // Without memory for the report, the others wait for their deadline.
    }
  }
  void paid() { key_ = nullptr; }

 private:
  KeyPtr key_;  // null when nothing is owed
  bool told_by_barrier_;
};

/// Makes a key and chooses the servers of its pieces.
DistServerStore::KeyPtr DistServerStore::add_key(const std::string& name, const Shape& shape, DType type,
                                                 kv::KeyBody body) {
  MX_CHECK(name.size() <= kv::kLongestName, InvalidArgument, "[KVStore] expected a key of at most ",
           kv::kLongestName, " bytes in a store with servers, got ", name.size());
  auto key = std::make_shared<Key>();
  key->core = core_;
  body.name = name;
  body.shape.assign(shape.begin(), shape.end());
  body.count = static_cast<uint64_t>(shape.numel());
  key->body = std::move(body);
  key->shape = shape;
  key->type = type;
  const size_t size = comm::size_of(key->body.type);
  const size_t most = std::max<size_t>(1, piece_bytes(core_->options) / size);
  size_t begin = 0;
  do {
    const size_t count = std::min(most, key->body.count - begin);
    const auto place = std::min_element(bytes_at_.begin(), bytes_at_.end());
    *place += count * size;
    key->pieces.push_back({static_cast<int>(place - bytes_at_.begin()), next_number_++, begin, count});
    begin += count;
  } while (begin < key->body.count);
  return key;
}

void DistServerStore::remove_places(const Key& key) {
  for (const Key::Piece& piece : key.pieces)
    bytes_at_[static_cast<size_t>(piece.server)] -= piece.count * comm::size_of(key.body.type);
}

DistServerStore::Key& DistServerStore::find(const std::string& name, const char* op) {
  const auto found = keys_.find(name);
  MX_CHECK(found != keys_.end(), InvalidArgument, "[", op,
           "] expected a key that was passed to init(), got \"", name, "\" in a store of ", keys_.size(),
           " keys");
  return *found->second;
}

// The store.

DistServerStore::DistServerStore(std::string type, const KVStoreOptions& options,
                                 std::shared_ptr<kv::ServerGroup> servers)
    : type_(std::move(type)), core_(std::make_shared<Core>()) {
  MX_CHECK(options.staleness == -1 || options.staleness >= 1, InvalidArgument,
           "[KVStore] expected a staleness of 1 or more, or -1 for any, got ", options.staleness);
  core_->servers = std::move(servers);
  core_->store = core_->servers->new_store();
  core_->options = options;
  const auto count = static_cast<size_t>(core_->servers->servers());
  core_->control_sequence.assign(count, 0);
  bytes_at_.assign(count, 0);
  kv::OpenBody body;
  body.workers = static_cast<uint32_t>(core_->workers());
  body.sync = type_ == "dist_sync";
  body.staleness = options.staleness;
  body.piece_bytes = piece_bytes(options);
  run_control({.name = "open", .kind = kv::Kind::open, .body = kv::Bytes::of(encode(body))});
  core_->open = true;
  core_->servers->store_opened();
}

DistServerStore::~DistServerStore() = default;

int DistServerStore::rank() const { return core_->rank(); }
int DistServerStore::size() const { return core_->workers(); }
KVStoreOptions DistServerStore::options() const { return core_->options; }
int64_t DistServerStore::epoch() const { return core_->servers->options().identity.epoch; }

/// Pushes an operation of a key.
void DistServerStore::run(const KeyPtr& key, const char* name, Access access, int priority,
                          std::source_location where, Work work) {
  check_not_recording(name);
  const std::vector<NDArray> fills = access.fills;
  std::vector<Var> reads{core_->order.get()}, writes, updates;
  for (const NDArray& array : access.reads) reads.push_back(array.var());
  for (const NDArray& array : access.fills)
    (array.impl().covers_storage() ? writes : updates).push_back(array.var());
  (access.heals ? writes : updates).push_back(key->order->get());
  // An array may be read and filled: then it is updated.
  std::vector<Var> only_reads;
  for (const Var& var : reads) {
    const auto written = std::find(writes.begin(), writes.end(), var);
    if (written != writes.end()) {
      updates.push_back(var);
      writes.erase(written);
    } else if (std::find(updates.begin(), updates.end(), var) == updates.end() &&
               std::find(only_reads.begin(), only_reads.end(), var) == only_reads.end()) {
      only_reads.push_back(var);
    }
  }
  OwedValue owed(access.sends ? key : nullptr, access.told_by_barrier);
  current_engine().push_async(
      // The access keeps the arrays alive until the operation has ended.
      [key, owed = std::move(owed), access = std::move(access), work = std::move(work)](
          RunContext, Completion completion) mutable {
        owed.paid();
        const bool sends = access.sends;
        auto end = std::make_shared<Completion>(std::move(completion));
        const Done done = [key, end, access](std::exception_ptr error) {
          if (error != nullptr) {
            key->failed.store(true);
            if (access.told_by_barrier) key->core->note_unreported(*key, error);
            end->fail(std::move(error));
          } else {
            end->done();
          }
        };
        key->after_report([key, work, done, end, sends] {
          try {
            work(done);
          } catch (...) {
            // There is no memory for what the servers would answer, for example. Nothing was sent, so the
            // others would wait for this worker. If they know the key and nothing was to be sent, they wait
            // only for its next value.
            std::exception_ptr error = std::current_exception();
            if (!sends && key->declared) return end->fail(std::move(error));
            key->report_failed(error);
            done(std::move(error));
          }
        });
      },
      {.reads = only_reads,
       .writes = writes,
       .updates = updates,
       .priority = priority,
       .name = name,
       .lane = StreamKind::comm},
      where);
  // Answers are received into the memory itself, so no operator does this for them.
  for (const NDArray& array : fills) array.impl().storage->bump_version();
}

void DistServerStore::init(const KVKey& key, const NDArray& value, std::source_location where) {
  const NoGrad pause;
  const std::lock_guard lock(mutex_);
  MX_CHECK(!keys_.contains(key.name()), InvalidArgument, "[init] expected a new key, got \"", key.name(),
           "\", which already exists with shape ", keys_.at(key.name())->shape);
  const DType type = sum_type(value.dtype());
  const KeyPtr made = add_key(key.name(), value.shape(), type, {.type = kv::to_comm_type(type)});
  NDArray first;
  Access access{.told_by_barrier = true};
  if (rank() == 0) {
    first = value.to(cpu(), where).to(type, where).to_contiguous(where);
    access.reads = {first};
    access.sends = true;
  }
  run(made, "kvstore init", std::move(access), 0, where, [made, first](const Done& done) {
    made->declare(0, 0, done, [made, first, done] {
      if (!first.defined()) return done(nullptr);
      made->send({.kind = kv::Kind::init, .elements = elements_of(first), .type = made->body.type}, done);
    });
  });
  keys_.emplace(key.name(), made);
}

void DistServerStore::erase(const KVKey& key, std::source_location where) {
  const std::lock_guard lock(mutex_);
  find(key.name(), "erase");
  run_erase(keys_.at(key.name()), true, where);
  keys_.erase(key.name());
}

void DistServerStore::run_erase(const KeyPtr& key, bool heals, std::source_location where) {
  run(key, "kvstore erase", {.heals = heals}, 0, where, [key](const Done& done) {
    if (key->body.stored) key->core->forget_unreported(*key);  // the others are erased unasked
    key->send({.kind = kv::Kind::erase}, done);
  });
  remove_places(*key);
}

/// Returns what this worker sends: the sum of its values. `divisor` is set to that of the whole sum.
NDArray DistServerStore::local_sum(const std::vector<NDArray>& values, const KVOptions& options,
                                   uint64_t& divisor) const {
  divisor = 0;
  if (options.reduce == KVReduce::mean) {
    divisor = values.size() * static_cast<uint64_t>(type_ == "dist_sync" ? size() : 1);
  }
  const DType type = sum_type(values, options.accumulate_f32);
  return sum_values(values, cpu(), type, options.where).to_contiguous(options.where);
}

/// Pushes `value` if it is defined, and pulls into `outs` if there are some.
void DistServerStore::exchange(const KeyPtr& key, kv::Kind kind, const char* name, const NDArray& value,
                               const std::vector<NDArray>& outs, uint64_t divisor, const KVOptions& options) {
  Access access;
  if (value.defined()) {
    access.reads = {value};
    access.sends = true;
    access.told_by_barrier = outs.empty();
  }
  NDArray result;
  if (!outs.empty()) {
    for (const NDArray& out : outs)
      if (!result.defined() && receives(out, key->type) &&
          (!value.defined() || !out.shares_memory(value) || same_elements(out, value)))
        result = out;
    if (!result.defined()) result = empty(key->shape, key->type);
    access.fills = {result};
  }
  const int priority = engine_priority(options.priority);
  run(key, name, std::move(access), priority, options.where,
      [key, kind, value, result, divisor, priority, timeout_ms = options.timeout_ms](const Done& done) {
        // Before anything is sent: this throws if there is no memory for the result.
        std::byte* const into = result.defined() ? elements_of(result) : nullptr;
        const std::byte* const elements = value.defined() ? elements_of(value) : nullptr;
        key->declare(priority, timeout_ms, done, [=] {
          key->send({.kind = kind,
                     .elements = elements,
                     .type = value.defined() ? message_type(value.dtype()) : key->body.type,
                     .into = into,
                     .number = divisor,
                     .priority = priority,
                     .timeout_ms = timeout_ms},
                    done);
        });
      });
  for (NDArray out : outs)
    if (&out.impl() != &result.impl()) out.copy_from(result, options.where);
}

/// Optimisers take values and gradients in floating point. The servers convert the gradients that they get,
/// so they would not notice others.
void DistServerStore::check_gradients(const std::string& key, const std::vector<NDArray>& values) const {
  if (optimizer_.empty()) return;
  const auto check = [&](const char* what, DType type) {
    MX_CHECK(is_floating(type), InvalidArgument, "[push] expected ", what, " in floating point for key \"",
             key, "\", because the store has the optimiser '", optimizer_, "', got ", type);
  };
  check("a value", keys_.at(key)->type);
  for (const NDArray& value : values) check("a gradient", value.dtype());
}

void DistServerStore::push(const KVKey& key, const Values& values, const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  const Key& found = find(key.name(), "push");
  check_values("push", key.name(), values.list(), found.shape, options.reduce);
  check_gradients(key.name(), values.list());
  uint64_t divisor = 0;
  const NDArray sum = local_sum(values.list(), options, divisor);
  exchange(keys_.at(key.name()), kv::Kind::push, "kvstore push", sum, {}, divisor, options);
}

void DistServerStore::pull(const KVKey& key, const Values& outs, const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  const Key& found = find(key.name(), "pull");
  check_outs("pull", key.name(), outs.list(), found.shape);
  if (outs.list().empty()) return;
  exchange(keys_.at(key.name()), kv::Kind::pull, "kvstore pull", {}, outs.list(), 0, options);
}

void DistServerStore::pushpull(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                               const std::vector<Values>& outs, const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  check_pushpull(keys, values, outs, options,
                 [&](const std::string& key) { return find(key, "push").shape; });
  for (size_t i = 0; i < keys.size(); ++i) check_gradients(keys[i].name(), values[i].list());
  for (size_t i = 0; i < keys.size(); ++i) {
    const KeyPtr key = keys_.at(keys[i].name());
    uint64_t divisor = 0;
    const NDArray sum = local_sum(values[i].list(), options, divisor);
    const kv::Kind kind = outs[i].list().empty() ? kv::Kind::push : kv::Kind::pushpull;
    exchange(key, kind, "kvstore pushpull", sum, outs[i].list(), divisor, options);
  }
}

/// Returns the key of allreduce() with this name. Another shape or type than the last time makes another key.
DistServerStore::KeyPtr DistServerStore::sum_key(const std::string& name, const Shape& shape, DType type,
                                                 std::source_location where) {
  KeyPtr& key = sums_[name];
  if (key != nullptr && key->shape == shape && key->type == type) return key;
  const KeyPtr old = key;
  if (old != nullptr) run_erase(old, false, where);
  key = add_key(name, shape, type, {.type = kv::to_comm_type(type), .stored = false});
  // If the other workers do not change the shape, erasing fails, and the new key with it.
  if (old != nullptr) key->order = old->order;
  return key;
}

void DistServerStore::allreduce(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                                const std::vector<NDArray>& outs, const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  check_allreduce(keys, values, outs, options);
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::vector<NDArray>& list = values[i].list();
    const DType type = sum_type(list, options.accumulate_f32);
    const bool mean = options.reduce == KVReduce::mean;
    const KeyPtr key = sum_key(keys[i].name(), outs[i].shape(), type, options.where);
    const NDArray sum = sum_values(list, cpu(), type, options.where).to_contiguous(options.where);
    const uint64_t divisor = mean ? list.size() * static_cast<uint64_t>(size()) : 0;
    exchange(key, kv::Kind::pushpull, "kvstore allreduce", sum, {outs[i]}, divisor, options);
  }
}

void DistServerStore::broadcast_from_first(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                                           const KVOptions& options) {
  check_broadcast_from_first(keys, values);
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < keys.size(); ++i) {
    const DType type = values[i].dtype();
    const KeyPtr key =
        add_key(keys[i].name(), values[i].shape(), type, {.type = message_type(type), .stored = false});
    if (rank() == 0) {
      const NDArray value = values[i].to(cpu(), options.where).to_contiguous(options.where);
      exchange(key, kv::Kind::set_value, "kvstore broadcast", value, {}, 0, options);
    } else {
      exchange(key, kv::Kind::pull, "kvstore broadcast", {}, {values[i]}, 0, options);
    }
    run_erase(key, true, options.where);
  }
}

// Calls of all workers together.

/// The barrier that a skipped operation would have made: its token has failed. The destructor makes it with
/// the error, which all workers get. Otherwise a later barrier of this worker would meet this one of the
/// others.
class DistServerStore::OwedBarrier {
 public:
  explicit OwedBarrier(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  OwedBarrier(OwedBarrier&& other) noexcept = default;
  ~OwedBarrier() {
    if (core_ == nullptr) return;
    try {
      const std::exception_ptr cause = skip_cause();
      const std::string why = cause == nullptr ? "the operation was cancelled" : kv::text_of(cause);
      const std::string text = concat("[barrier] expected worker ", core_->rank(), " on host ",
                                      comm::host_name(), " to come, got the error of its token: ", why);
      const kv::ErrorCode code = cause == nullptr ? kv::ErrorCode::cancelled : kv::code_of(cause);
      kv::Call call;
      call.header = {.kind = kv::Kind::barrier,
                     .store = core_->store,
                     .sequence = ++core_->control_sequence[0],
                     .number = static_cast<uint64_t>(code)};
      call.body = kv::Bytes::of(text.substr(0, kv::kLargestText));
      call.timeout_ms = core_->timeout_ms(0);
      call.what = "barrier";
      call.done = [](const kv::Bytes&, const std::exception_ptr&) {};  // the token has the error already
      core_->servers->start(0, std::move(call));
    } catch (const std::exception&) {
      // Without memory for the message, the others wait for their deadline.
    }
  }
  void paid() { core_ = nullptr; }

 private:
  std::shared_ptr<Core> core_;  // null when nothing is owed
};

/// Pushes an operation that all other operations of this store precede or follow. If it fails, `result` gets
/// the error. Without `result`, the error poisons what follows until the next control.
///
/// After the servers have refused an optimiser or an option, controls still make their calls, so that no
/// other worker waits for them. They end with the error of the refusal, which poisons all that follows.
void DistServerStore::push_control(const Control& control, const NDArray* token, const Result& result) {
  std::vector<Var> updates;
  if (token != nullptr) updates.push_back(token->var());
  check_not_recording(control.name);
  const std::vector<Var> writes{core_->order.get()};
  if (control.kind == kv::Kind::set_optimizer || control.kind == kv::Kind::set_option)
    set_at_ = *control.where;
  current_engine().push_async(
      [core = core_, control, result, owed = OwedBarrier(token != nullptr ? core_ : nullptr)](
          RunContext, Completion completion) mutable {
        owed.paid();
        auto end = std::make_shared<Completion>(std::move(completion));
        const size_t servers = control.all_servers ? core->control_sequence.size() : 1;
        const bool sets = control.kind == kv::Kind::set_optimizer || control.kind == kv::Kind::set_option;
        // Not save() and the like: a worker that ended early there would leave the others waiting.
        const bool tells = control.kind == kv::Kind::barrier && control.barrier_of == kv::BarrierOf::barrier;
        const Done each = kv::after_all(servers, [core, sets, tells, end, result](std::exception_ptr error) {
          if (tells && error == nullptr) error = core->take_unreported();
          if (sets && error != nullptr && core->refused == nullptr) core->refused = error;
          if (core->refused != nullptr) {
            if (result != nullptr) *result = core->refused;
            return end->fail(core->refused);
          }
          if (error == nullptr) return end->done();
          if (result == nullptr) return end->fail(std::move(error));
          *result = std::move(error);
          end->done();
        });
        for (size_t s = 0; s < servers; ++s) {
          kv::Call call;
          call.header = {.kind = control.kind,
                         .flags = static_cast<uint8_t>(control.barrier_of),
                         .store = core->store,
                         .sequence = ++core->control_sequence[s],
                         .number = control.number};
          call.body = control.body;
          if (control.kind == kv::Kind::barrier && core->refused != nullptr && call.body.empty()) {
            // The others may not know of the error: asynchronous workers change options alone.
            call.body = kv::Bytes::of(kv::text_of(core->refused).substr(0, kv::kLargestText));
            call.header.number = static_cast<uint64_t>(kv::code_of(core->refused));
          }
          call.priority = control.priority;
          call.timeout_ms = core->timeout_ms(control.timeout_ms);
          call.what = control.name;
          call.done = [each](const kv::Bytes&, std::exception_ptr error) { each(std::move(error)); };
          core->servers->start(static_cast<int>(s), std::move(call));
        }
      },
      {.writes = writes,
       .updates = updates,
       .priority = control.priority,
       .name = control.name,
       .lane = StreamKind::comm},
      control.where.value_or(set_at_));
}

/// Pushes a control, waits for it, and throws its error.
void DistServerStore::run_control(const Control& control) {
  const auto result = std::make_shared<std::exception_ptr>();
  {
    const std::lock_guard lock(mutex_);
    push_control(control, nullptr, result);
  }
  // The call has a limit of its own once it runs, and a moment beyond it in which the late workers are named.
  // Before that it waits for earlier operations.
  const int64_t limit_ms = core_->timeout_ms(control.timeout_ms);
  bool ended = true;
  try {
    ended = current_engine().wait(core_->order.get(), limit_ms + kNamingMs);
  } catch (const std::exception&) {
    if (*result == nullptr) throw;  // the error of another thread's control
  }
  if (!ended) {
    const auto error = std::make_exception_ptr(
        Timeout(concat("[", control.name, "] expected all operations of the store to end within ", limit_ms,
                       " ms, got some in flight")));
    // The call would still be made, later than the others expect.
    core_->servers->fail(error);
    std::rethrow_exception(error);
  }
  if (*result != nullptr) std::rethrow_exception(*result);
}

void DistServerStore::set_updater(Updater) {
  throw InvalidState(concat("[set_updater] expected a store without servers, got \"", type_,
                            "\": servers run no code of workers; call set_optimizer()"));
}

void DistServerStore::set_optimizer(const std::string& name, const AttrMap& options,
                                    std::source_location where) {
  kv::Shard(nullptr).set_optimizer({name, options}, where);  // throws for what servers refuse
  const std::lock_guard lock(mutex_);
  push_control({.name = "set_optimizer",
                .kind = kv::Kind::set_optimizer,
                .body = kv::Bytes::of(encode(kv::OptionsBody{name, options})),
                .where = where},
               nullptr, nullptr);
  optimizer_ = name;
  optimizer_options_ = options;
}

void DistServerStore::set_optimizer_option(const std::string& option, double value,
                                           std::source_location where) {
  const std::lock_guard lock(mutex_);
  kv::Shard shard(nullptr);
  if (!optimizer_.empty()) shard.set_optimizer({optimizer_, optimizer_options_}, where);
  shard.set_option(option, value, where);  // throws for what servers refuse
  push_control({.name = "set_optimizer_option",
                .kind = kv::Kind::set_option,
                .body = kv::Bytes::of(encode(kv::OptionsBody{"", {{option, value}}})),
                .where = where},
               nullptr, nullptr);
  optimizer_options_[option] = value;
}

void DistServerStore::barrier(int64_t timeout_ms) {
  check_timeout(timeout_ms);
  run_control({.name = "barrier", .kind = kv::Kind::barrier, .all_servers = false, .timeout_ms = timeout_ms});
}

void DistServerStore::push_barrier(const NDArray& token, const KVOptions& options) {
  check_timeout(options.timeout_ms);
  const std::lock_guard lock(mutex_);
  push_control({.name = "barrier",
                .kind = kv::Kind::barrier,
                .all_servers = false,
                .timeout_ms = options.timeout_ms,
                .priority = engine_priority(options.priority),
                .where = options.where},
               &token, nullptr);
}

}  // namespace mx::detail
