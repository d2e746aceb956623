// Exchanges arrays with NumPy. Writes FILE.npy, which numpy.load reads. With a second argument, reads that
// file, which numpy.save wrote, and prints it.
#include <mx/mx.h>

#include <cstdio>
#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: %s WRITE.npy [READ.npy]\n", argv[0]);
    return 2;
  }
  try {
    using namespace mx;
    const NDArray x = arange(0, 12, 1, f32).reshape({3, 4}) / 4.f;
    save_npy(argv[1], x.transpose());  // a view is saved with its own shape and elements
    const NDArray y = load_npy(argc == 3 ? argv[2] : argv[1]);
    std::cout << y << '\n' << y.dtype() << ' ' << y.shape() << '\n';
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "numpy_interchange: %s\n", e.what());
    return 1;
  }
}
