// Memory shared through DLPack: its owner at each time, and invalid tensors that are refused.
#include "ndarray/dlpack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ndarray/launch.h"
#include "tests/support/errors.h"
#include "tests/support/failures.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using namespace dlpack;
using test::contains;
using test::error_of;
using test::Hold;
using test::settle;

/// A producer that counts how often its memory was returned to it.
template <class Managed>
struct Producer {
  std::vector<float> memory{0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<int64_t> shape{2, 3};
  std::vector<int64_t> strides{3, 1};
  Managed managed{};
  int released = 0;

  Producer() {
    if constexpr (requires { managed.version; }) managed.version = {kMajorVersion, 7};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Producer*>(self->manager_ctx)->released; };
    managed.dl_tensor = {memory.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape.data(), strides.data(), 0};
  }
};

template <class Managed>
class DlPackOwnership : public testing::Test {
 protected:
  static Managed* export_array(const NDArray& array) {
    if constexpr (requires(Managed m) { m.version; }) {
      return to_dlpack(array);
    } else {
      return to_dlpack_legacy(array);
    }
  }
};
using Forms = testing::Types<DLManagedTensorVersioned, DLManagedTensor>;
TYPED_TEST_SUITE(DlPackOwnership, Forms);

TYPED_TEST(DlPackOwnership, AnImportedTensorIsGivenBackOnceAfterTheLastUse) {
  Producer<TypeParam> producer;
  Hold hold;
  NDArray view, copy;
  {
    const NDArray array = from_dlpack(&producer.managed);
    EXPECT_EQ(producer.memory.data(), array.data<float>());
    EXPECT_EQ((Shape{2, 3}), array.shape());
    view = array.select(0, 1);
  }
  EXPECT_EQ(0, producer.released) << "a view uses it";
  current_engine().push_async(hold.operation(), {.updates = {view.var()}, .name = "hold"});
  copy = view.clone();
  view = NDArray();
  EXPECT_EQ(0, producer.released) << "an operation uses it";
  hold.release();
  EXPECT_EQ((std::vector<float>{3, 4, 5}), copy.to_vector<float>());
  settle();
  EXPECT_EQ(1, producer.released);
}

TYPED_TEST(DlPackOwnership, StridesAndOffsetsAreThoseOfTheTensor) {
  Producer<TypeParam> producer;
  producer.strides = {1, -2};
  producer.managed.dl_tensor.byte_offset = 5 * sizeof(float);
  const NDArray array = from_dlpack(&producer.managed);
  EXPECT_EQ((std::vector<float>{5, 3, 1, 6, 4, 2}), array.to_vector<float>());
  Producer<TypeParam> plain;
  plain.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ((std::vector<float>{0, 1, 2, 3, 4, 5}), from_dlpack(&plain.managed).template to_vector<float>());
  Producer<TypeParam> scalar;
  scalar.managed.dl_tensor.ndim = 0;
  scalar.managed.dl_tensor.shape = nullptr;
  EXPECT_EQ(0.f, from_dlpack(&scalar.managed).template item<float>());
  Producer<TypeParam> none;
  none.shape = {0, 3};
  none.managed.dl_tensor.data = nullptr;
  EXPECT_EQ((Shape{0, 3}), from_dlpack(&none.managed).shape());
  EXPECT_EQ(1, none.released) << "there is nothing to share";
}

