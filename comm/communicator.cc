#include "comm/communicator.h"

#include <condition_variable>
#include <mutex>
#include <new>

#include "comm/net/bytes.h"
#include "engine/base/check.h"

namespace mx::comm {

const char* to_string(Collective collective) {
  switch (collective) {
    case Collective::allreduce:
      return "allreduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::allgather:
      return "allgather";
    case Collective::broadcast:
      return "broadcast";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::barrier:
      return "barrier";
    case Collective::send:
      return "send";
    case Collective::receive:
      return "receive";
  }
  return "unknown";
}

const char* to_string(Order order) { return order == Order::rank ? "rank" : "any"; }

const char* to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::min:
      return "min";
    case Reduction::max:
      return "max";
  }
  return "unknown";
}

Slice slice_of(size_t count, int size, int rank) {
  const size_t ranks = static_cast<size_t>(size), r = static_cast<size_t>(rank);
  const size_t each = count / ranks, more = count % ranks;
  return {r * each + (r < more ? r : more), each + (r < more ? 1 : 0)};
}

std::string describe(const Request& request) {
  std::string text = to_string(request.collective);
  if (request.collective != Collective::barrier)
    text += " of " + std::to_string(request.count) + " x " + to_string(request.type);
  if (request.collective == Collective::broadcast) text += " from rank " + std::to_string(request.peer);
  if (request.collective == Collective::send) text += " to rank " + std::to_string(request.peer);
  if (request.collective == Collective::receive) text += " from rank " + std::to_string(request.peer);
  if (request.options.reduction != Reduction::sum)
    text += std::string(" (") + to_string(request.options.reduction) + ")";
  if (request.options.order != Order::rank) text += " in any order";
  if (!request.options.what.empty()) (text += ' ') += in_quotes(request.options.what);
  return text;
}

void check_request(const Request& request, int rank, int size) {
  // Numbers beyond the enumerations would be indices of tables later.
  const auto check_number = [](const char* what, int number, int count) {
    MX_CHECK(number < count, InvalidArgument, "[start] expected ", what, " among 0..", count - 1, ", got ",
             number);
  };
  check_number("a collective", static_cast<int>(request.collective),
               static_cast<int>(Collective::receive) + 1);
  check_number("a type", static_cast<int>(request.type), kTypes);
  check_number("a reduction", static_cast<int>(request.options.reduction),
               static_cast<int>(Reduction::max) + 1);
  MX_CHECK(request.options.timeout_ms >= 0, InvalidArgument,
           "[start] expected a timeout_ms of at least 0, got ", request.options.timeout_ms);
  check_number("an order", static_cast<int>(request.options.order), static_cast<int>(Order::any) + 1);
  const bool point = request.collective == Collective::send || request.collective == Collective::receive;
  if (point || request.collective == Collective::broadcast)
    MX_CHECK(request.peer >= 0 && request.peer < size && !(point && request.peer == rank), InvalidArgument,
             "[", to_string(request.collective), "] expected ", point ? "another rank" : "a root",
             " among 0..", size - 1, ", got ", request.peer, " on rank ", rank);
  constexpr size_t kMost = size_t{1} << 62;
  MX_CHECK(request.count <= kMost / size_of(request.type) / static_cast<size_t>(size), InvalidArgument, "[",
           to_string(request.collective), "] expected fewer than 2^62 bytes, got ", request.count, " x ",
           to_string(request.type));
  if (request.collective == Collective::barrier || request.count == 0) return;
  const bool mine = slice_of(request.count, size, rank).count > 0;
  bool in = true, out = true;
  if (request.collective == Collective::broadcast) in = request.peer == rank;
  if (request.collective == Collective::receive) in = false;
  if (request.collective == Collective::send) out = false;
  if (request.collective == Collective::allgather) in = mine;
  if (request.collective == Collective::reduce_scatter) out = mine;
  MX_CHECK(!in || request.in != nullptr, InvalidArgument, "[", to_string(request.collective),
           "] expected an input buffer for ", describe(request), ", got none");
  MX_CHECK(!out || request.out != nullptr, InvalidArgument, "[", to_string(request.collective),
           "] expected an output buffer for ", describe(request), ", got none");
}

std::shared_ptr<void> Communicator::allocate(size_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  constexpr size_t kAddressSpace = size_t{1} << 47;
  void* const memory =
      bytes < kAddressSpace ? ::operator new(bytes > 0 ? bytes : 1, kAlignment, std::nothrow) : nullptr;
  MX_CHECK(memory != nullptr, OutOfMemory, "[allocate] expected ", bytes, " bytes of memory, got none");
  return {memory, [](void* p) { ::operator delete(p, kAlignment); }};
}

void Communicator::run(Request request) {
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;
  std::exception_ptr error;
  request.done = [&](std::exception_ptr e) {
    // Notified under the lock: otherwise the caller could destroy `ended` before it is notified.
    std::lock_guard lock(mutex);
    error = std::move(e);
    over = true;
    ended.notify_one();
  };
  start(std::move(request));
  std::unique_lock lock(mutex);
  ended.wait(lock, [&] { return over; });
  if (error) std::rethrow_exception(error);
}

void Communicator::allreduce(const void* in, void* out, size_t count, Type type, const CallOptions& options) {
  run({Collective::allreduce, in, out, count, type, 0, options, {}});
}
void Communicator::reduce_scatter(const void* in, void* out, size_t count, Type type,
                                  const CallOptions& options) {
  run({Collective::reduce_scatter, in, out, count, type, 0, options, {}});
}
void Communicator::allgather(const void* in, void* out, size_t count, Type type, const CallOptions& options) {
  run({Collective::allgather, in, out, count, type, 0, options, {}});
}
void Communicator::broadcast(const void* in, void* out, size_t count, Type type, int root,
                             const CallOptions& options) {
  run({Collective::broadcast, in, out, count, type, root, options, {}});
}
void Communicator::all_to_all(const void* in, void* out, size_t count, Type type,
                              const CallOptions& options) {
  run({Collective::all_to_all, in, out, count, type, 0, options, {}});
}
void Communicator::send(const void* in, size_t count, Type type, int peer, const CallOptions& options) {
  run({Collective::send, in, nullptr, count, type, peer, options, {}});
}
void Communicator::receive(void* out, size_t count, Type type, int peer, const CallOptions& options) {
  run({Collective::receive, nullptr, out, count, type, peer, options, {}});
}
void Communicator::barrier(const CallOptions& options) {
  run({Collective::barrier, nullptr, nullptr, 0, Type::f32, 0, options, {}});
}

}  // namespace mx::comm
