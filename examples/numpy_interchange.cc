// Exchanges arrays with NumPy. Writes FILE.npy, which numpy.load reads. With a second argument, reads that
// file, which numpy.save wrote, and prints it.
#include <mx/mx.h>

#include <iostream>
#include <string>

#include "examples/support/command_line.h"

int main(int argc, char** argv) {
  using namespace mx;
  std::string written, read;
  examples::CommandLine line("Exchanges arrays with NumPy");
  line.option("WRITE", &written, "file to write, which numpy.load reads").required();
  line.option("READ", &read, "file to read, which numpy.save wrote; none: the one that was written");
  if (const auto status = line.parse(argc, argv)) return *status;
  return examples::run_program("numpy_interchange", [&] {
    const NDArray x = arange(0, 12, 1, f32).reshape({3, 4}) / 4.f;
    save_npy(written, x.transpose());  // a view is saved with its own shape and elements
    const NDArray y = load_npy(read.empty() ? written : read);
    std::cout << y << '\n' << y.dtype() << ' ' << y.shape() << '\n';
  });
}
