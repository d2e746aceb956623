// A rank for the tests of mxrun: rank_program MODE FOLDER
//   sum    ten allreduces, prints the last sum
//   large  allreduces of 8 MB, prints the type of the group and the last sum
//   groups allreduces in a group over each transport, prints their types and the sum
//   long   a thousand allreduces with a pause after each, prints the last sum
//   loop   allreduces until an error, which it prints with the time, and exits with 1
//   early  as loop, but rank 0 ends with 0 after ten rounds
//   never  rank 1 ends with 0 at once
//   away   rank 1 lives on, but joins no group
//   works  after ten rounds, rank 0 works for 33 s and then prints "saved"
//   calm   as stuck, but the others end with 0 after their error
//   group  after ten rounds, rank 1 ends with 0 and rank 0 makes another group
//   count, type, call
//          as loop, but in round 20 rank 1 makes a call with another number of elements, another type, or
//          another call
//   stuck  as loop, but rank 1 sleeps for ever after ten rounds
// After ten rounds every rank writes FOLDER/ready<rank>.
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/world.h"

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "", folder = argc > 2 ? argv[2] : ".";
  try {
    const int rank = mx::comm::place().rank;
    if (mode == "never" && rank == 1) return 0;
    if (mode == "away" && rank == 1) pause();
    if (mode == "groups") {
      float sum = 0;
      for (const char* transport : {"shm", "tcp", "shm+tcp", "mpi"}) {
        const auto group = mx::comm::new_group(transport);
        const auto value = static_cast<float>(rank + 1);
        group->allreduce(&value, &sum, 1, mx::comm::Type::f32);
        std::printf("%s ", group->type().c_str());
      }
      std::printf("%g\n", static_cast<double>(sum));
      return 0;
    }
    const auto group = mx::comm::world();
    if (mode == "large") {
      std::vector<float> values(2'000'000), sums(values.size());
      for (float& value : values) value = static_cast<float>(rank + 1);
      for (int round = 0; round < 5; ++round)
        group->allreduce(values.data(), sums.data(), sums.size(), mx::comm::Type::f32);
      std::printf("%s %g\n", group->type().c_str(), static_cast<double>(sums.back()));
      return 0;
    }
    for (int round = 0;; ++round) {
      mx::comm::report_step(round);
      const auto value = static_cast<float>(rank + 1);
      float sum = 0;
      const bool differs = rank == 1 && round == 20;
      if (differs && mode == "count") {
        const float two[2] = {1, 2};
        float sums[2];
        group->allreduce(two, sums, 2, mx::comm::Type::f32);
      } else if (differs && mode == "type") {
        const int32_t one = 1;
        int32_t all = 0;
        group->allreduce(&one, &all, 1, mx::comm::Type::i32);
      } else if (differs && mode == "call") {
        group->broadcast(&value, &sum, 1, mx::comm::Type::f32, 1);
      }
      group->allreduce(&value, &sum, 1, mx::comm::Type::f32);
      if (round == 10) {
        if (mode == "sum") {
          std::printf("%g\n", static_cast<double>(sum));
          return 0;
        }
        std::ofstream(folder + "/ready" + std::to_string(rank)) << getpid() << "\n";
        if (mode == "early" && rank == 0) return 0;
        if (mode == "works") {
          if (rank == 0) sleep(33);
          if (rank == 0) std::printf("saved\n");
          return 0;
        }
        if (mode == "group" && rank == 1) return 0;
        if (mode == "group") mx::comm::new_group();
        // pause() returns after a signal that has a handler.
        while ((mode == "stuck" || mode == "calm") && rank == 1) pause();
      }
      if (mode == "long" && round == 1000) {
        std::printf("%g\n", static_cast<double>(sum));
        return 0;
      }
      usleep(1000);
    }
  } catch (const std::exception& error) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    std::printf("%.6f %s\n", static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9,
                error.what());
    return mode == "calm" ? 0 : 1;
  }
}
