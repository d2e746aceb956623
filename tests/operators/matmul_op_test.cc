#include "operators/matmul.h"

#include "operators/elementwise_binary.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::kNan;
using test::Values;

/// Computes matmul element by element in doubles. For bool, a product sum is an "or" of "and"s; u8 and i8
/// wrap.
Values product(const NDArray& left, const NDArray& right, DType dtype) {
  NDArray a = left.rank() == 1 ? left.expand_dims(0) : left;
  NDArray b = right.rank() == 1 ? right.expand_dims(1) : right;
  Shape ba = a.shape(), bb = b.shape();
  ba.resize(a.rank() - 2);
  bb.resize(b.rank() - 2);
  Shape shape = broadcast_shapes(ba, bb, "test");
  const int batch = shape.rank();
  const int64_t k = a.size(-1);
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  const Values x = test::values(a), y = test::values(b);
  Values result;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    Shape at = test::place(shape, i), bt = at;
    const int64_t column = at[batch + 1];
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      at[batch + 1] = j;
      bt[batch] = j;
      bt[batch + 1] = column;
      // These dimensions do not broadcast, but a size of 1 is index 0 in any case.
      sum += test::broadcast_value(a, x, at) * test::broadcast_value(b, y, bt);
    }
    if (dtype == bool_) sum = sum != 0;
    if (dtype == u8) sum = static_cast<double>(static_cast<uint8_t>(static_cast<int64_t>(sum)));
    if (dtype == i8) sum = static_cast<double>(static_cast<int8_t>(static_cast<int64_t>(sum)));
    result.push_back(sum);
  }
  return result;
}

TEST(MatmulOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  for (const char* name : {"matmul", "dot"})
    test::each_sample(name, [&](const Operator& op, const Sample& s) {
      test::expect_values(product(s.inputs[0], s.inputs[1], s.inputs[0].dtype()),
                          call(op, s.attrs, s.inputs)[0], s.label, 8);
    });
  test::each_sample("linear", [](const Operator& op, const Sample& s) {
    const DType dtype = s.inputs[0].dtype();
    NDArray y = call(op, s.attrs, s.inputs)[0];
    Values want = product(s.inputs[0], s.inputs[1].transpose(), dtype);
    if (s.inputs.size() == 3) {
      const Values bias = test::values(s.inputs[2]);
      for (size_t i = 0; i < want.size(); ++i) {
        want[i] += bias[i % bias.size()];
        if (dtype == bool_) want[i] = want[i] != 0;
        if (dtype == u8) want[i] = static_cast<double>(static_cast<uint8_t>(static_cast<int64_t>(want[i])));
        if (dtype == i8) want[i] = static_cast<double>(static_cast<int8_t>(static_cast<int64_t>(want[i])));
      }
    }
    test::expect_values(want, y, s.label, 8);
  });
  test::each_sample("addmm", [](const Operator& op, const Sample& s) {
    const NDArray y = call(op, s.attrs, s.inputs)[0];
    if (!is_floating(y.dtype())) return;  // a separate test covers alpha = 0.5
    const auto& attrs = s.attrs.get<AddmmAttrs>();
    Values want = product(s.inputs[1], s.inputs[2], f64);
    const Values c = test::values(s.inputs[0]);
    for (size_t i = 0; i < want.size(); ++i)
      want[i] =
          attrs.alpha * want[i] +
          attrs.beta * test::broadcast_value(s.inputs[0], c, test::place(y.shape(), static_cast<int64_t>(i)));
    test::expect_values(want, y, s.label, 8);
  });
}

TEST(MatmulOp, ProductsOfBytesHaveSumsOfI32) {
  test::each_sample("matmul_i32", [](const Operator& op, const Sample& s) {
    const NDArray y = call(op, s.attrs, s.inputs)[0];
    EXPECT_EQ(y.dtype(), i32);
    EXPECT_EQ(product(s.inputs[0], s.inputs[1], i32), test::values(y)) << s.label;
  });
  const NDArray low = full({3, 1000}, -128, i8), high = full({1000, 2}, 127, i8);
  EXPECT_EQ(Values(6, -128. * 127 * 1000), test::values(matmul_i32(low, high)));
  EXPECT_EQ(Values(9, 128. * 128 * 1000), test::values(matmul_i32(low, low.transpose())));
  const NDArray all = full({2, 2, 4000}, 255, u8);
  EXPECT_EQ(Values(8, 255. * 255 * 4000), test::values(matmul_i32(all, all.swap_axes(1, 2))));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { matmul_i32(low, high.to(u8)); }),
                       "[matmul_i32] expected two arrays of i8, or two of u8, got i8 and u8"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         matmul_i32(ones({2, 2}), ones({2, 2}));
                       }),
                       "got f32 and f32"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { matmul_i32(low, low); }), "[matmul_i32]"));
}

TEST(MatmulOp, ShapesOfResultsAreThoseOfNumPy) {
  const auto shape = [](const Shape& a, const Shape& b) { return matmul(zeros(a), zeros(b)).shape(); };
  EXPECT_EQ((Shape{2, 4}), shape({2, 3}, {3, 4}));
  EXPECT_EQ((Shape{2}), shape({2, 3}, {3}));
  EXPECT_EQ((Shape{4}), shape({3}, {3, 4}));
  EXPECT_EQ((Shape{}), shape({3}, {3}));
  EXPECT_EQ((Shape{5, 4}), shape({3}, {5, 3, 4}));
  EXPECT_EQ((Shape{5, 2}), shape({5, 2, 3}, {3}));
  EXPECT_EQ((Shape{6, 5, 2, 4}), shape({6, 1, 2, 3}, {5, 3, 4}));
  EXPECT_EQ((Shape{0, 4}), shape({0, 3}, {3, 4}));
  EXPECT_EQ((Shape{0, 2, 4}), shape({0, 2, 3}, {3, 4}));
}

