// Modules, losses, initialisers and the trainer. Only includes.
#pragma once

#include "nn/activations.h"
#include "nn/containers.h"
#include "nn/convolution.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/losses.h"
#include "nn/module.h"
#include "nn/more_losses.h"
#include "nn/norm.h"
#include "nn/pooling.h"
#include "nn/resize_layers.h"
#include "nn/shape_layers.h"
#include "nn/trainer.h"
