// The entry points of the fuzzers, one function per reader. Each takes arbitrary bytes and returns whether
// they were a valid file. It ends the process if the reader breaks a promise: an exception that is not an
// mx::Error, a tensor outside the file, or contents that change when they are written and read again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mx::fuzz {

using Entry = bool (*)(std::span<const std::byte> file);

bool safetensors(std::span<const std::byte> file);
bool npy(std::span<const std::byte> file);
bool npz(std::span<const std::byte> file);
bool mxnet_params(std::span<const std::byte> file);
bool idx(std::span<const std::byte> file);
bool handshake(std::span<const std::byte> file);
bool rendezvous(std::span<const std::byte> file);
bool call_header(std::span<const std::byte> file);

struct Target {
  const char* name;  ///< the folder of its corpus
  Entry entry;
};
inline constexpr Target kTargets[] = {{"safetensors", safetensors},
                                      {"npy", npy},
                                      {"npz", npz},
                                      {"mxnet_params", mxnet_params},
                                      {"idx", idx},
                                      {"handshake", handshake},
                                      {"rendezvous", rendezvous},
                                      {"call_header", call_header}};

}  // namespace mx::fuzz
