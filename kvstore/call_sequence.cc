#include "kvstore/call_sequence.h"

#include <algorithm>
#include <future>
#include <utility>

#include "comm/deadline.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::detail {

namespace {

/// Reports the end of a call when all its parts have ended, with the first error among them.
class CallEnd {
 public:
  /// `after` is called after `done`, with an error that does not come from the verdict.
  CallEnd(size_t parts, CallSequence::Call& call, CallSequence::Done after)
      : left_(parts),
        verdict_(std::move(call.verdict)),
        done_(std::move(call.done)),
        after_(std::move(after)) {}

  void part_ended(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      if (error && !error_) error_ = std::move(error);
      if (--left_ > 0) return;
    }
    const CallSequence::Done report = std::move(done_);
    report(!error_ && verdict_ ? verdict_() : error_);
    if (after_) after_(error_);
  }

 private:
  std::mutex mutex_;
  size_t left_;
  std::exception_ptr error_;
  const std::function<std::exception_ptr()> verdict_;
  CallSequence::Done done_;
  const CallSequence::Done after_;
};

/// Cuts a call of several requests: leaves the first request in it, and returns a call for each other one,
/// the last one first. Together they report the end of the whole call.
std::vector<CallSequence::Call> cut_call(CallSequence::Call& call) {
  std::vector<CallSequence::Call> later;
  if (call.requests.size() < 2) return later;
  const auto whole = std::make_shared<CallEnd>(call.requests.size(), call, nullptr);
  while (!call.requests.empty()) {
    CallSequence::Call& part = later.emplace_back();
    comm::Request& request = call.requests.back();
    part.bytes = request.count * comm::size_of(request.type);
    part.requests.push_back(std::move(request));
    part.done = [whole](std::exception_ptr error) { whole->part_ended(std::move(error)); };
    call.requests.pop_back();
  }
  call = std::move(later.back());
  later.pop_back();
  return later;
}

}  // namespace

CallSequence::CallSequence(std::shared_ptr<comm::Communicator> group, int64_t bytes_in_flight,
                           CallOrder order)
    : group_(std::move(group)),
      credit_(bytes_in_flight > 0 ? static_cast<size_t>(bytes_in_flight) : 0),
      order_(order) {}

CallSequence::Ticket CallSequence::take(std::string what, std::optional<int> priority) {
  const std::lock_guard lock(mutex_);
  if (order_ == CallOrder::priority && !priority) fences_.insert(fences_.end(), taken_);
  return {shared_from_this(), taken_++, priority.value_or(0), std::move(what)};
}

void CallSequence::run(const std::string& what, Call call) {
  std::promise<void> ended;
  call.done = [&](std::exception_ptr error) {
    if (error) {
      ended.set_exception(std::move(error));
    } else {
      ended.set_value();
    }
  };
  std::future<void> result = ended.get_future();
  take(what).start(std::move(call));
  result.get();
}

void CallSequence::ready(uint64_t number, int priority, Call call) {
  Waiting waiting{.next = std::move(call), .later = {}, .priority = priority};
  if (order_ == CallOrder::priority) waiting.later = cut_call(waiting.next);
  std::unique_lock lock(mutex_);
  ready_.emplace(number, std::move(waiting));
  limit_choice();
  start_ready(lock);
}

void CallSequence::skip(uint64_t number, int priority, const std::string& what,
                        const std::exception_ptr& cause) {
  std::string text = "the operation was cancelled";
  try {
    if (cause != nullptr) std::rethrow_exception(cause);
  } catch (...) {
    text = current_exception_text();
  }
  const auto error = std::make_exception_ptr(
      CommunicationError(concat("[KVStore] expected rank ", group_->rank(), " to take part in '", what,
                                "', but its value has failed, so its calls cannot go on: ", text)));
  const auto start = [error, name = concat("no value of '", what, "': ", text)](comm::Communicator& group,
                                                                                Done done) {
    comm::Request request{.collective = comm::Collective::barrier, .options = {.what = name}, .done = {}};
    request.done = [&group, error, done = std::move(done)](const std::exception_ptr&) {
      group.abort(error);
      done(error);
    };
    group.start(std::move(request));
  };
  ready(number, priority, {.start = start, .done = [](auto) {}});
}

/// Whether the ranks agree on the next call, instead of taking the first one in the order of the program.
bool CallSequence::chooses() const {
  return order_ == CallOrder::priority && !failure_ && !fences_.contains(next_);
}

