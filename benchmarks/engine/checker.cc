#include "benchmarks/engine/checker.h"

#include <sched.h>

#include "benchmarks/support/clock.h"

namespace mx::bench {
namespace {

constexpr int32_t kWriter = -1'000'000;
constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

Checker::Checker(const Pattern& pattern, bool ordered)
    : pattern_(pattern),
      ordered_(ordered),
      expected_(pattern.size()),
      variables_(pattern.variables),
      runs_(pattern.size()) {
  std::vector<uint32_t> version(pattern.variables, 0), reads(pattern.variables, 0);
  for (uint32_t i = 0; i < pattern.size(); ++i) {
    const PatternOp& op = pattern.ops[i];
    for (int k = 0; k < op.read_count; ++k) {
      expected_[i].read_versions[k] = version[op.reads[k]];
      ++reads[op.reads[k]];
    }
    if (!op.writes) continue;
    expected_[i].write_version = version[op.write]++;
    expected_[i].reads_before_write = reads[op.write];
    reads[op.write] = 0;
  }
}

void Checker::reset() {
  for (Variable& variable : variables_) {
    variable.inside.store(0, kRelaxed);
    variable.version.store(0, kRelaxed);
    variable.reads_of_version.store(0, kRelaxed);
    variable.payload = 0;
  }
  for (auto& runs : runs_) runs.store(0, kRelaxed);
  wrong_.store(0, kRelaxed);
}

bool Checker::enter(uint32_t i) {
  const PatternOp& op = pattern_.ops[i];
  const Expected& expected = expected_[i];
  bool good = true;
  for (int k = 0; k < op.read_count; ++k) {
    Variable& variable = variables_[op.reads[k]];
    good &= variable.inside.fetch_add(1, kRelaxed) >= 0;
    if (ordered_) good &= variable.version.load(kRelaxed) == expected.read_versions[k];
    if (ordered_) good &= variable.payload == expected.read_versions[k];
  }
  if (op.writes) {
    Variable& variable = variables_[op.write];
    good &= variable.inside.fetch_add(kWriter, kRelaxed) == 0;
    if (ordered_) good &= variable.version.load(kRelaxed) == expected.write_version;
    if (ordered_) good &= variable.reads_of_version.load(kRelaxed) == expected.reads_before_write;
  }
  return good;
}

bool Checker::leave(uint32_t i) {
  const PatternOp& op = pattern_.ops[i];
  const Expected& expected = expected_[i];
  bool good = true;
  if (op.writes) {
    Variable& variable = variables_[op.write];
    variable.reads_of_version.store(0, kRelaxed);
    variable.payload = variable.version.load(kRelaxed) + 1;
    variable.version.fetch_add(1, kRelaxed);
    good &= variable.inside.fetch_sub(kWriter, kRelaxed) == kWriter;
  }
  for (int k = 0; k < op.read_count; ++k) {
    Variable& variable = variables_[op.reads[k]];
    if (ordered_) good &= variable.version.load(kRelaxed) == expected.read_versions[k];
    variable.reads_of_version.fetch_add(1, kRelaxed);
    good &= variable.inside.fetch_sub(1, kRelaxed) > 0;
  }
  return good;
}

void Checker::run(uint32_t i) {
  runs_[i].fetch_add(1, kRelaxed);
  bool good = enter(i);
  // Sometimes stays inside for a while, so that an operation that must be excluded gets the time to enter. On
  // one core it can enter only if this thread yields the processor.
  const uint32_t mix = (i * 2654435761u) >> 20;
  if (mix % 64 == 0) {
    sched_yield();
  } else if (mix % 8 == 0) {
    spin(200);
  }
  good &= leave(i);
  if (!good) wrong_.fetch_add(1, kRelaxed);
}

uint64_t Checker::violations() const {
  uint64_t count = wrong_.load(kRelaxed);
  for (const auto& runs : runs_) count += runs.load(kRelaxed) != 1 ? 1 : 0;
  return count;
}

}  // namespace mx::bench
