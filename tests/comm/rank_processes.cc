#include "tests/comm/rank_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "comm/deadline.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

constexpr int kMostProcesses = 64;
constexpr size_t kMostBytes = size_t{4} << 20;  // of one rank in exchange()
constexpr int64_t kMeetingMs = 120'000;

RankProcesses* processes_of_job = nullptr;

}  // namespace

struct RankProcesses::Memory {
  std::atomic<unsigned> arrived;  // in all meetings so far
  std::atomic<bool> failed;
  std::atomic<int> counters[kMostProcesses];
  size_t bytes[kMostProcesses];
  unsigned char data[kMostProcesses][kMostBytes];  // pages that nobody writes take no memory
};

RankProcesses::RankProcesses(int rank, int size, int ending, const ShareFromFirst& share)
    : rank_(rank), size_(size), ending_(ending) {
  MX_CHECK(size <= kMostProcesses, InvalidArgument, "[processes] expected at most ", kMostProcesses,
           " processes, got ", size);
  if (rank == 0) {
    memory_file_ = memfd_create("mx_rank_processes", MFD_CLOEXEC);
    MX_CHECK(memory_file_ >= 0 && ftruncate(memory_file_, sizeof(Memory)) == 0, OutOfMemory,
             "[processes] expected ", sizeof(Memory), " bytes of shared memory, got ", std::strerror(errno));
  }
  const std::string path = share("/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(memory_file_));
  if (rank != 0) memory_file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* const memory =
      memory_file_ < 0 ? MAP_FAILED
                       : mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, memory_file_, 0);
  MX_CHECK(memory != MAP_FAILED, InvalidState, "[processes] expected to map ", path, ", got ",
           std::strerror(errno));
  memory_ = static_cast<Memory*>(memory);
  processes_of_job = this;
  meet();
}

RankProcesses::~RankProcesses() {
  processes_of_job = nullptr;
  munmap(memory_, sizeof(Memory));
  close(memory_file_);
}

RankProcesses* RankProcesses::of_job() { return processes_of_job; }

bool RankProcesses::runs_next_ending() {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  const bool runs = endings_[std::string(test.test_suite_name()) + "." + test.name()]++ == ending_;
  has_run_ending_ = has_run_ending_ || runs;
  return runs;
}

void RankProcesses::meet() {
  const unsigned all = ++rounds_ * static_cast<unsigned>(size_);
  memory_->arrived.fetch_add(1);
  const Deadline deadline = Deadline::after_ms(kMeetingMs);
  while (memory_->arrived.load() < all) {
    if (memory_->failed.load()) throw Cancelled("a test has failed in another process");
    if (deadline.passed()) throw Timeout("another process does not come to the end of this part of the test");
    usleep(200);
  }
}

void RankProcesses::fail() { memory_->failed.store(true); }

std::vector<std::vector<unsigned char>> RankProcesses::exchange(const std::vector<unsigned char>& bytes) {
  const auto me = static_cast<size_t>(rank_);
  MX_CHECK(bytes.size() <= kMostBytes, InvalidArgument, "[processes] expected at most ", kMostBytes,
           " bytes, got ", bytes.size());
  memory_->bytes[me] = bytes.size();
  std::copy(bytes.begin(), bytes.end(), memory_->data[me]);
  meet();
  std::vector<std::vector<unsigned char>> all;
  for (size_t r = 0; r < static_cast<size_t>(size_); ++r)
    all.emplace_back(memory_->data[r], memory_->data[r] + memory_->bytes[r]);
  meet();
  return all;
}

std::atomic<int>* RankProcesses::counters() {
  memory_->counters[rank_].store(0);
  meet();
  return memory_->counters;
}

void meet_processes() {
  if (processes_of_job != nullptr) processes_of_job->meet();
}

void exchange_between_processes(std::vector<std::vector<unsigned char>>& by_rank) {
  if (processes_of_job == nullptr) return;
  by_rank = processes_of_job->exchange(by_rank[static_cast<size_t>(processes_of_job->rank())]);
}

SharedCounters::SharedCounters(int ranks) {
  if (processes_of_job != nullptr) {
    counters_ = processes_of_job->counters();
  } else {
    own_ = std::make_unique<std::atomic<int>[]>(static_cast<size_t>(ranks));
    counters_ = own_.get();
  }
}

}  // namespace mx::comm
