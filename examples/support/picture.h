// Images as a file: a sheet of small pictures.
#pragma once

#include <cstdint>
#include <string>

#include "ndarray/ndarray.h"

namespace mx::examples {

/// Writes images (n, 1, height, width), floating point from 0 (black) to 1 (white), as one grey PNG file with
/// `columns` images in a row; values beyond the limits are limited, NaN is black. `n` must be a multiple of
/// `columns`. Waits for the images. Throws InvalidArgument for another shape, and FileError.
void write_sheet(const std::string& path, const NDArray& images, int64_t columns);

}  // namespace mx::examples
