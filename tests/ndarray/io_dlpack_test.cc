// The layout of DLPack's structs, and types in both directions. Also the text checks that all readers share.
#include "ndarray/io/dlpack_abi.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"
#include "ndarray/io/tensor_record.h"
#include "tests/support/errors.h"

namespace mx::dlpack {
namespace {

using test::contains;
using test::error_of;

// The offsets of the specification's C declarations on 64-bit systems.
TEST(DlPack, TheLayoutIsThatOfTheAbi) {
  EXPECT_EQ(8u, sizeof(DLDevice));
  EXPECT_EQ(4u, sizeof(DLDataType));
  EXPECT_EQ(8u, offsetof(DLTensor, device));
  EXPECT_EQ(16u, offsetof(DLTensor, ndim));
  EXPECT_EQ(20u, offsetof(DLTensor, dtype));
  EXPECT_EQ(24u, offsetof(DLTensor, shape));
  EXPECT_EQ(32u, offsetof(DLTensor, strides));
  EXPECT_EQ(40u, offsetof(DLTensor, byte_offset));
  EXPECT_EQ(48u, offsetof(DLManagedTensor, manager_ctx));
  EXPECT_EQ(56u, offsetof(DLManagedTensor, deleter));
  EXPECT_EQ(8u, offsetof(DLManagedTensorVersioned, manager_ctx));
  EXPECT_EQ(16u, offsetof(DLManagedTensorVersioned, deleter));
  EXPECT_EQ(24u, offsetof(DLManagedTensorVersioned, flags));
  EXPECT_EQ(32u, offsetof(DLManagedTensorVersioned, dl_tensor));
}

TEST(DlPack, TypesGoBothWays) {
  for (DType dtype : kAllDTypes) EXPECT_EQ(dtype, from_dlpack(to_dlpack(dtype)));
  EXPECT_EQ(kDLFloat, to_dlpack(f32).code);
  EXPECT_EQ(32, to_dlpack(f32).bits);
  EXPECT_EQ(kDLBfloat, to_dlpack(bf16).code);
  EXPECT_EQ(kDLUInt, to_dlpack(u8).code);
  EXPECT_EQ(kDLInt, to_dlpack(i8).code);
  EXPECT_EQ(kDLBool, to_dlpack(bool_).code);
  EXPECT_EQ(8, to_dlpack(bool_).bits);
}

TEST(DlPack, OtherTypesAreRefusedByName) {
  const auto refused = [](DLDataType type) { return error_of<InvalidArgument>([&] { from_dlpack(type); }); };
  EXPECT_TRUE(contains(refused({kDLUInt, 16, 1}), "got uint (code 1) of 16 bits"));
  EXPECT_TRUE(contains(refused({kDLComplex, 64, 1}), "complex"));
  EXPECT_TRUE(contains(refused({kDLOpaqueHandle, 64, 1}), "opaque handle"));
  EXPECT_TRUE(contains(refused({10, 8, 1}), "8-bit float"));
  EXPECT_TRUE(contains(refused({kDLFloat, 32, 4}), "expected elements of one lane, got 4"));
}

}  // namespace
}  // namespace mx::dlpack

namespace mx::io {
namespace {

TEST(Utf8, OnlyWellFormedTextPasses) {
  for (const char* good :
       {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"})
    EXPECT_TRUE(is_utf8(good)) << good;
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xe2\x82", "\xe2\x82q"})
    EXPECT_FALSE(is_utf8(bad)) << bad;
}

TEST(Utf8, MessagesStayPrintableAndShort) {
  EXPECT_EQ("'a\\x0ab'", in_quotes("a\nb"));
  EXPECT_EQ("'\xc3\xa9'", in_quotes("\xc3\xa9"));
  EXPECT_EQ("'\\xc3'", in_quotes("\xc3"));
  std::string euros, broken(10'000, '\x80');
  for (int i = 0; i < 1000; ++i) euros += "\xe2\x82\xac";
  EXPECT_TRUE(is_utf8(in_quotes(euros)));
  EXPECT_LT(in_quotes(euros).size(), 300u);
  EXPECT_LT(in_quotes(broken).size(), 300u);
}

}  // namespace
}  // namespace mx::io
