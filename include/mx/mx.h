// Everything that is public. Only includes.
#pragma once

#include "executor/autograd/autograd.h"
#include "executor/autograd/functional.h"
#include "mx/engine.h"
#include "ndarray/dlpack.h"
#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "nn/nn.h"
#include "nn/data/idx.h"
#include "nn/data/loader.h"
#include "nn/data/mnist.h"
#include "nn/metric/metric.h"
#include "operators/operators.h"
#include "operators/scratch.h"
#include "optim/update.h"
