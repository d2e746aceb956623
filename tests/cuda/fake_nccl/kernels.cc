// The kernels: when operations of several ranks belong together, and what they do to memory.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "comm/fold.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/fake_nccl/state.h"

namespace mx::fake_nccl {
namespace {

using Operations = std::vector<std::shared_ptr<Operation>>;

comm::Type fold_type(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return comm::Type::f32;
    case ncclFloat64:
      return comm::Type::f64;
    case ncclFloat16:
      return comm::Type::f16;
    case ncclBfloat16:
      return comm::Type::bf16;
    case ncclInt8:
      return comm::Type::i8;
    case ncclUint8:
      return comm::Type::u8;
    case ncclInt32:
      return comm::Type::i32;
    case ncclInt64:
      return comm::Type::i64;
    default:
      throw std::logic_error("a type that this project does not send");
  }
}

comm::Reduction fold_reduction(ncclRedOp_t op) {
  if (op == ncclMin) return comm::Reduction::min;
  return op == ncclMax ? comm::Reduction::max : comm::Reduction::sum;
}

/// Combines the inputs of all ranks: pieces of random length, each with the ranks in another random order,
/// rounded after each step as in a ring.
std::vector<char> combined(const Operations& group, size_t count) {
  const size_t width = bytes_of(group[0]->type);
  std::vector<char> result(count * width);
  std::vector<size_t> order(group.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t begin = 0, piece = 0; begin < count; begin += piece) {
    piece = std::min<size_t>(1 + state().random() % 4096, count - begin);
    std::shuffle(order.begin(), order.end(), state().random);
    char* const out = result.data() + begin * width;
    const auto input = [&](size_t r) { return static_cast<const char*>(group[r]->in) + begin * width; };
    std::memcpy(out, input(order[0]), piece * width);
    for (size_t i = 1; i < order.size(); ++i)
      comm::fold(fold_reduction(group[0]->reduction), fold_type(group[0]->type), out, input(order[i]), piece);
  }
  return result;
}

/// The bytes that an operation reads and writes in a group of `size` ranks.
std::pair<size_t, size_t> extent_of(const Operation& o, int rank, int size) {
  const size_t bytes = o.count * bytes_of(o.type), ranks = static_cast<size_t>(size);
  switch (o.kind) {
    case Kind::allreduce:
      return {bytes, bytes};
    case Kind::reduce_scatter:
      return {bytes * ranks, bytes};
    case Kind::allgather:
      return {bytes, bytes * ranks};
    case Kind::broadcast:
      return {rank == o.peer ? bytes : 0, bytes};
    case Kind::send:
      return {bytes, 0};
    case Kind::receive:
      return {0, bytes};
  }
  return {0, 0};
}

/// Memory that has been freed too early loses the device, as a kernel's access would.
void check_memory(const Operation& o, const ncclComm& comm) {
  const auto [in, out] = extent_of(o, comm.rank, comm.size);
  if (in > 0) fake_cuda::check_access(o.in, in, bytes_of(o.type));
  if (out > 0) fake_cuda::check_access(o.out, out, bytes_of(o.type));
}

bool agree(const Operation& a, const Operation& b) {
  if (a.count != b.count || a.type != b.type) return false;
  if (is_message(a.kind)) return true;
  const bool reduces = a.kind == Kind::allreduce || a.kind == Kind::reduce_scatter;
  return a.kind == b.kind && (!reduces || a.reduction == b.reduction) &&
         (a.kind != Kind::broadcast || a.peer == b.peer);
}

/// The operations of all ranks that belong to one of `comm`; null where a rank has made none yet.
Operations counterparts(const ncclComm& comm, const std::shared_ptr<Operation>& o) {
  const auto at = [](const auto& map, const auto& key) -> std::shared_ptr<Operation> {
    const auto found = map.find(key);
    return found == map.end() ? nullptr : found->second;
  };
  Operations group;
  if (is_message(o->kind)) {
    const ncclComm* const peer = comm.world->members[static_cast<size_t>(o->peer)];
    const std::pair key{comm.rank, o->number};
    const bool sends = o->kind == Kind::send;
    const auto other = peer == nullptr ? nullptr : at(sends ? peer->open_receives : peer->open_sends, key);
    return sends ? Operations{o, other} : Operations{other, o};
  }
  for (const ncclComm* const member : comm.world->members)
    group.push_back(member == nullptr ? nullptr : at(member->open_collectives, o->number));
  return group;
}

void try_to_end(const ncclComm& comm, const std::shared_ptr<Operation>& o) {
  if (o->ended) return;
  const Operations group = counterparts(comm, o);
  for (const auto& other : group)
    if (other == nullptr || !other->started) return;
  for (const auto& other : group)
    if (!agree(*other, *o)) {
      // NCCL's kernels would now wait for ever, or add up what does not belong together.
      violate(ncclSuccess, rank_text(comm) + " has given NCCL an " + describe(*o) + ", another rank an " +
                               describe(*other) + " in its place");
      for (const auto& each : group) each->started = false;
      return;
    }
  move_data(group);
  for (const auto& other : group) other->ended = true;
}

void forget(ncclComm& comm, const Operation& o) {
  if (o.kind == Kind::send) {
    comm.open_sends.erase({o.peer, o.number});
  } else if (o.kind == Kind::receive) {
    comm.open_receives.erase({o.peer, o.number});
  } else {
    comm.open_collectives.erase(o.number);
  }
}

}  // namespace

