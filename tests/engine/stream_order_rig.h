// A miniature engine around StreamOrder, for its tests. It is single-threaded, runs ready operations at once
// and never waits. Operations compute on one integer per variable, in two steps on the stream (read, then
// write), so any missing order between two operations changes the values.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/detail/dependency.h"
#include "engine/detail/pools.h"
#include "engine/detail/stream_order.h"
#include "tests/engine/stream_order_fakes.h"

namespace mx::test {

struct OpSpec {
  std::vector<int> reads = {}, writes = {}, updates = {};
  Context context = {};
  StreamKind lane = StreamKind::compute;
  bool fails_on_device = false;
  bool fails_on_host = false;
  bool by_token = false;  // the operation ends when use_token() is called
};

class Rig : public detail::StreamOrder::Listener {
 public:
  /// `vars`: number of variables. `streams`: compute streams of each device.
  explicit Rig(int vars, int streams = 8);
  ~Rig() override;

  /// Pushes an operation and runs all ready operations. Returns its number.
  int push(OpSpec spec);
  /// Ends an operation that was pushed with by_token.
  void use_token(int op);
  bool poll() { return order.poll(); }
  /// Runs streams and polls until nothing is outstanding.
  void finish();

  // The state of an operation.
  enum class State { waiting, parked, issued, host_done, skipped, failed };
  State state(int op) const { return states_.at(static_cast<size_t>(op)); }
  /// Returns the index of the stream that the operation was issued to.
  detail::StreamId stream_of(int op) const { return streams_.at(op); }
  std::string failure_of(int var) const;
  bool recoverable(int var) const { return vars[static_cast<size_t>(var)]->flags & detail::kVarRecoverable; }

  detail::VarPool var_pool;
  std::vector<detail::VarBlock*> vars;
  std::vector<int64_t> cells;
  int retired_count = 0;
  int failed_count = 0;     // operations retired with an error of their own
  int inherited_count = 0;  // operations retired with the error of another one
  std::vector<detail::VarBlock*> maybe_landed_calls;
  bool check_cause = true;  // whether to skip operations with poisoned inputs before planning
  detail::StreamOrder order;

  // Sink of DependencyState.
  void ready(detail::Op* op, bool) { ready_.push_back(op); }
  void written(detail::VarBlock*) {}

  // StreamOrder::Listener.
  void host_may_start(detail::Op* op) override;
  void retired(uint16_t epoch, uint64_t bytes, detail::Failure* failure, bool inherited) override;
  void maybe_landed(detail::VarBlock* var, detail::StreamPoint, detail::Failure*) override {
    maybe_landed_calls.push_back(var);
  }

 private:
  static int& index_of(detail::Op* op) { return *static_cast<int*>(op->closure()); }
  void run_ready();
  void run(detail::Op* op);
  void run_on_stream(detail::Op* op, const OpSpec& spec, detail::StreamOrder::Issue& issue);
  void complete(detail::Op* op, detail::Outcome outcome, detail::Failure* failure);

  detail::OpPool op_pool_;
  detail::Op* free_ops_ = nullptr;
  detail::DependencyState<Rig> dependency_{*this};
  std::deque<OpSpec> specs_;
  std::deque<std::string> names_;
  std::vector<State> states_;
  std::map<int, detail::StreamId> streams_;
  std::map<int, detail::Op*> tokens_;
  std::deque<detail::Op*> ready_;
  std::deque<detail::Op*> host_ready_;
  bool running_ = false;
};

/// Returns the value that operation `op` computes for variable `var` from its inputs.
int64_t value_of(int op, int var, const std::vector<int64_t>& inputs);

/// Returns the values of the variables that an operation reads or updates.
std::vector<int64_t> inputs_of(const OpSpec& spec, const std::vector<int64_t>& cells);

}  // namespace mx::test