TYPED_TEST(DlPackOwnership, WhatIsRefusedStaysTheCallers) {
  const auto refused = [](auto change, const char* word) {
    Producer<TypeParam> producer;
    change(producer);
    const std::string message = error_of<InvalidArgument>([&] { from_dlpack(&producer.managed); });
    EXPECT_TRUE(contains(message, word)) << message;
    EXPECT_EQ(0, producer.released) << message;
  };
  refused([](auto& p) { p.managed.dl_tensor.device = {kDLCUDA, 0}; }, "device type 2");
  refused([](auto& p) { p.managed.dl_tensor.dtype = {kDLComplex, 64, 1}; }, "complex");
  refused([](auto& p) { p.managed.dl_tensor.dtype.lanes = 4; }, "lane");
  refused([](auto& p) { p.managed.dl_tensor.ndim = kMaxRank + 1; }, "dimensions");
  refused([](auto& p) { p.managed.dl_tensor.ndim = -1; }, "dimensions");
  refused([](auto& p) { p.managed.dl_tensor.shape = nullptr; }, "shape");
  refused([](auto& p) { p.shape[0] = -2; }, "-2");
  refused([](auto& p) { p.shape = {int64_t{1} << 40, int64_t{1} << 40}; }, "from_dlpack");
  refused([](auto& p) { p.managed.dl_tensor.data = nullptr; }, "null");
  refused([](auto& p) { p.managed.dl_tensor.byte_offset = 2; }, "multiples of 4");
  // Layouts that no memory can have.
  constexpr int64_t kHuge = INT64_MAX / 2;
  refused([](auto& p) { p.strides = {kHuge, kHuge}; }, "address space");
  refused([](auto& p) { p.strides = {kHuge, 1}; }, "address space");
  refused([](auto& p) { p.strides = {3, INT64_MIN / 2}; }, "address space");
  refused([](auto& p) { p.strides = {-kHuge / 4, 1}; }, "address space");
  refused([](auto& p) { p.managed.dl_tensor.byte_offset = UINT64_MAX - 3; }, "address space");
  // bool elements that are neither true nor false, among them the last one of a row.
  for (const auto& [place, stride] : {std::pair<size_t, int64_t>{0, 3}, {2, 3}, {10, 8}})
    refused(
        [&, place = place, stride = stride](auto& p) {
          p.managed.dl_tensor.dtype = {kDLBool, 8, 1};
          p.strides[0] = stride;
          auto* const bytes = reinterpret_cast<uint8_t*>(p.memory.data());
          std::fill_n(bytes, 4 * p.memory.size(), uint8_t{1});
          bytes[place] = 255;
        },
        "booleans of 0 or 1, got 255");
  error_of<InvalidArgument>([] { from_dlpack(static_cast<TypeParam*>(nullptr)); });
}

TYPED_TEST(DlPackOwnership, BooleansThatAreOnesAreTaken) {
  Producer<TypeParam> producer;
  auto* const bytes = reinterpret_cast<uint8_t*>(producer.memory.data());
  const uint8_t values[] = {1, 0, 1, 7, 1, 1, 0};  // the 7 lies between the rows and is no element
  std::copy(std::begin(values), std::end(values), bytes);
  producer.managed.dl_tensor.dtype = {kDLBool, 8, 1};
  producer.strides = {4, 1};
  EXPECT_EQ((std::vector<bool>{true, false, true, true, true, false}),
            from_dlpack(&producer.managed).template to_vector<bool>());
}

TYPED_TEST(DlPackOwnership, AnExportKeepsTheMemoryAndShowsTheView) {
  TypeParam* managed;
  {
    const NDArray x = arange(0, 6, 1, f32).reshape({2, 3});
    managed = this->export_array(x.transpose().slice(0, {1, 3}));
  }
  const DLTensor& tensor = managed->dl_tensor;
  EXPECT_EQ(kDLCPU, tensor.device.device_type);
  ASSERT_EQ(2, tensor.ndim);
  EXPECT_EQ((std::vector<int64_t>{2, 2}), std::vector<int64_t>(tensor.shape, tensor.shape + 2));
  EXPECT_EQ((std::vector<int64_t>{1, 3}), std::vector<int64_t>(tensor.strides, tensor.strides + 2));
  EXPECT_EQ(kDLFloat, tensor.dtype.code);
  const float* data = static_cast<const float*>(tensor.data);
  EXPECT_EQ(1.f, data[0]);
  EXPECT_EQ(5.f, data[1 + 3]);
  managed->deleter(managed);
}

TYPED_TEST(DlPackOwnership, TypesAndEmptyArraysGoOut) {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{}, Shape{0, 2}, Shape{3}}) {
      TypeParam* managed = this->export_array(ones(shape, dtype));
      EXPECT_EQ(dtype, dlpack::from_dlpack(managed->dl_tensor.dtype));
      EXPECT_EQ(shape.rank(), managed->dl_tensor.ndim);
      EXPECT_EQ(shape.numel() == 0, managed->dl_tensor.data == nullptr);
      managed->deleter(managed);
    }
  }
}

TYPED_TEST(DlPackOwnership, AnArrayThatComesHomeIsTheSameArray) {
  NDArray x = zeros({4});
  NDArray back = from_dlpack(this->export_array(x));
  EXPECT_TRUE(back.shares_memory(x));
  EXPECT_EQ(x.var(), back.var());
}

// An external buffer with the producer's own reference count is released even if the array was exported
// meanwhile.
TYPED_TEST(DlPackOwnership, ExportsOfImportsHoldTheFirstOwner) {
  Producer<TypeParam> producer;
  TypeParam* managed = this->export_array(from_dlpack(&producer.managed));
  EXPECT_EQ(0, producer.released);
  managed->deleter(managed);
  EXPECT_EQ(1, producer.released);
}