TEST(MatmulOp, OfNothingIsZero) {
  test::expect_values({0, 0, 0, 0}, matmul(ones({2, 0}), ones({0, 2})), "k = 0");
  test::expect_values({1, 2, 1, 2}, linear(ones({2, 0}), ones({2, 0}), array({1.f, 2.f})), "bias alone");
  test::expect_values({0}, dot(zeros({0}), zeros({0})), "dot");
}

TEST(MatmulOp, ReadsEveryLayoutWhereItIs) {
  for (DType dtype : {f32, f64, bf16, i64}) {
    const NDArray a = test::numbers({4, 3, 5}, dtype, 1), b = test::numbers({4, 5, 2}, dtype, 2),
                  m = test::numbers({5, 2}, dtype, 3);
    for (const NDArray& x : test::layouts(a)) {
      for (const NDArray& y : test::layouts(b))
        test::expect_values(product(a, b, dtype), matmul(x, y), "stack times stack", 8);
      for (const NDArray& y : test::layouts(m))
        test::expect_values(product(a, m, dtype), matmul(x, y), "stack times matrix", 8);
      test::expect_values(product(a.select(1, 1), m, dtype), matmul(x.select(1, 1), m), "rows", 8);
      const NDArray rows = x.slice(1, Slice{1, 2});  // a stack of single rows
      test::expect_values(product(a.slice(1, Slice{1, 2}), m, dtype), matmul(rows, m), "single rows", 8);
    }
    const NDArray wide = m.select(1, 0).expand_dims(1).broadcast_to({5, 3});
    test::expect_values(product(a, wide, dtype), matmul(a, wide), "strides of 0", 8);
  }
}

TEST(MatmulOp, TypesArePromoted) {
  const NDArray a = test::numbers({3, 4}, f16), b = test::numbers({4, 2}, f32, 5);
  EXPECT_EQ(f32, matmul(a, b).dtype());
  test::expect_values(product(a, b, f32), matmul(a, b), "f16 and f32", 4);
  EXPECT_EQ(f32, linear(ones({2, 3}, i32), ones({4, 3}), ones({4}, f16)).dtype());
  EXPECT_EQ(i64, matmul(ones({2, 3}, i32), ones({3, 4}, i64)).dtype());
}

TEST(MatmulOp, LargeProductsGoThroughTheEngineWithTheSameResult) {
  const NDArray a = test::numbers({70, 130}, f64, 1), b = test::numbers({130, 90}, f64, 2);
  test::expect_values(product(a, b, f64), matmul(a, b), "70 x 130 x 90", 40);
  NDArray into = zeros({90, 70}, f64).transpose();
  const NDArray inputs[] = {a, b};
  call_into(into, *find_operator("matmul"), {}, inputs);
  test::expect_values(product(a, b, f64), into, "into a transposed array", 40);
}

TEST(MatmulOp, IntoOneOfItsOperands) {
  NDArray a = test::numbers({4, 4}, f32);
  const Values want = product(a, a, f32);
  const NDArray inputs[] = {a, a};
  call_into(a, *find_operator("matmul"), {}, inputs);
  test::expect_values(want, a, "a = a a", 8);
}

TEST(MatmulOp, AddmmDoesNotReadCWithoutBeta) {
  const NDArray a = ones({2, 3}), c = full({2, 2}, kNan);
  test::expect_values({3, 3, 3, 3}, addmm(c, a, a.slice(0, Slice{}).transpose(), 1, 0), "beta = 0");
  const NDArray i = ones({2, 2}, i64);
  EXPECT_EQ((Values{7, 7, 7, 7}), test::values(addmm(i, i, i, 2.9, 3)));
}

TEST(MatmulOp, OuterAndDot) {
  const NDArray a = array({1.f, 2.f}), b = array({3.f, 4.f, 5.f});
  EXPECT_EQ((Values{3, 4, 5, 6, 8, 10}), test::values(outer(a, b)));
  EXPECT_EQ(50.f, dot(b, b).item<float>());
}

TEST(MatmulOp, ErrorsNameBothShapesAndThePlace) {
  const auto text = [](const Shape& a, const Shape& b) {
    return error_of<InvalidArgument>([&] { matmul(zeros(a), zeros(b)); });
  };
  const std::string inner = text({2, 3}, {4, 5});
  EXPECT_TRUE(contains(inner, "[matmul]") && contains(inner, "(2, 3)") && contains(inner, "(4, 5)")) << inner;
  EXPECT_TRUE(contains(inner, "matmul_op_test.cc")) << inner;
  EXPECT_TRUE(contains(text({}, {3}), "vectors, matrices"));
  EXPECT_TRUE(contains(text({2, 1, 3}, {3, 3, 2}), "broadcast"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { linear(zeros({2, 3}), zeros({3, 4})); }), "(3, 4)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         linear(zeros({2, 3}), zeros({4, 3}), zeros({3}));
                       }),
                       "a bias of shape (4,)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { dot(zeros({2}), zeros({3})); }), "[dot]"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { outer(zeros({2, 2}), zeros({3})); }), "[outer]"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         addmm(zeros({3}), zeros({2, 2}), zeros({2, 2}));
                       }),
                       "broadcast"));
}

}  // namespace
}  // namespace mx
