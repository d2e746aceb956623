// The libFuzzer program. The macro MX_FUZZ_ENTRY names the reader, and MX_FUZZ_HEADER its header if it is
// another one.
#include "tests/fuzz/entries.h"
#ifdef MX_FUZZ_HEADER
#  include MX_FUZZ_HEADER
#endif

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mx::fuzz::MX_FUZZ_ENTRY(std::as_bytes(std::span(data, size)));
  return 0;
}