TEST(DlPack, WaitsForReadersAndWriters) {
  const NDArray x = zeros({1000});
  Engine& engine = current_engine();
  std::vector<int> order;
  engine.push([&] { order.push_back(1); }, {.updates = {x.var()}});
  engine.push([&] { order.push_back(2); }, {.reads = {x.var()}});
  DLManagedTensorVersioned* managed = to_dlpack(x);
  order.push_back(3);
  EXPECT_EQ((std::vector<int>{1, 2, 3}), order);
  managed->deleter(managed);
}

TEST(DlPack, AnExportForReadingWaitsForWritersOnlyAndChangesNothing) {
  const NDArray x = zeros({1000});
  Engine& engine = current_engine();
  bool written = false;
  Hold hold;
  engine.push([&] { written = true; }, {.updates = {x.var()}});
  engine.push_async(hold.operation(), {.reads = {x.var()}, .name = "a reader"});
  const uint32_t version = x.impl().storage->version();
  DLManagedTensorVersioned* managed = to_dlpack(x, DLPackAccess::read_only);
  EXPECT_TRUE(written);
  EXPECT_EQ(kFlagReadOnly, managed->flags & kFlagReadOnly);
  EXPECT_EQ(version, x.impl().storage->version()) << "nothing has been changed";
  managed->deleter(managed);
  hold.release();
  managed = to_dlpack(x);
  EXPECT_EQ(0U, managed->flags);
  EXPECT_NE(version, x.impl().storage->version()) << "from now on the consumer may write";
  managed->deleter(managed);
  // Memory that has not been used yet.
  managed = to_dlpack(empty({3}), DLPackAccess::read_only);
  EXPECT_NE(nullptr, managed->dl_tensor.data);
  managed->deleter(managed);
}

TEST(DlPack, ErrorsComeOutOfTheExport) {
  const NDArray bad = test::failed_array();
  EXPECT_TRUE(contains(error_of<Error>([&] { to_dlpack(bad); }), "no such luck"));
  EXPECT_TRUE(contains(error_of<Error>([&] { to_dlpack(bad, DLPackAccess::read_only); }), "no such luck"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { to_dlpack(zeros({2}, f32, virt(0))); }), "virt(0)"));
  error_of<InvalidArgument>([] { to_dlpack(NDArray()); });
}

TEST(DlPack, ReadOnlyMemoryIsCopied) {
  Producer<DLManagedTensorVersioned> producer;
  producer.managed.flags = kFlagReadOnly;
  NDArray array = from_dlpack(&producer.managed);
  array.fill_(9);
  array.wait();
  settle();
  EXPECT_EQ(1.f, producer.memory[1]);
  EXPECT_EQ(1, producer.released);
}

TEST(DlPack, OtherMajorVersionsAreRefused) {
  Producer<DLManagedTensorVersioned> producer;
  producer.managed.version.major = 2;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { from_dlpack(&producer.managed); }), "2.7"));
  EXPECT_EQ(0, producer.released);
}

TEST(DlPackTargets, AViewThatRepeatsElementsIsExportedForReadingOnly) {
  const NDArray row = array({1.f, 2.f, 3.f});
  const NDArray wide = row.broadcast_to({4, 3});
  DLManagedTensorVersioned* const tensor = to_dlpack(wide);
  EXPECT_EQ(kFlagReadOnly, tensor->flags & kFlagReadOnly);
  EXPECT_EQ(0, tensor->dl_tensor.strides[0]);
  tensor->deleter(tensor);
  DLManagedTensorVersioned* const plain = to_dlpack(row);
  EXPECT_EQ(0U, plain->flags);
  plain->deleter(plain);
  const std::string text = error_of<InvalidArgument>([&] { to_dlpack_legacy(wide); });
  EXPECT_TRUE(contains(text, "[to_dlpack] expected an array whose elements do not share memory")) << text;
  EXPECT_TRUE(contains(text, "(4, 3)") && contains(text, "(0, 1)")) << text;
}

TEST(DlPackTargets, AnImportedViewThatRepeatsElementsIsNotWritten) {
  Producer<DLManagedTensor> producer;
  producer.strides = {0, 1};
  NDArray array = from_dlpack(&producer.managed);
  EXPECT_THROW(array.fill_(1), InvalidArgument);
  EXPECT_THROW(array.copy_from(zeros({2, 3})), InvalidArgument);
  EXPECT_EQ((std::vector<float>{0, 1, 2, 0, 1, 2}), array.to_vector<float>());
}

}  // namespace
}  // namespace mx
