// Operations: their checks, groups, and how they get to a stream.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/fake_nccl/state.h"

namespace mx::fake_nccl {
namespace {

struct Queued {
  ncclComm_t comm;
  cudaStream_t stream;
  std::shared_ptr<Operation> operation;
};

/// The group that the thread is in.
struct Group {
  int depth = 0;
  std::vector<Queued> queued;
  std::vector<ncclComm_t> made;  // communicators that the group makes
  ncclResult_t error = ncclSuccess;

  ~Group() {
    if (depth > 0) refuse(ncclInvalidUsage, "a thread has ended within a group: ncclGroupEnd() is missing");
  }
};
Group& group() {
  static thread_local Group own;
  return own;
}

/// Memory that an operation reads or writes.
struct Range {
  uintptr_t begin, end;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};
Range range_of(const void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  return {begin, begin + bytes};
}

std::string check_buffer(const char* what, const void* memory, size_t bytes, int device) {
  if (bytes == 0) return "";
  if (memory == nullptr) return std::string(what) + " is null";
  for (const char* address :
       {static_cast<const char*>(memory), static_cast<const char*>(memory) + bytes - 1}) {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) return "CUDA has failed";
    if (attributes.type != cudaMemoryTypeDevice) return std::string(what) + " is not memory of a device";
    if (attributes.device != device)
      return std::string(what) + " is memory of device " + std::to_string(attributes.device) + ", not of " +
             std::to_string(device);
  }
  return "";
}

/// NCCL reads and writes the buffers of another rank of the process directly, and gives GPUs access to each
/// other's memory, but not to that of pools.
std::string check_access_of_peers(const ncclComm& comm, const char* what, const void* memory, size_t bytes) {
  const char* const disabled = std::getenv("NCCL_P2P_DIRECT_DISABLE");
  if (bytes == 0 || (disabled != nullptr && std::string(disabled) == "1")) return "";
  for (const ncclComm* const other : comm.world->members)
    if (other != nullptr && fake_cuda::is_pool_memory_closed_to(other->device, memory))
      return std::string(what) + " is memory of a pool that device " + std::to_string(other->device) +
             " of the process may not access";
  return "";
}

/// What is wrong with the buffers of an operation; empty if nothing is.
std::string check_buffers(const ncclComm& comm, const Operation& o) {
  const size_t bytes = o.count * bytes_of(o.type), all = bytes * static_cast<size_t>(comm.size);
  const bool reads = o.kind != Kind::receive && (o.kind != Kind::broadcast || comm.rank == o.peer);
  const size_t in_bytes = !reads ? 0 : o.kind == Kind::reduce_scatter ? all : bytes;
  const size_t out_bytes = o.kind == Kind::send ? 0 : o.kind == Kind::allgather ? all : bytes;
  std::string wrong = check_buffer("the input", o.in, in_bytes, comm.device);
  if (wrong.empty()) wrong = check_buffer("the output", o.out, out_bytes, comm.device);
  if (wrong.empty()) wrong = check_access_of_peers(comm, "the input", o.in, in_bytes);
  if (wrong.empty()) wrong = check_access_of_peers(comm, "the output", o.out, out_bytes);
  if (!wrong.empty() || in_bytes == 0 || out_bytes == 0) return wrong;
  const size_t own = bytes * static_cast<size_t>(comm.rank);
  const void* in_place = o.out;  // where the input may be
  if (o.kind == Kind::allgather) in_place = static_cast<const char*>(o.out) + own;
  if (o.kind == Kind::reduce_scatter)
    in_place = reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(o.out) - own);
  if (o.in != in_place && range_of(o.in, in_bytes).overlaps(range_of(o.out, out_bytes)))
    return "input and output overlap";
  return "";
}

/// A receive may not touch the memory of another message of its group.
std::string check_messages(const std::vector<std::shared_ptr<Operation>>& operations) {
  for (const auto& a : operations) {
    if (a->kind != Kind::receive) continue;
    const Range written = range_of(a->out, a->count * bytes_of(a->type));
    for (const auto& b : operations) {
      if (a == b || !is_message(b->kind)) continue;
      const void* const memory = b->kind == Kind::send ? b->in : b->out;
      if (written.overlaps(range_of(memory, b->count * bytes_of(b->type))))
        return "the memory of a " + describe(*a) + " overlaps that of a " + describe(*b);
    }
  }
  return "";
}

