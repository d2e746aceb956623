// Modules on a device that has too little memory.
#include <gtest/gtest.h>

#include <string>

#include "engine/base/check.h"
#include "nn/module.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"
#include "tests/support/shortage.h"

namespace mx {
namespace {

using test::contains;
using test::content_of;
using test::error_of;
using test::inputs;

// The values stay where they were, and the error names the line of the program.
TEST(Module, AMoveToADeviceWithoutMemoryChangesNothing) {
  nn::Sequential net{nn::Linear{300, 3000}, nn::ReLU{}, nn::Linear{3000, 4}};
  const NDArray x = inputs({2, 300});
  const auto before = content_of(net(x));
  {
    const test::Shortage shortage;
    const std::string text = error_of<OutOfMemory>([&] { net.to(virt(0)); });
    EXPECT_TRUE(contains(text, "module_move_test.cc:" + std::to_string(__LINE__ - 1))) << text;
    EXPECT_FALSE(contains(text, "module_arrays")) << text;
  }
  EXPECT_THROW(wait_all(), OutOfMemory);
  EXPECT_EQ(cpu(), net.parameters()[0].context());
  EXPECT_EQ(before, content_of(net(x)));
  net.to(virt(0));
  EXPECT_EQ(virt(0), net(x.to(virt(0))).context());
}

}  // namespace
}  // namespace mx
