// The libFuzzer program. The macro MX_FUZZ_ENTRY names the reader.
#include "tests/fuzz/entries.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mx::fuzz::MX_FUZZ_ENTRY(std::as_bytes(std::span(data, size)));
  return 0;
}
