// The part of cuBLASLt that needs a GPU, for tests without one: handles, heuristics and products, over the
// descriptors of the real library, which needs no GPU for them. A product is computed in double on the host
// from what the descriptors say, so a wrong layout, stride or transposition gives wrong numbers. What the
// library's documentation forbids is refused with a message; the real one accepts some of it.
#pragma once

#include <cstdint>
#include <functional>

namespace mx::test {

struct FakeCublasLt {
  bool refuse_bias = false;  ///< no algorithm adds a bias
  bool refuse_all = false;   ///< no algorithm at all
  /// On the stand-in for CUDA: calls allocate, as those of the library may, and a product is computed by work
  /// that this function is given for the stream. Empty: products are computed at once.
  std::function<void(void* stream, std::function<void()>)> enqueue{};
  int64_t heuristics = 0;  ///< how often an algorithm was asked for
  int64_t products = 0;
};

FakeCublasLt& fake_cublaslt();

/// Makes the kernels use the fake from now on.
void install_fake_cublaslt();

}  // namespace mx::test
