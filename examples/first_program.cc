// A serial program on arrays. The engine runs independent operations in parallel.
#include <mx/mx.h>

#include <iostream>

using namespace mx;

int main(int argc, char** argv) {
  if (argc > 1) {
    std::cerr << "first_program: expected no arguments, got '" << argv[1] << "'\n";
    return 2;
  }
  NDArray a = ones({2, 2}) * 2;
  NDArray c = a + 2, b = a + 1;  // independent of each other: large arrays are computed in parallel
  NDArray d = b * c;
  a[0] = 7;                             // b and c came earlier in the program, so they use the old value
  std::cout << d << "\n" << a << "\n";  // only lines that read values wait

  NDArray x = linspace(-1, 1, 1'000'000);
  NDArray y = exp(x) / (1 + exp(x));  // returns at once
  std::cout << "y[500000] = " << y[500'000] << "\n";

  try {
    a + x;
  } catch (const Error& e) {  // thrown by the wrong line; the message has both shapes
    std::cout << e.what() << "\n";
  }
}