/// Gives the operations of one communicator their numbers. Precondition: the caller holds the mutex.
void number(ncclComm& comm, Launch& launch) {
  launch.number = comm.next_launch++;
  for (const auto& o : launch.operations) {
    ++state().operations;
    if (o->kind == Kind::send) {
      o->number = comm.sent[o->peer]++;
      comm.open_sends[{o->peer, o->number}] = o;
    } else if (o->kind == Kind::receive) {
      o->number = comm.received[o->peer]++;
      comm.open_receives[{o->peer, o->number}] = o;
    } else {
      o->number = comm.collectives++;
      comm.open_collectives[o->number] = o;
    }
  }
}

/// Begins the operations that the group has for one communicator.
ncclResult_t begin_launch(ncclComm_t comm, const std::vector<Queued>& queued) {
  const auto launch = std::make_shared<Launch>();
  launch->comm = comm;
  for (const Queued& q : queued) {
    if (q.comm != comm) continue;
    if (launch->operations.empty()) launch->stream = q.stream;
    if (q.stream != launch->stream)
      return refuse(ncclInvalidUsage, "a group uses several streams for " + rank_text(*comm) +
                                          ", which the stand-in does not have");
    launch->operations.push_back(q.operation);
  }
  if (const std::string wrong = check_messages(launch->operations); !wrong.empty())
    return refuse(ncclInvalidArgument, rank_text(*comm) + ": " + wrong);
  const Lock lock(state().mutex);
  number(*comm, *launch);
  comm->pending.push_back(launch);
  comm->result = ncclInProgress;
  comm->polls = static_cast<int>(state().random() % static_cast<uint64_t>(state().options.most_polls + 1));
  return ncclSuccess;
}

/// Waits for blocking communicators. Together, because they may wait for each other.
ncclResult_t finish_group(const std::vector<ncclComm_t>& comms) {
  for (bool wait = true; wait; std::this_thread::yield()) {
    wait = false;
    for (const ncclComm_t comm : comms) {
      if (!comm->blocking) continue;
      make_progress(comm);
      const Lock lock(state().mutex);
      wait = wait || comm->is_busy();
    }
  }
  const Lock lock(state().mutex);
  ncclResult_t code = ncclSuccess;
  for (const ncclComm_t comm : comms)
    if (comm->result != ncclSuccess && (code == ncclSuccess || code == ncclInProgress)) code = comm->result;
  return code;
}

ncclResult_t end_group() {
  Group& own = group();
  const std::vector<Queued> queued = std::exchange(own.queued, {});
  std::vector<ncclComm_t> comms = std::exchange(own.made, {});
  if (const ncclResult_t error = std::exchange(own.error, ncclSuccess); error != ncclSuccess) return error;
  for (const Queued& q : queued)
    if (std::find(comms.begin(), comms.end(), q.comm) == comms.end()) {
      if (const ncclResult_t code = begin_launch(q.comm, queued); code != ncclSuccess) return code;
      comms.push_back(q.comm);
    }
  return finish_group(comms);
}

/// What is wrong with a communicator for a new operation.
std::string check_usable(ncclComm_t comm) {
  const Lock lock(state().mutex);
  if (state().known.count(comm) == 0) return "something that is no communicator";
  if (comm->life != Life::alive) return rank_text(*comm) + ", which has been finalised, revoked or ended";
  if (comm->is_busy()) return rank_text(*comm) + ", which is still busy with its previous call";
  if (comm->result != ncclSuccess) return rank_text(*comm) + ", which has failed";
  return "";
}

