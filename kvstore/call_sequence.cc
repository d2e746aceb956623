#include "kvstore/call_sequence.h"

#include <algorithm>
#include <future>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/skip_cause.h"

namespace mx::detail {

CallSequence::Ticket CallSequence::take(std::string what) {
  const std::lock_guard lock(mutex_);
  return {shared_from_this(), taken_++, std::move(what)};
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

void CallSequence::drain() {
  try {
    run("drain", {.start = [](comm::Communicator&, const Done& done) { done(nullptr); }});
  } catch (const std::exception&) {
    // The error is that of an earlier call, which has reported it.
  }
}

void CallSequence::ready(uint64_t number, Call call) {
  std::unique_lock lock(mutex_);
  ready_.emplace(number, std::move(call));
  start_ready(lock);
}

void CallSequence::skip(uint64_t number, const std::string& what) {
  const std::exception_ptr cause = skip_cause();
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
  ready(number, {.start = start, .done = [](auto) {}});
}

// One thread at a time starts calls. A thread that comes meanwhile only leaves its call in ready_: the first
// thread looks again before it returns.
void CallSequence::start_ready(std::unique_lock<std::mutex>& lock) {
  if (starting_) return;
  starting_ = true;
  while (!ready_.empty() && ready_.begin()->first == next_) {
    Call& call = ready_.begin()->second;
    const bool alone = call.start != nullptr;
    if (alone_ || (alone && in_flight_ > 0)) break;
    if (in_flight_ > 0 && bytes_in_flight_ + call.bytes > credit_) break;
    Call next = std::move(call);
    ready_.erase(ready_.begin());
    ++next_;
    ++in_flight_;
    bytes_in_flight_ += next.bytes;
    alone_ = alone;
    lock.unlock();
    start_one(std::move(next));
    lock.lock();
  }
  starting_ = false;
}

void CallSequence::start_one(Call call) {
  /// The parts of a call that have not ended, and the first error among them.
  struct Parts {
    std::shared_ptr<CallSequence> sequence;
    std::mutex mutex;
    size_t left;
    std::exception_ptr error;
    size_t bytes;
    bool alone;
    std::function<std::exception_ptr()> verdict;
    Done done;

    void end(std::exception_ptr e) {
      {
        const std::lock_guard lock(mutex);
        if (e && !error) error = std::move(e);
        if (--left > 0) return;
      }
      const Done report = std::move(done);
      report(!error && verdict ? verdict() : error);
      sequence->ended(bytes, alone, error);
    }
  };
  const auto parts = std::make_shared<Parts>();
  parts->sequence = shared_from_this();
  parts->left = std::max<size_t>(call.requests.size(), 1);
  parts->bytes = call.bytes;
  parts->alone = call.start != nullptr;
  parts->verdict = std::move(call.verdict);
  parts->done = std::move(call.done);
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    failure = failure_;
  }
  if (failure) {
    parts->left = 1;
    return parts->end(failure);
  }
  if (call.start) {
    try {
      call.start(*group_, [parts](std::exception_ptr e) { parts->end(std::move(e)); });
    } catch (...) {
      parts->end(std::current_exception());
    }
    return;
  }
  if (call.requests.empty()) return parts->end(nullptr);
  for (size_t i = 0; i < call.requests.size(); ++i) {
    call.requests[i].done = [parts](std::exception_ptr e) { parts->end(std::move(e)); };
    try {
      group_->start(std::move(call.requests[i]));
    } catch (...) {
      // The request was refused, so neither it nor the rest will call back.
      const std::exception_ptr error = std::current_exception();
      for (; i < call.requests.size(); ++i) parts->end(error);
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
