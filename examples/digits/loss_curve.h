// The loss curve as an SVG picture.
#pragma once

#include <string>
#include <vector>

namespace mx::examples {

/// One point per value, from left to right; the vertical axis is logarithmic where all are above 0. Throws
/// FileError when the file cannot be written.
void write_loss_curve(const std::string& path, const std::vector<double>& losses);

}  // namespace mx::examples
