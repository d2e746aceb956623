// Copies in every direction, of every size and at every offset, are bit-exact.
#include <algorithm>
#include <numeric>
#include <random>

#include "tests/conformance/device_suite.h"

namespace mx::conformance {

namespace {

constexpr size_t kSizes[] = {0, 1, 3, 63, 64, 65, 255, 256, 4095, 4097, 100'003, (1 << 20) + 5};
constexpr size_t kOffsets[] = {0, 1, 7, 64};

std::vector<unsigned char> noise(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<unsigned char> data(bytes);
  for (auto& byte : data) byte = static_cast<unsigned char>(random());
  return data;
}

}  // namespace

// Copies a range to the device, to its peer and back. The bytes around the copied range must not change.
TEST_P(DeviceSuite, CopiesAreExactInEveryDirection) {
  Device& there = get_device(peer());
  auto s = stream();
  unsigned seed = 0;
  for (const size_t bytes : kSizes) {
    for (const size_t offset : kOffsets) {
      const size_t room = bytes + 128;
      const std::vector<unsigned char> data = noise(room, ++seed), frame = noise(room, ++seed);
      std::vector<unsigned char> expected = frame, got(room);
      Block<unsigned char> a(device(), room), b(device(), room), c(there, room);
      std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(offset), bytes, expected.begin() + 3);
      for (auto [block, context] :
           {std::pair(b.get(), device().context()), std::pair(c.get(), there.context())}) {
        device().copy_async(block, context, frame.data(), cpu(), room, *s);
      }
      device().copy_async(a.get(), device().context(), data.data(), cpu(), room, *s);
      device().copy_async(b.get() + 3, device().context(), a.get() + offset, device().context(), bytes, *s);
      device().copy_async(c.get() + 3, there.context(), b.get() + 3, device().context(), bytes, *s);
      there.copy_async(got.data(), cpu(), c.get(), there.context(), room, *s);
      s->synchronize();
      ASSERT_EQ(got, expected) << bytes << " bytes at offset " << offset;
    }
  }
}

TEST_P(DeviceSuite, CopiesRunInTheOrderOfTheirStream) {
  auto s = stream();
  Block<uint32_t> x(device(), 1);
  std::vector<uint32_t> in(100), out(100);
  std::iota(in.begin(), in.end(), 1u);
  for (size_t i = 0; i < in.size(); ++i) {
    device().copy_async(x.get(), device().context(), &in[i], cpu(), 4, *s);
    ops().add(*s, x.get(), 1, 1000);
    device().copy_async(&out[i], cpu(), x.get(), device().context(), 4, *s);
  }
  s->synchronize();
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i], in[i] + 1000);
}

TEST_P(DeviceSuite, CopiesInAndOutDoNotHoldEachOther) {
  constexpr size_t kBytes = 1 << 16;
  auto in = stream(StreamKind::copy_in), out = stream(StreamKind::copy_out);
  // Host memory is allocated from cpu(0), because some backends block the caller when they copy other host
  // memory.
  Block<unsigned char> host_in(get_device(cpu()), kBytes), host_out(get_device(cpu()), kBytes);
  Block<unsigned char> a(device(), kBytes), b(device(), kBytes);
  auto in_done = event(), out_done = event();
  for (Stream* held : {in.get(), out.get()}) {
    auto gate = ops().hold(*held);
    device().copy_async(a.get(), device().context(), host_in.get(), cpu(), kBytes, *in);
    device().copy_async(host_out.get(), cpu(), b.get(), device().context(), kBytes, *out);
    in->record(*in_done);
    out->record(*out_done);
    (held == in.get() ? *out : *in).synchronize();
    EXPECT_EQ((held == in.get() ? *in_done : *out_done).query(), EventStatus::pending);
    gate->open();
    held->synchronize();
  }
}

}  // namespace mx::conformance
