// Encoding of images as PNG. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mx::training::detail {

/// Returns a PNG file of 8 bits per channel. `pixels` has height * width * channels bytes, row by row;
/// `channels` is 1 (grey), 3 (RGB) or 4 (RGBA).
std::string encode_png(const std::vector<uint8_t>& pixels, int64_t height, int64_t width, int64_t channels);

}  // namespace mx::training::detail
