// Arrays that compute themselves in parallel, written as if they were computed line by line.
#include <mx/mx.h>

#include <iostream>

using namespace mx;

int main() {
  NDArray a = ones({2, 2}) * 2;
  NDArray c = a + 2, b = a + 1;  // both need a and not each other: where they are large, they run at once
  NDArray d = b * c;
  a[0] = 7;                             // b and c were asked for before, so they do not see it
  std::cout << d << "\n" << a << "\n";  // the only lines that wait are those that look at values

  NDArray x = linspace(-1, 1, 1'000'000);
  NDArray y = exp(x) / (1 + exp(x));  // returns at once
  std::cout << "y[500000] = " << y[500'000] << "\n";

  try {
    a + x;
  } catch (const Error& e) {  // at the line that is wrong, with both shapes
    std::cout << e.what() << "\n";
  }
}
