// Runs every collective of the module for MPI in each process of `mpirun`, and compares with the serial fold;
// and what the conformance suite (conformance_program.cc) does not ask of MPI.
//
// Usage: mpirun -n N comm_mpi_program [MODE]
//   names:    the name of rank 1's call differs from the others' behind its first 300 characters
//   barrier:  rank 1 makes a barrier where the others add values; with "barrier any", in any order
//   pair:     rank 0 sends to rank 1, which is in a barrier with rank 2
//   answer:   the same, but rank 1 comes to its barrier first
//   leaves:   rank 1 destroys its group; the others must get a PeerLost at once
//   aborts:   rank 1 aborts its group; the same
//   queue:    a call that is queued behind a slow one still has all its time
//   ahead:    rank 0 sends to the last rank while that one has not noticed yet that all are in the barrier
//   fork:     a child of rank 0 may only destroy its copy of the group
//   exits:    rank 1 calls exit(0) while it has its group; the others must get a PeerLost at once;
//             with "exits busy", while a call of another group runs, which the others never make;
//             with "exits T", the group is one of transport T, and MPI has only carried the address of the
//             job
//   late:     rank 1 works for longer than the time limit after its last call
//   stops:    rank 1 is stopped after its last call; the others end nevertheless
//   own:      the program initialises and finalises MPI itself
// Prints "rank R of N: passed" and exits 0 if everything holds.
#include <mpi.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/module.h"
#include "comm/world.h"
#include "engine/base/error.h"
#include "tests/comm/collective_checks.h"
#include "tests/comm/rank_processes.h"
#include "tests/support/forking.h"

