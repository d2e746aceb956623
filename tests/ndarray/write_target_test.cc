// Views whose elements share memory must not be written: every thread would write all of it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ndarray/launch.h"
#include "ndarray/ndarray.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

void run_double(const KernelArgs& args) {
  for (int64_t i = 0; i < args.in[0].numel(); ++i) args.in[0].as<float>()[i] *= 2;
}
const Kernel kDouble = {"double", run_double, nullptr, 100};

void expect_refused(const std::string& text, const std::string& op, const std::string& shape) {
  EXPECT_TRUE(contains(text, "[" + op + "] expected a target whose elements do not share memory")) << text;
  EXPECT_TRUE(contains(text, "shape " + shape)) << text;
  EXPECT_TRUE(contains(text, "strides")) << text;
}

TEST(WriteTarget, AViewThatRepeatsElementsIsRefusedByEveryFormOfWriting) {
  for (const Context context : {cpu(), virt(0)}) {
    const NDArray one = ones({1}, f32, context);
    NDArray wide = one.broadcast_to({1 << 20});
    const NDArray values = zeros({1 << 20}, f32, context);
    const auto refused = [&](const std::string& op, const auto& write) {
      expect_refused(error_of<InvalidArgument>(write), op, "(1048576,)");
    };
    refused("copy_from", [&] { wide.copy_from(values); });
    refused("copy_from", [&] { wide.copy_from(zeros({1 << 20})); });  // also for copies from or to a device
    refused("fill_", [&] { wide.fill_(3); });
    refused("assign", [&] { wide[{colon}] = values; });
    refused("assign", [&] { wide[{colon}] = values[{colon}]; });
    refused("fill_", [&] { wide[{colon}] = 3; });
    refused("double", [&] {
      detail::ArrayImpl* const inputs[] = {&wide.impl()};
      launch({.kernel = &kDouble, .inputs = inputs, .updated_inputs = 1, .work = 1});
    });
    refused("double", [&] {
      detail::ArrayImpl* const outputs[] = {&wide.impl()};
      launch({.kernel = &kDouble, .outputs = outputs, .work = 1});
    });
    EXPECT_EQ(1, one.item<float>()) << "nothing has been written";
  }
}

TEST(WriteTarget, AViewWhoseElementsOverlapIsRefused) {
  const NDArray x = arange(12, f32);
  NDArray windows = x.as_strided({10, 3}, {1, 1}, 0);
  expect_refused(error_of<InvalidArgument>([&] { windows.fill_(1); }), "fill_", "(10, 3)");
  expect_refused(error_of<InvalidArgument>([&] {
                   windows.copy_from(zeros({10, 3}));
                 }),
                 "copy_from", "(10, 3)");
  NDArray same = x.as_strided({2, 2}, {0, 1}, 0), back = x.as_strided({4, 2}, {-1, 1}, 3);
  expect_refused(error_of<InvalidArgument>([&] { same.fill_(1); }), "fill_", "(2, 2)");
  expect_refused(error_of<InvalidArgument>([&] { back.fill_(1); }), "fill_", "(4, 2)");
  EXPECT_EQ(3, x[3].item<float>()) << "nothing has been written";
}

// No view whose elements have places of their own is refused.
TEST(WriteTarget, ViewsOfDistinctElementsAreWritten) {
  const NDArray x = zeros({3, 4, 5});
  x.transpose().fill_(1);
  x.transpose({2, 0, 1})[{colon, Slice{0, 2}}] = 2;
  x.slice(1, {.step = -2}).fill_(3);
  x[{colon, colon, Slice{.start = 1, .step = 2}}].transpose().fill_(4);
  x.diagonal().fill_(5);
  x.as_strided({6, 2}, {10, 5}, 0).fill_(6);
  x.as_strided({0, 3}, {0, 0}, 0).fill_(7);
  x.reshape({60, 1}).broadcast_to({60, 1}).fill_(8);
  EXPECT_EQ(8 * 60, x.to_vector<float>()[0] * 60);
}

TEST(WriteTarget, APointerForWritingToRepeatedElementsIsRefused) {
  NDArray rows = ones({3}).broadcast_to({4, 3});
  expect_refused(error_of<InvalidArgument>([&] { rows.mutable_data<float>(); }), "mutable_data", "(4, 3)");
  EXPECT_EQ(1, rows.data<float>()[2]) << "reading is allowed";
  NDArray row = rows[1];
  row.mutable_data<float>()[0] = 5;
  EXPECT_EQ(5, rows.to_vector<float>()[9]);
}

TEST(WriteTarget, ARowThatIsRepeatedIsRefusedAndAnEntryOfItIsNot) {
  NDArray rows = ones({3}).broadcast_to({4, 3});
  expect_refused(error_of<InvalidArgument>([&] { rows.fill_(2); }), "fill_", "(4, 3)");
  rows[1] = 5;  // a row without repeated elements
  EXPECT_EQ((std::vector<float>{5, 5, 5}), rows[3].to_vector<float>());
  rows[{colon, 0}].reshape({4}).wait();
  expect_refused(error_of<InvalidArgument>([&] { rows[{colon, 0}] = 1; }), "fill_", "(4,)");
}

TEST(WriteTarget, SizesOfOneAndNoneAreNotRepeated) {
  NDArray x = ones({2});
  x.expand_dims(0).broadcast_to({1, 2}).fill_(3);
  x[{newaxis, colon}] = 4;
  EXPECT_EQ((std::vector<float>{4, 4}), x.to_vector<float>());
  ones({1, 0}).broadcast_to({3, 0}).fill_(1);
  x.as_strided({2, 1}, {1, 0}, 0).fill_(6);
  EXPECT_EQ((std::vector<float>{6, 6}), x.to_vector<float>());
}

TEST(WriteTarget, OutsideMemoryWithAStrideOfZeroIsRefusedToo) {
  float number = 1;
  NDArray wide = from_external(&number, f32, {5}, {0}, [] {});
  expect_refused(error_of<InvalidArgument>([&] { wide.fill_(2); }), "fill_", "(5,)");
  EXPECT_EQ((std::vector<float>(5, 1)), wide.to_vector<float>());
}

}  // namespace
}  // namespace mx