ncclResult_t add(const char* call, ncclComm_t comm, cudaStream_t stream, Operation operation) {
  const auto check = [&]() -> ncclResult_t {
    if (const std::string wrong = check_usable(comm); !wrong.empty())
      return refuse(ncclInvalidArgument, std::string(call) + " with " + wrong);
    const bool rooted = is_message(operation.kind) || operation.kind == Kind::broadcast;
    if (rooted && (operation.peer < 0 || operation.peer >= comm->size))
      return refuse(ncclInvalidArgument, std::string(call) + " with rank " + std::to_string(operation.peer));
    if (const std::string wrong = check_buffers(*comm, operation); !wrong.empty())
      return refuse(ncclInvalidArgument, rank_text(*comm) + ", " + describe(operation) + ": " + wrong);
    if (fake_cuda::device_of(stream) != comm->device)
      return refuse(ncclInvalidArgument,
                    rank_text(*comm) + ", " + describe(operation) + ": the stream is not one of its device");
    return ncclSuccess;
  };
  Group& own = group();
  if (const ncclResult_t code = check(); code != ncclSuccess) {
    if (own.depth > 0 && own.error == ncclSuccess) own.error = code;
    return code;
  }
  // Without elements NCCL leaves a collective out.
  if (operation.count == 0 && !is_message(operation.kind)) return ncclSuccess;
  own.queued.push_back({comm, stream, std::make_shared<Operation>(std::move(operation))});
  return own.depth > 0 ? ncclSuccess : end_group();
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  constexpr size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

bool is_message(Kind kind) { return kind == Kind::send || kind == Kind::receive; }

std::string describe(const Operation& o) {
  constexpr const char* kinds[] = {"allreduce", "reduce_scatter", "allgather",
                                   "broadcast", "send",           "receive"};
  std::string text = std::string(kinds[static_cast<size_t>(o.kind)]) + " of " + std::to_string(o.count) +
                     " elements of type " + std::to_string(o.type);
  if (o.kind == Kind::allreduce || o.kind == Kind::reduce_scatter)
    text += ", reduction " + std::to_string(o.reduction);
  if (o.kind == Kind::broadcast) text += ", root " + std::to_string(o.peer);
  if (is_message(o.kind))
    text += (o.kind == Kind::send ? " to rank " : " from rank ") + std::to_string(o.peer);
  return text;
}

bool have_all_come(const Launch& launch) {
  ncclComm& comm = *launch.comm;
  for (const auto& o : launch.operations) {
    std::vector<int> ranks;
    if (is_message(o->kind)) {
      ranks.push_back(o->peer);
    } else {
      for (int r = 0; r < comm.size; ++r) ranks.push_back(r);
    }
    for (const int r : ranks) {
      if (comm.connected.count(r) > 0) continue;
      const ncclComm* const other = comm.world->members[static_cast<size_t>(r)];
      const std::pair key{comm.rank, o->number};
      const bool come = o->kind == Kind::send      ? other->received.count(comm.rank) > 0
                        : o->kind == Kind::receive ? other->sent.count(comm.rank) > 0
                                                   : other->collectives > o->number;
      if (!come) return false;
      comm.connected.insert(r);
    }
  }
  return true;
}

ncclResult_t enqueue(const std::shared_ptr<Launch>& launch) {
  int before = 0;
  if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(launch->comm->device) != cudaSuccess)
    return ncclUnhandledCudaError;
  const cudaError_t earlier = cudaPeekAtLastError();
  fake_cuda::launch(nullptr, dim3(1), dim3(32), 0, launch->stream, [launch] { return run_kernel(launch); });
  const bool good = cudaPeekAtLastError() == earlier;
  (void)cudaSetDevice(before);
  return good ? ncclSuccess : ncclUnhandledCudaError;
}

bool note_in_group(ncclComm_t comm) {
  if (group().depth == 0) return false;
  group().made.push_back(comm);
  return true;
}

}  // namespace mx::fake_nccl

using namespace mx::fake_nccl;

ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group().depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd() without ncclGroupStart()");
  return --group().depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return add(
      "ncclAllReduce", comm, stream,
      {.kind = Kind::allreduce, .in = in, .out = out, .count = count, .type = type, .reduction = reduction});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclReduceScatter", comm, stream,
             {.kind = Kind::reduce_scatter,
              .in = in,
              .out = out,
              .count = count,
              .type = type,
              .reduction = reduction});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add("ncclAllGather", comm, stream,
             {.kind = Kind::allgather, .in = in, .out = out, .count = count, .type = type});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add("ncclBroadcast", comm, stream,
             {.kind = Kind::broadcast, .in = in, .out = out, .count = count, .type = type, .peer = root});
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add("ncclSend", comm, stream,
             {.kind = Kind::send, .in = in, .count = count, .type = type, .peer = peer});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add("ncclRecv", comm, stream,
             {.kind = Kind::receive, .out = out, .count = count, .type = type, .peer = peer});
}
