#include "tests/comm/threads/library_group.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "comm/call_comparison.h"
#include "comm/fold.h"
#include "comm/parts.h"
#include "comm/queued_communicator.h"
#include "comm/threads/thread_transport.h"
#include "engine/base/error.h"

namespace mx::comm::testing {
namespace {

std::atomic<int> mixed{0};

/// The calls of one number that have come, by rank.
struct Meeting {
  std::map<int, const Request*> calls;
  bool done = false;
};

struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int, int, uint64_t>, std::shared_ptr<Meeting>> meetings;  // by pair and number
};

bool are_different(const Request& a, const Request& b) {
  const bool same_kind = is_between_two(a) ? is_between_two(b) : a.collective == b.collective;
  return !same_kind || a.count != b.count || a.type != b.type || a.options.what != b.options.what;
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

/// The result of one rank, and where it goes.
struct Result {
  void* out;
  std::vector<char> bytes;
};

Result result_of(int rank, int size, const std::map<int, const Request*>& calls) {
  const Request& call = *calls.at(rank);
  const size_t width = size_of(call.type), bytes = call.count * width;
  Result result{call.out, std::vector<char>(bytes)};
  const auto input = [&](int r) { return static_cast<const char*>(calls.at(r)->in); };
  switch (call.collective) {
    case Collective::allreduce:
    case Collective::reduce_scatter: {
      std::vector<const void*> inputs;
      for (int r = 0; r < size; ++r) inputs.push_back(input(r));
      fold_ranks(result.bytes.data(), inputs.data(), size, call.count, call.type, call.options.reduction);
      if (call.collective == Collective::allreduce) return result;
      const Slice mine = slice_of(call.count, size, rank);
      const char* const begin = result.bytes.data() + mine.begin * width;
      return {call.out, std::vector<char>(begin, begin + mine.count * width)};
    }
    case Collective::allgather:
      for (int r = 0; r < size; ++r) {
        const Slice theirs = slice_of(call.count, size, r);
        copy(result.bytes.data() + theirs.begin * width, input(r), theirs.count * width);
      }
      return result;
    case Collective::broadcast:
      copy(result.bytes.data(), input(call.peer), bytes);
      return result;
    case Collective::all_to_all:
      result.bytes.resize(bytes * static_cast<size_t>(size));
      for (int r = 0; r < size; ++r)
        copy(result.bytes.data() + static_cast<size_t>(r) * bytes,
             input(r) + static_cast<size_t>(rank) * bytes, bytes);
      return result;
    case Collective::receive:
      copy(result.bytes.data(), input(call.peer), bytes);
      return result;
    case Collective::barrier:
    case Collective::send:
      break;
  }
  return {nullptr, {}};
}

class LibraryCommunicator final : public QueuedCommunicator {
 public:
  LibraryCommunicator(int rank, int size, std::shared_ptr<Board> board, std::shared_ptr<Transport> messages,
                      bool compares)
      : rank_(rank), size_(size), board_(std::move(board)), messages_(std::move(messages)), numbers_(size) {
    if (compares && size > 1) comparison_.emplace(messages_);
  }
  ~LibraryCommunicator() override { finish_calls(); }

  const std::string& type() const override {
    static const std::string name = "library";
    return name;
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host(int rank) const override { return messages_->host(rank); }
  int64_t default_timeout_ms() const override { return 60'000; }

 protected:
  void execute(const Request& request, Deadline deadline) override {
    try {
      if (comparison_) comparison_->compare(request, deadline);
      move(request, deadline);
    } catch (...) {
      if (comparison_) comparison_->fail(request, std::current_exception());
      throw;
    }
  }

  void interrupt(std::exception_ptr reason) override {
    if (comparison_) comparison_->abort(reason);
    std::lock_guard lock(board_->mutex);
    reason_ = std::move(reason);
    board_->changed.notify_all();
  }

 private:
  void move(const Request& request, Deadline deadline) {
    const bool pair = is_between_two(request);
    const std::tuple key{pair ? std::min(rank_, request.peer) : -1, pair ? std::max(rank_, request.peer) : -1,
                         numbers_.next(request)};
    std::unique_lock lock(board_->mutex);
    std::shared_ptr<Meeting>& found = board_->meetings[key];
    if (found == nullptr) found = std::make_shared<Meeting>();
    const std::shared_ptr<Meeting> meeting = found;
    meeting->calls[rank_] = &request;
    if (meeting->calls.size() == (pair ? 2 : static_cast<size_t>(size_))) {
      finish(*meeting);
      board_->meetings.erase(key);
      board_->changed.notify_all();
    }
    while (!meeting->done) {
      if (reason_ != nullptr || deadline.passed()) {
        meeting->calls.erase(rank_);
        if (reason_ != nullptr) std::rethrow_exception(reason_);
        throw Timeout("the library did not end " + describe(request) + " in time");
      }
      board_->changed.wait_for(lock, std::chrono::milliseconds(5));
    }
  }

  void finish(Meeting& meeting) const {
    meeting.done = true;
    const Request& first = *meeting.calls.begin()->second;
    for (const auto& [rank, call] : meeting.calls)
      if (are_different(first, *call)) {
        ++mixed;
        return;
      }
    std::vector<Result> results;
    for (const auto& [rank, call] : meeting.calls) results.push_back(result_of(rank, size_, meeting.calls));
    for (const Result& result : results) copy(result.out, result.bytes.data(), result.bytes.size());
  }

  const int rank_, size_;
  const std::shared_ptr<Board> board_;
  const std::shared_ptr<Transport> messages_;
  CallNumbers numbers_;
  std::optional<CallComparison> comparison_;
  std::exception_ptr reason_;  // guarded by the mutex of the board
};

}  // namespace

int mixed_calls() { return mixed; }

std::vector<std::shared_ptr<Communicator>> make_library_group(int ranks, bool compares) {
  const auto board = std::make_shared<Board>();
  std::vector<std::shared_ptr<Communicator>> group;
  int rank = 0;
  for (auto& messages : make_thread_transports(ranks))
    group.push_back(
        std::make_shared<LibraryCommunicator>(rank++, ranks, board, std::move(messages), compares));
  return group;
}

}  // namespace mx::comm::testing
