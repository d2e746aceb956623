// The handwritten digits in the examples: augmentation, normalisation, a loader, the test.
#pragma once

#include <mx/mx.h>

#include <string>

#include "examples/support/training_run.h"

namespace mx::examples {

/// Small random changes, after which an image still shows the same digit, and normalise_digits().
data::Transform augment_digits();
/// Subtracts the mean of all training images, and divides by their standard deviation.
data::Transform normalise_digits();

/// Returns a loader of the training images as (1, 28, 28), in another order in each epoch.
data::Loader digit_loader(const RunOptions& options, const data::Transform& transform);

/// Returns the accuracy of the net on the 10,000 test images, in predict mode.
double test_accuracy(nn::Module& net, const RunOptions& options);

}  // namespace mx::examples