/// Returns the ticket whose call, or next part of a call, can start now.
std::optional<uint64_t> CallSequence::next_to_start() const {
  if (chooses() && !chosen_) return std::nullopt;
  const uint64_t number = chooses() ? *chosen_ : next_;
  const auto it = ready_.find(number);
  if (it == ready_.end()) return std::nullopt;
  const Call& call = it->second.next;
  if (alone_ || (call.start != nullptr && in_flight_ > 0)) return std::nullopt;
  const bool has_room = order_ == CallOrder::program && bytes_in_flight_ + call.bytes <= credit_;
  if (in_flight_ > 0 && !has_room) return std::nullopt;
  return number;
}

/// Whether this rank's first call in the order of the program waits for nothing but its turn.
bool CallSequence::first_is_ready() const { return !ready_.empty() && ready_.begin()->first == next_; }

/// Returns the time limit of the first ready call; 0: the default.
int64_t CallSequence::first_limit_ms() const {
  const std::vector<comm::Request>& requests = ready_.begin()->second.next.requests;
  return requests.empty() ? 0 : requests.front().options.timeout_ms;
}

/// Returns the time limit of the first ready call.
int64_t CallSequence::limit_or_default_ms() const {
  const int64_t limit_ms = first_limit_ms();
  return limit_ms > 0 ? limit_ms : group_->default_timeout_ms();
}

/// Returns what this rank sends to the others if they have to agree on the next call, and the time limit.
std::optional<CallChoice> CallSequence::waiting_calls(int64_t& timeout_ms) const {
  if (!chooses() || chosen_ || choosing_ || in_flight_ > 0) return std::nullopt;
  uint64_t end = next_ + CallChoice::kWindow;
  if (!fences_.empty()) end = std::min(end, *fences_.begin());
  std::vector<std::pair<int, uint64_t>> calls;  // negative priority, ticket
  for (const auto& [number, waiting] : ready_)
    if (number < end) calls.emplace_back(-waiting.priority, number);
  if (calls.empty()) return std::nullopt;
  // If this rank's first call in the order of the program is ready, it would be in flight there, and its
  // limit counts. If not, this rank would only wait for its own value, which has no limit: limit_choice()
  // sets one when the value is ready.
  timeout_ms = first_is_ready() ? first_limit_ms() : comm::kLongestTimeoutMs;
  std::sort(calls.begin(), calls.end());
  CallChoice own;
  for (const auto& call : calls) own.add(static_cast<size_t>(call.second - next_));
  return own;
}

// One thread at a time starts calls. A thread that comes meanwhile only leaves its call in ready_: the first
// thread looks again before it returns.
void CallSequence::start_ready(std::unique_lock<std::mutex>& lock) {
  if (starting_) return;
  starting_ = true;
  for (;;) {
    int64_t timeout_ms = 0;
    if (const std::optional<CallChoice> own = waiting_calls(timeout_ms)) {
      start_choice(lock, *own, timeout_ms);
      continue;
    }
    const std::optional<uint64_t> number = next_to_start();
    if (!number) break;
    Call next = take_part(*number);
    ++in_flight_;
    bytes_in_flight_ += next.bytes;
    alone_ = next.start != nullptr;
    lock.unlock();
    start_one(std::move(next));
    lock.lock();
  }
  starting_ = false;
}

/// Takes the next part of a ready call. If it is the last one, the ticket counts as started.
CallSequence::Call CallSequence::take_part(uint64_t number) {
  chosen_.reset();
  const auto it = ready_.find(number);
  Waiting& waiting = it->second;
  Call part = std::move(waiting.next);
  if (!waiting.later.empty()) {
    waiting.next = std::move(waiting.later.back());
    waiting.later.pop_back();
    return part;
  }
  ready_.erase(it);
  fences_.erase(number);
  if (number != next_) {
    overtook_.insert(number);
    return part;
  }
  do {
    ++next_;
  } while (overtook_.erase(next_) > 0);
  return part;
}

