// The conformance suite of communicators over the communicator for NCCL, on the stand-ins for CUDA and NCCL.
// After each test, no rule of NCCL has been broken, and nothing of NCCL is left.
#include "tests/comm/conformance.h"
#include "tests/cuda/fake_nccl/device_memory_group.h"
#include "tests/cuda/fake_nccl/nccl_group.h"
#include "tests/cuda/fake_nccl/rules.h"

namespace mx::comm {
namespace {

[[maybe_unused]] const bool checks_rules = fake_nccl::check_rules(kNcclDevices);

const ConformanceCase kHostBuffers{.name = "host_memory",
                                   .make = [](int ranks) { return make_nccl_group(ranks); },
                                   .most_ranks = kMostNcclRanks};
const ConformanceCase kDeviceBuffers{
    .name = "device_memory",
    .make = [](int ranks) { return with_device_memory(make_nccl_group(ranks)); },
    .most_ranks = 5,
    .adds_megabytes = true};

INSTANTIATE_TEST_SUITE_P(FakeNccl, Conformance, ::testing::Values(kHostBuffers, kDeviceBuffers),
                         conformance_name);

}  // namespace
}  // namespace mx::comm
