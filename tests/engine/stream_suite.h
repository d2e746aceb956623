// The properties that every device must have under the engine, as one suite: overlap, waits, memory, errors.
// A test program instantiates it for its devices:
//
//   INSTANTIATE_TEST_SUITE_P(Virtual, StreamSuite, ::testing::Values(StreamSuiteParam{"virt", {virt(0),
//   virt(1)}}));
//
// The tests of a device that does not exist are skipped. Parts: stream_suite.cc (overlap, host and device,
// memory, meaning), stream_suite_graphs.cc (waits and schedules of known graphs), stream_suite_errors.cc.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/stream_ops.h"

namespace mx::test {

struct StreamSuiteParam {
  std::string name;
  std::vector<Context> devices;  // at least one; tests that need only one device use the first
  // set_up and tear_down run before and after each test, for instance to set delays.
  void (*set_up)() = nullptr;
  void (*tear_down)() = nullptr;
};

inline std::string name_of(const ::testing::TestParamInfo<StreamSuiteParam>& info) { return info.param.name; }
inline void PrintTo(const StreamSuiteParam& param, std::ostream* out) { *out << param.name; }

/// An array on a device and its variable. Destroy it only after all work of the engine has ended.
struct StreamArray {
  StreamArray(Engine& owner, Context context, size_t size)
      : engine(owner), memory(context, size), var(owner.new_var()) {}
  ~StreamArray();
  StreamArray(const StreamArray&) = delete;

  Engine& engine;
  DeviceArray memory;
  Var var;
};

class StreamSuite : public ::testing::TestWithParam<StreamSuiteParam> {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Starts an engine with `compute_streams` compute streams per device (0: as many as the device proposes).
  Engine& start(int compute_streams = 0);

  Context device(size_t index = 0) const { return GetParam().devices[index % GetParam().devices.size()]; }
  bool host_code() const { return runs_host_code(device()); }
  StreamOps& ops() const { return stream_ops(device()); }

  std::unique_ptr<StreamArray> array(size_t size, size_t device_index = 0);

  // These push operations. They run on the device of the array that they write.
  void push_fill(const StreamArray& out, double value);
  void push_add(const StreamArray& a, const StreamArray& b, const StreamArray& out);
  void push_copy_in(const std::vector<double>& host, Var host_var, const StreamArray& out);
  void push_copy_out(const StreamArray& from, std::vector<double>& host, Var host_var);
  /// Waits for the array and returns its values.
  std::vector<double> values(const StreamArray& from);

  std::unique_ptr<Engine> engine_;
};

}  // namespace mx::test