void move_data(const Operations& group) {
  const Operation& first = *group[0];
  const size_t bytes = first.count * bytes_of(first.type);
  if (bytes == 0) return;
  switch (first.kind) {
    case Kind::allreduce: {
      const std::vector<char> sum = combined(group, first.count);
      for (const auto& o : group) std::memcpy(o->out, sum.data(), bytes);
      return;
    }
    case Kind::reduce_scatter: {
      const std::vector<char> sum = combined(group, first.count * group.size());
      for (size_t r = 0; r < group.size(); ++r) std::memcpy(group[r]->out, sum.data() + r * bytes, bytes);
      return;
    }
    case Kind::allgather: {
      std::vector<char> whole;
      for (const auto& o : group) {
        const char* const in = static_cast<const char*>(o->in);
        whole.insert(whole.end(), in, in + bytes);
      }
      for (const auto& o : group) std::memcpy(o->out, whole.data(), whole.size());
      return;
    }
    case Kind::broadcast: {
      const void* const from = group[static_cast<size_t>(first.peer)]->in;
      for (const auto& o : group) std::memmove(o->out, from, bytes);
      return;
    }
    case Kind::send:
      std::memmove(group[1]->out, first.in, bytes);
      return;
    case Kind::receive:
      return;
  }
}

bool run_kernel(const std::shared_ptr<Launch>& launch) {
  ncclComm& comm = *launch->comm;
  const Lock lock(state().mutex);
  const auto end = [&] {
    for (const auto& o : launch->operations)
      if (o->ended || comm.stopped) forget(comm, *o);
    launch->ended = true;
    comm.launches.erase(std::find(comm.launches.begin(), comm.launches.end(), launch));
    return true;
  };
  if (comm.stopped) return end();
  // The kernels of a communicator run in the order of the calls, on whatever streams they are.
  if (launch->number != comm.next_to_run) return false;
  const auto now = std::chrono::steady_clock::now();
  if (launch->since == std::chrono::steady_clock::time_point{}) {
    launch->since = now;
    for (const auto& o : launch->operations) {
      check_memory(*o, comm);
      o->started = true;
    }
  }
  for (const auto& o : launch->operations) try_to_end(comm, o);
  if (std::all_of(launch->operations.begin(), launch->operations.end(),
                  [](const auto& o) { return o->ended; })) {
    ++comm.next_to_run;
    return end();
  }
  if (now - launch->since < std::chrono::milliseconds(state().options.hang_ms)) return false;
  std::string text = rank_text(comm) + " hangs in";
  for (const auto& o : launch->operations)
    if (!o->ended) text += " " + describe(*o);
  comm.result = violate(ncclRemoteError, text);
  comm.error = text;
  comm.stopped = true;
  return end();
}

}  // namespace mx::fake_nccl
