// Elementwise operations whose innermost dimension is short.
#include <gtest/gtest.h>

#include <array>

#include "operators/kernels/binary.h"
#include "tests/operators/layout.h"

namespace mx {
namespace {

using namespace kernels;
using namespace testing;

// Rows too short for one call each are processed together, with the same bits as for operands that were
// expanded in memory before.
TEST(ShortRows, OfBroadcastOperandsAreThoseOfFullOnes) {
  for (const auto& [a_type, b_type, out_type] :
       {std::array{f32, f32, f32}, std::array{f64, f64, f64}, std::array{f16, f32, f32},
        std::array{u8, i32, i32}, std::array{bf16, bf16, bf16}}) {
    for (const Shape& shape : {Shape{16, 1}, Shape{100, 3}, Shape{5000, 2}, Shape{17, 64}, Shape{1100, 65},
                               Shape{3, 40, 7}, Shape{2, 3, 700, 10}}) {
      for (const Layout layout : kLayouts) {
        for (int fixed = 0; fixed < shape.rank(); ++fixed) {
          const Owned a(a_type, shape, layout), b(b_type, shape);
          write_random(*a, 0, 100, 1);
          write_random(*b, 0, 100, 2);
          Tensor repeated = *b;  // repeats the first entry along one dimension
          repeated.strides[fixed] = 0;
          const Owned full_a(a_type, shape), full_b(b_type, shape), out(out_type, shape),
              expected(out_type, shape);
          write(*full_a, read(*a));
          write(*full_b, read(repeated));
          for (const bool swapped : {false, true}) {
            binary(BinaryOp::sub, *out, swapped ? repeated : *a, swapped ? *a : repeated);
            const Tensor flat_a{full_a->data, a_type, {shape.numel()}, {1}},
                flat_b{full_b->data, b_type, {shape.numel()}, {1}},
                flat{expected->data, out_type, {shape.numel()}, {1}};
            binary(BinaryOp::sub, flat, swapped ? flat_b : flat_a, swapped ? flat_a : flat_b);
            ASSERT_EQ(expected.bytes(), out.bytes()) << shape << " fixed " << fixed << " " << a_type;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mx
