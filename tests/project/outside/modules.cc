// Loads the modules that are named on the command line from the installed tree.
#include <comm/module.h>

#include <cstdio>
#include <exception>

int main(int argc, char** argv) try {
  for (int i = 1; i < argc; ++i) mx::comm::load_module(argv[i]);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
