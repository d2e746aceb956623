// Uses the whole library from outside: mx::mx must bring what its static parts need (oneTBB, zlib, Highway).
#include <mx/mx.h>

#include <cstdio>

#include "operators/operator.h"

int main() {
  const mx::NDArray a = mx::full({300, 300}, 20.5);
  const float sum = (a + a + 1).to(mx::i32)[0][0].item<float>();
  std::printf("outside: %g of %zu operators\n", static_cast<double>(sum), mx::all_operators().size());
  return sum == 42 && mx::find_operator("add") != nullptr ? 0 : 1;
}