/// Starts the call with which the ranks agree on the next one.
void CallSequence::start_choice(std::unique_lock<std::mutex>& lock, const CallChoice& own,
                                int64_t timeout_ms) {
  const auto size = static_cast<size_t>(group_->size());
  const auto records = std::make_shared<std::vector<CallChoice>>(size);
  CallChoice& mine = (*records)[static_cast<size_t>(group_->rank())];
  mine = own;
  comm::Request request{.collective = comm::Collective::allgather,
                        .in = &mine,
                        .out = records->data(),
                        .count = size * sizeof(CallChoice),
                        .type = comm::Type::u8,
                        .options = {.timeout_ms = timeout_ms, .what = "the choice of the next call"},
                        .done = {}};
  choice_limit_ = first_is_ready() ? nullptr : std::make_shared<comm::DeferredLimit>();
  request.deferred_limit = choice_limit_;
  request.done = [self = shared_from_this(), records, first = next_](const std::exception_ptr& error) {
    self->chose(error ? std::nullopt : std::optional(first + CallChoice::choose(*records)), error);
  };
  choosing_ = true;
  lock.unlock();
  try {
    group_->start(std::move(request));
  } catch (...) {
    chose(std::nullopt, std::current_exception());
  }
  lock.lock();
}

/// Names those for which a call of this rank may wait.
std::string CallSequence::name_others() const {
  if (group_->size() > 2) return concat("one or more of the other ", group_->size() - 1, " ranks");
  const int other = 1 - group_->rank();
  return concat("rank ", other, " on host ", group_->host(other));
}

std::string CallSequence::what_waits() {
  const std::lock_guard lock(mutex_);
  if (group_->size() < 2 || (in_flight_ == 0 && !choosing_)) return "";
  return "; calls between the processes wait for " + name_others();
}

/// Gives an agreement that began without a limit the one of the first call, which is ready now.
void CallSequence::limit_choice() {
  if (choice_limit_ == nullptr || choice_limit_->is_set() || !first_is_ready()) return;
  choice_limit_->set(limit_or_default_ms());
}

/// Adds to the error of an agreement that has missed the limit of the first call what the limit was.
std::exception_ptr CallSequence::name_limit(const std::exception_ptr& error) const {
  if (choice_limit_ == nullptr || !choice_limit_->is_set()) return error;
  const std::vector<comm::Request>& requests = ready_.begin()->second.next.requests;
  try {
    std::rethrow_exception(error);
  } catch (const Timeout&) {
    return rewrite_current_exception([&](const std::string& text) {
      return concat("[KVStore] expected all ranks to agree on the next call within ", limit_or_default_ms(),
                    " ms after ",
                    requests.empty() ? "a call" : concat("'", requests.front().options.what, "'"),
                    " was ready on rank ", group_->rank(), ": ", text);
    });
  } catch (...) {
    return error;
  }
}

void CallSequence::chose(std::optional<uint64_t> number, const std::exception_ptr& error) {
  std::unique_lock lock(mutex_);
  choosing_ = false;
  chosen_ = number;
  if (error && !failure_) failure_ = name_limit(error);
  choice_limit_.reset();
  start_ready(lock);
}

void CallSequence::start_one(Call call) {
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    failure = failure_;
  }
  const size_t parts = failure ? 1 : std::max<size_t>(call.requests.size(), 1);
  const auto end = std::make_shared<CallEnd>(
      parts, call,
      [self = shared_from_this(), bytes = call.bytes,
       alone = call.start != nullptr](const std::exception_ptr& error) { self->ended(bytes, alone, error); });
  if (failure) return end->part_ended(failure);
  if (call.start) {
    try {
      call.start(*group_, [end](std::exception_ptr e) { end->part_ended(std::move(e)); });
    } catch (...) {
      end->part_ended(std::current_exception());
    }
    return;
  }
  if (call.requests.empty()) return end->part_ended(nullptr);
  for (size_t i = 0; i < call.requests.size(); ++i) {
    call.requests[i].done = [end](std::exception_ptr e) { end->part_ended(std::move(e)); };
    try {
      group_->start(std::move(call.requests[i]));
    } catch (...) {
      // The request was refused, so neither it nor the rest will call back.
      const std::exception_ptr error = std::current_exception();
      for (; i < call.requests.size(); ++i) end->part_ended(error);
    }
  }
}

void CallSequence::ended(size_t bytes, bool alone, const std::exception_ptr& error) {
  std::unique_lock lock(mutex_);
  if (error && !failure_) failure_ = error;
  --in_flight_;
  bytes_in_flight_ -= bytes;
  if (alone) alone_ = false;
  start_ready(lock);
}

}  // namespace mx::detail
