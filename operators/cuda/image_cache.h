// Machine code of kernels on disk, so that the next process need not compile it.
//
// An entry is one file, named by a hash of its key. It holds the key too, so another key with the same hash
// is found out, and a checksum, so a truncated or changed file is too. An entry is written to a file of its
// own and then renamed. So processes that write one entry at the same time leave one that is whole.
// The cache is a help only: what cannot be read or written counts as missing, and nothing throws.
//
// Thread-safety: safe from any thread.
#pragma once

#include <optional>
#include <string>

namespace mx::cuda {

/// The folder of the cache: MX_KERNEL_CACHE, or mxrun/kernels below XDG_CACHE_HOME or ~/.cache. Empty: none.
std::string image_folder();

std::optional<std::string> cached_image(const std::string& folder, const std::string& key);
void cache_image(const std::string& folder, const std::string& key, const std::string& image) noexcept;

}  // namespace mx::cuda