namespace {

using namespace mx::comm;

Place place_of_mpirun() {
  Place place;
  place.started_by = "mpirun";
  place.rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
  place.size = std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
  return place;
}

// MPI's own minimum of a NaN and a number depends on their order.
void check_nan(Communicator& group) {
  for (const size_t count : {size_t{3}, size_t{100'003}})
    for (const Reduction reduction : {Reduction::min, Reduction::max})
      for (const int rank : {0, group.size() - 1}) {
        std::vector<float> values(count, group.rank() == rank ? std::nanf("") : 1.f);
        CallOptions options;
        options.order = Order::any;
        options.reduction = reduction;
        group.allreduce(values.data(), values.data(), count, Type::f32, options);
        bool all = true;
        for (const float value : values) all = all && std::isnan(value);
        expect(all, "a NaN of rank " + std::to_string(rank) + " in any order");
      }
}

// Expects an error whose text has all parts, long before the deadline of the call.
template <class E>
void expect_error_of(Communicator& group, const std::vector<std::string>& parts,
                     const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
    expect(false, "expected an error");
  } catch (const E& e) {
    for (const std::string& part : parts)
      expect(std::string(e.what()).find(part) != std::string::npos,
             "expected " + part + " in the message: " + e.what());
  } catch (const std::exception& e) {
    expect(false, std::string("expected another error than: ") + e.what());
  }
  expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(20), "the error comes at once");
  expect(group.failure() != nullptr, "the group remembers its failure");
}

CallOptions named(const std::string& what) {
  CallOptions options;
  options.what = what;
  return options;
}

template <class E>
void expect_error(Communicator& group, size_t count, const std::string& part) {
  std::vector<float> values(count, 1.f);
  CallOptions options = named("fc1.weight");
  options.timeout_ms = 1500;
  expect_error_of<E>(group, {part},
                     [&] { group.allreduce(values.data(), values.data(), count, Type::f32, options); });
}

void check_mismatches(const std::shared_ptr<Communicator>& group, const std::string& mode) {
  const int rank = group->rank();
  std::vector<float> values(16, 1.f);
  const auto add = [&](const CallOptions& options) {
    group->allreduce(values.data(), values.data(), 10, Type::f32, options);
  };
  if (mode == "names") {
    const std::string start(300, 'x');
    expect_error_of<mx::ProtocolError>(*group, {"xxx", "differ further behind"},
                                       [&] { add(named(start + (rank == 1 ? "b" : "a"))); });
  } else if (mode == "barrier" || mode == "barrier any") {
    CallOptions options = named("fc1.weight");
    if (mode == "barrier any") options.order = Order::any;
    expect_error_of<mx::ProtocolError>(*group, {"10 x f32", "barrier 'no value'"}, [&] {
      if (rank == 1)
        group->barrier(named("no value"));
      else
        add(options);
    });
  } else {  // pair, answer
    if ((rank == 0) == (mode == "answer")) usleep(300'000);
    const auto call = [&] {
      if (rank == 0)
        group->send(values.data(), 10, Type::f32, 1);
      else
        group->barrier();
    };
    if (rank < 2) expect_error_of<mx::ProtocolError>(*group, {"send of 10", "barrier"}, call);
    if (rank == 2) expect_error_of<mx::PeerLost>(*group, {"send of 10", "barrier"}, call);
  }
}

void check_departures(std::shared_ptr<Communicator> group, const std::string& mode) {
  const int rank = group->rank();
  std::vector<float> values(16, 1.f);
  const auto add = [&] {
    group->allreduce(values.data(), values.data(), 10, Type::f32, named("fc1.weight"));
  };
  add();
  if (rank == 1) {
    if (mode == "aborts") group->abort(std::make_exception_ptr(mx::Cancelled("by rank 1")));
    if (mode == "exits") std::exit(0);
    group = nullptr;
  } else if (mode == "aborts") {
    expect_error_of<mx::PeerLost>(*group, {"rank 1 on host", "by rank 1", "fc1.weight"}, add);
  } else {
    expect_error_of<mx::PeerLost>(*group, {"rank 1 on host", "left the group", "fc1.weight"}, add);
  }
}

// The end of MPI waits for all processes, so a rank must tell the others before that it makes no more calls.
int exit_in_the_middle(const std::string& mode) {
  const Place place = place_of_mpirun();
  std::shared_ptr<Communicator> group, other;
  if (mode == "exits busy") {
    other = load_module("mpi").make({place, nullptr, "other", 60000});
    group = load_module("mpi").make({place, nullptr, "test", 60000});
  } else {
    group = new_group(mode.substr(sizeof "exits"));
  }
  std::vector<float> values(16, 1.f);
  const auto add = [&](Communicator& to) {
    to.allreduce(values.data(), values.data(), 10, Type::f32, named("fc1.weight"));
  };
  add(*group);
  if (place.rank == 1) {
    static float value = 1;
    Request request{Collective::allreduce, &value, &value, 1, Type::f32, 0, {}, [](auto) {}};
    if (other != nullptr) other->start(std::move(request));
    std::exit(0);
  }
  expect_error_of<mx::PeerLost>(*group, {"rank 1 on ", "fc1.weight"}, [&] { add(*group); });
  _exit(report_checks(place.rank, place.size));
}

// The second call of rank 0 waits in the queue for longer than its time limit, and then half a second for
// rank 1.
void check_queue(Communicator& group) {
  std::array<float, 2> values{1, 1};
  std::array<std::promise<std::exception_ptr>, 2> ended;
  for (size_t i = 0; i < 2; ++i) {
    if (group.rank() == 1) usleep(i == 0 ? 2'500'000 : 500'000);
    Request request{Collective::allreduce, &values[i], &values[i], 1, Type::f32, 0, {}, {}};
    if (i == 1) request.options.timeout_ms = 2000;
    request.done = [&ended, i](std::exception_ptr error) { ended[i].set_value(std::move(error)); };
    group.start(std::move(request));
  }
  for (size_t i = 0; i < 2; ++i) {
    expect(ended[i].get_future().get() == nullptr, "call " + std::to_string(i) + " of a queue");
    expect(values[i] == static_cast<float>(group.size()), "sum " + std::to_string(i) + " of a queue");
  }
}

// Stops the thread that makes the calls of this process for two milliseconds of every three, as a machine
// with too few cores does.
class Interruptions {
 public:
  explicit Interruptions(Communicator& group) {
    struct sigaction action {};
    action.sa_handler = [](int) { usleep(2000); };
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
    std::promise<pid_t> thread;
    Request request;
    request.done = [&thread](std::exception_ptr) { thread.set_value(gettid()); };
    group.start(std::move(request));
    thread_ = std::thread([this, id = thread.get_future().get()] {
      for (; !ended_; usleep(3000)) syscall(SYS_tgkill, getpid(), id, SIGUSR1);
    });
  }
  ~Interruptions() {
    ended_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

// When rank 0 leaves the barrier, the last rank may still wait there for what rank 1 passes on.
void check_messages_behind_barriers(Communicator& group) {
  const int last = group.size() - 1;
  std::optional<Interruptions> interruptions;
  if (group.rank() == 1)
    interruptions.emplace(group);
  else
    group.barrier();
  float sent = 0, got = -1;
  for (int i = 0; i < 1000; ++i) {
    group.barrier();
    if (group.rank() == 0) group.send(&sent, 1, Type::f32, last);
    if (group.rank() == last) group.receive(&got, 1, Type::f32, 0);
    if (group.rank() == last) expect(got == sent, "message " + std::to_string(i) + " behind a barrier");
    ++sent;
  }
}

void check_fork(std::shared_ptr<Communicator> group) {
  if (group->rank() == 0) {
    const auto child = [&]() -> int {
      const std::function<void()> calls[] = {
          [&] { group->barrier(); },
          [&] { static_cast<void>(group->allocate(100)); },
          [&] { group->abort(std::make_exception_ptr(mx::Cancelled("child"))); },
          [&] { std::rethrow_exception(group->failure()); },
          [&] {
            load_module("mpi").make({place_of_mpirun(), nullptr, "child", 60000});
          },
      };
      for (const auto& call : calls)
        if (!mx::test::is_refused(call)) return 1;
      group = nullptr;
      std::exit(0);  // with the handlers of MPI and of the modules
    };
    const std::string end = mx::test::run_in_child(child, fork);
    expect(end == "exit code 0", "the end of the child: " + end);
  }
  float value = 1;
  group->allreduce(&value, &value, 1, Type::f32);
  expect(value == static_cast<float>(group->size()), "the sum after the fork");
}

// A callback may hold the last reference to its group, and a call may be running when the process ends.
void check_ends(const Place& place) {
  // Never destroyed: the calls use it until the very end of the process.
  static auto& values = *new std::vector<float>(1000, 1.f);
  for (int i = 0; i < 40; ++i) {
    auto group = load_module("mpi").make({place, nullptr, "end" + std::to_string(i), 60000});
    Request request{Collective::allreduce, values.data(), values.data(), values.size(), Type::f32, 0, {}, {}};
    request.done = [group](std::exception_ptr error) {
      expect(error == nullptr, "the last call of a group");
    };
    Communicator& started = *group;
    group = nullptr;
    started.start(std::move(request));
  }
}

// A program may initialise and finalise MPI itself, even while a group lives.
int use_own_mpi() {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  const Place place = place_of_mpirun();
  const auto group = load_module("mpi").make({place, nullptr, "own", 60000});
  float value = 1;
  group->allreduce(&value, &value, 1, Type::f32);
  expect(value == static_cast<float>(place.size), "the sum before MPI_Finalize");
  // Their ends have ended when their destructors return, so MPI may be finalised.
  for (int i = 0; i < 20; ++i) load_module("mpi").make({place, nullptr, "own", 60000});
  MPI_Finalize();
  expect_error<mx::InvalidState>(*group, 1, "finalised");
  return report_checks(place.rank, place.size);
}

// A rank may work on after its last call for as long as it likes. If it is stopped there, the job fails.
int end_late(const std::string& mode) {
  setenv("MX_TIMEOUT_MS", "5000", 1);
  const Place place = place_of_mpirun();
  float value = 1;
  world()->allreduce(&value, &value, 1, Type::f32);
  expect(value == static_cast<float>(place.size), "the last sum");
  if (place.rank == 1 && mode == "stops") raise(SIGSTOP);
  if (place.rank == 1 && mode == "late") sleep(8);
  return report_checks(place.rank, place.size);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? std::string(argv[1]) + " " + argv[2] : argc > 1 ? argv[1] : "";
  if (mode == "own") return use_own_mpi();
  if (mode == "late" || mode == "stops") return end_late(mode);
  if (mode.starts_with("exits ")) return exit_in_the_middle(mode);
  const Place place = place_of_mpirun();
  auto group = load_module("mpi").make({place, nullptr, "test", 60000});
  const std::string shared = load_module("mpi").share_from_first(place, place.rank == 0 ? "address" : "");
  expect(shared == "address", "share_from_first");
  const bool fails = !mode.empty() && mode != "fork" && mode != "queue" && mode != "ahead";
  std::optional<RankProcesses> all;
  if (fails) {
    all.emplace(place.rank, place.size, -1, [&place](const std::string& value) {
      return load_module("mpi").share_from_first(place, value);
    });
  }
  if (mode == "queue") {
    check_queue(*group);
  } else if (mode == "ahead") {
    check_messages_behind_barriers(*group);
  } else if (mode == "fork") {
    check_fork(std::move(group));
  } else if (mode == "leaves" || mode == "aborts" || mode == "exits") {
    check_departures(std::move(group), mode);
  } else if (!mode.empty()) {
    check_mismatches(group, mode);
  } else {
    check_nan(*group);
    check_collectives(*group, kHostMemory);
  }
  if (mode.empty()) check_ends(place);
  const int status = report_checks(place.rank, place.size);
  // After a failure other processes may wait in MPI for ever; leave without its clean-up. When one leaves so,
  // mpirun ends the others, which may not have looked at their errors yet.
  if (fails) {
    if (mode != "exits") all->meet();
    _exit(status);
  }
  return status;
}
