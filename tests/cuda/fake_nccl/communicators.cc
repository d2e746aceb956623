// Communicators: how they are made, the states of non-blocking ones, and their ends.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/fake_nccl/state.h"

namespace mx::fake_nccl {
namespace {

constexpr char kMark[] = "stand-in for NCCL";

/// The world of an id; null if ncclGetUniqueId() has not made it.
std::shared_ptr<World> world_of(const ncclUniqueId& id) {
  uint64_t number = 0;
  if (std::memcmp(id.internal, kMark, sizeof kMark) != 0) return nullptr;
  std::memcpy(&number, id.internal + sizeof kMark, sizeof number);
  const auto found = state().worlds.find(number);
  return found == state().worlds.end() ? nullptr : found->second;
}

/// Begins something that lets a communicator be busy.
void begin(ncclComm& comm) {
  comm.result = ncclInProgress;
  comm.polls = static_cast<int>(state().random() % static_cast<uint64_t>(state().options.most_polls + 1));
}

void fail(ncclComm& comm, ncclResult_t code, const std::string& text) {
  comm.result = violate(code, text);
  comm.error = text;
}

/// All ranks are there: looks whether each has a device of its own.
void end_making(ncclComm& comm) {
  comm.making = false;
  for (const ncclComm* const other : comm.world->members)
    if (other != &comm && other->device == comm.device)
      fail(comm, ncclInvalidUsage,
           rank_text(comm) + " and " + rank_text(*other) + " have the same device " +
               std::to_string(comm.device));
}

bool has_left(const ncclComm* comm) { return comm == nullptr || comm->life != Life::alive || comm->stopped; }

/// Waits for what a call has begun if the communicator is blocking. Otherwise returns its state.
ncclResult_t finish_call(ncclComm_t comm) {
  for (;;) {
    {
      const Lock lock(state().mutex);
      if (!comm->is_busy() || !comm->blocking) return comm->result;
    }
    make_progress(comm);
    std::this_thread::yield();
  }
}

/// Ends the kernels of a communicator, and waits for those that have started.
void stop(ncclComm_t comm) {
  {
    const Lock lock(state().mutex);
    comm->stopped = true;
    comm->pending.clear();
    comm->open_collectives.clear();
    comm->open_sends.clear();
    comm->open_receives.clear();
  }
  // A device that is lost has dropped its kernels.
  const auto has_started = [](const auto& launch) {
    return launch->since != std::chrono::steady_clock::time_point{} &&
           fake_cuda::device_of(launch->stream) >= 0;
  };
  for (;;) {
    {
      const Lock lock(state().mutex);
      if (std::none_of(comm->launches.begin(), comm->launches.end(), has_started)) return;
    }
    std::this_thread::yield();
  }
}

/// The state of a handle for a call that ends it. Null if there is none.
ncclComm_t living(ncclComm_t comm, const char* call) {
  State& s = state();
  if (s.known.count(comm) == 0) {
    violate(ncclInvalidArgument, std::string(call) + " of something that is no communicator");
    return nullptr;
  }
  if (comm->life != Life::ended) return comm;
  violate(ncclInvalidArgument, std::string(call) + " of " + rank_text(*comm) + ", which has ended");
  return nullptr;
}

}  // namespace

State& state() {
  static State* const only = [] {
    auto* s = new State;  // never destroyed: kernels may still run
    if (const char* seed = std::getenv("MX_FAKE_NCCL_SEED"); seed != nullptr)
      s->options.seed = std::strtoull(seed, nullptr, 10);
    s->random.seed(s->options.seed);
    return s;
  }();
  return *only;
}

void set_options(const Options& options) {
  const Lock lock(state().mutex);
  state().options = options;
  state().random.seed(options.seed);
}

ncclResult_t violate(ncclResult_t code, const std::string& text) {
  state().violations.push_back(text);
  return code;
}

ncclResult_t refuse(ncclResult_t code, const std::string& text) {
  const Lock lock(state().mutex);
  return violate(code, text);
}

std::string rank_text(const ncclComm& comm) {
  return "rank " + std::to_string(comm.rank) + " of communicator " + std::to_string(comm.world->id);
}

std::vector<std::string> take_violations() {
  const Lock lock(state().mutex);
  return std::exchange(state().violations, {});
}

int live_communicators() {
  const Lock lock(state().mutex);
  return static_cast<int>(std::count_if(state().known.begin(), state().known.end(),
                                        [](ncclComm_t comm) { return comm->life != Life::ended; }));
}

uint64_t operations() {
  const Lock lock(state().mutex);
  return state().operations;
}

std::string waiting() {
  const Lock lock(state().mutex);
  std::string text;
  const auto add = [&](const ncclComm& comm, const Launch& launch, const char* what) {
    for (const auto& o : launch.operations)
      if (!o->ended) text += rank_text(comm) + ": " + describe(*o) + what + "\n";
  };
  for (const ncclComm_t comm : state().known) {
    if (comm->stopped) continue;
    for (const auto& launch : comm->pending) add(*comm, *launch, ", not enqueued");
    for (const auto& launch : comm->launches) {
      const bool started = launch->since != std::chrono::steady_clock::time_point{};
      add(*comm, *launch, started ? ", started" : ", enqueued");
    }
  }
  return text;
}

void make_progress(ncclComm_t comm) {
  Lock lock(state().mutex);
  if (!comm->is_busy() || comm->stopped) return;
  if (comm->making && comm->world->joined < comm->size) return;
  for (const auto& launch : comm->pending)
    if (!have_all_come(*launch)) return;
  if (comm->polls-- > 0) return;
  if (comm->making) end_making(*comm);
  const auto launches = std::exchange(comm->pending, {});
  for (const auto& launch : launches) comm->launches.push_back(launch);
  lock.unlock();
  ncclResult_t code = ncclSuccess;
  for (const auto& launch : launches)
    if (code == ncclSuccess) code = enqueue(launch);
  lock.lock();
  if (!comm->is_busy()) return;
  if (code != ncclSuccess) return fail(*comm, code, rank_text(*comm) + ": CUDA has refused a kernel");
  if (comm->life == Life::finalising) {
    const auto& members = comm->world->members;
    if (!comm->launches.empty() || !std::all_of(members.begin(), members.end(), has_left)) return;
    comm->life = Life::finalised;
  }
  comm->result = ncclSuccess;
}

}  // namespace mx::fake_nccl

using namespace mx::fake_nccl;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Lock lock(state().mutex);
  const auto world = std::make_shared<World>();
  world->id = state().next_world++;
  state().worlds[world->id] = world;
  *id = {};
  std::memcpy(id->internal, kMark, sizeof kMark);
  std::memcpy(id->internal + sizeof kMark, &world->id, sizeof world->id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* result, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  ncclComm_t comm = nullptr;
  {
    const Lock lock(state().mutex);
    const std::shared_ptr<World> world = world_of(id);
    if (world == nullptr) return violate(ncclInvalidArgument, "an id that ncclGetUniqueId() has not made");
    if (config != nullptr && config->magic != 0xcafebeef)
      return violate(ncclInvalidArgument, "a configuration that does not begin as NCCL_CONFIG_INITIALIZER");
    if (world->members.empty()) world->members.resize(static_cast<size_t>(std::max(size, 0)));
    if (size < 1 || rank < 0 || rank >= size || world->members.size() != static_cast<size_t>(size))
      return violate(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                              " in a communicator of " +
                                              std::to_string(world->members.size()));
    ncclComm_t& place = world->members[static_cast<size_t>(rank)];
    if (place != nullptr) return violate(ncclInvalidUsage, rank_text(*place) + " is made twice");
    place = comm = new ncclComm;
    state().known.insert(comm);
    comm->rank = rank;
    comm->size = size;
    comm->device = device;
    comm->blocking = config == nullptr || config->blocking != 0;
    comm->world = world;
    comm->making = true;
    ++world->joined;
    begin(*comm);
    *result = comm;
  }
  return note_in_group(comm) ? ncclSuccess : finish_call(comm);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  {
    const Lock lock(state().mutex);
    if (living(comm, "ncclCommGetAsyncError") == nullptr) return ncclInvalidArgument;
  }
  make_progress(comm);
  const Lock lock(state().mutex);
  *result = comm->result;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  {
    const Lock lock(state().mutex);
    if (living(comm, "ncclCommFinalize") == nullptr) return ncclInvalidArgument;
    if (comm->life != Life::alive || comm->is_busy())
      return violate(ncclInvalidArgument,
                     "ncclCommFinalize of " + rank_text(*comm) +
                         (comm->is_busy() ? ", which is busy" : ", for the second time"));
    comm->life = Life::finalising;
    begin(*comm);
  }
  return note_in_group(comm) ? ncclSuccess : finish_call(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  {
    const Lock lock(state().mutex);
    if (living(comm, "ncclCommDestroy") == nullptr) return ncclInvalidArgument;
    if (comm->is_busy())
      return violate(ncclInvalidArgument, "ncclCommDestroy of " + rank_text(*comm) + ", which is busy");
    if (!comm->blocking && comm->life == Life::alive)
      return violate(ncclInvalidUsage,
                     "ncclCommDestroy of " + rank_text(*comm) + ", which has not been finalised");
  }
  if (comm->life == Life::alive)
    if (const ncclResult_t code = ncclCommFinalize(comm); code != ncclSuccess) return code;
  const Lock lock(state().mutex);
  comm->life = Life::ended;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const Lock lock(state().mutex);
    if (living(comm, "ncclCommAbort") == nullptr) return ncclInvalidArgument;
  }
  stop(comm);
  const Lock lock(state().mutex);
  comm->life = Life::ended;
  comm->result = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  {
    const Lock lock(state().mutex);
    if (living(comm, "ncclCommRevoke") == nullptr) return ncclInvalidArgument;
    if (flags != 0) return violate(ncclInvalidArgument, "ncclCommRevoke with flags");
  }
  stop(comm);
  const Lock lock(state().mutex);
  comm->life = Life::revoked;
  comm->result = ncclSuccess;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  constexpr const char* names[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return code >= 0 && code < ncclNumResults ? names[code] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  const Lock lock(state().mutex);
  return state().known.count(comm) == 0 ? "" : comm->error.c_str();
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
